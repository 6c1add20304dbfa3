"""MLflow keeps the record of private releases.

`log_release` writes what a release cost and how accurate it is into one MLflow run, once, from
the program that launched the pipeline. Raw data never comes near it: it takes the privacy record
and the files of the output folder, both of which are public once the release is.

`PrivacyTracker` charges the steps of a running program one by one and logs what they cost
together; it needs the extra `ledger` too.

MLflow is optional. Nothing here imports it before it is used; `available()` says whether it is
there.
"""

from typing import TYPE_CHECKING, Any

from mlflow_ldp.release import LoggedRun, MlflowMissingError, available, log_release

if TYPE_CHECKING:
    from mlflow_ldp.tracker import PrivacyTracker, active_tracker

__all__ = [
    "LoggedRun",
    "MlflowMissingError",
    "PrivacyTracker",
    "active_tracker",
    "available",
    "log_release",
]


def __getattr__(name: str) -> Any:
    """The tracker, loaded when it is used: it needs the ledger's dependencies."""
    if name in ("PrivacyTracker", "active_tracker"):
        from mlflow_ldp import tracker

        return getattr(tracker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
