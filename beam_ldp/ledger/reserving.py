"""Reserving: the worst case of a run is set aside, or refused, before anything is read."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_ldp.ledger.admission import budget_of, check_fits, epsilon_of, population_of, same
from beam_ldp.ledger.balances import REPLACE_ONE, Population
from beam_ldp.ledger.charges import (
    Charge,
    check_identity,
    check_not_again,
    check_question,
    finite,
    followed,
    of_run,
    place,
    release_key,
)
from beam_ldp.ledger.connection import (
    LedgerReading,
    Writing,
    after,
    charge_of,
    check_covered,
    ended_part,
    equal_releases,
)
from beam_ldp.ledger.losses import (
    as_json,
    check_commitment,
    committed,
    exceeds,
    is_nothing,
    local_loss_of,
    loss_of,
    loss_of_part,
    times,
)
from beam_ldp.ledger.rows import REPLACE, RESERVE, RESUME, LedgerError, Row, check_name
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.set_digest import OLD_DIGEST, is_old, same_set


@dataclass(frozen=True)
class _Request:
    """A run that asks for its charge: what can be checked of it alone, is. See `reserve`."""

    dataset: str
    run_id: str
    identity: ReleaseIdentity
    memoized: bool
    count: int | None
    quota: str
    attempt: str
    privacy_unit: str
    neighbours: str
    about: dict[str, Any]
    certificate: Any

    def __post_init__(self) -> None:
        check_name("run_id", self.run_id)
        count, identity = self.count, self.identity
        if count is not None:
            check_integer("count", count, 1)
        if count is not None and identity.part:
            raise ValueError("identity must be of the whole release where a block is reserved")
        if identity.dataset != self.dataset:
            raise ValueError(
                f"identity must be of dataset {self.dataset!r}, got {identity.dataset!r}"
            )
        if identity.key and not self.memoized:
            raise ValueError("identity must commit to a key only where memoized is true")
        check_name("attempt", self.attempt)

    @property
    def parts(self) -> int:
        """How many windows or rounds it is; 1 where it is no block."""
        return self.count or 1

    def row(self, population: Population, first_name: str) -> dict[str, Any]:
        """What the row of its reservation says, beside what it costs and when."""
        return {
            "run_id": self.run_id,
            "part": "",
            "dataset": self.dataset,
            "population": population.name,
            "quota": self.quota,
            "release_key": release_key(population.name, first_name, self.identity),
            "identity": self.identity.to_json(),
            "identity_digest": self.identity.digest.hex(),
            "memoized": self.memoized,
            "attempt": self.attempt,
            "count": self.parts,
            "is_block": self.count is not None,
            "left": self.parts,
            "about": self.about,
            "certificate": self.certificate,
        }


def _check_unit(population: Population, *, dataset: str, unit: str, neighbours: str) -> None:
    """LedgerError unless a run protects what the population's budget counts."""
    if (unit, neighbours) != (population.privacy_unit, population.neighbours):
        raise LedgerError(
            f"dataset {dataset!r} protects one {population.privacy_unit} "
            f"({population.neighbours}); this run protects one {unit} ({neighbours})"
        )


class LedgerReserving(LedgerReading):
    """How a run begins."""

    def would_grant(
        self,
        dataset: str,
        event: Any,
        *,
        count: int | None = None,
        local_event: Any = None,
        quota: str = "",
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        resumed: Charge | None = None,
        identity: ReleaseIdentity | None = None,
    ) -> float:
        """Whether `reserve` would pass this now; nothing is written, and nothing is kept for it.

        Args: as of `reserve`, and
            resumed: the charge that the run has already; it is not counted twice.
            identity: of the release; needed with `resumed`.

        Returns:
            Epsilon, at the delta of the budget, that would be committed with it.

        Raises:
            BudgetExceededError, LedgerError, LedgerUnavailableError: as `reserve` would.
        """
        told, sent = as_json(event), None if local_event is None else as_json(local_event)
        check_commitment(told)
        self._check_goes_on()
        population, now = self._standing(dataset)
        budget = budget_of(population, dataset)
        _check_unit(population, dataset=dataset, unit=privacy_unit, neighbours=neighbours)
        if resumed is not None:
            told_now = {"event": told, "local_event": sent, "quota": quota,
                        "is_block": count is not None, "memoized": resumed.memoized,
                        "identity": (identity or resumed.identity).to_json()}  # fmt: skip
            _check_same_run(resumed, told_now)
            return epsilon_of(population.loss(resumed.period), budget)
        loss, period, parts = loss_of(told, budget.orders), budget.period_of(now), count or 1
        check_fits(population, dataset, period, loss, local_loss_of(sent or told), parts, quota)
        return epsilon_of(population.loss(period) + times(loss, parts), budget)

    def reserve(
        self,
        dataset: str,
        run_id: str,
        event: Any,
        *,
        identity: ReleaseIdentity,
        memoized: bool = False,
        count: int | None = None,
        local_event: Any = None,
        quota: str = "",
        attempt: str | None = None,
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        about: Mapping[str, Any] | None = None,
        certificate: Any = None,
    ) -> Charge:
        """Set the worst case of a run aside, or refuse it. Atomic.

        What each person loses locally is derived from the event (`local_epsilon_of`).

        Args:
            dataset: its name in the ledger.
            run_id: name of the charge, used once. A memoized run that is started again before its
                first release keeps its charge; each start has an attempt of its own, and only the
                newest one may settle.
            event: the worst that the run may release, a `DpEvent`; a `CommittedDpEvent` for a
                schedule that is fixed now, charged whole.
            identity: of the release. A release id stands for one question; the same memoized
                reports are not released twice (see `republish`). While another part of the release
                is charged for all of them, a part may be reserved at no price (`NoOpDpEvent`): it
                is written down, so that other reports of it are refused.
            memoized: a repetition is of the same reports: of memoized noise, or of envelopes that
                devices sent, which stay what they are.
            count: reserve a block: so many windows or rounds that cost `event` each, in one row.
                Each is settled by itself, under the identity of its part.
            local_event: what people send, where `event` prices only what a server publishes that
                is trusted with it. A server that is sent everything has none: such a run is
                refused where the budget limits local epsilons.
            quota: whose share of the budget it is charged to.
            attempt: the token of a start whose reservation may be written already, because the
                answer was lost; default: a new start.
            privacy_unit, neighbours: what the run protects; must be the population's.
            about: JSON-able values for the record; never data.
            certificate: room for what later versions prove.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: for an unknown dataset, another privacy unit, a name that was used, a
                release id of another question.
            LedgerUnavailableError: if the ledger is away; names run and attempt where it is not
                known whether the reservation is written.
        """
        token = attempt or uuid.uuid4().hex
        asked = _Request(dataset, run_id, identity, memoized, count, quota, token, privacy_unit,
                         neighbours, dict(about or {}), certificate)  # fmt: skip
        told, sent = as_json(event), None if local_event is None else as_json(local_event)
        check_commitment(told)
        return self._reserve(asked, told, sent, attempt is not None)

    def _reserve(
        self, asked: _Request, told: dict[str, Any], sent: dict[str, Any] | None, repeated: bool
    ) -> Charge:
        """Price the run before the lock is taken, so that others need not wait; then decide."""
        known = population_of(self._opened(asked.dataset), asked.dataset)
        orders = budget_of(known, asked.dataset).orders
        covered = bool(asked.identity.part) and is_nothing(told)  # by another part's charge
        price = loss_of_part if covered else loss_of
        loss = price(told, orders)
        local = local_loss_of(sent or told)
        with self._writing(asked.run_id, asked.attempt, spends=True) as it:
            population = population_of(it.balances, asked.dataset)
            budget = budget_of(population, asked.dataset)
            if budget.orders != orders:
                loss = price(told, budget.orders)
            _check_unit(population, dataset=asked.dataset, unit=asked.privacy_unit,
                        neighbours=asked.neighbours)  # fmt: skip
            body = {
                **asked.row(population, it.balances.first_name_of(asked.dataset)),
                "period": budget.period_of(it.time(RESERVE)),
                "event": told,
                "loss": loss.to_json(),
                "local_event": sent,
                "local_epsilon": finite(local),
            }
            if covered:
                check_covered(it.appender, body["release_key"], asked.identity.release_id)
            earlier = it.appender.rows_of_run(asked.run_id)
            if earlier:
                return self._again(it, earlier, body, repeated)
            first = it.appender.first_of_release(body["release_key"])
            if first is not None:
                check_question(asked.identity, of_run([first]))
                if asked.memoized:
                    check_not_again(asked.identity, equal_releases(it.appender, asked.identity))
            if not covered:
                check_fits(
                    population, asked.dataset, body["period"], loss, local, asked.parts, asked.quota
                )
            it.append(RESERVE, body)
            return of_run([it.rows[-1]])

    def begin(self, run_id: str, *, reserved: str, attempt: str) -> Charge:
        """Write down that what was reserved begins now, before anybody is asked.

        For graphs, which are reserved once, where they are built, and can be run again and again:
        each run has a token of its own, and only the run that began may settle. With fresh noise
        the first run alone begins. A later one of reports that stay the same takes the charge over;
        once that is settled, it may release the same once more.

        Args:
            run_id: of an open reservation.
            reserved: its attempt, as `reserve` gave it.
            attempt: token of this run, drawn when it runs; the same one again changes nothing.

        Raises:
            LedgerError: if another run began, the run was reserved anew, or has ended.
        """
        check_name("attempt", attempt)
        with self._writing(run_id, attempt, spends=True) as it:
            charge = charge_of(it.appender, run_id)
            is_open = charge.status == "reserved"
            if charge.run_token == attempt or (charge.memoized and charge.status == "settled"):
                return charge
            if charge.rounds_begun is not None:
                raise LedgerError(f"run {run_id!r} is a training, whose rounds are counted")
            if not is_open or (charge.run_token and not charge.memoized):
                raise LedgerError(
                    f"run {run_id!r} {'began before' if is_open else f'is {charge.status}'}, and "
                    "its charge covers one run of its pipeline. To ask people again, with new "
                    "noise, build the pipeline anew, with a new run_id: that is a new charge"
                )
            rows = it.appender.rows_of_run(run_id)
            if charge.attempt != reserved or any(r.body.get("began") == attempt for r in rows):
                raise LedgerError(f"another start of run {run_id!r} took over: this one ends here")
            it.append(RESUME, {**place(charge), "attempt": reserved, "began": attempt,
                               "left": charge.count, "about": {}})  # fmt: skip
            return followed(charge, it.rows[-1])

    def _again(self, it: Writing, rows: Sequence[Row], body: dict[str, Any], told: bool) -> Charge:
        """A run that starts again under its old name: free, or a LedgerError."""
        charge = of_run(rows)
        if told and charge.attempt == body["attempt"] and charge.status == "reserved":
            return charge  # the answer was lost, the row was not
        if any(row.body.get("attempt") == body["attempt"] for row in rows):
            raise LedgerError(
                f"another start of run {charge.run_id!r} took over: this one ends here"
            )
        _check_same_run(charge, body)
        it.append(RESUME, {**place(charge), "attempt": body["attempt"], "left": charge.count,
                           "about": body["about"]})  # fmt: skip
        return followed(charge, it.rows[-1])


def _check_same_run(charge: Charge, body: dict[str, Any]) -> None:
    """A LedgerError unless this is the run of the open charge, started again with equal reports."""
    said = f"run {charge.run_id!r} already has its charge ({charge.status}): "
    differing = charge.identity.differences(ReleaseIdentity.from_json(body["identity"]))
    again = charge.memoized and body["memoized"] and charge.rounds_begun is None
    if not (again and charge.status == "reserved") or differing:
        differs = f" (its release differs in its {', '.join(differing)})" if differing else ""
        raise LedgerError(
            f"{said}a repetition draws new noise and needs a new name and a new charge{differs}"
        )
    equal = {
        "worst case": same(charge.reserved, body["event"])
        and same(charge.local_event, body["local_event"]),
        "quota": charge.quota == body["quota"],
        "kind of charge": charge.is_block == body["is_block"],
    }
    others = [name for name, is_equal in equal.items() if not is_equal]
    if others:
        raise LedgerError(
            f"{said}a start with another {' and '.join(others)} cannot go on under it. Start it "
            "with the settings that it was reserved with, or return what it reserved "
            "(`beam-ldp finalize`)"
        )


# Publishing the same memoized reports once more, in place of the first publication's charge.


class LedgerRepublishing(LedgerReading):
    """How a release is released again."""

    def republish(
        self,
        run_id: str,
        event: Any = None,
        *,
        identity: ReleaseIdentity,
        report_digest: str | None,
        reason: str = "people",
        cells: Any = None,
        published: int | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Release the same memoized reports once more, in place of the first publication's charge.

        Equal reports are free, unless more of them is shown: a group that was too small before.
        Where other *people* are in them, and nobody's value has changed,
        one event covers both publications (spec "several releases", section 1): it takes the place
        of the first, and is never less. People lose nothing more locally: they send the same
        reports. Other *values* have no price: the caller refuses them.

        Args:
            run_id: of the settled charge; of a block, `identity` says which part.
            event: what all publications together cost; None where the reports are equal.
            identity: of the release.
            report_digest: set digest of the reports; None where nobody here holds the key (devices
                do), who then cannot tell equal reports. Digests of earlier versions prove nothing.
            reason: only "people".
            cells: how many people are in each set of publications, for the record.
            published: how many publications the event covers beside this one; a publication that
                came in between is then refused, for the event would leave it out.
            about: JSON-able values for the record.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: if there is no such settled release of memoized noise, or the reports are
                others and no event is given, or no key decides what they are: others have no price.
        """
        _check_exchange(reason, report_digest)
        told = None if event is None else as_json(event)
        if committed(told):
            raise ValueError("event must not commit to a schedule that is over")
        asked = None if told is None else self._loss_for(self.charge(run_id), told)
        facts = {"report_digest": report_digest, "reason": reason, "cells": cells,
                 "about": dict(about or {})}  # fmt: skip
        with self._writing(run_id, spends=True) as it:
            charge, row = _published(it, run_id, identity)
            equal = same_set(charge.report_digest, report_digest)
            if equal and (asked is None or not exceeds(asked, charge.loss)):
                return charge
            covering = told if equal or charge.identity.key else None
            _check_covering(charge, run_id, covering, published)
            return self._replace(it, charge, {**row, **facts}, told)

    def _replace(self, it: Writing, charge: Charge, row: dict[str, Any], told: Any) -> Charge:
        """One event in place of the first publication's, if what it costs more still fits."""
        population = self._population_for(it, charge)
        loss = loss_of(told, budget_of(population, charge.dataset).orders)
        covering = loss.at_least(charge.loss)
        more = covering.above(charge.loss)
        check_fits(population, charge.dataset, charge.period, more, 0.0, 1, charge.quota)
        costs = {"event": told, "loss": covering.to_json(), "gives_back": charge.loss.to_json()}
        it.append(REPLACE, {**row, **costs})
        return followed(charge, it.rows[-1])

    def _population_for(self, it: Writing, charge: Charge) -> Population:
        """Where the people of a charge stand in its period; checkpoints forget closed ones."""
        population = it.balances.populations[charge.population]
        if charge.period == max(population.accounts):
            return population
        self._state.apply(after(self._state.head, it.appender))
        return self._state.populations[charge.population]


def _check_exchange(reason: str, report_digest: str | None) -> None:
    if reason != "people":
        raise LedgerError(
            f"reason must be 'people', got {str(reason)[:40]!r}: memoized reports about other "
            "values, beside the first ones, have no finite epsilon"
        )
    if is_old(report_digest):
        raise LedgerError(OLD_DIGEST)
    if report_digest is not None:
        check_name("report_digest", report_digest)


def _published(
    it: Writing, run_id: str, identity: ReleaseIdentity
) -> tuple[Charge, dict[str, Any]]:
    """The settled charge whose reports were published, and where one more row of it counts."""
    whole = charge_of(it.appender, run_id)
    label = identity.part if whole.is_block else ""
    check_identity(whole, identity)
    charge = ended_part(it.appender, whole, label)
    if charge is None or charge.status != "settled" or not charge.memoized:
        raise LedgerError(f"run {run_id!r} is not a settled release of memoized noise")
    return charge, {**place(charge, run_id=run_id, part=label), "left": whole.count}


def _check_covering(charge: Charge, run_id: str, told: Any, published: int | None) -> None:
    """A LedgerError unless an event is given that covers all that was published."""
    if published is not None and published != charge.published:
        raise LedgerError(
            f"run {run_id!r} was published once more in the meantime: start again, so that "
            "the cost covers that publication too"
        )
    if told is None:
        if is_old(charge.report_digest):
            raise LedgerError(f"run {run_id!r}: {OLD_DIGEST}")
        raise LedgerError(
            f"the reports of run {run_id!r} differ from those published: give what both "
            "publications cost together (event), if only people were exchanged"
        )
