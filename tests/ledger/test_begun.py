"""Rounds that have begun: the ledger counts them, and no charge is settled for fewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dp_accounting
import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.ledger import BudgetLedger, Charge, LedgerError
from beam_ldp.ledger.auditing import audit
from beam_ldp.ledger.balances import Balances
from tests.ledger.asked import asked
from tests.ledger.test_attacks import forged, outcome

pytestmark = pytest.mark.exact

ONE = LocalRandomizerDpEvent(1.0)


def of(rounds: int) -> dp_accounting.DpEvent:
    return ONE if rounds == 1 else dp_accounting.SelfComposedDpEvent(ONE, rounds)


@pytest.fixture
def charge(ledger: BudgetLedger) -> Charge:
    """Of thirty rounds, of which twelve began."""
    ledger.set_budget("visits", epsilon=100.0, delta=1e-6, local_epsilon=100.0)
    made = ledger.reserve("visits", "t", of(30), identity=asked("visits", "t"))
    for begun in (0, 1, 5, 12):
        made = ledger.begin("t", rounds=begun, attempt=made.attempt)
    return made


def settle(ledger: BudgetLedger, rounds: int, attempt: str) -> Charge:
    return ledger.settle("t", of(rounds), identity=asked("visits", "t"), attempt=attempt, proof="p")


def test_a_charge_is_settled_for_all_rounds_that_began(ledger: BudgetLedger, charge: Charge):
    assert (
        charge.rounds_begun
        == ledger.charge("t").rounds_begun
        == ledger.state.charge("t").rounds_begun
        == 12
    )
    for fewer in (1, 3, 11):
        with pytest.raises(LedgerError, match="12 rounds of run 't' have begun"):
            settle(ledger, fewer, charge.attempt)
    assert settle(ledger, 12, charge.attempt).local_epsilon == 12.0
    assert ledger.charge("t") == ledger.state.charge("t") == settle(ledger, 12, charge.attempt)
    assert audit(ledger.rows()).clean
    with pytest.raises(LedgerError, match="is settled already"):
        ledger.begin("t", rounds=13, attempt=charge.attempt)


def test_the_count_never_falls_and_what_was_asked_stays_spent(ledger: BudgetLedger, charge: Charge):
    with pytest.raises(LedgerError, match="cannot fall to 11"):
        ledger.begin("t", rounds=11, attempt=charge.attempt)
    given_back = ledger.abandon("t", randomized=False, why="x", attempt=charge.attempt)
    assert given_back.local_epsilon == 30.0


def test_of_two_starts_the_newer_one_counts(ledger: BudgetLedger, charge: Charge):
    assert ledger.begin("t", rounds=12, attempt=charge.attempt, start="newer").attempt == "newer"
    for late in (
        lambda: ledger.begin("t", rounds=13, attempt=charge.attempt),
        lambda: ledger.begin("t", rounds=12, attempt=charge.attempt, start="third"),
        lambda: settle(ledger, 12, charge.attempt),
    ):
        with pytest.raises(LedgerError, match="another start of run 't' took over"):
            late()
    ledger.begin("t", rounds=13, attempt="newer")
    assert settle(ledger, 13, "newer").local_epsilon == 13.0, "nothing is charged twice"
    assert settle(ledger, 13, "newer").attempt == "newer"


def test_rounds_are_counted_of_what_one_program_settles_whole(ledger: BudgetLedger) -> None:
    """No row of another kind comes after them in which the count would be forgotten."""
    ledger.set_budget("visits", epsilon=100.0, delta=1e-6, local_epsilon=100.0)
    keyed = asked("visits", "m", key="5a" * 32)
    made = {
        "block": ledger.reserve("visits", "b", ONE, identity=asked("visits", "b"), count=3),
        "memoized": ledger.reserve("visits", "m", ONE, identity=keyed, memoized=True),
        "graph": ledger.reserve("visits", "g", ONE, identity=asked("visits", "g")),
        "training": ledger.reserve("visits", "t", ONE, identity=asked("visits", "t")),
    }
    ledger.begin("g", attempt=made["graph"].attempt, start="run")
    for kind in ("block", "memoized", "graph"):
        with pytest.raises(LedgerError, match="no rounds of it are counted"):
            ledger.begin(made[kind].run_id, rounds=1, attempt=made[kind].attempt)
    training = ledger.begin("t", rounds=1, attempt=made["training"].attempt)
    with pytest.raises(LedgerError, match="a training, whose rounds are counted"):
        ledger.begin("t", attempt=training.attempt, start="run")
    assert audit(ledger.rows()).clean


def test_no_proof_gives_back_what_was_asked(ledger: BudgetLedger, charge: Charge) -> None:
    twice = ledger.reserve("visits", "g", ONE, identity=asked("visits", "g", key="5a" * 32),
                           memoized=True)  # fmt: skip
    for run in ("one", "two"):
        ledger.begin("g", attempt=twice.attempt, start=run)
    nothing: dict[str, Any] = {"num_randomized": 0, "proof": "nobody was asked"}
    ended = ledger.settle("t", of(12), identity=charge.identity, attempt=charge.attempt, **nothing)
    assert ended.local_epsilon == 12.0
    ended = ledger.settle("g", ONE, identity=twice.identity, attempt="two", **nothing)
    assert (ended.attempts, ended.local_epsilon) == (2, 1.0)


def test_an_earlier_start_does_not_take_over_again(ledger: BudgetLedger, charge: Charge) -> None:
    how: dict[str, Any] = {"identity": asked("visits", "m", key="5a" * 32), "memoized": True}
    first = ledger.reserve("visits", "m", ONE, **how)
    ledger.reserve("visits", "m", ONE, **how)
    with pytest.raises(LedgerError, match="another start of run 'm' took over"):
        ledger.reserve("visits", "m", ONE, attempt=first.attempt, **how)


FORGERIES: dict[str, Callable[[dict, dict], tuple[str, dict]]] = {
    "the count falls": lambda begin, _: ("begin", {**begin, "begun": 3}),
    "an end forgets rounds": lambda _, end: ("settle", {**end, "begun": 3}),
    "an end forgets that they are counted": lambda _, end: (
        "settle", {k: v for k, v in end.items() if k != "begun"},
    ),
    "an end is of fewer rounds": lambda _, end: ("settle", {**end, "event": event_to_json(of(3))}),
    "an older start ends it": lambda _, end: ("settle", {**end, "attempt": "older"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_an_audit_finds_rows_that_forget_rounds(ledger: BudgetLedger, charge: Charge, name: str):
    settle(ledger, 12, charge.attempt)
    *rows, end = ledger.rows()
    kind, body = FORGERIES[name](rows[-1].body, end.body)
    assert outcome(audit(forged(rows, kind, **body)), "follows from") == "failed"
    assert audit(forged(rows, "settle", **end.body)).clean


def test_a_run_of_many_rounds_is_found_by_few_rows(ledger: BudgetLedger, charge: Charge):
    """To begin a round costs the same, however many began: the last row holds the count."""
    for begun in range(13, 31):
        ledger.begin("t", rounds=begun, attempt=charge.attempt)
    with ledger._store.reading() as reader:
        assert [row.kind for row in reader.rows_of_run("t")] == ["reserve", "begin"]
    books = Balances()
    books.apply(ledger.rows())
    assert books.populations["visits"].account(0).open == 1
