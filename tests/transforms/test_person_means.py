"""Many rows of a person become one mean, however they are spread, and always the same one."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.protocols import Ball, Box
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.transforms import ValueBlock
from beam_ldp.transforms.device.person_means import MeanPerPerson, PersonSums, add_sums
from tests.transforms.helpers import blocks_of, run

UNIT = Box(CoordinateRanges(-1, 1), 2)


def cut(values, ids, size):
    return [
        ValueBlock(values[i : i + size], ids[i : i + size]) for i in range(0, len(values), size)
    ]


def means_of(blocks, space=UNIT, **arguments):
    """`{id: mean}` of all persons."""
    found = {}
    for block in run(lambda p: blocks_of(p, blocks) | MeanPerPerson(space, **arguments)):
        for user_id, mean in zip(block.user_ids.tolist(), block.values):
            assert user_id not in found, "a person twice"
            found[user_id] = mean
    return found


@pytest.mark.pipeline
@pytest.mark.parametrize("text", [False, True])
def test_means_are_those_of_each_persons_rows(text):
    rng = np.random.default_rng(1)
    ids = rng.integers(-300, 300, 5000)
    rows = rng.uniform(-1, 1, (5000, 2))
    named = np.array([b"id %d" % i for i in ids], dtype=object) if text else ids
    found = means_of(cut(rows, named, 333))
    assert set(found) == set(named.tolist())
    for name, mean in found.items():
        np.testing.assert_allclose(mean, rows[named == name].mean(axis=0), atol=2**-32)


@pytest.mark.pipeline
def test_integer_and_text_ids_are_one_person():
    blocks = [
        ValueBlock(np.array([[0.5, 0.0]]), np.array([7])),
        ValueBlock(np.array([[-0.5, 0.0]]), np.array([b"7"], dtype=object)),
    ]
    found = means_of(blocks)
    assert {key: float(mean[0]) for key, mean in found.items()} == {7: 0.0}


@pytest.mark.pipeline
def test_mean_does_not_depend_on_the_order_of_rows_nor_on_blocks():
    """To the last bit: memoized noise is a function of the bits of the mean."""
    rng = np.random.default_rng(2)
    ids, rows = rng.integers(0, 20, 2000), rng.normal(0, 0.4, (2000, 2))
    first = means_of(cut(rows, ids, 97))
    order = rng.permutation(2000)
    second = means_of(cut(rows[order], ids[order], 500), num_shards=3)
    assert all((first[i] == second[i]).all() for i in range(20))


@pytest.mark.pipeline
def test_rows_are_clipped_one_by_one_before_they_are_averaged():
    found = means_of([ValueBlock(np.array([[5.0, 0], [-1.0, 0]]), np.array([1, 1]))])
    assert found[1].tolist() == [0.0, 0.0]  # (1 - 1)/2, not (5 - 1)/2 clipped
    ball = means_of(
        [ValueBlock(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([1, 1]))], Ball(2, radius=1.0)
    )
    np.testing.assert_allclose(ball[1], [0.3, 0.4], atol=1e-9)


@pytest.mark.pipeline
def test_windows_have_means_of_their_own():
    stamped = [
        TimestampedValue(ValueBlock(np.full((1, 2), x), np.array([1])), t)
        for t, x in ((1, 0.25), (2, 0.75), (100, -1.0))
    ]

    def build(pipeline):
        return (
            pipeline
            | beam.Create(stamped)
            | beam.Map(lambda block: block).with_output_types(ValueBlock)
            | beam.WindowInto(FixedWindows(50))
            | MeanPerPerson(UNIT)
        )

    assert sorted(float(block.values[0, 0]) for block in run(build)) == [-1.0, 0.5]


@pytest.mark.pipeline
def test_late_firings_are_refused_when_the_pipeline_is_built():
    def build(pipeline):
        typed = blocks_of(pipeline, [ValueBlock(np.zeros((1, 2)), np.array([1]))])
        windowed = typed | beam.WindowInto(FixedWindows(5), allowed_lateness=9)
        return windowed | MeanPerPerson(UNIT)

    with pytest.raises(ValueError, match="a person with rows in two firings would report twice"):
        run(build)


@pytest.mark.exact
def test_unbounded_data_are_refused_when_the_pipeline_is_built():
    from apache_beam.testing.test_stream import TestStream

    pipeline = beam.Pipeline(runner="FnApiRunner")
    blocks = pipeline | TestStream().advance_watermark_to_infinity()
    typed = blocks | beam.Map(lambda block: block).with_output_types(ValueBlock)
    with pytest.raises(ValueError, match="MeanPerPerson takes bounded data"):
        typed | beam.WindowInto(FixedWindows(5)) | MeanPerPerson(UNIT)


@pytest.mark.pipeline
def test_rows_without_ids_stop_the_run():
    with pytest.raises(Exception, match="needs user ids"):
        means_of([ValueBlock(np.zeros((3, 2)))])


@pytest.mark.exact
def test_sums_are_the_same_merged_in_any_way():
    rng = np.random.default_rng(3)
    parts = [
        PersonSums(
            rng.integers(0, 9, 50), rng.integers(-(2**32), 2**32, (50, 2)), np.ones(50, np.int64)
        )
        for _ in range(4)
    ]
    whole = add_sums(parts)
    stepwise = add_sums([add_sums(parts[:2]), add_sums([parts[3], parts[2]])])
    for name in ("user_ids", "sums", "counts"):
        assert (getattr(whole, name) == getattr(stepwise, name)).all()
    assert whole.counts.sum() == 200


@pytest.mark.pipeline
def test_a_person_is_in_the_group_of_most_rows_with_the_mean_of_those():
    ids, groups = np.array([1, 1, 1, 2, 2, 3]), np.array([2, 0, 2, 1, 0, 1])
    values = np.array([[0.5], [-1.0], [0.25], [0.5], [0.125], [1.0]])
    halves = [
        ValueBlock(values[i::2], ids[i::2], groups[i::2], "rows", np.arange(3)) for i in range(2)
    ]
    space = Box(CoordinateRanges(-1, 1))
    found = {
        int(user_id): (int(group), float(mean[0]))
        for block in run(lambda p: blocks_of(p, halves) | MeanPerPerson(space))
        for user_id, group, mean in zip(block.user_ids, block.groups, block.values)
    }
    assert found == {1: (2, 0.375), 2: (0, 0.125), 3: (1, 1.0)}


@pytest.mark.exact
def test_more_rows_than_exact_sums_hold_are_refused():
    huge = PersonSums(np.array([1]), np.zeros((1, 1), np.int64), np.array([1 << 30]))
    with pytest.raises(ValueError, match="at most 1073741824 rows"):
        add_sums([huge, huge])
