"""The same memoized reports, published once more: free, priced together with the first, or refused.

What a second publication costs is in `beam_ldp.accounting.publications`; what it may not do:

* The same reports of the same people: nothing new is told, so nothing is charged.
* Other people, nobody's value changed: all publications together cost one shuffle of the smallest
  cell of the partition of people by publications. It takes the place of the first charge. Cells
  are counted from hashes that the runs left (`--people-store`).
* Without hashes nobody knows cells, or whether a value changed. `--frozen-values` declares that
  none did; everything is then priced at the local epsilon.
* A changed value has no finite price: refused, whatever was declared.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from apache_beam.transforms.window import GlobalWindow

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.crowds import hidden_users
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.accounting.publications import Cell, publications_event
from beam_ldp.pipelines.records import settling
from beam_ldp.pipelines.records.charging import RunCharge
from beam_ldp.pipelines.records.gates import NotPublishedError
from beam_ldp.pipelines.records.lost_runs import Note
from beam_ldp.pipelines.records.price import Price
from beam_ldp.pipelines.running import results
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.people import PeopleFolder, files_at
from beam_ldp.transforms.traces import publication_folder

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge
    from beam_ldp.ledger.people_reports import Compared
    from beam_ldp.pipelines.records.reserving import Charged

_OWN_NAME = "Give it a release id of its own: that is a charge of its own, with new noise"


class Republication(RunCharge):
    """A release that was published before, under a charge that is settled.

    Args:
        ledger: that holds the charge.
        charge: of the first publication.
        people: where hashes of the people asked are left, if they are.
        settings: the flags.
    """

    def __init__(
        self, ledger: BudgetLedger, charge: Charge, people: PeopleFolder | None, settings: Charged
    ) -> None:
        super().__init__(ledger, charge, people)
        self.publication = uuid.uuid4().hex
        self._settings = settings
        self._cells: dict[str, int | None] | None = None
        self.facts["publication"] = charge.published + 1

    def abandon(self, why: str, *, randomized: bool = True) -> None:
        """Nothing to give back: the first publication was."""

    def price(
        self, price: Price, release: Release, found: results.Collected, randomizer: Any
    ) -> Price:
        """The price of all publications together.

        Raises:
            NotPublishedError: if there is none.
        """
        if found.report_digest is not None and found.report_digest == self._charge.report_digest:
            settled = event_from_json(self._charge.settled)  # type: ignore[arg-type]
            bound = event_epsilon(settled, self._settings.delta)
            return Price(bound, price.priced_reports, settled)
        if not isinstance(randomizer, LocalRandomizer):
            raise NotPublishedError(
                "nothing was released: the reports are not those that were published under this "
                f"release id, and later rounds depend on who answered the first. {_OWN_NAME}"
            )
        compared = self._compared(found.num_reports)
        if compared is not None and compared.changed:
            raise NotPublishedError(
                "nothing was released: values changed since this release was published. A report "
                f"that changes beside reports that stay has no finite price. {_OWN_NAME}"
            )
        if compared is None and not self._settings.frozen_values:
            raise NotPublishedError(f"nothing was released: {_unknown(found)}. {_OWN_NAME}")
        cells: dict[Cell, int | None] = {(): None}  # nobody knows
        if compared is not None and _is_one_multiset(release, found):
            cells = dict(compared.cells)
            self._cells = {",".join(map(str, cell)): n for cell, n in sorted(cells.items())}
        n = found.num_reports
        fakes = n - hidden_users(n, self._settings.honest_fraction)
        event = publications_event(randomizer, cells.values(), fakes)
        hidden = min(count or 0 for count in cells.values()) - fakes
        return Price(event_epsilon(event, self._settings.delta), max(1, hidden), event)

    def _compared(self, num_reports: int) -> Compared | None:
        """All publications, this one included, by the hashes that they left."""
        before = self._charge.about.get("publications")
        if self.people is None or not before or len(before) != self._charge.published:
            return None
        from beam_ldp.ledger.people_reports import compare

        place = self.people.at(GlobalWindow())
        files = files_at(self.people.store)
        folders = [publication_folder(place, name) for name in (*before, self.publication)]
        found = compare(files, folders)
        return None if found is None or found.people[-1] != num_reports else found

    def settle(self, record: Mapping[str, Any]) -> None:
        republish(self._ledger, record, self._publications, self._cells)


def republish(
    ledger: BudgetLedger,
    record: Mapping[str, Any],
    publications: Sequence[str],
    cells: Mapping[str, int | None] | None = None,
) -> None:
    """Charge one more publication, from its privacy record. Safe to repeat.

    Args:
        ledger: that holds the first one.
        record: of what is released.
        publications: name of the folder with hashes of the reports, if there is one.
        cells: how many people are in each set of publications, where that is known.

    Raises:
        LedgerError: if it does not fit, or another publication came in between.
    """
    before = ledger.charge(record["run_id"]).about.get("publications") or []
    ledger.republish(
        record["run_id"],
        record["event"],
        identity=settling.identity_of(ledger, record),
        report_digest=record["report_digest"],
        cells=cells,
        published=record["publication"] - 1,
        about={
            "publications": [*before, *publications],
            "frozen_values": record["frozen_values"],
            "num_reports": record["num_reports"],
        },
    )


def take(ledger: BudgetLedger, record: Mapping[str, Any], note: Note) -> None:
    """Settle what a lost run had finished, from its record. Safe to repeat.

    Raises:
        LedgerError: if it may not be published.
        ValueError: if the record is not of that run.
    """
    charge = ledger.charge(note.run_id)
    if note.identity is not None and record.get("identity") != note.identity:
        raise ValueError("the record is of another release than the run that left it")
    if record.get("publication", 1) == 1:
        settling.settle(ledger, record, note.attempt, note.publications)
    elif charge.report_digest != record["report_digest"]:
        republish(ledger, record, note.publications)


def _unknown(found: results.Collected) -> str:
    """Why nobody knows what a second publication tells, and what helps."""
    frozen = (
        "If nobody's value can have changed, --frozen-values says so, at the price of the local "
        "epsilon"
    )
    if found.report_digest is None:  # they were drawn on devices, whose key is not here
        return (
            "reports of this release were published before, and whether these are the same ones, "
            "or somebody's value changed in between, only the devices can tell. What was published "
            f"can be copied. {frozen}"
        )
    return (
        "the reports are not those that were published under this release id, and nothing tells "
        f"whether people were exchanged or values changed (--people-store does). {frozen}"
    )


def _is_one_multiset(release: Release, found: results.Collected) -> bool:
    """Whether readers see a function of all reports together, and of nothing less."""
    return (
        len(found.releases) == 1
        and not found.withheld
        and release.group is None
        and release.smallest_batch == release.num_reports
    )
