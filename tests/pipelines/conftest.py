"""What a program's picture shows is tested by a few; the others do not wait for it to be drawn."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

DRAWN = {"test_ab_test_design", "test_audit", "test_bandit", "test_cli",
         "test_plan_plot", "test_plots", "test_privacy", "test_surveys"}  # fmt: skip


@pytest.fixture(autouse=True)
def plain_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but only their first bytes are written. Other processes draw them."""

    def write(_: Figure, where: io.BytesIO | str, **__: Any) -> None:
        said = b"\x89PNG\r\n\x1a\n, not drawn"
        Path(where).write_bytes(said) if isinstance(where, str) else where.write(said)

    if request.path.stem not in DRAWN:
        monkeypatch.setattr(Figure, "savefig", write)


@pytest.fixture(autouse=True)
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow leaves the address of another test's store in the environment."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
