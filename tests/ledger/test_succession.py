"""A damaged ledger has a way on, which lowers nothing that was spent and is told for ever."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError, audit
from beam_ldp.ledger.rows import Anchor
from beam_ldp.ledger.store import RowStore
from beam_ldp.ledger.succession import Succession, succeed
from tests.ledger.asked import asked
from tests.ledger.conftest import Clock
from tests.ledger.keys import make_key

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)


@pytest.fixture
def lived(ledger: BudgetLedger) -> BudgetLedger:
    """Three settled runs, a checkpoint, one that is open."""
    ledger.set_budget("visits", epsilon=2.0, delta=1e-6, local_epsilon=4.0, by="Ada")
    for i in range(3):
        ledger.reserve("visits", f"run {i}", PURE, identity=asked("visits", f"week {i}"))
        ledger.settle(f"run {i}", PURE, identity=asked("visits", f"week {i}"))
        if i == 1:
            ledger.checkpoint()
    ledger.reserve("visits", "open", PURE, identity=asked("visits", "week 9"))
    return ledger


def change(ledger: BudgetLedger, statement: str) -> None:
    with sqlite3.connect(ledger.url.removeprefix("sqlite:///")) as connection:
        connection.execute(statement)


def follow(
    ledger: BudgetLedger, tmp_path: Path, clock: Clock, **how: object
) -> tuple[BudgetLedger, Succession]:
    new = f"sqlite:///{tmp_path / 'new.db'}"
    found = succeed(RowStore(ledger.url), RowStore(new), why="the disk", by="Ada", **how)  # type: ignore[arg-type]
    return BudgetLedger(new, clock=clock), found


def findings(ledger: BudgetLedger, part: str) -> tuple[str, tuple[str, ...]]:
    (check,) = [c for c in audit(ledger.rows()).checks if part in c.name]
    return check.outcome, check.findings


def test_a_ledger_that_holds_together_has_no_successor(
    lived: BudgetLedger, tmp_path: Path, clock: Clock
) -> None:
    with pytest.raises(LedgerError, match="nothing to succeed"):
        follow(lived, tmp_path, clock)
    assert not (tmp_path / "new.db").exists()


def test_populations_with_long_names_are_each_charged_for_what_is_lost(
    lived: BudgetLedger, tmp_path: Path, clock: Clock
) -> None:
    """Names that differ behind what fits into a charge's name: one hid the other's charge."""
    names = ["x" * 199 + end for end in "ab"]
    for name in names:
        lived.set_budget(name, epsilon=1.0, delta=1e-6)
    lived.set_budget("late", epsilon=1.0, delta=1e-6)
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE number = "
                  "(SELECT max(number) FROM beam_ldp_ledger)")  # fmt: skip
    new, found = follow(lived, tmp_path, clock)
    assert found.unknown == 1
    for name in names:
        status = new.status(name)
        assert status.committed > 1.0 and status.num_open == 1
        assert max(len(charge.run_id) for charge in status.charges) <= 200
    # Its dataset is there, its budget was the damaged row: nobody can be charged, and nobody is.
    late = new.state.populations["late"]
    assert late.budget is None and not late.charged
    assert audit(new.rows()).state is not None


def test_who_succeeds_a_ledger_is_named(lived: BudgetLedger, tmp_path: Path) -> None:
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
    places = RowStore(lived.url), RowStore(f"sqlite:///{tmp_path / 'new.db'}")
    for wrong in ({"by": "x" * 201}, {"by": "a\nb"}, {"why": "a\nb"}):
        with pytest.raises(ValueError, match="must be printable"):
            succeed(*places, **{"why": "the disk", "by": "Ada", **wrong})  # type: ignore[arg-type]
    assert places[1].version() is None


def test_what_was_spent_stays_spent(lived: BudgetLedger, tmp_path: Path, clock: Clock) -> None:
    """The last row is damaged: all before it goes over as it stands."""
    spent = lived.status("visits").spent
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
    new, found = follow(lived, tmp_path, clock)
    assert (found.sound, found.unknown, found.stated) == (10, 1, {})
    status = new.status("visits")
    assert status.spent == spent and status.local_spent == 0.75
    assert status.committed > status.budget.epsilon  # the lost row costs the whole budget
    assert new.mlflow_uri == "http://tracking:5000"
    with pytest.raises(BudgetExceededError):
        new.reserve("visits", "next", PURE, identity=asked("visits", "week 10"))


def test_names_and_releases_stay_taken(lived: BudgetLedger, tmp_path: Path, clock: Clock) -> None:
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
    new, _ = follow(lived, tmp_path, clock, lost_local_epsilon=0.25)
    with pytest.raises(LedgerError, match="already has its charge"):
        new.reserve("visits", "run 1", PURE, identity=asked("visits", "week 1"))
    with pytest.raises(LedgerError, match="stands for another question"):
        new.reserve("visits", "x", PURE, identity=asked("visits", "week 1", columns=("hiv",)))
    new.reserve("visits", "next", PURE, identity=asked("visits", "week 10"))
    assert new.status("visits").local_committed == pytest.approx(1.25)


def test_behind_the_fault_nothing_is_lowered(
    lived: BudgetLedger, tmp_path: Path, clock: Clock
) -> None:
    """Reservations go over, settlements and abandonments do not."""
    change(lived, "UPDATE beam_ldp_ledger SET body = replace(body, '0.25', '0.01') "
                  "WHERE run_id = 'run 1' AND kind = 'settle'")  # fmt: skip
    new, found = follow(lived, tmp_path, clock, lost_local_epsilon=0.5)
    assert (found.sound, found.unknown) == (6, 1)
    assert {c.run_id: c.status for c in new.status("visits").charges} == {
        "run 0": "settled",
        "run 1": "reserved",
        "run 2": "reserved",
        "open": "reserved",
        f"lost rows of {found.ledger_id[:12]}: visits": "reserved",
    }
    assert new.status("visits").local_committed == pytest.approx(1.5)
    new.settle("run 1", PURE, identity=asked("visits", "week 1"))  # again, by `finalize`


@pytest.mark.parametrize("changed", ["open", "m"])
def test_a_second_publication_behind_the_fault_stays_charged(
    lived: BudgetLedger, tmp_path: Path, clock: Clock, changed: str
) -> None:
    """It does not follow any more: its run is not settled, or not even reserved, in the successor.

    What was stated of the lost rows says nothing of it: its event is there to be read.
    """
    identity = asked("visits", "m", key="ab" * 16)
    run = lived.reserve("visits", "m", PURE, identity=identity, memoized=True)
    lived.settle(
        "m", PURE, identity=identity, attempt=run.attempt, report_digest="set1:" + "1" * 64
    )
    lived.republish("m", LocalRandomizerDpEvent(1.0), identity=identity,
                    report_digest="set1:" + "2" * 64)  # fmt: skip
    before = lived.status("visits")
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' "
                  f"WHERE run_id = '{changed}' AND kind = 'reserve'")  # fmt: skip
    new, found = follow(lived, tmp_path, clock, lost_local_epsilon=0.25)
    assert found.unknown == 2 and found.stated == {"visits": 0.25}
    after = new.status("visits")
    assert after.committed > before.committed and after.local_committed > before.local_committed
    (kept,) = [c for c in after.charges if c.run_id == f"row 13 of {found.ledger_id[:12]}"]
    assert (kept.status, kept.local_epsilon) == ("reserved", 1.0)
    assert "2 rows of the old ledger were lost or changed, or do not follow" in str(
        findings(new, "taken over")
    )


@pytest.mark.parametrize("kept", [4, 8])
def test_a_ledger_that_was_set_back(
    lived: BudgetLedger, tmp_path: Path, clock: Clock, kept: int
) -> None:
    """An anchor says how many rows are gone; they cost the whole budget."""
    head = lived.state.head
    anchor = Anchor(lived.state.ledger_id, head.count, head.hash, "2026-01-01T00:00:00+00:00")
    change(lived, f"DELETE FROM beam_ldp_ledger WHERE number >= {kept}")
    with pytest.raises(LedgerError, match="give the anchors"):
        follow(lived, tmp_path, clock)
    new, found = follow(lived, tmp_path, clock, anchors=[anchor])
    assert (found.sound, found.unknown) == (kept, head.count - kept)
    assert new.status("visits").left == 0.0
    assert f"{head.count - kept} rows are gone" in " ".join(found.wrong)


def test_a_ledger_that_was_set_back_and_went_on(
    lived: BudgetLedger, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways from the fork were charged: the lost one counts beside the one that is there."""
    rows, ledger_id = lived.rows(), lived.state.ledger_id
    early = Anchor(ledger_id, 5, rows[4].hash, "2026-01-01T00:00:00+00:00")
    late = replace(early, count=9, hash=rows[8].hash)
    change(lived, "DELETE FROM beam_ldp_ledger WHERE number >= 6")
    monkeypatch.setenv("BEAM_LDP_ANCHORS", "none")  # else nothing is charged to it
    other = BudgetLedger(lived.url, clock=clock)
    for i in range(5):
        other.reserve("visits", f"other {i}", PURE, identity=asked("visits", f"other {i}"))
    new, found = follow(lived, tmp_path, clock, anchors=[early, late])
    assert (found.sound, found.unknown) == (11, 4)
    assert new.has_run("other 4") and new.status("visits").left == 0.0


def test_audits_tell_it_for_ever(lived: BudgetLedger, tmp_path: Path, clock: Clock) -> None:
    old_id = lived.state.ledger_id
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
    new, _ = follow(lived, tmp_path, clock)
    assert audit(new.rows()).clean
    outcome, told = findings(new, "taken over")
    assert outcome == "passed"
    said = " ".join(told)
    for part in (old_id, "10 rows were sound", "Ada", "the disk", "row 10 was changed",
                 "whole budget of every population"):  # fmt: skip
        assert part in said


def test_a_stated_price_is_a_fault_until_it_is_accepted(
    lived: BudgetLedger, tmp_path: Path, clock: Clock
) -> None:
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
    new, _ = follow(lived, tmp_path, clock, lost_local_epsilon=0.25)
    outcome, told = findings(new, "taken over")
    assert outcome == "failed"
    assert "Ada stated that they cost 'visits' a local epsilon of 0.25 at most" in told[0]
    key = make_key()
    new.accept(0, key, why="the output was found", by="Eve")
    report = audit(new.rows(), public_key=key.public_key())
    assert report.clean
    assert "Accepted by the auditor (Eve)" in str(report.checks)


def test_balances_that_do_not_fit_are_a_fault(
    lived: BudgetLedger, tmp_path: Path, clock: Clock
) -> None:
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
    new, found = follow(lived, tmp_path, clock)
    rows = new.rows()
    less = json.loads(json.dumps(found.balances))
    less["visits"]["0"]["local_epsilon"] = 0.1
    assert found.faults(rows) == []
    assert "balances" in replace(found, balances=less).faults(rows)[0]


def test_nothing_is_written_over(lived: BudgetLedger, tmp_path: Path, clock: Clock) -> None:
    change(lived, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
    BudgetLedger.create(f"sqlite:///{tmp_path / 'new.db'}")
    with pytest.raises(LedgerError, match="already holds a ledger"):
        follow(lived, tmp_path, clock)


def test_without_its_first_row_nothing_is_known(
    lived: BudgetLedger, tmp_path: Path, clock: Clock
) -> None:
    change(lived, "DELETE FROM beam_ldp_ledger WHERE number = 0")
    with pytest.raises(LedgerError, match="first row"):
        follow(lived, tmp_path, clock)
