"""Schedules that are committed beforehand: one charge, priced by the distribution of its losses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import dp_accounting
import numpy as np
import pytest

from beam_ldp.accounting import (
    CommittedDpEvent,
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    SubsampledShuffledDpEvent,
    shuffled_event,
)
from beam_ldp.accounting.composition import ledger_bounds
from beam_ldp.accounting.composition.ledger_bounds import CommittedReports, event_divergences
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import local_epsilon_of, releases_nothing
from beam_ldp.accounting.reports import failure_of
from beam_ldp.accounting.two_ledgers import central_round_event
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError, audit, kinds
from beam_ldp.ledger.losses import CHANCES, as_json, loss_of, orders_for, times
from beam_ldp.ledger.rows import ChainHead, next_row
from beam_ldp.randomizers.frequency import BinaryHadamard
from tests.ledger.asked import KEY, asked

pytestmark = pytest.mark.exact

ROUND = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2_000)
ROUNDS, DELTA = 6000, 1e-5
WHOLE = dp_accounting.SelfComposedDpEvent(ROUND, ROUNDS)
FIXED = 0.8821  # by its losses; 0.971 by the filter whose budget suits it best


def scheduled(count: int = ROUNDS, share: float = 0.9) -> CommittedDpEvent:
    return CommittedDpEvent(dp_accounting.SelfComposedDpEvent(ROUND, count), share * DELTA)


# What it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "most"), [(CHANCES, 1.07), (0.5, 1.047), (0.9, 1.011)])
def test_a_committed_schedule_costs_little_more_than_a_fixed_one(share: float, most: float) -> None:
    """The filter alone costs 10 %: with nine tenths of delta for chances it is 1 %."""
    fixed = float(ShuffleAccountant().compose(WHOLE).get_epsilon(DELTA))
    assert fixed == pytest.approx(FIXED, rel=1e-3)
    orders = orders_for(1.05 * fixed, DELTA, share)
    loss = loss_of(as_json(scheduled(share=share)), orders)
    found, _ = loss.epsilon(orders, DELTA, chances=share)
    assert fixed < found < most * fixed
    alone = times(loss_of(as_json(ROUND), orders), ROUNDS)
    assert alone.epsilon(orders, DELTA, chances=share)[0] > 1.09 * fixed


def test_a_committed_training_with_a_servers_coins_costs_about_its_plan(tmp_path: Any) -> None:
    """0.563 by its losses; 2.04 round by round; 36.2 were charged when coins had no orders."""
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    whole = dp_accounting.SelfComposedDpEvent(central_round_event(0.002, 1.0), 100)
    ledger.set_budget("d", epsilon=1.0, delta=1e-9, chances=0.5)
    committed = ledger.status("d").committing(whole)
    assert 0.5632 < ledger.would_grant("d", committed) < 0.58
    with pytest.raises(BudgetExceededError, match=r"would make it 2\.0"):
        ledger.would_grant("d", whole)


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize("cut", [1e-4, 0.02, 0.3])
def test_what_is_left_of_a_schedule_is_what_enumeration_says(count: int, cut: float) -> None:
    """Randomized response several times: P' = min(P, e^L Q) outcome by outcome, never below it."""
    budget = 0.7
    truth = 1 / (1 + math.exp(-budget))
    trues = np.arange(count + 1)
    ways = np.array([math.comb(count, k) for k in trues])
    p, q = (ways * t**trues * (1 - t) ** (count - trues) for t in (truth, 1 - truth))
    ratios = np.unique(p / q)
    sticks = [float(np.maximum(p - r * q, 0).sum()) for r in ratios]
    # The hockey stick falls, linearly between the ratios of outcomes.
    ratio = float(np.interp(-cut, -np.array(sticks), ratios))
    left = np.minimum(p, max(ratio, 1.0) * q)
    assert p.sum() - left.sum() <= cut * (1 + 1e-9)
    schedule = CommittedReports(((LocalRandomizerDpEvent(budget), count),), cut)
    orders = (1.5, 4.0, 60.0)
    found = event_divergences(schedule, orders)
    truth_of = [math.log(np.sum(left**a * q ** (1 - a))) / (a - 1) for a in orders]
    assert (found >= np.array(truth_of) * (1 - 1e-9)).all()
    assert (found <= np.maximum(truth_of, 0) * 1.1 + 0.02).all()
    assert schedule.failure_probability == cut


def test_losses_without_a_distribution_keep_their_divergences() -> None:
    """Nothing is cut where nothing is known of the tail."""
    orders = (3.0, 20.0)
    event = LocalRandomizerDpEvent(200.0)
    plain = np.array(event_divergences(event, orders))
    assert event_divergences(CommittedReports(((event, 2),), 0.1), orders) == pytest.approx(
        2 * plain
    )


def test_chances_of_smaller_crowds_and_of_the_tail_add_up() -> None:
    event = shuffled_event(BinaryHadamard(1000, 4.0, row="public"), 10**7)
    twice = CommittedDpEvent(dp_accounting.SelfComposedDpEvent(event, 2), 1e-7)
    loss = loss_of(as_json(twice), (20.0,))
    assert loss.failure == pytest.approx(1e-7 + 2 * failure_of(event), rel=1e-12)
    assert loss.pure == pytest.approx(8.0)


def test_a_schedule_among_fixed_releases_is_what_it_holds() -> None:
    one = ShuffleAccountant().compose(scheduled(40)).compose(ROUND, 2)
    assert float(one.get_epsilon(DELTA)) == float(
        ShuffleAccountant().compose(ROUND, 42).get_epsilon(DELTA)
    )
    assert one.local_epsilon == 84.0 == local_epsilon_of(scheduled(42))
    assert one.failure_probability == 0.0
    adaptive = ShuffleAccountant([20.0], adaptive=True, chances=0.9).compose(scheduled(40))
    assert adaptive.failure_probability == 0.9 * DELTA and adaptive.local_epsilon == 80.0
    again = ShuffleAccountant.from_state_dict(adaptive.state_dict())
    price = adaptive.get_epsilon(DELTA)
    assert again.get_epsilon(DELTA) == price and price.lower < price < 80
    without = ShuffleAccountant([20.0], adaptive=True).compose(scheduled(40))
    no_share = without.get_epsilon(DELTA)  # pays for its tail: only what always holds counts
    assert no_share.method.startswith("local epsilons") and no_share > 4 * price


def test_it_is_written_and_read() -> None:
    event = scheduled(3)
    assert event_from_json(event_to_json(event)) == event
    assert releases_nothing(CommittedDpEvent(dp_accounting.NoOpDpEvent(), 0.1))
    for delta in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="delta must lie in"):
            CommittedDpEvent(ROUND, delta)


# In a ledger: what a pair of runs does --------------------------------------------------------


@pytest.fixture
def trainings(ledger: BudgetLedger) -> BudgetLedger:
    ledger.set_budget("visits", epsilon=1.05 * FIXED, delta=DELTA, chances=0.9)
    return ledger


def reserve(ledger: BudgetLedger, run_id: str, event: Any, key: str = "") -> Any:
    identity = asked("visits", "training", key=key)
    return ledger.reserve("visits", run_id, event, identity=identity, memoized=bool(key))


def settle(ledger: BudgetLedger, run_id: str, event: Any) -> Any:
    attempt = ledger.charge(run_id).attempt
    return ledger.settle(run_id, event, identity=asked("visits", "training"), attempt=attempt)


def test_a_schedule_fits_a_budget_that_its_rounds_do_not(trainings: BudgetLedger) -> None:
    with pytest.raises(BudgetExceededError):
        reserve(trainings, "rounds", WHOLE)
    assert trainings.would_grant("visits", scheduled()) < 1.05 * FIXED
    reserve(trainings, "whole", scheduled())
    settle(trainings, "whole", scheduled())
    status = trainings.status("visits")
    assert FIXED < status.committed == status.spent < 1.011 * FIXED
    report = audit(trainings.rows())
    assert report.clean
    assert report.curves["visits"][-1].committed == pytest.approx(status.committed, rel=1e-12)


def test_begun_twice_it_is_refused_or_does_not_fit(trainings: BudgetLedger) -> None:
    reserve(trainings, "one", scheduled())
    with pytest.raises(LedgerError, match="already has its charge"):
        reserve(trainings, "one", scheduled())
    with pytest.raises(BudgetExceededError):
        reserve(trainings, "two", scheduled())


def test_another_schedule_under_its_name_is_refused(trainings: BudgetLedger) -> None:
    reserve(trainings, "one", scheduled(10, share=0.1), key=KEY)
    for other in (scheduled(9, share=0.1), scheduled(10, share=0.2), ROUND):
        with pytest.raises(LedgerError, match="already has its charge"):
            reserve(trainings, "one", other, key=KEY)
    before = trainings.status("visits").committed
    assert reserve(trainings, "one", scheduled(10, share=0.1), key=KEY).attempts == 2
    assert trainings.status("visits").committed == before


@pytest.mark.parametrize("begun", [1, 5999])
def test_killed_in_the_middle_it_is_charged_whole(trainings: BudgetLedger, begun: int) -> None:
    """Where it ends may depend on what was seen: less would be chosen afterwards."""
    charge = reserve(trainings, "one", scheduled())
    for told in (dp_accounting.SelfComposedDpEvent(ROUND, begun), scheduled(begun)):
        ended = settle(trainings, "one", told)
        assert ended.loss == charge.loss and ended.settled == as_json(scheduled())
        assert not ended.overspent
    assert audit(trainings.rows()).clean


def test_more_rounds_than_committed_are_an_alarm(trainings: BudgetLedger) -> None:
    reserve(trainings, "one", scheduled(100))
    with pytest.raises(ValueError, match="must not commit to more"):
        settle(trainings, "one", scheduled(101))
    ended = settle(trainings, "one", dp_accounting.SelfComposedDpEvent(ROUND, 101))
    assert ended.overspent and ended.loss.failure == 0.9 * DELTA
    assert not audit(trainings.rows()).clean


def test_nothing_is_committed_afterwards_or_in_part(trainings: BudgetLedger) -> None:
    with pytest.raises(ValueError, match="as a whole"):
        reserve(trainings, "both", dp_accounting.ComposedDpEvent([scheduled(5), ROUND]))
    with pytest.raises(ValueError, match="as a whole"):
        trainings.would_grant("visits", CommittedDpEvent(scheduled(5), 1e-7))
    reserve(trainings, "plain", dp_accounting.SelfComposedDpEvent(ROUND, 50))
    with pytest.raises(ValueError, match="afterwards"):
        settle(trainings, "plain", scheduled(50))


def test_tails_of_schedules_have_one_share_together(trainings: BudgetLedger) -> None:
    reserve(trainings, "one", scheduled(100, share=0.6))
    with pytest.raises(BudgetExceededError):
        reserve(trainings, "two", scheduled(100, share=0.4))
    reserve(trainings, "three", scheduled(100, share=0.3))


def test_a_quota_has_its_share_of_chances(trainings: BudgetLedger) -> None:
    """Nobody's schedules exhaust what others' tails need."""
    trainings.set_quota("visits", "lab", share=0.5)
    event = dp_accounting.SelfComposedDpEvent(ROUND, 100)
    half = trainings.status("visits").committing(event, "lab")
    assert half.delta == pytest.approx(0.45 * DELTA, rel=1e-12)
    identity = asked("visits", "training")
    with pytest.raises(BudgetExceededError, match="share of 0.5 for 'lab'"):
        trainings.reserve("visits", "more", scheduled(100, 0.5), identity=identity, quota="lab")
    trainings.reserve("visits", "lab", half, identity=identity, quota="lab")
    assert trainings.status("visits").committing(event, "lab") == event  # nothing is left
    assert trainings.status("visits").committing(event).delta == pytest.approx(half.delta)
    usual = replace(trainings.status("visits").budget, chances=CHANCES)
    assert replace(trainings.status("visits"), budget=usual).committing(event) == event


def test_the_share_of_chances_is_fixed_with_the_first_charge(trainings: BudgetLedger) -> None:
    assert trainings.status("visits").budget.chances == 0.9
    trainings.set_budget("visits", epsilon=2.0, delta=DELTA, chances=0.5)
    assert trainings.status("visits").budget.chances == 0.5
    reserve(trainings, "one", ROUND)
    with pytest.raises(LedgerError, match="chances were fixed"):
        trainings.set_budget("visits", epsilon=2.0, delta=DELTA, chances=0.9)
    population = trainings.balances.population_of("visits")
    assert population.budget is not None
    with pytest.raises(ValueError, match="chances and periods cannot change"):
        population.take_budget(replace(population.budget, chances=0.9))
    trainings.set_budget("visits", epsilon=3.0, delta=DELTA)
    trainings.checkpoint()
    again = BudgetLedger(trainings.url).status("visits").budget
    assert again.chances == 0.5 and again.epsilon == 3.0
    with pytest.raises(ValueError, match="chances must lie in"):
        trainings.set_budget("visits", epsilon=2.0, delta=DELTA, chances=1.0)


@pytest.mark.parametrize("share", [0.5, 1.0, -0.1])
def test_a_forged_share_is_found(trainings: BudgetLedger, share: float) -> None:
    budget = next(row for row in trainings.rows() if row.kind == kinds.BUDGET)
    reserve(trainings, "one", ROUND)
    last = trainings.rows()[-1]
    forged = next_row(
        ChainHead(last.number + 1, last.hash),
        kinds.BUDGET,
        {**budget.body, "time": last.body["time"], "chances": share},
    )
    assert not audit([*trainings.rows(), forged]).clean
    honest = next_row(
        ChainHead(last.number + 1, last.hash), kinds.BUDGET, {**forged.body, "chances": 0.9}
    )
    assert audit([*trainings.rows(), honest]).clean


def test_usual_budgets_say_nothing_of_it(ledger: BudgetLedger) -> None:
    """Their rows are what they were, for programs that know no other share."""
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    assert "chances" not in ledger.rows()[-1].body
    assert ledger.status("visits").budget.chances == CHANCES
    assert "chances" not in ledger.status("visits").budget.to_json()


@pytest.mark.exact
def test_what_lies_above_all_listed_losses_is_cut_where_the_tail_is(monkeypatch):
    """Losses of 1 and 3, and some above what is listed: below the cut they count in full."""
    grid = LossGrid(1.0, 1, np.array([0.6, 0.0, 0.3]), beyond=0.1)
    monkeypatch.setattr(ledger_bounds, "ledger_losses", lambda counts: grid)
    order, delta = 4.0, 0.15
    cut = grid.epsilon(delta)
    assert 1 < cut < 3 and grid.deltas(np.array([cut]))[0] == pytest.approx(delta, rel=1e-9)
    kept = 0.6 * math.exp(3 * 1) + 0.3 * math.exp(cut - 3 + 3 * cut) + 0.1 * math.exp(3 * cut)
    found = ledger_bounds._without_tail(CommittedReports(((None, 1),), delta), np.array([order]))
    assert found == pytest.approx(math.log(kept) / (order - 1), rel=1e-9)
