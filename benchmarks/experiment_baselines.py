"""Other people's tests of one rate against another, their power exact: what `experiments` compares.

Every test counts or adds up something and decides for the larger rate above a threshold, which is
the least that keeps the level. The laws of sums are those of the mechanisms: convolved by a Fourier
transform (rounding below 1e-9), or binomial counts with noise of a known law on top.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.decisions import BitChannel
from beam_ldp.decisions.experiments.looks import binomial_law

Floats = NDArray[np.float64]
Tail = Callable[[Floats], Floats]  # probability that a noise exceeds a number
Rates = tuple[float, float]  # of ones, without and with the effect
Power = Callable[[int], float]  # of so many people

_FAR = 12  # standard deviations beyond which nothing is


# One number for everybody: a count with noise -----------------------------------------------


def count_power(people: int, rates: Rates, alpha: float, beyond: Tail, whole: bool) -> float:
    """Power of a threshold on a binomial count plus noise.

    Args:
        people: who are counted.
        rates: of ones.
        alpha: false alarms.
        beyond: of the noise, the probability of more than a number.
        whole: whether the noise is integers, and so the threshold.
    """
    laws = [binomial_law(people, rate) for rate in rates]

    def above(threshold: float, law: int) -> float:
        counts = laws[law].first + np.arange(laws[law].masses.size)
        return float(laws[law].masses @ beyond(threshold - counts))

    low, high = -float(people), 2.0 * people
    while high - low > (1 if whole else 1e-6):
        middle = (low + high) / 2
        middle = float(math.floor(middle)) if whole else middle
        low, high = (low, middle) if above(middle, 0) <= alpha else (middle, high)
    return above(high, 1)


def discrete_laplace(epsilon: float) -> Tail:
    """Two-sided geometric noise: of a count, as OpenDP and diffprivlib release it."""
    return lambda numbers: np.asarray(stats.dlaplace(epsilon).sf(numbers))


def tulap(epsilon: float) -> Tail:
    """Noise of the uniformly most powerful test of a binomial rate under central epsilon.

    Two-sided geometric noise plus a uniform number from -1/2 to 1/2 (Awan and Slavkovic 2018).
    """
    geometric = stats.dlaplace(epsilon)

    def beyond(numbers: Floats) -> Floats:
        nearest = np.round(numbers)
        within = geometric.pmf(nearest) * (nearest + 0.5 - numbers)
        return np.asarray(geometric.sf(nearest) + within)

    return beyond


def gaussian(deviation: float) -> Tail:
    """Normal noise."""
    return lambda numbers: np.asarray(stats.norm.sf(numbers, scale=deviation))


def central_power(epsilon: float, rates: Rates, alpha: float, noise: str) -> Power:
    """A trusted curator's test: "count" of libraries, or "best", which nothing central beats."""
    tail = discrete_laplace(epsilon) if noise == "count" else tulap(epsilon)
    return lambda people: count_power(people, rates, alpha, tail, noise == "count")


def local_gaussian_power(epsilon: float, delta: float, rates: Rates, alpha: float) -> Power:
    """Everybody adds normal noise to the bit, (epsilon, delta); the sum decides."""
    deviation = 1 / gaussian_mu(epsilon, delta)
    return lambda people: count_power(
        people, rates, alpha, gaussian(deviation * math.sqrt(people)), False
    )


def best_bit_power(channel: BitChannel, rates: Rates, alpha: float) -> Power:
    """The most powerful test of bits behind randomized response, which nothing local beats.

    Every mechanism of a bit whose local epsilon is that of the channel can be had from its output
    (Kairouz, Oh and Viswanath 2016), and so can every way to ask people one after the other; among
    tests of so many bits none beats that of Neyman and Pearson, which tosses a coin at its
    threshold.
    """
    null, changed = channel.rate(rates[0]), channel.rate(rates[1])

    def power(people: int) -> float:
        threshold = stats.binom.isf(alpha, people, null)
        left = alpha - stats.binom.sf(threshold, people, null)
        coin = left / stats.binom.pmf(threshold, people, null)
        at = stats.binom.sf(threshold, people, changed)
        return float(at + coin * stats.binom.pmf(threshold, people, changed))

    return power


# A report each, added up -------------------------------------------------------------------


class Step:
    """What one report adds to the sum, an integer.

    Args:
        transform: its characteristic function, at angles.
        mean, deviation: of it.
    """

    def __init__(self, transform: Callable[[Floats], NDArray[np.complex128]],
                 mean: float, deviation: float):  # fmt: skip
        self.transform, self.mean, self.deviation = transform, mean, deviation

    @classmethod
    def of(cls, scores: NDArray[np.int64], masses: Floats) -> Step:
        """Finitely many."""
        mean = float(scores @ masses)
        return cls(
            lambda angles: np.exp(1j * np.outer(angles, scores)) @ masses,
            mean,
            math.sqrt(float((scores - mean) ** 2 @ masses)),
        )


def sum_power(people: int, steps: tuple[Step, Step], alpha: float) -> float:
    """Power of a threshold on the sum of everybody's step, without and with the effect."""
    spread = max(step.deviation for step in steps) * math.sqrt(people)
    reach = people * (steps[1].mean - steps[0].mean) + 2 * _FAR * spread + 60
    size = 1 << math.ceil(math.log2(reach))
    first = math.floor(people * steps[0].mean - _FAR * spread - 30)
    angles = 2 * math.pi * np.fft.fftfreq(size)
    tails = []
    for step in steps:
        spectrum = step.transform(angles) ** people * np.exp(-1j * angles * first)
        masses = np.fft.fft(spectrum).real / size
        tails.append(np.cumsum(masses[::-1])[::-1])  # of this sum or a larger one
    fits = int(np.argmax(tails[0] <= alpha))
    return float(tails[1][fits])


def rappor_power(local_epsilon: float, rates: Rates, alpha: float) -> Power:
    """RAPPOR of both values, half the budget for each bit; the difference of the bits decides."""
    keep = 1 / (1 + math.exp(-local_epsilon / 2))
    right, wrong = keep**2, (1 - keep) ** 2
    steps = []
    for rate in rates:
        one, zero = rate * right + (1 - rate) * wrong, rate * wrong + (1 - rate) * right
        steps.append(Step.of(np.array([1, 0, -1]), np.array([one, 1 - one - zero, zero])))
    return lambda people: sum_power(people, (steps[0], steps[1]), alpha)


def local_laplace_power(local_epsilon: float, rates: Rates, alpha: float) -> Power:
    """Everybody adds two-sided geometric noise to the bit; the sum decides."""
    b = math.exp(-local_epsilon)
    steps = []
    for rate in rates:

        def transform(angles: Floats, rate: float = rate) -> NDArray[np.complex128]:
            noise = (1 - b) ** 2 / (1 - 2 * b * np.cos(angles) + b * b)
            return (1 - rate + rate * np.exp(1j * angles)) * noise

        variance = rate * (1 - rate) + 2 * b / (1 - b) ** 2
        steps.append(Step(transform, rate, math.sqrt(variance)))
    return lambda people: sum_power(people, (steps[0], steps[1]), alpha)


# Many values -------------------------------------------------------------------------------


def likelihood_power(channel: Floats, laws: tuple[Floats, Floats], alpha: float) -> Power:
    """The likelihood-ratio test of reports, its scores rounded to a fiftieth of their deviation.

    Args:
        channel: (reports, values), columns sum to one.
        laws: of the values, without and with the effect.
        alpha: false alarms.
    """
    null, changed = channel @ laws[0], channel @ laws[1]
    ratio = np.log(changed / null)
    deviation = math.sqrt(float(null @ ratio**2))
    scores = np.round(50 * ratio / deviation).astype(np.int64)
    steps = Step.of(scores, null), Step.of(scores, changed)
    return lambda people: sum_power(people, steps, alpha)


def best_channel(laws: tuple[Floats, Floats], local_epsilon: float) -> Floats:
    """Of this local epsilon, the channel that tells the laws apart best: (reports, values).

    It has the largest KL divergence of all, by a linear program over the columns that are 1 or
    e^epsilon for each value (Kairouz, Oh and Viswanath 2016, Theorem 4). 2^values columns.
    """
    corners = np.array(list(itertools.product((1.0, math.exp(local_epsilon)), repeat=len(laws[0]))))
    null, changed = corners @ laws[0], corners @ laws[1]
    told = changed * np.log(changed / null)
    found = optimize.linprog(-told, A_eq=corners.T, b_eq=np.ones(len(laws[0])), method="highs")
    used = found.x > 1e-12
    return np.asarray(corners[used] * found.x[used, None])


def people_for(power: Power, wanted: float) -> int:
    """The fewest people, within about 0.2 %: power is saw-toothed where thresholds are integers."""
    enough = 1
    while power(enough) < wanted:
        enough *= 2
    few = enough // 2
    while enough - few > max(1, enough // 2000):
        middle = (few + enough) // 2
        few, enough = (few, middle) if power(middle) >= wanted else (middle, enough)
    tried = np.unique(np.linspace(0.975 * enough, enough, 30).astype(int)).tolist()
    return next(people for people in tried if power(people) >= wanted)
