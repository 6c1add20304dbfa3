"""Wrong clocks, renamed datasets, quotas: what nobody gets more by."""

from __future__ import annotations

import random
from typing import Any

import dp_accounting
import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError, Population, audit
from beam_ldp.ledger.admission import capacity, share_of, status_of
from beam_ldp.ledger.balances import REPLACE_ONE
from beam_ldp.ledger.charges import Budget, Quota
from beam_ldp.ledger.losses import Loss, orders_for
from tests.ledger.asked import asked
from tests.ledger.conftest import Clock

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)


def grant(ledger: BudgetLedger, dataset: str = "visits", **how: Any) -> None:
    ledger.set_budget(dataset, **{"epsilon": 1.0, "delta": 1e-6, "local_epsilon": 100.0, **how})


def spend(ledger: BudgetLedger, run_id: str, dataset: str = "visits", **how: Any) -> None:
    run = asked(dataset, run_id)
    ledger.reserve(dataset, run_id, PURE, identity=run, **how)
    ledger.settle(run_id, PURE, identity=run)


# Clocks -------------------------------------------------------------------------------------------


def test_a_clock_in_2036_wins_no_budget_and_blocks_nobody(
    ledger: BudgetLedger, url: str, clock: Clock
) -> None:
    grant(ledger, period_days=30)
    for i in range(4):
        spend(ledger, f"run {i}")
    ledger.reserve("visits", "open", LocalRandomizerDpEvent(1e-13), identity=asked("visits", "o"))
    ahead = Clock()
    ahead.move(days=3653)
    wrong = BudgetLedger(url, clock=ahead)
    assert wrong.status("visits").period == 0
    for act in (lambda: spend(wrong, "stolen"), lambda: grant(wrong, epsilon=9.0, period_days=30)):
        with pytest.raises(LedgerError, match="accept-time"):
            act()
    wrong.settle("open", LocalRandomizerDpEvent(1e-13), identity=asked("visits", "o"))
    assert wrong.balances.time.startswith("2026-01-01")  # a settlement is never held up
    clock.move(days=30)
    spend(ledger, "february")
    assert ledger.status("visits").period == 1 and audit(ledger.rows()).clean


def test_a_long_rest_is_ended_by_an_act_that_stands_in_the_ledger(
    ledger: BudgetLedger, clock: Clock
) -> None:
    grant(ledger)
    clock.move(days=32)
    spend(ledger, "in time")
    clock.move(days=33)
    with pytest.raises(LedgerError, match="more than 32 days"):
        spend(ledger, "late")
    assert ledger.accept_time(why="it was summer", by="Ada") == ledger.balances.time
    spend(ledger, "late")
    (row,) = [row for row in ledger.rows() if row.kind == "time"]
    assert row.body["by"] == "Ada" and row.body["before"] < row.body["time"]


# Names --------------------------------------------------------------------------------------------


def test_a_renamed_dataset_keeps_what_it_was_charged(ledger: BudgetLedger) -> None:
    grant(ledger)
    spend(ledger, "run")
    ledger.rename("visits", "sessions", why="a better word")
    assert ledger.status("sessions").spent == 0.25
    with pytest.raises(LedgerError, match="it is 'sessions' now"):
        spend(ledger, "more")
    with pytest.raises(LedgerError, match="it is taken"):
        grant(ledger, "visits", population="sessions")
    with pytest.raises(LedgerError, match="there is, or was"):
        ledger.rename("sessions", "visits")
    with pytest.raises(LedgerError, match="already stands for another question.*dataset"):
        ledger.reserve("sessions", "again", PURE, identity=asked("sessions", "run"))
    spend(ledger, "new", "sessions")
    assert ledger.status("sessions").spent == 0.5 and audit(ledger.rows()).clean


def test_names_after_a_checkpoint(ledger: BudgetLedger, url: str, clock: Clock) -> None:
    grant(ledger)
    ledger.rename("visits", "sessions")
    ledger.checkpoint()
    opened = BudgetLedger(url, clock=clock)
    with pytest.raises(LedgerError, match="it is 'sessions' now"):
        spend(opened, "more")
    ledger.rename("sessions", "stays")
    with pytest.raises(LedgerError, match="it is 'stays' now"):
        spend(opened, "more")


# Quotas -------------------------------------------------------------------------------------------


def test_a_team_spends_its_share_and_nobody_elses(ledger: BudgetLedger) -> None:
    grant(ledger, epsilon=8.0, local_epsilon=4.0)
    ledger.set_quota("visits", "maps", share=0.5)
    ledger.set_quota("visits", "ads", share=0.25, why="a pilot")
    for i in range(4):
        spend(ledger, f"ads {i}", quota="ads")
    with pytest.raises(BudgetExceededError, match="0.25 for 'ads'"):
        spend(ledger, "one more", quota="ads")
    for i in range(4):
        spend(ledger, f"rest {i}")
    with pytest.raises(BudgetExceededError, match="for all without a quota"):
        spend(ledger, "another")
    for i in range(8):
        spend(ledger, f"maps {i}", quota="maps")
    assert ledger.status("visits").local_spent == 4.0 and audit(ledger.rows()).clean
    with pytest.raises(LedgerError, match="has no quota 'sales'"):
        spend(ledger, "sales", quota="sales")


CENTRAL = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 5_000)


@pytest.mark.parametrize("quota", ["", "ads", "maps"])
@pytest.mark.parametrize(("event", "local", "epsilon"), [(PURE, 0.25, 8.0), (CENTRAL, 2.0, 1.0)])
def test_as_many_are_left_as_are_let_pass(
    ledger: BudgetLedger, quota: str, event: Any, local: float, epsilon: float
) -> None:
    """Of the share; whether the sum of local epsilons binds or the divergence."""
    grant(ledger, epsilon=epsilon, local_epsilon=4.0 if event is PURE else None)
    ledger.set_quota("visits", "ads", share=0.25)
    ledger.set_quota("visits", "maps", share=0.375)
    for name in ("", "ads", "maps"):
        run = asked("visits", f"first {name}")
        ledger.reserve("visits", f"first {name}", event, identity=run, quota=name)
    status = ledger.status("visits")
    left = status.times_left(event, local, quota=quota)
    assert left > 0
    all_of_them = dp_accounting.SelfComposedDpEvent(event, left)
    run = asked("visits", "all of them")
    ledger.reserve("visits", "all of them", all_of_them, identity=run, quota=quota)
    assert ledger.status("visits").times_left(event, local, quota=quota) == 0
    with pytest.raises(BudgetExceededError, match="keeps a share of"):
        run = asked("visits", "beyond")
        ledger.reserve("visits", "beyond", event, identity=run, quota=quota)
    others = {"", "ads", "maps"} - {quota}
    assert all(ledger.status("visits").times_left(event, local, quota=name) for name in others)


def test_nothing_is_left_of_an_unknown_quota(ledger: BudgetLedger) -> None:
    grant(ledger)
    with pytest.raises(LedgerError, match="has no quota 'sales'"):
        ledger.status("visits").times_left(PURE, 0.25, quota="sales")
    ledger.set_quota("visits", "ads", share=1.0)
    assert ledger.status("visits").times_left(PURE, 0.25) == 0


def test_quotas_that_do_not_fit(ledger: BudgetLedger) -> None:
    grant(ledger, epsilon=8.0, local_epsilon=1.0)
    for i in range(3):
        spend(ledger, f"run {i}")
    with pytest.raises(LedgerError, match="runs without a quota"):
        ledger.set_quota("visits", "maps", share=0.5)
    ledger.set_quota("visits", "maps", share=0.25)
    with pytest.raises(LedgerError, match="more than the budget"):
        ledger.set_quota("visits", "ads", share=0.8)
    with pytest.raises(ValueError, match="share must"):
        ledger.set_quota("visits", "ads", share=1.5)


STEPS = 40


MORE_PARTS = [
    pytest.param(2, 5_000, marks=pytest.mark.slow),
    *(pytest.param(seed, 10_000, marks=pytest.mark.bench) for seed in range(3, 13)),
]


@pytest.mark.parametrize("seed, schedules", [(1, 60), *MORE_PARTS])
def test_no_sequence_of_requests_exceeds_a_share_or_exhausts_anothers(
    seed: int, schedules: int
) -> None:
    """Random requests, settlements and gifts back by three teams and the rest, with any losses.

    The decision is a function of totals, so schedules need no database. What must hold after each
    request: the population is within its budget, every share is kept, and whoever asks for what
    fits its own share gets it, whatever the others did.
    """
    draw = random.Random(seed)
    orders = orders_for(1.0, 1e-6)
    budget = Budget(1.0, 1e-6, 10.0, orders, None, "2026-01-01T00:00:00+00:00", 0)
    full, told = capacity(budget), {"granted": 0, "refused": 0}
    for _ in range(schedules):
        people = Population("p", "user", REPLACE_ONE, budgets=[budget])
        shares = sorted(draw.random() for _ in range(3))
        for name, share in zip("abc", (shares[0], shares[1] - shares[0], shares[2] - shares[1])):
            people.quotas[name] = Quota(name, share)
        held: list[dict[str, Any]] = []
        for _ in range(STEPS):
            if held and draw.random() < 0.3:  # one ends, at less than it reserved
                end = held.pop(draw.randrange(len(held)))
                kind = draw.choice(("settle", "abandon"))
                real = [draw.random() * d for d in end["loss"]["divergences"]]
                people.take_charge(kind, {
                    **end, "gives_back": end["loss"], "gives_back_local": end["local_epsilon"],
                    "loss": {"divergences": real, "pure": None},
                })  # fmt: skip
                continue
            quota = draw.choice(("", "a", "b", "c"))
            cost = full * draw.random() ** 3
            loss = Loss((cost, *(cost * draw.random() * 5 for _ in orders[1:])), float("inf"))
            local = 10 * draw.random() ** 3
            own, share = people.account(0, quota), share_of(people.quotas, quota)
            fits = (
                own.loss.divergences[0] + cost <= share * full and own.local + local <= share * 10.0
            )
            refused = status_of(people, 0).refusal(loss, local, quota)
            assert fits == (refused is None), refused
            told["refused" if refused else "granted"] += 1
            if refused is not None:
                continue
            row = {"period": 0, "quota": quota, "loss": loss.to_json(), "count": 1,
                   "local_epsilon": local}  # fmt: skip
            people.take_charge("reserve", row)
            held.append(row)
            assert people.loss(0).epsilon(orders, budget.delta)[0] <= 1.0 + 1e-9
            assert people.local_loss(0) <= 10.0 + 1e-9
    assert min(told.values()) > 5 * schedules
