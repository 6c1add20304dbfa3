"""Clients with their examples, in memory, and the public examples that models are tested on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Clients:
    """Labelled examples of clients, in the simulation's memory.

    Attributes:
        name: of the data.
        features: one float32 array per client, (points, *shape).
        labels: one int32 array per client, (points,).
        num_classes: labels are 0 to num_classes - 1.
        test_features, test_labels: public examples; None where there are none.
        left_out: why clients or rows were not used, and how many (see `docs/training.md`).
    """

    name: str
    features: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    num_classes: int
    test_features: np.ndarray | None = None
    test_labels: np.ndarray | None = None
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def num_clients(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example."""
        return tuple(self.features[0].shape[1:])

    @property
    def points_per_client(self) -> int:
        """Examples that every client has at least."""
        return min(len(labels) for labels in self.labels)

    def dataset(self, client: int) -> tf.data.Dataset:
        """The examples of one client, as one batch."""
        return tf.data.Dataset.from_tensors((self.features[client], self.labels[client]))

    def datasets(self, chosen: Sequence[int]) -> list[tf.data.Dataset]:
        """Those of several."""
        return [self.dataset(client) for client in chosen]


def dealt(
    name: str,
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    points_per_client: int = 1,
    test: tuple[np.ndarray, np.ndarray] | None = None,
    test_every: int = 5,
    seed: int = 0,
) -> Clients:
    """Examples dealt out to clients at random, `points_per_client` each.

    Without `test`, every `test_every`-th example becomes a public one. What is left over after
    dealing is not used. The deal is the same in every run: it is not part of any guarantee.

    Raises:
        ValueError: if there are fewer examples than one client needs.
    """
    features, labels = features.astype(np.float32), labels.astype(np.int32)
    if test is None:
        public = np.arange(len(labels)) % test_every == 0
        test = features[public], labels[public]
        features, labels = features[~public], labels[~public]
    count = len(labels) // points_per_client if points_per_client > 0 else 0
    if count < 1:
        raise ValueError(
            f"points_per_client must lie in [1, {len(labels)}], got {points_per_client}"
        )
    order = np.random.default_rng(seed).permutation(len(labels))[: count * points_per_client]
    return Clients(
        name,
        list(features[order].reshape(count, points_per_client, *features.shape[1:])),
        list(labels[order].reshape(count, points_per_client)),
        num_classes,
        test[0].astype(np.float32),
        test[1].astype(np.int32),
    )
