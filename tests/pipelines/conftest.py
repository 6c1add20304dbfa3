"""What a program's picture shows is tested by a few; the others do not wait for it to be drawn."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from beam_ldp.pipelines.records.record import PrivacyRecord
from beam_ldp.verifier.verify import CONFIRMED, REFUTED, verify

DRAWN = {"test_ab_test_design", "test_bandit", "test_cli", "test_mean_answer", "test_plan_plot",
         "test_plots", "test_privacy", "test_surveys"}  # fmt: skip


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


@pytest.fixture(autouse=True)
def confirmed_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record that a test's program writes is confirmed by the verifier, or says why not.

    One shuffle of reports whose event holds the mechanism's own table leaves no excuse.
    """
    written = PrivacyRecord.to_json

    def confirmed(record: PrivacyRecord) -> dict[str, Any]:
        told = written(record)
        found = verify(json.loads(json.dumps(told)))
        event = (record.event or {}).get("event", {})
        whole = event.get("kind") == "ShuffledDpEvent" and event["local_event"]["pair"]
        checkable = whole and record.epsilon is not None and record.proof_status == "proved"
        assert found.code == CONFIRMED if checkable else found.code != REFUTED, found.text
        return told

    monkeypatch.setattr(PrivacyRecord, "to_json", confirmed)
