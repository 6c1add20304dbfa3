"""What a release costs in privacy, and the events that record what ran.

Needs NumPy, SciPy and dp-accounting only.
"""

from beam_ldp.accounting.accountant import ShuffleAccountant
from beam_ldp.accounting.central import central_gaussian
from beam_ldp.accounting.event_price import event_epsilon
from beam_ldp.accounting.events import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.hockey_stick import DeltaBounds, epsilon_bounds
from beam_ldp.accounting.privacy_bound import PrivacyBound
from beam_ldp.accounting.randomizer_events import local_event, shuffled_event
from beam_ldp.accounting.shuffle import (
    MAX_LOCAL_EPSILON,
    local_epsilon_for,
    shuffle_delta,
    shuffle_epsilon,
    solve,
)
from beam_ldp.accounting.shuffle_grid import shuffle_epsilons
from beam_ldp.randomizers.shuffle_pair import ShufflePair

__all__ = [
    "MAX_LOCAL_EPSILON",
    "DeltaBounds",
    "LocalRandomizerDpEvent",
    "PrivacyBound",
    "ShuffleAccountant",
    "ShufflePair",
    "ShuffledDpEvent",
    "ShuffledMessagesDpEvent",
    "SubsampledShuffledDpEvent",
    "central_gaussian",
    "epsilon_bounds",
    "event_epsilon",
    "local_epsilon_for",
    "local_event",
    "shuffle_delta",
    "shuffle_epsilon",
    "shuffle_epsilons",
    "shuffled_event",
    "solve",
]
