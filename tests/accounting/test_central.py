"""Mechanisms at a curator: replace-one by the definition of the events."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import special, stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    central_gaussian,
    event_epsilon,
    local_event,
)
from beam_ldp.accounting.composition.central import canonical, divergences, largest_loss
from beam_ldp.accounting.divergences.moments import rdp_to_epsilon
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.research.published.closed_forms import gaussian_epsilon

pytestmark = pytest.mark.exact

GAUSSIAN = dp_accounting.GaussianDpEvent(5.0)
SAMPLED = dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, GAUSSIAN)
KNOWN = (
    GAUSSIAN,
    SAMPLED,
    dp_accounting.LaplaceDpEvent(5.0),
    dp_event.DiscreteLaplaceDpEvent(0.1, 1),
    dp_accounting.RandomizedResponseDpEvent(0.5, 10),
    dp_accounting.PoissonSampledDpEvent(0.01, GAUSSIAN),
    dp_accounting.ZCDpEvent(0.01),
    dp_event.RepeatAndSelectDpEvent(dp_accounting.ComposedDpEvent([GAUSSIAN]), 3.0, 1.0),
    dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 4.0),
)
REFUSED = (
    dp_accounting.UnsupportedDpEvent(),
    dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(1.0)),
    dp_event.SampledWithReplacementDpEvent(10, 2, GAUSSIAN),
    dp_accounting.SampledWithoutReplacementDpEvent(10, 2, dp_accounting.LaplaceDpEvent(1.0)),
    dp_event.SingleEpochTreeAggregationDpEvent(1.0, 10),
    dp_event.MixtureOfGaussiansDpEvent(1.0, [1.0], [1.0]),
)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Balle and Wang 2018, for a sensitivity of `mu` standard deviations."""
    return float(
        special.ndtr(mu / 2 - epsilon / mu)
        - math.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu)
    )


def test_replacing_one_moves_a_sum_by_twice_the_length_of_a_value():
    """dp-accounting 0.6 says 0.90 by orders and 1.77 by losses; the truth is 1.7655."""
    bound = ShuffleAccountant().compose(GAUSSIAN).get_epsilon(1e-6)
    assert gaussian_delta(2 / 5, float(bound)) <= 1e-6 <= gaussian_delta(2 / 5, 0.999 * bound)
    assert 0.999 * bound < bound.lower <= bound
    assert gaussian_delta(2 / 5, bound.lower) >= 1e-6
    by_orders = ShuffleAccountant(adaptive=True, order=20.0).compose(GAUSSIAN).get_epsilon(1e-6)
    assert bound < by_orders < 1.2 * bound
    theirs = PLDAccountant(NeighboringRelation.REPLACE_ONE).compose(GAUSSIAN).get_epsilon(1e-6)
    assert theirs == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize("count", [3, 40])
def test_gaussians_compose_to_a_gaussian(count):
    bound = ShuffleAccountant().compose(GAUSSIAN, count).get_epsilon(1e-6)
    mu = 2 / 5 * math.sqrt(count)
    assert gaussian_delta(mu, float(bound)) <= 1e-6 <= gaussian_delta(mu, 0.999 * bound)


def test_fixed_size_samples_amplify_the_whole_curve():
    bound = ShuffleAccountant().compose(SAMPLED).get_epsilon(1e-6)
    inner = math.log1p(math.expm1(bound) / 0.01)
    assert 0.01 * gaussian_delta(2 / 5, inner) == pytest.approx(1e-6, rel=5e-3)
    many = ShuffleAccountant().compose(SAMPLED, 500)
    orders = ShuffleAccountant(adaptive=True, order=30.0).compose(SAMPLED, 500)
    assert many.get_epsilon(1e-6) < orders.get_epsilon(1e-6)
    assert many.get_epsilon(1e-6).lower > 0.85 * many.get_epsilon(1e-6)


@pytest.mark.parametrize(
    ("event", "pure"),
    [
        (dp_accounting.LaplaceDpEvent(5.0), 0.4),
        (dp_event.DiscreteLaplaceDpEvent(0.1, 3), 0.6),
        (dp_accounting.RandomizedResponseDpEvent(0.5, 10), math.log(11)),
        (dp_accounting.RandomizedResponseDpEvent(1.0, 10), 0.0),
        (dp_accounting.ZCDpEvent(0.0, 0.7), 0.7),
    ],
)
def test_pure_guarantees(event, pure):
    assert largest_loss(event) == pytest.approx(pure)
    assert event_epsilon(event, 0.0) == pytest.approx(pure)
    assert event_epsilon(event, 1e-9) <= pure * (1 + 1e-9)
    assert np.all(divergences(event, np.array([2.0, 50.0])) <= pure * (1 + 1e-9))


def test_randomized_response_composes_as_by_enumeration():
    """dp-accounting's accountant of losses ignores the count."""
    event = dp_accounting.RandomizedResponseDpEvent(0.9, 2)
    epsilon = largest_loss(event)
    bound = ShuffleAccountant().compose(event, 30).get_epsilon(1e-4)
    truth = 1 / (1 + math.exp(-epsilon))

    def delta(total: float) -> float:
        return sum(
            math.comb(30, h)
            * max(
                truth**h * (1 - truth) ** (30 - h)
                - math.exp(total) * truth ** (30 - h) * (1 - truth) ** h,
                0.0,
            )
            for h in range(31)
        )

    assert delta(float(bound)) <= 1e-4 < delta(0.98 * bound)


@pytest.mark.parametrize("event", REFUSED, ids=lambda e: type(e).__name__)
def test_what_has_no_price_is_refused_by_name(event):
    accountant = ShuffleAccountant()
    assert not accountant.supports(event)
    for attempt in (accountant.compose, lambda e: event_epsilon(e, 1e-6)):
        with pytest.raises(dp_accounting.UnsupportedEventError, match="replace-one|Gaussian"):
            attempt(event)
    with pytest.raises(dp_accounting.UnsupportedEventError, match="replace-one"):
        accountant.would_exceed(event, epsilon=1.0, delta=1e-6)
    assert accountant.get_epsilon(1e-6) == 0.0


@pytest.mark.parametrize("event", KNOWN, ids=lambda e: type(e).__name__)
def test_what_has_a_price_is_taken(event):
    bound = ShuffleAccountant().compose(event, 2).get_epsilon(1e-6)
    assert 0 < bound.lower + bound < math.inf and bound.lower <= bound
    assert bound >= event_epsilon(event, 1e-6)


def test_no_noise_is_no_privacy():
    for event in (dp_accounting.NonPrivateDpEvent(), dp_accounting.GaussianDpEvent(0.0)):
        accountant = ShuffleAccountant().compose(event)
        assert accountant.get_epsilon(1e-6) == math.inf and accountant.get_delta(1.0) == 1.0


def test_gaussians_under_one_sampling_are_one():
    both = dp_accounting.ComposedDpEvent([GAUSSIAN, dp_accounting.SelfComposedDpEvent(GAUSSIAN, 3)])
    event = dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, both)
    assert canonical(event).event.noise_multiplier == pytest.approx(2.5)
    hash(canonical(KNOWN[-2]))


def test_local_and_central_together():
    """Shuffled reports each round, and a noisy sum at the end."""
    rounds = SubsampledShuffledDpEvent(local_event(KRandomizedResponse(5, 1.0)), 10_000, 500)
    final = central_gaussian(60.0, 1.0, num_users=10_000, num_sampled=5000)
    whole = ShuffleAccountant().compose(rounds, 300).compose(final).get_epsilon(1e-6)
    parts = [
        ShuffleAccountant().compose(e, n).get_epsilon(1e-6) for e, n in ((rounds, 300), (final, 1))
    ]
    assert max(parts) <= whole < 0.95 * sum(parts)
    assert 0.95 * whole < whole.lower <= whole
    assert whole.method.startswith("privacy-loss")


def test_a_central_gaussian_by_its_noise():
    assert central_gaussian(30.0, 1.5) == dp_accounting.GaussianDpEvent(20.0)
    sampled = central_gaussian(30.0, 1.5, num_users=100, num_sampled=10)
    assert (sampled.source_dataset_size, sampled.sample_size) == (100, 10)
    for wrong in (
        {"standard_deviation": 0.0, "clipping_norm": 1.0},
        {"standard_deviation": 1.0, "clipping_norm": 1.0, "num_sampled": 5},
        {"standard_deviation": 1.0, "clipping_norm": 1.0, "num_sampled": 5, "num_users": 4},
    ):
        with pytest.raises(ValueError, match="must be"):
            central_gaussian(**wrong)


def test_a_local_event_beside_a_shuffle_composes_by_losses():
    local, shuffled = (
        LocalRandomizerDpEvent(0.2),
        ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 9000),
    )
    both = ShuffleAccountant().compose(local, 5).compose(shuffled, 5).get_epsilon(1e-6)
    assert both.method.startswith("privacy-loss") and both < 1.0 + 5 * 0.05


# Published figures ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta", "classic", "order", "tight"),
    [
        (0.01, 1.0, 1000, 1e-5, 2.5383, 8, 2.1078),
        (0.001, 0.7, 100, 1e-9, 3.5273, 7, 3.0488),
        (0.02, 1.1, 2000, 1e-6, 6.3464, 5, 5.7209),
        (1e-4, 0.5, 200, 1e-9, 5.2994, 5, 4.6739),
        (0.002, 1.0, 100, 1e-9, 1.8902, 12, None),
        (0.0015, 1.0, 200, 1e-9, 1.7579, 13, None),
    ],
)
def test_sampled_noise_of_the_private_training_runs(
    rate, noise, rounds, delta, classic, order, tight
):
    """Integer orders of adding or removing a person, by dp-accounting and written out."""
    orders = np.arange(2.0, 257.0)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    curve = np.array(accountant.compose(event, rounds).rdp)
    j = np.arange(order + 1)
    terms = np.log(special.binom(order, j)) + (order - j) * math.log1p(-rate) + j * math.log(rate)
    written = special.logsumexp(terms + (j * j - j) / (2 * noise**2)) / (order - 1)
    assert curve[order - 2] == pytest.approx(rounds * written, rel=1e-9)
    plain = curve + math.log(1 / delta) / (orders - 1)
    assert (plain.min(), orders[plain.argmin()]) == (pytest.approx(classic, abs=6e-5), order)
    if tight is not None:
        assert rdp_to_epsilon(orders, curve, delta)[0] == pytest.approx(tight, abs=6e-5)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("sampled", [False, True])
def test_replacing_a_person_moves_the_sum_by_twice_the_length(noise, sampled):
    """Two Gaussians at distance 2, whichever way the event is written."""
    plain = dp_accounting.GaussianDpEvent(noise)
    event = dp_accounting.PoissonSampledDpEvent(1.0, plain) if sampled else plain
    accountant = ShuffleAccountant().compose(event)
    mu = 2.0 / noise
    for epsilon in (0.1, 1.0, 3.0):
        truth = stats.norm.cdf(mu / 2 - epsilon / mu)
        truth -= math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        assert truth * (1 - 1e-9) <= accountant.get_delta(epsilon) <= truth * 1.01 + 1e-12
    added = RdpAccountant([8.0], NeighboringRelation.ADD_OR_REMOVE_ONE).compose(plain).rdp[0]
    if not sampled:
        one = ShuffleAccountant(orders=[8.0], adaptive=True).compose(event)
        assert one.divergences()[0] == pytest.approx(4 * added)


def test_half_the_people_sampled_cost_what_two_laws_in_a_mixture_cost():
    """The victim's other value is that of everybody else: noise around 0, or around 0 and 2."""
    event = central_gaussian(1.5, 1.0, num_users=100, num_sampled=50)
    priced = ShuffleAccountant().compose(event).get_delta(0.4)
    x = np.arange(-9.0, 11.0, 1e-4)
    base, moved = stats.norm.pdf(x, 0, 1.5), stats.norm.pdf(x, 2, 1.5)
    mixed = (base + moved) / 2
    truth = np.maximum(mixed - math.exp(0.4) * base, 0).sum() * 1e-4
    assert truth * (1 - 1e-6) <= priced <= truth * 1.01


@pytest.mark.parametrize("count", [10**6 + 1, 10**9])
def test_many_rounds_of_noise_have_a_lower_bound_beside_the_exact_one(count):
    """One Gaussian of the root of so many shifts. It said 0.038 of 0.243: the grid was full."""
    noise, delta = 1e6 * math.sqrt(count / 10**9), 1e-6
    found = ShuffleAccountant().compose(dp_accounting.GaussianDpEvent(noise), count)
    exact = gaussian_epsilon(2 / noise * math.sqrt(count), delta)
    lower = found.get_epsilon(delta).lower
    assert 0.995 * exact < lower <= exact * (1 + 1e-9)
