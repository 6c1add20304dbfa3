"""What arguments may be: each check names the argument, and what is allowed, in one form."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal

Ends = Literal["()", "(]", "[)", "[]"]


def check_integer(name: str, number: Any, least: int, most: int | None = None) -> int:
    """The number as an int, or a ValueError that names the argument.

    >>> check_integer("count", 3.0, 1)
    3
    >>> check_integer("count", math.nan, 1)
    Traceback (most recent call last):
    ValueError: count must be an integer >= 1, got nan
    """
    whole = isinstance(number, Integral) or (isinstance(number, float) and number.is_integer())
    small = most is None or (whole and number <= most)
    if isinstance(number, bool) or not whole or not (least <= number and small):
        allowed = f">= {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be an integer {allowed}, got {number!r}")
    return int(number)


def check_positive(name: str, number: float) -> None:
    """A ValueError unless the number is finite and above zero."""
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {number!r}")


def check_not_negative(name: str, number: float) -> None:
    """A ValueError unless the number is finite and at least zero."""
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be a finite number >= 0, got {number!r}")


def check_fraction(name: str, number: float, ends: Ends = "()") -> None:
    """A ValueError unless the number lies between 0 and 1; `ends` says which of both it may be.

    >>> check_fraction("rate", 1.0, "(]")
    >>> check_fraction("delta", 1.0)
    Traceback (most recent call last):
    ValueError: delta must lie in (0, 1), got 1.0
    """
    zero, one = number == 0 and ends[0] == "[", number == 1 and ends[1] == "]"
    if not (0 < number < 1 or zero or one):
        raise ValueError(f"{name} must lie in {ends[0]}0, 1{ends[1]}, got {number!r}")
