"""Charging a budget from a pipeline: reserved where it is built, settled where it releases."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from beam_ldp import log_events
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.transforms.collector.side import Releases
from beam_ldp.transforms.device.keyed import LeaveHashes, PeopleFolder
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease
from beam_ldp.transforms.elements.stages import (
    USED_UP,
    counter,
    part_of,
    typed_outputs,
    window_bounds,
)

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger

ENDED_BEFORE = "released or withheld already by an earlier start of this run"


def _accounting(module: str) -> Any:
    """A module of the accounting, loaded on first use: that takes long, and few workers need it."""
    return importlib.import_module(f"beam_ldp.accounting.{module}")


@dataclass(frozen=True)
class ChargeTo:
    """The budget that a composite charges.

    The worst case is reserved when the pipeline is built, so a pipeline that does not fit raises
    `BudgetExceededError` there and never runs. Each release then settles the charge from the
    worker that makes it, and a release that is withheld gives its central price back. A pipeline
    that is built and never run stays charged, as one that crashes does.

    A release that is settled is not released again, though its noise be memoized and its reports be
    the same: the charge is settled release by release on workers, and no digest of all reports,
    by which the programs know them (`report_digest`), is there by then. Such a pipeline is refused
    where it is built, under every run id; `beam-ldp frequency` and `mean` publish once more.

    Args:
        dataset: whose data; the ledger's name of it.
        url: of the ledger, as launcher and workers reach it. It travels in the job graph, so it may
            hold no password. Default: the environment variable BEAM_LDP_LEDGER, on the launcher and
            on every worker, which may.
        run_id: name of the charge, used once; default: a random one.
        windows: releases over time that are reserved. Needed for windowed and unbounded data: when
            so many windows were released or withheld, all later ones are withheld.
        honest_fraction: share of the reports of every batch that are not fake.
        privacy_unit: what is protected; must be the budget's.
        people_store, people_key_file: where workers leave keyed hashes of the people asked, and the
            file with the secret key, which only they read; see `beam_ldp.ledger.people`. Default:
            none are left, and the run counts as one that asked everybody.
        untracked: why the run is in no tracker, if it is to be in none: audits then do not miss it.
        quota: whose share of the budget is charged; "": what no quota keeps.
        trust_shuffler: whether it was declared that the shuffler alone may protect people.
    """

    dataset: str
    url: str | None = None
    run_id: str | None = None
    windows: int | None = None
    honest_fraction: float = 1.0
    privacy_unit: str = "user"
    people_store: str | None = None
    people_key_file: str | None = None
    untracked: str = ""
    quota: str = ""
    trust_shuffler: bool = False

    def __post_init__(self) -> None:
        if (self.people_store is None) != (self.people_key_file is None):
            raise ValueError("people_store and people_key_file belong together")
        if self.windows is not None and self.windows < 1:
            raise ValueError(f"windows must be >= 1, got {self.windows}")
        check_fraction("honest_fraction", self.honest_fraction, "(]")
        if self.url is not None:
            _check_no_password(self.url)

    def honest(self, num_reports: int) -> int:
        """Reports among so many that hide a person."""
        return int(_accounting("reports").hidden_users(num_reports, self.honest_fraction))

    def worst_event(self, randomizer: LocalRandomizer, min_reports: int) -> Any:
        """The dearest release that can happen: that of `min_reports` reports."""
        event = _accounting("shuffle.one_release").shuffled_event(randomizer, min_reports)
        return honest_event(event, self.honest_fraction)

    def reserve(
        self,
        event: Any,
        *,
        identity: ReleaseIdentity,
        windowing: Any,
        bounded: bool,
        same_reports: bool = False,
        grouped: bool = False,
        question: str = "",
    ) -> Reservation:
        """Set the worst case aside, or refuse it.

        Args:
            event: the dearest release that can happen in a window.
            identity: of the release; windows are parts of it. It commits to a key exactly where
                noise is memoized.
            windowing, bounded: of the data.
            same_reports: whether a repetition is of the same reports though no key decides what
                they are, as of envelopes that devices sent.
            grouped: people are parted into public groups, each with a release of its own.
            question: as for the composite.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: for an unknown dataset, another privacy unit, or a name that was used.
            ValueError: if the data have windows and `windows` is not given.
        """
        from beam_ldp.ledger import BudgetLedger

        if self.windows is None and not (bounded and isinstance(windowing, GlobalWindows)):
            raise ValueError(
                "budget: windowed or unbounded data need ChargeTo(windows=...): how many releases "
                "to reserve"
            )
        ledger, same = BudgetLedger(self.url), same_reports or bool(identity.key)
        begun = ledger.open_charge(identity) if identity.key and not self.run_id else None
        run_id = self.run_id or (
            begun.run_id if begun else f"{self.dataset[:100]}-{uuid.uuid4().hex[:12]}"
        )
        about = {"question": question, "run": run_id}
        if self.untracked:
            about["untracked"] = self.untracked
        if self.trust_shuffler:
            about["trust_shuffler"] = "yes"
        charge = ledger.reserve(
            self.dataset,
            run_id,
            event,
            identity=identity,
            memoized=same,
            count=self.windows,
            quota=self.quota,
            privacy_unit=self.privacy_unit,
            about=about,
        )
        told = _accounting("event_json").event_to_json(event)
        people = self._people(ledger.population(self.dataset), run_id)
        return Reservation(
            self.url, run_id, charge.attempt, identity, charge.is_block, told,
            self.honest_fraction, grouped, people, same,
        )  # fmt: skip

    def _people(self, population: str, run_id: str) -> PeopleFolder | None:
        if self.people_store is None or self.people_key_file is None:
            return None
        return PeopleFolder(self.people_store, self.people_key_file, population, run_id)


@dataclass(frozen=True)
class Reservation:
    """What was set aside for a pipeline; travels in the job graph.

    Attributes:
        url: of the ledger; None: as the worker's environment says.
        run_id, attempt: of the charge, and the start of the run that may end it.
        identity: of the release.
        is_block: whether each window is settled by itself.
        worst: event of a release, JSON.
        honest_fraction: share of the reports that are not fake.
        grouped: each window has a release per group. Groups share a charge, for a person's group is
            public, and it stays at its worst case: no single release is the dearest.
        people: where hashes of the people asked are left, if they are.
        same_reports: whether another start of the run is of the same reports; only such a run
            starts again.
    """

    url: str | None
    run_id: str
    attempt: str
    identity: ReleaseIdentity
    is_block: bool
    worst: dict[str, Any]
    honest_fraction: float
    grouped: bool
    people: PeopleFolder | None = None
    same_reports: bool = False

    def settle(self, ledger: BudgetLedger, release: Release) -> str:
        """Write down what is released; why it may not be, or "".

        What an earlier start of the run has ended stays as it is: rows may have come since, and a
        second release of the same reports beside the first one would show theirs.
        """
        part = self._part(release)
        if self._ended_before(ledger, release):
            return ENDED_BEFORE
        event = self.worst
        if not self.grouped and (self.honest_fraction == 1 or _is_shuffled(release.event)):
            ran = honest_event(release.event, self.honest_fraction)
            event = _accounting("event_json").event_to_json(ran)
        about = {
            "attempt": self.attempt,
            "window": _label(release),
            "output": release.output,
            "mechanism": release.mechanism.get("mechanism", ""),
        }
        if not self.grouped:  # of a group alone it would be no count of the people asked
            about["num_reports"] = release.num_reports
        from beam_ldp.ledger import BlockUsedUpError

        try:
            ledger.settle(
                self.run_id,
                event,
                identity=part,
                attempt=self.attempt,
                about=about,
            )
        except BlockUsedUpError:
            return USED_UP
        return ""

    def abandon(self, ledger: BudgetLedger, withheld: WithheldRelease) -> None:
        """Give the central price of a window back, of which nothing was released.

        Late reports that are not released change nothing: the window has a charge of its own.
        """
        from beam_ldp.ledger import BlockUsedUpError

        part = self._part(withheld)
        if self.grouped or withheld.late or self._ended_before(ledger, withheld):
            return
        try:
            ledger.abandon(
                self.run_id,
                part=part.part if self.is_block else "",
                attempt=self.attempt,
                randomized=True,
                why=withheld.reason,
                about={
                    "attempt": self.attempt,
                    "window": _label(withheld),
                    "num_reports": withheld.num_reports,
                },
            )
        except BlockUsedUpError:
            return  # this window was never reserved

    def _ended_before(self, ledger: BudgetLedger, said: Release | WithheldRelease) -> bool:
        """Whether another start of the run ended this window.

        Late reports of such a window stay away too: this start cannot know who was in time then.
        """
        if not (self.is_block and self.same_reports):
            return False
        parts = {self._part(said).part, self._part(replace(said, late=False)).part}
        return any(self._ended_by_another(ledger, part) for part in parts)

    def _ended_by_another(self, ledger: BudgetLedger, part: str) -> bool:
        from beam_ldp.ledger import LedgerError

        try:
            ended = ledger.charge(self.run_id, part)
        except LedgerError:  # it is open
            return False
        return bool(ended.about.get("attempt") != self.attempt)

    def _part(self, said: Release | WithheldRelease) -> ReleaseIdentity:
        if said.window is None and self.is_block:
            return replace(self.identity, part="all")
        return part_of(self.identity, said)


def charge(
    budget: ChargeTo,
    worst: Any,
    rows: beam.PCollection,
    found: Releases,
    persons: beam.PCollection | None = None,
    **how: Any,
) -> Releases:
    """Reserve what a composite may release, and settle what becomes of it.

    Called last, when everything else is built: what fails before it is not charged.

    Args:
        budget: whose.
        worst: the dearest release of a window.
        rows: what the composite reads.
        found: what it gives; it is returned anew.
        persons: blocks of values with every person once; None where each row is a person.
        how: further arguments of `ChargeTo.reserve`.
    """
    if budget.people_store is not None and persons is None:
        raise ValueError("people_store needs user ids: name the user id column")
    windowing, bounded = rows.windowing.windowfn, rows.is_bounded
    reservation = budget.reserve(worst, windowing=windowing, bounded=bounded, **how)
    if reservation.people is not None:
        persons | "Leave hashes" >> LeaveHashes(reservation.people)
    charged, refused = typed_outputs(
        found.releases,
        "Charge",
        beam.ParDo(_Settle(reservation)),
        found.releases.element_type,
        withheld=WithheldRelease,
    )
    giving_back = beam.ParDo(_Abandon(reservation)).with_output_types(WithheldRelease)
    given_back = found.withheld | "Give back" >> giving_back
    withheld = (given_back, refused) | "All withheld" >> beam.Flatten()
    return Releases(charged, withheld)


class _Charging(beam.DoFn):
    """Opens the ledger on the worker, at the first element."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self._ledger: BudgetLedger | None = None

    def setup(self) -> None:
        self._unsettled = counter("unsettled")

    def _open(self) -> BudgetLedger:
        from beam_ldp.ledger import BudgetLedger

        if self._ledger is None:
            self._ledger = BudgetLedger(self._reservation.url)
        return self._ledger

    def _away(self) -> tuple[type[Exception], ...]:
        """Errors of a ledger that is away: the charge then keeps its worst case."""
        from beam_ldp.ledger import LedgerMissingError, LedgerUnavailableError

        return LedgerMissingError, LedgerUnavailableError

    def _say(self) -> None:
        self._unsettled.inc()
        log_events.say(log_events.UNSETTLED, run_id=self._reservation.run_id)


class _Settle(_Charging):
    """Settles each release. What the ledger did not take goes no further: a ledger that is away
    ends the job, or what the engine tries again of it."""

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        release = element[1] if isinstance(element, tuple) else element
        try:
            why = "" if release.ran is None else self._reservation.settle(self._open(), release)
        except self._away():
            self._say()
            raise
        if not why:
            yield element
        else:
            bounds = window_bounds(window)
            group, late = release.group, release.late
            notice = WithheldRelease(
                release.num_reports, 0, why, release.question, group, bounds, late
            )
            yield TaggedOutput("withheld", notice)


class _Abandon(_Charging):
    """Gives the central price of what was withheld back; the notices pass through."""

    def process(self, withheld: WithheldRelease) -> Iterator[WithheldRelease]:
        try:
            self._reservation.abandon(self._open(), withheld)
        except self._away():
            self._say()
        yield withheld


def honest_event(event: Any, honest_fraction: float) -> Any:
    """The event among those reports alone that are not fake."""
    if honest_fraction == 1:
        return event
    reports = _accounting("reports")
    return reports.with_crowd(event, reports.hidden_users(reports.crowd_of(event), honest_fraction))


def _is_shuffled(event: Any) -> bool:
    """Whether one number of people hides a report in all of it."""
    try:
        return bool(_accounting("reports").crowd_of(event) >= 1)
    except AttributeError:
        return False


def _label(said: Release | WithheldRelease) -> list[int | str] | None:
    """What the ledger calls a window; the release of its late reports has a charge of its own."""
    if said.window is None:
        return None
    return [*said.window, "late"] if said.late else list(said.window)


def _check_no_password(url: str) -> None:
    from beam_ldp.ledger.store import RowStore

    if RowStore(url).holds_a_password:
        raise ValueError(
            "url must not contain a password, since it travels in the job graph: set "
            "BEAM_LDP_LEDGER on launcher and workers, or let the driver find the password there "
            "(PGPASSFILE)"
        )
