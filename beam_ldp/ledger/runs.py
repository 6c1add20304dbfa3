"""What became of a run: its charge, folded from the rows that name it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.errors import LedgerError
from beam_ldp.ledger.losses import Loss, exceeds, limit, no_loss, read_loss
from beam_ldp.ledger.rows import ABANDON, REPLACE, RESERVE, RESUME, SETTLE, Row
from beam_ldp.randomizers.identity import ReleaseIdentity


def reservation(row: Row) -> Charge:
    """The charge that a row reserves.

    Raises:
        ValueError, KeyError, TypeError: if the row is no reservation.
    """
    body = row.body
    local = read_loss(body["local_epsilon"])
    count, is_block = int(body["count"]), bool(body["is_block"])
    if row.kind != RESERVE or count < 1 or (count > 1 and not is_block):
        raise ValueError("a run begins with its reservation")
    return Charge(
        run_id=_name(body["run_id"]),
        dataset=_name(body["dataset"]),
        population=_name(body["population"]),
        identity=ReleaseIdentity.from_json(body["identity"]),
        reserved=dict(body["event"]),
        settled=None,
        loss=Loss.from_json(body["loss"]),
        local_epsilon=local,
        status="reserved",
        about=dict(body["about"]),
        time=body["time"],
        period=int(body["period"]),
        number=row.number,
        memoized=bool(body["memoized"]),
        attempt=_name(body["attempt"]),
        count=count,
        is_block=is_block,
        reserved_local=local,
        local_event=body["local_event"],
        quota=str(body["quota"]),
        certificate=body["certificate"],
    )


def followed(charge: Charge, row: Row) -> Charge:
    """The charge after a further row of its run, a part's rows excepted.

    Raises:
        ValueError: if the row cannot follow.
    """
    body = row.body
    if row.kind == RESUME:
        if charge.status != "reserved" or not charge.memoized:
            raise ValueError("only an open charge of memoized noise is taken up again")
        return replace(charge, attempt=_name(body["attempt"]), attempts=charge.attempts + 1)
    if row.kind == REPLACE:
        if charge.status != "settled":
            raise ValueError("only what was released is released again")
        event = body["event"] or charge.settled
        return replace(
            charge,
            settled=dict(event) if event else None,
            loss=Loss.from_json(body["loss"]),
            report_digest=body["report_digest"],
            published=charge.published + 1,
            about={**charge.about, **body["about"]},
        )
    if charge.status != "reserved" or row.kind not in (SETTLE, ABANDON):
        raise ValueError("a charge ends once")
    if charge.is_block:
        if body["part"] or row.kind == ABANDON:
            return _rest(charge, int(body["count"]))
        raise ValueError("of a block its parts are settled")
    return _ended(charge, row)


def part_of(block: Charge, row: Row) -> Charge:
    """The charge of a part of a block, from the row that ended it."""
    name = str(row.body["part"])
    about = {"run": block.run_id, **block.about}
    one = replace(
        block,
        run_id=f"{block.run_id}/{name or f'rest at row {row.number}'}",
        identity=replace(block.identity, part=name),
        about=about,
        number=row.number,
        count=int(row.body["count"]),
        is_block=False,
    )
    return _ended(one, row)


def _rest(block: Charge, count: int) -> Charge:
    left = block.count - count
    if left < 0:
        raise ValueError("a block has no more parts than were reserved")
    if left:
        return replace(block, count=left)
    zero = no_loss(block.loss.divergences)
    return replace(block, count=0, status="settled", loss=zero, local_epsilon=0.0)


def _ended(charge: Charge, row: Row) -> Charge:
    body = row.body
    about = {**charge.about, **body["about"]}
    local = read_loss(body["local_epsilon"])
    if row.kind == ABANDON:
        loss = no_loss(charge.loss.divergences)
        return replace(charge, status="abandoned", about=about, local_epsilon=local, loss=loss)
    loss = Loss.from_json(body["loss"])
    return replace(
        charge,
        status="settled",
        settled=dict(body["event"]),
        loss=loss,
        about=about,
        local_epsilon=local,
        report_digest=body["report_digest"],
        published=1,
        # Worked out anew: what the row says of itself is what a forger would change.
        overspent=overspends(charge, loss, local),
    )


def overspends(charge: Charge, real: Loss, local: float) -> bool:
    """Whether what was released costs more than its reservation."""
    return exceeds(real, charge.loss) or local > limit(charge.reserved_local)


def of_run(rows: Sequence[Row]) -> Charge:
    """The charge of a run from its rows, those of a block's parts left out, and its last row."""
    charge = reservation(rows[0])
    for row in rows[1:]:
        if row.body["part"] == "":
            charge = followed(charge, row)
    left = int(rows[-1].body["left"])
    return _rest(charge, charge.count - left) if charge.is_block and charge.count else charge


def least_local(charge: Charge, body: dict[str, Any], told: float) -> float:
    """What an end of a charge may at least say that each person lost locally.

    Args:
        charge: as it was reserved.
        body: of the row that ends it.
        told: the local epsilon of the event that ends it.

    A run that began again may have asked people in every start, so nothing is given back then.
    """
    if charge.attempts > 1 or not body["proof"]:
        return max(charge.reserved_local, told)
    return 0.0 if body["num_randomized"] == 0 else told


def _name(told: Any) -> str:
    if not isinstance(told, str) or not told:
        raise ValueError("a name is text")
    return told


def finite(local: float) -> float | None:
    """As a row holds a local epsilon: null where there is none."""
    return None if math.isinf(local) else float(local)


def place(charge: Charge, run_id: str | None = None, part: str = "") -> dict[str, Any]:
    """Where a row of a charge counts, and how it is found."""
    return {
        "run_id": run_id or charge.run_id,
        "part": part,
        "population": charge.population,
        "period": charge.period,
        "quota": charge.quota,
        "release_key": None,
        "identity_digest": None,
    }


def check_identity(charge: Charge, identity: ReleaseIdentity) -> None:
    """A LedgerError unless a charge was reserved for this release; a block, for its whole."""
    told = replace(identity, part="") if charge.is_block else identity
    if told != charge.identity:
        differs = ", ".join(charge.identity.differences(told))
        raise LedgerError(
            f"run {charge.run_id!r} was reserved for another release: it differs in its {differs}"
        )
