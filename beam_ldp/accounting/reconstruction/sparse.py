"""Rebuilding which words somebody used: the best blind guess, exactly.

Words are ordered by how common they are. The user of the j-th word is independent of all others and
has the probability min(m/j, 1) (Zipf), where m is the number of words that everybody has to have
used before taking part. A guess is a set of words. The best one is a list of the commonest:
exchanging a word for a commoner one can only help. Its chance of success is a sum over two
Poisson-binomial laws, which are computed by convolutions of positive terms, so that small chances
are accurate too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

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
        if self.items < 1 or self.items != int(self.items):
            raise ValueError(f"items must be an integer >= 1, got {self.items}")
        if not self.items < self.domain <= _LARGEST_DOMAIN or self.domain != int(self.domain):
            raise ValueError(
                f"domain must be an integer from items + 1 to {_LARGEST_DOMAIN}, got {self.domain}"
            )
        for name in ("precision", "recall"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)}")

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
        return float(self._chances.sum())

    @property
    def collecting_helps(self) -> bool:
        """Whether the blind guess fails more and more surely as m grows with d in proportion.

        The condition that Proposition 2 of the paper should have: r (1 + log(d/(m+1))) > p g(p),
        where p g = 1 + log g.
        """
        p = self.precision
        root = -float(np.real(special.lambertw(-p / math.e, -1))) / p if p < 1 else 1.0
        return self.recall * (1 + math.log(self.domain / (self.items + 1))) > p * root

    @property
    def paper_log_prior(self) -> float:
        """Lemma 2.3 of the paper with its faults mended: a bound that needs no summation.

        For any gamma, lists of gamma m words or more fail in precision and shorter ones in recall.
        """
        return min(0.0, min(map(self._mended, np.geomspace(2.0, self.domain / self.items, 400))))

    def _mended(self, gamma: float) -> float:
        m, d, r = self.items, self.domain, self.recall
        if gamma < 2 or self.precision * gamma < 1:
            return 0.0
        t = max(0.0, self.precision * gamma - 1 - math.log(gamma))
        tau = max(0.0, r * (1 + math.log(d / (m + 1))) - 1 - math.log(gamma))
        spread = 4 * max(r, 1 - r) ** 2 * math.log(d / m)
        imprecise = -min(t**2 * m / (4 * math.log(gamma)), 0.75 * t * m)
        return max(imprecise, -min(tau**2 * m / spread, 0.75 * tau * m))

    @cached_property
    def _chances(self) -> np.ndarray:
        return np.minimum(self.items / np.arange(1, self.domain + 1), 1.0)

    @cached_property
    def _best(self) -> tuple[float, int]:
        """Over the lengths s of the list: A words of it and B others are the person's."""
        ends = list(range(0, self.domain, _BLOCK)) + [self.domain]
        behind = [np.ones(1)]
        for start, end in zip(ends[-2::-1], ends[:0:-1]):
            behind.append(_extended(behind[-1], self._chances[start:end]))
        behind.reverse()  # behind[i]: law of B for the list that ends at ends[i]
        listed, best, length = np.ones(1), _NEGLIGIBLE, 1
        for block, (start, end) in enumerate(zip(ends, ends[1:])):
            others = [behind[block + 1]]
            for chance in self._chances[start + 1 : end][::-1]:
                others.append(_with_word(others[-1], chance))
            for size, other in zip(range(start + 1, end + 1), others[::-1]):
                listed = _with_word(listed, self._chances[size - 1])
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
