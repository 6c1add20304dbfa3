"""Frequency oracles: randomizers for one of k categories."""

from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse

__all__ = ["KRandomizedResponse"]
