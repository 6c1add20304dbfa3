"""Whose data a run was about, as MLflow shows its inputs: a name and a schema, never data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

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
