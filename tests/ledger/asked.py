"""Identities for tests."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from beam_ldp.randomizers.identity import ReleaseIdentity

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger

KEY = "ab" * 16  # a commitment


def asked(dataset: str, release_id: str, **how: Any) -> ReleaseIdentity:
    """A release of some question, with fresh noise unless `key` says otherwise."""
    return ReleaseIdentity(dataset, release_id, **{"mechanism": "00", **how})


def begun(ledger: BudgetLedger, run_id: str, token: str = "") -> str:
    """The token of a run of a pipeline that was built: the one given, or a new one."""
    token = token or uuid.uuid4().hex
    ledger.begin(run_id, attempt=ledger.charge(run_id).attempt, start=token)
    return token
