"""Public rotations that spread a vector evenly over its coordinates.

The Walsh-Hadamard transform, orthonormal, after public random signs. It hides nothing and needs
no secret: privacy never depends on it, only accuracy does.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.walsh_hadamard import walsh_hadamard_in_place


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
