"""Prices as text: one that is printed is never below the real one, and what is left never above."""

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


def _rounded(value: float | None, how: str) -> str:
    if value is None:
        return "none"
    if not math.isfinite(value):
        return "unbounded"
    digits = f"{Context(4, how).plus(_KNOWN.create_decimal(repr(float(value) + 0.0))):f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
