"""Learners of contextual bandits to stand beside: public ones without privacy, and one of local
privacy. Small and plain; each sees features of shape (A, d) for each person, and one reward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import dp_accounting
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Choose = Callable[[int, Floats], int]  # number of the person, and her features: her choice


@dataclass
class Ridge:
    """Least squares with a penalty, one observation at a time.

    Source: Li, Chu, Langford and Schapire (2010), A contextual-bandit approach to personalized news
    article recommendation, Algorithm 1, with one parameter for all actions (its section 3.2).

    >>> ridge = Ridge(2)
    >>> for _ in range(1000):
    ...     ridge.learn(np.array([1.0, 0.0]), 0.5)
    >>> ridge.theta.round(2)
    array([0.5, 0. ])
    """

    dimension: int

    def __post_init__(self) -> None:
        self.inverse = np.eye(self.dimension)  # of the Gram matrix, and the penalty of 1
        self._moments = np.zeros(self.dimension)
        self.theta = np.zeros(self.dimension)

    def learn(self, features: Floats, reward: float) -> None:
        """Sherman and Morrison's update: O(d^2)."""
        image = self.inverse @ features
        self.inverse -= np.outer(image, image) / (1.0 + features @ image)
        self._moments += reward * features
        self.theta = self.inverse @ self._moments


def lin_ucb(ridge: Ridge, alpha: float = 1.0) -> Choose:
    """The choice of the largest upper confidence bound, of `alpha` standard deviations."""

    def choose(_: int, features: Floats) -> int:
        spread = np.sqrt(np.einsum("ad,de,ae->a", features, ridge.inverse, features))
        return int(np.argmax(features @ ridge.theta + alpha * spread))

    return choose


def epsilon_greedy(ridge: Ridge, rng: np.random.Generator, explored: float = 0.05) -> Choose:
    """The best choice so far, but for a share of people who have a random one."""

    def choose(_: int, features: Floats) -> int:
        if rng.random() < explored:
            return int(rng.integers(len(features)))
        return int(np.argmax(features @ ridge.theta))

    return choose


def accuracy_of(
    choose: Choose, ridge: Ridge, features: Floats, labels: Indices, people: Indices
) -> float:
    """Share of people with the right choice; rewards are 1 for it and -1 for others.

    Args:
        choose: who learns by `ridge`.
        ridge: what learns.
        features: (C, A, d) of each row of the data.
        labels: (C,) right choices.
        people: (T,) rows, as they come.
    """
    right = 0
    for number, row in enumerate(people):
        choice = choose(number, features[row])
        hit = choice == labels[row]
        ridge.learn(features[row, choice], 1.0 if hit else -1.0)
        right += int(hit)
    return right / len(people)


def noisy_gram_accuracy(
    features: Floats, labels: Indices, people: Indices, epsilon: float, delta: float,
    rng: np.random.Generator, every: int = 500,
) -> float:  # fmt: skip
    """Share of people with the right choice, where each sends her Gram matrix and moments noisily.

    Contexts, choices and rewards are protected: (epsilon, delta) of each report, by Gaussian noise.
    A person chooses on her own device, by an upper confidence bound from what the server tells,
    with a penalty that keeps the noisy Gram matrix positive.

    Source: Zheng, Cai, Huang, Li and Wang (2020), Locally differentially private (contextual)
    bandits learning, Algorithm 4, with the noise that dp-accounting finds for its sensitivity, and
    people in groups of `every` between which nothing is learned.
    """
    dimension, horizon = features.shape[2], len(people)
    # Two reports (x x^T, r x) with |x| <= 1 are sqrt(4.5) apart at most: at an angle of 60 degrees.
    scale = 4.5**0.5 * dp_accounting.get_sigma_gaussian(epsilon, delta)
    shift = 2 * scale * (4 * dimension**0.5 + 2 * np.log(2 * horizon)) * horizon**0.5
    gram, moments, right = np.zeros((dimension, dimension)), np.zeros(dimension), 0
    for begin in range(0, horizon, every):
        rows = people[begin : begin + every]
        inverse = np.linalg.inv(gram + shift * np.eye(dimension))
        seen = features[rows]
        squares = np.einsum("nad,de,nae->na", seen, inverse, seen)
        scores = seen @ (inverse @ moments) + np.sqrt(shift * np.maximum(squares, 0.0))
        choices = scores.argmax(axis=1)
        hits = choices == labels[rows]
        x, summed = features[rows, choices], scale * len(rows) ** 0.5
        noise = np.triu(rng.normal(0, summed, (dimension, dimension)))
        gram += x.T @ x + noise + np.triu(noise, 1).T
        moments += (2.0 * hits - 1) @ x + rng.normal(0, summed, dimension)
        right += int(hits.sum())
    return right / horizon
