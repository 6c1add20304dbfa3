"""Mean mechanisms: vectors of a norm ball in, their mean out."""

from beam_ldp.randomizers.mean.base import FixedPoint, MeanEstimate, MeanRandomizer
from beam_ldp.randomizers.mean.binary_vector import BinaryVectorMean
from beam_ldp.randomizers.mean.l1 import L1Mean
from beam_ldp.randomizers.mean.l2 import L2Mean
from beam_ldp.randomizers.mean.linf import LInfMean
from beam_ldp.randomizers.mean.lp import lp_mean, lp_mean_for_shuffle

__all__ = [
    "BinaryVectorMean",
    "FixedPoint",
    "L1Mean",
    "L2Mean",
    "LInfMean",
    "MeanEstimate",
    "MeanRandomizer",
    "lp_mean",
    "lp_mean_for_shuffle",
]
