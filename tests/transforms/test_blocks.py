"""Coders: what comes back is what went in, in few bytes, the same bytes every time."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import registry
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from beam_ldp.randomizers.contrasts import difference_of
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import HadamardResponse, LimitedHadamard
from beam_ldp.randomizers.mean import MeanEstimate
from beam_ldp.randomizers.questions import OneQuestion
from beam_ldp.transforms.collector.panes import pool
from beam_ldp.transforms.elements import block_coder, blocks
from tests.transforms.helpers import ORACLE

pytestmark = pytest.mark.exact

arrays = hnp.arrays(
    st.sampled_from(["u1", "i2", "u2", "i4", "i8", "u8", "f4", "f8", "?"]).map(np.dtype),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
)
texts = st.text(max_size=20)


def round_trip(block):
    coder = registry.get_coder(type(block))
    assert isinstance(coder, block_coder.BlockCoder)
    assert coder.is_deterministic()
    data = coder.encode(block)
    back = coder.decode(data)
    assert coder.encode(back) == data
    assert type(back) is type(block)
    return back


def same(one, other):
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


ids = st.text(min_size=1, max_size=9).filter(lambda text: "e+" not in text.lower())


@given(arrays, st.binary(max_size=16), st.booleans())
def test_report_blocks(reports, digest, simulated):
    back = round_trip(blocks.ReportBlock(reports, digest, origin=b"o", simulated=simulated))
    assert same(back.reports, reports)
    assert (back.mechanism_digest, back.origin, back.simulated) == (digest, b"o", simulated)
    assert back.reports.flags.writeable and back.reports.flags.aligned


@given(st.lists(st.one_of(ids, ids.map(str.encode), st.integers()), max_size=9), texts)
def test_value_blocks_with_text_ids(ids, source):
    values = np.arange(len(ids))
    block = blocks.ValueBlock(values, ids, source=source, positions=values * 3 + 1)
    back = round_trip(block)
    assert back.user_ids.tolist() == block.user_ids.tolist()
    assert same(back.values, values) and same(back.positions, values * 3 + 1)
    assert back.source == source and back.groups is None


@given(st.integers(0, 2**40), st.integers(0, 40))
def test_consecutive_positions_are_two_numbers(first, count):
    block = blocks.ValueBlock(np.zeros(count), positions=np.arange(first, first + count))
    assert same(round_trip(block).positions, block.positions)


def test_consecutive_positions_cost_nothing_per_row():
    coder = registry.get_coder(blocks.ValueBlock)
    size = [
        len(coder.encode(blocks.ValueBlock(np.zeros(n, np.uint8), positions=np.arange(n) + 2**40)))
        for n in (1000, 2000)
    ]
    assert size[1] - size[0] == 1000


@pytest.mark.parametrize(
    ("most", "width"), [(255, 1), (256, 2), (2**16, 4), (2**32, 8), (-1, 1), (-129, 2)]
)
def test_integers_travel_in_the_smallest_dtype(most, width):
    array = np.array([0, most], dtype=np.int64)
    assert block_coder.smallest_dtype(array).itemsize == width
    back = round_trip(blocks.ShuffledSum(array, 2, b"d"))
    assert same(back.statistic, array)


@given(arrays, st.integers(0, 2**50), st.sampled_from(["reports", "statistic"]))
def test_statistics(statistic, num, output):
    back = round_trip(blocks.StatisticBlock(statistic, num, num // 2, b"d" * 16, False, output))
    assert same(back.statistic, statistic)
    assert (back.num_reports, back.smallest_batch, back.output) == (num, num // 2, output)


def test_other_blocks():
    ranks = np.array([2**64 - 1, 5], dtype=np.uint64)
    candidate = round_trip(blocks.CandidateBlock(np.arange(2), np.arange(2), ranks))
    assert same(candidate.ranks, ranks)
    shuffled = round_trip(blocks.ShuffledBlock(np.arange(3), b"d", 77, True))
    assert (shuffled.batch_size, shuffled.simulated) == (77, True)
    bad = blocks.BadRow("file", 7, "null")
    assert round_trip(bad) == bad
    withheld = blocks.WithheldRelease(1, 2, "too few", "q", "group", (0, 5))
    assert round_trip(withheld) == withheld
    batch = pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", "y"]})
    table = round_trip(blocks.TableBlock("file", 9, batch))
    assert table.batch.equals(batch) and (table.source, table.first_position) == ("file", 9)


@given(
    st.lists(st.tuples(st.integers(-1, 2**40), st.sampled_from(["null", "NaN", "no user id"]))),
    st.booleans(),
)
def test_bad_rows_travel_together(rows, placed):
    rows = [(7, "null"), *rows]
    block = blocks.BadRowBlock.of("file ü", rows)
    if not placed:
        block = blocks.BadRowBlock("file ü", None, block.codes, block.reasons)
        rows = [(blocks.UNKNOWN_POSITION, reason) for _, reason in rows]
    back = round_trip(block)
    assert list(back) == [blocks.BadRow("file ü", *row) for row in rows]
    assert len(back) == len(rows) == len(back.listed_positions())
    assert all(type(position) is int for position in back.listed_positions())


def test_bad_rows_cost_some_bytes_each():
    size = [
        len(registry.get_coder(blocks.BadRowBlock).encode(
            blocks.BadRowBlock.of("a long name of a file", [(7 * i, "null") for i in range(count)])
        ))
        for count in (1000, 2000)
    ]  # fmt: skip
    assert size[1] - size[0] < 5000


def test_rows_of_a_block_are_a_block():
    block = blocks.ValueBlock(np.arange(6).reshape(3, 2), [7, 8, 9], None, "f", np.array([1, 5, 6]))
    part = block.rows(1, 3)
    assert part.values.tolist() == [[2, 3], [4, 5]] and part.user_ids.tolist() == [8, 9]
    assert (part.groups, part.source, part.positions.tolist()) == (None, "f", [5, 6])


def test_release_keeps_the_estimate_and_derives_the_event_again():
    estimate = ORACLE.estimate(np.arange(5), 10)
    event = blocks.shuffled_among(ORACLE, 10)
    release = blocks.Release(estimate, 10, event, "q", None, (0, 10), ORACLE.to_config(), 10)
    back = round_trip(release)
    assert same(back.estimate.value, estimate.value)
    assert same(back.estimate.standard_error, estimate.standard_error)
    assert (
        back.event == release.event
        and back.mechanism == release.mechanism
        and back.window == (0, 10)
    )


@pytest.mark.parametrize(
    "randomizer",
    [
        ORACLE,
        HadamardResponse(5, 2.0),
        OneQuestion((ORACLE, HadamardResponse(4, 2.0), LimitedHadamard(3, 2.0))),
    ],
)
def test_release_keeps_what_intervals_follow_from(randomizer):
    rng = np.random.default_rng(0)
    values = np.zeros((30, 3) if isinstance(randomizer, OneQuestion) else 30, dtype=int)
    statistic = randomizer.accumulate(randomizer.randomize(values, rng))
    estimate = randomizer.estimate(statistic, 30)
    for one in (estimate, estimate.clip()):
        back = round_trip(blocks.Release(one, 30, None, mechanism=randomizer.to_config())).estimate
        for simultaneous in (False, True):
            found = back.confidence_interval(simultaneous=simultaneous)
            for mine, own in zip(found, one.confidence_interval(simultaneous=simultaneous)):
                assert same(mine, own)


def test_rules_of_differences_do_not_travel():
    estimate = ORACLE.estimate(np.arange(5), 10)
    apart = difference_of(estimate, estimate)
    with pytest.raises(TypeError, match="estimates of Difference do not travel"):
        block_coder.ESTIMATE.write(apart, [])


def test_release_keeps_the_unbiased_estimate_below_the_steps():
    estimate = Estimate(np.array([-0.1, 1.1]), np.array([0.2, 0.2]), 10).clip()
    back = round_trip(blocks.Release(estimate, 10, None, mechanism=ORACLE.to_config()))
    assert back.estimate.steps == ("clip",) and back.event is None
    assert same(back.estimate.raw.value, np.array([-0.1, 1.1]))


def test_damaged_bytes_are_refused():
    coder = registry.get_coder(blocks.ShuffledSum)
    data = coder.encode(blocks.ShuffledSum(np.arange(9), 2, b"d"))
    with pytest.raises(ValueError, match="truncated"):
        coder.decode(data[:-3])
    with pytest.raises(ValueError, match="followed by"):
        coder.decode(data + b"x")
    with pytest.raises(ValueError, match="version must be 3, got 9"):
        coder.decode(b"\x09" + data[1:])


def test_objects_do_not_travel_and_coders_are_values():
    with pytest.raises(TypeError, match="Python objects"):
        registry.get_coder(blocks.ShuffledSum).encode(
            blocks.ShuffledSum(np.array([{}], dtype=object), 1, b"")
        )
    coder = block_coder.BlockCoder(blocks.ReportBlock)
    assert pickle.loads(pickle.dumps(coder)) == coder != block_coder.BlockCoder(blocks.BadRow)


def test_columns_of_a_block_have_one_length():
    with pytest.raises(ValueError, match="user_ids must hold one entry per value"):
        blocks.ValueBlock(np.arange(3), [1, 2])
    with pytest.raises(TypeError, match="user_ids must be integers, text or bytes"):
        blocks.ValueBlock(np.arange(2), [1, None])


@pytest.mark.parametrize("bars", ["measured", "worst case"])
def test_error_bars_travel_and_those_of_earlier_versions_are_of_the_worst_case(bars):
    estimate = MeanEstimate(np.ones(2), np.ones(2), 5, mean_squared_error=2.0, error_bars=bars)
    out = []
    block_coder.ESTIMATE.write(estimate, out)
    found = block_coder.ESTIMATE.read(block_coder.BlockReader(b"".join(out)))
    assert found.error_bars == bars and found.mean_squared_error == 2.0
    now, before = [], []
    block_coder.ARRAY.write(np.zeros(7), now)
    block_coder.ARRAY.write(np.array([2.0, 0.0, 0.0, 0.0]), before)  # without the last one
    found = block_coder.ESTIMATE.read(
        block_coder.BlockReader(b"".join([*out[: -len(now)], *before]))
    )
    assert found.error_bars == "worst case" and found.mean_squared_error == 2.0


@pytest.mark.parametrize("skewness", [0.0, np.array([0.1, 0.4])])
def test_what_makes_intervals_of_means_wider_travels(skewness):
    estimate = MeanEstimate(
        np.ones(2), np.ones(2), 30, error_bars="measured", degrees_of_freedom=29, skewness=skewness
    )
    for sent in (estimate, estimate.clip()):
        out = []
        block_coder.ESTIMATE.write(sent, out)
        found = block_coder.ESTIMATE.read(block_coder.BlockReader(b"".join(out)))
        assert np.array_equal(found.confidence_interval(), sent.confidence_interval())
        assert found.degrees_of_freedom == 29 and np.array_equal(found.skewness, skewness)


def test_pooled_bars_have_the_degrees_of_freedom_of_their_parts():
    """Welch and Satterthwaite, known errors with infinitely many; third moments add up."""
    few = MeanEstimate(
        np.zeros(2), np.array([1.0, 2.0]), 30, degrees_of_freedom=29, skewness=np.array([0.5, 0.0])
    )
    assert pool([few, few]).degrees_of_freedom == pytest.approx(58)
    assert pool([few, few]).skewness == pytest.approx([0.5 / np.sqrt(2), 0.0])
    known = MeanEstimate(np.zeros(2), np.array([1.0, 2.0]), 30)
    assert pool([few, known]).degrees_of_freedom == pytest.approx(4 * 29)
    assert pool([known, known]).degrees_of_freedom == np.inf
    many = MeanEstimate(np.zeros(2), np.array([0.1, 0.1]), 3000, degrees_of_freedom=2999)
    assert 29 < pool([few, many]).degrees_of_freedom < 3028


def test_pooled_bars_are_measured_where_all_are():
    parts = [
        MeanEstimate(np.ones(2), np.ones(2), 5, error_bars=bars)
        for bars in ("measured", "measured", "worst case")
    ]
    assert pool(parts[:2]).error_bars == "measured"
    assert pool(parts).error_bars == "worst case"
