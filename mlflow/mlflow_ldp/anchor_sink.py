"""Heads of a ledger in MLflow: one run per ledger, whose tag is its newest head."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any

from beam_ldp.ledger import Anchor
from mlflow_ldp.runs import NAMESPACE, Patience, find_experiment, open_client
from mlflow_ldp.server import ANCHOR_TAG, read_server

LEDGER_TAG = f"{NAMESPACE}.anchored_ledger"
ROWS = f"{NAMESPACE}.ledger.rows"
_PREFIX = "mlflow+"


class MlflowAnchors:
    """Keeps the heads of a ledger in a tracking server, as `beam_ldp.ledger.sinks.AnchorSink`.

    Whoever may write that server may set them back: it should be somebody else than whoever
    operates the database.

    Args:
        url: tracking URI behind `mlflow+`, for example `mlflow+https://tracking:5000`.
        experiment: name of the experiment.
    """

    def __init__(self, url: str, experiment: str = "beam-ldp") -> None:
        self._uri = url.removeprefix(_PREFIX)
        self._experiment = experiment
        self._runs: dict[str, str] = {}
        self._patience = Patience()

    @property
    def name(self) -> str:
        scheme, _, rest = self._uri.partition("://")
        return f"MLflow at {scheme}://{rest.rpartition('@')[2]}"

    def last(self, ledger_id: str) -> Anchor | None:
        """The anchor that the ledger's run holds.

        Raises:
            TrackingTimeoutError, mlflow.exceptions.MlflowException: if the server cannot be read.
            ValueError: if somebody wrote something else there.
        """
        return self._patience.do(lambda: self._last(ledger_id))

    def put(self, anchor: Anchor) -> None:
        """Keep one.

        Raises:
            TrackingTimeoutError, mlflow.exceptions.MlflowException: if it cannot be written.
        """
        self._patience.do(lambda: self._put(anchor))

    def all(self) -> list[Anchor]:
        """All anchors that the server's runs hold."""
        return read_server(self._uri, events=False).anchors

    def _last(self, ledger_id: str) -> Anchor | None:
        client = open_client(self._uri)
        run_id = self._run(client, ledger_id)
        if run_id is None:
            return None
        told = client.get_run(run_id).data.tags.get(ANCHOR_TAG)
        return None if told is None else Anchor(**json.loads(told))

    def _put(self, anchor: Anchor) -> None:
        from mlflow.entities import Metric, RunTag

        client = open_client(self._uri)
        run_id = self._run(client, anchor.ledger_id) or self._make(client, anchor.ledger_id)
        at = int(datetime.fromisoformat(anchor.time).timestamp() * 1000)
        client.log_batch(
            run_id,
            metrics=[Metric(ROWS, float(anchor.count), at, anchor.count)],
            tags=[RunTag(ANCHOR_TAG, json.dumps(asdict(anchor)))],
        )

    def _run(self, client: Any, ledger_id: str) -> str | None:
        """The run of a ledger; of two the older one counts."""
        if ledger_id not in self._runs:
            experiment = client.get_experiment_by_name(self._experiment)
            if experiment is None:
                return None
            wanted = f"tags.`{LEDGER_TAG}` = '{ledger_id}'"
            order = ["attributes.start_time ASC", "attributes.run_id ASC"]
            where = [experiment.experiment_id]
            found = client.search_runs(where, wanted, max_results=1, order_by=order)
            if not found:
                return None
            if found[0].info.status != "FINISHED":  # whoever made it was cut off
                client.set_terminated(found[0].info.run_id, "FINISHED")
            self._runs[ledger_id] = str(found[0].info.run_id)
        return self._runs[ledger_id]

    def _make(self, client: Any, ledger_id: str) -> str:
        experiment = find_experiment(client, self._experiment, self._uri)
        name = f"anchors of ledger {ledger_id[:8]}"
        made = client.create_run(experiment, tags={LEDGER_TAG: ledger_id}, run_name=name)
        client.set_terminated(made.info.run_id, "FINISHED")
        return str(made.info.run_id)
