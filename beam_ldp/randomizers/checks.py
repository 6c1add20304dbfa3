"""What arguments may be: each check names the argument, and what is allowed, in one form."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal

Ends = Literal["()", "(]", "[)", "[]"]


def check_integer(name: str, number: Any, least: int, most: int) -> int:
    """The number as an int, or a ValueError that names the argument."""
    whole = isinstance(number, Integral) or (isinstance(number, float) and number.is_integer())
    if isinstance(number, bool) or not whole or not least <= number <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {number!r}")
    return int(number)


def check_positive(name: str, number: float) -> None:
    """A ValueError unless the number is finite and above zero."""
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {number!r}")


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
