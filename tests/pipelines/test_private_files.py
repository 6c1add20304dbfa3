"""The list of bad rows: apart from the output, for its owner alone, a line for a range of rows."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.release.outputs import OutputError, bad_rows_path, write_private
from beam_ldp.release.worker_results import WorkerResults, bad_row_lines, reasons_of
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, WithheldRelease

pytestmark = pytest.mark.exact


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_their_owners_alone(tmp_path: Path) -> None:
    path = Path(bad_rows_path(str(tmp_path / "out"), None))
    assert path == tmp_path / "out.private" / "bad_rows.jsonl"
    write_private(str(path), b"first\n")
    assert (mode(path), mode(path.parent), path.read_bytes()) == (0o600, 0o700, b"first\n")
    path.chmod(0o644)
    write_private(str(path), b"second\n")  # in place of what was there, with its rights
    assert (mode(path), path.read_bytes()) == (0o600, b"second\n")
    write_private(str(path), b"")  # nothing of an earlier run is taken for this one's
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("chosen", ["out/bad.jsonl", "out", "other/../out/x", "linked/x"])
def test_it_cannot_lie_in_the_output(tmp_path: Path, chosen: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "out")
    with pytest.raises(OutputError, match="--bad-rows-file must lie outside of --output"):
        bad_rows_path(str(tmp_path / "out"), str(tmp_path / chosen))
    assert bad_rows_path(str(tmp_path / "out"), str(tmp_path / "outside")) == str(
        tmp_path / "outside"
    )


def test_a_range_of_rows_is_one_line() -> None:
    reasons = ["null"] * 3 + ["NaN"] + ["null"] * 2
    rows = [*zip((4, 5, 6, 7, 8, 12), reasons)]
    lines = bad_row_lines(BadRowBlock.of('a "rows": 9.csv', rows))
    told = [json.loads(line) for line in lines]
    assert [(t["position"], t.get("rows", 1), t["reason"]) for t in told] == [
        (4, 3, "null"), (7, 1, "NaN"), (8, 1, "null"), (12, 1, "null"),
    ]  # fmt: skip
    content = "".join(f"{line}\n" for line in lines).encode()
    assert reasons_of(content) == {"null": 5, "NaN": 1}
    assert WorkerResults([], [], content).num_bad_rows == 6


def test_rows_without_a_place_and_no_rows_at_all() -> None:
    block = BadRowBlock("", None, np.zeros(5, dtype=np.uint8), ("null",))
    (line,) = bad_row_lines(block)
    assert json.loads(line) == {"source": "", "position": -1, "rows": 5, "reason": "null"}
    empty = np.zeros(0, dtype=np.uint8)
    assert bad_row_lines(BadRowBlock("", None, empty, ())) == []


def test_a_file_of_something_else_costs_a_few_lines() -> None:
    """A million lines that are no JSON: one line, and it is counted as a million rows."""
    count = 1_000_000
    block = BadRowBlock("f", np.arange(count), np.zeros(count, dtype=np.uint8), ("no",))
    lines = bad_row_lines(block)
    assert len(lines) == 1
    assert WorkerResults([], [], f"{lines[0]}\n".encode()).num_bad_rows == count


@pytest.mark.exact
def test_reports_are_counted_once_however_many_questions_they_answer() -> None:
    """Hashes of people are compared with this number: too many, and nothing is compared."""

    def of(count: int, **where: Any) -> Release:
        return Release(Estimate(np.zeros(2), np.ones(2), count), count, ran=None, **where)

    window = {"group": "a", "window": (0, 60)}
    hair, eyes = of(30, question="hair", **window), of(30, question="eyes", **window)
    late, other = (
        of(2, late=True, **window),
        WithheldRelease(5, 10, "too few", group="b", window=(0, 60)),
    )
    assert WorkerResults([hair, eyes], [], b"").num_reports == 30
    assert WorkerResults([hair, eyes, late], [other], b"").num_reports == 37
