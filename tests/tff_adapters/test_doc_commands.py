"""The commands of the pages that train, in the environment of TensorFlow Federated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.packaging.follow import follow, needing

LEARNED = {"trained": 0.4, "adaped": 0.2, "local-central": 0.4}  # accuracy of ten classes, above


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("name", needing("test-tff-slow"))
def test_commands_of_a_page_run(name: str, tmp_path: Path) -> None:
    """From top to bottom, the trainings of the tutorial to their ends: all of them learn.

    `local-central` is at 0.59 with a standard deviation of 0.04 over runs, the shared model of
    `adaped` was at 0.45 and 0.58 in two, `trained` at 0.78: a false alarm of one in a million.
    """
    follow(name, tmp_path, target="test-tff-slow", timeout=880)
    if name == "training.md":
        assert (tmp_path / "trained" / "model.keras").exists()
        for output, least in LEARNED.items():
            curves = json.loads((tmp_path / output / "curves.json").read_text())
            assert curves["training"][-1]["accuracy"] > least
