"""Discrete Laplace noise with its exact law: integers only, no logarithm and no float is drawn."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from fractions import Fraction

Below = Callable[[int], int]


def discrete_laplace(rate: Fraction, below: Below = secrets.randbelow) -> int:
    """An integer z with probability (1 - p)/(1 + p) p^|z|, where p = e^-rate.

    Added to an integer that one person moves by s at most, it costs exactly epsilon = rate * s.

    Args:
        rate: a rational number > 0.
        below: draws an integer from 0 to m - 1 uniformly, given m; securely by default.

    Complexity: a few dozen words at the mean, whatever the rate. How long it takes depends on the
    noise a little, so that it is for a server whose clock nobody watches.

    Source: Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy,
    Algorithm 2.

    >>> all(isinstance(discrete_laplace(Fraction(1, 3)), int) for _ in range(10))
    True
    """
    if rate <= 0:
        raise ValueError(f"rate must be > 0, got {rate}")
    while True:
        rest = below(rate.denominator)
        if not _is_exponential(Fraction(rest, rate.denominator), below):
            continue
        whole = 0
        while _is_exponential(Fraction(1), below):
            whole += 1
        size = (rest + rate.denominator * whole) // rate.numerator
        negative = _coin(Fraction(1, 2), below)
        if size or not negative:  # or zero would come in two ways
            return -size if negative else size


def _is_exponential(exponent: Fraction, below: Below) -> bool:
    """True with probability e^-exponent, for an exponent of [0, 1]: von Neumann's way."""
    trials = 1
    while _coin(exponent / trials, below):
        trials += 1
    return trials % 2 == 1


def _coin(probability: Fraction, below: Below) -> bool:
    return below(probability.denominator) < probability.numerator
