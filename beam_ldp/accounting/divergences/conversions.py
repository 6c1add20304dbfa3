"""Between Rényi DP and (epsilon, delta)-DP."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from beam_ldp.randomizers.checks import check_fraction

_LEAST_ORDER = 1.01


def rdp_to_epsilon(
    orders: Sequence[float] | np.ndarray, rdp: Sequence[float] | np.ndarray, delta: float
) -> tuple[float, float]:
    """The smallest epsilon at `delta` that the Rényi curve proves, and the order that proves it.

    Args:
        orders: real orders above one.
        rdp: divergence at each order, in nats; infinite where unknown.
        delta: in (0, 1).

    Returns:
        `(epsilon, order)`; epsilon is at least 0.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12; thesis, Lemma 2.1.3 (its second
    formula is not legible in print).
    """
    check_fraction("delta", delta)
    order, value = _usable(orders, rdp)
    epsilon = value + epsilon_above_rdp(order, delta)
    best = int(np.argmin(epsilon))
    return max(0.0, float(epsilon[best])), float(order[best])


def epsilon_above_rdp(order: np.ndarray, delta: float) -> np.ndarray:
    """What the conversion adds to the divergence at an order: a constant, which may be negative."""
    return (np.log(1 / delta) + (order - 1) * np.log1p(-1 / order) - np.log(order)) / (order - 1)


def rdp_to_delta(
    orders: Sequence[float] | np.ndarray, rdp: Sequence[float] | np.ndarray, epsilon: float
) -> tuple[float, float]:
    """The smallest delta at `epsilon` that the Rényi curve proves, and the order that proves it.

    The inverse of `rdp_to_epsilon`, order by order.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    order, value = _usable(orders, rdp)
    log_delta = (order - 1) * (value - epsilon) - np.log(order - 1) + order * np.log1p(-1 / order)
    best = int(np.argmin(log_delta))
    return float(np.exp(min(0.0, float(log_delta[best])))), float(order[best])


def interpolate_order(order: float, below: float, above: float) -> float:
    """Bound at a real order from bounds at the integers below and above it.

    (a - 1) times the divergence is convex in the order a, so the chord between two integer orders
    lies above it. Source: thesis, Remark 5.3.2.

    Args:
        order: real order above one.
        below: divergence bound at floor(order).
        above: divergence bound at ceil(order).
    """
    low, high = np.floor(order), np.ceil(order)
    weight = high - order
    if low == high:
        return below
    return float((weight * (low - 1) * below + (1 - weight) * (high - 1) * above) / (order - 1))


def at_real_orders(bound: Callable[[int], float]) -> Callable[[float], float]:
    """A bound that is known at the integers from 2 on, at every real order above one.

    Below 2 the chord begins at order one, where (a - 1) times any divergence is zero.

    >>> bound = at_real_orders(lambda order: 0.01 * order)
    >>> bound(3), round(bound(2.5), 5), round(bound(1.5), 5)
    (0.03, 0.02667, 0.02)
    """

    def between(order: float) -> float:
        if not order > 1:
            raise ValueError(f"order must be > 1, got {order!r}")
        low, high = math.floor(order), math.ceil(order)
        below = bound(low) if low >= 2 else 0.0
        return interpolate_order(order, below, bound(high) if high > low else below)

    return between


def closed_form_epsilon(rho: float, delta: float) -> float:
    """Epsilon where the divergence is at most `rho` times the order, for every order.

    Source: thesis, Lemma 2.1.5: rho + 2 sqrt(rho log(1/delta)).
    """
    check_fraction("delta", delta)
    return float(rho + 2 * np.sqrt(rho * np.log(1 / delta)))


def default_orders(guess: float) -> np.ndarray:
    """Integers 2..64, then a geometric ladder up to eight times the order expected to be best."""
    top = max(64.0, min(8 * guess, 1e5))
    ladder = np.floor(64 * 1.25 ** np.arange(1, 1 + np.ceil(np.log(top / 64) / np.log(1.25))))
    return np.concatenate([np.arange(2, 65), ladder])


def _usable(
    orders: Sequence[float] | np.ndarray, rdp: Sequence[float] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    order, value = np.asarray(orders, dtype=float), np.asarray(rdp, dtype=float)
    if order.shape != value.shape:
        raise ValueError("orders and rdp must have the same length")
    if np.isnan(value).any():
        raise ValueError("rdp must not be NaN")
    keep = (order >= _LEAST_ORDER) & np.isfinite(order)
    if not keep.any():
        raise ValueError(f"orders must hold a finite order >= {_LEAST_ORDER}")
    return order[keep], value[keep]
