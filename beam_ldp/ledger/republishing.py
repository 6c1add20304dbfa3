"""Publishing the same memoized reports once more, in place of the first publication's charge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_ldp.ledger.books import Population
from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.checks import check_name
from beam_ldp.ledger.errors import LedgerError
from beam_ldp.ledger.losses import as_json, exceeds, loss_of
from beam_ldp.ledger.opening import Writing, after
from beam_ldp.ledger.reading import LedgerReading, charge_of, ended_part, population_of_charge
from beam_ldp.ledger.refusals import budget_of, check_fits
from beam_ldp.ledger.rows import REPLACE
from beam_ldp.ledger.runs import check_identity, followed, place
from beam_ldp.randomizers.identity import ReleaseIdentity


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
            report_digest: keyed digest of the sorted reports; None where nobody here holds the key
                (devices do), who then cannot tell equal reports.
            reason: only "people".
            cells: how many people are in each set of publications, for the record.
            published: how many publications the event covers beside this one; a publication that
                came in between is then refused, for the event would leave it out.
            about: JSON-able values for the record.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: if there is no such settled release of memoized noise, or the reports are
                others and no event is given.
        """
        if reason != "people":
            raise LedgerError(
                f"reason must be 'people', got {str(reason)[:40]!r}: memoized reports about other "
                "values, beside the first ones, have no finite epsilon"
            )
        if report_digest is not None:
            check_name("report_digest", report_digest)
        told, asked = None if event is None else as_json(event), None
        if told is not None:
            first = self.charge(run_id)
            known = population_of_charge(self._opened(first.dataset), first)
            asked = loss_of(told, budget_of(known, run_id).orders)
        self._check_anchors()
        with self._writing(run_id) as it:
            whole = charge_of(it.appender, run_id)
            label = identity.part if whole.is_block else ""
            check_identity(whole, identity)
            charge = ended_part(it.appender, whole, label)
            if charge is None or charge.status != "settled" or not charge.memoized:
                raise LedgerError(f"run {run_id!r} is no settled release of memoized noise")
            equal = report_digest is not None and charge.report_digest == report_digest
            if equal and (asked is None or not exceeds(asked, charge.loss)):
                return charge
            if published is not None and published != charge.published:
                raise LedgerError(
                    f"run {run_id!r} was published once more in the meantime: start again, so that "
                    "the price covers that publication too"
                )
            if told is None:
                raise LedgerError(
                    f"the reports of run {run_id!r} are not those that were published: name what "
                    "both publications cost together (event), if only people were exchanged"
                )
            population = self._population_for(it, charge)
            loss = loss_of(told, budget_of(population, charge.dataset).orders)
            covering = loss.at_least(charge.loss)
            more = covering.above(charge.loss)
            check_fits(population, charge.dataset, charge.period, more, 0.0, 1, charge.quota)
            it.append(
                REPLACE,
                {
                    **place(charge, run_id=run_id, part=label),
                    "left": whole.count,
                    "event": told,
                    "loss": covering.to_json(),
                    "gives_back": charge.loss.to_json(),
                    "report_digest": report_digest,
                    "reason": reason,
                    "cells": cells,
                    "about": dict(about or {}),
                },
            )
            return followed(charge, it.rows[-1])

    def _population_for(self, it: Writing, charge: Charge) -> Population:
        """Where the people of a charge stand in its period; checkpoints forget closed ones."""
        population = it.books.populations[charge.population]
        if charge.period == max(population.accounts):
            return population
        self._state.apply(after(self._state.head, it.appender))
        return self._state.populations[charge.population]
