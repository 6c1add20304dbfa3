"""The ledger in MLflow: what a server shows of it, and what it lacks written there later."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dp_accounting

from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.ledger import Anchor, BudgetLedger, Charge
from beam_ldp.ledger.losses import event_digest
from mlflow_ldp.budget_run import log_budget
from mlflow_ldp.cumulative import dataset_metrics
from mlflow_ldp.patience import Patience
from mlflow_ldp.release import LoggedRun, log_release, record_digest
from mlflow_ldp.runs import IDENTITY_TAG, NAMESPACE, RECORD_TAG
from mlflow_ldp.server import (
    ANCHOR_TAG,
    CHARGE_TAG,
    EVENT_TAG,
    PERIOD_TAG,
    POPULATION_TAG,
    read_server,
)

PEOPLE = f"{NAMESPACE}.people"  # what each person was charged, over all runs


def charge_tags(ledger: BudgetLedger, run_id: str, event: Any = None) -> dict[str, str]:
    """Tags that tie an MLflow run to its charge, and anchor the ledger's head outside of it."""
    books = ledger.books
    anchor = Anchor(books.ledger_id, books.head.count, books.head.hash, books.time)
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
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=tracking_uri)
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
    central = "" if price is None else f"epsilon = {price:.4g} at delta = {about['delta']:g}, "
    return (
        f"Mirrored from the ledger: charge `{name}` of `{charges[0].dataset}`, {central}local "
        f"epsilon = {local:.4g}. The program that released it did not log here."
    )
