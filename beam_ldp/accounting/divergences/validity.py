"""What a method says where it proves nothing."""

from __future__ import annotations


class OutOfRangeError(ValueError):
    """The method holds under a condition that these parameters do not meet; the text says which."""


def require(holds: bool, condition: str) -> None:
    """An `OutOfRangeError` that names the condition, unless it holds."""
    if not holds:
        raise OutOfRangeError(f"needs {condition}")
