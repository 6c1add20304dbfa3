"""Attacks that read one message: what somebody finds who tries, beside what nobody can exceed.

Each attacker knows the mechanism and something of the person (a prior), sees one message, and names
a vector, a set of words or a value:

* a direction: the message as its collector reads it. Under a uniform prior the mean of what is
  left to believe points the same way for PrivUnit, and no other guess succeeds more often;
* an image: the linear estimate of least squared error, which knows how such images scatter; it is
  the posterior mean where image and noise are normal;
* which of a list: the entry that the message points to most. The likeliest one for PrivUnit, whose
  density has two levels;
* words: those that are likelier used than others after the message, as many as balance precision
  and recall;
* a value of a frequency oracle: the likeliest one.

Chances called exact follow from the mechanism's law. Attacks are simulations: they show what is
possible, and bound nothing; the bounds are those of `beam_ldp.accounting.reconstruction`.

Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, section 2; attacks and exact chances are
our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from beam_ldp.accounting.reconstruction import SparseTarget
from beam_ldp.accounting.reconstruction_audit import direction_attack, quadrature
from beam_ldp.randomizers import special
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.spherical_caps import log1mexp

_LOG_EPSILONS = (-9.0, 14.0)  # in which a budget is looked for
_REACH = 12.0  # standard deviations beyond which normal heights are ignored
_SURE = 1e-12  # chances of words are kept so far from 0 and 1


# Chances that are known -----------------------------------------------------------------------


def direction_chance(mechanism: MeanRandomizer, cosine: float) -> float | None:
    """Chance that a message of a uniform direction points within an angle of it. Exact.

    Args:
        mechanism: of which one message is seen, made of a vector of its radius.
        cosine: of the angle within which the guess counts, in (0, 1).

    Returns:
        The chance, to 10 digits; None where it is not known. For `PrivUnit` no guess succeeds more
        often, given any message; for `PrivUnitGaussian` it is the mean over messages.

    >>> round(direction_chance(PrivUnit(128, 8.0, inputs="sphere"), 0.2393717), 4)
    0.9039
    """
    check_fraction("cosine", cosine)
    if isinstance(mechanism, PrivUnit):
        return direction_attack(mechanism, cosine)
    if isinstance(mechanism, PrivUnitGaussian):
        return _gaussian_chance(mechanism, cosine)
    return None


def _gaussian_chance(mechanism: PrivUnitGaussian, cosine: float) -> float:
    """X/sqrt(X^2 + W) >= a: the chi-square law of W at X^2 (1 - a^2)/a^2, for X > 0."""
    t = mechanism.tail.threshold
    p, outside = mechanism.coin.probability, log1mexp(mechanism.tail.log_measure)
    tails = 1 - p if p < 1 else math.exp(-mechanism.coin.log_odds)
    total = 0.0
    sides = ((0.0, t, tails * math.exp(-outside)), (t, t + _REACH, 0.0))
    for low, high, scale in sides:
        at, weights = quadrature(low, high)
        log_density = -0.5 * at**2 - 0.5 * math.log(2 * math.pi)
        if scale == 0.0:  # the tail, whose measure may underflow
            density = p * np.exp(log_density - mechanism.tail.log_measure)
        else:
            density = scale * np.exp(log_density)
        reached = at**2 * (1 - cosine**2) / cosine**2
        inside = special.gammainc((mechanism.dimension - 1) / 2, reached / 2)
        total += float(weights @ (density * inside))
    return total


def codeword_chance(mechanism: MeanRandomizer, candidates: int) -> float | None:
    """Chance of naming which of so many uniform directions was sent, each as likely. Exact.

    No attack succeeds more often against `PrivUnit`: every candidate in the cap around the message
    is equally likely, and likelier than those off it. With K others in the cap the chance is
    1/(1 + K) if the own one is there too; if nobody is, it is 1/N.

    Args:
        mechanism: of which one message is seen, made of a vector of its radius.
        candidates: N, at least 1, drawn independently and known to the attacker.

    Returns:
        The chance on average over candidates and messages; None for other mechanisms.

    >>> round(codeword_chance(PrivUnit(64, 20.0, inputs="sphere"), 100), 4)
    0.9744
    """
    check_integer("candidates", candidates, 1)
    if not isinstance(mechanism, PrivUnit):
        return None
    p, measure = mechanism.coin.probability, mechanism.cap.log_measure
    nobody = candidates * log1mexp(measure)  # log of (1 - P)^N
    somebody = -math.expm1(nobody)
    # For P that vanishes beside 1/N the quotient is 1.
    share = somebody / (candidates * math.exp(measure)) if measure > -700 else 1.0
    off = math.exp(nobody - log1mexp(measure))
    return p * share + (1 - p) * off / candidates


def value_chance(oracle: FrequencyOracle, prior: np.ndarray | None = None) -> float:
    """Chance of naming the value behind one report, by the likeliest one. Exact, and the best.

    Args:
        oracle: whose channel is small enough to be written down.
        prior: what the attacker knows before: `(domain_size,)`; default: all are equally likely.

    Returns:
        Sum over reports of the largest of prior times channel.

    Raises:
        ValueError: if `prior` is no law.
        NotImplementedError: if the channel is not small.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> round(value_chance(KRandomizedResponse(10, 2.0)), 6)  # E/(E + 9)
    0.450853
    """
    law = _law(oracle.domain_size, prior)
    return float(np.max(oracle.channel() * law, axis=1).sum())


def _law(size: int, prior: np.ndarray | None) -> np.ndarray:
    if prior is None:
        return np.full(size, 1 / size)
    law = np.asarray(prior, dtype=float)
    if law.shape != (size,) or not (law >= 0).all() or not math.isclose(law.sum(), 1.0):
        raise ValueError(f"prior must hold {size} probabilities that sum to 1")
    return law


def epsilon_reaching(
    success: Callable[[float], float], chance: float, precision: float = 1e-9
) -> float | None:
    """The local epsilon from which a chance of success, which grows with it, exceeds `chance`.

    Args:
        success: of a local epsilon.
        chance: in (0, 1).
        precision: relative, of the budget.

    Returns:
        The budget; 0 where it is exceeded at 1e-4 already, None where a million does not suffice.

    >>> round(epsilon_reaching(lambda epsilon: epsilon / (epsilon + 9), 0.1), 6)
    1.0
    """
    check_fraction("chance", chance)
    low, most = _LOG_EPSILONS
    if success(math.exp(low)) >= chance:
        return 0.0
    high = low + 1
    while success(math.exp(high)) < chance:
        low, high = high, high + 1
        if high > most:
            return None
    while high - low > precision:
        middle = (low + high) / 2
        low, high = (low, middle) if success(math.exp(middle)) >= chance else (middle, high)
    return math.exp(high)


# Attacks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """How often an attack succeeded.

    Attributes:
        succeeded, trials: of independent people.
    """

    succeeded: int
    trials: int

    @property
    def value(self) -> float:
        """The share."""
        return self.succeeded / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson's: holds the chance in 95 % of simulations at least.

        >>> tuple(round(end, 4) for end in Share(0, 100).interval)
        (0.0, 0.0362)
        """
        s, n = self.succeeded, self.trials
        low = 0.0 if s == 0 else float(special.betaincinv(s, n - s + 1, 0.025))
        high = 1.0 if s == n else float(special.betaincinv(s + 1, n - s, 0.975))
        return low, high


def read_messages(mechanism: MeanRandomizer, reports: np.ndarray) -> np.ndarray:
    """Each message as its collector reads it, alone: an unbiased estimate of one person's vector.

    Args:
        mechanism: that made the reports.
        reports: `(n, ...)`.

    Returns:
        `(n, dimension)`, in the unit of the data.
    """
    one = (reports[i : i + 1] for i in range(len(reports)))
    return np.stack([mechanism.estimate(mechanism.accumulate(r), 1).value for r in one])


def cosines(guesses: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Of the angle between each guess and the truth, both `(n, d)`; 0 where one is zero."""
    lengths = np.linalg.norm(guesses, axis=1) * np.linalg.norm(truth, axis=1)
    inner = np.einsum("ij,ij->i", guesses, truth)
    found: np.ndarray = np.divide(inner, lengths, out=np.zeros(len(inner)), where=lengths > 0)
    return found


@dataclass(frozen=True, eq=False)
class LinearAttack:
    """Whoever knows how a population scatters: the linear estimate of least squared error.

    C (C + s^2 I)^-1 z for the covariance C of vectors whose public mean is zero, and noise of
    variance s^2 in each coordinate. It is the posterior mean if vectors and noise are normal.

    Attributes:
        axes: `(k, d)`, orthonormal: the directions in which the population scatters.
        variances: `(k,)`, along them.

    >>> known = LinearAttack.knowing(np.array([[2.0, 0.0], [-2.0, 0.0]]))
    >>> known.guess(np.array([[3.0, 5.0]]), noise=4.0).round(9).tolist()  # 4/(4 + 4) of the first
    [[1.5, 0.0]]
    """

    axes: np.ndarray
    variances: np.ndarray

    @classmethod
    def knowing(cls, examples: np.ndarray) -> LinearAttack:
        """From public vectors `(n, d)` less their public mean."""
        _, lengths, axes = np.linalg.svd(examples, full_matrices=False)
        return cls(axes, lengths**2 / len(examples))

    def guess(self, readings: np.ndarray, noise: float) -> np.ndarray:
        """The vectors behind readings `(n, d)` whose coordinates have this variance of noise."""
        kept = np.divide(
            self.variances, self.variances + noise,
            out=np.zeros_like(self.variances), where=self.variances > 0,
        )  # fmt: skip
        return np.asarray((readings @ self.axes.T * kept) @ self.axes)


def noise_per_coordinate(mechanism: MeanRandomizer) -> float:
    """Variance of the noise in a coordinate of one message, on average, for the worst vector."""
    return float(np.mean(mechanism.variance(1)))


def best_codeword(readings: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Which candidate each reading points to most, as indices `(n,)`.

    Args:
        readings: `(n, d)`.
        candidates: `(N, d)`, of equal lengths.
    """
    return np.asarray(np.argmax(readings @ candidates.T, axis=1))


def guess_words(target: SparseTarget, readings: np.ndarray, noise: float) -> np.ndarray:
    """Sets of words from noisy readings of them, by whoever knows how common words are.

    A word's chance is that after one normal reading of it. The list is of the likeliest words, as
    many as give the same room to precision and recall on average: r T/p for T used words expected.

    Args:
        target: the words' chances, and what counts as found.
        readings: `(n, domain)`, of 1 for a used word and 0 for another, with noise.
        noise: variance of each coordinate's noise.

    Returns:
        `(n, domain)` booleans.
    """
    before = np.clip(target.chances, _SURE, 1 - _SURE)
    odds = np.log(before / (1 - before)) + (readings - 0.5) / noise
    expected = special.expit(odds).sum(axis=1)
    sizes = np.clip(target.recall * expected / target.precision, 1, target.domain)
    ranks = np.argsort(np.argsort(-odds, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(ranks < np.rint(sizes)[:, None])


def words_found(target: SparseTarget, guesses: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Whether each guess has the precision and the recall of the target, as booleans `(n,)`."""
    right = (guesses & words).sum(axis=1)
    precise = right >= target.precision * guesses.sum(axis=1) - 1e-9
    return np.asarray(precise & (right >= target.recall * words.sum(axis=1) - 1e-9))


def likeliest_value(oracle: FrequencyOracle, reports: np.ndarray) -> np.ndarray:
    """The value with the largest estimate from each report alone, as indices `(n,)`.

    Where all values were equally likely it is the likeliest one, for each oracle of ours (tested by
    enumeration); the first of several.
    """
    one = (reports[i : i + 1] for i in range(len(reports)))
    found = (np.argmax(oracle.estimate(oracle.accumulate(r), 1).value) for r in one)
    return np.fromiter(found, np.int64, len(reports))
