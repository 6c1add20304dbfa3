"""A ledger on a file of its own, and a clock that tests move."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from beam_ldp.ledger import BudgetLedger


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.time

    def move(self, **how: float) -> None:
        self.time += timedelta(**how)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'privacy.db'}"


@pytest.fixture
def ledger(url: str, clock: Clock) -> BudgetLedger:
    return BudgetLedger.create(url, clock=clock, mlflow_uri="http://tracking:5000")
