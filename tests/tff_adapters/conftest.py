"""These tests need TensorFlow Federated: `make test-tff`. Elsewhere they are not collected."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if importlib.util.find_spec("tensorflow_federated") is None:
    collect_ignore = [
        p.name for p in Path(__file__).parent.glob("test_*.py") if p.name != "test_import.py"
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.name != "test_import.py":
            item.add_marker(pytest.mark.tff)
