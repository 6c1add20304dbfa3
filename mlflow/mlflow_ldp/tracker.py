"""Cumulative privacy of a running program, step by step, refused before it would be overspent."""

from __future__ import annotations

import math
import os
import uuid
import warnings
from collections.abc import Mapping
from typing import Any

import dp_accounting

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.ledger import BudgetExceededError, BudgetLedger
from beam_ldp.ledger.connection import URL_VARIABLE
from beam_ldp.ledger.losses import CHANCES, Loss, as_json, loss_of, no_loss, orders_for, times
from beam_ldp.randomizers.checks import check_fraction, check_positive
from beam_ldp.wording import number
from mlflow_ldp.budget import charge_tags, dataset_metrics, log_budget
from mlflow_ldp.charges import LARGEST_BLOCK as LARGEST_BLOCK
from mlflow_ldp.charges import Blocks, Kind, Snapshot, TrackedLoss, local_epsilon_of
from mlflow_ldp.pages import statement_of
from mlflow_ldp.release import dataset_input
from mlflow_ldp.runs import NAMESPACE, LoggedRun, RunLog

_USUAL_EPSILON = 1.0  # orders suit this where no limit is known
_EVENTS_VERSION = 1

_active: list[PrivacyTracker] = []


def active_tracker() -> PrivacyTracker | None:
    """The innermost tracker that is open in this process."""
    return _active[-1] if _active else None


class PrivacyTracker:
    """Charges releases one by one, logs the cumulative price, and stops before it is overspent.

    Protects whom the ledger protects: call `charge` *before* each release; it raises
    `BudgetExceededError` where the release must not happen. With a ledger, every charge is in it
    before `charge` returns (reserved ahead in blocks, settled at what was used); a crash leaves
    them spent. Without one nothing is held across runs, and the record says so.

    Metrics of each step go to MLflow in batches: into the caller's active run if there is one,
    else into a run of its own; where the active run has a tracker already, into one nested in it. A
    tracking server that cannot be reached or does not answer costs the record, not the charge: what
    is in the ledger can be logged later (`mlflow_ldp.mirror`).

    Args:
        dataset: whose data; the ledger's name of it.
        delta: of the cumulative price; with a ledger, of the budget.
        ledger: a `BudgetLedger` or its URL; default: BEAM_LDP_LEDGER if it is set.
        epsilon: limit of this run's own, besides the budget.
        local_epsilon_limit: likewise for the sum of local epsilons.
        adaptive: whether later steps are chosen after seeing earlier results. Say False only where
            the schedule was fixed beforehand: it is then priced more tightly.
        tracking_uri, experiment, run_name: as MLflow takes them.
        params: further parameters to log.
        columns: names and types of what is asked of people, for MLflow's data set input.
        num_users: how many people there are, for the same.
        quota: whose share of the budget is charged; "": what no quota keeps.
        charged_elsewhere: whether the caller has a charge of its own for all of it ("yes", or why
            not), for the record; no ledger is charged here then. Default: it has none.
        goes_on: tags that no other run has: where MLflow holds a run with them, which an earlier
            program left, that run is continued.

    Raises:
        BudgetExceededError, LedgerError: see `BudgetLedger`.

    Example::

        with PrivacyTracker("telemetry", delta=1e-8, ledger="sqlite:///privacy.db") as tracker:
            for step in range(rounds):
                tracker.charge(event, step=step)
                release()
    """

    def __init__(
        self,
        dataset: str,
        delta: float,
        *,
        ledger: BudgetLedger | str | None = None,
        epsilon: float | None = None,
        local_epsilon_limit: float | None = None,
        adaptive: bool = True,
        tracking_uri: str | None = None,
        experiment: str = "beam-ldp",
        run_name: str | None = None,
        params: Mapping[str, Any] | None = None,
        columns: Mapping[str, str] | None = None,
        num_users: int | None = None,
        quota: str = "",
        charged_elsewhere: str | None = None,
        goes_on: Mapping[str, str] | None = None,
    ) -> None:
        check_fraction("delta", delta)
        for name, value in (("epsilon", epsilon), ("local_epsilon_limit", local_epsilon_limit)):
            if value is not None:
                check_positive(name, value)
        self.dataset, self.delta, self.quota = dataset, float(delta), quota
        self._ledger = None if charged_elsewhere else _open_ledger(ledger)
        self._charged = charged_elsewhere or ("yes" if self._ledger else "no: no ledger was named")
        self._limit, self._local_limit = epsilon, local_epsilon_limit
        self._adaptive = adaptive
        self.run_id = uuid.uuid4().hex  # of the charges; MLflow has its own
        self._log = RunLog(
            tracking_uri=tracking_uri,
            experiment=experiment,
            run_name=run_name or f"privacy of {dataset}",
            params={**self._params(), **(params or {})},
            inputs=lambda: [dataset_input(dataset, columns or {}, num_users)],
            goes_on=goes_on,
        )
        self._orders, self._chances = self._fixed_filter()
        self._loss: Loss = no_loss(self._orders)
        self._local = 0.0
        self._kinds: dict[dp_accounting.DpEvent, Kind] = {}
        self._last_kind: Kind | None = None
        self._num_charges = 0
        self._curve: list[tuple[int, float, float]] = []
        self._snapshots: list[Snapshot] = []
        self._blocks = None if self._ledger is None else Blocks(self._ledger, self)

    # Life ----------------------------------------------------------------------------------

    def __enter__(self) -> PrivacyTracker:
        _active.append(self)
        self._log.start()
        self._log.tag(self.tags)  # of a run that was started before this tracker
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        _active.remove(self)
        if self._ledger is not None:
            self._settle(self._ledger)
        self._log_lower_bounds()
        statement = statement_of(self)
        self._log.describe(statement)
        self._log.finish(self._artifacts(statement), failed=kind is not None)
        if self._ledger is not None and self._log.run_id is not None:
            self._show_budget(self._ledger)

    # Charging --------------------------------------------------------------------------------

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        local_epsilon: float | None = None,
        num_reports: int | None = None,
    ) -> TrackedLoss:
        """Charge one release, before it happens.

        Args:
            event: what will be released.
            step: MLflow's step; default: the number of charges before this one.
            local_epsilon: what one person loses to whoever sees their reports; default: as the
                event says.
            num_reports: for the record.

        Raises:
            BudgetExceededError: if it does not fit; nothing was charged.
        """
        kind = self._kind(event)
        local = kind.local_epsilon if local_epsilon is None else float(local_epsilon)
        loss = self._loss + kind.loss
        epsilon, order = self._reading(loss)
        self._refuse(epsilon, self._local + local)
        if self._blocks is not None:
            self._blocks.charge(event, local)
        self._loss, self._local = loss, self._local + local
        kind.count += 1
        step = self._num_charges if step is None else step
        self._num_charges += 1
        spent = TrackedLoss(epsilon, order, self._local, self._num_charges)
        self._curve.append((step, epsilon, self._local))
        if self._num_charges == 4 ** len(self._snapshots):
            self._snapshots.append(self._snapshot())
        self._log_step(step, spent, num_reports, kind)
        return spent

    def would_exceed(self, event: dp_accounting.DpEvent, count: int = 1) -> bool:
        """Whether so many more charges would go beyond this run's own limits, or what the ledger
        has left for it: of the budget, and of its quota's share.
        """
        kind = self._kind(event)
        total = self._loss + times(kind.loss, count)
        epsilon = self._reading(total)[0]
        local = self._local + count * kind.local_epsilon
        if self._limit is not None and epsilon > self._limit:
            return True
        if self._local_limit is not None and local > self._local_limit:
            return True
        return self._blocks is not None and self._blocks.would_exceed(event, count)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Figures of a step beside its price: public ones, or such as were charged themselves."""
        self._log.metrics(values, step)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Tags of MLflow's run; they replace this tracker's own of the same names."""
        self._log.tag(tags)

    @property
    def spent(self) -> TrackedLoss:
        """What this run was charged so far."""
        return TrackedLoss(*self._reading(self._loss), self._local, self._num_charges)

    @property
    def adaptive(self) -> bool:
        """Whether steps were chosen after seeing earlier results."""
        return self._adaptive

    @property
    def charged(self) -> bool:
        """Whether a ledger holds the charges."""
        return self._charged == "yes"

    @property
    def ledger_id(self) -> str:
        """Id of the ledger that holds the charges; "" where none does."""
        return "" if self._ledger is None else self._ledger.ledger_id

    @property
    def mlflow_run_id(self) -> str | None:
        """MLflow's run; None while the server could not be reached."""
        return self._log.run_id

    @property
    def logged(self) -> LoggedRun | None:
        """Where MLflow's run is; None while the server could not be reached."""
        return self._log.logged

    @property
    def tags(self) -> dict[str, str]:
        """What MLflow's runs are tagged with while this tracker is open."""
        return {
            f"{NAMESPACE}.dataset": self.dataset[:250],
            f"{NAMESPACE}.neighbours": "replace-one",
            f"{NAMESPACE}.charged": self._charged,
        }

    # Inside ------------------------------------------------------------------------------------

    def _settle(self, ledger: BudgetLedger) -> None:
        """Settle the last block, and tie MLflow's run to the charges."""
        assert self._blocks is not None
        try:
            self._blocks.close()
            if self._num_charges:
                self._log.tag(charge_tags(ledger, self.run_id))
                self._log.metrics(dataset_metrics(ledger, self.dataset), self._curve[-1][0])
        except Exception as error:  # what was charged is in the ledger, at its worst case
            warnings.warn(
                f"the ledger could not be written ({type(error).__name__}): what was reserved "
                "ahead stays charged",
                stacklevel=3,
            )

    def _show_budget(self, ledger: BudgetLedger) -> None:
        """The next step of the budget's own run."""
        try:
            log_budget(
                ledger,
                self.dataset,
                tracking_uri=self._log.uri,
                experiment_id=self._log.experiment_id,
            )
        except Exception as error:  # a record that is lost must not stop what it records
            warnings.warn(
                f"the budget's history was not logged ({type(error).__name__}): mlflow_ldp.mirror "
                "can log it later",
                stacklevel=3,
            )

    def _fixed_filter(self) -> tuple[tuple[float, ...], float]:
        """Orders, and the share of delta that chances have."""
        if self._ledger is not None:
            budget = self._ledger.status(self.dataset).budget
            return budget.orders, budget.chances
        if self._adaptive:
            return orders_for(self._limit or _USUAL_EPSILON, self.delta), CHANCES
        return tuple(ShuffleAccountant().orders.tolist()), CHANCES

    def _reading(self, loss: Loss) -> tuple[float, float]:
        """Epsilon, and the order that gives it."""
        return loss.epsilon(
            self._orders, self.delta, adaptive=self._adaptive, chances=self._chances
        )

    def _params(self) -> dict[str, Any]:
        return {
            f"{NAMESPACE}.dataset": self.dataset,
            f"{NAMESPACE}.delta": self.delta,
            f"{NAMESPACE}.neighbours": "replace-one",
            f"{NAMESPACE}.schedule": "adaptive" if self._adaptive else "fixed beforehand",
            f"{NAMESPACE}.method": "Rényi filter at orders fixed beforehand, and pure epsilons"
            if self._adaptive
            else "Rényi orders, and pure epsilons",
            f"{NAMESPACE}.proof_status": "proved",
            f"{NAMESPACE}.charged": self._charged,
            f"{NAMESPACE}.run_id": self.run_id,
        }

    def _refuse(self, epsilon: float, local: float) -> None:
        if self._limit is not None and epsilon > self._limit:
            raise BudgetExceededError(
                f"this release would take epsilon to {number(epsilon)}; the limit of this run is "
                f"{self._limit:g} at delta = {self.delta:g}. It was not charged"
            )
        if self._local_limit is not None and local > self._local_limit:
            raise BudgetExceededError(
                f"this release would take the sum of local epsilons to {number(local)}; the limit "
                f"of this run is {self._local_limit:g}. It was not charged"
            )

    def _log_step(self, step: int, spent: TrackedLoss, num_reports: int | None, kind: Kind) -> None:
        found = {"epsilon": spent.epsilon, "local_epsilon": spent.local_epsilon}
        if kind is not self._last_kind:  # the price of one step, where it changes
            found |= kind.prices(self.delta)
            self._last_kind = kind
        if math.isfinite(spent.order):
            found["renyi_order"] = spent.order
        if num_reports is not None:
            found["num_reports"] = float(num_reports)
        self._log.metrics({f"{NAMESPACE}.{name}": value for name, value in found.items()}, step)

    def _snapshot(self) -> Snapshot:
        step = self._curve[-1][0]
        return Snapshot(step, {event: kind.count for event, kind in self._kinds.items()})

    def _log_lower_bounds(self) -> None:
        """What nobody can prove less than, cumulative: after 1, 4, 16, ... charges and at the end.

        Worked out here, and not step by step: one takes longer than a thousand charges.
        """
        last = [self._snapshot()] if self._curve else []
        for snapshot in {s.step: s for s in [*self._snapshots, *last]}.values():
            found = snapshot.lower_bounds(self.delta)
            named = {f"{NAMESPACE}.{name}": value for name, value in found.items()}
            self._log.metrics(named, snapshot.step)

    def accountant(self) -> ShuffleAccountant:
        """An accountant that holds all charges of this run."""
        accountant = ShuffleAccountant(adaptive=self._adaptive)
        for event, kind in self._kinds.items():
            accountant.compose(event, kind.count)
        return accountant

    def _kind(self, event: dp_accounting.DpEvent) -> Kind:
        if event not in self._kinds:
            told = as_json(event)
            loss = loss_of(told, self._orders)
            self._kinds[event] = Kind(event, told, loss, local_epsilon_of(event))
        return self._kinds[event]

    def _event(self) -> dict[str, Any] | None:
        """All releases of the run as one event; None if there were none."""
        kinds = [
            kind.event
            if kind.count == 1
            else dp_accounting.SelfComposedDpEvent(kind.event, kind.count)
            for kind in self._kinds.values()
            if kind.count
        ]
        if not kinds:
            return None
        return as_json(kinds[0] if len(kinds) == 1 else dp_accounting.ComposedDpEvent(kinds))

    def _artifacts(self, statement: str) -> dict[str, Any]:
        from mlflow_ldp.pages import tracked_pages

        event = self._event()
        events = {
            "version": _EVENTS_VERSION,
            "dataset": self.dataset,
            "delta": self.delta,
            "run_id": self.run_id,
            "events": [
                {"count": k.count, "event": k.told} for k in self._kinds.values() if k.count
            ],
        }
        files = {"events.json": events, **tracked_pages(self, self._curve, statement)}
        return files if event is None else files | {"event.json": event}


def _open_ledger(ledger: BudgetLedger | str | None) -> BudgetLedger | None:
    if isinstance(ledger, BudgetLedger):
        return ledger
    if ledger is None and not os.environ.get(URL_VARIABLE):
        warnings.warn(
            f"no ledger is given (ledger=..., or {URL_VARIABLE}): nothing is charged across runs, "
            "and the record says so",
            stacklevel=3,
        )
        return None
    return BudgetLedger(ledger)
