"""Anchors while a ledger is used: what was set back is refused, and so is what nobody can check."""

from __future__ import annotations

import importlib
import json
import math
import multiprocessing
import random
import sqlite3
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger, LedgerUnavailableError, audit, kinds, sinks
from beam_ldp.ledger.rows import Anchor, ChainHead, Row, next_row
from beam_ldp.ledger.sinks import (
    INLINE,
    REMOTE,
    AnchorError,
    Anchoring,
    FileAnchors,
    Lag,
    RolledBackError,
    open_anchors,
    open_sink,
)
from tests.ledger.asked import KEY, asked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.exact

LEDGER = "a" * 32


class Memory:
    """A sink that can be set back, emptied and cut off."""

    name = "memory"

    def __init__(self) -> None:
        self.held: list[Anchor] = []
        self.away = False
        self.asked = 0

    def last(self, ledger_id: str) -> Anchor | None:
        self.asked += 1
        self._reach()
        ours = [anchor for anchor in self.held if anchor.ledger_id == ledger_id]
        return max(ours, key=lambda a: a.count, default=None)

    def put(self, anchor: Anchor) -> None:
        self._reach()
        self.held.append(anchor)

    def all(self) -> list[Anchor]:
        return self.held

    def _reach(self) -> None:
        if self.away:
            raise ConnectionError


def chain(length: int, salt: str = "") -> list[Row]:
    rows = [next_row(ChainHead(), kinds.GENESIS, {"ledger_id": LEDGER})]
    while len(rows) < length:
        rows.append(next_row(rows[-1].head, kinds.DATASET, {"n": f"{salt}{len(rows)}"}))
    return rows


class Ledger:
    """As much of a ledger as anchoring sees."""

    def __init__(self, sink: object, lag: Lag = INLINE) -> None:
        self.rows = chain(1)
        self.anchoring = Anchoring(sink, lag)  # type: ignore[arg-type]

    def reserve(self) -> None:
        head = self.rows[-1].head
        self.anchoring.check_before_reserve(LEDGER, head, lambda start: self.rows[start:])
        self.append()

    def settle(self) -> None:
        anchor = self.anchoring.newest(LEDGER)
        if anchor is not None:
            self.anchoring.check(anchor, self.rows[-1].head, lambda start: self.rows[start:])
        self.append()

    def append(self) -> None:
        self.rows.append(next_row(self.rows[-1].head, kinds.DATASET, {"n": str(len(self.rows))}))
        self.anchoring.after_append(LEDGER, self.rows[-1].head, lambda start: self.rows[start:])


@pytest.fixture
def sink() -> Memory:
    return Memory()


# Inline -------------------------------------------------------------------------------------------


def test_each_row_leaves_its_head(sink: Memory) -> None:
    ledger = Ledger(sink)
    for _ in range(3):
        ledger.reserve()
    assert [a.count for a in sink.held] == [1, 2, 3, 4]
    assert sink.held[-1].hash == ledger.rows[-1].hash


@pytest.mark.parametrize("write", [Ledger.reserve, Ledger.settle])
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_ledger_that_was_set_back_is_refused(
    sink: Memory, kept: int, write: Callable[[Ledger], None]
) -> None:
    ledger = Ledger(sink)
    for _ in range(3):
        ledger.reserve()
    ledger.rows = ledger.rows[:kept]
    for _ in range(5 - kept):  # one more than are gone
        with pytest.raises(RolledBackError, match=f"{4 - kept} rows are gone.*budget succeed"):
            write(ledger)
    assert len(ledger.rows) == kept


@pytest.mark.parametrize("lag", [INLINE, Lag(every=2, rows=64, seconds=3600)])
@pytest.mark.parametrize("knows", [True, False], ids=["was open", "is new"])
def test_no_head_is_left_of_a_ledger_that_lacks_the_newest_one(
    sink: Memory, lag: Lag, knows: bool
) -> None:
    """Whatever writes rows to it, k + 1 of them after k were lost, and when the program ends."""
    ledger, other = Ledger(sink, lag), Ledger(sink, lag)
    ledger.reserve()
    other.rows = list(ledger.rows)
    for _ in range(4):
        other.reserve()
    kept = list(sink.held)
    ledger = ledger if knows else Ledger(sink, lag)
    ledger.rows = chain(2, salt="continued differently ")
    for _ in range(6):
        with suppress(RolledBackError):
            ledger.append()
    with suppress(RolledBackError):
        ledger.anchoring.leave_last()
    assert len(ledger.rows) == 8 > len(other.rows) and sink.held == kept
    with pytest.raises(RolledBackError, match="continued differently"):
        Ledger.reserve(ledger)


@pytest.mark.parametrize("lag", [INLINE, Lag(every=8, rows=64, seconds=60)])
def test_a_settlement_goes_on_while_the_sink_is_away(sink: Memory, lag: Lag) -> None:
    """It is written; only what must be anchored at once may not be released."""
    ledger = Ledger(sink, lag)
    ledger.reserve()
    rows, sink.away, ledger.anchoring._asked = len(ledger.rows), True, -math.inf
    with pytest.raises(AnchorError, match="stays charged") if lag.every == 1 else nullcontext():
        ledger.settle()
    assert len(ledger.rows) == rows + 1


def test_a_ledger_that_was_set_back_and_went_on_is_refused(sink: Memory) -> None:
    ledger = Ledger(sink)
    for _ in range(3):
        ledger.reserve()
    for length in (4, 9):
        ledger.rows = chain(length, salt="continued differently ")
        with pytest.raises(RolledBackError, match="continued differently"):
            ledger.reserve()


def test_a_new_process_sees_it_too(sink: Memory) -> None:
    ledger = Ledger(sink)
    ledger.reserve()
    later = Ledger(sink)  # with its first row alone
    with pytest.raises(RolledBackError):
        later.reserve()


def test_a_sink_that_is_away_or_empty_stops_everything(sink: Memory) -> None:
    ledger = Ledger(sink)
    ledger.reserve()
    sink.away = True
    with pytest.raises(AnchorError, match="cannot be read"):
        ledger.reserve()
    sink.away, sink.held = False, []
    for write in (ledger.settle, ledger.reserve):  # a settlement must not begin it again
        with pytest.raises(AnchorError, match="no anchor of ledger.*write-anchor"):
            write()
    sink.held = [Anchor("b" * 32, 900, "0" * 64, "2026-01-01T00:00:00+00:00")]  # another ledger's
    with pytest.raises(AnchorError, match="no anchor of ledger"):
        ledger.reserve()


def test_a_row_that_left_no_anchor_is_caught_up(sink: Memory) -> None:
    """A program that was killed between its row and its anchor stops nobody."""
    ledger = Ledger(sink)
    ledger.reserve()
    sink.away = True
    with pytest.raises(AnchorError, match="stays charged, and nothing may be released"):
        ledger.append()
    sink.away = False
    ledger.reserve()
    assert [a.count for a in sink.held] == [1, 2, 3, 4]


def test_too_many_rows_without_an_anchor(sink: Memory) -> None:
    ledger = Ledger(sink)
    ledger.reserve()
    for _ in range(64):
        ledger.rows.append(next_row(ledger.rows[-1].head, kinds.DATASET, {}))
    ledger.reserve()  # 64 may
    for _ in range(65):
        ledger.rows.append(next_row(ledger.rows[-1].head, kinds.DATASET, {}))
    for write in (ledger.settle, ledger.reserve):
        with pytest.raises(AnchorError, match="65 rows .* have no anchor .*at most 64"):
            write()


# With a lag ---------------------------------------------------------------------------------------


def test_a_lag_spares_requests_and_stays_bounded(sink: Memory) -> None:
    ledger = Ledger(sink, Lag(every=8, rows=16, seconds=3600))
    for _ in range(40):
        ledger.reserve()
        assert len(ledger.rows) - sink.held[-1].count < 8
    assert (sink.asked, len(sink.held)) == (7, 6)  # once at first, and before each head


def test_a_sink_that_is_away_is_waited_for_within_the_lag(sink: Memory) -> None:
    ledger = Ledger(sink, Lag(every=4, rows=8, seconds=3600))
    ledger.reserve()
    sink.away = True
    ledger.reserve()  # two rows without an anchor
    ledger.reserve()
    with pytest.raises(AnchorError):
        ledger.reserve()
    assert len(ledger.rows) == 5


def test_rows_that_others_anchored_since_are_none_without_an_anchor(sink: Memory) -> None:
    lag = Lag(every=4, rows=8, seconds=3600)
    ledger, other = Ledger(sink, lag), Ledger(sink, lag)
    ledger.reserve()
    other.rows = ledger.rows
    for _ in range(20):
        other.reserve()
    ledger.settle()


def test_what_was_read_is_trusted_for_so_long_only(sink: Memory) -> None:
    ledger = Ledger(sink, Lag(every=4, rows=8, seconds=0.0))
    ledger.reserve()
    sink.away = True
    with pytest.raises(AnchorError, match="cannot be read"):
        ledger.reserve()


def test_old_rows_are_anchored_before_the_next_charge(sink: Memory) -> None:
    ledger = Ledger(sink, Lag(every=4, rows=8, seconds=60))
    ledger.reserve()
    ledger.reserve()
    assert [a.count for a in sink.held] == [1]
    sink.held = [replace(sink.held[0], time="2026-01-01T00:00:00+00:00")]
    other = Ledger(sink, Lag(every=4, rows=8, seconds=60))
    other.rows = ledger.rows
    other.reserve()
    assert [a.count for a in sink.held] == [1, 3]


@pytest.mark.parametrize("every", [1, 2, 8])
@pytest.mark.parametrize("seed", range(5))
def test_the_bound_holds_over_programs_that_are_killed(sink: Memory, every: int, seed: int) -> None:
    """Four programs take turns, some that settle alone; one is killed now and then, and follows.

    Whoever was answered, at most every - 1 rows have no anchor: that is what a restore can hide.
    """
    draw = random.Random(seed)
    programs = [Ledger(sink, Lag(every, 64, 3600)) for _ in range(4)]
    rows = programs[0].rows
    for program in programs:
        program.rows = rows
    programs[0].reserve()
    for _ in range(200):
        i = draw.randrange(4)
        if draw.random() < 0.1:
            programs[i] = Ledger(sink, Lag(every, 64, 3600))
            programs[i].rows = rows
        programs[i].reserve() if draw.random() < 0.5 else programs[i].append()
        assert len(rows) - max(anchor.count for anchor in sink.held) <= every - 1


def test_beyond_the_bound_nothing_is_answered(sink: Memory) -> None:
    """The sink is away: a settlement that would be the eighth bare row says that it is not safe."""
    ledger = Ledger(sink, Lag(every=8, rows=64, seconds=3600))
    ledger.reserve()
    sink.away = True
    for _ in range(6):
        ledger.append()
    with pytest.raises(AnchorError, match="nothing may be released"):
        ledger.append()
    with pytest.raises(AnchorError, match="cannot store an anchor"):
        ledger.reserve()
    sink.away = False
    ledger.reserve()
    assert sink.held[-1].count == len(ledger.rows) - 1  # and the reservation's own is the next bare


def test_a_row_is_not_bare_for_longer_than_it_may(
    sink: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(sinks.time, "monotonic", lambda: now)
    ledger = Ledger(sink, Lag(every=8, rows=64, seconds=60.0))
    ledger.reserve()
    ledger.append()
    assert sink.held[-1].count == 1
    now = 61.0
    ledger.append()
    assert sink.held[-1].count == len(ledger.rows)


def test_a_program_that_ends_leaves_its_last_head(sink: Memory) -> None:
    """What `atexit` calls; a sink that is away does not spoil the end of a program."""
    ledger = Ledger(sink, Lag(every=8, rows=64, seconds=3600))
    ledger.reserve()
    assert sink.held[-1].count < len(ledger.rows)
    sink.away = True
    sinks._leave_last(weakref.ref(ledger.anchoring))
    sink.away = False
    sinks._leave_last(weakref.ref(ledger.anchoring))
    assert sink.held[-1].count == len(ledger.rows)
    sinks._leave_last(weakref.ref(ledger.anchoring))
    assert len(sink.held) == 2  # nothing more to leave


def test_the_end_of_a_process_leaves_it(tmp_path: Path) -> None:
    """A process of its own: it is its end that is tested."""
    program = f"""
from beam_ldp.ledger.rows import ChainHead, next_row
from beam_ldp.ledger.sinks import open_anchors
found = open_anchors("file://{tmp_path}/heads.jsonl?every=8&seconds=3600")
found.check_before_reserve("{LEDGER}", ChainHead(1, "0" * 64), list)
found.after_append("{LEDGER}", ChainHead(2, "1" * 64), list)
print(found.sink.last("{LEDGER}").count)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["1"], done.stderr
    found = FileAnchors(tmp_path / "heads.jsonl").last(LEDGER)
    assert found is not None and found.count == 2


@pytest.mark.parametrize("how", [{"every": 0}, {"every": 9, "rows": 8}, {"seconds": -1.0}])
def test_lags_that_are_none(how: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="every must|seconds must"):
        Lag(**how)  # type: ignore[arg-type]


# A file -------------------------------------------------------------------------------------------


def anchor(count: int, ledger_id: str = LEDGER) -> Anchor:
    return Anchor(ledger_id, count, f"{count:064x}", "2026-01-01T00:00:00+00:00")


def test_a_file_keeps_what_it_is_given(tmp_path: Path) -> None:
    sink = FileAnchors(tmp_path / "anchors.jsonl")
    assert sink.last(LEDGER) is None
    for count in (3, 5, 4):
        sink.put(anchor(count))
    sink.put(anchor(9, "b" * 32))
    assert sink.last(LEDGER) == anchor(5)
    assert [a.count for a in sink.all()] == [3, 5, 4, 9]


def test_the_newest_of_very_many(tmp_path: Path) -> None:
    sink = FileAnchors(tmp_path / "anchors.jsonl")
    lines = [json.dumps(vars(anchor(i))) for i in range(1, 3000)]
    (tmp_path / "anchors.jsonl").write_text("\n".join(lines) + "\n")
    assert sink.last(LEDGER) == anchor(2999)


def test_a_ledger_whose_last_row_is_long_ago(tmp_path: Path) -> None:
    """Others have left very many heads in the same file since."""
    lines = [json.dumps(vars(anchor(i, "b" * 32 if i > 5 else LEDGER))) for i in range(1, 300)]
    (tmp_path / "anchors.jsonl").write_text("\n".join(lines) + "\n")
    assert FileAnchors(tmp_path / "anchors.jsonl").last(LEDGER) == anchor(5)


def test_a_line_that_was_cut_is_no_anchor_and_harms_none(tmp_path: Path) -> None:
    path = tmp_path / "anchors.jsonl"
    sink = FileAnchors(path)
    sink.put(anchor(1))
    with path.open("a") as file:
        file.write('{"ledger_id": "aaaa", "cou')
    assert sink.last(LEDGER) == anchor(1)
    sink.put(anchor(2))
    assert sink.last(LEDGER) == anchor(2)
    assert [a.count for a in FileAnchors(path).all()] == [1, 2]


def test_a_folder_that_is_not_mounted_is_no_empty_file(tmp_path: Path) -> None:
    ledger = Ledger(FileAnchors(tmp_path / "not mounted" / "anchors.jsonl"))
    with pytest.raises(AnchorError, match="FileNotFoundError"):
        ledger.reserve()


def _write(path: Path, start: int) -> None:
    sink = FileAnchors(path)
    for i in range(25):
        sink.put(anchor(start + i))


def test_writers_at_once_lose_no_line(tmp_path: Path) -> None:
    """New processes: the lock is between them."""
    path = tmp_path / "anchors.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, 1 + 100 * i)) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    counts = sorted(a.count for a in FileAnchors(path).all())
    assert counts == sorted(1 + 100 * i + j for i in range(4) for j in range(25))


# By URL -------------------------------------------------------------------------------------------


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_anchors() is None
    assert isinstance(open_sink(str(tmp_path / "a.jsonl")), FileAnchors)
    monkeypatch.setenv("BEAM_LDP_ANCHORS", f"file://{tmp_path}/with%20space.jsonl?rows=5")
    found = open_anchors()
    assert found is not None and found.sink.name == f"{tmp_path}/with space.jsonl"
    assert found._lag == Lag(1, 5, 0.0)
    assert open_anchors(found) is found
    given = open_anchors(Memory())
    assert given is not None and given._lag == INLINE
    assert REMOTE.every > 1


@pytest.mark.parametrize(
    "url", ["smb://host/anchors", "file:///a?every=x", "file:///a?rows=0", "file:///a?row=1"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="anchors"):
        open_anchors(url)


def test_every_scheme_has_its_opener() -> None:
    told = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    openers = told["project"]["entry-points"]["beam_ldp.anchor_sinks"]
    assert set(openers) == {"mlflow", "gs", "s3", "hdfs", "azfs"}
    for place in set(openers.values()):
        module, _, name = place.partition(":")
        opened: Callable[[str], object] = getattr(importlib.import_module(module), name)
        found = opened("gs://bucket/anchors")
        assert {"name", "last", "put", "all"} <= set(dir(found))


def test_a_store_that_beam_knows(tmp_path: Path) -> None:
    from beam_ldp.transforms.files import StoredAnchors

    sink = StoredAnchors(f"{tmp_path}/anchors/")
    assert sink.last(LEDGER) is None
    for count in (9, 100, 10, 100):
        sink.put(anchor(count))
    sink.put(anchor(900, "b" * 32))
    assert sink.last(LEDGER) == anchor(100)
    assert sorted(a.count for a in sink.all()) == [9, 10, 100, 900]
    ledger = Ledger(sink)
    with pytest.raises(RolledBackError):
        ledger.reserve()


# A ledger with anchors ----------------------------------------------------------------------------


def spend(ledger: BudgetLedger, name: str) -> None:
    event, identity = LocalRandomizerDpEvent(5.0), asked("visits", name)
    charge = ledger.reserve("visits", name, event, identity=identity)
    ledger.settle(name, event, identity=identity, attempt=charge.attempt)


class Watching(Memory):
    """A sink that is asked, row by row, whether the ledger's call has returned already."""

    def covers(self, ledger: BudgetLedger) -> bool:
        return bool(self.held) and self.held[-1].hash == ledger.rows()[-1].hash


def test_inline_every_call_returns_with_its_rows_covered(url: str) -> None:
    """Of each kind of row, checkpoints too: whoever was answered is not set back unseen."""
    sink = Watching()
    ledger = BudgetLedger.create(url, anchors=sink)
    assert sink.covers(ledger)
    ledger.set_budget("visits", epsilon=16.0, delta=1e-6, local_epsilon=16.0)
    ledger.set_quota("visits", "maps", share=0.5)
    assert sink.covers(ledger)
    event, identity = LocalRandomizerDpEvent(0.1), asked("visits", "run", key=KEY)
    for _ in range(2):  # reserved, and taken up again
        charge = ledger.reserve("visits", "run", event, identity=identity, memoized=True)
        assert sink.covers(ledger)
    ledger.settle("run", event, identity=identity, attempt=charge.attempt, report_digest="set1:d")
    assert sink.covers(ledger)
    ledger.republish("run", event, identity=identity, report_digest="set1:e")
    assert sink.covers(ledger)
    ledger.reserve("visits", "other", event, identity=asked("visits", "other"))
    ledger.abandon("other", randomized=True, why="drawn so")
    assert sink.covers(ledger)
    ledger.checkpoint()
    assert sink.covers(ledger)


@pytest.fixture
def backed_up(tmp_path: Path) -> tuple[str, Path]:
    """A ledger of which 10 of 16 are spent, and its database as it was when 5 were."""
    url = f"sqlite:///{tmp_path / 'privacy.db'}"
    anchors = f"file://{tmp_path}/anchors.jsonl"
    ledger = BudgetLedger.create(url, anchors=anchors)
    ledger.set_budget("visits", epsilon=16.0, delta=1e-6, local_epsilon=16.0)
    spend(ledger, "first")
    with (
        closing(sqlite3.connect(tmp_path / "privacy.db")) as live,
        closing(sqlite3.connect(tmp_path / "backup.db")) as backup,
    ):
        live.backup(backup)
    spend(ledger, "second")
    ledger._store.close()
    return url, tmp_path


def restore(folder: Path) -> None:
    for name in ("privacy.db-wal", "privacy.db-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "privacy.db").write_bytes((folder / "backup.db").read_bytes())


def test_a_database_that_was_set_back_is_not_overspent(
    backed_up: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = backed_up
    restore(folder)
    without = BudgetLedger(url)
    assert without.status("visits").local_spent == 5.0
    spend(without, "third")  # nobody can tell
    without._store.close()
    restore(folder)
    monkeypatch.setenv("BEAM_LDP_ANCHORS", f"file://{folder}/anchors.jsonl")
    ledger = BudgetLedger(url)
    with pytest.raises(RolledBackError, match="2 rows are gone"):
        spend(ledger, "third")
    assert ledger.status("visits").local_committed == 5.0


def test_every_row_is_anchored_before_the_call_returns(backed_up: tuple[str, Path]) -> None:
    url, folder = backed_up
    counts = [anchor.count for anchor in FileAnchors(folder / "anchors.jsonl").all()]
    assert counts == [1, 3, 4, 5, 6, 7]
    report = audit(BudgetLedger(url).rows(), FileAnchors(folder / "anchors.jsonl").all())
    assert str(report.coverage).startswith("covers 7 of 7 rows")


def test_a_sink_that_is_gone_stops_the_next_run(backed_up: tuple[str, Path]) -> None:
    url, folder = backed_up
    (folder / "anchors.jsonl").unlink()
    ledger = BudgetLedger(url, anchors=f"file://{folder}/anchors.jsonl")
    with pytest.raises(AnchorError, match="holds no anchor"):
        spend(ledger, "third")
    state = ledger.state
    FileAnchors(folder / "anchors.jsonl").put(  # as `audit --write-anchor` does
        Anchor(state.ledger_id, state.head.count, state.head.hash, state.time)
    )
    spend(ledger, "third")


def test_a_sink_that_fails_after_the_row_names_what_stands(
    backed_up: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = backed_up
    ledger = BudgetLedger(url, anchors=f"file://{folder}/anchors.jsonl")

    def full(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(FileAnchors, "put", full)
    with pytest.raises(LedgerUnavailableError, match="stays charged"):
        spend(ledger, "third")
    assert ledger.status("visits").local_committed == 15.0
