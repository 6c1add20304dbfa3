"""The event of shuffled shares: one price wherever it is asked for, and what it composes to."""

from __future__ import annotations

import json
import math

import attr
import dp_accounting
import numpy as np
import pytest

from beam_ldp.accounting import (
    CommittedDpEvent,
    ShuffleAccountant,
    ShuffledSharesDpEvent,
    event_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.certificates import certified
from beam_ldp.accounting.divergences.shared_sums import gaussian_delta
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import as_event, local_epsilon_of
from beam_ldp.accounting.reports import crowd_of, with_crowd
from beam_ldp.accounting.shares import ShuffledShares
from beam_ldp.accounting.shuffle.split_and_mix import (
    shares_of,
    split_and_mix_epsilon,
    sum_atoms,
)
from beam_ldp.ledger.losses import local_loss_of, loss_of, orders_for
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.verifier import verify

pytestmark = pytest.mark.exact

DELTA = 1e-6
MECHANISM = SplitAndMixMean.for_shuffle(16, 1.0, DELTA, 1000, honest_fraction=0.8)
EVENT = shuffled_event(MECHANISM, 800)


def test_one_price_wherever_it_is_asked_for():
    found = float(event_epsilon(EVENT, DELTA))
    assert 0.999 < found <= 1.0
    alone = ShuffleAccountant().compose(EVENT)
    for other in (
        event_epsilon(shares_of(MECHANISM, 800), DELTA), alone.get_epsilon(DELTA),
        split_and_mix_epsilon(MECHANISM, 800, DELTA),
        event_epsilon(with_crowd(shuffled_event(MECHANISM, 5), 800), DELTA),
    ):  # fmt: skip
        assert float(other) == found
    assert alone.get_delta(found) <= DELTA < alone.get_delta(0.999 * found)
    assert alone.get_epsilon(0.0) == math.inf and alone.local_epsilon == math.inf
    bound = event_epsilon(EVENT, DELTA)
    assert bound.proof_status == "proved" and "local epsilon: infinite" in bound.method
    assert 0.995 * found < bound.lower <= found and "the sums alone" in bound.lower_method


def test_it_travels_as_json_and_through_dp_accountings_tuples():
    assert isinstance(EVENT, ShuffledSharesDpEvent) and crowd_of(EVENT) == 800
    record = shares_of(MECHANISM, 800)
    assert as_event(record) == EVENT and event_to_json(record) == event_to_json(EVENT)
    assert event_from_json(json.loads(json.dumps(event_to_json(EVENT)))) == EVENT
    assert type(EVENT).from_named_tuple(EVENT.to_named_tuple()) == EVENT


def test_every_field_is_priced():
    """Fewer people, longer vectors, less noise, fewer shares, more to hide: dearer, each."""
    base = float(event_epsilon(EVENT, DELTA))
    for change in (
        {"num_reports": 700}, {"longest": 2 * EVENT.longest}, {"noise_deviation": 30.0},
        {"shares": EVENT.shares - 1}, {"modulus_bits": EVENT.modulus_bits + 4},
        {"coordinates": 64 * EVENT.coordinates},
    ):  # fmt: skip
        assert float(event_epsilon(attr.evolve(EVENT, **change), DELTA)) > base, change
    assert event_epsilon(attr.evolve(EVENT, num_reports=3), DELTA) == math.inf
    assert event_epsilon(attr.evolve(EVENT, shares=3), DELTA) == math.inf


@pytest.mark.parametrize("count", [2, 20])
def test_compositions_are_those_of_the_gaussian(count):
    """Exactly a Gaussian of sqrt(count) times mu: not below it, and hardly above."""
    losses = EVENT.losses
    found = float(ShuffleAccountant().compose(EVENT, count).get_epsilon(DELTA))
    gaussian = gaussian_delta(found, losses.mu * math.sqrt(count))
    assert gaussian <= DELTA
    assert gaussian_delta(0.998 * found, losses.mu * math.sqrt(count)) > DELTA


@pytest.mark.parametrize("delta", [1e-4, 1e-2, 0.1])
@pytest.mark.parametrize(("people", "deviation"), [(16, 1.5), (30, 0.8)])
def test_lower_exact_and_upper_price(people, deviation, delta):
    """Sums modulo 256 of a vector of length 3 against its opposite, convolved, wraps and all."""
    event = ShuffledSharesDpEvent(1, 9, deviation, 8, 30, people)
    places = (np.arange(256) + 128) % 256 - 128
    noise = np.exp(-(places**2) / (2 * deviation**2))
    law = np.fft.ifft(np.fft.fft(noise / noise.sum()) ** people).real.clip(0)
    first, second = np.roll(law, 3), np.roll(law, -3)

    def cost(epsilon):
        return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())

    bound = event_epsilon(event, delta)
    assert cost(bound) <= delta <= cost(bound.lower) * (1 + 1e-9)
    assert cost(bound.lower) < 1.3 * delta
    alone = ShuffleAccountant().compose(event)
    assert alone.get_epsilon(delta).lower == bound.lower


def test_lower_prices_compose_and_are_none_where_sums_wrap():
    found = ShuffleAccountant().compose(EVENT, 10).get_epsilon(DELTA)
    assert 0.99 * found < found.lower <= found and found.lower <= found.class_lower * (1 + 1e-9)
    for change in ({"modulus_bits": 8}, {"num_reports": 1, "noise_deviation": 1.0}):
        event = attr.evolve(EVENT, shares=60, **change)
        assert sum_atoms(event) is None and event_epsilon(event, DELTA).lower == 0.0
    wrapped = ShuffledSharesDpEvent(1, 9, 1.5, 6, 30, 16)
    bound = event_epsilon(wrapped, 1e-3)
    assert 3 < bound < 4 and bound.lower == 0.0 and "wrap around" in bound.lower_method


def test_compositions_with_other_releases():
    other = dp_accounting.GaussianDpEvent(10.0)
    both = ShuffleAccountant().compose(EVENT).compose(other)
    mu = math.hypot(EVENT.losses.mu, 2 / 10.0)
    found = float(both.get_epsilon(DELTA))
    assert gaussian_delta(found, mu) <= DELTA < gaussian_delta(0.997 * found, mu)
    assert both.failure_probability == EVENT.failure_probability
    told = ShuffleAccountant.from_state_dict(json.loads(json.dumps(both.state_dict())))
    assert float(told.get_epsilon(DELTA)) == found


def test_divergences_are_the_gaussians_and_what_keeps_apart():
    orders = np.array([1.5, 2.0, 30.0])
    losses = EVENT.losses
    found = losses.divergences(orders)
    assert (found >= orders * losses.mu**2 / 2).all()
    assert (found <= orders * losses.mu**2 / 2 + 4 * losses.apart).all()
    assert 0 < losses.apart < 1e-3 and 0 < losses.chance <= 1e-3 * DELTA


def test_filters_take_the_chance_from_its_own_share():
    """Without a share for chances only the local epsilon would hold, and there is none."""
    with_share = ShuffleAccountant(adaptive=True, chances=0.05).compose(EVENT)
    assert 1.0 < with_share.get_epsilon(DELTA) < 2.0
    assert ShuffleAccountant(adaptive=True).compose(EVENT).get_epsilon(DELTA) == math.inf
    loss = loss_of(event_to_json(EVENT), orders_for(1.0, DELTA))
    assert loss.failure == EVENT.failure_probability and loss.pure == math.inf
    schedule = CommittedDpEvent(dp_accounting.SelfComposedDpEvent(EVENT, 5), 1e-8)
    committed = ShuffleAccountant(adaptive=True, chances=0.5).compose(schedule)
    assert committed.get_epsilon(DELTA) < 3.0


def test_nobody_has_a_local_epsilon():
    twice = dp_accounting.SelfComposedDpEvent(EVENT, 2)
    assert local_epsilon_of(EVENT) == local_epsilon_of(twice) == math.inf
    assert local_loss_of(event_to_json(EVENT)) == math.inf


def test_no_certificate_and_why():
    stated = {
        "epsilon": 1.0, "delta": DELTA, "event": event_to_json(EVENT), "proof_status": "proved",
    }  # fmt: skip
    certificate = certified(stated)["certificate"]
    assert certificate["kind"] == "none" and "only a shuffler hides" in certificate["why"]
    told = verify.verify({**stated, "certificate": certificate})
    assert told.code == verify.NOTHING and "not independently checkable" in told.text


def test_wrong_fields_are_named():
    good = {"coordinates": 4, "longest": 9, "noise_deviation": 3.0, "modulus_bits": 20, "shares": 3,
            "num_reports": 100}  # fmt: skip
    ShuffledShares(**good)
    for name, wrong in (
        ("coordinates", 0), ("longest", 0), ("noise_deviation", 0.0), ("modulus_bits", 0),
        ("shares", 1), ("shares", 2.5), ("num_reports", 0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            ShuffledShares(**{**good, name: wrong})
