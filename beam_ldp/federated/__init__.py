"""Federated training, whatever the framework: who takes part, what ran, and what it costs.

Nothing here needs TensorFlow. An adapter (`tff_adapters`, `flower_adapters`) keeps a record of its
rounds in its state (`record`), and reads what leaves clients; `samplers` draw who takes part, and
`training` runs the rounds under a budget.
"""

from beam_ldp.federated.record import (
    RoundsRecord,
    planned_event,
    privacy_event,
    privacy_events,
)
from beam_ldp.federated.samplers import (
    DeclaredSampling,
    FixedSizeSampling,
    SamplingMismatchError,
    SelfSampling,
    ShuffledEpochs,
    TooFewCameError,
    full_participation,
)
from beam_ldp.federated.training import (
    EpsilonBudget,
    Flow,
    Round,
    Training,
    UnpricedFlowError,
    train,
)

__all__ = [
    "DeclaredSampling",
    "EpsilonBudget",
    "FixedSizeSampling",
    "Flow",
    "Round",
    "RoundsRecord",
    "SamplingMismatchError",
    "SelfSampling",
    "ShuffledEpochs",
    "TooFewCameError",
    "Training",
    "UnpricedFlowError",
    "full_participation",
    "planned_event",
    "privacy_event",
    "privacy_events",
    "train",
]
