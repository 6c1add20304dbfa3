"""What every mechanism is made of, by the name that programs import it by.

`LocalRandomizer`: how to randomize, sum, estimate and price. `FrequencyOracle`: what is read back
as frequencies. (That of means is in `mean.base`.)
"""

from __future__ import annotations

from beam_ldp.randomizers.frequency_oracle import FrequencyOracle
from beam_ldp.randomizers.local_randomizer import ExtraWords as ExtraWords
from beam_ldp.randomizers.local_randomizer import (
    LocalRandomizer,
    accounting,
    check_sampling,
    own_crowd_rule,
)
from beam_ldp.randomizers.local_randomizer import Rng as Rng
from beam_ldp.randomizers.local_randomizer import Sampling as Sampling
from beam_ldp.randomizers.report_format import below, check_below

__all__ = [
    "FrequencyOracle",
    "LocalRandomizer",
    "accounting",
    "below",
    "check_below",
    "check_sampling",
    "own_crowd_rule",
]
