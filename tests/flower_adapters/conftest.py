"""These tests need Flower: `make test-flower`. Elsewhere they are not collected."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

HERE = Path(__file__).parent
EVERYWHERE = "test_import.py"

if importlib.util.find_spec("flwr") is None:
    collect_ignore = [p.name for p in HERE.glob("test_*.py") if p.name != EVERYWHERE]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.name != EVERYWHERE:
            item.add_marker(pytest.mark.flower)
