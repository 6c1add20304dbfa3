"""A root by Brent's method, step for step as `scipy.optimize.brentq` takes it.

`scipy.optimize` takes a third of a second to load, and pricing needs nothing else of it. Every
root is the same to the last bit (tested), for a price must not depend on which of the two is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_STEPS = 100


def brentq(
    function: Callable[[float], float],
    low: float,
    high: float,
    xtol: float = 2e-12,
    rtol: float = 4 * 2.0**-52,
) -> float:
    """Where `function` changes its sign between `low` and `high`.

    Raises:
        ValueError: if it has the same sign at both.
        RuntimeError: if a hundred steps do not find it.

    >>> round(brentq(lambda x: x * x - 2.0, 0.0, 2.0), 12) == round(2**0.5, 12)
    True
    """
    before, now = float(low), float(high)
    f_before, f_now = float(function(before)), float(function(now))
    if f_before == 0.0:
        return before
    if f_now == 0.0:
        return now
    if (f_before < 0.0) == (f_now < 0.0):
        raise ValueError("f(a) and f(b) must have different signs")
    other = f_other = last = step = 0.0
    for _ in range(_STEPS):
        if f_before != 0.0 and f_now != 0.0 and (f_before < 0.0) != (f_now < 0.0):
            other, f_other = before, f_before
            last = step = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        near = (xtol + rtol * abs(now)) / 2
        half = (other - now) / 2
        if f_now == 0.0 or abs(half) < near:
            return now
        trial = math.inf
        if abs(last) > near and abs(f_now) < abs(f_before):
            trial = _interpolated(before, now, other, f_before, f_now, f_other)
        if 2 * abs(trial) < min(abs(last), 3 * abs(half) - near):
            last, step = step, trial
        else:
            last = step = half
        before, f_before = now, f_now
        now += step if abs(step) > near else math.copysign(near, half)
        f_now = float(function(now))
    raise RuntimeError(f"no root after {_STEPS} steps")


def _interpolated(
    before: float, now: float, other: float, f_before: float, f_now: float, f_other: float
) -> float:
    """The step that a line, or an inverse parabola, through the last points suggests."""
    try:
        if before == other:
            return -f_now * (now - before) / (f_now - f_before)
        d_before = (f_before - f_now) / (before - now)
        d_other = (f_other - f_now) / (other - now)
        return (
            -f_now
            * (f_other * d_other - f_before * d_before)
            / (d_other * d_before * (f_other - f_before))
        )
    except ZeroDivisionError:
        return math.inf
