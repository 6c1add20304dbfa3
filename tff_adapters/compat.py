"""TensorFlow Federated under either of its names.

Up to 0.87, types, placements and intrinsics are part of `tensorflow_federated`; releases after it
move them to the package `federated_language`. Everything here takes them from `language`. What
imports this module starts TensorFlow Federated's worker surely, and ends it when it ends itself
(`tff_adapters.workers`).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import tensorflow_federated as tff

from tff_adapters.workers import end_workers_at_exit, start_workers_surely

_APART = importlib.util.find_spec("federated_language") is not None
language: Any = importlib.import_module("federated_language") if _APART else tff

__all__ = ["language", "tff"]

end_workers_at_exit()
start_workers_surely()
