"""Ledgers for which no anchors are named: a backup that is put back is refused on this machine."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger, audit, sinks
from beam_ldp.ledger.sinks import FileAnchors, RolledBackError, usual_anchors
from beam_ldp.pipelines.audit import audit as audit_command
from beam_ldp.pipelines.budget import budget
from tests.ledger.asked import KEY, asked, begun

pytestmark = pytest.mark.exact

EVENT = LocalRandomizerDpEvent(1.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path}/l.db")
    ledger.set_budget("web", epsilon=500, delta=1e-8, local_epsilon=None)
    return f"sqlite:///{tmp_path}/l.db"


def spend(url: str, *numbers: int) -> None:
    ledger = BudgetLedger(url)
    for number in numbers:
        ledger.reserve("web", f"r{number}", EVENT, identity=asked("web", f"x{number}"))


def back_up(url: str, name: str = "backup.db") -> Path:
    """A copy as `.backup` makes it."""
    path = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(path.parent / name)) as to:
        live.backup(to)
    return path.parent / name


def put_back(url: str, backup: Path) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    shutil.copy(backup, path)


def test_a_backup_that_is_put_back_is_refused_and_has_a_successor(url: str, tmp_path: Path) -> None:
    spend(url, 0, 1)
    backup = back_up(url)
    spend(url, 2, 3)
    newest = back_up(url, "newest.db")
    put_back(url, backup)
    with pytest.raises(
        RolledBackError,
        match="2 rows are gone.*budget succeed --anchors .* --from URL --ledger NEW_URL --why TEXT",
    ):
        spend(url, 4, 5, 6)
    assert len(BudgetLedger(url).status("web").charges) == 2  # it can be looked at
    place = BudgetLedger(url).anchored_in
    told = ["succeed", "--from", url, "--ledger", f"sqlite:///{tmp_path}/next.db", "--anchors",
            str(place), "--why", "restored", "--format", "json"]  # fmt: skip
    succeeded = CliRunner().invoke(budget, told)
    assert succeeded.exit_code == 0, succeeded.output
    assert json.loads(succeeded.output)["succeeds"]["unknown"] == 2
    put_back(url, newest)  # the other remedy
    spend(url, 4)


def test_what_was_written_after_a_restore_by_programs_that_do_not_look_is_seen(url: str) -> None:
    """The ledger has as many rows again, and others."""
    spend(url, 0)
    backup = back_up(url)
    spend(url, 1)
    put_back(url, backup)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BEAM_LDP_ANCHORS", "none")
        BudgetLedger(url).set_budget("web", epsilon=6, delta=1e-8, local_epsilon=None)
    with pytest.raises(RolledBackError, match="continued differently"):
        spend(url, 2)


MEMOIZED = asked("web", "ended", key=KEY)
WRITES: dict[str, Callable[[BudgetLedger], object]] = {
    "reserve": lambda it: it.reserve("web", "again", EVENT, identity=asked("web", "again")),
    "begin": lambda it: begun(it, "open"),
    "begin_round": lambda it: it.begin("open", rounds=1, attempt=it.charge("open").attempt),
    "settle": lambda it: it.settle("open", EVENT, identity=asked("web", "open")),
    "settle again": lambda it: it.settle(
        "ended", EVENT, identity=MEMOIZED, attempt=it.charge("ended").attempt
    ),
    "abandon": lambda it: it.abandon("open", randomized=True, why="lost"),
    "republish": lambda it: it.republish("ended", EVENT, identity=MEMOIZED, report_digest=None),
    "set_budget": lambda it: it.set_budget("web", epsilon=6, delta=1e-8, local_epsilon=None),
    "set_quota": lambda it: it.set_quota("web", "maps", share=0.5),
    "rename": lambda it: it.rename("web", "site"),
    "accept_time": lambda it: it.accept_time(why="right"),
    "accept": lambda it: it.accept(2, Ed25519PrivateKey.generate(), why="agreed"),
    "checkpoint": lambda it: it.checkpoint(),
}
PLACES = {"usual": "", "file": "", "lag": "?every=2&rows=64&seconds=60"}


@pytest.mark.parametrize("place", PLACES)
def test_no_row_is_written_after_a_restore(
    url: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often each is tried: a row left unrefused would make its anchor the newest."""
    if place != "usual":
        where = tmp_path / "anchors.jsonl"
        monkeypatch.setenv("BEAM_LDP_ANCHORS", f"file://{where}{PLACES[place]}")
        url = f"sqlite:///{tmp_path}/named.db"
        BudgetLedger.create(url).set_budget("web", epsilon=500, delta=1e-8, local_epsilon=None)
    ledger = BudgetLedger(url)
    ended = ledger.reserve("web", "ended", EVENT, identity=MEMOIZED, memoized=True)
    ledger.settle("ended", EVENT, identity=MEMOIZED, attempt=ended.attempt)
    ledger.reserve("web", "open", EVENT, identity=asked("web", "open"))
    backup = back_up(url)
    spend(url, 0, 1)
    anchors = Path(str(ledger.anchored_in))
    put_back(url, backup)
    before, kept = BudgetLedger(url).rows(), anchors.read_bytes()
    for write in WRITES.values():
        with pytest.raises(RolledBackError, match="rows? .*gone.*newest copy.*budget succeed"):
            write(BudgetLedger(url))
    assert BudgetLedger(url).rows() == before and anchors.read_bytes() == kept
    assert audit(before).clean and not audit(before, FileAnchors(anchors).all()).clean
    found = CliRunner().invoke(audit_command, ["--ledger", url])
    assert found.exit_code == 1 and "rows are gone" in " ".join(found.output.split())
    with pytest.raises(RolledBackError, match="gone"):
        BudgetLedger(url).would_grant("web", EVENT)
    told = ["--ledger", url, "--write-anchor", str(anchors)]
    refused = CliRunner().invoke(audit_command, told)
    assert refused.exit_code == 1
    assert anchors.read_bytes() == kept


def test_two_machines_may_share_a_ledger(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has seen some of the rows, however long ago; either refuses when one of these is gone,
    and only then."""
    homes = [tmp_path / "one", tmp_path / "two"]

    def at(home: int, *numbers: int) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(homes[home]))
        spend(url, *numbers)

    at(0, 0)
    at(1, *range(100, 170))
    at(0, 1)  # of 70 rows it knows nothing, and refuses nothing
    seen_by_first = back_up(url)
    at(1, 3, 4)
    put_back(url, seen_by_first)
    with pytest.raises(RolledBackError, match="2 rows are gone"):
        at(1, 5)
    at(0, 6)  # a machine knows what it has seen
    with pytest.raises(RolledBackError, match="rows are gone"):
        at(1, 7)


def test_a_row_that_another_program_wrote_meanwhile_is_no_rollback(url: str) -> None:
    """Whenever it writes: around each time that the anchors are read or written."""
    other, ledger = BudgetLedger(url), BudgetLedger(url)
    assert ledger._anchoring is not None
    sink, writes = ledger._anchoring.sink, list[int]()

    def meanwhile(asked_for: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            for moment in ("before", "after"):
                found = asked_for(*given) if moment == "after" else None
                other.set_budget("web", epsilon=500, delta=1e-8, local_epsilon=None)
                writes.append(1)
            return found

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in ("last", "put"):
            patched.setattr(sink, name, meanwhile(getattr(sink, name)))
        ledger.reserve("web", "r", EVENT, identity=asked("web", "r"))
        ledger.settle("r", EVENT, identity=asked("web", "r"))
    found = sink.last(ledger.ledger_id)
    assert len(writes) >= 8 and found is not None and found.count == len(ledger.rows())


def test_a_ledger_of_before_begins_with_its_next_row(
    url: str, monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    monkeypatch.setenv("BEAM_LDP_ANCHORS", "none")
    spend(url, 0)
    assert BudgetLedger(url).anchored_in is None
    monkeypatch.delenv("BEAM_LDP_ANCHORS")
    shutil.rmtree(state_home)
    BudgetLedger(url).set_budget("web", epsilon=6, delta=1e-8, local_epsilon=None)
    spend(url, 1)
    backup = back_up(url)
    spend(url, 2)
    put_back(url, backup)
    with pytest.raises(RolledBackError):
        spend(url, 3)


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that takes no folder; a file in its place, since root may write anywhere."""
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


def test_without_a_place_a_ledger_goes_on_and_says_so_once(
    url: str, unwritable: None, caplog: pytest.LogCaptureFixture
) -> None:
    spend(url, 0, 1)
    assert caplog.text.count("ledger.not_anchored") == 1
    assert BudgetLedger(url).anchored_in is None


def test_a_place_that_goes_away_is_said_and_stops_nobody(
    url: str, state_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = BudgetLedger(url)
    ledger.reserve("web", "a", EVENT, identity=asked("web", "a"))
    shutil.rmtree(state_home)
    ledger.settle("a", EVENT, identity=asked("web", "a"))
    ledger.reserve("web", "b", EVENT, identity=asked("web", "b"))
    assert caplog.text.count("ledger.not_anchored") == 1


def test_a_long_file_is_begun_anew(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows with every row, and only its last line is read."""
    monkeypatch.setattr(sinks, "_LONGEST", 500)
    spend(url, 0, 1, 2)
    backup = back_up(url)
    spend(url, *range(3, 8))
    assert Path(str(BudgetLedger(url).anchored_in)).stat().st_size < 1000
    put_back(url, backup)
    with pytest.raises(RolledBackError, match="5 rows are gone"):
        spend(url, 8)


@pytest.mark.parametrize("state", ["", "relative"])
def test_the_state_lies_in_the_home_unless_it_is_named(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = usual_anchors("a")
    assert found is not None
    assert Path(found.sink.name).parent == tmp_path / ".local/state/beam-ldp/anchors"


def test_init_says_where_and_names_of_ledgers_are_no_paths(
    tmp_path: Path, state_home: Path
) -> None:
    told = ["init", "--ledger", f"sqlite:///{tmp_path}/l.db"]
    made = CliRunner().invoke(budget, [*told, "--format", "json"])
    place = Path(json.loads(made.output)["anchored_in"])
    assert place.parent == state_home / "beam-ldp" / "anchors" and place.is_file()
    assert "a backup that is put back over it is refused" in CliRunner().invoke(budget, told).output
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BEAM_LDP_ANCHORS", "none")
        assert "it is anchored nowhere" in CliRunner().invoke(budget, told).output
    hostile = usual_anchors("../../../etc/passwd")
    assert hostile is not None and Path(hostile.sink.name).parent == place.parent
    assert os.stat(place.parent).st_mode & 0o077 == 0
