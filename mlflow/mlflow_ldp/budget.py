"""A privacy budget in MLflow: what all runs about the same people have spent, and its history.

Each budget has one long-lived MLflow run: a step per charge, so its chart is the history. A step is
the number of rows of the ledger, its time and its values are those of the row: whoever writes it,
and however often, writes the same. What a server lacks of the ledger is written there later
(`mirror`).
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import dp_accounting

from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.ledger import Anchor, BudgetLedger, BudgetStatus, Charge, Population, Row
from beam_ldp.ledger.admission import budget_of, population_of, status_of
from beam_ldp.ledger.balances import Balances
from beam_ldp.ledger.losses import event_digest
from beam_ldp.ledger.state import LedgerState
from beam_ldp.wording import number
from mlflow_ldp.release import log_release, record_digest
from mlflow_ldp.runs import (
    IDENTITY_TAG,
    LOG_TAG,
    LONGEST_TAG,
    METRICS_PER_BATCH,
    NAMESPACE,
    NOTE_TAG,
    RECORD_TAG,
    LoggedRun,
    Patience,
    batches,
    clean_key,
    find_experiment,
    lasting_run,
    log_name,
    open_client,
)
from mlflow_ldp.server import (
    ANCHOR_TAG,
    BUDGET_TAG,
    CHANCES_TAG,
    CHARGE_TAG,
    EVENT_TAG,
    ORDERS_TAG,
    PERIOD_TAG,
    POPULATION_TAG,
    read_server,
)

DATASET = f"{NAMESPACE}.dataset"


def spending(population: Population, period: int) -> dict[str, float]:
    """Where a budget stands in a period, as metrics.

    `epsilon_spent` and `local_spent` are what was released, `_reserved` what open runs may still
    release, `_budget` what is granted, `_left` what stands below the budget beside both, in the
    period `period`. Epsilons of runs do not simply add up, local ones do. Without a local budget
    there is no `local_budget`.
    """
    return _figures(status_of(population, period))


def dataset_metrics(ledger: BudgetLedger, dataset: str) -> dict[str, float]:
    """Where the budget of a dataset's people stands now, this run included."""
    return _figures(ledger.status(dataset))


def _figures(status: BudgetStatus) -> dict[str, float]:
    granted, local, most = status.budget, status.local_spent, status.local_committed
    found = {
        "epsilon_spent": status.spent,
        "epsilon_reserved": status.reserved,
        "epsilon_budget": granted.epsilon,
        "epsilon_left": status.left,
        "delta": granted.delta,
        "period": float(status.period),
        "local_spent": local,
        "local_reserved": max(0.0, most - local) if most != local else 0.0,
    }
    if granted.local_epsilon is not None:
        found["local_budget"] = granted.local_epsilon
        found["local_left"] = max(0.0, granted.local_epsilon - most)
    return {f"{DATASET}.{name}": value for name, value in found.items()}


@dataclass(frozen=True)
class Point:
    """Where a budget stood after a row of the ledger.

    Attributes:
        step: number of rows up to it.
        time: of the row, ISO 8601.
        values: metrics by their full names.
    """

    step: int
    time: str
    values: Mapping[str, float]


def _point(balances: Balances, population: Population) -> Point:
    """Where a budget stands at the ledger's last row."""
    budget = population.budget
    assert budget is not None
    period = budget.period_of(balances.time)
    return Point(balances.head.count, balances.time, spending(population, period))


def history(rows: Iterable[Row], population: str) -> Iterator[Point]:
    """Where a population's budget stood after each row that is about it.

    Raises:
        LedgerCorruptedError: at a row that does not follow from those before it.
    """
    state = LedgerState()
    for row in rows:
        state.apply([row])
        if row.body.get("population") == population:
            found = state.populations[population]
            if found.budget is not None:
                yield _point(state, found)


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

    A store has one such run of a budget, whatever its experiment. It is made with the whole history
    where there is none yet; later calls add a step.

    Args:
        ledger: that holds the budget.
        dataset: any of the population.
        tracking_uri: where to log.
        experiment: name of the experiment where the run is made; created where it does not exist.
        experiment_id: the same as MLflow's id; it goes before the name.
        complete: write all steps that are missing, one for each row of the ledger.

    Raises:
        LedgerError: for an unknown dataset.
        TrackingTimeoutError, mlflow.exceptions.MlflowException: see `log_release`.
    """
    balances = ledger.balances
    people = population_of(balances, dataset)
    population, budget = people.name, budget_of(people, dataset)
    now = _point(balances, people)
    tags = {
        BUDGET_TAG: budget_digest(balances.ledger_id, population),
        POPULATION_TAG: population[:LONGEST_TAG],
        ORDERS_TAG: json.dumps(budget.orders),
        CHANCES_TAG: repr(budget.chances),
        f"{NAMESPACE}.ledger_id": balances.ledger_id,
    }

    def log() -> LoggedRun:
        client = open_client(tracking_uri)

        def make() -> None:
            where = experiment_id or find_experiment(client, experiment, tracking_uri)
            _make(client, where, population, tags, next(history(ledger.rows(), population), None))

        run = lasting_run(client, BUDGET_TAG, tags[BUDGET_TAG], make)
        done = int(run.data.tags.get(ROWS_TAG, 0))
        whole = complete or not done
        points = [now]
        if whole:
            points = [p for p in history(ledger.rows(), population) if p.step > done]
        _write(client, str(run.info.run_id), points, whole)
        return LoggedRun(str(run.info.run_id), str(run.info.experiment_id), tracking_uri)

    return Patience().do(log)


def budget_digest(ledger_id: str, population: str) -> str:
    """Names a budget in a tag that searches can hold."""
    return hashlib.sha256(json.dumps([ledger_id, population]).encode()).hexdigest()[:32]


def _make(
    client: Any, experiment_id: str, population: str, tags: dict[str, str], first: Point | None
) -> None:
    note = _NOTE.format(name=population.replace("*", " "))
    client.create_run(
        experiment_id,
        start_time=None if first is None else _milliseconds(first.time),
        tags={**tags, NOTE_TAG: note[:LONGEST_TAG]},
        run_name=f"budget of {population}"[:250],
    )


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


PEOPLE = f"{NAMESPACE}.people"  # what each person was charged, over all runs


def charge_tags(ledger: BudgetLedger, run_id: str, event: Any = None) -> dict[str, str]:
    """Tags that tie an MLflow run to its charge, and anchor the ledger's head outside of it."""
    balances = ledger.balances
    anchor = Anchor(balances.ledger_id, balances.head.count, balances.head.hash, balances.time)
    tags = {CHARGE_TAG: run_id, ANCHOR_TAG: json.dumps(asdict(anchor))}
    if event is not None:
        tags[EVENT_TAG] = event_digest(event)
    mine = _charges(ledger, run_id)
    if mine:
        charge = mine[-1]
        tags |= {POPULATION_TAG: charge.population, PERIOD_TAG: str(charge.period)}
        if len(mine) == 1:
            tags[IDENTITY_TAG] = charge.identity.digest.hex()
        tags |= _distribution(ledger, charge.dataset)
    return tags


def _charges(ledger: BudgetLedger, name: str) -> list[Charge]:
    """The charges of a run: one, or one for each block of a long one."""
    if ledger.has_run(name):
        return [ledger.charge(name)]
    charges = (c for p in ledger.state.populations.values() for c in p.charges.values())
    return [charge for charge in charges if charge.group == name]


def people_metrics(ledger: BudgetLedger, dataset: str) -> dict[str, float]:
    """What each person of the population was charged locally, over all runs of the period.

    `privacy.people.local_epsilon_max` is an upper bound for every person. The others are there
    where people were counted (see `BudgetLedger.count_people`).
    """
    status = ledger.status(dataset)
    found = {"local_epsilon_max": status.local_maximum}
    if status.people is not None:
        found |= {
            "local_epsilon_median": status.people.quantile(0.5),
            "local_epsilon_p99": status.people.quantile(0.99),
            "count": float(status.people.num_people),
            "runs_not_counted": float(len(status.uncounted)),
        }
    return {f"{PEOPLE}.{name}": value for name, value in found.items()}


def _distribution(ledger: BudgetLedger, dataset: str) -> dict[str, str]:
    """How many people were charged how much locally, as a tag, where that was counted."""
    people = ledger.status(dataset).people
    if people is None:
        return {}
    return {f"{PEOPLE}.local_epsilon_distribution": json.dumps(people.distribution)}


def has_record(tracking_uri: str, record: Mapping[str, Any]) -> bool:
    """Whether a server has a finished log of this release.

    Raises:
        TrackingTimeoutError: if the server does not answer in time.
    """

    def look() -> bool:
        client = open_client(tracking_uri)
        wanted = f"tags.`{RECORD_TAG}` = '{record_digest(record)}' and status = 'FINISHED'"
        return any(
            client.search_runs([experiment.experiment_id], wanted, max_results=1)
            for experiment in client.search_experiments()
        )

    return Patience().do(look)


def mirror(
    ledger: BudgetLedger, *, tracking_uri: str, experiment: str = "beam-ldp"
) -> list[LoggedRun]:
    """Log every settled charge that the server does not show yet, and each budget's history.

    For runs whose launcher was lost, or whose server was down, or that said `--no-mlflow`.
    Idempotent.

    Args:
        ledger: what was charged.
        tracking_uri: where to log.
        experiment: name of the experiment.
    """
    known = read_server(tracking_uri, events=False).shown
    missing: dict[str, list[Charge]] = defaultdict(list)
    for population in ledger.state.populations.values():
        for charge in population.charges.values():
            if charge.settled is not None and charge.group not in known:
                missing[charge.group].append(charge)
    Patience().do(lambda: _end_left(tracking_uri, missing))
    logged = [
        log_release(
            _record(name, charges),
            tracking_uri=tracking_uri,
            experiment=experiment,
            run_name=f"{charges[0].about.get('question', charges[0].dataset)} (mirrored)",
            tags=charge_tags(ledger, name, _event(charges)),
            metrics=dataset_metrics(ledger, charges[0].dataset),
            description=_description(name, charges),
        )
        for name, charges in missing.items()
    ]
    for population in ledger.state.populations.values():
        if population.budget is not None:
            log_budget(
                ledger,
                min(population.datasets),
                tracking_uri=tracking_uri,
                experiment=experiment,
                complete=True,
            )
    return logged


def _end_left(tracking_uri: str, names: Iterable[str]) -> None:
    """End the runs that programs left open whose charges are mirrored now."""
    client = open_client(tracking_uri)
    where = [experiment.experiment_id for experiment in client.search_experiments()]
    for name in names if where else ():
        wanted = f"tags.`{LOG_TAG}` = '{log_name(name)}' and attributes.status = 'RUNNING'"
        for run in client.search_runs(where, wanted):
            client.set_terminated(run.info.run_id, "FAILED")


def _record(name: str, charges: list[Charge]) -> Mapping[str, Any]:
    """What the ledger knows of a run, as a record."""
    charge = charges[-1]
    identity = {"identity": charge.identity.to_json()} if len(charges) == 1 else {}
    return {
        **{key: value for key, value in charge.about.items() if key not in ("run", "identity")},
        **identity,
        "mechanism": {"mechanism": str(charge.about.get("mechanism", ""))},
        "dataset": charge.dataset,
        "run_id": name,
        "local_epsilon": sum(charge.local_total for charge in charges),
        "event": _event(charges),
        "mirrored": True,
    }


def _event(charges: list[Charge]) -> dict[str, Any]:
    """What a run released: of one that was charged in blocks, all of them."""
    told = [charge.settled for charge in charges if charge.settled is not None]
    if len(told) == 1:
        return told[0]
    return event_to_json(dp_accounting.ComposedDpEvent([event_from_json(event) for event in told]))


def _description(name: str, charges: list[Charge]) -> str:
    about, local = charges[-1].about, sum(charge.local_total for charge in charges)
    price = about.get("epsilon")
    central = "" if price is None else f"epsilon = {number(price)} at delta = {about['delta']:g}, "
    return (
        f"Mirrored from the ledger: charge `{name}` of `{charges[0].dataset}`, {central}local "
        f"epsilon = {number(local)}. The program that released it did not log here."
    )
