"""Adding statistics: in any order, merged or not, without touching what was given."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
from beam_ldp.randomizers.mean import PrivUnit
from beam_ldp.transforms import MismatchError, ShuffledSum, StatisticBlock
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.shuffler import sums
from beam_ldp.transforms.shuffler.sums import (
    RunningSum,
    SumStatistics,
    split_groups,
    zero_statistic,
)
from tests.transforms.helpers import ORACLE

pytestmark = pytest.mark.exact

COMBINE = SumStatistics(PortableRandomizer(ORACLE))
DIGEST = ORACLE.config_digest()
counts = st.lists(st.integers(0, 2**40), min_size=5, max_size=5).map(np.array)
blocks = st.builds(
    lambda statistic, num, batch, simulated: StatisticBlock(
        statistic, num, min(num, batch), DIGEST, simulated
    ),
    counts, st.integers(0, 2**40), st.integers(1, 2**30), st.booleans(),
)  # fmt: skip


def facts(total):
    return (
        total.statistic.tolist(),
        total.num_reports,
        total.smallest_batch,
        total.simulated,
        total.mechanism_digest,
    )


@settings(max_examples=50)
@given(st.lists(blocks, max_size=6), st.data())
def test_merged_and_unmerged_paths_agree(inputs, data):
    before = [facts(block) for block in inputs]
    one = COMBINE.create_accumulator()
    for block in inputs:
        one = COMBINE.add_input(one, block)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(inputs)), max_size=4)))
    parts = np.split(np.arange(len(inputs)), cuts)
    accumulators = []
    for part in parts:
        accumulator = COMBINE.create_accumulator()
        for i in part:
            accumulator = COMBINE.add_input(accumulator, inputs[i])
        accumulators.append(accumulator)
    coder = BlockCoder(StatisticBlock)
    accumulators = [coder.decode(coder.encode(a)) for a in accumulators]
    others = [facts(a) for a in accumulators[1:]]
    merged = COMBINE.merge_accumulators(iter(accumulators))
    assert facts(COMBINE.extract_output(merged)) == facts(COMBINE.extract_output(one))
    assert [facts(a) for a in accumulators[1:]] == others, "only the first may change"
    assert [facts(block) for block in inputs] == before, "inputs must not change"
    batches = [b.smallest_batch for b in inputs if b.smallest_batch]
    assert merged.smallest_batch == (min(batches) if batches else 0)


def test_nothing_to_merge_is_zero():
    assert facts(COMBINE.merge_accumulators([])) == facts(zero_statistic(ORACLE))


def test_a_released_sum_is_one_batch():
    total = COMBINE.add_input(
        COMBINE.create_accumulator(), ShuffledSum(np.arange(5), 9, DIGEST, False)
    )
    assert (total.num_reports, total.smallest_batch) == (9, 9)


@pytest.mark.parametrize(
    "other", [KRandomizedResponse(5, 1.6), KRandomizedResponse(4, 1.5)], ids=["epsilon", "size"]
)
def test_another_mechanism_stops_the_sum(other):
    block = zero_statistic(other)
    with pytest.raises(MismatchError, match="another mechanism"):
        COMBINE.add_input(COMBINE.create_accumulator(), block)


@pytest.mark.parametrize("fold_at", [1, 7, 10**6])
def test_running_sum_equals_accumulate(monkeypatch, fold_at):
    monkeypatch.setattr("beam_ldp.transforms.shuffler.sums.FOLD_BYTES", fold_at)
    reports = np.random.default_rng(3).integers(0, 5, 1000).astype(np.uint8)
    running = RunningSum(ORACLE)
    for part in np.array_split(reports, 13):
        running.add(part, 50 + len(part), False)
    running.add(reports[:0], 1, True)
    total = running.total()
    assert np.array_equal(total.statistic, np.bincount(reports, minlength=5))
    assert (total.num_reports, total.smallest_batch, total.simulated) == (1000, 126, True)
    assert facts(RunningSum(ORACLE).total()) == facts(zero_statistic(ORACLE))


@given(st.lists(st.integers(0, 6)))
def test_split_groups_keeps_every_row_in_order(groups):
    groups = np.array(groups, dtype=np.int64)
    seen = []
    for group, rows in split_groups(groups):
        assert (groups[rows] == group).all() and (np.diff(rows) > 0).all()
        seen.extend(rows.tolist())
    assert sorted(seen) == list(range(len(groups)))


@pytest.mark.pipeline
def test_large_sums_are_added_in_a_tree_by_their_own_coder(monkeypatch):
    monkeypatch.setattr(sums, "LARGE_STATISTIC", 1)
    parts = [
        (key, StatisticBlock(np.arange(5) + i, 10, 10, DIGEST))
        for i in range(30)
        for key in ("a", "b")
    ]
    with TestPipeline(runner="FnApiRunner") as pipeline:
        typed = beam.typehints.Tuple[str, StatisticBlock]
        total = (
            pipeline
            | beam.Create(parts).with_output_types(typed)
            | sums.combine_sums(PortableRandomizer(ORACLE), "Add")
        )
        places = pipeline._current_transform().parts[-1].parts[1].inputs[0].element_type
        assert places == beam.typehints.Tuple[beam.typehints.Tuple[str, int], StatisticBlock]
        expected = (np.arange(5) * 30 + sum(range(30))).tolist()
        found = total | beam.MapTuple(lambda key, s: (key, s.statistic.tolist(), s.num_reports))
        assert_that(found, equal_to([("a", expected, 300), ("b", expected, 300)]))


def test_sums_of_an_earlier_version_do_not_add_to_those_of_this_one():
    """They hold no squares: NumPy alone would add each row to both."""
    mechanism = PrivUnit(3, 2.0)
    combine = SumStatistics(PortableRandomizer(mechanism))
    alone = StatisticBlock(np.arange(3), 7, 7, mechanism.config_digest())
    with pytest.raises(MismatchError, match="another version of beam-ldp"):
        combine.add_input(combine.create_accumulator(), alone)
