"""One long-lived MLflow run for each budget: a step per charge, so its chart is the history.

A step is the number of rows of the ledger, its time and its values are those of the row: whoever
writes it, and however often, writes the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from beam_ldp.ledger import BudgetLedger
from mlflow_ldp.cumulative import Point, history, point_now
from mlflow_ldp.patience import Patience
from mlflow_ldp.release import LoggedRun
from mlflow_ldp.runs import (
    LONGEST_TAG,
    METRICS_PER_BATCH,
    NAMESPACE,
    NOTE_TAG,
    batches,
    clean_key,
    find_experiment,
)
from mlflow_ldp.server import BUDGET_TAG, ORDERS_TAG, POPULATION_TAG

ROWS_TAG = f"{NAMESPACE}.ledger_rows"  # up to which every row has its step
_NOTE = """The privacy budget of **{name}**: one step for each row of the ledger about it.

`privacy.dataset.epsilon_spent` is what all releases cost these people together at
`privacy.dataset.delta`, against readers of the releases; `privacy.dataset.local_spent` is the sum
of local epsilons of somebody who took part in all of them. `_left` is what may still be spent
beside open reservations. The ledger decides; this run only shows it.
"""


def log_budget(
    ledger: BudgetLedger,
    dataset: str,
    *,
    tracking_uri: str,
    experiment: str = "beam-ldp",
    experiment_id: str | None = None,
    complete: bool = False,
) -> LoggedRun:
    """Show where the budget of a dataset's people stands, in the run that shows its history.

    The run is made with the whole history where there is none yet; later calls add a step.

    Args:
        ledger: that holds the budget.
        dataset: any of the population.
        tracking_uri: where to log.
        experiment: name of the experiment, made where it does not exist.
        experiment_id: the same as MLflow's id; it goes before the name.
        complete: write all steps that are missing, one for each row of the ledger.

    Raises:
        LedgerError: for an unknown dataset.
        TrackingTimeoutError, mlflow.exceptions.MlflowException: see `log_release`.
    """
    now, books = point_now(ledger, dataset), ledger.books
    people = books.population_of(dataset)
    population, budget = people.name, people.budget
    assert budget is not None  # or there were no point of now
    tags = {
        BUDGET_TAG: budget_digest(books.ledger_id, population),
        POPULATION_TAG: population[:LONGEST_TAG],
        ORDERS_TAG: json.dumps(budget.orders),
        f"{NAMESPACE}.ledger_id": books.ledger_id,
    }

    def log() -> LoggedRun:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=tracking_uri)
        where = experiment_id or find_experiment(client, experiment, tracking_uri)
        run, done = _find(client, where, tags[BUDGET_TAG])
        whole = complete or run is None
        points = [now]
        if whole:
            points = [p for p in history(ledger.rows(), population) if p.step > done]
        run = run or _make(client, where, population, tags, points)
        _write(client, run, points, whole)
        return LoggedRun(run, where, tracking_uri)

    return Patience().do(log)


def budget_digest(ledger_id: str, population: str) -> str:
    """Names a budget in a tag that searches can hold."""
    return hashlib.sha256(json.dumps([ledger_id, population]).encode()).hexdigest()[:32]


def _find(client: Any, experiment_id: str, digest: str) -> tuple[str | None, int]:
    """The budget's run, and up to which row it is complete. Of two the older one counts."""
    wanted = f"tags.`{BUDGET_TAG}` = '{digest}'"
    order = ["attributes.start_time ASC", "attributes.run_id ASC"]
    found = client.search_runs([experiment_id], wanted, max_results=1, order_by=order)
    if not found:
        return None, 0
    return str(found[0].info.run_id), int(found[0].data.tags.get(ROWS_TAG, 0))


def _make(
    client: Any, experiment_id: str, population: str, tags: dict[str, str], points: list[Point]
) -> str:
    note = _NOTE.format(name=population.replace("*", " "))
    made = client.create_run(
        experiment_id,
        start_time=_milliseconds(points[0].time) if points else None,
        tags={**tags, NOTE_TAG: note[:LONGEST_TAG]},
        run_name=f"budget of {population}"[:250],
    )
    client.set_terminated(made.info.run_id, "FINISHED")  # nobody works on it; it stays open to all
    return str(made.info.run_id)


def _write(client: Any, run_id: str, points: Sequence[Point], whole: bool) -> None:
    """Write the steps; `whole`: none before them is missing."""
    from mlflow.entities import Metric, RunTag

    metrics = [
        Metric(clean_key(name), value, _milliseconds(point.time), point.step)
        for point in points
        for name, value in point.values.items()
    ]
    for batch in batches(metrics, METRICS_PER_BATCH):
        last = whole and batch[-1] is metrics[-1]
        tags = [RunTag(ROWS_TAG, str(points[-1].step))] if last else []
        client.log_batch(run_id, metrics=batch, tags=tags)


def _milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
