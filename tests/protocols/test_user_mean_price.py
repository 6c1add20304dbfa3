"""What two rounds cost, to whom, for the reports that came."""

from __future__ import annotations

import pytest

from beam_ldp.accounting import event_epsilon, shuffle_epsilon
from beam_ldp.protocols import Box, plan_user_mean, user_mean_price
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

pytestmark = pytest.mark.exact
UNIT = Box(CoordinateRanges(-1, 1))


def plan(**options):
    return plan_user_mean(5000, 100, UNIT, **{"sigma": 0.2, "local_epsilon": 2.0, **options})


def test_rounds_that_everybody_answers_add_up():
    protocol = plan(split="budget")
    price = user_mean_price(protocol, 5000, 4900, 1e-6)
    first, second = price.rounds
    assert price.total == first.epsilon + second.epsilon
    assert first.delta + second.delta == pytest.approx(1e-6, rel=1e-12)
    assert first.epsilon == shuffle_epsilon(protocol.search.oracle, 5000, 1e-8)
    assert second.epsilon == shuffle_epsilon(protocol.final, 4900, second.delta)
    # That of round two alone, at the whole delta: certified for both together.
    assert 0.99 * second.epsilon.lower <= price.total.lower <= second.epsilon.lower <= price.total
    assert price.total.proof_status == "proved"


def test_a_person_of_one_round_pays_for_that_one():
    protocol = plan(split="users")
    price = user_mean_price(protocol, 150, 4800, 1e-6)
    first, second = price.rounds
    assert first.delta == second.delta == 1e-6
    assert price.total == max(first.epsilon, second.epsilon) == first.epsilon
    # The event for ledgers, which knows only the budget and the smaller crowd, is no cheaper.
    assert event_epsilon(protocol.event(150, 4800), 1e-6) >= price.total


def test_fewer_people_pay_more_and_nobody_more_than_the_local_budget():
    protocol = plan(split="budget")
    prices = [user_mean_price(protocol, n, n, 1e-6).total for n in (5000, 500, 50, 1)]
    assert prices == sorted(prices)
    assert prices[-1] <= 2.0


def test_one_round_is_priced_at_the_whole_delta():
    protocol = plan(sigma=None, user_sigma=1.0)
    assert protocol.search is None
    price = user_mean_price(protocol, 0, 5000, 1e-6)
    assert len(price.rounds) == 1 and price.rounds[0] == (price.total, 1e-6)


@pytest.mark.parametrize(("split", "first"), [("budget", None), ("users", 2.0)])
def test_local_model_has_no_credit_for_crowds(split, first):
    protocol = plan(model="local", split=split)
    price = user_mean_price(protocol, 3, 10**6, 0.0)
    assert price.total == pytest.approx(2.0)
    assert price.rounds[0].epsilon == (first or protocol.search.local_epsilon)
    assert all(one.delta == 0.0 for one in price.rounds)
    assert "no credit for shuffling" in price.total.method
