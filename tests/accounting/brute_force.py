"""Laws of small shuffled releases by enumeration: the judge of every bound."""

from __future__ import annotations

import math

import numpy as np


def shuffled_law(channel: np.ndarray, dataset: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """The law of the histogram of reports, by polynomial multiplication."""
    outputs = channel.shape[0]
    law = {(0,) * outputs: 1.0}
    for value in dataset:
        following: dict[tuple[int, ...], float] = {}
        for histogram, mass in law.items():
            for report in range(outputs):
                key = tuple(h + (i == report) for i, h in enumerate(histogram))
                following[key] = following.get(key, 0.0) + mass * channel[report, value]
        law = following
    return law


def renyi(p: dict, q: dict, order: float) -> float:
    return math.log(sum(q[y] * (p[y] / q[y]) ** order for y in q)) / (order - 1)


def response(k: int, epsilon: float) -> np.ndarray:
    weights = np.ones((k, k)) + (math.exp(epsilon) - 1) * np.eye(k)
    return weights / weights.sum(axis=0)
