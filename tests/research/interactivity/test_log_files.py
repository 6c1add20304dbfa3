"""Logs in files: formats, parts, places of faults, bounded memory, and pairs of logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.research.interactivity import auditing, log_files, tallies
from beam_ldp.research.interactivity.auditing import audit_logs, claim_of
from beam_ldp.research.interactivity.log_files import MalformedLogError
from beam_ldp.research.interactivity.tallies import LEAST_MEMORY, Tally, tally_logs

pytestmark = pytest.mark.exact

RECORDS = 600


def records() -> list[dict[str, Any]]:
    """Two rounds of people, some retries, some second answers."""
    rng = np.random.default_rng(3)
    people, outputs = rng.integers(0, RECORDS // 3, RECORDS), rng.integers(0, 2, RECORDS)
    return [
        {"seq": i, "user": int(people[i]), "randomizer": f"r{i % 3}", "round": i % 2,
         "epsilon": 0.25, "output": int(outputs[i]), "assign_seq": 0 if i < 300 else 300}
        for i in range(RECORDS)
    ]  # fmt: skip


def write_parquet(path: Path, told: list[dict[str, Any]], rows: int = 100) -> Path:
    pq.write_table(pa.Table.from_pylist(told), path, row_group_size=rows)
    return path


def write_lines(path: Path, told: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in told))
    return path


def figures(tally: Tally) -> dict[str, Any]:
    found = {name: value for name, value in vars(tally).items() if name != "provenance"}
    return {**found, "depth": tally.provenance.depth, "unknown": tally.provenance.unknown}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in many parts, records in many shards on disk."""
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(log_files, "BATCH_ROWS", 37)
    monkeypatch.setattr(tallies, "LEAST_MEMORY", 1)


def test_both_formats_in_one_piece_and_in_many_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    parquet = write_parquet(tmp_path / "log.parquet", records())
    lines = write_lines(tmp_path / "log.jsonl", records())
    whole = tally_logs([parquet], claim_of(1))
    expected = figures(whole.people)
    assert expected["retries"] and expected["rerandomized"] and expected["depth"] == 2
    assert figures(tally_logs([lines], claim_of(1)).people) == expected
    request.getfixturevalue("small")
    written: list[int] = []
    write = tallies.Shards._write
    monkeypatch.setattr(
        tallies.Shards, "_write", lambda shards: (written.append(shards.number), write(shards))
    )
    for path in (parquet, lines):
        tally = tally_logs([path], claim_of(1), memory=20_000)
        assert figures(tally.people) == expected and tally.declared == whole.declared
    assert len(written) > 4 and min(written) > 16


def test_a_file_is_what_it_holds_not_what_it_is_called(tmp_path: Path) -> None:
    expected = figures(tally_logs([write_lines(tmp_path / "a", records())], claim_of(1)).people)
    misnamed = write_parquet(tmp_path / "log.jsonl", records())
    assert figures(tally_logs([misnamed], claim_of(1)).people) == expected


def test_pairs_of_logs(tmp_path: Path) -> None:
    """Appended twice, copied under another name, split over files: nothing counts twice."""
    told = records()
    once = figures(tally_logs([write_lines(tmp_path / "once", told)], claim_of(1)).people)
    both = [write_lines(tmp_path / "one", told), write_parquet(tmp_path / "copy", told)]
    for paths in ([write_lines(tmp_path / "twice", told + told)], both):
        twice = figures(tally_logs(paths, claim_of(1)).people)
        assert twice.pop("records") == 2 * RECORDS
        assert twice.pop("retries") == once["retries"] + RECORDS
        assert twice == {name: value for name, value in once.items() if name in twice}
    halves = [write_lines(tmp_path / f"{i}", told[i::2]) for i in range(2)]
    assert figures(tally_logs(halves, claim_of(1)).people) == once


def test_two_runs_that_drew_anew_are_told(tmp_path: Path) -> None:
    """The same run twice without memoized noise: answers differ, and each is paid for."""
    told = [{**one, "round": one["seq"]} for one in records()]
    other = [{**one, "output": 1 - one["output"]} for one in told]
    paths = [write_lines(tmp_path / "a", told), write_lines(tmp_path / "b", other)]
    report = audit_logs(paths, 100.0)
    (found,) = report.findings
    assert (found.name, found.count) == ("re-randomized on retry", RECORDS) and not report.clean
    named = [
        write_lines(tmp_path / f"named {n}", [{**one, "run": n} for one in log])
        for n, log in (("monday", told), ("tuesday", other))
    ]
    assert audit_logs(named, 100.0).clean


def test_the_log_of_a_killed_run_says_where_it_ends(tmp_path: Path, small: None) -> None:
    path = write_lines(tmp_path / "log", records())
    path.write_text(path.read_text()[:-20])
    with pytest.raises(MalformedLogError, match=f"log: line {RECORDS}: is no JSON$"):
        tally_logs([path], claim_of(1))
    parquet = write_parquet(tmp_path / "log.parquet", records())
    parquet.write_bytes(parquet.read_bytes()[:-20])
    with pytest.raises(MalformedLogError, match="log.parquet: is a damaged Parquet file"):
        tally_logs([parquet], claim_of(1))


def test_two_who_append_at_once_are_told_by_the_line_or_by_the_file(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that were mixed up are no records; a log that grows is none that was read whole."""
    path = write_lines(tmp_path / "log", records())
    lines = path.read_text().splitlines(keepends=True)
    mixed = lines[7][:30] + lines[8] + lines[7][30:]
    path.write_text("".join([*lines[:7], mixed, *lines[9:]]))
    with pytest.raises(MalformedLogError, match="log: line 8: is no JSON"):
        audit_logs([path], 500.0)
    path.write_text("".join(lines[:-1]))

    def append(paths: list[Path]) -> None:
        with paths[0].open("a") as file:
            file.write(lines[-1])

    monkeypatch.setattr(auditing, "contract_logs", append)
    with pytest.raises(MalformedLogError, match="log: was written to while it was read"):
        audit_logs([path], 500.0)


@pytest.mark.parametrize(
    "line, reason",
    [
        ('{"seq": 1}', "columns are missing: user, randomizer, round, epsilon"),
        ("[1, 2]", "is no JSON object"),
        ("{", "is no JSON"),
        ('{"seq":"x","user":1,"randomizer":"a","round":0,"epsilon":1}', "seq must be a number"),
        ('{"seq":0,"user":1.5,"randomizer":"a","round":0,"epsilon":1}', "user must be an integer"),
        ('{"seq":0,"user":"","randomizer":"a","round":0,"epsilon":1}', "user must be an integer"),
        ('{"seq":0,"user":1,"randomizer":"a","round":0,"epsilon":-1}', "epsilon must be in"),
        ('{"seq":0,"user":1,"randomizer":"a","round":0,"epsilon":1,"assign_seq":5}', "assign_seq"),
    ],
)
def test_a_line_that_is_no_record_is_named(
    tmp_path: Path, small: None, line: str, reason: str
) -> None:
    path = write_lines(tmp_path / "log", records()[:50])
    path.write_text(path.read_text() + "\n" + line + "\n")
    with pytest.raises(MalformedLogError, match=f"log: line 52: {reason}") as caught:
        tally_logs([path], claim_of(1))
    assert "1.5" not in str(caught.value)
    good = [json.loads(one) for one in path.read_text().splitlines()[:50]]
    if line.startswith('{"seq":0') and '"user":1,' in line:
        parquet = write_parquet(tmp_path / "log.parquet", [*good, json.loads(line)], 20)
        with pytest.raises(MalformedLogError, match=f"log.parquet: row 51: {reason}"):
            tally_logs([parquet], claim_of(1))


def test_columns_of_several_kinds_are_read_one_by_one(tmp_path: Path) -> None:
    """Ids as numbers and as text, answers of any type: the same people, the same answers."""
    row = {"seq": 0, "randomizer": "a", "round": 0, "epsilon": 0.5}
    mixed = [
        {**row, "user": user, "output": output}
        for user, output in ((7, 1), ("7", 1.0), (7, "x"), ("ada", [1, 2]), ("ada", [1, 2]))
    ]
    found = tally_logs([write_lines(tmp_path / "log", mixed)], claim_of(1)).people
    assert (found.people, found.retries, found.rerandomized) == (2, 2, 1)
    uniform = [write_lines(tmp_path / f"{i}", [one]) for i, one in enumerate(mixed)]
    assert figures(tally_logs(uniform, claim_of(1)).people) == figures(found)
    dates = [{**row, "user": i, "output": "2026-01-01T00:00:00"} for i in range(2)]
    assert tally_logs([write_lines(tmp_path / "dates", dates)], claim_of(1)).people.people == 2


def test_empty_files_hold_nobody(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "nothing").write_text("")
    write_parquet(tmp_path / "none", records()[:1])
    pq.write_table(pq.read_table(tmp_path / "none").slice(0, 0), tmp_path / "none")
    found = tally_logs([tmp_path / n for n in ("empty", "nothing", "none")], claim_of(1))
    assert found.people.people == 0


def test_a_plan_in_files(tmp_path: Path, small: None) -> None:
    told = records()
    planned = [{n: one[n] for n in ("user", "randomizer", "round", "epsilon")} for one in told]
    log = write_parquet(tmp_path / "log", told)
    for plan in (write_lines(tmp_path / "p", planned), write_parquet(tmp_path / "q", planned)):
        report = audit_logs([log], 3.0, plan=[plan], memory=60_000)
        assert report.planned and report.noninteractive and report.k_plan is not None
    some = write_lines(tmp_path / "some", planned[:-1])
    missing = audit_logs([log], 3.0, plan=[some]).people.unplanned
    same = [one for one in planned[:-1] if one == planned[-1]]
    assert missing == (0 if same else 1)


def test_graphs_in_files(tmp_path: Path) -> None:
    told = [{**one, "depends_on": [one["seq"] - 1] if one["seq"] else []} for one in records()]
    for user, acyclic in ((1, True), (None, False)):
        log = told if user is None else [{**one, "user": user} for one in told]
        for path in (write_lines(tmp_path / "a", log), write_parquet(tmp_path / "b", log)):
            graph = audit_logs([path], 500.0).contracted
            assert graph is not None and graph.acyclic is acyclic
    assert audit_logs([write_lines(tmp_path / "c", records())], 500.0).contracted is None


def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="memory must be at least 64 MiB"):
        tally_logs([write_lines(tmp_path / "log", records())], claim_of(1), memory=LEAST_MEMORY - 1)
