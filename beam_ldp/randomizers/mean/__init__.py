"""Mean mechanisms: vectors of a norm ball in, their mean out."""

from beam_ldp.randomizers.mean.base import FixedPoint, MeanEstimate, MeanRandomizer

__all__ = ["FixedPoint", "MeanEstimate", "MeanRandomizer"]
