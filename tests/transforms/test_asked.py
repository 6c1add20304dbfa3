"""Records that workers leave: windows are rounds, files are whole or none, two at once are two."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.transforms.window import GlobalWindow, IntervalWindow

from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.research.interactivity.auditing import InteractivityReport, audit_logs
from beam_ldp.transforms.device.asked import AskedRecords
from beam_ldp.transforms.device.keyed import RecordLog
from beam_ldp.transforms.elements.blocks import ValueBlock

pytestmark = pytest.mark.exact

ORACLE = KRandomizedResponse(4, local_epsilon=1.0)
WHOLE = GlobalWindow()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o600)
    return tmp_path


def leave(place: Path, ids: Any, *windows: Any, number: int = 0, report: int = 2) -> None:
    """What a bundle leaves in which these people were asked, once in each window."""
    log = RecordLog(str(place / "log"), str(place / "key"), "people", "week", number)
    asked, drawn = AskedRecords(log, ORACLE), np.full(len(ids), report, ORACLE.report_dtype)
    for window in windows or (WHOLE,):
        asked.add(ValueBlock(np.zeros(len(ids), dtype=int), np.array(ids)), drawn, window)
    asked.write()


def audited(place: Path, epsilon: float = 1.0) -> InteractivityReport:
    return audit_logs(sorted((place / "log").glob("[!.]*")), epsilon)


def test_windows_are_rounds_in_the_order_of_their_ends_and_fixed_up_front(place: Path) -> None:
    minutes = [IntervalWindow(60 * i, 60 * i + 60) for i in (-2, 0, 1)]
    leave(place, [1, 2], *minutes)
    leave(place, [1], *minutes[:1])  # a bundle again
    files = [pq.read_table(path) for path in sorted((place / "log").iterdir())]
    table = pa.concat_tables(files).to_pydict()
    ends = {-60_000_000: 0, 60_000_000: 60_000_000, 120_000_000: 120_000_000}
    assert set(zip(table["round"], table["seq"])) == set(ends.items())
    assert set(table["assign_seq"]) == {0} and set(table["run"]) == {"week"}
    report = audited(place, 3.0)
    assert report.clean and report.people.by_queries == {3: 2} and report.people.retries == 1
    assert report.noninteractive and report.mergeable == 2


def test_later_rounds_may_depend_on_what_came_before_them(place: Path) -> None:
    leave(place, [1, 2])
    leave(place, [3, 4], number=1)
    assert (audited(place).depth, audited(place).interactivity) == (2, "sequentially interactive")
    leave(place, [5], IntervalWindow(0, 60), number=2)
    assert audited(place).depth == 3


def test_of_a_killed_writer_nothing_is_read_and_its_retry_is_whole(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    leave(place, [1, 2])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            leave(place, [3, 4])
    assert audited(place).people.people == 2
    leave(place, [3, 4])
    assert audited(place).people.by_queries == {1: 4} and audited(place).clean


def test_two_at_once_lose_nothing_of_each_other(place: Path) -> None:
    """Four bundles of people of their own, and each of them twice, all into one folder."""
    people = [np.arange(100 * i, 100 * i + 100) for i in range(4)] * 2
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda ids: leave(place, ids), people))
    report = audited(place)
    assert len(list((place / "log").iterdir())) == 8
    assert report.clean and report.people.by_queries == {1: 400} and report.people.retries == 400


def test_another_answer_or_another_key_is_told(place: Path) -> None:
    leave(place, [1, 2])
    leave(place, [2], report=3)
    assert {one.name for one in audited(place, 2.0).findings} == {"re-randomized on retry"}
    (place / "key").write_bytes(bytes(31) + b"x")
    leave(place, [1, 2])
    assert audited(place, 2.0).people.people == 4  # under another key they are other people


def test_what_cannot_be_logged_is_refused(place: Path) -> None:
    with pytest.raises(ValueError, match="an interaction log needs user ids"):
        asked = AskedRecords(RecordLog(str(place / "log"), str(place / "key"), "p", "r"), ORACLE)
        asked.add(ValueBlock(np.zeros(1, dtype=int)), np.zeros(1, np.uint8), WHOLE)
    (place / "key").write_bytes(b"short")
    with pytest.raises(ValueError, match="interaction_key_file must hold at least 32"):
        leave(place, [1])
    assert not (place / "log").exists()
