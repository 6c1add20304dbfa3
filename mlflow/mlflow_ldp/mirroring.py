"""The ledger in MLflow: what a server shows of it, and what it lacks written there later."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from beam_ldp.ledger import BudgetLedger, Charge
from beam_ldp.ledger.losses import event_digest
from mlflow_ldp.patience import Patience
from mlflow_ldp.release import RECORD_TAG, LoggedRun, log_release, record_digest
from mlflow_ldp.runs import NAMESPACE

CHARGE_TAG = f"{NAMESPACE}.charge"  # name of the charge that a run belongs to
ANCHOR_TAG = f"{NAMESPACE}.ledger_anchor"  # head of the ledger when the run was logged, JSON
PEOPLE = f"{NAMESPACE}.people"  # what each person was charged, over all runs
_SHOWN = ("epsilon", "delta", "local_epsilon")


def charge_tags(ledger: BudgetLedger, run_id: str, event: Any = None) -> dict[str, str]:
    """Tags that tie an MLflow run to its charge, and anchor the ledger's head outside of it."""
    state = ledger.state
    anchor = {
        "ledger_id": state.ledger_id,
        "count": state.head.count,
        "hash": state.head.hash,
        "time": "",
    }
    tags = {CHARGE_TAG: run_id, ANCHOR_TAG: json.dumps(anchor), **_distribution(ledger, run_id)}
    if event is not None:
        tags[f"{NAMESPACE}.event_sha256"] = event_digest(event)
    return tags


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


def _distribution(ledger: BudgetLedger, run_id: str) -> dict[str, str]:
    """How many people were charged how much locally, as a tag, where that was counted."""
    if not ledger.state.has_run(run_id):
        return {}
    people = ledger.status(ledger.state.charge(run_id).dataset).people
    if people is None:
        return {}
    return {f"{PEOPLE}.local_epsilon_distribution": json.dumps(people.distribution)}


def tracked(tracking_uri: str) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """What a server shows: prices per charge, and the anchors that its runs hold.

    Args:
        tracking_uri: of the server.

    Returns:
        `(shown, anchors)`: per name of a charge `epsilon`, `delta`, `local_epsilon` and
        `event_sha256` as far as they are there; heads of the ledger as `Anchor` takes them.

    Raises:
        TrackingTimeoutError: if the server does not answer in time.
        mlflow.exceptions.MlflowException: if it cannot be read.
    """
    return Patience().do(lambda: _tracked(tracking_uri))


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


def _tracked(tracking_uri: str) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    from mlflow.entities import ViewType
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=tracking_uri)
    experiments = [e.experiment_id for e in client.search_experiments(view_type=ViewType.ALL)]
    shown: dict[str, dict[str, Any]] = {}
    anchors: list[dict[str, Any]] = []
    token = None
    while experiments:
        page = client.search_runs(
            experiments, f"tags.`{CHARGE_TAG}` != ''", max_results=1000, page_token=token
        )
        for run in page:
            tags = run.data.tags
            shown[tags[CHARGE_TAG]] = _shown(run.data)
            if ANCHOR_TAG in tags:
                anchors.append(json.loads(tags[ANCHOR_TAG]) | {"time": _time(run)})
        token = page.token
        if not token:
            break
    return shown, anchors


def _shown(data: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _SHOWN:
        key = f"{NAMESPACE}.{name}"
        value = data.metrics.get(key, data.params.get(key))
        if value is not None:
            found[name] = float(value)
    digest = data.tags.get(f"{NAMESPACE}.event_sha256")
    return found if digest is None else {**found, "event_sha256": digest}


def _time(run: Any) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(run.info.start_time / 1000, timezone.utc).isoformat()


def mirror(
    ledger: BudgetLedger, *, tracking_uri: str, experiment: str = "beam-ldp"
) -> list[LoggedRun]:
    """Log every settled charge that the server does not show yet.

    For runs whose launcher was lost, or whose server was down. Idempotent.

    Args:
        ledger: what was charged.
        tracking_uri: where to log.
        experiment: name of the experiment.
    """
    known, _ = tracked(tracking_uri)
    missing: dict[str, list[Charge]] = defaultdict(list)
    for population in ledger.state.populations.values():
        for charge in population.charges.values():
            if charge.status == "settled" and charge.group not in known:
                missing[charge.group].append(charge)
    return [
        log_release(
            _record(name, charges),
            tracking_uri=tracking_uri,
            experiment=experiment,
            run_name=f"{charges[0].about.get('question', charges[0].dataset)} (mirrored)",
            tags=charge_tags(ledger, name, charges[0].settled if len(charges) == 1 else None),
        )
        for name, charges in missing.items()
    ]


def _record(name: str, charges: list[Charge]) -> Mapping[str, Any]:
    """What the ledger knows of a run, as a record."""
    about = charges[-1].about
    return {
        **{key: value for key, value in about.items() if key != "run"},
        "dataset": charges[0].dataset,
        "run_id": name,
        "local_epsilon": sum(charge.local_epsilon for charge in charges),
        "mirrored": True,
    }
