"""Shuffles that are listed outcome by outcome: certified to the last digits, and soon done."""

from __future__ import annotations

import math
import time

import mpmath
import numpy as np
import pytest

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.accounting.divergences import enumerated as listed_module
from beam_ldp.accounting.divergences.enumerated import (
    law_of_one,
    listed_configurations,
    listed_parts,
)
from beam_ldp.accounting.divergences.hockey_stick import (
    epsilon_bounds,
    hockey_stick,
    hockey_sticks,
    largest_log_ratio,
)
from beam_ldp.accounting.divergences.moments import binomial_log_pmf
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses

pytestmark = pytest.mark.exact


def exact_binary_response(budget: float, n: int, epsilon: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Both hockey sticks of shuffled binary response, everybody else equal, by 60 digits.

    With k of n reports against what the others hold, the likelihood ratio of the victim holding
    the other value is (k E + (n - k) / E) / n. Outcomes beyond 13 deviations weigh below 1e-37.
    """
    with mpmath.workdps(60):
        ratio, step = mpmath.e ** mpmath.mpf(budget), mpmath.e ** mpmath.mpf(epsilon)
        lie = 1 / (ratio + 1)
        reach = 13 * math.sqrt(n * lie * (1 - lie)) + 40
        low, high = max(0, int(n * lie - reach)), min(n, int(n * lie + reach))
        weight = mpmath.binomial(n, low) * lie**low * (1 - lie) ** (n - low)
        forth = back = mpmath.mpf(0)
        for k in range(low, high + 1):
            likelihood = (k * ratio + (n - k) / ratio) / n
            forth += weight * max(likelihood - step, 0)
            back += weight * max(1 - step * likelihood, 0)
            weight *= (n - k) / (k + 1) / ratio
        return forth, back


@pytest.mark.parametrize(
    ("budget", "n"), [(1.0, 300_000), (0.5, 349_000), (4.0, 349_999), (0.01, 20_000), (1.0, 835)]
)
def test_witnesses_of_binary_response_are_certified(budget, n):
    """At 3e5 reports they were 1.7e-8 too low at budget 1, and 1e-8 too high at 0.5 and 349,000."""
    (witness,) = two_level_witnesses(math.exp(budget), 1 / 2, 0.0)
    epsilon = epsilon_bounds(witness, n, 1e-6)[0]
    exact = exact_binary_response(budget, n, epsilon)
    for truth, pair in zip(sorted(exact), sorted_sides(witness, n, epsilon), strict=True):
        low, high = hockey_stick(pair, n, epsilon)
        assert low <= truth <= high
        assert high / low - 1 < 3e-9


def binomial_tail(n: int, chance: mpmath.mpf, least: int) -> mpmath.mpf:
    """Pr[Bin(n, chance) >= least], above the mean: the continued fraction of the incomplete beta.

    Its even and odd convergents lie on either side; so many agree to 30 digits.
    """
    a, b = mpmath.mpf(least), mpmath.mpf(n - least + 1)
    fraction = mpmath.mpf(1)
    for m in range(900, 0, -1):
        odd = -(a + m) * (a + b + m) * chance / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * chance / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + even / (1 + odd / fraction)
    fraction = 1 - (a + b) * chance / (a + 1) / fraction
    log_front = mpmath.loggamma(a + b) - mpmath.loggamma(a + 1) - mpmath.loggamma(b)
    log_front += a * mpmath.log(chance) + b * mpmath.log(1 - chance)
    return mpmath.exp(log_front) / fraction


def exact_tails(budget: float, n: int, epsilon: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The same as `exact_binary_response` by four tails, however many reports there are.

    A likelihood ratio of (k E + (n - k) / E) / n is above e^epsilon from some k on, and k times
    its probability is n p times that of k - 1 in n - 1; the other stick is of the other tail.
    """
    with mpmath.workdps(60):
        ratio, step = mpmath.e ** mpmath.mpf(budget), mpmath.e ** mpmath.mpf(epsilon)
        lie = 1 / (ratio + 1)

        def stick(chance, at_all, at_none, bound):
            """E[max(k at_all + (n - k) at_none - n bound, 0)] / n, growing with k."""
            least = int(mpmath.floor(n * (bound - at_none) / (at_all - at_none))) + 1
            share = chance * binomial_tail(n - 1, chance, least - 1)
            return (at_all - at_none) * share + (at_none - bound) * binomial_tail(n, chance, least)

        forth = stick(lie, ratio, 1 / ratio, step)
        return forth, stick(1 - lie, -step / ratio, -step * ratio, mpmath.mpf(-1))


def test_the_tails_are_the_sums():
    for truth, found in zip(exact_binary_response(1.0, 2000, 0.1), exact_tails(1.0, 2000, 0.1)):
        assert abs(found / truth - 1) < 1e-14


@pytest.mark.parametrize(
    ("budget", "n"), [(1.0, 10**6), (0.5, 10**9), (1.0, 10**12), (4.0, 10**12)]
)
@pytest.mark.parametrize("deviations", [4.0, 8.0])
def test_witnesses_of_large_crowds_are_certified_too(budget, n, deviations):
    (witness,) = two_level_witnesses(math.exp(budget), 1 / 2, 0.0)
    epsilon = deviations * 2 * math.sinh(budget / 2) / math.sqrt(n)
    for truth, pair in zip(
        sorted(exact_tails(budget, n, epsilon)), sorted_sides(witness, n, epsilon), strict=True
    ):
        low, high = hockey_stick(pair, n, epsilon)
        assert low <= truth <= high
        assert high / low - 1 < 3e-3


def sorted_sides(pair: ShufflePair, n: int, epsilon: float) -> list[ShufflePair]:
    return sorted((pair, pair.swapped()), key=lambda side: hockey_stick(side, n, epsilon).upper)


@pytest.mark.parametrize("trials", [999, 1001, 5000, 349_999, 10**6])
@pytest.mark.parametrize("chance", [1e-3, 0.27, 0.5, 0.9999])
def test_binomial_probabilities_are_good_to_eleven_digits(trials, chance):
    """Out to forty deviations, as far as a double holds the probability."""
    deviation = math.sqrt(trials * chance * (1 - chance))
    places = (round(trials * chance + z * deviation) for z in range(-40, 41, 5))
    counts = sorted({min(trials, max(0, place)) for place in places})
    found = binomial_log_pmf(np.array(counts), trials, chance).tolist()
    with mpmath.workdps(60):
        p = mpmath.mpf(chance)
        for count, log_mass in zip(counts, found, strict=True):
            truth = mpmath.log(mpmath.binomial(trials, count))
            truth += count * mpmath.log(p) + (trials - count) * mpmath.log(1 - p)
            if truth > -700:
                assert abs(log_mass - truth) < 1e-11


def test_binomial_probabilities_at_the_ends():
    found = np.exp(binomial_log_pmf(np.array([-1, 0, 5000, 5001]), 5000, 0.75))
    assert found == pytest.approx([0.0, 0.25**5000, 0.75**5000, 0.0])
    assert np.exp(binomial_log_pmf(np.array([0, 5000]), 5000, 1.0)).tolist() == [0.0, 1.0]


def test_listed_configurations_are_the_multinomial_law():
    """Three kinds, against 60 digits, in the order in which they are listed."""
    pair, n = ShufflePair.clones(1.0), 30
    listed = listed_configurations(pair, n)
    law = law_of_one(pair)
    assert len(listed.probability) == math.comb(n + 2, 2)
    with mpmath.workdps(60):
        p = [mpmath.mpf(value) for value in law.probability.tolist()]
        p[0] = 1 - p[1] - p[2]
        place = 0
        for one in range(n + 1):
            for two in range(n + 1 - one):
                rest = n - one - two
                ways = mpmath.binomial(n, one) * mpmath.binomial(n - one, two)
                truth = ways * p[1] ** one * p[2] ** two * p[0] ** rest
                assert abs(listed.probability[place] / truth - 1) < 2e-11
                counts = np.array([rest, one, two])
                assert listed.difference[place] == pytest.approx(counts @ law.difference, abs=1e-12)
                assert listed.second[place] == pytest.approx(counts @ law.second, abs=1e-12)
                place += 1


def test_few_and_many_steps_are_the_same():
    """One epsilon is summed as listed, many are looked up in order of rank; sampled ones too."""
    for rate in (1.0, 0.1):
        epsilons = np.linspace(0.0, 0.9 * math.log1p(rate * math.expm1(2.0)), 12)
        pair = ShufflePair.clones(2.0)
        many = hockey_sticks(pair, 150, epsilons, rate)[1]
        few = [hockey_stick(pair, 150, epsilon, rate).upper for epsilon in epsilons.tolist()]
        assert many == pytest.approx(few, rel=1e-11)


def test_local_epsilons_of_a_few_hundred_reports_are_soon_found():
    """It took 3 to 8 seconds, and then half a one; the longest list is that of 835 reports.

    The time is that of this process alone: 20 ms, if machines rest.
    """
    listed_configurations.cache_clear()
    before = time.process_time()
    assert local_epsilon_for(1.0, 1e-6, 300) == pytest.approx(1.8769336, rel=1e-6)
    assert local_epsilon_for(1.0, 1e-6, 835) == pytest.approx(2.5836690, rel=1e-6)
    assert time.process_time() - before < 0.2


def pairs_to_list() -> list[ShufflePair]:
    """Blankets and witnesses of two to five kinds, even and uneven."""
    clones = [ShufflePair.clones(budget) for budget in (0.01, 1.0, 4.0, 9.0)]
    witnesses = [
        pair for ratio in (1.1, 20.0) for pair in two_level_witnesses(ratio, 0.2, 0.05, (0.03,))
    ]
    own = KRandomizedResponse(30, 3.0).dominating_pair()
    five = ShufflePair(0.3, ((2.0, 0.5), (1.5, 1.5), (0.3, 1.5), (0.3, 0.5)), (0.2, 0.3, 0.2, 0.3))
    return [*clones, *witnesses, own, five, *two_level_witnesses(1.01, 1 / 2, 0.0)]


@pytest.mark.parametrize("absent", [0.0, 30.0])
def test_the_heaviest_terms_are_the_sum(absent):
    """All that a batch can look like, added up, against what is looked at: to rounding."""
    compared = 0
    for pair in pairs_to_list():
        for side in (pair, pair.swapped()):
            top = largest_log_ratio(side)
            for n in (1, 2, 3, 40, 120, 600):
                listed = listed_configurations(side, n)
                if listed is None:
                    continue
                steps = np.expm1(top * np.array([0.0, 0.003, 0.1, 0.5, 0.9, 0.999]))
                found = listed_parts(side, n, absent, steps)
                for step, value in zip(steps.tolist(), found.tolist(), strict=True):
                    sums = np.maximum(listed.difference - step * (listed.second + absent), 0.0)
                    known = float(sums @ listed.probability)
                    assert value == pytest.approx(known, rel=1e-11, abs=1e-290)
                    compared += known > 1e-280
    assert compared > 240


def test_few_terms_are_looked_at(monkeypatch):
    """Of 350,000 configurations a twentieth: what makes small crowds as cheap as large ones."""
    looked = []
    weights = listed_module._log_weights

    def counted(pair, n):
        log_weights = weights(pair, n)
        return lambda *counts: looked.append(len(counts[0])) or log_weights(*counts)

    monkeypatch.setattr(listed_module, "_log_weights", counted)
    step = math.expm1(0.3)
    assert listed_parts(ShufflePair.clones(1.0), 835, 0.0, np.array([step]))[0] > 0
    assert sum(looked) < math.comb(837, 2) / 20
