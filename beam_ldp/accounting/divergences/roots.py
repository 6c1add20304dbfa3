"""Roots of falling curves, many at once: found quickly, and left on the safe side only."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

ABSOLUTE = 1e-15  # allowance of an epsilon: means of the ratios are 1 up to a few units of 1e-16

_NEAR_TOP = 1e-7  # relative: a search nearer to it would take long, and gain nothing
_LARGEST_GUESS = 0.9  # of the top
_USUAL_SLOPE = -25.0  # of log delta in log epsilon, at deltas of about 1e-6 in large crowds
_CLOSE = 1e-10  # relative, of a last step
_FIRST_STRIDE = 0.5  # the longest step of a search that has no bracket yet; then twice that, ...
_MOST_SECANTS = 20  # then the bracket is halved
_MOST_STEPS = 120
_OUTWARD = (3e-10, 3e-9, 3e-8, 3e-7)

Array = NDArray[np.float64]
Places = NDArray[np.intp]
Excess = Callable[[Places, Array], Array]


def safe_roots(excess: Excess, guesses: Array, tops: Array, upper: bool) -> Array:
    """The epsilons where curves change their sign, never on the unsafe side.

    Args:
        excess: Of the curves at some places, each at an epsilon of its own. Curves fall with
            epsilon, like the logarithm of a delta over a target.
        guesses: Where to look first.
        tops: Epsilons > 0 at which the curves are negative for certain.
        upper: Whether results must be at or above the roots; else at or below.

    Returns:
        Of the shape of `guesses`; 0 where a curve is negative from there on.
    """
    found, low, high = _roots(excess, guesses, tops)
    pending = np.flatnonzero((found > 0.0) & np.isfinite(found))
    roots, safe = found.copy(), high if upper else low
    for away in _OUTWARD:  # a search may end on either side
        if not len(pending):
            break
        moved = roots[pending] * (1.0 + away if upper else 1.0 - away)
        good = (excess(pending, moved) <= 0.0) == upper
        found[pending[good]] = moved[good]
        pending = pending[~good]
    found[pending] = safe[pending]
    beyond = np.isnan(found)
    found[beyond] = tops[beyond] * (1.0 + 1e-12 if upper else 1.0 - _NEAR_TOP)
    outwards = found + ABSOLUTE if upper else np.maximum(found - ABSOLUTE, 0.0)
    return np.where(found > 0.0, outwards, 0.0)


def _roots(excess: Excess, guesses: Array, tops: Array) -> tuple[Array, Array, Array]:
    """Roots, zero or not a number if a curve is negative or positive all the way; and brackets.

    By secants in log(epsilon / (1 - epsilon / top)), within a bracket as soon as there is one. In
    that, the logarithm of a delta is nearly straight at small epsilons and at those near the top.
    """
    most = math.log(1.0 / _NEAR_TOP - 1.0)
    shares = np.clip(guesses / tops, 1e-300, _LARGEST_GUESS)
    place = np.log(shares) - np.log1p(-shares)
    low, high = np.full(len(tops), -np.inf), np.full(len(tops), np.inf)
    before, height = np.full(len(tops), np.nan), np.full(len(tops), np.nan)
    found, pending, stride = place.copy(), np.arange(len(tops)), _FIRST_STRIDE
    for turn in range(_MOST_STEPS):
        now = place[pending]
        heights = excess(pending, _epsilons(now, tops[pending]))
        if turn == 0 and not np.all(heights > 0.0):
            none = heights <= 0.0
            none[none] = excess(pending[none], np.zeros(none.sum())) <= 0.0
            found[none] = -np.inf
            pending, now, heights = pending[~none], now[~none], heights[~none]
        above = heights > 0.0
        low[pending] = np.where(above, now, low[pending])
        high[pending] = np.where(above, high[pending], now)
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = (heights - height[pending]) / (now - before[pending])
            slopes = np.where(np.isnan(before[pending]), _USUAL_SLOPE, slopes)
            steps = np.where(slopes < 0.0, -heights / slopes, np.where(above, np.inf, -np.inf))
        near = np.abs(steps) <= _CLOSE
        following = np.minimum(now + np.clip(steps, -stride, stride), most)
        left, right = low[pending], high[pending]
        inside = (following > left) & (following < right) & (turn < _MOST_SECANTS)
        bounded = np.isfinite(left) & np.isfinite(right)
        following = np.where(bounded & ~inside & ~near, 0.5 * (left + right), following)
        beyond = above & (now >= most)
        near |= bounded & (right - left <= _CLOSE)
        found[pending] = np.where(beyond, np.nan, following)
        before[pending], height[pending], place[pending] = now, heights, following
        pending, stride = pending[~near & ~beyond], 2.0 * stride
        if not len(pending):
            break
    return _epsilons(found, tops), _epsilons(low, tops), _epsilons(high, tops)


def _epsilons(places: Array, tops: Array) -> Array:
    with np.errstate(over="ignore"):
        return tops / (1.0 + np.exp(-places))
