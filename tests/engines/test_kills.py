"""The file of kills and its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.engines.kills import LOG, Kill, known, read, table

pytestmark = pytest.mark.exact

ONE = Kill("flink", "task manager", 0, True, 0.5, "whole", 60.0, 1620, 810, 2, 1)
FOUND = [
    ONE,
    Kill("local", "Python worker", 0, False, 0.1, "absent", 7.0),
    replace(ONE, number=1, outcome="DONE, AssertionError: nobody", seconds=80.0, crossed_again=0),
    replace(ONE, memoized=False, crossed_again=1620, most_distinct=2),
]


def test_a_line_per_kind_of_process_and_noise() -> None:
    lines = table(FOUND).splitlines()[2:]
    assert lines == [
        "| flink | task manager | memoized | 2 | 1 | 0 | 1 | 25%, at most 50% | 2 | 1 | 70 |",
        "| flink | task manager | fresh | 1 | 1 | 0 | 0 | 100%, at most 100% | 2 | 2 | 60 |",
        "| local | Python worker | fresh | 1 | 0 | 1 | 0 |  |  |  | 7 |",
    ]


def test_what_was_written_down_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG, str(tmp_path / "build" / "kills.jsonl"))
    assert known("flink", "task manager", 0, True) is None
    for kill in FOUND:
        kill.write_down()
    assert read(tmp_path / "build" / "kills.jsonl") == FOUND
    assert known("flink", "task manager", 1, True) == FOUND[2]
    assert known("flink", "task manager", 2, True) is None


def test_without_a_file_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOG, raising=False)
    ONE.write_down()
    assert known(ONE.engine, ONE.process, ONE.number, ONE.memoized) is None


def test_the_table_in_the_docs_is_that_of_the_kept_kills() -> None:
    root = Path(__file__).resolve().parents[2]
    kept = read(root / "benchmarks" / "results" / "kills.jsonl")
    assert table(kept) in (root / "docs" / "engines.md").read_text()
