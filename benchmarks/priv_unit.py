"""Time per vector of the mechanisms around PrivUnit, and of ways to draw secure normals.

python benchmarks/priv_unit.py            # one core, best of several runs
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import special

from beam_ldp.randomizers.mean.minimal_random_coding import MinimalRandomCoding
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.priv_unit_inf import PrivUnitInf
from beam_ldp.randomizers.mean.projected_priv_unit import ProjectedPrivUnit
from beam_ldp.randomizers.mean.random_codebook_mean import RandomCodebookMean
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from beam_ldp.randomizers.normals import spare_words, standard_normals
from beam_ldp.randomizers.randomness import FreshWords

EPSILON = 8.0
CASES = [  # mechanism, users
    (PrivUnit(1000, EPSILON), 640),
    (PrivUnit(16384, EPSILON), 64),
    (PrivUnit(10**6, EPSILON), 2),
    (PrivUnitGaussian(1000, EPSILON), 640),
    (PrivUnitInf(1000, EPSILON), 640),
    (SeparatedMean(1000, EPSILON), 640),
    (ProjectedPrivUnit(16384, EPSILON, projected=1024), 64),
    (RandomCodebookMean(1000, EPSILON, index_bits=8), 64),
    (MinimalRandomCoding(1000, EPSILON, index_bits=8), 64),
]


def best_seconds(function: Callable[[], object], repeats: int = 9) -> float:
    """Shortest wall time of several calls, after one that compiles."""
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def normals(count: int = 60, length: int = 1000) -> None:
    """Nanoseconds per normal, words included except for NumPy's generator (not secure)."""
    source = FreshWords()

    def uniforms() -> np.ndarray:
        return (source.words(0, count, length) >> np.uint64(11)) * 2.0**-53 + 2.0**-54

    def box_muller() -> np.ndarray:
        first, second = np.split(uniforms(), 2, axis=1)
        radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    ways: dict[str, Callable[[], object]] = {
        "AES-CTR words alone": lambda: source.words(0, count, length),
        "ziggurat on words (ours)": lambda: standard_normals(
            source.words(0, count, spare_words(length)), length, source.extra
        ),
        "Box-Muller on words": box_muller,
        "inverse normal law on words": lambda: special.ndtri(uniforms()),
        "numpy Generator (not secure)": lambda: np.random.default_rng(0).standard_normal(
            (count, length)
        ),
    }
    for name, way in ways.items():
        print(f"{name:32s} {best_seconds(way, 30) / (count * length) * 1e9:8.2f} ns")


def mechanisms() -> None:
    """Microseconds per vector to randomize and to accumulate; bits; error per user."""
    titles = ("mechanism", "d", "randomize", "accumulate", "bits", "MSE")
    print("\n{:22s} {:>8s} {:>12s} {:>12s} {:>10s} {:>10s}".format(*titles))
    for mechanism, users in CASES:
        d = mechanism.dimension
        vectors = np.random.default_rng(1).standard_normal((users, d))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        reports = mechanism.randomize(vectors)
        send = best_seconds(partial(mechanism.randomize, vectors)) / users
        read = best_seconds(partial(mechanism.accumulate, reports)) / users
        error = mechanism.mean_squared_error(1, vectors)
        print(
            f"{type(mechanism).__name__:22s} {d:8d} {send * 1e6:9.1f} us {read * 1e6:9.1f} us "
            f"{mechanism.bits_per_report:10d} {error:10.1f}"
        )


if __name__ == "__main__":
    normals()
    mechanisms()
