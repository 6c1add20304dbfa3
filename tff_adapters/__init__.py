"""TensorFlow Federated: local randomizers inside the client computations of federated training.

What a client sends is randomized in the computation that runs on the client, by the mechanisms of
`beam_ldp.randomizers.mean`, and only sums leave the aggregation. The kernels are TensorFlow
graphs, so that they travel into every runtime of TensorFlow Federated. TensorFlow's generator is
not cryptographic: docs/federated.md says what that means.

TensorFlow Federated is optional, and its own metadata cannot be installed: `make tff` makes an
environment that has it.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tff_adapters.aggregators import LocallyPrivateMeanFactory, shuffled_ldp_aggregator
    from tff_adapters.kernels import ClientKernel, kernel_for
    from tff_adapters.metrics import no_client_metrics

__all__ = [
    "ClientKernel",
    "LocallyPrivateMeanFactory",
    "kernel_for",
    "no_client_metrics",
    "shuffled_ldp_aggregator",
]

for _package in ("tensorflow", "tensorflow_federated"):
    if importlib.util.find_spec(_package) is None:
        raise ImportError(
            f"tff_adapters needs {_package}; `make tff` in the repository of beam-ldp makes an "
            "environment that has it (Python 3.11, .venv-tff/)",
            name=_package,
        )

_MODULES = {
    "ClientKernel": "kernels",
    "LocallyPrivateMeanFactory": "aggregators",
    "kernel_for": "kernels",
    "no_client_metrics": "metrics",
    "shuffled_ldp_aggregator": "aggregators",
}


def __getattr__(name: str) -> Any:
    """TensorFlow takes seconds to load: it is, when something of it is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tff_adapters.{_MODULES[name]}"), name)
