"""What a tracking server holds about private releases, run by run."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from beam_ldp.ledger import Anchor
from mlflow_ldp.patience import Patience
from mlflow_ldp.runs import IDENTITY_TAG, NAMESPACE, RECORD_TAG

CHARGE_TAG = f"{NAMESPACE}.charge"  # name of the charge that a run belongs to
ANCHOR_TAG = f"{NAMESPACE}.ledger_anchor"  # head of a ledger when the run was logged, JSON
POPULATION_TAG = f"{NAMESPACE}.population"
EVENT_TAG = f"{NAMESPACE}.event_sha256"
PERIOD_TAG = f"{NAMESPACE}.period"  # of the budget
BUDGET_TAG = f"{NAMESPACE}.budget_of"  # of the one run that shows a budget's history
ORDERS_TAG = f"{NAMESPACE}.dataset.orders"  # Rényi orders of the budget, JSON
# What is shown, by the names under which it is; the first one that is there counts. Where a
# release has groups, its charge covers all of them, and its price is that of one.
_SHOWN = {
    "epsilon": ("charged_epsilon", "epsilon"),
    "delta": ("delta",),
    "local_epsilon": ("local_epsilon",),
}


@dataclass(frozen=True)
class TrackedRun:
    """One release as a server shows it.

    Attributes:
        run_id: MLflow's.
        charge: name of its charge; None if it was not charged.
        dataset, population: whose data; the population is "" where no ledger was named.
        period: of the budget that it was charged to; None if it was not charged.
        shown: `epsilon`, `delta`, `local_epsilon`, `event_sha256`, `identity`, as far as they are
            there; infinite where they are said to be unbounded.
        event: the stored event as JSON; None if none is stored.
        record: digest of what was logged, so that a release that was logged twice counts once.
        simulated: no release at all.
    """

    run_id: str
    charge: str | None
    dataset: str
    population: str
    period: int | None
    shown: dict[str, Any]
    event: dict[str, Any] | None
    record: str
    simulated: bool = False

    @property
    def release(self) -> str:
        """Tells releases apart."""
        return self.charge or self.record or self.run_id


@dataclass(frozen=True)
class ShownBudget:
    """A budget as the run of its history shows it.

    Attributes:
        granted: the largest epsilon that was ever in force.
        spent, delta, period: as of its last step.
        orders: Rényi orders that were fixed with it.
    """

    granted: float
    spent: float
    delta: float
    period: int
    orders: tuple[float, ...]


@dataclass(frozen=True)
class Server:
    """What a server holds.

    Attributes:
        runs: of releases, simulations among them.
        anchors: heads of ledgers that its runs hold.
        budgets: per population, what the run of its budget shows.
    """

    runs: list[TrackedRun] = field(default_factory=list)
    anchors: list[Anchor] = field(default_factory=list)
    budgets: dict[str, ShownBudget] = field(default_factory=dict)

    @property
    def shown(self) -> dict[str, dict[str, Any]]:
        """What is shown of each charge."""
        return {run.charge: run.shown for run in self.runs if run.charge is not None}


def read_server(tracking_uri: str, *, events: bool = True) -> Server:
    """Read all that a server holds.

    Args:
        tracking_uri: of the server.
        events: read the stored events too, a file of each run.

    Raises:
        TrackingTimeoutError: if the server does not answer in time; the events are waited for one
            by one.
        mlflow.exceptions.MlflowException: if it cannot be read.
        ValueError: if somebody wrote what is no anchor.
    """
    from mlflow.tracking import MlflowClient

    patience = Patience()
    client = MlflowClient(tracking_uri=tracking_uri)
    found = Server()
    for run in patience.do(lambda: list(_runs(client))):
        tags, params = run.data.tags, run.data.params
        if ANCHOR_TAG in tags:
            found.anchors.append(_anchor(run))
        if BUDGET_TAG in tags:
            told = patience.do(partial(_budget, client, run))
            found.budgets[tags.get(POPULATION_TAG, "")] = told
        elif CHARGE_TAG in tags or f"{NAMESPACE}.local_epsilon" in (*run.data.metrics, *tags):
            event = patience.do(partial(_event, client, run)) if events else None
            found.runs.append(
                TrackedRun(
                    run_id=str(run.info.run_id),
                    charge=tags.get(CHARGE_TAG),
                    dataset=params.get(f"{NAMESPACE}.dataset", ""),
                    population=tags.get(POPULATION_TAG, ""),
                    period=int(tags[PERIOD_TAG]) if PERIOD_TAG in tags else None,
                    shown=_shown(run.data),
                    event=event,
                    record=tags.get(RECORD_TAG, ""),
                    simulated=tags.get(f"{NAMESPACE}.guarantee", "").startswith("none"),
                )
            )
    return found


def _runs(client: Any) -> Iterator[Any]:
    """All runs that hold anything of ours."""
    from mlflow.entities import ViewType

    experiments = [e.experiment_id for e in client.search_experiments(view_type=ViewType.ALL)]
    seen: set[str] = set()
    for wanted in (
        f"metrics.`{NAMESPACE}.local_epsilon` >= 0",
        f"tags.`{NAMESPACE}.local_epsilon` = 'unbounded'",
        f"tags.`{CHARGE_TAG}` != ''",
        f"tags.`{ANCHOR_TAG}` != ''",
        f"tags.`{BUDGET_TAG}` != ''",
    ):
        token = None
        while experiments:
            page = client.search_runs(experiments, wanted, max_results=1000, page_token=token)
            yield from (run for run in page if run.info.run_id not in seen)
            seen.update(run.info.run_id for run in page)
            token = page.token
            if not token:
                break


def _shown(data: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, sources in _SHOWN.items():
        for key in (f"{NAMESPACE}.{source}" for source in sources):
            value = data.metrics.get(key, data.params.get(key))
            if value is None and data.tags.get(key) == "unbounded":
                value = math.inf
            if value not in (None, "null", ""):
                found[name] = float(value)
                break
    for name, tag in (("event_sha256", EVENT_TAG), ("identity", IDENTITY_TAG)):
        if tag in data.tags:
            found[name] = data.tags[tag]
    return found


def _budget(client: Any, run: Any) -> ShownBudget:
    """ValueError if it was not written by us."""
    history = client.get_metric_history(run.info.run_id, f"{NAMESPACE}.dataset.epsilon_budget")
    metrics = run.data.metrics
    try:
        return ShownBudget(
            granted=max(point.value for point in history),
            spent=metrics[f"{NAMESPACE}.dataset.epsilon_spent"],
            delta=metrics[f"{NAMESPACE}.dataset.delta"],
            period=int(metrics[f"{NAMESPACE}.dataset.period"]),
            orders=tuple(map(float, json.loads(run.data.tags[ORDERS_TAG]))),
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"MLflow run {run.info.run_id} shows what is no budget") from None


def _anchor(run: Any) -> Anchor:
    told = json.loads(run.data.tags[ANCHOR_TAG])
    if not told.get("time"):
        began = datetime.fromtimestamp(run.info.start_time / 1000, timezone.utc)
        told["time"] = began.isoformat(timespec="seconds")
    try:
        return Anchor(**told)
    except TypeError:
        raise ValueError(f"MLflow run {run.info.run_id} holds what is no anchor") from None


def _event(client: Any, run: Any) -> dict[str, Any] | None:
    """The stored event; empty where somebody wrote something else."""
    path = f"{NAMESPACE}/event.json"
    if path not in [item.path for item in client.list_artifacts(run.info.run_id, NAMESPACE)]:
        return None
    with tempfile.TemporaryDirectory() as folder:
        text = Path(client.download_artifacts(run.info.run_id, path, folder)).read_text("utf-8")
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
