"""Charges that contradict each other: one release id with two questions, one release charged twice.

A ledger refuses both when it is asked. Audits look anew: rows may come from another program, or
from two ledgers whose databases were merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.state import LedgerState
from beam_ldp.randomizers.identity import ReleaseIdentity


def two_questions(state: LedgerState) -> list[str]:
    """Charges whose release id stood for another question, or another key, before."""
    first: dict[tuple[str, str, str], tuple[Charge, ReleaseIdentity]] = {}
    found = []
    for charge in _reservations(state):
        identity = charge.identity
        key = (charge.population, state.first_name_of(identity.dataset), identity.release_id)
        whole = replace(identity, part="", group="")
        before = first.setdefault(key, (charge, whole))
        if before[1] != whole:
            found.append(
                f"run {charge.run_id!r} released another question under release id "
                f"{identity.release_id!r} than run {before[0].run_id!r}: it differs in its "
                f"{', '.join(before[1].differences(whole))}"
            )
    return found


def charged_twice(state: LedgerState) -> list[str]:
    """Memoized releases of one identity that stand as two charges: noise was counted as fresh."""
    first: dict[tuple[str, bytes], Charge] = {}
    found = []
    for charge in _reservations(state):
        if not charge.identity.key or charge.status == "abandoned" or charge.is_block:
            continue  # a block may be continued by another: its parts are what is released
        before = first.setdefault((charge.population, charge.identity.digest), charge)
        if before is not charge:
            found.append(
                f"runs {before.run_id!r} and {charge.run_id!r} released the same reports "
                f"({charge.identity.release_id!r}) as if they were two"
            )
    return found


def _reservations(state: LedgerState) -> Iterator[Charge]:
    """All charges in the order of their rows; of a block its parts too."""
    charges = (c for p in state.populations.values() for c in p.charges.values())
    yield from sorted(charges, key=lambda charge: charge.number)
