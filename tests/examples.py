"""How many examples a property is tried on: a third in `make test`, all in `make test-slow`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings


def examples(count: int) -> Callable[[Any], Any]:
    """For properties whose examples take tenths of a second: `make test-slow` runs them again."""
    tried = settings(max_examples=count if os.environ.get("BEAM_LDP_EXAMPLES") else count // 3)
    return lambda test: pytest.mark.examples(tried(test))
