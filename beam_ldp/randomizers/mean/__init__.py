"""Mean mechanisms: vectors of a norm ball in, their mean out."""

from beam_ldp.randomizers.mean.base import MeanEstimate, MeanRandomizer
from beam_ldp.randomizers.mean.codebooks import RandomCodebookMean
from beam_ldp.randomizers.mean.directions import FixedPoint
from beam_ldp.randomizers.mean.kashin_mean import KashinMean
from beam_ldp.randomizers.mean.l2_mean import L2Mean
from beam_ldp.randomizers.mean.lp import (
    BinaryVectorMean,
    L1Mean,
    LInfMean,
    lp_mean,
    lp_mean_for_shuffle,
)
from beam_ldp.randomizers.mean.minimal_random_coding import MinimalRandomCoding
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.priv_unit_inf import PrivUnitInf
from beam_ldp.randomizers.mean.projected_priv_unit import ProjectedPrivUnit
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.mean.rotated_simplex_mean import RotatedSimplexMean
from beam_ldp.randomizers.mean.rounded_directions import compact_mean
from beam_ldp.randomizers.mean.scalar_mean import ScalarMean
from beam_ldp.randomizers.mean.seed_compressed_mean import SeedCompressedMean
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from beam_ldp.randomizers.mean.split_and_mix import SplitAndMixMean

__all__ = [
    "BinaryVectorMean",
    "CoordinateRanges",
    "FixedPoint",
    "KashinMean",
    "L1Mean",
    "L2Mean",
    "LInfMean",
    "MeanEstimate",
    "MeanRandomizer",
    "MinimalRandomCoding",
    "PrivUnit",
    "PrivUnitGaussian",
    "PrivUnitInf",
    "ProjectedPrivUnit",
    "RandomCodebookMean",
    "RotatedSimplexMean",
    "ScalarMean",
    "SeedCompressedMean",
    "SeparatedMean",
    "SplitAndMixMean",
    "compact_mean",
    "lp_mean",
    "lp_mean_for_shuffle",
]
