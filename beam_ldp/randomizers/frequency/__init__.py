"""Frequency oracles: randomizers for one of k categories."""

from beam_ldp.randomizers.frequency.binary_hadamard import BinaryHadamard
from beam_ldp.randomizers.frequency.hadamard_response import HadamardResponse
from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
from beam_ldp.randomizers.frequency.limited_hadamard import LimitedHadamard
from beam_ldp.randomizers.frequency.local_hashing import LocalHashing
from beam_ldp.randomizers.frequency.pairwise_independent_rappor import PairwiseIndependentRappor
from beam_ldp.randomizers.frequency.projective_geometry_response import ProjectiveGeometryResponse
from beam_ldp.randomizers.frequency.rappor import Rappor
from beam_ldp.randomizers.frequency.recoverable_response import (
    RecoverableResponse,  # noqa: F401  (known by its name; no plan offers it)
)
from beam_ldp.randomizers.frequency.recursive_hadamard_response import RecursiveHadamardResponse
from beam_ldp.randomizers.frequency.refinable_response import (
    RefinableResponse,  # noqa: F401  (known by its name; no plan offers it)
)
from beam_ldp.randomizers.frequency.subset_selection import SubsetSelection
from beam_ldp.randomizers.frequency.unary_encoding import UnaryEncoding

__all__ = [
    "BinaryHadamard",
    "HadamardResponse",
    "KRandomizedResponse",
    "LimitedHadamard",
    "LocalHashing",
    "PairwiseIndependentRappor",
    "ProjectiveGeometryResponse",
    "Rappor",
    "RecursiveHadamardResponse",
    "SubsetSelection",
    "UnaryEncoding",
]
