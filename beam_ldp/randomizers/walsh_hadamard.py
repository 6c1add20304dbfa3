"""The Walsh-Hadamard transform, and the public rotations that it makes.

The transform sums against all Sylvester-Hadamard rows at once.

The matrix of order K (a power of two) has the entries H[r, c] = (-1)**popcount(r & c); it is
symmetric and H @ H = K times the identity, so the transform is its own inverse up to 1/K.
"""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.randomizers import special
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.words import kernel, subroutine

_FEW = 1 << 16  # entries
_CACHED = 1 << 12  # float64 or int64 entries that stay in the first-level cache


def walsh_hadamard(values: ArrayLike) -> NDArray[Any]:
    """The unnormalised transform of the last axis, as a new array.

    Args:
        values: array whose last axis has a length that is a power of two. Integers (and
            booleans) are transformed exactly, as int64: sums of absolute values must stay below
            2**63. Everything else as float64.

    Returns:
        Array of the same shape: `values @ H`. O(K log K) per vector.

    Raises:
        ValueError: if the last axis is not a power of two long.

    >>> walsh_hadamard([1, 0, 2, 0]).tolist()
    [3, 3, -1, -1]
    >>> walsh_hadamard(walsh_hadamard([0.5, 1.5])) / 2
    array([0.5, 1.5])
    """
    array = np.asarray(values)
    exact = array.dtype.kind in "iub"
    result: NDArray[Any] = np.array(array, dtype=np.int64 if exact else np.float64, order="C")
    walsh_hadamard_in_place(result)
    return result


def walsh_hadamard_in_place(array: NDArray[Any]) -> None:
    """The same without a copy: a C-contiguous int64 or float64 array is overwritten.

    Raises:
        ValueError: if the array is of another kind, or its last axis is not a power of two long.
    """
    length = array.shape[-1] if array.ndim else 0
    if length < 1 or length & (length - 1):
        raise ValueError(f"the last axis must be a power of two long, got {length}")
    if array.dtype not in (np.int64, np.float64) or not array.flags.c_contiguous:
        raise ValueError(
            f"array must be C-contiguous int64 or float64, got {array.dtype} "
            f"with strides {array.strides}"
        )
    rows = array.reshape(-1, length)
    if rows.size <= _FEW and "numba" not in sys.modules:  # which takes longer to load
        _transform_few(rows)
    elif rows.size:
        _transform(rows, _CACHED)


def _transform_few(rows: NDArray[Any]) -> None:
    """The same sums as `_transform`, to the last bit, by NumPy."""
    half = rows.shape[1] // 2
    while half:
        first, second = np.moveaxis(rows.reshape(len(rows), -1, 2, half), 2, 0)
        total = first + second
        np.subtract(first, second, out=second)
        first[...] = total
        half //= 2


def hadamard_matrix(order: int) -> NDArray[np.int64]:
    """The Sylvester-Hadamard matrix itself, int64 `(order, order)`; for small orders."""
    return walsh_hadamard(np.eye(order, dtype=np.int64))


@kernel
def _transform(rows, cached):  # type: ignore[no-untyped-def]
    length = rows.shape[1]
    block = min(length, cached)
    for row in rows:
        # Long strides first, over the whole row; then each block on its own, from the cache.
        # Two butterfly levels per pass halve the traffic.
        stride = length
        while stride > block:
            if stride >= 4 * block:
                quarter = stride // 4
                for start in range(0, length, stride):
                    _two_levels(row, start, quarter)
                stride = quarter
            else:
                half = stride // 2
                for start in range(0, length, stride):
                    _one_level(row, start, half)
                stride = half
        for first in range(0, length, block):
            stride = block
            while stride >= 64:
                quarter = stride // 4
                for start in range(first, first + block, stride):
                    _two_levels(row, start, quarter)
                stride = quarter
            if stride in (2, 8, 32):  # an odd number of levels is left
                stride //= 2
                for start in range(first, first + block, 2 * stride):
                    _one_level(row, start, stride)
            if stride == 16:
                for start in range(first, first + block, 16):
                    _four_levels(row, start)
            elif stride == 4:
                for start in range(first, first + block, 4):
                    _two_levels(row, start, 1)


@subroutine
def _one_level(row, start, half):  # type: ignore[no-untyped-def]
    for i in range(start, start + half):
        a, b = row[i], row[i + half]
        row[i] = a + b
        row[i + half] = a - b


@subroutine
def _two_levels(row, start, quarter):  # type: ignore[no-untyped-def]
    # Slices of one length, so that the compiler sees a loop over neighbours.
    first, second = row[start : start + quarter], row[start + quarter : start + 2 * quarter]
    start += 2 * quarter
    third, fourth = row[start : start + quarter], row[start + quarter : start + 2 * quarter]
    for i in range(first.size):
        a, b, c, d = first[i], second[i], third[i], fourth[i]
        plus, minus, odd_plus, odd_minus = a + c, a - c, b + d, b - d
        first[i], second[i] = plus + odd_plus, plus - odd_plus
        third[i], fourth[i] = minus + odd_minus, minus - odd_minus


@subroutine
def _four_levels(row, start):  # type: ignore[no-untyped-def]
    """Sixteen neighbours: strides of four, then of one."""
    for i in range(start, start + 4):
        a, b, c, d = row[i], row[i + 4], row[i + 8], row[i + 12]
        plus, minus, odd_plus, odd_minus = a + c, a - c, b + d, b - d
        row[i], row[i + 4] = plus + odd_plus, plus - odd_plus
        row[i + 8], row[i + 12] = minus + odd_minus, minus - odd_minus
    for i in range(start, start + 16, 4):
        a, b, c, d = row[i], row[i + 1], row[i + 2], row[i + 3]
        plus, minus, odd_plus, odd_minus = a + c, a - c, b + d, b - d
        row[i], row[i + 1] = plus + odd_plus, plus - odd_plus
        row[i + 2], row[i + 3] = minus + odd_minus, minus - odd_minus


# Public rotations ------------------------------------------------------------------------


def padded_size(dimension: int) -> int:
    """The next power of two."""
    return 1 << (dimension - 1).bit_length()


def rotation_seed_of(identity: ReleaseIdentity) -> int:
    """The public seed of a release's rotation, in [0, 2**48): a function of its identity.

    Signs that are the same in every release leave the same vectors cut off in all of them, and
    whoever picks values can pick such vectors. The mechanism's digest, which the seed is part of,
    and the key and part of the release are left out.
    """
    public = replace(identity, mechanism="", part="", group="", key="")
    text = b"beam-ldp rotation of a release" + public.digest
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")


@lru_cache(maxsize=8)
def public_signs(dimension: int, seed: int) -> np.ndarray:
    """Signs +-1 of a public seed, the same on every platform and version: float64, (dimension,)."""
    stream = hashlib.shake_256(b"beam-ldp rotation signs %d" % seed).digest(-(-dimension // 8))
    bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8))[:dimension]
    signs = 1.0 - 2.0 * bits
    signs.setflags(write=False)
    return signs


def hadamard(vectors: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """Rows of H D x / sqrt(size): signs, zero-padding, transform. O(n size log size).

    Args:
        vectors: `(n, dimension)` floats.
        signs: `(dimension,)` of +-1, or None for no signs.

    Returns:
        `(n, size)` float64, `size` the next power of two; each row depends on its vector alone.
    """
    count, dimension = vectors.shape
    out = np.zeros((count, padded_size(dimension)))
    scale = 1.0 / math.sqrt(out.shape[1])
    out[:, :dimension] = vectors * (scale if signs is None else signs * scale)
    walsh_hadamard_in_place(out)
    return out


def hadamard_back(
    vector: np.ndarray, dimension: int, signs: np.ndarray | None = None
) -> np.ndarray:
    """Transpose of `hadamard` for one vector: the padding is dropped, and its noise with it."""
    out = vector[None, :] / math.sqrt(vector.size)
    walsh_hadamard_in_place(out)
    return out[0, :dimension] if signs is None else out[0, :dimension] * signs


def truncation_bias(cutoff: float) -> tuple[float, float]:
    """What clipping rotated coordinates at `cutoff` standard deviations costs, per unit of norm.

    Rotated coordinates are sums of random signs, hence sub-Gaussian with variance proxy
    norm^2/size. Integrating that tail over the signs bounds two expectations.

    Returns:
        The Euclidean norm of the bias (root of the mean square), and the bias of one component
        (mean absolute value).
    """
    tail = math.sqrt(2 * math.pi) * special.ndtr(-cutoff)
    squared = 4 * (math.exp(-(cutoff**2) / 2) - cutoff * tail)
    return math.sqrt(max(0.0, squared)), 2 * tail


def union_cutoff(num_coordinates: int, failure_probability: float) -> float:
    """Cutoff that none of `num_coordinates` rotated coordinates exceeds, but for that probability.

    Source: Hoeffding's inequality and the union bound. The thesis (section 3.6) has
    10 sqrt(log(num_coordinates/failure_probability)).
    """
    return math.sqrt(2 * math.log(2 * num_coordinates / failure_probability))
