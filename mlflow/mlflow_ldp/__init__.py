"""MLflow keeps the record of private releases.

`log_release` writes what a release cost and how accurate it is into one MLflow run, once, from
the program that launched the pipeline. Raw data never comes near it: it takes the privacy record
and the files of the output folder, both of which are public once the release is.

`PrivacyTracker` charges the steps of a running program one by one and logs what they cost
together; it needs the extra `ledger` too.

MLflow is optional. Nothing here imports it before it is used; `available()` says whether it is
there.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mlflow_ldp.release import MlflowMissingError, available, log_release
from mlflow_ldp.runs import LoggedRun

if TYPE_CHECKING:
    from mlflow_ldp.budget import (
        charge_tags,
        dataset_metrics,
        has_record,
        log_budget,
        mirror,
        people_metrics,
    )
    from mlflow_ldp.server import audit_server, read_server
    from mlflow_ldp.tracker import PrivacyTracker, active_tracker

__all__ = [
    "LoggedRun",
    "MlflowMissingError",
    "PrivacyTracker",
    "active_tracker",
    "audit_server",
    "available",
    "charge_tags",
    "dataset_metrics",
    "has_record",
    "log_budget",
    "log_release",
    "mirror",
    "people_metrics",
    "read_server",
]

# What needs the packages of the extra `ledger`, by the module that has it.
_OF_THE_LEDGER = {
    "PrivacyTracker": "tracker",
    "active_tracker": "tracker",
    "audit_server": "server",
    "charge_tags": "budget",
    "has_record": "budget",
    "mirror": "budget",
    "dataset_metrics": "budget",
    "log_budget": "budget",
    "people_metrics": "budget",
    "read_server": "server",
}


def __getattr__(name: str) -> Any:
    """What needs more packages is loaded when it is used."""
    if name not in _OF_THE_LEDGER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"mlflow_ldp.{_OF_THE_LEDGER[name]}"), name)
