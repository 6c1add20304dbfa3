"""Whether somebody who sees a private message can rebuild what it was made from.

Large local epsilons do not hide a person's data from all questions, but they bound how often
anybody can guess a *whole* vector, if little was known about it before. A `Target` says what counts
as rebuilt and how likely a blind guess is; the bounds here say how likely a guess becomes after a
release of a local epsilon. They hold for every message and every way of guessing. Only pure local
privacy can promise that: a delta would be a message for which it fails.

Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, sections 2 and 4. The sharp bound, the
exact masses of caps and the inverse questions are our own; docs/federated.md compares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_not_negative
from beam_ldp.randomizers.spherical_caps import SphericalCap, expit, log1mexp

Bound = Literal["sharp", "paper"]


class Target(Protocol):
    """What counts as rebuilt, and what is known about it before any message."""

    @property
    def log_prior(self) -> float:
        """Log of the chance of the best guess that sees no message."""


@dataclass(frozen=True)
class DiffuseTarget:
    """The direction of k linear features, known to within an angle.

    The features are f(x) = A x/|A x| for a k x d matrix A with orthonormal rows (low frequencies,
    say; rows of complex numbers count twice). Before the message their direction has a density of
    at most e**excess against the uniform one.

    Attributes:
        dimension: k, at least 2.
        cosine: of the angle within which a guess counts as rebuilt, in (0, 1): a distance of
            sqrt(2 - 2 cosine) between unit vectors.
        excess: rho_0 >= 0, in nats.

    >>> target = DiffuseTarget(dimension=784, cosine=0.5)
    >>> round(largest_epsilon(target, probability=0.01), 2)
    111.59
    """

    dimension: int
    cosine: float
    excess: float = 0.0

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, 2)
        check_fraction("cosine", self.cosine)
        check_not_negative("excess", self.excess)

    @property
    def log_prior(self) -> float:
        """Exact for a uniform direction; at most so for every prior of this excess."""
        return min(0.0, self.excess + SphericalCap(self.dimension, self.cosine).log_measure)

    def __str__(self) -> str:
        return f"direction of {self.dimension} features, cosine >= {self.cosine:g}"


@dataclass(frozen=True)
class ListedTarget:
    """The exact value, by whoever has a list of all that it may be.

    Attributes:
        candidates: on the list, at least 2.
        likeliest: chance of the likeliest one before any message, from 1/candidates to 1; default:
            all are equally likely.

    >>> round(breach_probability(ListedTarget(100), 4.0), 4)  # E/(E + 99)
    0.3555
    """

    candidates: int
    likeliest: float | None = None

    def __post_init__(self) -> None:
        check_integer("candidates", self.candidates, 2)
        if self.likeliest is not None and not 1 / self.candidates <= self.likeliest < 1:
            raise ValueError(
                f"likeliest must lie in [1/candidates, 1), got {self.likeliest} of "
                f"{self.candidates}"
            )

    @property
    def log_prior(self) -> float:
        """Of naming the likeliest."""
        return -math.log(self.candidates) if self.likeliest is None else math.log(self.likeliest)

    def __str__(self) -> str:
        return f"which of {self.candidates}"


def breach_probability(target: Target, local_epsilon: float, bound: Bound = "sharp") -> float:
    """Upper bound of the chance that a guess succeeds, given any message.

    Protects against whoever sees everything that one person sent, of total `local_epsilon`, and
    whose knowledge beforehand is what the target says.

    Args:
        target: what counts as rebuilt.
        local_epsilon: of all that the person sent, added up.
        bound: "sharp": the odds of a guess grow by e**local_epsilon at most; attained by PrivUnit
            for a uniform direction. "paper": Lemma 2.2, the chance does; says nothing above 1.

    Returns:
        A probability.

    >>> round(breach_probability(DiffuseTarget(64, 0.7), 10.0), 6)
    1e-06
    """
    if not local_epsilon >= 0:
        raise ValueError(f"local_epsilon must be a number >= 0, got {local_epsilon}")
    if bound not in ("sharp", "paper"):
        raise ValueError(f'bound must be "sharp" or "paper", got {bound!r}')
    prior = target.log_prior
    if prior >= 0.0:
        return 1.0
    if bound == "paper":
        return math.exp(min(0.0, prior + local_epsilon))
    return expit(_log_odds(prior) + local_epsilon)


def largest_epsilon(target: Target, probability: float) -> float:
    """The local epsilon at which the sharp bound reaches `probability`.

    Negative where guessing blindly succeeds more often than that.

    Args:
        target: what counts as rebuilt.
        probability: allowed chance of a successful guess, in (0, 1).
    """
    check_fraction("probability", probability)
    prior = target.log_prior
    return (
        -math.inf if prior >= 0.0 else math.log(probability / (1 - probability)) - _log_odds(prior)
    )


def smallest_dimension(
    local_epsilon: float, cosine: float, probability: float, excess: float = 0.0
) -> int:
    """The fewest features k whose direction is protected at this cosine.

    Fewer features can be rebuilt, or at least are not proved to be safe.

    Args:
        local_epsilon: of all that the person sent.
        cosine: of the angle within which a guess counts.
        probability: allowed chance of a successful guess.
        excess: see `DiffuseTarget`.

    >>> smallest_dimension(60.0, cosine=0.5, probability=0.01)
    428
    """
    check_fraction("probability", probability)

    def safe(dimension: int) -> bool:
        target = DiffuseTarget(dimension, cosine, excess)
        return breach_probability(target, local_epsilon) <= probability

    low, high = 1, 2
    while not safe(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if safe(middle) else (middle, high)
    return high


def excluded_cosine(
    local_epsilon: float, dimension: int, probability: float, excess: float = 0.0
) -> float:
    """The cosine above which no guess comes with more than this probability.

    1.0 where no angle is protected. Arguments as for `smallest_dimension`.

    >>> round(excluded_cosine(60.0, dimension=784, probability=0.01), 3)
    0.381
    """
    check_fraction("probability", probability)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if not 0.0 < middle < 1.0:
            break
        target = DiffuseTarget(dimension, middle, excess)
        safe = breach_probability(target, local_epsilon) <= probability
        low, high = (low, middle) if safe else (middle, high)
    return high


def _log_odds(log_probability: float) -> float:
    if log_probability == -math.inf:
        return -math.inf
    return log_probability - log1mexp(log_probability)


# Rebuilding which words somebody used: the best blind guess, exactly ----------------------
#
# Words are ordered by how common they are. The user of the j-th word is independent of all others
# and has the probability min(m/j, 1) (Zipf), where m is the number of words that everybody has to
# have used before taking part. A guess is a set of words. The best one is a list of the
# commonest: exchanging a word for a commoner one can only help. Its chance of success is a sum
# over two Poisson-binomial laws, which are computed by convolutions of positive terms, so that
# small chances are accurate too.


_NEGLIGIBLE = 1e-300  # of a probability; chances below are reported as this
_LARGEST_DOMAIN = 200_000
_ROUNDING = 1e-9  # of counts, toward success
_BLOCK = 256


@dataclass(frozen=True)
class SparseTarget:
    """A person's set of words, of which a guess names enough (recall) and few wrong (precision).

    Attributes:
        items: m, distinct words that one message is made of, at least.
        domain: d, words there are; above m, at most 200,000.
        precision: least share of the guessed words that the person used, in (0, 1].
        recall: least share of the person's words that are guessed, in (0, 1].

    >>> target = SparseTarget(items=20, domain=2000, precision=0.5, recall=0.5)
    >>> round(math.exp(target.log_prior), 3), target.best_guess
    (0.218, 108)
    """

    items: int
    domain: int
    precision: float
    recall: float

    def __post_init__(self) -> None:
        check_integer("items", self.items, 1)
        if not self.items < self.domain <= _LARGEST_DOMAIN or self.domain != int(self.domain):
            raise ValueError(
                f"domain must be an integer from items + 1 to {_LARGEST_DOMAIN}, got {self.domain}"
            )
        for name in ("precision", "recall"):
            check_fraction(name, getattr(self, name), "(]")

    @property
    def log_prior(self) -> float:
        """Log of the chance that the best guess succeeds; exact under the model.

        Costs a few milliseconds per thousand words, once.
        """
        return self._best[0]

    @property
    def best_guess(self) -> int:
        """How many of the commonest words the best guess names."""
        return self._best[1]

    @property
    def expected_items(self) -> float:
        """Expected number of words of one person: about m (1 + log(d/m))."""
        return float(self.chances.sum())

    @property
    def collecting_helps(self) -> bool:
        """Whether the blind guess fails more and more surely as m grows with d in proportion.

        The condition that Proposition 2 of the paper should have: r (1 + log(d/(m+1))) > p g(p),
        where p g = 1 + log g.
        """
        p = self.precision
        root = -float(np.real(special.lambertw(-p / math.e, -1))) / p if p < 1 else 1.0
        return self.recall * (1 + math.log(self.domain / (self.items + 1))) > p * root

    @cached_property
    def chances(self) -> np.ndarray:
        """Chance that a person used each word, commonest first: `(domain,)`."""
        return np.minimum(self.items / np.arange(1, self.domain + 1), 1.0)

    @cached_property
    def _best(self) -> tuple[float, int]:
        """Over the lengths s of the list: A words of it and B others are the person's."""
        ends = list(range(0, self.domain, _BLOCK)) + [self.domain]
        behind = [np.ones(1)]
        for start, end in zip(ends[-2::-1], ends[:0:-1]):
            behind.append(_extended(behind[-1], self.chances[start:end]))
        behind.reverse()  # behind[i]: law of B for the list that ends at ends[i]
        listed, best, length = np.ones(1), _NEGLIGIBLE, 1
        for block, (start, end) in enumerate(zip(ends, ends[1:])):
            others = [behind[block + 1]]
            for chance in self.chances[start + 1 : end][::-1]:
                others.append(_with_word(others[-1], chance))
            for size, other in zip(range(start + 1, end + 1), others[::-1]):
                listed = _with_word(listed, self.chances[size - 1])
                success = self._success(size, listed, other)
                if success > best:
                    best, length = success, size
        return min(0.0, math.log(best)), length

    def _success(self, size: int, listed: np.ndarray, other: np.ndarray) -> float:
        right = np.arange(math.ceil(self.precision * size - _ROUNDING), len(listed))
        if not right.size:
            return 0.0
        missed = np.floor(right * (1 - self.recall) / self.recall + _ROUNDING).astype(np.int64)
        below = np.cumsum(other)
        return float(listed[right] @ below[np.minimum(missed, len(below) - 1)])

    def __str__(self) -> str:
        return (
            f"{self.items}+ of {self.domain} words, precision >= {self.precision:g} and "
            f"recall >= {self.recall:g}"
        )


def _with_word(law: np.ndarray, chance: float) -> np.ndarray:
    """The law of the count with one more word."""
    longer = np.empty(len(law) + 1)
    longer[:-1] = law * (1 - chance)
    longer[-1] = 0.0
    longer[1:] += law * chance
    return longer if longer[-1] > _NEGLIGIBLE else longer[:-1]


def _extended(law: np.ndarray, chances: np.ndarray) -> np.ndarray:
    for chance in chances[::-1]:
        law = _with_word(law, chance)
    return law
