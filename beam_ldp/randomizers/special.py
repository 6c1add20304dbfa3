"""What plans and prices need of SciPy, without the time that loading it takes.

The functions of `scipy.special`, which takes a quarter of a second to load, when one is called:

    from beam_ldp.randomizers import special

    special.ndtr(0.0)

A root and a minimum by Brent's methods, step for step as `scipy.optimize` takes them, which takes a
third of a second to load. Every result is the same to the last bit (tested): a price must not
depend on which of the two is used.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        functions = importlib.import_module("scipy.special")
    except ModuleNotFoundError as error:  # on a device
        message = "this mechanism needs SciPy: pip install 'beam-ldp-core[scipy]'"
        raise ModuleNotFoundError(message, name=error.name) from None
    found = getattr(functions, name)
    globals()[name] = found
    return found


_STEPS = 100
_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_CLOSEST = math.sqrt(2.2e-16)  # relative: below it a parabola's values cannot be told apart


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


def lowest(
    function: Callable[[float], float], low: float, high: float, xtol: float, steps: int = 500
) -> float:
    """Where `function`, which falls and then rises, is lowest between `low` and `high`.

    That of `scipy.optimize.minimize_scalar(..., method="bounded")`.

    >>> round(lowest(lambda x: (x - 2.0) ** 2, 0.0, 5.0, 1e-9), 6)
    2.0
    """
    low, high, last, step = float(low), float(high), 0.0, 0.0
    # The lowest place so far, the second and the third lowest, with their values.
    best = second = third = low + _GOLDEN * (high - low)
    f_best = f_second = f_third = function(best)
    for _ in range(steps - 1):
        middle, near = 0.5 * (low + high), _CLOSEST * abs(best) + xtol / 3.0
        if abs(best - middle) <= 2.0 * near - 0.5 * (high - low):
            break
        parabola = None
        if abs(last) > near:
            up, down = _vertex(best, second, third, f_best, f_second, f_third)
            usual, last = last, step
            if abs(up) < abs(0.5 * down * usual) and down * (low - best) < up < down * (
                high - best
            ):
                parabola = up / down
        if parabola is None:
            last = low - best if best >= middle else high - best
            step = _GOLDEN * last
        else:
            step, tried = parabola, best + parabola
            if tried - low < 2.0 * near or high - tried < 2.0 * near:
                step = near if middle >= best else -near
        tried = best + (max(abs(step), near) if step >= 0.0 else -max(abs(step), near))
        f_tried = function(tried)
        if f_tried <= f_best:
            low, high = (best, high) if tried >= best else (low, best)
            third, f_third, second, f_second = second, f_second, best, f_best
            best, f_best = tried, f_tried
        else:
            low, high = (tried, high) if tried < best else (low, tried)
            if f_tried <= f_second or second == best:
                third, f_third, second, f_second = second, f_second, tried, f_tried
            elif f_tried <= f_third or third in (best, second):
                third, f_third = tried, f_tried
    return best


def _vertex(
    best: float, second: float, third: float, f_best: float, f_second: float, f_third: float
) -> tuple[float, float]:
    """Where the parabola through three points is lowest, from the first: a fraction of two."""
    one = (best - second) * (f_best - f_third)
    other = (best - third) * (f_best - f_second)
    up, down = (best - third) * other - (best - second) * one, 2.0 * (other - one)
    return (-up if down > 0.0 else up), abs(down)
