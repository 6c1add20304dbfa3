"""One small mechanism of every kind, for tests that hold for all of them."""

from __future__ import annotations

import numpy as np

from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    KashinMean,
    L1Mean,
    L2Mean,
    LInfMean,
    MeanRandomizer,
    MinimalRandomCoding,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    ProjectedPrivUnit,
    RandomCodebookMean,
    RotatedSimplexMean,
    ScalarMean,
    SeparatedMean,
)

MECHANISMS: dict[str, MeanRandomizer] = {
    "binary": BinaryVectorMean(5, 3.0),
    "l1": L1Mean(5, 8.0),
    "linf": LInfMean(4, 6.0),
    "linf, one number": LInfMean(1, 2.0),
    "linf, every coordinate": LInfMean(4, 8.0, messages=(8,), message_epsilons=(1.0,)),
    "l2, two levels": L2Mean(8, 8.0, messages=(8, 8), message_epsilons=(0.6, 0.4), cutoff=3.0),
    "privunit": PrivUnit(6, 4.0),
    "privunit gaussian": PrivUnitGaussian(6, 4.0),
    "privunit inf": PrivUnitInf(9, 4.0),
    "projected": ProjectedPrivUnit(16, 4.0, projected=8),
    "scalar": ScalarMean(1, 4.0),
    "separated": SeparatedMean(6, 6.0),
    "kashin": KashinMean(8, 4.0),
    "codebook": RandomCodebookMean(8, 2.0),
    "simplex": RotatedSimplexMean(8, 2.0, index_bits=3),
    "minimal coding": MinimalRandomCoding(8, 2.0),
}


def vectors_for(mechanism: MeanRandomizer, count: int, seed: int = 3) -> np.ndarray:
    """Vectors inside the ball, around a mean that is not zero."""
    generator = np.random.default_rng(seed)
    shape = (count, mechanism.dimension)
    if mechanism.norm == "binary":
        return (generator.random(shape) < 0.3).astype(float)
    if not getattr(mechanism, "signed", True):
        return generator.random(shape)
    vectors = 0.3 + generator.normal(size=shape)
    order = {"l1": 1, "l2": 2, "linf": np.inf}[mechanism.norm]
    length = np.linalg.norm(vectors, ord=order, axis=1, keepdims=True)
    return vectors / length * generator.uniform(0.2, 1.0, (count, 1))
