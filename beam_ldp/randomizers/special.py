"""The functions of `scipy.special`, which takes a quarter of a second to load, when one is called.

    from beam_ldp.randomizers import special

    special.ndtr(0.0)

Plans, prices and devices that need none of them answer without it.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module("scipy.special"), name)
    globals()[name] = found
    return found
