"""How many examples a property is tried on: a third in `make test`, all in `make test-slow`."""

from __future__ import annotations

import os

from hypothesis import settings


def examples(count: int) -> settings:
    """For properties whose examples take tenths of a second."""
    return settings(max_examples=count if os.environ.get("BEAM_LDP_EXAMPLES") else count // 3)
