"""The audit of a tracking server alone: every price that a run shows, from the event it stores."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger import Check
from beam_ldp.ledger.losses import event_digest
from mlflow_ldp.runs import NAMESPACE

_TOLERANCE = 1e-6  # relative; what a shown price may lie below the recomputed one
PRICES = "every price that is shown is at least the price of the stored event"
EVENTS = "every stored event is the one that was charged"
CHAIN = "runs compose within a budget, and none was removed"


def audit_server(tracking_uri: str) -> list[Check]:
    """Recompute what the runs of a server show.

    One run at a time: what they cost together, and whether one is missing, only a ledger knows.

    Args:
        tracking_uri: of the server.

    Raises:
        mlflow.exceptions.MlflowException: if the server cannot be read.
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=tracking_uri)
    prices: list[str] = []
    events: list[str] = []
    seen = 0
    for run in _runs(client):
        event = _stored_event(client, run.info.run_id)
        if event is None:
            continue
        seen += 1
        prices += _price_faults(run, event)
        events += _event_faults(run, event)
    nothing = ("no run stores the event of one release",)
    return [
        Check(PRICES, _outcome(prices, seen), tuple(prices) if seen else nothing),
        Check(EVENTS, _outcome(events, seen), tuple(events) if seen else nothing),
        Check(CHAIN, "no evidence", ("no ledger was named: only a ledger shows it",)),
    ]


def _outcome(findings: list[str], seen: int) -> Any:
    return "failed" if findings else "passed" if seen else "no evidence"


def _runs(client: Any) -> Any:
    from mlflow.entities import ViewType

    experiments = [e.experiment_id for e in client.search_experiments(view_type=ViewType.ALL)]
    token = None
    while experiments:
        page = client.search_runs(
            experiments,
            f"metrics.`{NAMESPACE}.local_epsilon` >= 0",
            max_results=1000,
            page_token=token,
        )
        yield from page
        token = page.token
        if not token:
            return


def _stored_event(client: Any, run_id: str) -> dict[str, Any] | None:
    path = f"{NAMESPACE}/event.json"
    if path not in [item.path for item in client.list_artifacts(run_id, NAMESPACE)]:
        return None
    with tempfile.TemporaryDirectory() as folder:
        found = json.loads(Path(client.download_artifacts(run_id, path, folder)).read_text("utf-8"))
    return found if isinstance(found, dict) else {}


def _price_faults(run: Any, event: dict[str, Any]) -> list[str]:
    metrics = run.data.metrics
    shown, delta = (metrics.get(f"{NAMESPACE}.{name}") for name in ("epsilon", "delta"))
    if shown is None or delta is None:
        return []
    try:
        price = float(event_epsilon(event_from_json(event), delta))
    except ValueError:
        return [f"MLflow run {run.info.run_id} stores an event that has no price"]
    if shown >= price * (1 - _TOLERANCE):
        return []
    return [
        f"MLflow run {run.info.run_id} shows epsilon = {shown:.6g}; its event costs {price:.6g}"
    ]


def _event_faults(run: Any, event: dict[str, Any]) -> list[str]:
    digest = run.data.tags.get(f"{NAMESPACE}.event_sha256")
    if digest is None or digest == event_digest(event):
        return []
    return [f"MLflow run {run.info.run_id} stores another event than the one that was charged"]
