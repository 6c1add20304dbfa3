"""Reports through files: all of them arrive, once; everything else is refused and listed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import registry

from beam_ldp.randomizers import wire
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.randomizers.wire import ReleaseTerms, encode_envelope
from beam_ldp.transforms import (
    Aggregate,
    EstimateFrequencies,
    Randomize,
    ReadReports,
    ReportBlock,
    Shuffle,
    StageError,
    WriteMemoizedReports,
    WriteReports,
)
from beam_ldp.transforms.report_files import DUPLICATE, EnvelopeBlock
from tests.transforms.helpers import (
    ORACLE,
    TRUTH,
    blocks_of,
    local,
    run,
    truth_values,
    value_blocks,
)

pytestmark = pytest.mark.pipeline

TERMS = ReleaseTerms(ORACLE, "week-47", Domain(tuple("abcd")).digest)


def some(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 5, count).astype(np.uint8)


def write(folder: Path, values: np.ndarray, terms: ReleaseTerms = TERMS, **how: Any) -> list[str]:
    """What a device, or an edge, runs."""
    blocks = value_blocks(values, 700)
    seed = 3 if terms.simulated else None
    return run(
        lambda pipeline: (
            blocks_of(pipeline, blocks)
            | Randomize(terms.randomizer, seed=seed)
            | WriteReports(str(folder), terms, **how)
        )
    )


def read(
    *patterns: Any, terms: ReleaseTerms = TERMS
) -> tuple[np.ndarray, list[tuple[str, int, str]]]:
    """All reports, and what was refused as (file name, offset, reason)."""
    blocks, refused = [], []
    for found in run(
        lambda pipeline: _both(pipeline | ReadReports([str(p) for p in patterns], terms))
    ):
        (blocks if isinstance(found, ReportBlock) else refused).append(found)
    listed = sorted((Path(r.source).name, r.position, r.reason) for rows in refused for r in rows)
    assert all(block.mechanism_digest == ORACLE.config_digest() for block in blocks)
    assert all(block.origin for block in blocks)
    parts = [block.reports for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0), listed


def _both(reports: Any) -> Any:
    return (reports, reports.bad_rows) | beam.Flatten()


@pytest.mark.parametrize("how", [{}, {"num_files": 1}, {"reports_per_envelope": 1}])
def test_what_is_written_is_read(tmp_path, how):
    """The multiset of reports, by way of a seed: the same reports without files in between."""
    terms = ReleaseTerms(ORACLE, "r", TERMS.domain_digest, simulated=True)
    values = truth_values(3000)
    paths = write(tmp_path, values, terms, **how)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert sorted(Path(path).name for path in paths) == files
    assert all(name.startswith("reports-0000") and name.endswith(".ldp") for name in files)
    reports, refused = read(tmp_path / "*", terms=terms)
    direct = run(lambda p: blocks_of(p, value_blocks(values, 700)) | Randomize(ORACLE, seed=3))
    expected = np.concatenate([block.reports for block in direct])
    np.testing.assert_array_equal(np.bincount(reports), np.bincount(expected))
    assert len(reports) == 3000 and refused == []
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    envelopes = 3000 if how.get("reports_per_envelope") == 1 else 5
    assert abs(size - (82 * envelopes + 3000 * 3 / 8)) <= 3000


def test_collector_estimates_from_files(tmp_path):
    """From devices to the estimate; 5.5 standard errors, fresh randomness, 5 comparisons: fails by
    chance once in 5 million runs."""
    write(tmp_path, truth_values(20_000))
    (release,) = run(
        lambda pipeline: (
            pipeline
            | ReadReports(f"{tmp_path}/*.ldp", TERMS)
            | Shuffle(ORACLE, 20_000, "statistic")
            | Aggregate(ORACLE)
            | EstimateFrequencies(ORACLE, min_reports=20_000)
        )
    )
    assert release.num_reports == 20_000 and not release.simulated
    assert release.event.num_reports == 20_000
    errors = np.sqrt(ORACLE.variance(20_000, TRUTH))
    assert (np.abs(release.estimate.value - TRUTH) < 5.5 * errors).all()


def test_several_messages_per_person(tmp_path):
    mechanism = LInfMean(4, 6.0)
    assert mechanism.messages_per_user > 1
    terms = ReleaseTerms(mechanism, "r")
    vectors = np.random.default_rng(2).uniform(-1, 1, (500, 4))
    run(
        lambda pipeline: (
            blocks_of(pipeline, value_blocks(vectors, 300))
            | Randomize(mechanism)
            | WriteReports(str(tmp_path), terms)
        )
    )
    blocks = run(lambda pipeline: pipeline | ReadReports(f"{tmp_path}/*", terms))
    assert sum(map(len, blocks)) == 500
    assert {block.reports.shape[1:] for block in blocks} == {(mechanism.messages_per_user,)}


def test_everything_else_is_refused_with_its_place(tmp_path):
    sound = [encode_envelope(TERMS, some(4, i), bytes([i]) * 16) for i in (1, 2, 3)]
    other = ReleaseTerms(ORACLE, "week-46", TERMS.domain_digest)
    old = encode_envelope(other, some(5), b"o" * 16)
    (tmp_path / "a.ldp").write_bytes(sound[0] + old + sound[1][:-2] + sound[2])
    (tmp_path / "b.ldp").write_bytes(b"\x00\x01" * 50)
    (tmp_path / "c.ldp").write_bytes(b"")
    (tmp_path / "release.json").write_bytes(b"left out")
    (tmp_path / ".hidden").write_bytes(b"left out")
    length = len(sound[0])
    reports, refused = read(tmp_path / "*")
    np.testing.assert_array_equal(np.sort(reports), np.sort(np.r_[some(4, 1), some(4, 3)]))
    assert refused == [
        ("a.ldp", length, wire.OTHER_RELEASE),
        ("a.ldp", length + len(old), wire.TOO_SHORT),
        ("b.ldp", 0, wire.NOT_AN_ENVELOPE),
    ]


def test_copies_count_once(tmp_path):
    """The first in the order of files and offsets is taken, whoever is read first."""
    mine = encode_envelope(TERMS, some(3, 1), b"\xff" * 16)
    forged = encode_envelope(TERMS, np.full(9, 4, dtype=np.uint8), b"\xff" * 16)
    others = [encode_envelope(TERMS, some(1, i), bytes([i]) * 16) for i in range(2, 250)]
    nameless = encode_envelope(TERMS, some(2, 7), wire.NO_ID)
    (tmp_path / "a.ldp").write_bytes(b"".join(others[:100]) + mine + mine + nameless + nameless)
    (tmp_path / "b.ldp").write_bytes(forged + b"".join(others) + mine + nameless)
    shutil.copy(tmp_path / "a.ldp", tmp_path / "c.ldp")
    reports, refused = read(tmp_path / "*.ldp", tmp_path / "a*")
    expected = [some(1, i) for i in range(2, 250)] + [some(3, 1)] + [some(2, 7)] * 5
    np.testing.assert_array_equal(np.sort(reports), np.sort(np.concatenate(expected)))
    assert {reason for *_, reason in refused} == {DUPLICATE}
    by_file = [sum(name == file for name, *_ in refused) for file in ("a.ldp", "b.ldp", "c.ldp")]
    assert by_file == [1, 1 + 100 + 1, 100 + 2]


def test_stages_that_do_not_fit():
    with local() as pipeline:
        raw = pipeline | beam.Create([1])
        with pytest.raises(StageError, match="WriteReports takes ReportBlock"):
            raw | WriteReports("nowhere", TERMS)
    for name in ("num_files", "reports_per_envelope"):
        with pytest.raises(ValueError, match=f"{name} must be an integer >= 1, got -1"):
            WriteReports("nowhere", TERMS, **{name: -1})


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (ReportBlock(some(3), bytes(16)), "another mechanism"),
        (ReportBlock(some(3), ORACLE.config_digest(), simulated=True), "terms.simulated must be"),
        (
            ReportBlock(some(3), ORACLE.config_digest(), np.zeros(3, int)),
            "where reports are of groups",
        ),
    ],
)
def test_blocks_that_do_not_fit(tmp_path, block, message):
    with pytest.raises(Exception, match=message):
        run(lambda pipeline: blocks_of(pipeline, [block]) | WriteReports(str(tmp_path), TERMS))
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(Exception, match="nothing.*: no file of reports matches"):
        read(tmp_path / "nothing*")
    (tmp_path / "a.gz").write_bytes(b"no gzip at all")
    with pytest.raises(Exception, match=r"a\.gz: cannot be read \("):
        read(tmp_path / "a.gz")


@pytest.mark.exact
def test_envelope_blocks_travel():
    block = EnvelopeBlock(
        "file", np.array([0, 90]), np.array([2, 1]), np.eye(2, 16, dtype=np.uint8), some(3)
    )
    coder = registry.get_coder(EnvelopeBlock)
    again = coder.decode(coder.encode(block))
    for name in ("offsets", "counts", "ids", "reports"):
        np.testing.assert_array_equal(getattr(again, name), getattr(block, name))
    assert again.source == "file" and len(again) == 2


def test_reports_of_groups(tmp_path):
    """Every report comes back in its group; an envelope of no group is of another release."""
    groups = Domain(("DE", "FR"))
    values = truth_values(900)
    held = np.arange(900) % 3
    blocks = [
        replace(block, groups=held[block.positions].astype(np.uint8))
        for block in value_blocks(values, 400)
    ]
    terms = ReleaseTerms(ORACLE, "r", TERMS.domain_digest, simulated=True)
    run(
        lambda pipeline: (
            blocks_of(pipeline, blocks)
            | Randomize(ORACLE, seed=3)
            | WriteReports(str(tmp_path), terms, groups=groups)
        )
    )
    (tmp_path / "more").write_bytes(encode_envelope(terms, some(7)))
    found = run(lambda p: _both(p | ReadReports(str(tmp_path), terms, groups=groups)))
    reports = [block for block in found if isinstance(block, ReportBlock)]
    direct = run(lambda p: blocks_of(p, blocks) | Randomize(ORACLE, seed=3))
    for group in range(3):
        got, expected = (
            np.sort(np.concatenate([b.reports[b.groups == group] for b in which]))
            for which in (reports, direct)
        )
        np.testing.assert_array_equal(got, expected)
    (refused,) = (block for block in found if not isinstance(block, ReportBlock))
    assert [row.reason for row in refused] == [wire.OTHER_RELEASE]


def test_memoized_edges_send_one_envelope_for_each_person(tmp_path):
    """The same for another order and another cut into blocks; another value keeps the id, another
    release has none of the ids."""
    (tmp_path / "key").write_bytes(bytes(range(32)))
    values = truth_values(300)

    def sent(name, terms, blocks):
        run(
            lambda pipeline: (
                blocks_of(pipeline, blocks)
                | WriteMemoizedReports(str(tmp_path / name), terms, str(tmp_path / "key"))
            )
        )
        data = b"".join(path.read_bytes() for path in sorted((tmp_path / name).iterdir()))
        size = len(encode_envelope(terms, some(1)))
        return {data[i + 54 : i + 70]: data[i : i + size] for i in range(0, len(data), size)}

    blocks = value_blocks(values, 100, ids=True)
    first = sent("first", TERMS, blocks)
    assert len(first) == 300
    turned = [block.rows(0, 40) for block in blocks[::-1]] + [b.rows(40, 100) for b in blocks]
    assert sent("again", TERMS, turned) == first
    changed = sent("changed", TERMS, value_blocks((values + 1) % 5, 300, ids=True))
    assert set(changed) == set(first) and changed != first
    other = ReleaseTerms(ORACLE, "week-48", TERMS.domain_digest)
    assert not set(sent("other", other, blocks)) & set(first)
    found = run(lambda p: _both(p | ReadReports([f"{tmp_path}/first", f"{tmp_path}/again"], TERMS)))
    assert sum(len(block) for block in found if isinstance(block, ReportBlock)) == 300
    with pytest.raises(ValueError, match="terms.simulated must be false"):
        simulated = ReleaseTerms(ORACLE, "r", simulated=True)
        WriteMemoizedReports(str(tmp_path), simulated, "key")
    with pytest.raises(Exception, match="needs user ids"):
        sent("nobody", TERMS, value_blocks(values, 300))


def test_a_folder_stands_for_its_files(tmp_path):
    write(tmp_path / "in", truth_values(100))
    assert len(read(tmp_path / "in")[0]) == 100 == len(read(f"{tmp_path}/in/")[0])
