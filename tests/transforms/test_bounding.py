"""One report per person: which row counts, however the rows are spread."""

from __future__ import annotations

import time
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.transforms import BoundContributions, ValueBlock
from beam_ldp.transforms.device.bounding import best_rows, shard_of
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.elements.blocks import CandidateBlock
from tests.identities import identity
from tests.transforms.helpers import blocks_of, chi_square, held_blocks_of, run

pytestmark = pytest.mark.pipeline


@pytest.fixture
def memoized(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    return NoiseSource(identity("r"), str(path))


def cut(values, ids, size, groups=None):
    return [
        ValueBlock(
            values[i : i + size],
            ids[i : i + size],
            None if groups is None else groups[i : i + size],
            "file",
            np.arange(i, min(i + size, len(values))),
        )
        for i in range(0, len(values), size)
    ]


def bounded(blocks, **arguments):
    """`{id: (value, group)}` of all persons."""
    found = run(lambda p: blocks_of(p, blocks) | BoundContributions(**arguments))
    out = {}
    for block in found:
        groups = [None] * len(block) if block.groups is None else block.groups.tolist()
        for user_id, value, group in zip(block.user_ids.tolist(), block.values.tolist(), groups):
            assert user_id not in out, "a person twice"
            out[user_id] = (value, group)
    return out


@pytest.mark.parametrize("text", [False, True])
def test_every_person_once_with_one_of_their_rows(text):
    rng = np.random.default_rng(4)
    ids = rng.integers(-500, 500, 5000)
    values = np.arange(5000)
    groups = values % 7
    named = np.array([b"id %d" % i for i in ids], dtype=object) if text else ids
    found = bounded(cut(values, named, 333, groups))
    assert set(found) == set(named.tolist())
    for user_id, (value, group) in found.items():
        assert named[value] == user_id and group == value % 7


@pytest.mark.parametrize(
    ("ids", "others"),
    [
        (["1"], set()),
        ([1.0], set()),
        (["1.0"], set()),
        ([b"1", "ada"], {b"ada"}),
        ([2**70, "1.00"], {b"%d" % 2**70}),
        (["01", "1 "], {b"01", b"1 "}),
    ],
)
def test_one_person_however_the_id_is_read(ids, others):
    blocks = [
        ValueBlock(np.array([1, 2]), [1, 2], source="s", positions=np.arange(2)),
        ValueBlock(np.full(len(ids), 3), ids, source="t", positions=np.arange(len(ids))),
    ]
    assert set(bounded(blocks)) == {1, 2} | others


@pytest.mark.statistical
@pytest.mark.parametrize("mode", ["fresh", "memoized", "simulated"])
def test_the_row_is_uniform(memoized, mode):
    """6000 persons with five rows each, spread over blocks; 5-sigma chi-square."""
    num = 6000
    ids = np.tile(np.arange(num), 5)
    values = np.repeat(np.arange(5), num)
    noise = {"fresh": NoiseSource(), "memoized": memoized, "simulated": NoiseSource(seed=3)}[mode]
    found = bounded(cut(values, ids, 1700), noise=noise)
    counts = np.bincount([value for value, _ in found.values()], minlength=5)
    assert chi_square(counts, num / 5) < 5


def test_memoized_draw_repeats_for_any_blocks_and_changes_with_the_release(memoized):
    ids = np.tile(np.arange(300), 5)
    values = np.arange(1500)
    first = bounded(cut(values, ids, 100), noise=memoized)
    assert first == bounded(cut(values, ids, 1500), noise=memoized)
    assert first == bounded(cut(values, ids, 7)[::-1], noise=memoized, num_shards=3)
    other = bounded(cut(values, ids, 100), noise=replace(memoized, identity=identity("s")))
    same = sum(first[user] == other[user] for user in first)
    assert 20 < same < 110, "one in five by chance"
    assert bounded(cut(values, ids, 100)) != bounded(cut(values, ids, 100))


def test_each_window_draws_anew():
    block = ValueBlock(
        np.arange(4), np.zeros(4, dtype=np.int64), source="s", positions=np.arange(4)
    )

    def build(pipeline):
        return (
            pipeline
            | beam.Create([TimestampedValue(block, t) for t in (1, 61, 62)])
            | beam.Map(lambda b: b).with_output_types(ValueBlock)
            | beam.WindowInto(FixedWindows(60))
            | BoundContributions()
        )

    assert [len(found) for found in run(build)] == [1, 1]


@pytest.mark.parametrize("text", [False, True])
def test_a_person_with_most_rows_costs_no_more(text):
    """Half a million rows of one person beside fifty thousand others: microseconds for each."""
    start = time.process_time()
    ids = np.concatenate([np.zeros(500_000, dtype=np.int64), np.arange(50_000)])
    if text:
        ids = np.array([b"%d" % i for i in range(50_000)], dtype=object)[ids]
    values = np.random.default_rng(1).integers(0, 5, len(ids)).astype(np.uint8)
    found = run(lambda p: held_blocks_of(p, cut(values, ids, 1 << 17)) | BoundContributions())
    assert sum(map(len, found)) == 50_000
    assert time.process_time() - start < 8


def test_missing_ids_and_positions_are_said(memoized):
    with pytest.raises(Exception, match="needs user ids"):
        bounded([ValueBlock(np.arange(3))])
    with pytest.raises(Exception, match="needs source positions"):
        bounded([ValueBlock(np.arange(3), np.arange(3))], noise=memoized)


@pytest.mark.exact
def test_best_rows_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(9)
    ids, ranks = rng.integers(0, 40, 500), rng.integers(0, 3, 500).astype(np.uint64)
    values = rng.integers(0, 9, 500)
    whole = best_rows([CandidateBlock(values, ids, ranks)])
    for _ in range(5):
        order = rng.permutation(500)
        parts = [CandidateBlock(values[o], ids[o], ranks[o]) for o in np.array_split(order, 4)]
        again = best_rows([best_rows(parts[:2]), *parts[2:]])
        for name in ("values", "user_ids", "ranks"):
            assert np.array_equal(getattr(whole, name), getattr(again, name))
    for user_id, rank in zip(whole.user_ids, whole.ranks):
        assert rank == ranks[ids == user_id].min()


@pytest.mark.exact
def test_shards_are_stable_and_even():
    ids = np.arange(64_000)
    counts = np.bincount(shard_of(ids, 64), minlength=64)
    assert abs(chi_square(counts, 1000)) < 5
    texts = np.array([b"user-%d@example.org" % i for i in ids], dtype=object)
    assert chi_square(np.bincount(shard_of(texts, 64), minlength=64), 1000) < 5
    assert shard_of(np.array([0, 1, -1, 2**62]), 64).tolist() == [0, 37, 59, 5]
    assert shard_of(texts[:2], 64).tolist() == [44, 8]
