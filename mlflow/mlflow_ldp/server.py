"""What a tracking server holds about private releases, run by run; and the audit of a server alone:
each run's price, and what they cost together.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger import Anchor, Check
from beam_ldp.ledger.losses import CHANCES, event_digest, loss_of_part, no_loss, orders_for
from beam_ldp.wording import number
from mlflow_ldp.charges import local_epsilon_of
from mlflow_ldp.runs import (
    CHARGED_WITH_TAG,
    IDENTITY_TAG,
    NAMESPACE,
    RECORD_TAG,
    Patience,
    open_client,
)

CHARGE_TAG = f"{NAMESPACE}.charge"  # name of the charge that a run belongs to
ANCHOR_TAG = f"{NAMESPACE}.ledger_anchor"  # head of a ledger when the run was logged, JSON
POPULATION_TAG = f"{NAMESPACE}.population"
EVENT_TAG = f"{NAMESPACE}.event_sha256"
PERIOD_TAG = f"{NAMESPACE}.period"  # of the budget
BUDGET_TAG = f"{NAMESPACE}.budget_of"  # of the one run that shows a budget's history
ORDERS_TAG = f"{NAMESPACE}.dataset.orders"  # Rényi orders of the budget, JSON
CHANCES_TAG = f"{NAMESPACE}.dataset.chances"  # its share of delta for chances
# What is shown, by the names under which it is; the first one that is there counts. What people
# were charged may be more than what a reader of the release sees: the charge covers all groups, and
# the largest level of reports that several readers read differently.
_SHOWN = {
    "epsilon": ("charged_epsilon", "epsilon"),
    "delta": ("delta",),
    "local_epsilon": ("charged_local_epsilon", "local_epsilon"),
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
        charged_with: name of the charge that holds its price too; "" where it has its own.
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
    charged_with: str = ""

    @property
    def release(self) -> str:
        """Tells releases apart."""
        return self.charge or self.record or self.run_id


@dataclass(frozen=True)
class ShownBudget:
    """A budget as a run of its history shows it.

    Attributes:
        run_id: MLflow's.
        ledger_id, population: whose budget.
        step: number of rows of the ledger at its last step.
        granted: the largest epsilon that was ever in force.
        spent, local_spent, delta, period: as of its last step.
        orders: Rényi orders that were fixed with it.
        chances: share of delta that was fixed with them.
    """

    run_id: str
    ledger_id: str
    population: str
    step: int
    granted: float
    spent: float
    local_spent: float
    delta: float
    period: int
    orders: tuple[float, ...]
    chances: float = CHANCES


@dataclass(frozen=True)
class Server:
    """What a server holds.

    Attributes:
        runs: of releases, simulations among them.
        anchors: heads of ledgers that its runs hold.
        budgets: what the runs of budgets show: one each, unless somebody made more.
    """

    runs: list[TrackedRun] = field(default_factory=list)
    anchors: list[Anchor] = field(default_factory=list)
    budgets: list[ShownBudget] = field(default_factory=list)

    @property
    def shown(self) -> dict[str, list[dict[str, Any]]]:
        """What is shown of each charge, by every run that shows its cost: of several publications
        there are several. A run whose log was cut before shows nothing."""
        found: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            if run.charge is not None and "local_epsilon" in run.shown:
                found.setdefault(run.charge, []).append(run.shown)
        return found

    def budget_of(self, population: str) -> ShownBudget | None:
        """The newest that is shown of a population's budget."""
        found = [budget for budget in self.budgets if budget.population == population]
        return max(found, key=lambda budget: budget.step, default=None)


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
    patience = Patience()
    client = patience.do(lambda: open_client(tracking_uri))
    found = Server()
    for run in patience.do(lambda: list(_runs(client))):
        tags, params = run.data.tags, run.data.params
        if ANCHOR_TAG in tags:
            found.anchors.append(_anchor(run))
        if BUDGET_TAG in tags:
            found.budgets.append(patience.do(partial(_budget, client, run)))
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
                    charged_with=tags.get(CHARGED_WITH_TAG, ""),
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
    metrics, tags = run.data.metrics, run.data.tags
    try:
        return ShownBudget(
            run_id=str(run.info.run_id),
            ledger_id=tags.get(f"{NAMESPACE}.ledger_id", ""),
            population=tags.get(POPULATION_TAG, ""),
            step=max(point.step for point in history),
            local_spent=metrics[f"{NAMESPACE}.dataset.local_spent"],
            granted=max(point.value for point in history),
            spent=metrics[f"{NAMESPACE}.dataset.epsilon_spent"],
            delta=metrics[f"{NAMESPACE}.dataset.delta"],
            period=int(metrics[f"{NAMESPACE}.dataset.period"]),
            orders=tuple(map(float, json.loads(tags[ORDERS_TAG]))),
            chances=float(tags.get(CHANCES_TAG, CHANCES)),
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"MLflow run {run.info.run_id} shows an invalid budget") from None


def _anchor(run: Any) -> Anchor:
    told = json.loads(run.data.tags[ANCHOR_TAG])
    if not told.get("time"):
        began = datetime.fromtimestamp(run.info.start_time / 1000, timezone.utc)
        told["time"] = began.isoformat(timespec="seconds")
    try:
        return Anchor(**told)
    except TypeError:
        raise ValueError(f"MLflow run {run.info.run_id} holds an invalid anchor") from None


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


_USUAL_DELTA = 1e-6
_TOLERANCE = 1e-6  # relative; what a shown price may lie below the recomputed one
PRICES = "every privacy cost that is shown is at least that of the stored event"
EVENTS = "every stored event is the one that was charged"
STORED = "every release stores what it cost"
BUDGETS = "together the runs cost no more than their budget"
SPENT = "together the runs cost no more than is recorded as spent"
CHAIN = "none was removed or changed"


@dataclass(frozen=True)
class DatasetTotal:
    """What all runs about the same people cost together, from the events that they store.

    Attributes:
        population: the people, or the data set where no ledger was named.
        period: of their budget.
        datasets: its data sets.
        num_runs: releases.
        num_uncharged: those of them that no ledger knows.
        epsilon, delta: at the budget's delta, or the largest of any run; runs were chosen after
            seeing the results of others, and are composed for that.
        local_epsilon: sum for somebody who took part in all of them.
        epsilon_budget, epsilon_spent: as the run of the budget shows; None without one, and what is
            spent is known of its last period only.
    """

    population: str
    period: int
    datasets: tuple[str, ...]
    num_runs: int
    num_uncharged: int
    epsilon: float
    delta: float
    local_epsilon: float
    epsilon_budget: float | None
    epsilon_spent: float | None

    def to_json(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


@dataclass(frozen=True)
class ServerAudit:
    """What the audit of a server found.

    Attributes:
        checks: in a fixed order.
        totals: what the runs cost together, per population.
    """

    checks: tuple[Check, ...]
    totals: tuple[DatasetTotal, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return all(check.outcome != "failed" for check in self.checks)


def audit_server(tracking_uri: str, *, server: Server | None = None) -> ServerAudit:
    """Recompute what the runs of a server show, one by one and together.

    Whether a run is missing, only a ledger knows.

    Args:
        tracking_uri: of the server.
        server: what it holds, if that was read already.

    Raises:
        mlflow.exceptions.MlflowException: if the server cannot be read.
    """
    server = read_server(tracking_uri) if server is None else server
    runs = [run for run in server.runs if not run.simulated]
    stored = [run for run in runs if run.event is not None]
    priced = [run for run in stored if not _fault(run)]
    totals = tuple(
        _total(name, period, found, server.budget_of(name))
        for (name, period), found in _together(priced, server).items()
    )
    nothing = "no run stores the event of one release"
    budgeted = [t for t in totals if t.epsilon_budget is not None]
    behind = _behind(server.budgets)
    no_budget = "no run shows a budget"
    return ServerAudit(
        (
            _check(STORED, [_missing(r) for r in runs if r.event is None], runs, nothing),
            _check(EVENTS, [f for r in stored for f in _event_faults(r)], stored, nothing),
            _check(PRICES, [f for r in priced for f in _price_faults(r)], priced, nothing),
            _check(BUDGETS, [f for t in budgeted for f in _budget_faults(t)], budgeted, no_budget),
            _check(
                SPENT,
                [*behind, *(f for t in budgeted for f in _spent_faults(t))],
                budgeted or behind,
                no_budget,
            ),
            Check(CHAIN, "no evidence", ("no ledger was named: only a ledger shows it",)),
        ),
        totals,
    )


def _check(name: str, findings: list[str], looked_at: Any, nothing: str) -> Check:
    if not looked_at:
        return Check(name, "no evidence", (nothing,))
    return Check(name, "failed" if findings else "passed", tuple(findings))


# One run ------------------------------------------------------------------------------------------


def _missing(run: TrackedRun) -> str:
    return f"MLflow run {run.run_id} about {run.dataset!r} stores no event: nothing can be composed"


def _fault(run: TrackedRun) -> bool:
    """Whether the stored event has no price."""
    try:
        assert run.event is not None
        event_epsilon(event_from_json(run.event), 0.5)
    except Exception:  # whatever somebody wrote
        return True
    return False


def _event_faults(run: TrackedRun) -> list[str]:
    if _fault(run):
        return [f"MLflow run {run.run_id} stores an event that has no privacy cost"]
    digest = run.shown.get("event_sha256")
    if digest is None or digest == event_digest(run.event):
        return []
    return [f"MLflow run {run.run_id} stores another event than the one that was charged"]


def _price_faults(run: TrackedRun) -> list[str]:
    shown, delta = run.shown.get("epsilon"), run.shown.get("delta")
    if shown is None or delta is None or not 0 < delta < 1:
        return []
    assert run.event is not None
    event = event_from_json(run.event)
    price, local = float(event_epsilon(event, delta)), local_epsilon_of(event)
    found = []
    if shown < price * (1 - _TOLERANCE):
        found.append(
            f"MLflow run {run.run_id} shows epsilon = {shown:.6g}; its event costs {price:.6g}"
        )
    said = run.shown.get("local_epsilon", local)
    if said < local * (1 - _TOLERANCE):
        found.append(
            f"MLflow run {run.run_id} shows a local epsilon of {said:.6g}; its event's is "
            f"{local:.6g}"
        )
    return found


# Together -----------------------------------------------------------------------------------------


def _together(runs: list[TrackedRun], server: Server) -> dict[tuple[str, int], list[TrackedRun]]:
    """Runs by the people they are about, and by the period of their budget.

    A release that was logged twice counts once, as does one whose price another run that is here
    was charged with; one that was not charged, in the last period.
    """
    charged = {run.charge for run in runs if run.charge}
    runs = [run for run in runs if run.charged_with not in charged]
    of_dataset = {run.dataset: run.population for run in runs if run.population}
    found: dict[tuple[str, int], dict[str, TrackedRun]] = {}
    for run in runs:
        name = run.population or of_dataset.get(run.dataset) or run.dataset
        budget = server.budget_of(name)
        last = 0 if budget is None else budget.period
        period = last if run.period is None else run.period
        found.setdefault((name, period), {})[run.release] = run
    return {key: list(releases.values()) for key, releases in sorted(found.items())}


def _total(
    name: str, period: int, runs: list[TrackedRun], budget: ShownBudget | None
) -> DatasetTotal:
    if budget is None:
        deltas = [run.shown["delta"] for run in runs if 0 < run.shown.get("delta", 0) < 1]
        delta = max(deltas, default=_USUAL_DELTA)
        orders, chances = orders_for(1.0, delta), CHANCES
    else:
        delta, orders, chances = budget.delta, budget.orders, budget.chances
    loss, local = no_loss(orders), 0.0
    for run in runs:
        assert run.event is not None
        loss += loss_of_part(run.event, orders)
        local += local_epsilon_of(event_from_json(run.event))
    return DatasetTotal(
        population=name,
        period=period,
        datasets=tuple(sorted({run.dataset for run in runs})),
        num_runs=len(runs),
        num_uncharged=sum(run.charge is None for run in runs),
        epsilon=loss.epsilon(orders, delta, chances=chances)[0],
        delta=delta,
        local_epsilon=local,
        epsilon_budget=None if budget is None else budget.granted,
        epsilon_spent=budget.spent if budget is not None and budget.period == period else None,
    )


def _budget_faults(total: DatasetTotal) -> list[str]:
    assert total.epsilon_budget is not None
    if total.epsilon <= total.epsilon_budget * (1 + _TOLERANCE):
        return []
    return [
        f"{total.num_runs} runs about {total.population!r} cost epsilon = {number(total.epsilon)} "
        f"at delta = {total.delta:g} together; the budget is {total.epsilon_budget:g}{_of(total)}"
    ]


def _spent_faults(total: DatasetTotal) -> list[str]:
    if total.epsilon_spent is None or total.epsilon <= total.epsilon_spent * (1 + _TOLERANCE):
        return []
    return [
        f"{total.num_runs} runs about {total.population!r} cost epsilon = {number(total.epsilon)} "
        f"at delta = {total.delta:g} together; {total.epsilon_spent:.4g} is said to be spent"
        f"{_of(total)}"
    ]


def _behind(budgets: list[ShownBudget]) -> list[str]:
    """Runs of a budget that another run of the same budget has overtaken."""
    newest: dict[tuple[str, str], ShownBudget] = {}
    for budget in budgets:
        key = (budget.ledger_id, budget.population)
        newest[key] = max(newest.get(key, budget), budget, key=lambda one: one.step)
    return [
        f"MLflow run {budget.run_id} shows the budget of {budget.population!r} after "
        f"{budget.step:,} rows, and run {last.run_id} after {last.step:,}: mlflow_ldp.mirror "
        "leaves one"
        for budget in budgets
        if (last := newest[budget.ledger_id, budget.population]) is not budget
    ]


def _of(total: DatasetTotal) -> str:
    if not total.num_uncharged:
        return ""
    return f" ({total.num_uncharged} of the runs were never charged)"
