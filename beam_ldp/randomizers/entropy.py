"""How many random bits a choice takes: entropies, and the law that a budget of bits allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

_HALVINGS = 1100  # down to the smallest positive float


def entropy_bits(probabilities: Iterable[float]) -> float:
    """Entropy of a law, in bits; what it leaves out of a sum of one is left out.

    >>> entropy_bits([0.5, 0.25, 0.25])
    1.5
    """
    return math.fsum(-p * math.log2(p) for p in probabilities if p > 0.0)


def binary_entropy(chance: float) -> float:
    """Bits of a coin that shows heads with this chance: 1 for a fair one."""
    return entropy_bits((chance, 1.0 - chance))


def inverse_binary_entropy(bits: float) -> float:
    """The rarer side of the most even coin of at most so many bits: between 0 and 1/2.

    >>> round(inverse_binary_entropy(0.5), 9), inverse_binary_entropy(1.0)
    (0.110027864, 0.5)
    """
    return largest_within(bits, binary_entropy, 0.5)


def critical_bits(local_epsilon: float) -> float:
    """Bits of plain randomized response, which lies with chance 1/(e**local_epsilon + 1).

    >>> round(critical_bits(1.0), 6)
    0.839942
    """
    return binary_entropy(1.0 / (math.exp(min(local_epsilon, 700.0)) + 1.0))


def largest_within(bits: float, cost: Callable[[float], float], most: float) -> float:
    """The largest float of [0, most] whose cost, which grows from 0 on, is at most `bits`."""
    if cost(most) <= bits:
        return most
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if cost(middle) <= bits else (low, middle)
    return low
