"""What MLflow asks when it starts a run: the tags of the tracker that is open, if any."""

from __future__ import annotations

import sys

from mlflow.tracking.context.abstract_context import RunContextProvider


class PrivacyContext(RunContextProvider):
    """Tags runs that are started while a `PrivacyTracker` is open.

    MLflow finds it by its entry point, and asks it at every start of a run: it looks at what is in
    memory, and does nothing.
    """

    def in_context(self) -> bool:
        return bool(self.tags())

    def tags(self) -> dict[str, str]:
        module = sys.modules.get("mlflow_ldp.tracker")  # not loaded: no tracker is open
        tracker = None if module is None else module.active_tracker()
        return {} if tracker is None else tracker.tags
