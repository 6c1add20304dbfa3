"""Rounds of a federated program in MLflow, and in the ledger, through a privacy tracker."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any, Protocol

import dp_accounting
import numpy as np

from beam_ldp.federated.record import planned_event, privacy_records
from tff_adapters.compat import tff
from tff_adapters.flows import check_flows


class Tracker(Protocol):
    """What is used of `mlflow_ldp.PrivacyTracker`."""

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Any: ...
    def log(self, values: Mapping[str, float], step: int) -> None: ...


class PrivacyReleaseManager(tff.program.ReleaseManager[Any, int]):
    """Writes the metrics of rounds to MLflow, with what they cost.

    For programs that are not `tff_adapters.train`, such as `tff.learning.programs.train_model`:
    give it the process's initial state, and it charges each round before any number of it is
    logged; a round that does not fit raises `BudgetExceededError`, and the program ends. That is
    after the round has run: to ask before, use `tff_adapters.train`, whose budget charges, and
    leave `state` out here.

    Numbers are logged under their path in the structure (`aggregator/mean/reports`); arrays,
    text and model weights are not.

    Args:
        tracker: an open `mlflow_ldp.PrivacyTracker`.
        state: of a process whose aggregator is ours; None: nothing is charged here.
        process: that the program runs; needed with `state`. What it lets leave clients is read.
        public_flows: as for `train`.

    Raises:
        UnpricedFlowError: if something leaves clients that nothing prices.
        ValueError: if `state` holds no privacy record, or more than one, or comes without its
            process.
    """

    def __init__(
        self,
        tracker: Tracker,
        state: Any = None,
        *,
        process: Any = None,
        public_flows: Mapping[str, str] | None = None,
    ) -> None:
        if state is not None and len(privacy_records(state)) != 1:
            raise ValueError("state must hold one privacy record, of an aggregator of tff_adapters")
        if (state is None) != (process is None):
            raise ValueError("state and process must be given together")
        self.flows = () if process is None else check_flows(process, public_flows)
        self._tracker, self._state = tracker, state
        self._released: set[int] = set()

    async def release(self, value: Any, key: int) -> None:
        """Charge and log round `key`, once.

        Raises:
            BudgetExceededError: if the round does not fit; nothing of it was logged.
            SamplingMismatchError: if its number of reports is not what the sampling gives.
        """
        numbers = dict(_numbers(value))
        counts = [int(n) for path, n in numbers.items() if path.split("/")[-2:] == _COUNT]
        if self._state is not None and counts and key not in self._released:
            event = planned_event(self._state, counts[0])
            if event is not None and not isinstance(event, dp_accounting.NoOpDpEvent):
                self._tracker.charge(event, key, num_reports=counts[0])
            self._released.add(key)
        self._tracker.log(numbers, key)


_COUNT = ["mean", "reports"]  # where the factory measures how many clients were received


def _numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Finite numbers of a structure and their paths."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _numbers(part, (*path, str(name)))
    elif hasattr(value, "_asdict"):
        yield from _numbers(value._asdict(), path)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from _numbers(part, (*path, str(i)))
    else:
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, Real) and math.isfinite(number):
            yield "/".join(path) or "value", float(number)
