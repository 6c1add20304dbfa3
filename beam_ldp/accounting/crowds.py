"""How many people hide each other, where some reports may be fake."""

from __future__ import annotations

import math
from fractions import Fraction


def hidden_users(num_users: int, honest_fraction: float) -> int:
    """The users whose reports are certainly not fake: those who hide each other."""
    if not 0.0 < honest_fraction <= 1.0:
        raise ValueError(f"honest_fraction must be in (0, 1], got {honest_fraction!r}")
    # The fraction as written: floor(0.1 * 10) must be 1 and floor(0.29 * 100) must be 29.
    return max(1, math.floor(num_users * Fraction(repr(float(honest_fraction)))))
