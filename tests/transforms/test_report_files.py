"""Reports through files: all of them arrive, once; everything else is refused and listed."""

from __future__ import annotations

import gzip
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import wire
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import Rappor
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.randomizers.set_digest import set_digest, set_records
from beam_ldp.randomizers.wire import ReleaseTerms, encode_envelope, encode_envelopes
from beam_ldp.randomizers.wire_stream import StreamPart
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
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.wire import DUPLICATE, FileTally, file_parts, read_reports
from beam_ldp.transforms.wire.file_parts import FilePart, PartReader, find_parts
from beam_ldp.transforms.wire.read_reports import Aside, ListIds, listed_ids, named_before
from tests.randomizers.wire_terms import terms_of
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

LIST = Domain(tuple("abcd")).digest.hex()
TERMS = terms_of(ORACLE, values=LIST, reports_per_envelope=9)
ALONE = terms_of(ORACLE, values=LIST)


def some(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 5, count).astype(np.uint8)


def write(folder: Path, values: np.ndarray, terms: ReleaseTerms = TERMS, **how: Any) -> list[str]:
    """What a device, or an edge, runs."""
    blocks = value_blocks(values, 700)
    seed = 3 if terms.simulated else None
    return run(
        lambda pipeline: (
            blocks_of(pipeline, blocks)
            | Randomize(terms.randomizer, noise=NoiseSource(seed=seed))
            | WriteReports(str(folder), terms, **how)
        )
    )


def read(
    *patterns: Any, terms: ReleaseTerms = TERMS, **how: Any
) -> tuple[np.ndarray, list[tuple[str, int, str]]]:
    """All reports, and what was refused as (file name, offset, reason)."""
    blocks, refused = [], []
    for found in run(
        lambda pipeline: _both(pipeline | ReadReports([str(p) for p in patterns], terms, **how))
    ):
        (blocks if isinstance(found, ReportBlock) else refused).append(found)
    listed = sorted((Path(r.source).name, r.position, r.reason) for rows in refused for r in rows)
    assert all(row.length > 0 for rows in refused for row in rows)
    assert all(block.mechanism_digest == ORACLE.config_digest() for block in blocks)
    assert all(block.origin for block in blocks)
    parts = [block.reports for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0), listed


def _both(reports: Any) -> Any:
    return (reports, reports.bad_rows) | beam.Flatten()


@pytest.mark.parametrize("each", [1, 9])
@pytest.mark.parametrize("how", [{}, {"num_files": 1}])
def test_what_is_written_is_read(tmp_path, how, each):
    """The multiset of reports, by way of a seed: the same reports without files in between."""
    terms = terms_of(ORACLE, values=LIST, simulated=True, reports_per_envelope=each)
    values = truth_values(3000)
    paths = write(tmp_path, values, terms, **how)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert sorted(Path(path).name for path in paths) == files
    assert all(name.startswith("reports-0000") and name.endswith(".ldp") for name in files)
    reports, refused = read(tmp_path / "*", terms=terms)
    direct = run(
        lambda p: (
            blocks_of(p, value_blocks(values, 700)) | Randomize(ORACLE, noise=NoiseSource(seed=3))
        )
    )
    expected = np.concatenate([block.reports for block in direct])
    np.testing.assert_array_equal(np.bincount(reports), np.bincount(expected))
    assert len(reports) == 3000 and refused == []
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    envelopes = sum(-(-block // each) for block in (700, 700, 700, 700, 200))
    assert size == 48 * envelopes + 3000


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
    terms = terms_of(mechanism)
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
    other = terms_of(ORACLE, "week-46", values=LIST, reports_per_envelope=9)
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
    with pytest.raises(ValueError, match="num_files must be an integer >= 1, got -1"):
        WriteReports("nowhere", TERMS, num_files=-1)
    with pytest.raises(ValueError, match="id_bytes must be an integer >= 1, got 0"):
        ReadReports("nowhere", TERMS, id_bytes=0)


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


def test_reports_of_groups(tmp_path):
    """Every report comes back in its group; an envelope of no group is of another release."""
    groups = Domain(("DE", "FR"))
    values = truth_values(900)
    held = np.arange(900) % 3
    blocks = [
        replace(block, groups=held[block.positions].astype(np.uint8))
        for block in value_blocks(values, 400)
    ]
    terms = terms_of(ORACLE, values=LIST, simulated=True, reports_per_envelope=9)
    run(
        lambda pipeline: (
            blocks_of(pipeline, blocks)
            | Randomize(ORACLE, noise=NoiseSource(seed=3))
            | WriteReports(str(tmp_path), terms, groups=groups)
        )
    )
    (tmp_path / "more").write_bytes(encode_envelope(terms, some(7)))
    found = run(lambda p: _both(p | ReadReports(str(tmp_path), terms, groups=groups)))
    reports = [block for block in found if isinstance(block, ReportBlock)]
    direct = run(lambda p: blocks_of(p, blocks) | Randomize(ORACLE, noise=NoiseSource(seed=3)))
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
        noise = NoiseSource(terms.identity, str(tmp_path / "key"))
        run(
            lambda pipeline: (
                blocks_of(pipeline, blocks)
                | WriteMemoizedReports(str(tmp_path / name), terms, noise)
            )
        )
        data = b"".join(path.read_bytes() for path in sorted((tmp_path / name).iterdir()))
        size = terms.envelope_bytes(1)
        return {data[i + 24 : i + 40]: data[i : i + size] for i in range(0, len(data), size)}

    blocks = value_blocks(values, 100, ids=True)
    first = sent("first", TERMS, blocks)
    assert len(first) == 300
    turned = [block.rows(0, 40) for block in blocks[::-1]] + [b.rows(40, 100) for b in blocks]
    assert sent("again", TERMS, turned) == first
    changed = sent("changed", TERMS, value_blocks((values + 1) % 5, 300, ids=True))
    assert set(changed) == set(first) and changed != first
    other = terms_of(ORACLE, "week-48", values=LIST)
    assert not set(sent("other", other, blocks)) & set(first)
    found = run(lambda p: _both(p | ReadReports([f"{tmp_path}/first", f"{tmp_path}/again"], TERMS)))
    assert sum(len(block) for block in found if isinstance(block, ReportBlock)) == 300
    with pytest.raises(ValueError, match="terms.simulated must be false"):
        simulated = terms_of(ORACLE, simulated=True)
        WriteMemoizedReports(str(tmp_path), simulated, NoiseSource(simulated.identity, "key"))
    for noise, message in (
        (NoiseSource(), "noise must be memoized"),
        (NoiseSource(other.identity, "key"), "under the identity of the terms"),
    ):
        with pytest.raises(ValueError, match=message):
            WriteMemoizedReports(str(tmp_path), TERMS, noise)
    with pytest.raises(Exception, match="needs user ids"):
        sent("nobody", TERMS, value_blocks(values, 300))


def test_a_folder_stands_for_its_files(tmp_path):
    write(tmp_path / "in", truth_values(100))
    assert len(read(tmp_path / "in")[0]) == 100 == len(read(f"{tmp_path}/in/")[0])


# Parts, copies, memory --------------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of 500 bytes, so that a file of a test has many."""
    monkeypatch.setattr(file_parts, "PART_BYTES", 500)
    monkeypatch.setattr(file_parts, "_SMALL", -1)


def damaged(folder: Path) -> tuple[np.ndarray, int]:
    """Files with junk, cuts, flips, splices, foreign envelopes and copies; what is sound in them,
    and how many are copies."""
    generator, sound, copies = np.random.default_rng(5), [], 0
    folder.mkdir()
    foreign = terms_of(ORACLE, "week-46", values=LIST, reports_per_envelope=9)
    sent: list[bytes] = []
    for name in ("a.ldp", "b.ldp", "c.ldp"):
        data = b""
        for i in range(120):
            reports = some(1 + i % 7, int(generator.integers(1 << 30)))
            whole = encode_envelope(TERMS, reports, generator.bytes(16))
            kind = i % 12
            if kind == 1:
                data += generator.bytes(int(generator.integers(1, 1200)))
            elif kind == 3:
                data += whole[: int(generator.integers(1, len(whole)))]
                continue
            elif kind == 5:
                at = int(generator.integers(len(whole)))
                data += whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :]
                continue
            elif kind == 7:
                data += encode_envelope(foreign, some(9))
            elif kind == 9 and sent:
                data += sent[int(generator.integers(len(sent)))]
                copies += 1
            sent.append(whole)
            sound.append(reports)
            data += whole
        (folder / name).write_bytes(data)
    return np.concatenate(sound), copies


@pytest.mark.parametrize("how", [{}, {"id_bytes": 700}, {"id_bytes": 900, "scratch": "aside"}])
def test_damage_costs_what_it_hits_however_files_are_cut(tmp_path, monkeypatch, how):
    """The same reports and the same records with one part a file and with many, with one group of
    ids and with fifty, with ids in files and without."""
    expected, copies = damaged(tmp_path / "in")
    reports, refused = read(tmp_path / "in")
    np.testing.assert_array_equal(np.bincount(reports), np.bincount(expected))
    assert sum(reason == DUPLICATE for *_, reason in refused) == copies > 10
    assert {wire.OTHER_RELEASE, wire.NOT_AN_ENVELOPE} < {reason for *_, reason in refused}
    monkeypatch.setattr(file_parts, "PART_BYTES", 500)
    monkeypatch.setattr(file_parts, "_SMALL", -1)
    if "scratch" in how:
        monkeypatch.setattr(read_reports, "_WORTH_A_FILE", 1)
        how = {**how, "scratch": str(tmp_path / "aside")}
    in_parts, same_refused = read(tmp_path / "in", **how)
    np.testing.assert_array_equal(np.bincount(in_parts), np.bincount(expected))
    assert same_refused == refused
    assert (tmp_path / "aside").exists() == ("scratch" in how)


def test_compressed_files_are_one_part_read_in_stretches(tmp_path, small_parts):
    expected, copies = damaged(tmp_path / "in")
    for path in list((tmp_path / "in").iterdir()):
        (tmp_path / "in" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    reports, refused = read(tmp_path / "in", id_bytes=500)
    np.testing.assert_array_equal(np.bincount(reports), np.bincount(expected))
    assert sum(reason == DUPLICATE for *_, reason in refused) == copies


def test_a_hundred_copies_of_a_file_are_one_file(tmp_path, small_parts):
    write(tmp_path / "in", truth_values(200), ALONE, num_files=1)
    (path,) = (tmp_path / "in").iterdir()
    for i in range(20):
        shutil.copy(path, tmp_path / "in" / f"again-{i}.ldp")
    reports, refused = read(tmp_path / "in", terms=ALONE, id_bytes=2000)
    assert len(reports) == 200 and len(refused) == 200 * 20
    assert {reason for *_, reason in refused} == {DUPLICATE}
    assert {name for name, *_ in refused} == {
        *(f"again-{i}.ldp" for i in range(20)), path.name
    } - {"again-0.ldp"}  # fmt: skip


def test_garbage_is_one_record_a_file(tmp_path, small_parts):
    """Also where it goes over many parts."""
    junk = np.random.default_rng(3).bytes(20_000)
    whole = encode_envelope(TERMS, some(3))
    (tmp_path / "a").write_bytes(junk)
    (tmp_path / "b").write_bytes(whole + junk + encode_envelope(TERMS, some(2)) + junk)
    (tmp_path / "c").write_bytes(encode_envelope(terms_of(ORACLE, "week-46"), some(1)) * 100)
    reports, refused = read(tmp_path)
    assert len(reports) == 5
    assert refused == [
        ("a", 0, wire.NOT_AN_ENVELOPE),
        ("b", len(whole), wire.NOT_AN_ENVELOPE),
        ("b", len(whole) + len(junk) + 50, wire.NOT_AN_ENVELOPE),
        ("c", 0, wire.OTHER_RELEASE),
    ]


def test_small_files_are_read_together_as_they_are_one_by_one(tmp_path, monkeypatch):
    """With junk, cuts, copies in other files, an empty file, one of another release, and two halves
    of an envelope in files that follow each other."""
    folder, good = tmp_path / "in", [encode_envelope(TERMS, some(2, i)) for i in range(30)]
    damaged(folder)
    for i, one in enumerate(good):
        (folder / f"one-{i:02d}").write_bytes(one)
    odd = {"00-a": b"", "one-03-a": good[5], "one-07": good[7][:30], "one-07-a": good[7][30:],
           "one-09": good[9] + b"junk", "one-11": good[11] + good[12], "one-14": b"",
           "one-20": encode_envelope(terms_of(ORACLE, "other", values=LIST), some(1))}  # fmt: skip
    for name, content in odd.items():
        (folder / name).write_bytes(content)

    def all_of_it():
        def build(pipeline):
            found = pipeline | ReadReports(str(folder), TERMS)
            received = found.received | "Received" >> beam.Map(lambda one: ("received", *one))
            return (found, found.bad_rows, received) | beam.Flatten()

        parts, received, refused = [], {}, []
        for one in run(build):
            if isinstance(one, tuple):
                received[Path(one[1]).name] = one[2]
            elif isinstance(one, ReportBlock):
                parts.append(one)
            else:
                refused += [(Path(row.source).name, row.position, row.length, row.reason)
                            for row in one]  # fmt: skip
        counts = np.bincount(np.concatenate([part.reports for part in parts]), minlength=5)
        return counts.tolist(), received, sorted(refused), len(parts)

    together = all_of_it()
    monkeypatch.setattr(file_parts, "_MOST_FILES", 7)
    in_sevens = all_of_it()
    monkeypatch.setattr(file_parts, "_SMALL", -1)
    apart = all_of_it()
    assert together[:3] == in_sevens[:3] == apart[:3]
    assert {reason for *_, reason in apart[2]} >= {DUPLICATE, wire.NOT_AN_ENVELOPE}
    assert together[3] < in_sevens[3] < apart[3]


def test_two_halves_of_an_envelope_in_two_files_are_none(tmp_path):
    """Though one after the other they are all sound."""
    whole = encode_envelope(TERMS, some(2))
    for name, content in {
        "a": encode_envelope(TERMS, some(3)),
        "b": whole[:30],
        "c": whole[30:],
    }.items():
        (tmp_path / name).write_bytes(content)
    reports, refused = read(tmp_path)
    assert len(reports) == 3 and [name for name, *_ in refused] == ["b", "c"]


@pytest.mark.parametrize("files, most", [(1, 1), (300, 12)])
def test_many_small_files_are_few_elements(tmp_path, monkeypatch, files, most):
    """What a file costs is a few calls of the system, not several elements of a pipeline."""
    looked = []
    read_part = read_reports.read_part
    monkeypatch.setattr(read_reports, "read_part", lambda *how: looked.append(1) or read_part(*how))
    for i in range(files):
        (tmp_path / f"{i:03d}").write_bytes(encode_envelope(ALONE, some(1, i)))
    if files > 1:
        (tmp_path / "150").write_bytes(b"junk")
    parts = list(find_parts([str(tmp_path)], 1 << 20, 1))
    assert len(parts) == 1 and (parts[0].stop, len(parts[0].files)) == (parts[0].size, files)
    reader = ListIds(file_parts.PortableTerms(ALONE, None), Aside())
    reader.setup()
    list(reader.process(parts[0]))
    assert len(looked) <= 2 * most
    os.utime(tmp_path / "000", (1, 1))
    with pytest.raises(ValueError, match="000: changed while it was read"):
        list(reader.process(parts[0]))


def test_what_was_received_of_every_file(tmp_path, small_parts):
    whole = [encode_envelope(TERMS, some(count, count)) for count in (1, 9, 4)]
    (tmp_path / "a").write_bytes(b"".join(whole))
    (tmp_path / "b").write_bytes(
        whole[1] + b"".join(encode_envelope(TERMS, some(2)) for _ in "x" * 40)
    )
    (tmp_path / "c").write_bytes(whole[2])
    found = run(lambda pipeline: (pipeline | ReadReports(str(tmp_path), TERMS)).received)
    assert {Path(path).name: tally for path, tally in found} == {
        "a": FileTally(14, 3, 9), "b": FileTally(80, 40, 2),
    }  # fmt: skip


@pytest.mark.parametrize("how", [{}, {"id_bytes": 900, "scratch": "aside"}])
def test_one_set_digest_however_files_are_cut(tmp_path, small_parts, monkeypatch, how):
    """Of what counts: not of copies, nor of what is refused. Reports of 40 bytes, and of one."""
    monkeypatch.setattr(read_reports, "_WORTH_A_FILE", 1)
    if "scratch" in how:
        how = {**how, "scratch": str(tmp_path / "aside")}
    for oracle in (ORACLE, Rappor(320, 1.0)):
        terms = terms_of(oracle, values=LIST)
        place = tmp_path / type(oracle).__name__
        place.mkdir()
        packed = oracle.randomize(np.arange(120) % 5, np.random.default_rng(1))
        ids = np.random.default_rng(2).integers(0, 256, (120, 16), dtype=np.uint8)
        sent = [row.tobytes() for row in encode_envelopes(terms, packed, ids)]
        (place / "a.ldp").write_bytes(b"".join(sent[50:]) + b"junk" + sent[7])
        (place / "b.ldp.gz").write_bytes(gzip.compress(b"".join(sent[:70])))
        read_all = ReadReports(str(place), terms, digest=True, **how)
        found = run(lambda p, stage=read_all: (p | stage).digest)
        records = set_records(ids, oracle.pack_each(packed))
        assert found == [set_digest(terms.identity, records).encode()]
        assert (tmp_path / "aside").exists() == ("scratch" in how)


def test_one_person_an_envelope_unless_more_were_granted(tmp_path):
    """A forged envelope with the reports of 5,000 people in it is refused whole."""
    granted = terms_of(ORACLE, values=LIST, reports_per_envelope=5000)
    forged = ALONE.prefix + encode_envelope(granted, np.full(5000, 4, np.uint8))[24:-4]
    honest = [encode_envelope(ALONE, some(1, i)) for i in range(50)]
    (tmp_path / "a").write_bytes(forged + wire.checksum(forged) + b"".join(honest))
    reports, refused = read(tmp_path, terms=ALONE)
    assert len(reports) == 50 and refused == [("a", 0, wire.TOO_MANY)]


def test_a_file_that_changes_between_the_passes_is_an_error(tmp_path):
    whole = encode_envelope(TERMS, some(3))
    path = tmp_path / "a"
    path.write_bytes(whole)
    (part,) = find_parts([str(path)], 1 << 20, 49)
    first = PartReader(part, 100)
    assert [stretch.data for stretch in first] == [whole]
    path.write_bytes(whole[:-1] + b"?")
    os.utime(path, (part.updated, part.updated))
    second = PartReader(part, 100)
    assert list(second) and second.digest != first.digest
    for changed in (whole + b"x", whole[:-1]):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="a: changed while it was read"):
            list(PartReader(part, 100))


@pytest.mark.exact
@given(st.binary(max_size=400), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_ids_that_stand_further_up(data, number, salt):
    """Each but the first of its kind; zeros are no id. Of few different ids, so that there are
    copies, and ids that share one of their words."""
    words = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"x"), np.uint64) % number
    ids = words[: len(words) // 2 * 2].reshape(-1, 2).copy()
    ids[ids == 1] = salt
    seen: set[bytes] = set()
    expected = []
    for row in ids:
        one = row.tobytes()
        expected.append(one in seen)
        if any(one):
            seen.add(one)
    assert named_before(ids.view(np.uint8).reshape(-1, 16)).tolist() == expected
    parts = StreamPart(
        np.arange(len(ids)), None, ids.view(np.uint8).reshape(-1, 16), None, None, None
    )
    for num_parts in (1, 3, 50):
        listed = list(listed_ids(parts, num_parts, bytes(range(16))))
        assert len({n for n, _ in listed}) == len(listed)
        assert all(0 <= n < num_parts for n, _ in listed)
        places = [e[0] for _, c in listed for e in np.frombuffer(c, "<u8").reshape(-1, 3).tolist()]
        assert sorted(places) == [
            i for i, again in enumerate(expected) if not again and ids[i].any()
        ]


@pytest.mark.exact
def test_groups_of_ids_are_about_as_large_as_each_other():
    """Random ids, and ids that somebody chose to begin alike."""
    for ids in (np.random.default_rng(1).integers(0, 2**63, (64_000, 2)).astype(np.uint64),
                np.stack([np.full(64_000, 7), np.arange(64_000)], axis=1).astype(np.uint64),
                np.stack([np.arange(64_000) << 40, np.full(64_000, 7)], axis=1).astype(np.uint64),
                ):  # fmt: skip
        part = StreamPart(
            np.arange(64_000), None, ids.view(np.uint8).reshape(-1, 16), None, None, None
        )
        routing = np.random.default_rng(2).bytes(16)
        sizes = [len(content) // 24 for _, content in listed_ids(part, 64, routing)]
        assert len(sizes) == 64 and max(sizes) < 2000


@pytest.mark.exact
def test_as_many_groups_of_ids_as_the_setting_needs(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.ldp").write_bytes(bytes(490_000))
    parts = list(find_parts([str(tmp_path)], 1 << 20, 49))
    assert {part.num_parts for part in parts} == {-(-30_000 * 64 // (1 << 20))} == {2}
    assert isinstance(parts[0], FilePart) and len({part.routing for part in parts}) == 1
