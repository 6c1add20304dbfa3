"""Exact variances and covariances of what a frequency oracle estimates.

The estimates of one release are not independent: every report speaks of all values. What that does
to sums, differences and ratios is computed here, from the law of the reports as implemented.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_ldp.randomizers.base import FrequencyOracle, Sampling, check_sampling

_CHUNK = 1 << 22  # entries of weights that are worked on together


def combination_variance(
    oracle: FrequencyOracle,
    weights: np.ndarray,
    num_users: int,
    truth: np.ndarray,
    sampling: Sampling = "fixed",
) -> np.ndarray:
    """Exact variance of weighted sums of the estimated frequencies.

    Oracles that say their `pair_support` take O(domain_size) per sum; others are enumerated where
    their channel is finite and small.

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
    if num_users < 1:
        raise ValueError(f"num_users must be at least 1, got {num_users}")
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
    pair = oracle.pair_support
    means, squares = _enumerated(oracle, rows) if pair is None else _moments(oracle, rows, *pair)
    if sampling == "fixed":
        return np.asarray((squares - means**2) @ truth)
    return np.asarray(squares @ truth - (means @ truth) ** 2)


def _moments(
    oracle: FrequencyOracle, rows: np.ndarray, own: float, others: float
) -> tuple[np.ndarray, np.ndarray]:
    """First two moments of a weighted report, for each value that a person may hold."""
    p, q = oracle.support_probabilities
    total = rows.sum(axis=1, keepdims=True)
    square = (rows**2).sum(axis=1, keepdims=True)
    rest = total - rows
    # The estimate subtracts q from every support, so weights act on supports less q.
    means = p * rows + q * rest
    squares = p * rows**2 + q * (square - rows**2)
    squares += 2 * own * rows * rest + others * (rest**2 - (square - rows**2))
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
