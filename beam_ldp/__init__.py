"""Statistics and models from people's data, without ever holding that data.

Four stages: each device runs a local randomizer, a shuffler cuts the link between reports and
people, an aggregator sums, an estimator debiases and gives an error bar; an accountant prices it.

`frequencies`, `means`, `user_means` and `heavy_hitters` are releases from a table or a file, in one
call. `beam_ldp.randomizers` and `beam_ldp.accounting` work without Apache Beam; the Beam stages are
loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_STAGES = (
    "Randomize",
    "Shuffle",
    "Aggregate",
    "EstimateFrequencies",
    "EstimateMean",
    "PrivateFrequencies",
    "PrivateMean",
    "PrivateUserMean",
    "ReleaseToRows",
    "ReadReports",
    "WriteReports",
)
_RELEASES = ("frequencies", "means", "user_means", "heavy_hitters")
_ROOMS = ("randomizers", "accounting", "planning", "protocols", "simulate", "transforms")

__all__ = ["__version__", *_RELEASES, *_ROOMS, *_STAGES]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"beam_ldp.{name}")
    if name in _STAGES:
        return getattr(importlib.import_module("beam_ldp.transforms"), name)
    if name in _RELEASES:
        return getattr(importlib.import_module("beam_ldp.release.python"), name)
    raise AttributeError(f"module 'beam_ldp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
