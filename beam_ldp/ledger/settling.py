"""Settling: what a run released is written down before it is published, or is given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_ldp.ledger.admission import same
from beam_ldp.ledger.charges import (
    Charge,
    check_identity,
    check_not_again,
    finite,
    followed,
    least_local,
    leaves_rounds_out,
    overspends,
    part_of,
    place,
    release_key,
)
from beam_ldp.ledger.connection import (
    LedgerReading,
    Writing,
    charge_of,
    charges_of_release,
    check_covered,
    ended_part,
    equal_releases,
)
from beam_ldp.ledger.losses import Loss, as_json, committed, is_nothing, local_loss_of, settled_as
from beam_ldp.ledger.rows import (
    ABANDON,
    BEGIN,
    REPLACE,
    SETTLE,
    BlockUsedUpError,
    LedgerError,
    ReleasedBeforeError,
    Row,
    check_name,
    check_text,
)
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity


class LedgerSettling(LedgerReading):
    """How a run goes on, and how it ends."""

    def begin_round(
        self, run_id: str, begun: int, *, attempt: str, start: str | None = None
    ) -> Charge:
        """Write down how many rounds of a training have begun, before anybody is asked.

        The count never falls, and the charge is settled for at least as many rounds: no file beside
        the training, and no older copy of one, makes it cheaper.

        Args:
            run_id: of an open reservation of all rounds; no block.
            begun: rounds in all, the one that begins now included; 0 before the first.
            attempt: token of the start that runs the training.
            start: token of a further start, which takes over from the one before: that may begin or
                settle nothing from then on.

        Raises:
            LedgerError: if the charge has ended, another start took over, or more rounds have
                begun already.
        """
        check_integer("begun", begun, 0)
        if start is not None:
            check_name("start", start)
        with self._writing(run_id, attempt, spends=start is not None) as it:
            charge = charge_of(it.appender, run_id)
            _check_attempt(charge, attempt, charge.attempt)
            _check_open(charge)
            if not charge.counts_rounds:
                raise LedgerError(
                    f"run {run_id!r} is a block, a pipeline's, or of reports that stay the same: "
                    "no rounds of it are counted"
                )
            if begun < charge.least_begun:
                raise LedgerError(
                    f"{charge.least_begun:,} rounds of run {run_id!r} have begun: the count cannot "
                    f"fall to {begun:,}"
                )
            told = {"attempt": start or attempt, "begun": begun, "left": charge.count}
            it.append(BEGIN, {**place(charge), **told})
            return followed(charge, it.rows[-1])

    def settle(
        self,
        run_id: str,
        event: Any,
        *,
        identity: ReleaseIdentity,
        attempt: str | None = None,
        tokens: Mapping[str, str] | None = None,
        local_event: Any = None,
        report_digest: str | None = None,
        num_randomized: int | None = None,
        proof: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Write down what is released, before it is published.

        Idempotent by what leaves, never by what it costs: the same call of the same start is free,
        and the same memoized release of any start. Any other settlement of an ended charge is
        refused: fresh noise can cost the same twice.

        More than was reserved is written down too, as an alarm that audits show. A committed
        schedule (`CommittedDpEvent`) is charged whole, wherever it ended. What people lost locally
        is never less than what was reserved, unless it is proved that fewer reports were
        made: `proof` says how, and the event says which were.

        Args:
            run_id: of an open reservation.
            event: what is released.
            identity: of the release; must be that of the reservation. Of a block: of the part.
            attempt: token of the start that settles, as `reserve` gave it or `begin` took it. It
                may be left out of a run that was started once, which then settles once.
            tokens: for each public group ("" without groups) what stands for its release: drawn
                where the release is made, anew whenever it is made anew; of memoized noise a
                digest of the release. One charge covers one release of each group: groups that are
                settled later add their tokens to it. None where one process makes one release.
            local_event: as for `reserve`.
            report_digest: set digest of the reports, by which the same ones are known again.
            num_randomized: how many values were randomized; 0 spends nothing locally, with a proof.
            proof: why fewer reports were made than was reserved, for the record.
            about: JSON-able values for the record.

        Raises:
            ReleasedBeforeError: if the charge, or this part of it, ended in any other way.
            LedgerError: if there is no such open reservation, another start of the run took over,
                the identity is another, or more rounds have begun than the event is of.
            ValueError: for a committed schedule that was not reserved.
        """
        check_text("proof", proof)
        leaving = dict(tokens or {})
        for token in leaving.values():
            check_name("tokens", token)
        if num_randomized is not None and num_randomized < 0:
            raise ValueError(f"num_randomized must be >= 0, got {num_randomized}")
        reserved = self.charge(run_id).reserved
        told, sent = as_json(event), None if local_event is None else as_json(local_event)
        told = settled_as(reserved, told)
        local, loss = local_loss_of(sent or told), self._loss_for(self.charge(run_id), told)
        facts = {"event": told, "report_digest": report_digest, "num_randomized": num_randomized,
                 "proof": proof, "tokens": leaving, "about": dict(about or {})}  # fmt: skip
        with self._writing(run_id, attempt) as it:
            charge = charge_of(it.appender, run_id)
            label = identity.part if charge.is_block else ""
            ended = ended_part(it.appender, charge, label)
            check_identity(charge, identity)
            if ended is not None:
                _check_same(ended, attempt, facts)
                more = {name: leaving[name] for name in leaving if name not in ended.tokens}
                return _with_groups(it, charge, ended, label, more) if more else ended
            _check_open(charge)
            _check_attempt(charge, attempt, charge.settles)
            _check_rounds(charge, told)
            if is_nothing(charge.reserved):
                check_covered(it.appender, _release_of(it, charge), identity.release_id)
            if charge.is_block and charge.memoized:
                check_not_again(identity, equal_releases(it.appender, identity, but=run_id))
            if charge.is_block:
                facts["identity_digest"] = identity.digest.hex()
            body = {**self._end(charge, label, attempt), **facts}
            if same(told, reserved):  # whatever a later version makes of the same event
                loss = charge.loss
            elif committed(reserved):
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
                spent. So it is where the run was started more than once, and where a round began.
            why, about: for the record.
            part: of a block, the window or round; "" for what is left of it.
            count: of what is left of a block, so many; default: all.
            attempt: token of the start that gives up; a start that was overtaken cannot. Of a
                pipeline the launcher may, which reserved.

        Raises:
            ReleasedBeforeError: if it was settled.
            LedgerError: if there is no such open reservation, or parts of the release that were
                free beside it are settled.
        """
        with self._writing(run_id, attempt) as it:
            charge = charge_of(it.appender, run_id)
            ended = ended_part(it.appender, charge, part)
            if ended is not None:
                if ended.status == "abandoned":
                    return ended
                raise ReleasedBeforeError(f"run {ended.run_id!r} is {ended.status} already")
            _check_open(charge)
            _check_attempt(charge, attempt, charge.settles, charge.attempt)
            number = charge.count if charge.is_block and not part and count is None else count or 1
            if not 1 <= number <= charge.count or (part and number != 1):
                raise LedgerError(f"run {run_id!r} has {charge.count:,} open parts, not {number:,}")
            if number == charge.count and charge.pays:
                _check_pays_for_none(charge, it)
            spent = randomized or charge.asked_people
            it.append(
                ABANDON,
                {
                    **self._end(charge, part, attempt, number),
                    "identity_digest": None,
                    "local_epsilon": finite(charge.reserved_local if spent else 0.0),
                    "about": {**(about or {}), "abandoned": why},
                },
            )
            return _closed(charge, it.rows[-1])

    def _end(
        self, charge: Charge, part: str, attempt: str | None, count: int = 1
    ) -> dict[str, Any]:
        """What every row says that ends a charge."""
        counted = {} if charge.rounds_begun is None else {"begun": charge.rounds_begun}
        return {
            **place(charge, part=part),
            **counted,
            "attempt": attempt or charge.settles,
            "count": count,
            "left": charge.count - count,
            "gives_back": charge.loss.to_json(),
            "gives_back_local": finite(charge.reserved_local),
        }


def _check_rounds(charge: Charge, told: dict[str, Any]) -> None:
    if leaves_rounds_out(charge, told):
        raise LedgerError(
            f"{charge.least_begun:,} rounds of run {charge.run_id!r} have begun, as the ledger "
            "knows, and the event is of fewer"
        )


def _check_same(ended: Charge, attempt: str | None, facts: Mapping[str, Any]) -> None:
    """A ReleasedBeforeError unless the start that settled settles the very same thing again.

    Without tokens all of it must be the same; with them, of each group that was released. Another
    start has the same tokens only where they are digests.
    """
    tokens, about = facts["tokens"], facts["about"]
    proved = ended.memoized and 0 < len(tokens.keys() & ended.tokens.keys()) == len(tokens)
    if (
        ended.status != "settled"
        or attempt is None
        or (attempt != ended.attempt and not proved)
        or bool(tokens) != bool(ended.tokens)
        or any(ended.tokens.get(name, token) != token for name, token in tokens.items())
        or not same(ended.settled, facts["event"])
        or ended.report_digest != facts["report_digest"]
        or not same(about, {name: ended.about.get(name) for name in about})
    ):
        raise ReleasedBeforeError(
            f"run {ended.run_id!r} is {ended.status} already, and this is not known to be the same "
            "release: a repetition with new noise needs a new name and a new charge"
        )


def _with_groups(
    it: Writing, charge: Charge, ended: Charge, part: str, more: dict[str, str]
) -> Charge:
    """The charge with releases of further groups: people are in one, so it costs nothing more."""
    if "" in more or "" in ended.tokens:
        raise ValueError("tokens must name the groups")
    loss = ended.loss.to_json()
    row = {**place(charge, part=part), "left": charge.count, "event": ended.settled, "loss": loss,
           "gives_back": loss, "report_digest": ended.report_digest, "reason": "groups",
           "cells": None, "tokens": more, "about": {}}  # fmt: skip
    it.append(REPLACE, row)
    return followed(ended, it.rows[-1])


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
    name = it.balances.first_name_of(charge.dataset)
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


def _check_attempt(charge: Charge, attempt: str | None, *may: str) -> None:
    """A LedgerError unless this start may end the charge."""
    if attempt is None and (charge.attempts > 1 or charge.attempt not in may):
        raise LedgerError(
            f"run {charge.run_id!r} was started {charge.attempts} times: name the attempt that ends"
            if charge.attempts > 1
            else f"run {charge.run_id!r} is a pipeline's: name the run of it that ends (attempt)"
        )
    if attempt is not None and attempt not in may:
        raise LedgerError(
            f"another start of run {charge.run_id!r} took over: this one may not end it, and "
            "nothing of it may be published"
        )


def _check_open(charge: Charge) -> None:
    if charge.status != "reserved" and charge.is_block:
        raise BlockUsedUpError(f"all parts of run {charge.run_id!r} that were reserved have ended")
    if charge.status != "reserved":
        raise LedgerError(f"run {charge.run_id!r} is {charge.status} already")
