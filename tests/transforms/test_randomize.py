"""Whose randomness a report holds: nobody else's, or the user's own on every retry."""

from __future__ import annotations

from collections import Counter

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.transforms import Randomize, ValueBlock
from beam_ldp.transforms.device.keyed import NoiseSource
from tests.identities import identity
from tests.transforms.helpers import ORACLE, blocks_of, run, truth_values, value_blocks

pytestmark = pytest.mark.pipeline

WIDE = KRandomizedResponse(2**16, 0.1)  # reports are nearly uniform: equal ones mean shared draws
KEY = bytes(range(32))
MULTI = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY)
    return str(path)


def reports_of(blocks, stage, *flags):
    found = run(lambda p: blocks_of(p, blocks) | stage, *flags)
    return sorted(found, key=lambda block: block.origin)


def by_user(blocks, stage):
    """Reports in the order of the users, whatever the blocks."""
    pairs = run(lambda p: blocks_of(p, blocks) | stage | beam.Map(lambda b: (b.origin, b.reports)))
    places = {}
    for block in blocks:
        from apache_beam.transforms.window import GlobalWindow

        from beam_ldp.transforms.device.side import origin_of

        places[origin_of(block, GlobalWindow())] = block.user_ids
    out = {}
    for origin, reports in pairs:
        out.update(zip(places[origin].tolist(), reports.tolist()))
    return [out[user] for user in sorted(out)]


def test_blocks_scalars_arrays_rows_and_arrow():
    values = [0, 1, 2, 3, 4] * 20
    inputs = {
        "scalars": values,
        "numpy scalars": [np.int64(v) for v in values],
        "arrays": [np.array(values, dtype=np.uint8)],
        "rows": [beam.Row(v=v) for v in values],
        "mappings": [{"v": v} for v in values],
        "batches": [pa.RecordBatch.from_pydict({"v": values})],
        "blocks": [ValueBlock(np.array(values))],
    }
    for name, elements in inputs.items():
        blocks = run(lambda p, e=elements: p | beam.Create(e) | Randomize(ORACLE))
        assert sum(map(len, blocks)) == 100, name
        for block in blocks:
            assert block.reports.dtype == np.uint8 and block.reports.max() < 5
            assert block.mechanism_digest == ORACLE.config_digest() and not block.simulated


def test_keyed_scalars_stay_with_their_key():
    pairs = [("a", 1)] * 30 + [("b", 2)] * 20
    found = run(
        lambda p: p | beam.Create(pairs).with_output_types(tuple[str, int]) | Randomize(ORACLE)
    )
    sizes = Counter()
    for key, block in found:
        sizes[key] += len(block)
    assert sizes == {"a": 30, "b": 20}


@pytest.mark.parametrize(
    "elements",
    [[5], [-1], ["secret"], [None], [{"a": 1, "b": 2}], [pa.array([1, None])], [1, (2, 3)]],
)
def test_bad_values_stop_the_run_and_are_not_quoted(elements):
    with pytest.raises(Exception) as error:
        run(lambda p: p | beam.Create(elements) | Randomize(ORACLE))
    text = str(error.value)
    assert "secret" not in text
    assert "must lie in [0, 5)" in text or "Randomize takes" in text or "must be" in text


def test_fresh_noise_is_shared_by_nobody():
    """Two workers, many bundles, equal blocks with equal positions: no run of draws repeats,
    neither between the workers nor in the process that started them.

    Among 64 blocks of 64 nearly uniform 16-bit reports equal blocks have probability 2**-1000.
    """
    block = ValueBlock(np.zeros(64, dtype=np.int64), source="same", positions=np.arange(64))
    found = run_on([block] * 64, *MULTI)
    again = run_on([block] * 64)
    assert len(set(found)) == 64
    assert not set(found) & set(again), "a retry draws anew"


def run_on(blocks, *flags):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        from tests.transforms.helpers import local

        with local(*flags) as pipeline:
            (
                blocks_of(pipeline, blocks)
                | beam.Reshuffle()
                | beam.Map(lambda b: b).with_output_types(ValueBlock)
                | Randomize(WIDE)
                | beam.Map(lambda b: b.reports.tobytes().hex())
                | beam.io.WriteToText(str(Path(folder) / "out"))
            )
        return [line for path in Path(folder).iterdir() for line in path.read_text().splitlines()]


def test_memoized_reports_do_not_depend_on_blocks_or_runs(key_file):
    values = truth_values(1000)
    noise = NoiseSource(identity("r", "d"), key_file)
    runs = [
        by_user(value_blocks(values, size, ids=True), Randomize(WIDE, noise=noise))
        for size in (7, 100, 100, 1000)
    ]
    assert runs[0] == runs[1] == runs[2] == runs[3]
    device = WIDE.randomize(values, UserRandomness(KEY, np.arange(1000), identity("r", "d")))
    assert runs[0] == device.tolist(), "the same as the device itself would send"


@pytest.mark.statistical
@pytest.mark.parametrize("change", ["release", "dataset", "column", "mechanism", "key", "value"])
def test_memoized_reports_are_independent_when_anything_changes(key_file, tmp_path, change):
    """Equal reports of 4000 users are about 4000 / 2**16: 5 or more by chance once in 10**9."""
    values = np.zeros(4000, dtype=np.int64)
    noise, oracle = NoiseSource(identity("r", "d"), key_file), WIDE
    first = by_user(value_blocks(values, 500, ids=True), Randomize(WIDE, noise=noise))
    if change == "release":
        noise = NoiseSource(identity("s", "d"), key_file)
    elif change == "dataset":
        noise = NoiseSource(identity("r", "e"), key_file)
    elif change == "column":
        noise = NoiseSource(identity("r", "d", columns=("hiv",)), key_file)
    elif change == "mechanism":
        oracle = KRandomizedResponse(2**16, 0.1000001)
    elif change == "value":
        values = values + 1
    else:
        other = tmp_path / "other"
        other.write_bytes(bytes(32))
        noise = NoiseSource(identity("r", "d"), str(other))
    second = by_user(value_blocks(values, 500, ids=True), Randomize(oracle, noise=noise))
    assert sum(a == b for a, b in zip(first, second)) < 5


@pytest.mark.statistical
def test_two_releases_reveal_no_more_than_two_fresh_reports(key_file):
    """Joint law of a person's reports in two releases is the product law: 4-sigma chi-square."""
    num_users = 20_000
    blocks = value_blocks(np.zeros(num_users, dtype=np.int64), 5000, ids=True)
    pair = [
        by_user(blocks, Randomize(ORACLE, noise=NoiseSource(identity(name), key_file)))
        for name in ("one", "two")
    ]
    p, q = ORACLE.support_probabilities
    law = np.array([p, q, q, q, q])
    expected = np.outer(law, law) * num_users
    found = np.zeros((5, 5))
    np.add.at(found, tuple(pair), 1)
    score = ((found - expected) ** 2 / expected).sum()
    assert abs(score - 24) < 4 * 48**0.5 + 4


def test_memoized_needs_ids_and_a_key(key_file, tmp_path):
    blocks = value_blocks(np.zeros(5, dtype=np.int64), 5)
    with pytest.raises(Exception, match="memoized randomization needs user ids"):
        reports_of(blocks, Randomize(ORACLE, noise=NoiseSource(identity(), key_file)))
    short = tmp_path / "short"
    short.write_bytes(b"sixteen bytes...")
    with pytest.raises(Exception, match="at least 32 secret bytes") as error:
        reports_of(blocks, Randomize(ORACLE, noise=NoiseSource(identity(), str(short))))
    assert "sixteen" not in str(error.value)
    with pytest.raises(Exception, match="must be readable on every worker"):
        missing = str(tmp_path / "missing")
        reports_of(blocks, Randomize(ORACLE, noise=NoiseSource(identity(), missing)))


def test_a_seed_repeats_runs_but_not_blocks():
    blocks = value_blocks(np.zeros(1000, dtype=np.int64), 100)
    first = reports_of(blocks, Randomize(WIDE, noise=NoiseSource(seed=7)))
    again = reports_of(blocks[::-1], Randomize(WIDE, noise=NoiseSource(seed=7)))
    other = reports_of(blocks, Randomize(WIDE, noise=NoiseSource(seed=8)))
    assert all(block.simulated for block in first)
    for a, b, c in zip(first, again, other):
        assert np.array_equal(a.reports, b.reports) and not np.array_equal(a.reports, c.reports)
    assert len({block.reports.tobytes() for block in first}) == 10


def test_a_seed_does_not_repeat_noise_where_blocks_look_the_same():
    blocks = [ValueBlock(np.zeros(100, dtype=np.int64))] * 8
    found = run(lambda p: blocks_of(p, blocks) | Randomize(WIDE, noise=NoiseSource(seed=7)))
    assert len({block.reports.tobytes() for block in found}) == 8
