"""The end of a release: what is finished is settled in the ledger, and only then appears.

Whatever happens between the steps, what is public has been charged. What is finished outlives this
process from the moment it may be settled, for `beam-ldp finalize` to go on with.

The same reports, memoized or from devices, may be published once more: free, priced together with
the first, or refused. What that costs is in `beam_ldp.accounting.prices`; what it may not do:

* The same reports of the same people: nothing new is told, so nothing is charged. Of reports that
  devices drew without a key that is all: what other ones would tell has no price.
* Other people, nobody's value changed: all publications together cost one shuffle of the smallest
  cell of the partition of people by publications, within each public group; of several questions,
  the composition of theirs. It takes the place of the first charge. Cells are counted from hashes
  that the runs left (`--people-store`).
* Without hashes nobody knows cells, or whether a value changed. `--frozen-values` declares that
  none did; everything is then priced at the local epsilon.
* A changed value has no finite price: refused, whatever was declared.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.transforms.window import GlobalWindow

from beam_ldp import log_events
from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.accounting.prices import Price, honest_cells, publications_event, shown_cells
from beam_ldp.accounting.reports import LocalReports, crowd_of
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.set_digest import OLD_DIGEST, is_old, same_set
from beam_ldp.release import charging, outputs
from beam_ldp.release import worker_results as results
from beam_ldp.release.charging import ChargeSettings, NoCharge, RunCharge
from beam_ldp.release.gates import NotPublishedError
from beam_ldp.release.interrupted_runs import Note
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.transforms.device.keyed import PeopleFolder, files_at, publication_folder
from beam_ldp.transforms.elements.blocks import Release

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge
    from beam_ldp.ledger.participants import Compared


def release(
    charge: NoCharge, record: PrivacyRecord, folder: outputs.OutputFolder, staging: str
) -> None:
    """Settle what is finished, and publish it.

    Args:
        charge: of the run.
        record: of what is released.
        folder: where all files are finished.
        staging: where the run left its note.

    Raises:
        NotPublishedError: if the ledger or the place does not take it; where somebody may go on
            with it later, it is kept.
    """
    try:
        settle(charge, record, folder)
        publish(folder)
    except NotPublishedError:
        if folder.keep:
            charge.let_go(staging)
        raise


def settle(charge: NoCharge, record: PrivacyRecord, folder: outputs.OutputFolder) -> None:
    """Write down what will be published. What is charged then outlives this process.

    Raises:
        NotPublishedError: if the ledger did not take it: it is away, or refuses.
    """
    if record.run_id is None:
        charge.settle(record.to_json())
        return
    from beam_ldp.ledger import LedgerError

    folder.keep = True
    try:
        charge.settle(record.to_json())
    except LedgerError as error:
        folder.keep = False
        raise NotPublishedError(f"nothing was published: {error}") from None
    except Exception as error:
        log_events.say(log_events.UNSETTLED, run_id=record.run_id)
        raise NotPublishedError(
            f"nothing was published: the ledger could not be written ({type(error).__name__}), so "
            "the run stays charged at its worst case. The result is kept: `beam-ldp finalize "
            f"{folder.path}` settles and publishes it"
        ) from None
    log_events.say(log_events.SETTLED, run_id=record.run_id)


def publish(folder: outputs.OutputFolder) -> None:
    """The finished output appears.

    Raises:
        NotPublishedError: if its place does not take it.
    """
    try:
        folder.publish()
    except (OSError, BeamIOError, outputs.OutputError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NotPublishedError(
            f"nothing was published: {why}. What was released is settled, and kept next to "
            f"--output: `beam-ldp finalize {folder.path}` publishes it"
        ) from None
    folder.keep = False


_OWN_NAME = "Give it a release id of its own, for a new charge with new noise"


def known_again(settings: ChargeSettings) -> bool:
    """Whether envelopes without a key are known to be the same as those of another collection."""
    collected = getattr(settings, "collected", None)
    return collected is not None and bool(collected.digested)


def said_of_another(settings: ChargeSettings, one_round: bool, keyed: bool) -> str:
    """What another publication of these reports would cost, as `Republication.price` decides it.

    Args:
        settings: the flags.
        one_round: whether everybody was asked once; later rounds depend on who answered the first.
        keyed: whether a key decides what a person's report is.
    """
    if not keyed and known_again(settings):
        return "the same envelopes cost nothing more, others are refused"
    if not keyed:
        return "refused: what devices drew is published once"
    if settings.noise.frozen_values and one_round:
        return "the same reports cost nothing more, others are priced with them"
    drawn_here = settings.noise.key_file is not None
    leveled = getattr(getattr(settings, "collected", None), "leveled", False)
    if not (drawn_here or leveled):  # no digest: devices have the key
        return "refused without --frozen-values: only the devices know whether a value changed"
    if settings.charge.people_store is not None and one_round:
        return (
            "the same reports cost nothing more, others are priced with them if their hashes tell "
            "that nobody's value changed, else refused"
        )
    return "the same reports cost nothing more, others are refused"


class Republication(RunCharge):
    """A release that was published before, under a charge that is settled.

    Args:
        ledger: that holds the charge.
        charge: of the first publication.
        people: where hashes of the people asked are left, if they are.
        settings: the flags.
    """

    def __init__(
        self,
        ledger: BudgetLedger,
        charge: Charge,
        people: PeopleFolder | None,
        settings: ChargeSettings,
    ) -> None:
        super().__init__(ledger, charge, people)
        self.publication = uuid.uuid4().hex
        self._settings = settings
        self._cells: dict[str, int | None] | None = None
        self.facts["publication"] = charge.published + 1

    def abandon(self, why: str, *, randomized: bool = True) -> None:
        """Nothing to give back: the first publication was."""

    def price(
        self, price: Price, release: Release, found: results.WorkerResults, randomizer: Any
    ) -> Price:
        """The price of all publications together.

        Raises:
            NotPublishedError: if there is none.
        """
        if same_set(found.report_digest, self._charge.report_digest):
            event, delta = self._again(price, found, randomizer), self._settings.privacy.delta
            hidden = price.honest_reports  # of everybody who took part, where only they count
            if not isinstance(event, LocalReports):
                hidden = min(hidden, crowd_of(event))
            return Price(event_epsilon(event, delta), hidden, event)
        if not self._charge.identity.key:
            raise self._others(
                "reports of this release were published before, and these are not the same "
                "envelopes. Whoever compares the two publications sees the reports of those who "
                "came in between, among few others or none: collect all of them at once. "
                f"{_OWN_NAME}"
            )
        if getattr(self._settings, "told_once", False):
            raise self._others(
                "the reports differ from those that this plan was decided on, and a plan decides "
                "once. For other people make a new plan"
            )
        if not isinstance(randomizer, LocalRandomizer):
            raise self._others(
                "the reports differ from those published under this release id, and later rounds "
                f"depend on who answered the first. {_OWN_NAME}"
            )
        compared = self._compared(found.num_reports)
        if compared is not None and compared.changed:
            raise NotPublishedError(
                "nothing was released: values changed since this release was published. A report "
                f"that changes while others stay has no finite privacy cost. {_OWN_NAME}"
            )
        if compared is None and not self._settings.noise.frozen_values:
            raise self._others(f"{_unknown(found)}. {_OWN_NAME}")
        if isinstance(price.ran, LocalReports):
            return price  # nobody but the device is trusted: each report is seen by itself
        cells: list[int | None] = [None]  # nobody knows
        if compared is not None and self._all_whole(found):
            cells = self._honest(compared)
        event = publications_event(randomizer, cells)
        hidden = min(count or 0 for count in cells)
        return Price(event_epsilon(event, self._settings.privacy.delta), max(1, hidden), event)

    def _others(self, why: str) -> NotPublishedError:
        """These are other reports, or nobody can prove that they are the same."""
        why = OLD_DIGEST if is_old(self._charge.report_digest) else why
        return NotPublishedError(f"nothing was released: {why}")

    def _again(self, price: Price, found: results.WorkerResults, randomizer: Any) -> Any:
        """What all publications cost where this one is of the same reports as the last.

        Nothing more, unless it shows a group that was too small before, or batches of its own.
        """
        settled = event_from_json(self._charge.settled)  # type: ignore[arg-type]
        if price.event is None or not isinstance(randomizer, LocalRandomizer):
            return settled
        if isinstance(price.ran, LocalReports):
            return price.event
        if not self._all_whole(found):
            return publications_event(randomizer, [None])
        return min(settled, price.event, key=_crowd)

    def _all_whole(self, found: results.WorkerResults) -> bool:
        """Whether each publication, this one included, showed all reports of a group together."""
        before = self._before
        known = len(before) == self._charge.published
        return known and found.one_shuffle and all(each["whole"] for each in before)

    def _honest(self, compared: Compared) -> list[int | None]:
        """Honest reports of each cell of each group, at least; keeps the cells for the record."""
        asked = getattr(self._settings, "min_reports", 0)  # of a training nothing is withheld
        least = [*(before["least"] for before in self._before), asked]
        found: list[int | None] = []
        self._cells = {}
        for group, counted in sorted(compared.groups.items()):
            cells = shown_cells(counted, least)
            found += honest_cells(cells, self._settings.privacy.honest_fraction).values()
            for cell, people in sorted(cells.items()):
                name = ",".join(map(str, cell))
                self._cells[f"{group}: {name}" if len(compared.groups) > 1 else name] = people
        return found

    @property
    def _before(self) -> list[dict[str, Any]]:
        """What is known of earlier publications; see `charging.publication_of`."""
        return list(self._charge.about.get("publications") or ())

    def _compared(self, num_reports: int) -> Compared | None:
        """All publications, this one included, by the hashes that they left."""
        before = self._before
        known = len(before) == self._charge.published and all(each["folder"] for each in before)
        if self.people is None or not before or not known:
            return None
        from beam_ldp.ledger.participants import compare

        place = self.people.at(GlobalWindow())
        files = files_at(self.people.store)
        names = [*(each["folder"] for each in before), self.publication]
        found = compare(files, [publication_folder(place, name) for name in names])
        expected = (*(each["people"] for each in before), num_reports)
        return None if found is None or found.people != expected else found

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
        identity=charging.identity_of(ledger, record),
        report_digest=record["report_digest"],
        cells=cells,
        published=record["publication"] - 1,
        about={
            "publications": [*before, charging.publication_of(record, publications)],
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
        raise ValueError("the record belongs to another release than the run that left it")
    if record.get("publication", 1) == 1:
        charging.settle(ledger, record, note.attempt_of(charge), note.publications)
    else:  # free where it is settled already; equal reports may still show a smaller group
        republish(ledger, record, note.publications)


def _crowd(event: Any) -> int:
    """Reports that hide each other, of events of one mechanism: smaller crowds cost more."""
    return 1 if isinstance(event, LocalReports) else crowd_of(event)


def _unknown(found: results.WorkerResults) -> str:
    """Why nobody knows what a second publication tells, and what helps."""
    frozen = (
        "If nobody's value can have changed, declare it with --frozen-values; the cost is then the "
        "local epsilon"
    )
    if found.report_digest is None:  # they were drawn on devices, whose key is not here
        return (
            "reports of this release were published before, and only the devices know whether "
            "these are the same ones or somebody's value changed in between. What was published "
            f"can be copied. {frozen}"
        )
    return (
        "the reports differ from those published under this release id, and it is unknown whether "
        f"people were exchanged or values changed (--people-store would tell). {frozen}"
    )
