"""Rows that other software wrote, chained as they should be: what an audit finds all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.ledger import BudgetLedger, audit, kinds, recomputing
from beam_ldp.ledger.auditing import AuditReport
from beam_ldp.ledger.losses import Loss
from beam_ldp.ledger.rows import Anchor, Row, next_row
from tests.ledger.asked import KEY, asked
from tests.ledger.conftest import Clock
from tests.ledger.keys import make_key

pytestmark = pytest.mark.exact

EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10_000)


@pytest.fixture
def rows(ledger: BudgetLedger) -> list[Row]:
    ledger.set_budget("visits", epsilon=4.0, delta=1e-6, local_epsilon=8.0)
    ledger.set_quota("visits", "ads", share=0.25)
    identity = asked("visits", "first", columns=("word",), key=KEY)
    ledger.reserve("visits", "first", EVENT, identity=identity, memoized=True)
    ledger.settle("first", EVENT, identity=identity)
    return ledger.rows()


def forged(rows: list[Row], **changed: Any) -> list[Row]:
    """One more reservation like the first, but for what is changed."""
    (like,) = [row for row in rows if row.kind == kinds.RESERVE]
    body = {**like.body, "run_id": "forged", "attempt": "other", **changed}
    return [*rows, next_row(rows[-1].head, kinds.RESERVE, body)]


def of(identity: Any) -> dict[str, Any]:
    return {"identity": identity.to_json(), "identity_digest": identity.digest.hex()}


def check(report: AuditReport, part: str) -> tuple[str, str]:
    (found,) = [c for c in report.checks if part in c.name]
    return found.outcome, " ".join(found.findings)


def test_the_rows_are_clean(rows: list[Row]) -> None:
    report = audit(rows)
    assert report.clean
    told = {c.name: c.outcome for c in report.checks}
    assert told["no memoized release was charged as two"] == "passed"
    assert told["no share of a budget was exceeded"] == "passed"


def test_one_release_id_with_two_questions(rows: list[Row]) -> None:
    other = asked("visits", "first", columns=("hiv",), key=KEY)
    outcome, said = check(audit(forged(rows, **of(other))), "two questions")
    assert outcome == "failed"
    assert "'forged'" in said and "columns" in said


def test_another_part_of_a_question_is_no_other_question(rows: list[Row]) -> None:
    other = asked("visits", "first", columns=("word",), key=KEY, part="round 3")
    assert check(audit(forged(rows, **of(other))), "two questions")[0] == "passed"


def test_one_memoized_release_that_was_charged_as_two(rows: list[Row]) -> None:
    outcome, said = check(audit(forged(rows)), "charged as two")
    assert outcome == "failed" and "'first' and 'forged'" in said


def test_a_loss_that_is_stated_too_small(rows: list[Row]) -> None:
    (like,) = [row for row in rows if row.kind == kinds.RESERVE]
    loss = like.body["loss"]
    less = {**loss, "divergences": [0.5 * value for value in loss["divergences"]]}
    outcome, said = check(audit(forged(rows, loss=less)), "what its event costs")
    assert outcome == "failed" and f"row {rows[-1].number + 1} states a smaller loss" in said
    more = {**loss, "divergences": [2 * value for value in loss["divergences"]]}
    assert check(audit(forged(rows, loss=more)), "what its event costs")[0] == "passed"


def test_a_local_epsilon_that_is_stated_too_small(rows: list[Row]) -> None:
    report = audit(forged(rows, local_epsilon=0.1))
    outcome, said = check(report, "every local epsilon")
    assert outcome == "failed"
    assert "states a local epsilon of 0.1; its event's is 1" in said
    assert check(report, "follows")[0] == "failed"


def test_a_share_that_was_exceeded(rows: list[Row]) -> None:
    made = rows
    for i in range(3):
        identity = asked("visits", f"ads {i}", key=KEY)
        (like,) = [row for row in rows if row.kind == kinds.RESERVE]
        body = {**like.body, **of(identity), "run_id": f"ads {i}", "quota": "ads"}
        body["release_key"] = _key(identity)
        made = [*made, next_row(made[-1].head, kinds.RESERVE, body)]
    outcome, said = check(audit(made), "share of a budget")
    assert outcome == "failed"
    assert "quota 'ads' of 'visits' was charged beyond its share of 0.25" in said


@pytest.mark.parametrize(("failure", "outcome"), [(1.2e-8, "passed"), (1.3e-8, "failed")])
def test_a_share_of_what_may_fail_that_was_exceeded(
    rows: list[Row], failure: float, outcome: str
) -> None:
    """As a reservation is refused: 0.25 of the twentieth of delta = 1e-6 that is for chances."""
    (like,) = [row for row in rows if row.kind == kinds.RESERVE]
    identity = asked("visits", "ads", key=KEY)
    loss = {**like.body["loss"], "failure": failure}
    made = forged(rows, **of(identity), quota="ads", release_key=_key(identity), loss=loss)
    report = audit(made)
    assert check(report, "share of a budget")[0] == outcome
    assert check(report, "ever exceeded")[0] == "passed"


def _key(identity: Any) -> str:
    from beam_ldp.ledger.charges import release_key

    return release_key("visits", "visits", identity)


def test_a_clock_that_was_ahead_of_its_anchor(rows: list[Row], ledger: BudgetLedger) -> None:
    state = ledger.state
    anchor = Anchor(state.ledger_id, len(rows), rows[-1].hash, "2025-12-30T00:00:00+00:00")
    outcome, said = check(audit(rows, [anchor]), "later time")
    assert outcome == "failed" and "a clock was ahead" in said
    near = replace(anchor, time="2025-12-31T12:00:00+00:00")
    assert check(audit(rows, [near]), "later time")[0] == "passed"
    odd = replace(anchor, time="yesterday")
    assert check(audit(rows, [odd]), "later time")[0] == "passed"


def test_a_clock_that_somebody_vouched_for_is_told(ledger: BudgetLedger, clock: Clock) -> None:
    ledger.set_budget("visits", epsilon=4.0, delta=1e-6)
    clock.move(days=400)
    ledger.accept_time(why="a year off", by="Ada")
    _, said = check(audit(ledger.rows()), "later time")
    assert "Ada said that the clock is right" in said and "a year off" in said


def test_a_signature_that_is_not_the_writers(rows: list[Row]) -> None:
    key = make_key().public_key().public_bytes_raw().hex()
    writer = {"login": "x", "host": "y", "version": "", "key": key, "signature": "00" * 64}
    identity = asked("visits", "other", key=KEY)
    more = forged(rows, **of(identity), release_key=_key(identity), writer=writer)
    outcome, said = check(audit(more), "signed by whom")
    assert outcome == "failed" and "not signed by the key that it names" in said


def test_what_a_block_settled_is_compared_as_a_sum(ledger: BudgetLedger) -> None:
    ledger.set_budget("visits", epsilon=4.0, delta=1e-6)
    whole = asked("visits", "hours")
    charge = ledger.reserve("visits", "hours", EVENT, identity=whole, count=2)
    for i in range(2):
        part = whole.of_round(i)
        ledger.settle("hours", EVENT, identity=part, attempt=charge.attempt)
    shown = {"hours": [{"local_epsilon": 2.0}]}
    assert check(audit(ledger.rows(), tracked=shown), "tracking")[0] == "passed"
    assert check(audit(ledger.rows(), tracked={"hours": [{"local_epsilon": 1.0}]}), "tracking")[
        0
    ] == ("failed")


# Prices -------------------------------------------------------------------------------------------


def test_each_distinct_event_is_priced_once(
    rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rows
    for i in range(20):
        identity = asked("visits", f"r{i}", key=KEY)
        made = forged(rows, run_id=f"r{i}", **of(identity), release_key=_key(identity))[-1:]
    asked_for: list[Any] = []
    answer = recomputing._answer
    monkeypatch.setattr(recomputing, "_answer", lambda one: asked_for.append(one) or answer(one))
    assert sum(row.kind in (kinds.RESERVE, kinds.SETTLE) for row in rows) == 2
    assert audit([*rows, next_row(rows[-1].head, kinds.RESERVE, made[0].body)]).num_rows
    assert len(asked_for) == 1


def test_several_processes_price_the_same(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two new processes: that is what is tested."""
    from beam_ldp.ledger.state import LedgerState

    state = LedgerState()
    state.apply(rows)
    one, two = recomputing.stated_by(rows, state), recomputing.stated_by(rows, state)
    recomputing.price(one)
    monkeypatch.setattr(recomputing, "_FEW", 0)
    recomputing.price(two, workers=2)
    assert one.answers == two.answers and len(one.answers) == 1


def test_an_event_without_a_price_is_a_fault(rows: list[Row]) -> None:
    found = recomputing.Repricing()
    question = recomputing.ChargedEvent('{"version": 9}', (2.0,))
    found.stated[question] = {Loss((1.0,), 1.0): 7}
    recomputing.price(found)
    assert found.findings() == ["row 7 holds an event without a privacy cost: ValueError"]
