"""One sample against a known rate: golden designs, and errors by enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions.experiments.arms import (
    normal_people,
    simple_design,
    simple_p_value,
    simple_power,
    simple_threshold,
)
from beam_ldp.decisions.experiments.channel import (
    NO_NOISE,
    BitChannel,
    bit_thresholds,
    clopper_pearson,
    randomize_scores,
    share_interval,
)

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    "epsilon, shares, errors, people, threshold",
    [
        (1.0, (0.7, 0.8), (0.05, 0.05), 1201, 739),
        (1.0, (0.5, 0.7), (0.05, 0.2), 179, 100),
        (0.5, (0.4, 0.6), (0.01, 0.01), 2253, 1126),
        (2.0, (0.10, 0.11), (0.01, 0.1), 35_767, 7_162),
    ],
)
def test_golden_designs(epsilon, shares, errors, people, threshold):
    """T11."""
    channel = BitChannel.implemented(epsilon)
    design = simple_design(channel, *shares, errors[0], 1 - errors[1])
    assert (design.people, design.threshold) == (people, threshold)
    rates = [channel.rate(share) for share in shares]
    assert design.level == stats.binom.sf(threshold, people, rates[0]) <= errors[0]
    assert design.power == stats.binom.sf(threshold, people, rates[1]) >= 1 - errors[1]


def hoeffding_people(channel: BitChannel, effect: float, error: float) -> int:
    """People enough for both errors at every rate, by Hoeffding's inequality."""
    return math.ceil(2 * math.log(1 / error) / (channel.contrast * effect) ** 2)


def test_approximations_beside_the_exact_number():
    channel = BitChannel.implemented(1.0)
    assert normal_people(channel, 0.7, 0.8, 0.05, 0.95) == pytest.approx(1196, abs=1)
    assert hoeffding_people(channel, 0.1, 0.05) == 2806


def test_fewer_people_are_needed_for_more_epsilon_and_for_larger_effects():
    def people(epsilon, effect):
        channel = BitChannel.implemented(epsilon)
        return simple_design(channel, 0.3, 0.3 + effect, 0.05, 0.9).people

    by_epsilon = [people(epsilon, 0.1) for epsilon in (0.25, 0.5, 1, 2, 4)]
    by_effect = [people(1.0, effect) for effect in (0.02, 0.05, 0.1, 0.3)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert by_effect == sorted(by_effect, reverse=True)
    without_noise = simple_design(NO_NOISE, 0.3, 0.4, 0.05, 0.9).people
    assert without_noise < by_epsilon[-1] < 1.2 * without_noise


def test_the_next_smaller_threshold_breaks_the_level():
    rate = BitChannel.implemented(1.0).rate(0.7)
    threshold = simple_threshold(1201, rate, 0.05)
    assert stats.binom.sf(threshold, 1201, rate) <= 0.05 < stats.binom.sf(threshold - 1, 1201, rate)


@pytest.mark.parametrize("people", [5, 179, 1201])
def test_the_p_value_is_at_most_alpha_where_the_threshold_is_exceeded(people):
    channel = BitChannel.implemented(1.0)
    threshold = simple_threshold(people, channel.rate(0.5), 0.05)
    decided = [simple_p_value(channel, people, ones, 0.5) <= 0.05 for ones in range(people + 1)]
    assert decided == [ones > threshold for ones in range(people + 1)]


def test_people_of_different_rates_raise_no_more_alarms():
    """Section 9.2: nobody's rate is above the null's; mixtures of two rates, convolved exactly."""
    people, null, alpha = 60, 0.5, 0.05
    channel = BitChannel.implemented(1.0)
    threshold = simple_threshold(people, channel.rate(null), alpha)
    for shares in ([0.5, 0.1], [0.5, 0.4], [0.0, 0.5]):
        law = np.ones(1)
        for i in range(people):
            rate = channel.rate(shares[i % 2])
            law = np.convolve(law, [1 - rate, rate])
        assert law[threshold + 1 :].sum() <= alpha


def test_power_is_recomputed_for_the_people_who_came():
    channel = BitChannel.implemented(1.0)
    design = simple_design(channel, 0.5, 0.7, 0.05, 0.8)
    assert simple_power(channel, design.people, 0.5, 0.7, 0.05) == design.power
    assert simple_power(channel, 90, 0.5, 0.7, 0.05) < 0.65


@pytest.mark.parametrize("people", [1, 7, 40])
@pytest.mark.parametrize("level", [0.8, 0.98])
def test_intervals_hold_at_every_rate(people, level):
    channel = BitChannel.implemented(1.5)
    found = [share_interval(channel, ones, people, level) for ones in range(people + 1)]
    for share in np.linspace(0, 1, 41):
        masses = stats.binom.pmf(np.arange(people + 1), people, channel.rate(share))
        holds = [low - 1e-12 <= share <= high + 1e-12 for low, high in found]
        assert masses @ holds >= level


def test_the_channel_is_the_one_that_devices_run():
    channel = BitChannel.implemented(2.0)
    assert channel.contrast == pytest.approx(np.tanh(1.0), rel=1e-12)
    assert np.log(channel.one / channel.zero) <= 2.0
    assert channel.share(channel.rate(0.3)) == pytest.approx(0.3)
    assert clopper_pearson(0, 5, 0.9)[0] == 0.0 and clopper_pearson(5, 5, 0.9)[1] == 1.0


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"null": 0.9}, "alternative must be above null"),
        ({"alternative": 1.5}, "alternative must lie in"),
        ({"alpha": 0.0}, "alpha must lie in"),
        ({"power": 1.0}, "power must lie in"),
        ({"alternative": 0.1 + 1e-9}, "more than 1e"),
    ],
)
def test_what_cannot_be_designed_is_refused(changed, said):
    asked = {"null": 0.1, "alternative": 0.2, "alpha": 0.05, "power": 0.8} | changed
    with pytest.raises(ValueError, match=said):
        simple_design(BitChannel.implemented(1.0), **asked)
    with pytest.raises(ValueError, match="one must be above zero"):
        BitChannel(0.5, 0.5)


def test_the_printed_majority_rule_never_learns():
    """T10. Errata 6: more than half of the debiased counts errs with 0.996, and then always."""
    channel = BitChannel.implemented(1.0)
    rate = channel.rate(0.7)  # event {second value}: 0.7 against 0.9, both above a half
    with_a_coin_for_ties = (stats.binom.sf(99, 200, rate) + stats.binom.sf(100, 200, rate)) / 2
    assert with_a_coin_for_ties == pytest.approx(0.996, abs=5e-4)
    assert stats.binom.sf(10_000, 20_000, rate) > 1 - 1e-12
    middle = (rate + channel.rate(0.9)) / 2
    assert stats.binom.sf(int(20_000 * middle), 20_000, rate) < 1e-12


def test_the_printed_debiasing_is_biased():
    """Errata 7: n/(e^eps - 1) is subtracted for n/(e^eps + 1); -37,739 where 30,000 is true.

    The specification prints -37,728.
    """
    people, truth, odds = 100_000, 30_000, np.e
    expected = people / (odds + 1) + truth * (odds - 1) / (odds + 1)
    gain = (odds + 1) / (odds - 1)
    assert gain * (expected - people / (odds + 1)) == pytest.approx(truth)
    printed = gain * (expected - people / (odds - 1))
    assert printed - truth == pytest.approx(-2 * people / (odds - 1) ** 2)
    assert round(printed) == -37_739


def test_the_printed_sample_size_fails_for_a_large_epsilon():
    """Errata 8: 1/(eps^2 alpha^2) says 2 people at eps = 8, alpha = 0.1."""
    assert round(1 / (8**2 * 0.1**2)) == 2
    needed = simple_design(BitChannel.implemented(8.0), 0.45, 0.55, 0.05, 0.95).people
    assert 200 < needed < 300


# What a device sends ------------------------------------------------------------------------------


class Words:
    """A source of words that a test chooses, in place of a generator."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, dtype=np.uint64)

    def words(self, start: int, stop: int, per_user: int) -> np.ndarray:
        return self._words[start:stop, None]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 2.0, 8.0])
def test_thresholds_spend_the_epsilon_and_no_more(epsilon):
    zero, one = bit_thresholds(epsilon)
    assert zero + one == 2**64
    ratio = Fraction(one, zero)
    assert ratio <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
    assert math.log(ratio) == pytest.approx(epsilon, abs=1e-9)
    channel = BitChannel.implemented(epsilon)
    assert (zero / 2**64, one / 2**64) == pytest.approx((channel.zero, channel.one), abs=1e-15)


def test_a_score_is_drawn_by_its_threshold(monkeypatch):
    """The words around the thresholds of 0, 1/2 and 1, one by one."""
    zero, one = bit_thresholds(1.0)
    half = zero + 2**31 * ((one - zero) >> 32)
    words = [zero - 1, zero, half - 1, half, one - 1, one]
    monkeypatch.setattr(
        "beam_ldp.decisions.experiments.channel.word_source", lambda *_: Words(words)
    )
    drawn = randomize_scores(1.0, [0, 0, 0.5, 0.5, 1, 1])
    assert drawn.tolist() == [1, 0] * 3
    assert half / 2**64 == pytest.approx(BitChannel.implemented(1.0).rate(0.5), abs=1e-9)


@pytest.mark.statistical
def test_rates_of_bits():
    """Within 4.5 sigma (7e-6 for each of five scores) over 200,000 people each."""
    people, channel, rng = 200_000, BitChannel.implemented(2.0), np.random.default_rng(8)
    for score in (0.0, 0.1, 0.5, 0.9, 1.0):
        rate = channel.rate(score)
        seen = randomize_scores(2.0, np.full(people, score), rng).mean()
        assert abs(seen - rate) < 4.5 * np.sqrt(rate * (1 - rate) / people)


@pytest.mark.parametrize("scores", [[1.1], [-0.1], [math.nan], [[0.5]]])
def test_what_is_no_score_is_refused_and_not_quoted(scores):
    with pytest.raises(ValueError, match=r"^scores must be numbers within \[0, 1\], one for each"):
        randomize_scores(1.0, scores)
