"""What a device runs and how its reports are read back. NumPy, SciPy, cryptography; no Beam."""

from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.randomizers.shuffle_pair import ShufflePair

__all__ = [
    "Domain",
    "Estimate",
    "FrequencyOracle",
    "LocalRandomizer",
    "ShufflePair",
    "UserRandomness",
]
