"""Identities for tests."""

from __future__ import annotations

from typing import Any

from beam_ldp.randomizers.identity import ReleaseIdentity

KEY = "ab" * 16  # a commitment


def asked(dataset: str, release_id: str, **how: Any) -> ReleaseIdentity:
    """A release of some question, with fresh noise unless `key` says otherwise."""
    return ReleaseIdentity(dataset, release_id, **{"mechanism": "00", **how})
