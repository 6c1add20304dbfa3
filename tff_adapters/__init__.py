"""TensorFlow Federated: local randomizers inside the client computations of federated training.

What a client sends is randomized in the computation that runs on the client, by the mechanisms of
`beam_ldp.randomizers.mean`, and the server reads shuffled messages or sums of them. The kernels are
TensorFlow graphs, so that they travel into every runtime of TensorFlow Federated. TensorFlow's
generator is not cryptographic: docs/federated.md says what that means.

TensorFlow Federated is optional, and its own metadata cannot be installed: `make tff` makes an
environment that has it.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from beam_ldp.federated import (
    DeclaredSampling,
    EpsilonBudget,
    FixedSizeSampling,
    Flow,
    Round,
    RoundsRecord,
    SamplingMismatchError,
    SelfSampling,
    ShuffledEpochs,
    Training,
    UnpricedFlowError,
    full_participation,
    planned_event,
    privacy_event,
    privacy_events,
)

if TYPE_CHECKING:
    from tff_adapters.adaped import build_dp_adaped
    from tff_adapters.aggregators import (
        LocallyPrivateMeanFactory,
        LocallyPrivateState,
        shuffled_ldp_aggregator,
    )
    from tff_adapters.cldp_sgd import build_cldp_sgd
    from tff_adapters.compat import end_workers, workers_ended
    from tff_adapters.flows import flows_of, no_client_metrics
    from tff_adapters.kernels import ClientKernel, kernel_for
    from tff_adapters.local_central import LocalCentralFactory, build_local_central
    from tff_adapters.training import (
        ChargedProcess,
        PrivacyReleaseManager,
        train,
        train_adaped,
    )
    from tff_adapters.vectors import AdaptiveClip

__all__ = [
    "AdaptiveClip",
    "ChargedProcess",
    "ClientKernel",
    "DeclaredSampling",
    "EpsilonBudget",
    "FailureReportingFactory",
    "FixedSizeSampling",
    "Flow",
    "LocalCentralFactory",
    "LocallyPrivateMeanFactory",
    "LocallyPrivateState",
    "RoundsRecord",
    "PrivacyReleaseManager",
    "Round",
    "SamplingMismatchError",
    "SelfSampling",
    "ShuffledEpochs",
    "Training",
    "UnpricedFlowError",
    "build_cldp_sgd",
    "build_dp_adaped",
    "build_local_central",
    "end_workers",
    "flows_of",
    "full_participation",
    "kernel_for",
    "no_client_metrics",
    "planned_event",
    "privacy_event",
    "privacy_events",
    "shuffled_ldp_aggregator",
    "train",
    "train_adaped",
    "workers_ended",
]

for _package in ("tensorflow", "tensorflow_federated"):
    if importlib.util.find_spec(_package) is None:
        raise ImportError(
            f"tff_adapters needs {_package}; `make tff` in the repository of beam-ldp makes an "
            "environment that has it (Python 3.11, .venv-tff/)",
            name=_package,
        )

# What needs TensorFlow, by the module that has it.
_MODULES = {
    "AdaptiveClip": "vectors",
    "ClientKernel": "kernels",
    "FailureReportingFactory": "aggregators",
    "LocalCentralFactory": "local_central",
    "LocallyPrivateMeanFactory": "aggregators",
    "LocallyPrivateState": "aggregators",
    "ChargedProcess": "training",
    "PrivacyReleaseManager": "training",
    "build_cldp_sgd": "cldp_sgd",
    "build_dp_adaped": "adaped",
    "build_local_central": "local_central",
    "end_workers": "compat",
    "flows_of": "flows",
    "kernel_for": "kernels",
    "no_client_metrics": "flows",
    "shuffled_ldp_aggregator": "aggregators",
    "train": "training",
    "train_adaped": "training",
    "workers_ended": "compat",
}


def __getattr__(name: str) -> Any:
    """TensorFlow takes seconds to load: it is, when something of it is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tff_adapters.{_MODULES[name]}"), name)
