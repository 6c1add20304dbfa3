"""Federated training, whatever the framework: who takes part, what ran, and what it costs.

Nothing here needs TensorFlow. An adapter (`tff_adapters`) builds the process, keeps a record of its
rounds in its state (`record`, or `central_record` where a server adds the noise), and reads what
leaves clients (`flow`); `samplers` draw who takes part, `budget` holds the target, and `training`
runs the rounds.
"""

from beam_ldp.federated.budget import EpsilonBudget
from beam_ldp.federated.flow import Flow, UnpricedFlowError
from beam_ldp.federated.record import (
    DeclaredSampling,
    RoundsRecord,
    SamplingMismatchError,
    planned_event,
    privacy_event,
    privacy_events,
)
from beam_ldp.federated.samplers import FixedSizeSampling, SelfSampling, full_participation
from beam_ldp.federated.training import Round, Training, train

__all__ = [
    "DeclaredSampling",
    "EpsilonBudget",
    "FixedSizeSampling",
    "Flow",
    "Round",
    "RoundsRecord",
    "SamplingMismatchError",
    "SelfSampling",
    "Training",
    "UnpricedFlowError",
    "full_participation",
    "planned_event",
    "privacy_event",
    "privacy_events",
    "train",
]
