"""A test session ends, and its pipe with it: TFF's worker does not outlive it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.e2e
def test_a_session_that_is_piped_ends():
    """The worker inherits stdout: were it alive, `cat` would wait for it for ever."""
    one = "tests/tff_adapters/test_aggregators.py::test_weighted_wrapper_ignores_weights"
    session = f"{sys.executable} -m pytest -q -p no:cacheprovider {one} | cat"
    run = subprocess.run(
        ["bash", "-c", session], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert "1 passed" in run.stdout
