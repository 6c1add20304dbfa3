"""The accountant: composition laws, goldens, filters, state."""

from __future__ import annotations

import json
import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    local_event,
    shuffle_epsilon,
)
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.randomizers.frequency import KRandomizedResponse

pytestmark = pytest.mark.exact

LOCAL = LocalRandomizerDpEvent(2.0)
SHUFFLED = ShuffledDpEvent(LOCAL, 100_000)
TRAINING = SubsampledShuffledDpEvent(LOCAL, num_users=60_000, num_drawn=2_000)
OTHERS = (
    dp_accounting.GaussianDpEvent(5.0),
    dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, dp_accounting.GaussianDpEvent(2.0)),
    dp_accounting.ZCDpEvent(0.01),
)
EVENTS = (LOCAL, SHUFFLED, TRAINING, *OTHERS)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("count", [2, 7])
def test_count_is_repetition(event, count):
    """dp-accounting's own distribution accountant has failed this."""
    at_once = ShuffleAccountant().compose(event, count)
    nested = ShuffleAccountant().compose(dp_accounting.SelfComposedDpEvent(event, count))
    one_by_one = ShuffleAccountant()
    for _ in range(count):
        one_by_one.compose(event)
    prices = [a.get_epsilon(1e-6) for a in (at_once, nested, one_by_one)]
    assert prices[0] == pytest.approx(prices[1], rel=1e-9)
    assert prices[0] == pytest.approx(prices[2], rel=1e-9)


@settings(max_examples=8)
@given(st.permutations(EVENTS[:4]))
def test_order_does_not_matter(events):
    accountant = ShuffleAccountant()
    for event in events:
        accountant.compose(event)
    together = ShuffleAccountant().compose(dp_accounting.ComposedDpEvent(list(EVENTS[:4])))
    assert accountant.get_epsilon(1e-6) == pytest.approx(together.get_epsilon(1e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("event", "count", "delta", "golden"),
    [
        (TRAINING, 6000, 1e-5, 0.882),
        (SubsampledShuffledDpEvent(LOCAL, 10**6, 1000), 10**5, 1e-8, 0.196),
        (SubsampledShuffledDpEvent(LocalRandomizerDpEvent(1.5), 60000, 10**4), 1200, 1e-5, 0.550),
        (ShuffledDpEvent(LOCAL, 10**6), 100, 1e-8, 0.196),
        (ShuffledDpEvent(LOCAL, 10**6), 10**4, 1e-8, 2.21),
        (ShuffledDpEvent(LocalRandomizerDpEvent(0.5), 10**6), 10**5, 1e-8, 1.016),
    ],
)
def test_golden_compositions(event, count, delta, golden):
    bound = ShuffleAccountant().compose(event, count).get_epsilon(delta)
    assert bound == pytest.approx(golden, rel=3e-3)
    assert bound.method.startswith("privacy-loss") and bound.proof_status == "proved"


def test_one_shuffle_agrees_with_its_direct_price():
    direct = shuffle_epsilon(2.0, 100_000, 1e-6)
    bound = ShuffleAccountant().compose(SHUFFLED).get_epsilon(1e-6)
    assert direct <= bound * (1 + 1e-9) <= direct * 1.002
    assert bound.lower <= bound
    delta = ShuffleAccountant().compose(SHUFFLED).get_delta(float(bound))
    assert delta == pytest.approx(1e-6, rel=1e-3)


def test_own_pair_is_used():
    oracle = KRandomizedResponse(1000, 4.0)
    own = ShuffleAccountant().compose(ShuffledDpEvent(local_event(oracle), 100_000), 10)
    generic = ShuffleAccountant().compose(ShuffledDpEvent(LocalRandomizerDpEvent(4.0), 100_000), 10)
    assert own.get_epsilon(1e-6) < 0.3 * generic.get_epsilon(1e-6)
    assert own.get_epsilon(1e-6) >= own.get_epsilon(1e-6).lower > 0


@pytest.mark.parametrize(
    ("event", "count", "delta", "golden"),
    [
        (TRAINING, 6000, 1e-5, 0.609),
        (SubsampledShuffledDpEvent(LOCAL, 10**6, 1000), 10**5, 1e-8, 0.137),
        (ShuffledDpEvent(LocalRandomizerDpEvent(0.5), 10**6), 10**4, 1e-8, 0.2413),
    ],
)
def test_class_lower_bound_of_compositions(event, count, delta, golden):
    bound = ShuffleAccountant().compose(event, count).get_epsilon(delta)
    assert bound.class_lower == pytest.approx(golden, rel=3e-3)
    assert bound.class_lower < bound


def test_different_events_compose_tightly():
    small = ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 50_000)
    both = ShuffleAccountant().compose(SHUFFLED, 20).compose(small, 20).get_epsilon(1e-6)
    alone = [ShuffleAccountant().compose(e, 20).get_epsilon(1e-6) for e in (SHUFFLED, small)]
    assert max(alone) < both < 0.9 * sum(alone)


def test_adaptive_sequences_use_no_distribution_and_pay_for_the_choice_of_order():
    fixed = ShuffleAccountant().compose(TRAINING, 6000).get_epsilon(1e-5)
    chosen = ShuffleAccountant(adaptive=True, order=18).compose(TRAINING, 6000).get_epsilon(1e-5)
    any_order = ShuffleAccountant(adaptive=True).compose(TRAINING, 6000).get_epsilon(1e-5)
    assert chosen.method == "Rényi orders (order 18)"
    assert fixed < chosen < any_order < 1.6 * fixed


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_would_exceed_is_the_price_after_the_fact(epsilon):
    accountant = ShuffleAccountant().compose(SHUFFLED, 5)
    for count in (1, 50, 2000):
        after = ShuffleAccountant().compose(SHUFFLED, 5 + count).get_epsilon(1e-6)
        told = accountant.would_exceed(SHUFFLED, count, epsilon=epsilon, delta=1e-6)
        assert told == (after > epsilon)
    assert accountant.get_epsilon(1e-6) == ShuffleAccountant().compose(SHUFFLED, 5).get_epsilon(
        1e-6
    )


def test_never_above_the_local_epsilons():
    few = ShuffledDpEvent(LocalRandomizerDpEvent(3.0), 20)
    bound = ShuffleAccountant().compose(few, 2).get_epsilon(1e-9)
    assert bound <= 6.0 + 1e-12
    assert ShuffleAccountant().compose(LOCAL, 3).get_epsilon(0) == pytest.approx(6.0)
    assert ShuffleAccountant().compose(LOCAL, 3).local_epsilon == 6.0


def test_several_points_per_client():
    """One point per round: sampling clients and points amplifies as one rate does."""
    event = SubsampledShuffledDpEvent(LOCAL, 6000, 2000, points_per_client=10)
    flat = SubsampledShuffledDpEvent(LOCAL, 60_000, 2000)
    two_level = ShuffleAccountant().compose(event, 100).get_epsilon(1e-6)
    one_level = ShuffleAccountant().compose(flat, 100).get_epsilon(1e-6)
    assert one_level <= two_level * (1 + 1e-6) <= one_level * 1.2
    more = SubsampledShuffledDpEvent(LOCAL, 6000, 2000, points_per_client=10, points_sampled=2)
    assert ShuffleAccountant().compose(more, 100).get_epsilon(1e-6) > two_level


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_drawn": 70_000}, "num_drawn must be at most num_users"),
        ({"points_sampled": 2}, "points_sampled must be at most"),
        ({"sampling": "sorted"}, "sampling must be"),
        ({"sampling": "self", "points_per_client": 3, "points_sampled": 2}, "points_sampled must"),
        ({"num_drawn": 2.5}, "num_drawn must be"),
        ({"num_drawn": 0}, "num_drawn must be"),
        ({"num_users": 0}, "num_reports must be"),
    ],
)
def test_impossible_samplings_are_refused(change, message):
    fields = {"local_event": LOCAL, "num_users": 60_000, "num_drawn": 2000, **change}
    with pytest.raises(ValueError, match=message):
        SubsampledShuffledDpEvent(**fields)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_events_survive_named_tuples_and_json(event):
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event
    text = json.dumps(event_to_json(event))
    assert event_from_json(json.loads(text)) == event


def test_state_is_lossless():
    oracle = KRandomizedResponse(10, 1.0)
    accountant = ShuffleAccountant([2.0, 4.0, 32.0])
    accountant.compose(ShuffledDpEvent(local_event(oracle), 1000), 3).compose(OTHERS[0])
    state = json.loads(json.dumps(accountant.state_dict()))
    again = ShuffleAccountant.from_state_dict(state)
    assert again.get_epsilon(1e-6) == accountant.get_epsilon(1e-6)
    assert again.state_dict() == accountant.state_dict()
    with pytest.raises(ValueError, match="version must be"):
        ShuffleAccountant.from_state_dict({**state, "version": 99})
    with pytest.raises(ValueError, match="kind must be a known event"):
        event_from_json({"version": 1, "event": {"kind": "Nothing"}})
    with pytest.raises(ValueError, match="does not fit"):
        event_from_json({"version": 1, "event": {"kind": "GaussianDpEvent", "sigma": 1}})
    with pytest.raises(ValueError, match="known kind"):
        event_to_json(dp_accounting.UnsupportedDpEvent())


def test_prices_are_monotone_in_rounds_crowd_and_budget():
    def price(rounds=10, reports=10_000, local=1.0):
        event = ShuffledDpEvent(LocalRandomizerDpEvent(local), reports)
        return float(ShuffleAccountant().compose(event, rounds).get_epsilon(1e-6))

    for argument, values in {"rounds": (1, 10, 100), "local": (0.3, 1.0, 2.0)}.items():
        prices = [price(**{argument: v}) for v in values]
        assert prices == sorted(prices) and not any(map(math.isnan, prices))
    crowds = [price(reports=n) for n in (100, 10_000, 10**7)]
    assert crowds == sorted(crowds, reverse=True)


def test_prices_never_fall_from_round_to_round():
    rounds = [1, 2, 3, 10, 100, 101, 999, 1000, 5000, 5001]
    accountants = [ShuffleAccountant().compose(TRAINING, count) for count in rounds]
    prices = [float(accountant.get_epsilon(1e-6)) for accountant in accountants]
    assert prices == sorted(prices)


def test_bad_orders_and_targets_are_refused():
    with pytest.raises(ValueError, match="orders must be"):
        ShuffleAccountant([1.0])
    with pytest.raises(ValueError, match="target_delta must lie"):
        ShuffleAccountant().get_epsilon(np.nan)
    with pytest.raises(ValueError, match="target_epsilon must be"):
        ShuffleAccountant().get_delta(-1.0)
