"""Counts and prices as text: a printed price is never too low, what is left never too high."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

_KNOWN = Context(10)  # digits: the others are what adding floats up leaves


def number(value: float | None) -> str:
    """Four significant digits, rounded up: of what something costs.

    >>> number(1.00001), number(20.0), number(math.inf), number(None)
    ('1.001', '20', 'unbounded', 'none')
    """
    return _rounded(value, ROUND_CEILING)


def rounded_down(value: float | None) -> str:
    """Four significant digits, rounded down: of what is left, and of lower bounds.

    >>> rounded_down(1.9999), rounded_down(20.0)
    ('1.999', '20')
    """
    return _rounded(value, ROUND_FLOOR)


def many(count: int, noun: str) -> str:
    """So many of them.

    >>> many(1, "file"), many(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def verb(count: int, one: str, more: str) -> str:
    """The word that agrees with so many.

    >>> many(1, "round") + " " + verb(1, "was", "were") + " lost"
    '1 round was lost'
    """
    return one if count == 1 else more


def factor(epsilon: float | None) -> str:
    """e^epsilon, by which odds change at most: four significant digits, rounded up.

    >>> factor(1.1), factor(8.0), factor(100.0), factor(None)
    ('3.005', '2,981', '2.689e+43', 'without bound')
    """
    if epsilon is None or epsilon > 700:
        return "without bound"
    value = math.exp(epsilon)
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{math.ceil(round(value * scale, 6)) / scale:,.15g}"


def promise(local_epsilon: float | None) -> str:
    """A local epsilon; infinite where nothing but a shuffler or a server protects people.

    >>> promise(2.0), promise(math.inf)
    ('2', 'infinite')
    """
    return "infinite" if local_epsilon == math.inf else number(local_epsilon)


def _rounded(value: float | None, how: str) -> str:
    if value is None:
        return "none"
    if not math.isfinite(value):
        return "unbounded"
    digits = f"{Context(4, how).plus(_KNOWN.create_decimal(repr(float(value) + 0.0))):f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def share(of_people: float) -> str:
    """A share in per cent, rounded up.

    >>> share(0.00123)
    '0.123 %'
    """
    return f"{number(100 * of_people)} %"
