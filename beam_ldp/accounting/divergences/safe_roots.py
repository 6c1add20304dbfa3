"""Roots of falling curves, found quickly and left on the safe side only."""

from __future__ import annotations

import math
from collections.abc import Callable

from beam_ldp.randomizers.roots import brentq

ABSOLUTE = 1e-15  # allowance of an epsilon: means of the ratios are 1 up to a few units of 1e-16

_MOST_SECANTS = 12
_USUAL_SLOPE = -25.0  # of log delta in log epsilon, at deltas of about 1e-6 in large crowds


def safe_root(excess: Callable[[float], float], guess: float, top: float, upper: bool) -> float:
    """The epsilon where `excess` changes its sign, never on the unsafe side.

    Args:
        excess: Falls with epsilon, through zero.
        guess: Where to look first; below `top`.
        top: Epsilon at which it is negative for certain.
        upper: Whether the result must be at or above the root; else at or below.
    """
    root = secant_root(excess, guess, top)
    found = None if root is None else outward(excess, root, upper)
    if found is None:
        low, high = bracket(excess, guess, top, 1.001)
        if low == high:
            return top * (1.0 + 1e-12) + ABSOLUTE if upper else top * (1.0 - 1e-9)
        root = brentq(excess, low, high, xtol=1e-10 * high, rtol=1e-10)
        found = outward(excess, root, upper)
    if found is None:
        found = high if upper else low
    return found + ABSOLUTE if upper else max(0.0, found - ABSOLUTE)


def secant_root(excess: Callable[[float], float], guess: float, top: float) -> float | None:
    """The root by a few secants in the logarithm of epsilon, or None if they do not find it."""
    position = math.log(max(guess, 1e-300))
    last: tuple[float, float] | None = None
    slope = _USUAL_SLOPE
    for _ in range(_MOST_SECANTS):
        if not math.exp(position) < top * (1.0 - 1e-9):
            return None
        found = excess(math.exp(position))
        if last is not None:
            slope = (found - last[1]) / (position - last[0])
        if not slope < 0.0:
            return None
        step = -found / slope
        if abs(step) < 1e-10:
            return math.exp(position + step)
        last = (position, found)
        position += max(-0.5, min(0.5, step))
    return None


def outward(excess: Callable[[float], float], root: float, upper: bool) -> float | None:
    """A few steps to the safe side of a root that a finder may have left on either."""
    for away in (3e-10, 3e-9, 3e-8, 3e-7):
        moved = root * (1.0 + away if upper else 1.0 - away)
        if (excess(moved) <= 0.0) == upper:
            return moved
    return None


def bracket(
    excess: Callable[[float], float], guess: float, top: float, growth: float
) -> tuple[float, float]:
    """Two epsilons around the root; twice `top` if only pure privacy reaches it."""
    low = high = guess
    if excess(guess) > 0.0:
        while True:
            low, high, growth = high, min(top, high * growth), min(1.5, growth**2)
            if high >= top:
                inside = top * (1.0 - 1e-9)
                return (top, top) if low >= inside or excess(inside) > 0.0 else (low, inside)
            if excess(high) <= 0.0:
                return low, high
    while True:
        low, high, growth = low / growth, low, min(1.5, growth**2)
        if excess(low) > 0.0:
            return low, high
