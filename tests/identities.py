"""Identities of releases for tests that care about one thing alone."""

from __future__ import annotations

from typing import Any

from beam_ldp.randomizers.identity import ReleaseIdentity


def identity(release: str = "r", dataset: str = "d", **more: Any) -> ReleaseIdentity:
    """A release that is known by its name."""
    return ReleaseIdentity(dataset, release, **more)
