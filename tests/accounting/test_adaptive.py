"""Releases that are chosen after seeing earlier ones: what a filter promises, and what breaks it.

The adversary below asks eight questions of randomized response, and then one more that is chosen
by the answers so as to fit the budget at the order that has most of it left. Its privacy is a
finite sum, so the promise of each policy can be checked to the last digit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    CommittedDpEvent,
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShufflePair,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.divergences.moments import rdp_to_epsilon

pytestmark = pytest.mark.exact

EPSILON, DELTA = 2.0, 1e-5
ORDERS = (2.0, 3.0, 5.0, 8.0, 16.0, 40.0)
QUESTIONS, BUDGET = 8, 0.2 / math.sqrt(8)
WALK = LocalRandomizerDpEvent(BUDGET)
_MARGIN = 0.999  # of rounding


class Last(NamedTuple):
    """Says x or x' rarely, at a ratio of e^loss, and nothing otherwise."""

    loss: float
    rare: float  # probability of the telling answer under the other value

    @property
    def event(self) -> ShuffledDpEvent:
        often = math.exp(self.loss) * self.rare
        none = 1 - often - self.rare
        channel = [[often, self.rare], [self.rare, often], [none, none]]
        pair = ShufflePair.from_channel(channel, 0, 1, "rare answers")
        return ShuffledDpEvent(LocalRandomizerDpEvent(self.loss, pair), 1)

    def delta(self, epsilon: float) -> float:
        often = math.exp(self.loss) * self.rare
        laws = [(often, self.rare), (self.rare, often), (1 - often - self.rare,) * 2]
        return sum(max(p - math.exp(epsilon) * q, 0.0) for p, q in laws)


@cache
def walk_divergence(order: float) -> float:
    accountant = ShuffleAccountant([order], adaptive=True).compose(WALK, QUESTIONS)
    return float(accountant.divergences()[0])


def strongest(order: float, delta: float, epsilon: float) -> Last | None:
    """The last question that fits the budget at `order` and is worst at the epsilon left over."""
    most = EPSILON + 9.0 - rdp_to_epsilon([order], [9.0], delta)[0]
    left = most - walk_divergence(order)
    return None if left <= 0 else most_telling(order, left, epsilon)


def most_telling(order: float, left: float, epsilon: float) -> Last:
    """The question of at most this divergence that is worst at epsilon."""
    losses = max(epsilon, 0.0) + np.geomspace(0.01, 5.0, 400)
    growth = np.exp(order * losses) + np.exp((1 - order) * losses) - np.exp(losses) - 1
    rare = np.minimum(math.expm1((order - 1) * left) / growth, 0.49 / (1 + np.exp(losses)))
    gains = (np.exp(losses) - math.exp(epsilon)) * rare
    best = int(np.argmax(gains))
    return Last(float(losses[best]), _MARGIN * float(rare[best]))


def adversary(orders: Sequence[float], delta: float) -> list[tuple[float, float, Last]]:
    """For each number of true answers: its chance, the loss so far, the last question."""
    truth = 1 / (1 + math.exp(-BUDGET))
    branches = []
    for true in range(QUESTIONS + 1):
        loss = (2 * true - QUESTIONS) * BUDGET
        choices = [strongest(order, delta, EPSILON - loss) for order in orders]
        best = max((c for c in choices if c), key=lambda c: c.delta(EPSILON - loss))
        branches.append((float(stats.binom.pmf(true, QUESTIONS, truth)), loss, best))
    return branches


def spent(branches: list[tuple[float, float, Last]]) -> float:
    """The true delta at the printed epsilon, all branches together."""
    return sum(chance * last.delta(EPSILON - loss) for chance, loss, last in branches)


@pytest.fixture(scope="module")
def greedy() -> list[tuple[float, float, Last]]:
    return adversary(ORDERS, DELTA)


def test_going_on_while_some_order_fits_overspends(greedy):
    """Every branch looks affordable; together they cost almost twice the printed delta."""
    for _, _, last in greedy:
        accountant = ShuffleAccountant(list(ORDERS)).compose(WALK, QUESTIONS).compose(last.event)
        assert rdp_to_epsilon(ORDERS, accountant.divergences(), DELTA)[0] <= EPSILON
    assert spent(greedy) > 1.58 * DELTA


def test_the_filter_over_several_orders_stops_it(greedy):
    accountant = ShuffleAccountant(list(ORDERS), adaptive=True).compose(WALK, QUESTIONS)
    refused = [
        accountant.would_exceed(last.event, epsilon=EPSILON, delta=DELTA) for *_, last in greedy
    ]
    assert any(refused)
    assert spent([branch for branch, no in zip(greedy, refused, strict=True) if not no]) <= DELTA


@pytest.mark.parametrize(
    ("orders", "delta"),
    [(ORDERS, DELTA / len(ORDERS)), *(((a,), DELTA) for a in (8.0, 16.0, 40.0))],
)
def test_what_filters_allow_keeps_the_promise(orders, delta):
    """An equal part of delta for each order, or one order that was fixed beforehand."""
    branches = adversary(orders, delta)
    accountant = ShuffleAccountant(list(orders), adaptive=True).compose(WALK, QUESTIONS)
    for *_, last in branches:
        assert not accountant.would_exceed(last.event, epsilon=EPSILON, delta=DELTA)
    assert 0.2 * DELTA < spent(branches) <= DELTA


# A natural filter: go on while all that was chosen so far, composed by its losses, fits the budget.


def walk() -> list[tuple[float, float]]:
    """Chances and losses of what the questions of randomized response can have said."""
    truth = 1 / (1 + math.exp(-BUDGET))
    return [
        (float(stats.binom.pmf(true, QUESTIONS, truth)), (2 * true - QUESTIONS) * BUDGET)
        for true in range(QUESTIONS + 1)
    ]


def fixed_delta(last: Last) -> float:
    """Of the walk and a last question that was fixed beforehand, at EPSILON: a finite sum."""
    return sum(chance * last.delta(EPSILON - loss) for chance, loss in walk())


def worst_here(chance: float, loss: float) -> Last:
    """The last question that does the most harm after this walk, and fits if fixed beforehand.

    Its answers are as rare as makes all of delta be spent, over all walks: it is the loss of an
    answer that decides how much of that is spent here.
    """
    best, most = None, 0.0
    for size in EPSILON - loss + np.geomspace(1e-3, 2.0, 80):
        tried = Last(float(size), 1e-9)
        rare = 0.995 * DELTA / fixed_delta(tried) * tried.rare  # deltas are linear in it
        last = Last(float(size), rare)
        if (1 + math.exp(size)) * rare < 1 and chance * last.delta(EPSILON - loss) > most:
            best, most = last, chance * last.delta(EPSILON - loss)
    assert best is not None
    return best


@pytest.fixture(scope="module")
def natural() -> list[tuple[float, float, Last]]:
    return [(chance, loss, worst_here(chance, loss)) for chance, loss in walk()]


def test_a_natural_filter_over_loss_distributions_overspends(natural):
    """Every path fits by the exact distribution of its losses; together they spend 3.4 delta.

    What is asked last depends on the losses so far, which the distribution of the path does not
    know. So distributions price what was committed beforehand, and nothing else.
    """
    for *_, last in natural:
        assert fixed_delta(last) <= DELTA
        accountant = ShuffleAccountant().compose(WALK, QUESTIONS).compose(last.event)
        assert accountant.get_delta(EPSILON) <= DELTA  # what such a filter would look at
    assert spent(natural) == pytest.approx(3.36 * DELTA, rel=1e-2)


def test_filters_and_committed_schedules_stop_it(natural):
    """Whatever share of its answers' chances they let pass: it keeps the promise."""
    # The walk as a committed schedule: its tail has a share, and what follows is read by orders.
    schedule = CommittedDpEvent(dp_accounting.SelfComposedDpEvent(WALK, QUESTIONS), DELTA / 2)
    for accountant in (
        ShuffleAccountant(list(ORDERS), adaptive=True).compose(WALK, QUESTIONS),
        ShuffleAccountant(list(ORDERS), adaptive=True, chances=0.5).compose(schedule),
    ):
        refused, passed = 0, 0.0
        for (chance, loss, last), part in itertools.product(natural, (0.3, 0.03, 0.01, 0.003)):
            asked = last._replace(rare=part * last.rare)
            if accountant.would_exceed(asked.event, epsilon=EPSILON, delta=DELTA):
                refused += 1
            else:  # all that pass: no fewer than an adversary may ask
                passed += chance * asked.delta(EPSILON - loss)
        assert refused > len(natural) and 0 < passed <= DELTA < spent(natural)


def test_a_filter_knows_nothing_of_distributions():
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2_000)
    fixed = ShuffleAccountant().compose(event, 6000).get_epsilon(1e-5)
    one = ShuffleAccountant(adaptive=True, order=18).compose(event, 6000)
    many = ShuffleAccountant(adaptive=True).compose(event, 6000)
    assert one.get_epsilon(1e-5).method == "Rényi orders (order 18)"
    assert fixed < one.get_epsilon(1e-5) < many.get_epsilon(1e-5) < 1.6 * fixed
    price = float(one.get_epsilon(1e-5))
    assert one.would_exceed(event, epsilon=price, delta=1e-5)
    assert not one.would_exceed(event, epsilon=1.01 * price, delta=1e-5)


def test_the_whole_run_under_a_filter_stops_where_its_price_says():
    event = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 100_000)
    accountant = ShuffleAccountant(adaptive=True, order=12.0)
    while not accountant.would_exceed(event, 25, epsilon=1.0, delta=1e-6):
        accountant.compose(event, 25)
    last = accountant.get_epsilon(1e-6)
    assert last <= 1.0 < accountant.compose(event, 25).get_epsilon(1e-6)


# Events that hold but for a chance.

ORDER, FIRST, LIMIT, ALLOWED = 40.0, LocalRandomizerDpEvent(0.1), 1.0, 1e-3
# More of the drawn may be fake than is supposed, by a chance of 1e-12.
TIED = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(1e-7), 200, 100, num_fakes=100)


def first_of_two(**how: float) -> ShuffleAccountant:
    return ShuffleAccountant(adaptive=True, order=ORDER, **how).compose(FIRST)


class TwoBranches(NamedTuple):
    """What is asked next depends on what a coin of epsilon 0.1 said. All is enumerated.

    Where it said what the neighbour says more often: `tied` events, at worst telling all by their
    chance, and nothing else. Where it said the other: a question as telling as the order lets it.
    """

    tied: int
    question: Last

    @classmethod
    def within(cls, chances: float, delta: float) -> TwoBranches:
        most = LIMIT + 9.0 - rdp_to_epsilon([ORDER], [9.0], delta)[0]
        left = most - float(first_of_two().divergences()[0])
        return cls(
            int(chances / TIED.failure_probability),
            most_telling(ORDER, left, LIMIT - FIRST.local_epsilon),
        )

    @property
    def delta(self) -> float:
        """At epsilon = LIMIT, in ALLOWED."""
        likely = 1 / (1 + math.exp(-FIRST.local_epsilon))
        found = likely * self.question.delta(LIMIT - FIRST.local_epsilon)
        return (found + (1 - likely) * self.tied * TIED.failure_probability) / ALLOWED


def test_chances_of_the_path_alone_do_not_pay_for_what_was_chosen():
    """Delta less the chances so far: both branches look affordable and cost 1.47 delta."""
    case = TwoBranches.within(0.999 * ALLOWED, ALLOWED)
    for event, count in ((TIED, case.tied), (case.question.event, 1)):
        path = first_of_two().compose(event, count)
        left = ALLOWED - path.failure_probability
        assert rdp_to_epsilon([ORDER], path.divergences(), left)[0] <= LIMIT
    assert case.delta > 1.4
    refused = first_of_two().would_exceed(TIED, case.tied, epsilon=LIMIT, delta=ALLOWED)
    assert refused and first_of_two(chances=0.9).would_exceed(
        TIED, case.tied, epsilon=LIMIT, delta=ALLOWED
    )


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
def test_a_share_that_was_fixed_beforehand_pays_for_chances(share):
    case = TwoBranches.within(share * ALLOWED, (1 - share) * ALLOWED)
    start, at = first_of_two(chances=share), {"epsilon": LIMIT, "delta": ALLOWED}
    assert not start.would_exceed(TIED, case.tied, **at)
    assert start.would_exceed(TIED, case.tied + 10**8, **at)
    if share:
        assert start.would_exceed(TIED, case.tied + 2, **at)
    assert not start.would_exceed(case.question.event, **at)
    assert start.would_exceed(case.question.event, 2, **at)
    assert 0.7 < case.delta <= 1


def test_without_a_share_only_what_always_holds_is_a_price():
    plain = first_of_two().get_epsilon(ALLOWED)
    tied = first_of_two().compose(TIED, 10**6)
    assert tied.get_epsilon(ALLOWED) == pytest.approx(FIRST.local_epsilon + 0.1, rel=1e-12)
    assert tied.get_delta(0.15) == 1.0 and tied.get_delta(0.21) == 0.0
    assert first_of_two(chances=0.0).get_epsilon(ALLOWED) == plain


@pytest.mark.parametrize("tied", [1, 10**5, 4 * 10**7])
def test_delta_of_a_filter_is_the_inverse_of_its_epsilon(tied):
    """Where losses bind, and where chances do."""
    accountant = ShuffleAccountant([5.0, ORDER], adaptive=True, chances=0.05)
    accountant.compose(LocalRandomizerDpEvent(0.5), 4).compose(TIED, tied)
    delta = accountant.get_delta(1.5)
    assert delta >= tied * TIED.failure_probability / 0.05
    assert accountant.get_epsilon(delta * (1 + 1e-9)) <= 1.5 * (1 + 1e-9)
    assert accountant.get_epsilon(delta * (1 - 1e-6)) > 1.5
    assert accountant.get_delta(0.0) == 1.0


def test_the_share_stays_with_the_accountant():
    accountant = first_of_two(chances=0.05).compose(TIED, 4 * 10**7)
    price = accountant.get_epsilon(ALLOWED)
    assert price < 1.0
    again = ShuffleAccountant.from_state_dict(accountant.state_dict())
    assert again.get_epsilon(ALLOWED) == accountant.copy().get_epsilon(ALLOWED) == price
    with pytest.raises(ValueError, match="version must be 2"):
        again.load_state_dict({**accountant.state_dict(), "version": 1})


@pytest.mark.parametrize(
    ("adaptive", "chances"), [(True, -0.1), (True, 1.0), (True, float("nan")), (False, 0.05)]
)
def test_an_impossible_share_is_refused(adaptive, chances):
    with pytest.raises(ValueError, match="chances must lie in"):
        ShuffleAccountant(adaptive=adaptive, chances=chances)
