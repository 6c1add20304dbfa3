"""What the ledger is told of a release, from its privacy record: before it is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_ldp.randomizers.identity import ReleaseIdentity

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger

# Beside its event.
_TOLD = ("question", "epsilon", "delta", "method", "proof_status", "num_reports", "output")


def settle(
    ledger: BudgetLedger,
    record: Mapping[str, Any],
    attempt: str | None = None,
    publications: Sequence[str] = (),
) -> None:
    """Settle a run from its privacy record. Safe to repeat.

    Args:
        ledger: that holds it.
        record: of what is released.
        attempt: of the start that releases; None if only the record is left.
        publications: name of the folder with hashes of the reports, if there is one.

    Raises:
        LedgerError: if the ledger holds no such reservation, or another settlement of it.
    """
    about = {name: record[name] for name in _TOLD if record.get(name) is not None}
    if record.get("charged_epsilon") is not None:  # the event is larger than what was priced
        about["epsilon"] = record["charged_epsilon"]
    if record.get("memoized"):
        about["publications"] = [publication_of(record, publications)]
    ledger.settle(
        record["run_id"],
        record["event"],
        identity=identity_of(ledger, record),
        attempt=attempt,
        report_digest=record.get("report_digest"),
        local_event=record.get("local_event"),
        proof=record.get("proof") or _proof(record),
        about=about | {"mechanism": dict(record["mechanism"]).get("mechanism", "")},
    )


def publication_of(record: Mapping[str, Any], folders: Sequence[str]) -> dict[str, Any]:
    """What a later publication of the same reports must know of this one.

    `folder` of hashes, "" without; `people` who reported; `least` reports of a group that is shown;
    `whole`: whether all reports of each group were shown together.
    """
    withheld = sum(part["num_reports"] for part in record.get("withheld", ()))
    return {
        "folder": next(iter(folders), ""),
        "people": record["num_reports"] + withheld,
        "least": record["min_reports"],
        "whole": bool(record.get("one_shuffle")),
    }


def identity_of(ledger: BudgetLedger, record: Mapping[str, Any]) -> ReleaseIdentity:
    """What a record says was released; of a training, what the ledger says.

    Raises:
        ValueError: if that is no identity.
    """
    told = record.get("identity")
    if told is None:
        return ledger.charge(record["run_id"]).identity
    return ReleaseIdentity.from_json(told)


def _proof(record: Mapping[str, Any]) -> str:
    """Why fewer reports were made than was reserved: of a training, only some rounds began."""
    begun = record.get("rounds")
    return f"{begun:,} rounds began" if isinstance(begun, int) else ""
