"""What somebody could try: clocks, periods, orders, names, rows that lie about themselves."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerCorruptedError, LedgerError
from beam_ldp.ledger.auditing import AuditReport, audit
from beam_ldp.ledger.rows import Row, next_row, parse
from tests.ledger.asked import asked, begun
from tests.ledger.conftest import Clock

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)


def grant(ledger: BudgetLedger, **how: Any) -> None:
    ledger.set_budget("visits", **{"epsilon": 0.5, "delta": 1e-300, "local_epsilon": 5.0, **how})


def spend(ledger: BudgetLedger, run_id: str) -> None:
    ledger.reserve("visits", run_id, PURE, identity=asked("visits", run_id))
    ledger.settle(run_id, PURE, identity=asked("visits", run_id))


def forged(rows: list[Row], kind: str, **body: Any) -> list[Row]:
    """The rows and one more, whose hash fits."""
    return [*rows, next_row(rows[-1].head, kind, body)]


def outcome(report: AuditReport, part: str) -> str:
    (found,) = [check.outcome for check in report.checks if part in check.name]
    return found


# Time ---------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_opens_no_earlier_period(
    ledger: BudgetLedger, clock: Clock
) -> None:
    """What was left of a period is gone when it is over."""
    grant(ledger, period_days=30)
    spend(ledger, "january")
    clock.move(days=31)
    spend(ledger, "february 1")
    spend(ledger, "february 2")
    clock.move(days=-31)
    with pytest.raises(BudgetExceededError):
        spend(ledger, "january again")
    times = [row.body["time"] for row in ledger.rows()[1:]]
    assert times == sorted(times)


def test_a_row_from_the_past_does_not_follow(ledger: BudgetLedger) -> None:
    grant(ledger)
    spend(ledger, "run")
    body = {**ledger.rows()[-2].body, "run_id": "earlier", "time": "2025-12-31T00:00:00+00:00"}
    assert outcome(audit(forged(ledger.rows(), "reserve", **body)), "follows from") == "failed"


def test_the_last_second_and_the_first(ledger: BudgetLedger, clock: Clock) -> None:
    grant(ledger, period_days=1)
    spend(ledger, "one")
    spend(ledger, "two")
    clock.move(seconds=86_399)
    with pytest.raises(BudgetExceededError):
        spend(ledger, "three")
    clock.move(seconds=1)
    spend(ledger, "three")


def test_a_charge_counts_where_it_was_reserved(ledger: BudgetLedger, clock: Clock) -> None:
    grant(ledger, period_days=1)
    ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))
    clock.move(days=1)
    ledger.settle("run", PURE, identity=asked("visits", "run"))
    assert ledger.status("visits").spent == 0.0
    assert ledger.state.charge("run").period == 0


# Budgets that are changed afterwards --------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [{"epsilon": 0.6}, {"delta": 1e-299}, {"local_epsilon": None}, {"local_epsilon": 6.0}],
)  # fmt: skip
def test_every_way_to_make_room_is_found(ledger: BudgetLedger, how: dict[str, Any]) -> None:
    grant(ledger)
    spend(ledger, "run")
    grant(ledger, **how, why="room")
    report = audit(ledger.rows())
    assert outcome(report, "raised") == "failed"


def test_other_orders_are_found_where_other_software_wrote_them(ledger: BudgetLedger) -> None:
    grant(ledger)
    spend(ledger, "run")
    body = next(row.body for row in ledger.rows() if row.kind == "budget")
    rows = forged(ledger.rows(), "budget", **{**body, "orders": [2.0]})
    assert outcome(audit(rows), "follows") == "failed"
    rows = forged(ledger.rows(), "budget", **{**body, "period_days": 7})
    assert outcome(audit(rows), "follows") == "failed"


def test_periods_are_fixed_with_the_first_charge(ledger: BudgetLedger) -> None:
    grant(ledger, period_days=30)
    grant(ledger, period_days=31)
    spend(ledger, "run")
    with pytest.raises(LedgerError, match="periods of population 'visits' \\(of 31 days\\)"):
        grant(ledger, period_days=1)


def test_orders_may_change_before_anything_is_charged(ledger: BudgetLedger) -> None:
    grant(ledger, orders=(16.0,))
    grant(ledger, orders=(8.0, 2.0))
    assert ledger.status("visits").budget.orders == (8.0, 2.0)


def test_a_name_of_other_people_is_not_taken_over(ledger: BudgetLedger) -> None:
    """A new dataset does not fall into a population by its name, and change its budget."""
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6, population="shop")
    with pytest.raises(LedgerError, match="there is a population"):
        ledger.set_budget("shop", epsilon=9.0, delta=1e-6)
    assert ledger.status("visits").budget.epsilon == 1.0
    ledger.set_budget("shop", epsilon=1.0, delta=1e-6, population="shop")
    assert ledger.status("shop").datasets == ("shop", "visits")


# Arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"why": "a\x1b[2Jb"}, "why must"),
        ({"why": "x" * 3000}, "why must"),
        ({"by": "a\nb"}, "by must"),
        ({"privacy_unit": ""}, "privacy_unit must"),
    ],
)
def test_text_that_could_steer_a_terminal(
    ledger: BudgetLedger, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        grant(ledger, **how)


def test_the_record_is_not_the_data(ledger: BudgetLedger) -> None:
    grant(ledger)
    with pytest.raises(ValueError, match="not the data"):
        ledger.reserve(
            "visits", "run", PURE, identity=asked("visits", "run"), about={"rows": "x" * (1 << 21)}
        )
    assert not ledger.state.has_run("run")


def test_a_user_without_a_name(ledger: BudgetLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    grant(ledger)
    assert ledger.status("visits").budget.by.startswith("user ")


# Rows that lie -----------------------------------------------------------------------------------


def test_a_row_that_denies_what_it_overspent(ledger: BudgetLedger) -> None:
    """The audit works it out anew; what a row says of itself is what a forger would change."""
    grant(ledger)
    ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))
    ledger.settle("run", LocalRandomizerDpEvent(0.3), identity=asked("visits", "run"))
    *before, last = ledger.rows()
    rows = forged(before, "settle", **{**last.body, "overspent": False})
    assert outcome(audit(rows), "released more") == "failed"


LIES: list[tuple[str, dict[str, Any]]] = [
    ("settle", {"local_epsilon": -5.0}),
    ("settle", {"local_epsilon": "0"}),
    ("settle", {"event": {}}),
    ("settle", {"event": {"version": 1, "event": {"kind": "ShuffledDpEvent"}}}),
    ("settle", {"about": 3}),
    ("settle", {"time": 7}),
    ("settle", {"run_id": ["run"]}),
    ("abandon", {"local_epsilon": -1.0}),
    ("gift", {}),
]


@pytest.mark.parametrize(("kind", "lie"), LIES)
def test_rows_without_a_meaning_are_findings_not_crashes(
    ledger: BudgetLedger, kind: str, lie: dict[str, Any]
) -> None:
    grant(ledger)
    ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))
    time = ledger.state.time
    body = {"run_id": "run", "event": ledger.rows()[-1].body["event"], "local_epsilon": 0.25,
            "overspent": False, "about": {}, "time": time, **lie}  # fmt: skip
    rows = ledger.rows()
    if kind == "gift":
        rows = [*rows, Row(len(rows), kind, body, rows[-1].hash, "x")]
    else:
        rows = forged(rows, kind, **body)
    report = audit(rows)
    assert report.exit_code == 1


@pytest.mark.parametrize("groups", [False, True], ids=["a run begins again", "a group once more"])
def test_a_second_release_under_one_charge_is_found(ledger: BudgetLedger, groups: bool) -> None:
    """Also where another program wrote the row that should cover it."""
    grant(ledger)
    run = asked("visits", "run")
    ledger.reserve("visits", "run", PURE, identity=run)
    told: dict[str, Any] = {"identity": run, "attempt": begun(ledger, "run")}
    if groups:
        ledger.settle("run", PURE, tokens={"a": "1"}, **told)
        ledger.settle("run", PURE, tokens={"b": "2"}, **told)
    last = ledger.rows()[-1]
    assert (last.kind, audit(ledger.rows()).clean) == ("replace" if groups else "resume", True)
    lie = {"tokens": {"b": "3"}} if groups else {"began": "another"}
    rows = forged(ledger.rows(), last.kind, **{**last.body, **lie})
    assert outcome(audit(rows), "follows from") == "failed"


ENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "the launcher settles what its graph began": ("settle", {"attempt": "launcher"}),
    "nothing was asked": ("abandon", {"local_epsilon": 0.0}),
    "another start's graph": ("resume", {"attempt": "another", "began": "run"}),
    "groups without groups": ("replace", {"tokens": {"b": "2"}}),
    "fresh noise again": ("replace", {"tokens": {}}),
}


@pytest.mark.parametrize("name", ENDS)
def test_rows_that_no_verb_writes_are_found(ledger: BudgetLedger, name: str) -> None:
    """Each follows a row that a verb wrote, and differs from what a verb would write there."""
    grant(ledger)
    kind, lie = ENDS[name]
    run = asked("visits", "run")
    made = ledger.reserve("visits", "run", PURE, identity=run)
    if kind == "resume":
        rows = ledger.rows()
        begun(ledger, "run")
        true = {**ledger.rows()[-1].body}
    else:
        token = begun(ledger, "run")
        rows = ledger.rows()
        if kind == "abandon":
            ledger.abandon("run", randomized=True, why="x", attempt=token)
        else:
            ledger.settle("run", PURE, identity=run, attempt=token)
        true = {**ledger.rows()[-1].body}
        if kind == "replace":
            rows, ended = ledger.rows(), ledger.charge("run")
            loss = ended.loss.to_json()
            true = {**true, "event": ended.settled, "loss": loss, "gives_back": loss}
    lie = {k: made.attempt if v == "launcher" else v for k, v in lie.items()}
    assert outcome(audit(forged(rows, kind, **{**true, **lie})), "follows from") == "failed"
    if kind != "replace":
        assert outcome(audit(forged(rows, kind, **true)), "follows from") == "passed"


@pytest.mark.parametrize(
    "lie", [{"orders": []}, {"orders": [0.5]}, {"delta": 0.0}, {"epsilon": -1.0}, {"epsilon": "x"}]
)
def test_budgets_without_a_meaning(ledger: BudgetLedger, lie: dict[str, Any]) -> None:
    grant(ledger)
    rows = forged(ledger.rows(), "budget", **{**ledger.rows()[-1].body, **lie})
    assert audit(rows).exit_code == 1


def test_numbers_that_json_has_not() -> None:
    for text in ("[NaN]", "[Infinity]", "[-Infinity]"):
        with pytest.raises(ValueError, match="not JSON"):
            parse(text)
    assert parse("[" + "9" * 5000 + "]") == [float("inf")]


def test_a_program_refuses_to_go_on_from_a_lie(
    ledger: BudgetLedger, url: str, clock: Clock, tmp_path: Path
) -> None:
    grant(ledger)
    ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))
    row = forged(ledger.rows(), "abandon", run_id="nobody", local_epsilon=0.0, about={},
                 time=ledger.state.time)[-1]  # fmt: skip
    from beam_ldp.ledger.store import RowStore

    with RowStore(url).writing() as appender:
        appender.append(row)
    with pytest.raises(LedgerCorruptedError):
        BudgetLedger(url, clock=clock).reserve(
            "visits", "next", PURE, identity=asked("visits", "next")
        )
