"""Stores of MLflow and a ledger, of each test its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_ldp.ledger import BudgetLedger


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """An empty store, which is MLflow's for as long as the test; no run of it stays open."""
    mlflow = pytest.importorskip("mlflow")
    uri, before = f"sqlite:///{tmp_path / 'mlflow.db'}", mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    yield uri
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetLedger:
    """With a budget of visits."""
    made = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    made.set_budget("visits", epsilon=1.0, delta=1e-6, local_epsilon=16.0)
    return made
