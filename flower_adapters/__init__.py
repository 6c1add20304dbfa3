"""Flower: local randomizers in its client apps, rounds under a budget in its server apps.

`LocallyPrivateMod` goes around a client's training function: what leaves the client is one report
of its update, made by a NumPy mechanism of `beam_ldp.randomizers.mean` from the cryptographic
generator, and nothing else. `LocallyPrivateFedAvg` is the strategy that reads the reports; its
rounds are those of `beam_ldp.federated.train`: asked and charged before anybody is asked.

Flower's server sees who sent what. docs/flower.md says what that means for a price, and what else
a SuperNode tells.

Flower pins libraries that the rest of this project has newer: `make flower` makes an environment
of its own (Python 3.11, .venv-flower/).
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flower_adapters.client import LocallyPrivateMod
    from flower_adapters.memory import ClientMemory, RefusedQuestionError
    from flower_adapters.strategy import LocallyPrivateFedAvg, PrivateResult

__all__ = [
    "ClientMemory",
    "LocallyPrivateFedAvg",
    "LocallyPrivateMod",
    "PrivateResult",
    "RefusedQuestionError",
]

if importlib.util.find_spec("flwr") is None:
    raise ImportError(
        "flower_adapters needs flwr 1.41 or newer; `make flower` in the repository of beam-ldp "
        "makes an environment that has it (Python 3.11, .venv-flower/)",
        name="flwr",
    )

# A client needs neither the accountant nor the ledger: each name comes with its own module.
_MODULES = {
    "ClientMemory": "memory",
    "LocallyPrivateFedAvg": "strategy",
    "LocallyPrivateMod": "client",
    "PrivateResult": "strategy",
    "RefusedQuestionError": "memory",
}


def __getattr__(name: str) -> Any:
    """Each side loads what it uses."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"flower_adapters.{_MODULES[name]}"), name)
