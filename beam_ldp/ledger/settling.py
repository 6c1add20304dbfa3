"""Settling: what a run released is written down before it is published, or is given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_ldp.ledger.charges import (
    Charge,
    check_identity,
    check_not_again,
    finite,
    followed,
    least_local,
    overspends,
    part_of,
    place,
    release_key,
)
from beam_ldp.ledger.deciding import same
from beam_ldp.ledger.losses import Loss, as_json, committed, is_nothing, local_loss_of, settled_as
from beam_ldp.ledger.opening import (
    LedgerReading,
    Writing,
    charge_of,
    charges_of_release,
    check_covered,
    ended_part,
    equal_releases,
)
from beam_ldp.ledger.rows import ABANDON, SETTLE, BlockUsedUpError, LedgerError, Row, check_text
from beam_ldp.randomizers.identity import ReleaseIdentity


class LedgerSettling(LedgerReading):
    """How a run ends."""

    def settle(
        self,
        run_id: str,
        event: Any,
        *,
        identity: ReleaseIdentity,
        attempt: str | None = None,
        local_event: Any = None,
        report_digest: str | None = None,
        num_randomized: int | None = None,
        proof: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Write down what is released, before it is published. Idempotent.

        More than was reserved is written down too, as an alarm that audits show. A committed
        schedule (`CommittedDpEvent`) is charged whole, wherever it ended. What people lost locally
        is never less than what was reserved, unless it is proved that fewer reports were
        made: `proof` says how, and the event says which were.

        Args:
            run_id: of an open reservation.
            event: what is released.
            identity: of the release; must be that of the reservation. Of a block: of the part.
            attempt: token of the start that settles, as `reserve` gave it. It may be left out of a
                run that was started once.
            local_event: as for `reserve`.
            report_digest: keyed digest of the sorted reports, where noise is memoized.
            num_randomized: how many values were randomized; 0 spends nothing locally, with a proof.
            proof: why fewer reports were made than was reserved, for the record.
            about: JSON-able values for the record.

        Raises:
            LedgerError: if there is no such open reservation, another start of the run took over,
                or the identity is another.
            ValueError: for a committed schedule that was not reserved.
        """
        check_text("proof", proof)
        if num_randomized is not None and num_randomized < 0:
            raise ValueError(f"num_randomized must be >= 0, got {num_randomized}")
        reserved = self.charge(run_id).reserved
        told, sent = as_json(event), None if local_event is None else as_json(local_event)
        told = settled_as(reserved, told)
        local, loss = local_loss_of(sent or told), self._loss_for(self.charge(run_id), told)
        facts = {"event": told, "report_digest": report_digest, "num_randomized": num_randomized,
                 "proof": proof, "about": dict(about or {})}  # fmt: skip
        with self._writing(run_id, attempt) as it:
            charge = charge_of(it.appender, run_id)
            label = identity.part if charge.is_block else ""
            ended = ended_part(it.appender, charge, label)
            check_identity(charge, identity)
            _check_attempt(charge, attempt)
            if ended is not None:
                return _settled_so(ended, told, report_digest)
            _check_open(charge)
            if is_nothing(charge.reserved):
                check_covered(it.appender, _release_of(it, charge), identity.release_id)
            if charge.is_block and charge.memoized:
                check_not_again(identity, equal_releases(it.appender, identity, but=run_id))
            if charge.is_block:
                facts["identity_digest"] = identity.digest.hex()
            body = {**self._end(charge, label, "settle"), **facts}
            if committed(reserved):
                loss = loss.at_least(charge.loss)  # of a block: of one part
            it.append(SETTLE, body | _spent(charge, body, loss, local, sent))
            return _closed(charge, it.rows[-1])

    def abandon(
        self,
        run_id: str,
        *,
        randomized: bool,
        why: str,
        part: str = "",
        count: int | None = None,
        attempt: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Give the central price back: only for a run of which provably nothing was released.

        Args:
            run_id: of an open reservation.
            randomized: whether people may have sent reports already; the local epsilon is then
                spent. So it is where the run was started more than once.
            why, about: for the record.
            part: of a block, the window or round; "" for what is left of it.
            count: of what is left of a block, so many; default: all.
            attempt: token of the start that gives up; a start that was overtaken cannot.

        Raises:
            LedgerError: if there is no such open reservation, or parts of the release that were
                free beside it are settled.
        """
        with self._writing(run_id, attempt) as it:
            charge = charge_of(it.appender, run_id)
            ended = ended_part(it.appender, charge, part)
            _check_attempt(charge, attempt)
            if ended is not None:
                if ended.status == "abandoned":
                    return ended
                raise LedgerError(f"run {ended.run_id!r} is {ended.status} already")
            _check_open(charge)
            number = charge.count if charge.is_block and not part and count is None else count or 1
            if not 1 <= number <= charge.count or (part and number != 1):
                raise LedgerError(f"run {run_id!r} has {charge.count:,} open parts, not {number:,}")
            if number == charge.count and charge.pays:
                _check_pays_for_none(charge, it)
            spent = randomized or charge.attempts > 1
            it.append(
                ABANDON,
                {
                    **self._end(charge, part, "abandon", number),
                    "identity_digest": None,
                    "local_epsilon": finite(charge.reserved_local if spent else 0.0),
                    "about": {**(about or {}), "abandoned": why},
                },
            )
            return _closed(charge, it.rows[-1])

    def _end(self, charge: Charge, part: str, kind: str, count: int = 1) -> dict[str, Any]:
        """What every row says that ends a charge."""
        return {
            **place(charge, part=part),
            "attempt": charge.attempt,
            "count": count,
            "left": charge.count - count,
            "gives_back": charge.loss.to_json(),
            "gives_back_local": finite(charge.reserved_local),
        }


def _settled_so(ended: Charge, told: dict[str, Any], report_digest: str | None) -> Charge:
    """What ended already, if it was settled with the same event and the same reports."""
    equal = same(ended.settled, told) and ended.report_digest == report_digest
    if ended.status == "settled" and equal:
        return ended
    raise LedgerError(f"run {ended.run_id!r} is {ended.status} already")


def _spent(
    charge: Charge, body: dict[str, Any], loss: Loss, local: float, sent: dict[str, Any] | None
) -> dict[str, Any]:
    """What the settled release costs, and whether that is more than was reserved."""
    if sent is None and charge.local_event is not None:
        local = local_loss_of(charge.local_event)
    least = least_local(charge, body, local)
    return {
        "loss": loss.to_json(),
        "local_event": sent or charge.local_event,
        "local_epsilon": finite(least),
        "overspent": overspends(charge, loss, least),
    }


def _closed(charge: Charge, row: Row) -> Charge:
    """The charge, or the part of a block, as the row ends it."""
    return part_of(charge, row) if charge.is_block else followed(charge, row)


def _release_of(it: Writing, charge: Charge) -> str:
    name = it.books.first_name_of(charge.dataset)
    return release_key(charge.population, name, charge.identity)


def _check_pays_for_none(charge: Charge, it: Writing) -> None:
    """A LedgerError where parts of the release were free beside this charge alone, and settled."""
    others = charges_of_release(it.appender, _release_of(it, charge), but=charge.run_id)
    free = [other for other in others if other.settled and is_nothing(other.settled)]
    if free and not any(other.pays for other in others):
        raise LedgerError(
            f"run {charge.run_id!r} pays for run {free[0].run_id!r}, which is settled as a free "
            "part of its release: settle it instead of abandoning it"
        )


def _check_attempt(charge: Charge, attempt: str | None) -> None:
    if attempt is None and charge.attempts > 1:
        raise LedgerError(
            f"run {charge.run_id!r} was started {charge.attempts} times: name the attempt that ends"
        )
    if attempt is not None and attempt != charge.attempt:
        raise LedgerError(
            f"another start of run {charge.run_id!r} took over: this one may not end it, and "
            "nothing of it may be published"
        )


def _check_open(charge: Charge) -> None:
    if charge.status != "reserved" and charge.is_block:
        raise BlockUsedUpError(f"all parts of run {charge.run_id!r} that were reserved have ended")
    if charge.status != "reserved":
        raise LedgerError(f"run {charge.run_id!r} is {charge.status} already")
