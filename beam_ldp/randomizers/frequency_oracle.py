"""What every frequency mechanism knows: reports that support values, read back as frequencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.entropy import entropy_bits
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.intervals import NORMAL, IntervalRule, SupportRule
from beam_ldp.randomizers.local_randomizer import LocalRandomizer, Sampling, check_sampling

MAX_DOMAIN_SIZE = 1 << 31
MAX_USERS = 1 << 62


@dataclass(frozen=True)
class FrequencyOracle(LocalRandomizer):
    """A randomizer for one of `domain_size` categories, read back as a frequency vector.

    Values are integers in [0, domain_size); `Domain` maps names to them. The estimate is
    a fraction of users per category.

    Most oracles are *pure*: each report supports a set of values, a user's own value with
    probability p and any other with probability q, and the estimate is (support/n - q)/(p - q).
    Those define `support_probabilities` and `support_counts`; the others override `estimate` and
    `variance`.

    Attributes:
        domain_size: categories.
        mixes: whether the blanket of `dominating_pair` may be mixed with those of other oracles:
            see `OneQuestion.dominating_pair` for what that takes.
    """

    domain_size: int
    local_epsilon: float

    mixes: ClassVar[bool] = False

    @classmethod
    def variants(cls, domain_size: int) -> Iterable[dict[str, Any]]:
        """Choices of the constructor that a plan tries, the usual one first."""
        return ({},)

    @classmethod
    def variants_within(cls, domain_size: int, random_bits: float) -> Iterable[dict[str, Any]]:
        """The same where a device has so many random bits for a report, on average."""
        return cls.variants(domain_size)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = check_integer("domain_size", self.domain_size, 2, MAX_DOMAIN_SIZE)
        object.__setattr__(self, "domain_size", size)

    def example_values(self, count: int) -> np.ndarray:
        return np.arange(count) % self.domain_size

    def _check_values(self, values: np.ndarray) -> np.ndarray:
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ValueError(
                f"values must be a one-dimensional integer array, got {values.ndim} dimensions "
                f"of dtype {values.dtype}"
            )
        if len(values) and (values.min() < 0 or values.max() >= self.domain_size):
            raise ValueError(f"values must lie in [0, {self.domain_size})")
        return values

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.domain_size,)

    @property
    def support_probabilities(self) -> tuple[float, float]:
        """(p, q) as implemented: a report supports its user's value, and any other value."""
        raise NotImplementedError(f"{type(self).__name__} is not a pure oracle")

    @property
    def pair_support(self) -> tuple[float, float] | None:
        """How likely a report supports two values at once: the own and another, and two others.

        None where that depends on which values, or nobody said. Oracles that say it, and mix, can
        be planned for several questions and for ranges.
        """
        return None

    def squared_support(self, weights: np.ndarray) -> np.ndarray | None:
        """Expected square of the sum of the weights of the values that a report supports.

        Args:
            weights: `(sums, domain_size)`.

        Returns:
            For each sum, and each value that the person may hold: `(sums, domain_size)`. None where
            it is not known: then errors of sums of estimates are enumerated, which takes a small
            channel.
        """
        if self.pair_support is None:
            return None
        own, others = self.pair_support
        p, q = self.support_probabilities
        rest = weights.sum(axis=1, keepdims=True) - weights
        alone = (weights**2).sum(axis=1, keepdims=True) - weights**2
        found: np.ndarray = p * weights**2 + q * alone
        found += 2 * own * weights * rest + others * (rest**2 - alone)
        return found

    @property
    def cond_entropy_bits(self) -> float:
        """H(report | value) in bits, the largest of any value: the least that a report takes.

        So many fair bits a device cannot do without, on average and whatever it computes; what is
        public of a report (a row that somebody assigns) costs it none.

        Raises:
            NotImplementedError: if the law is neither small nor known in closed form.
        """
        return max(entropy_bits(column) for column in self.channel().T.tolist())

    def lacks_random_bits(self, random_bits: float) -> str:
        """Why a device that has so many random bits for a report cannot make one; empty if it can.

        >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
        >>> KRandomizedResponse(1000, 1.0).lacks_random_bits(0.5)
        'a report takes 9.9643 random bits, random_bits is 0.5'
        """
        try:
            needed = self.cond_entropy_bits
        except NotImplementedError:
            return "does not say how many random bits a report takes"
        if needed <= random_bits * (1 + 1e-9):
            return ""
        return f"a report takes {needed:.5g} random bits, random_bits is {random_bits:g}"

    def support_counts(self, statistic: np.ndarray) -> np.ndarray:
        """Reports that support each value: `(domain_size,)`."""
        return statistic

    @property
    def reach(self) -> float:
        p, q = self.support_probabilities
        return max(1 - q, p) / (p - q)

    def frequencies(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        """The unbiased frequencies alone."""
        p, q = self.support_probabilities
        return (self.support_counts(statistic) / num_users - q) / (p - q)

    def estimate(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> Estimate:
        statistic = np.asarray(statistic)
        if statistic.shape != self.statistic_shape:
            raise ValueError(
                f"statistic must have shape {self.statistic_shape}, got {statistic.shape}"
            )
        num_users = check_integer("num_users", num_users, 0, MAX_USERS)
        if num_users == 0:
            nothing = np.full(self.domain_size, np.nan)
            return Estimate(nothing, np.full(self.domain_size, np.inf), 0)
        value = self.frequencies(statistic, num_users)
        variance = self._estimated_variance(statistic, value, num_users, sampling)
        rule = self._interval_rule(statistic, num_users, sampling)
        return Estimate(value, np.sqrt(variance), num_users, rule=rule)

    def _interval_rule(
        self, statistic: np.ndarray, num_users: int, sampling: Sampling
    ) -> IntervalRule:
        """What intervals follow from: of a pure oracle, the counts of reports that support a value;
        of others the normal approximation, unless they know better."""
        try:
            p, q = self.support_probabilities
        except NotImplementedError:
            return NORMAL
        people = num_users if sampling == "fixed" else None
        return SupportRule(num_users, people, (p, 0.0), (q, 0.0))

    def _estimated_variance(
        self, statistic: np.ndarray, value: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray:
        """The variance with what is known of the truth put in its place."""
        return self.variance(num_users, np.clip(value, 0.0, 1.0), sampling)

    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact variance per component, for fixed inputs or for inputs drawn i.i.d. from `truth`.

        Without `truth`, the largest variance that any truth gives the component.
        """
        check_sampling(sampling)
        p, q = self.support_probabilities
        scale = num_users * (p - q) ** 2
        if sampling == "fixed":
            own, other = p * (1 - p), q * (1 - q)
            if truth is None:
                return np.full(self.domain_size, max(own, other) / scale)
            truth = self._check_truth(truth)
            return (truth * own + (1 - truth) * other) / scale
        if truth is None:
            most_even = min(max(0.5, q), p)
            return np.full(self.domain_size, most_even * (1 - most_even) / scale)
        support = q + self._check_truth(truth) * (p - q)
        return support * (1 - support) / scale

    def _check_truth(self, truth: np.ndarray) -> np.ndarray:
        """The truth as floats, or a ValueError: one frequency per category."""
        truth = np.asarray(truth, dtype=float)
        if truth.shape != (self.domain_size,) or not ((truth >= 0) & (truth <= 1)).all():
            raise ValueError(f"truth must hold {self.domain_size} frequencies in [0, 1]")
        return truth
