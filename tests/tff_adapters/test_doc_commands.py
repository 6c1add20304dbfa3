"""The commands of the pages that train, in the environment of TensorFlow Federated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.follow import follow, needing


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("name", needing("test-tff-slow"))
def test_commands_of_a_page_run(name: str, tmp_path: Path) -> None:
    """From top to bottom, the training of the tutorial to its end."""
    follow(name, tmp_path, target="test-tff-slow", timeout=880)
    if name == "training.md":
        assert (tmp_path / "trained" / "model.keras").exists()
