"""What runs on a person's own device: her choice, and the one number that leaves it.

Python's standard library only, so that it can be copied as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

TIE = 1e-12


def choose(theta: Sequence[float], features: Sequence[Sequence[float]]) -> int:
    """The choice that is best by theta in her own context: the first of equal scores.

    Args:
        theta: (d,) what she was told; the same for many people, whatever their contexts.
        features: (A, d) of each choice in her own context. They stay with her.

    >>> choose([1.0, 0.0], [[0.2, 0.9], [0.7, 0.1], [0.7, -0.5]])
    1
    """
    scores = [math.fsum(a * b for a, b in zip(theta, row, strict=True)) for row in features]
    if not scores or not all(map(math.isfinite, scores)):
        raise ValueError(
            "theta and features must be finite numbers, features of one choice or more"
        )
    best = max(scores)
    return next(k for k, s in enumerate(scores) if s >= best - TIE * max(1.0, abs(best)))


def answer(
    theta: Sequence[float], features: Sequence[Sequence[float]], play: Callable[[int], float]
) -> float:
    """Her clipped reward: all that goes further, and only once it is randomized.

    Neither her context nor her choice is in it; her choice would tell of her context.

    Args:
        theta, features: as for `choose`.
        play: plays a choice, and returns its reward.

    >>> answer([1.0, 0.0], [[0.2, 0.9], [0.7, 0.1]], lambda choice: [0.0, 2.5][choice])
    1.0
    """
    reward = float(play(choose(theta, features)))
    if not math.isfinite(reward):
        raise ValueError("rewards must be finite numbers")
    return min(1.0, max(-1.0, reward))
