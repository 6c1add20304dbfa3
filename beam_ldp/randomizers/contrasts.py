"""Sums, differences and ratios of estimates, with errors that know what is correlated.

Estimates of one release are correlated, for every report speaks of all values: sums and differences
of them are taken with the exact covariance of the oracle (`combine`). Estimates about different
people (groups, windows) or from different releases are independent (`difference_of`, `ratio_of`).
Intervals of ratios are Fieller's, which hold where the delta method fails: near a denominator of
zero they become half-lines or everything, and say so.

Source: Fieller 1954.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.base import FrequencyOracle, Sampling, check_sampling
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.intervals import NORMAL, Difference

# Exact variances and covariances of what a frequency oracle estimates ---------------------
#
# The estimates of one release are not independent: every report speaks of all values. What that
# does to sums, differences and ratios is computed here, from the law of the reports as
# implemented.


_CHUNK = 1 << 22  # entries of weights that are worked on together


def combination_variance(
    oracle: FrequencyOracle,
    weights: np.ndarray,
    num_users: int,
    truth: np.ndarray,
    sampling: Sampling = "fixed",
) -> np.ndarray:
    """Exact variance of weighted sums of the estimated frequencies.

    Oracles that say their `squared_support` take O(domain_size) per sum, or as long as to decode;
    others are enumerated where their channel is finite and small.

    Args:
        oracle: that made the reports.
        weights: `(domain_size,)`, or `(sums, domain_size)`.
        num_users: whose reports were received, at least 1.
        truth: frequencies; of an estimate, clip them to [0, 1] first.
        sampling: errors about these users' own values, or about the population of an i.i.d. sample.

    Returns:
        The variance, or one for each sum.

    Raises:
        NotImplementedError: for an oracle whose reports cannot be enumerated.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> oracle = KRandomizedResponse(3, 1.0)
    >>> truth = np.array([0.5, 0.3, 0.2])
    >>> bool(np.isclose(combination_variance(oracle, np.ones(3), 10, truth), 0))  # they sum to one
    True
    """
    check_sampling(sampling)
    truth = oracle._check_truth(truth)
    rows = np.atleast_2d(np.asarray(weights, dtype=float))
    if rows.ndim != 2 or rows.shape[1] != oracle.domain_size:
        raise ValueError(f"weights must hold {oracle.domain_size} numbers per sum")
    check_integer("num_users", num_users, 1)
    step = max(1, _CHUNK // oracle.domain_size)
    parts = [
        _per_person(oracle, rows[start : start + step], truth, sampling)
        for start in range(0, len(rows), step)
    ]
    found: np.ndarray = np.maximum(np.concatenate(parts), 0.0) / num_users
    return found if np.ndim(weights) > 1 else found[0]


def covariance(
    oracle: FrequencyOracle, num_users: int, truth: np.ndarray, sampling: Sampling = "fixed"
) -> np.ndarray:
    """The covariance matrix of the estimated frequencies. Arguments: `combination_variance`."""
    k = oracle.domain_size
    single = combination_variance(oracle, np.eye(k), num_users, truth, sampling)
    matrix = np.diag(single)
    for i in range(k):
        rows = np.zeros((k - i - 1, k))
        rows[:, i] = 1.0
        rows[np.arange(k - i - 1), np.arange(i + 1, k)] = 1.0
        if len(rows):
            both = combination_variance(oracle, rows, num_users, truth, sampling)
            matrix[i, i + 1 :] = matrix[i + 1 :, i] = (both - single[i] - single[i + 1 :]) / 2
    return matrix


def _per_person(
    oracle: FrequencyOracle, rows: np.ndarray, truth: np.ndarray, sampling: Sampling
) -> np.ndarray:
    """Variance of one person's part, averaged over people."""
    supports = oracle.squared_support(rows)
    found = _enumerated(oracle, rows) if supports is None else _moments(oracle, rows, supports)
    means, squares = found
    if sampling == "fixed":
        return np.asarray((squares - means**2) @ truth)
    return np.asarray(squares @ truth - (means @ truth) ** 2)


def _moments(
    oracle: FrequencyOracle, rows: np.ndarray, squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """First two moments of a weighted report, for each value that a person may hold."""
    p, q = oracle.support_probabilities
    total = rows.sum(axis=1, keepdims=True)
    # The estimate subtracts q from every support, so weights act on supports less q.
    means = p * rows + q * (total - rows)
    shifted = means - q * total
    centred = squares - 2 * q * total * means + (q * total) ** 2
    return shifted / (p - q), centred / (p - q) ** 2


def _enumerated(oracle: FrequencyOracle, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same from the whole channel."""
    table = oracle.channel()
    reports: Any = oracle.channel_reports()
    weighted = np.empty((len(rows), len(table)))
    for i in range(len(table)):
        statistic = oracle.accumulate(reports[i : i + 1])
        weighted[:, i] = rows @ oracle.estimate(statistic, 1).value
    return weighted @ table, weighted**2 @ table


def combine(
    estimate: Estimate,
    oracle: FrequencyOracle,
    weights: np.ndarray | Sequence[float],
    sampling: Sampling = "fixed",
) -> Estimate:
    """Weighted sums of the frequencies of one release, such as a difference of two values.

    Args:
        estimate: of `oracle`; its unbiased values are taken.
        oracle: that made the reports.
        weights: `(domain_size,)`, or `(sums, domain_size)`.
        sampling: as in `FrequencyOracle.estimate`.

    Returns:
        One entry per sum, with exact standard errors at the estimated frequencies.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> oracle = KRandomizedResponse(3, 2.0)
    >>> estimate = oracle.estimate(np.array([600, 300, 100]), 1000)
    >>> lead = combine(estimate, oracle, [1, -1, 0])
    >>> print(lead.value.round(3), lead.standard_error.round(3))
    [0.441] [0.03]
    """
    rows = np.atleast_2d(np.asarray(weights, dtype=float))
    variance = combination_variance(
        oracle, rows, estimate.num_users, _plausible(estimate), sampling
    )
    return Estimate(rows @ estimate.raw.value, np.sqrt(variance), estimate.num_users)


def _plausible(estimate: Estimate) -> np.ndarray:
    """Frequencies to compute variances at: not negative, and all of them are one.

    The nearest ones: of many rare values half come out above zero, and to scale all would leave
    them most of the whole.
    """
    return estimate.raw.project_to_simplex().value


def difference_of(first: Estimate, second: Estimate) -> Estimate:
    """First minus second, entry by entry, of estimates about different people or releases.

    `num_users` is that of the smaller one. Frequencies of groups, say; for counts use `to_counts()`
    of both.
    """
    _check_alike(first, second)
    one, two = first.raw, second.raw
    normal = one.rule == two.rule == NORMAL
    return Estimate(
        one.value - two.value,
        np.hypot(one.standard_error, two.standard_error),
        min(first.num_users, second.num_users),
        rule=NORMAL if normal else Difference(one, two),
    )


@dataclass(frozen=True)
class Ratio:
    """A ratio with a confidence set.

    Attributes:
        value: numerator over denominator; not unbiased.
        standard_error: by the delta method, for orientation; infinite at a denominator of zero.
        low, high: ends of Fieller's set at `level`. Where `low > high` the set is everything but
            the numbers between `high` and `low`; infinite ends: everything.
        level: of the set.
        bounded: whether the set is an interval: the denominator is known not to be zero.
    """

    value: float
    standard_error: float
    low: float
    high: float
    level: float
    bounded: bool

    def holds(self, ratio: float) -> bool:
        """Whether the set holds that number."""
        if self.low <= self.high:
            return self.low <= ratio <= self.high
        return ratio <= self.high or ratio >= self.low


def ratio(
    estimate: Estimate,
    oracle: FrequencyOracle,
    numerator: np.ndarray | Sequence[float],
    denominator: np.ndarray | Sequence[float],
    *,
    sampling: Sampling = "fixed",
    level: float = 0.95,
) -> Ratio:
    """The ratio of two weighted sums of one release, such as one value among several.

    Args:
        estimate, oracle, sampling: as in `combine`.
        numerator, denominator: weights, `(domain_size,)`.
        level: probability with which the set holds the true ratio (normal errors supposed).

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> oracle = KRandomizedResponse(3, 2.0)
    >>> estimate = oracle.estimate(np.array([600, 300, 100]), 1000)
    >>> found = ratio(estimate, oracle, [1, 0, 0], [1, 1, 0])
    >>> print(round(found.value, 2), round(found.low, 2), round(found.high, 2), found.bounded)
    0.72 0.69 0.75 True
    """
    top, bottom = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    sums = combine(estimate, oracle, np.stack([top, bottom, top + bottom]), sampling)
    first, second, both = (sums.standard_error**2).tolist()
    covariance = (both - first - second) / 2
    above, below = sums.value[:2].tolist()
    return fieller(above, below, first, second, covariance, level)


def ratio_of(first: Estimate, second: Estimate, index: int = 0, *, level: float = 0.95) -> Ratio:
    """First over second, of one entry of estimates about different people or releases."""
    _check_alike(first, second)
    one, two = first.raw, second.raw
    return fieller(
        float(one.value[index]),
        float(two.value[index]),
        float(one.standard_error[index]) ** 2,
        float(two.standard_error[index]) ** 2,
        0.0,
        level,
    )


def fieller(
    numerator: float,
    denominator: float,
    numerator_variance: float,
    denominator_variance: float,
    covariance: float,
    level: float = 0.95,
) -> Ratio:
    """Fieller's set: all r for which numerator - r * denominator may be zero."""
    check_fraction("level", level)

    z2 = float(special.ndtri((1 - level) / 2)) ** 2
    value = numerator / denominator if denominator else math.nan
    error = math.inf
    if denominator:
        spread = numerator_variance - 2 * value * covariance + value**2 * denominator_variance
        error = math.sqrt(max(spread, 0.0)) / abs(denominator)
    # (numerator - r denominator)^2 <= z^2 (v1 - 2 r c + r^2 v2) is a r^2 - 2 b r + c <= 0.
    a = denominator**2 - z2 * denominator_variance
    b = numerator * denominator - z2 * covariance
    c = numerator**2 - z2 * numerator_variance
    root = b * b - a * c
    if a > 0:
        half = math.sqrt(max(root, 0.0))
        return Ratio(value, error, (b - half) / a, (b + half) / a, level, True)
    if root <= 0 or a == 0:
        return Ratio(value, error, -math.inf, math.inf, level, False)
    half = math.sqrt(root)
    ends = sorted(((b - half) / a, (b + half) / a))
    return Ratio(value, error, ends[1], ends[0], level, False)


def _check_alike(first: Estimate, second: Estimate) -> None:
    if first.value.shape != second.value.shape:
        raise ValueError(
            f"estimates must have one shape, got {first.value.shape} and {second.value.shape}"
        )
