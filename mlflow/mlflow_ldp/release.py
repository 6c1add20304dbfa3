"""One release, one MLflow run: parameters, prices, mechanism and files.

Whose data a run was about is shown as MLflow's input: a name and a schema, never data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow_ldp.runs import (
    IDENTITY_TAG,
    LONGEST_KEY,
    LONGEST_PARAM,
    LONGEST_TAG,
    NAMESPACE,
    NOTE_TAG,
    PARAMS_PER_BATCH,
    RECORD_TAG,
    LoggedRun,
    Patience,
    as_text,
    callers_run,
    clean_key,
    find_experiment,
    open_client,
)

_LONGEST_DIGEST, _LONGEST_NAME = 36, 500  # of MLflow


def schema_digest(columns: Mapping[str, str]) -> str:
    """Digest of names and types, in MLflow's length. It tells nothing about what columns hold."""
    text = json.dumps(dict(columns), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_LONGEST_DIGEST]


def dataset_input(name: str, columns: Mapping[str, str], num_users: int | None = None) -> Any:
    """MLflow's `DatasetInput` of a data set.

    Args:
        name: of the data set, as the ledger has it.
        columns: names and types of what was asked.
        num_users: people who took part, if that may be told.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    schema = [{"name": key, "type": kind, "required": True} for key, kind in columns.items()]
    dataset = Dataset(
        name=name[:_LONGEST_NAME] or "unnamed",
        digest=schema_digest(columns),
        source_type="beam-ldp",
        source=json.dumps({"dataset": name}),
        schema=json.dumps({"mlflow_colspec": schema}) if schema else None,
        profile=None if num_users is None else json.dumps({"num_users": num_users}),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "private release")])


STATEMENT = "privacy.md"
_METRICS = (
    "local_epsilon",
    "epsilon",
    "epsilon_lower",
    "epsilon_class_lower",
    "delta",
    "num_reports",
    "honest_reports",
    "smallest_batch",
    "num_bad_rows",
)


class MlflowMissingError(RuntimeError):
    """MLflow is not installed."""


def available() -> bool:
    """Whether MLflow itself can be used.

    A folder called `mlflow` on the path imports as an empty namespace; the real one has a version.
    """
    try:
        import mlflow
    except ImportError:
        return False
    return getattr(mlflow, "__version__", None) is not None


def log_release(
    record: Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    tracking_uri: str | None = None,
    experiment: str = "beam-ldp",
    run_name: str | None = None,
    metrics: Mapping[str, float] | None = None,
    params: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    description: str | None = None,
) -> LoggedRun:
    """Log one release.

    Inside a run of the caller's own, the release becomes a run nested in it, in the same
    experiment; the caller's run and MLflow's global state stay as they are.

    Args:
        record: what privacy.json holds. Prices and counts become metrics, everything else
            parameters, all under `privacy.`; infinite values become tags that say "unbounded".
        folder: local folder whose files become artifacts (the estimate, the plot, the statement).
            `bad_rows.jsonl` is left out: it points into the raw data.
        tracking_uri: where to log; default: the caller's active run's store, else MLflow's own.
        experiment: name of the experiment; created where it does not exist.
        run_name: name of the run; default: the question.
        metrics: further metrics, by their full keys.
        params: further parameters, by their full keys.
        tags: further tags, by their full keys.
        description: what the run says of itself (Markdown); default: the statement in `folder`.

    Raises:
        MlflowMissingError: if MLflow is not installed.
        TrackingTimeoutError: if the server takes longer than a minute, or what the environment
            variable BEAM_LDP_TRACKING_SECONDS says. The run may then be incomplete there, and its
            status says so.
        mlflow.exceptions.MlflowException: if the store cannot be written.
    """
    if not available():
        raise MlflowMissingError("MLflow is not installed: pip install 'beam-ldp[mlflow]'")
    import mlflow
    from mlflow.tracking.context.registry import resolve_tags

    uri = tracking_uri or mlflow.get_tracking_uri()
    parent = callers_run(uri)  # which only the caller's thread knows
    own = {**resolve_tags(), RECORD_TAG: record_digest(record), **(tags or {})}
    said = _statement(folder) if description is None else description
    if said:
        own[NOTE_TAG] = said[:LONGEST_TAG]
    name = (run_name or str(record.get("question") or "release"))[:LONGEST_KEY]
    content = _Content(record, folder, metrics or {}, params or {})
    return Patience().do(lambda: _log(uri, parent, experiment, name, own, content))


@dataclass(frozen=True)
class _Content:
    """What is logged of a release."""

    record: Mapping[str, Any]
    folder: str | Path | None
    metrics: Mapping[str, float]
    params: Mapping[str, Any]


def record_digest(record: Mapping[str, Any]) -> str:
    """Tells a release from others: it is logged once."""
    text = json.dumps(record, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _log(
    uri: str, parent: str | None, experiment: str, name: str, own: dict[str, str], it: _Content
) -> LoggedRun:
    from mlflow.entities import Metric, Param, RunTag

    client = open_client(uri)
    if parent is not None:
        experiment_id = str(client.get_run(parent).info.experiment_id)
        own["mlflow.parentRunId"] = parent
    else:
        experiment_id = find_experiment(client, experiment, uri)
    run = _begun(client, own[RECORD_TAG])
    if run is None:
        run = client.create_run(experiment_id, tags=own, run_name=name)
    run_id, now = str(run.info.run_id), int(run.info.start_time)
    experiment_id = str(run.info.experiment_id)
    try:
        measured, unbounded = _split_finite({**_record_metrics(it.record), **it.metrics})
        told = [
            Param(clean_key(key), as_text(value)[:LONGEST_PARAM])
            for key, value in {**_record_params(it.record), **it.params}.items()
        ]
        found = [RunTag(clean_key(key), value[:LONGEST_TAG]) for key, value in
                 {**_record_tags(it.record), **unbounded}.items()]  # fmt: skip
        client.log_batch(
            run_id,
            metrics=[Metric(clean_key(key), value, now, 0) for key, value in measured.items()],
            params=told[:PARAMS_PER_BATCH],
            tags=found,
        )
        client.log_inputs(run_id, datasets=[_record_input(it.record)])
        client.log_dict(run_id, dict(it.record.get("mechanism") or {}), "privacy/mechanism.json")
        if it.record.get("event") is not None:
            client.log_dict(run_id, dict(it.record["event"]), "privacy/event.json")
        if it.folder is not None:
            for path in sorted(Path(it.folder).iterdir()):
                if path.is_file() and path.name != "bad_rows.jsonl":
                    client.log_artifact(run_id, str(path), "release")
    except BaseException:
        client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id, "FINISHED")
    return LoggedRun(run_id, experiment_id, uri)


def _begun(client: Any, digest: str) -> Any:
    """The run of a release whose log was cut, to complete it; None if there is none."""
    where = [experiment.experiment_id for experiment in client.search_experiments()]
    wanted = f"tags.`{RECORD_TAG}` = '{digest}' and attributes.status != 'FINISHED'"
    return next(iter(client.search_runs(where, wanted, max_results=1)), None) if where else None


def _record_input(record: Mapping[str, Any]) -> Any:
    kind = "double" if record.get("statistic") == "mean" else "string"
    columns = {str(record.get("question") or "value"): kind}
    return dataset_input(str(record.get("dataset") or ""), columns, record.get("num_reports"))


def _record_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{NAMESPACE}.{name}": float(record[name])
        for name in _METRICS
        if record.get(name) is not None
    }


def _record_params(record: Mapping[str, Any]) -> dict[str, Any]:
    told = {
        f"{NAMESPACE}.{name}": value
        for name, value in record.items()
        if name not in (*_METRICS, "mechanism", "event", "certificate", "warnings", "created")
    }
    mechanism = dict(record.get("mechanism") or {})
    told[f"{NAMESPACE}.mechanism"] = mechanism.pop("mechanism", "")
    told.update({f"{NAMESPACE}.mechanism.{name}": value for name, value in mechanism.items()})
    return told


def _record_tags(record: Mapping[str, Any]) -> dict[str, str]:
    told = {
        **_identity(record.get("identity")),
        f"{NAMESPACE}.neighbours": str(record.get("neighbours", "replace-one")),
        f"{NAMESPACE}.guarantee": "none: simulation" if record.get("simulated") else "stated",
    }
    if record.get("warnings"):
        told[f"{NAMESPACE}.warnings"] = "\n".join(str(w) for w in record["warnings"])
    return told


def _identity(identity: Any) -> dict[str, str]:
    """Digest of the release's identity, however it is given."""
    if isinstance(identity, Mapping):
        from beam_ldp.randomizers.identity import ReleaseIdentity

        identity = ReleaseIdentity.from_json(dict(identity))
    digest = getattr(identity, "digest", identity)
    if not digest:
        return {}
    return {IDENTITY_TAG: digest.hex() if isinstance(digest, bytes) else str(digest)}


def _statement(folder: str | Path | None) -> str:
    """The statement of an output folder; "" where there is none."""
    path = None if folder is None else Path(folder) / STATEMENT
    return path.read_text("utf-8") if path is not None and path.is_file() else ""


def _split_finite(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    finite = {key: float(value) for key, value in values.items() if math.isfinite(value)}
    return finite, {key: "unbounded" for key in values if key not in finite}
