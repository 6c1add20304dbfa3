"""What a program's picture shows is tested by a few; the others do not wait for it to be drawn."""

from __future__ import annotations

import io
from typing import Any

import pytest
from matplotlib.figure import Figure

DRAWN = {"test_cli", "test_mean_answer", "test_plan_plot", "test_plots", "test_privacy",
         "test_surveys"}  # fmt: skip


@pytest.fixture(autouse=True)
def plain_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but only their first bytes are written. Other processes draw them."""

    def write(_: Figure, stream: io.BytesIO, **__: Any) -> None:
        stream.write(b"\x89PNG\r\n\x1a\n, not drawn")

    if request.path.stem not in DRAWN:
        monkeypatch.setattr(Figure, "savefig", write)
