"""Prices as text: one that is printed is never below the real one, and what is left never above."""

from __future__ import annotations

import math


def number(value: float | None) -> str:
    """Four significant digits, rounded up: of what something costs.

    >>> number(1.00001), number(20.0), number(math.inf), number(None)
    ('1.001', '20', 'unbounded', 'none')
    """
    if value is None:
        return "none"
    if not math.isfinite(value):
        return "unbounded"
    if value == 0:
        return "0"
    digits = 3 - math.floor(math.log10(abs(value)))
    scaled = math.ceil(round(value * 10.0**digits, 6)) / 10.0**digits
    return f"{scaled:.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{scaled:.0f}"


def rounded_down(value: float | None) -> str:
    """Four significant digits, rounded down: of what is left, and of lower bounds.

    >>> rounded_down(1.9999), rounded_down(20.0)
    ('1.999', '20')
    """
    if value is None or not math.isfinite(value) or value == 0:
        return number(value)
    digits = 3 - math.floor(math.log10(abs(value)))
    scaled = math.floor(round(value * 10.0**digits, 6)) / 10.0**digits
    return f"{scaled:.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{scaled:.0f}"
