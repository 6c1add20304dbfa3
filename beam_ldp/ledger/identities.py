"""One release id stands for one question: what may not change under it, and how that is found."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.errors import LedgerError
from beam_ldp.ledger.rows import canonical
from beam_ldp.randomizers.identity import ReleaseIdentity


def release_key(population: str, dataset: str, identity: ReleaseIdentity) -> str:
    """What all charges of one release id have in common, and no other: 32 hexadecimal digits.

    Args:
        population: whose data.
        dataset: its first name, which renaming does not change.
        identity: of the release.
    """
    told = canonical(["beam-ldp release", population, dataset, identity.release_id])
    return hashlib.sha256(told).hexdigest()[:32]


def check_question(identity: ReleaseIdentity, first: Charge) -> None:
    """A LedgerError if the release id stands for another question, or has another key.

    Args:
        identity: what is to be released.
        first: the first charge of the same release id; all others agree with it.
    """
    differs = _whole(first.identity).differences(_whole(identity))
    if differs:
        names = ["secret key" if name == "key" else name for name in differs]
        raise LedgerError(
            f"release id {identity.release_id!r} of dataset {identity.dataset!r} stands for "
            f"another question already (run {first.run_id!r}): it differs in its "
            f"{', '.join(names)}. Another question needs a release id of its own"
        )


def check_not_again(identity: ReleaseIdentity, equal: Iterable[Charge]) -> None:
    """A LedgerError if the same memoized reports are being released, or were.

    Fresh noise may be drawn again: it is charged again.

    Args:
        identity: what is to be released.
        equal: charges of the equal identity, by whatever run.
    """
    for charge in equal if identity.key else ():
        if charge.status == "reserved":
            raise LedgerError(
                f"run {charge.run_id!r} is releasing this very release ({identity.release_id!r}): "
                "take it up again under its own name, or wait for it to end"
            )
        if charge.status == "settled" and not charge.is_block:
            raise LedgerError(
                f"this very release ({identity.release_id!r}) was published by run "
                f"{charge.run_id!r}: a second publication of the same reports is priced with the "
                "first one (`republish`), or is a release with an id of its own"
            )


def _whole(identity: ReleaseIdentity) -> ReleaseIdentity:
    return replace(identity, part="", group="")
