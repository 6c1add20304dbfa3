"""Charging a budget from a pipeline: reserved where it is built, settled where it releases.

A graph can be run again, and an engine can make again what it lost. So a charge is settled by what
leaves, not by what it costs: each run begins in the ledger under a token that it draws, before
anybody is asked, and each release has a token that is drawn with it, or is a digest of it where
reports stay the same. The ledger keeps both; what has other tokens is refused, or withheld.
Streams have tokens of their releases alone: see `ChargeTo.begin`.
"""

from __future__ import annotations

import hashlib
import importlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints

from beam_ldp import log_events
from beam_ldp.launcher import Launcher
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.transforms.collector.side import Releases
from beam_ldp.transforms.device.keyed import LeaveHashes, PeopleFolder
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease
from beam_ldp.transforms.elements.stages import (
    NO_KEY,
    USED_UP,
    counter,
    group_name,
    part_of,
    typed_outputs,
    window_bounds,
)
from beam_ldp.transforms.servers import check_servers

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger

ENDED_BEFORE = "released or withheld already by an earlier run or start"
MADE_AGAIN = "another release was settled under this charge, and this one was made anew"


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

    The charge covers one run. A second run of the same pipeline draws new noise and is refused by a
    LedgerError of its job, before anybody is asked: build it anew, under a new run id. Memoized, or
    of reports that devices sent, it goes on with what has not ended. What is made anew after it was
    settled, by an engine or by a second run of a stream, is withheld unless it is the same.

    Where reports stay the same, a pipeline that is built anew before it has released goes on under
    the open charge; it is refused while the process that built the first one lives on this machine.
    After the release, or once all windows have ended, it is refused where it is built: no digest of
    all reports (`report_digest`) is known on workers, where charges are settled. `beam-ldp
    frequency` and `mean` publish once more. Under a new `run_id` further windows are charged, and
    those that another run released are withheld.

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
            file with the secret key, which only they read; see `beam_ldp.ledger.participants`.
            Default: none are left, and the run counts as one that asked everybody.
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
        attempt: str | None = None,
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
            attempt: token of this reservation, where the graph knows it already.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: for an unknown dataset, another privacy unit, a name that was used, or an
                open charge whose launcher is another process of this machine, and alive.
            ValueError: if the data have windows and `windows` is not given.
        """
        from beam_ldp.ledger import BudgetLedger

        if self.windows is None and not (bounded and isinstance(windowing, GlobalWindows)):
            raise ValueError(
                "budget: windowed or unbounded data need ChargeTo(windows=...): how many releases "
                "to reserve"
            )
        ledger, same = BudgetLedger(self.url), same_reports or bool(identity.key)
        run_id = self.named(identity, same)
        about: dict[str, Any] = {"question": question, "run": run_id}
        if same:
            _check_alone(ledger, run_id)
            about["launcher"] = asdict(Launcher.this())
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
            attempt=attempt,
            privacy_unit=self.privacy_unit,
            about=about,
        )
        told = _accounting("event_json").event_to_json(event)
        people = self._people(ledger.population(self.dataset), run_id)
        return Reservation(
            self.url, run_id, identity, charge.is_block, told, self.honest_fraction, grouped,
            people, same,
        )  # fmt: skip

    def named(self, identity: ReleaseIdentity | None, same_reports: bool) -> str:
        """Name of the charge where none was given: of an open one of the same release and reports,
        which this pipeline goes on with, else a random one.

        Raises:
            LedgerError: if all windows that were reserved of the same reports have ended.
        """
        from beam_ldp.ledger import BudgetLedger, LedgerError

        if self.run_id is not None:
            return self.run_id
        if identity is not None and same_reports:
            ledger = BudgetLedger(self.url)
            found = ledger.open_charge(identity)
            if found is not None:
                return found.run_id
            ended = ledger.ended_block(identity)
            if ended is not None:
                raise LedgerError(
                    f"all windows that run {ended.run_id!r} reserved for this very release "
                    f"({identity.release_id!r}) have ended. To release further windows, give "
                    "ChargeTo a new run_id: that is a new charge, and windows that were released "
                    "before are withheld"
                )
        return f"{self.dataset[:100]}-{uuid.uuid4().hex[:12]}"

    def begin(
        self, rows: beam.PCollection, identity: ReleaseIdentity | None, same_reports: bool = False
    ) -> Begun:
        """The start of every run of the pipeline that reads these rows.

        With `same_reports` a repetition is of the same reports though no key decides what they are.
        The token of a run of bounded data is a side input of what asks people and of what settles.
        Flink cannot write checkpoints of stages with side inputs, so all runs of a stream settle
        under the token of the reservation.
        """
        same = same_reports or bool(identity and identity.key)
        named, attempt = replace(self, run_id=self.named(identity, same)), uuid.uuid4().hex
        if not rows.is_bounded:
            return Begun(named, attempt, None, same)
        start = rows.pipeline | "Start run" >> beam.Impulse()
        tokens = start | "Draw token" >> beam.ParDo(_Draw()).with_output_types(str)
        # A start that is tried again must have the token that is written down.
        kept = tokens | "Keep token" >> beam.Reshuffle()
        begin = beam.ParDo(_Begin(self.url, str(named.run_id), attempt)).with_output_types(str)
        return Begun(named, attempt, kept | "Begin" >> begin, same)

    def _people(self, population: str, run_id: str) -> PeopleFolder | None:
        if self.people_store is None or self.people_key_file is None:
            return None
        return PeopleFolder(self.people_store, self.people_key_file, population, run_id)


@dataclass(frozen=True)
class Reservation:
    """What was set aside for a pipeline; travels in the job graph.

    Attributes:
        url: of the ledger; None: as the worker's environment says.
        run_id: of the charge.
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
    identity: ReleaseIdentity
    is_block: bool
    worst: dict[str, Any]
    honest_fraction: float
    grouped: bool
    people: PeopleFolder | None = None
    same_reports: bool = False

    def token_of(self, release: Release) -> str:
        """What stands for a release: memoized, a digest of it; else what nothing else has.

        Equal releases of fresh noise are two: that they are equal would tell more of people.
        """
        if not self.same_reports:
            return uuid.uuid4().hex
        return hashlib.sha256(BlockCoder(Release).encode(release)).hexdigest()

    def settle(
        self, ledger: BudgetLedger, run: str, tokens: Mapping[str, str], release: Release
    ) -> str:
        """Write down what is released; why it may not be, or "".

        What an earlier start of the run has ended stays as it is: rows may have come since, and a
        second release of the same reports beside the first one would show theirs.

        Args:
            ledger: that holds the charge.
            run: token of the run.
            tokens: of what leaves, by group; "" without groups.
            release: one of them.
        """
        part = self._part(release)
        if self._ended_before(ledger, run, release):
            return ENDED_BEFORE
        event = self.worst
        if not self.grouped and (self.honest_fraction == 1 or _is_shuffled(release.event)):
            ran = honest_event(release.event, self.honest_fraction)
            event = _accounting("event_json").event_to_json(ran)
        about = {
            "window": _label(release),
            "output": release.output,
            "mechanism": release.mechanism.get("mechanism", ""),
        }
        if not self.grouped:  # of a group alone it would be no count of the people asked
            about["num_reports"] = release.num_reports
        from beam_ldp.ledger import BlockUsedUpError, ReleasedBeforeError

        try:
            ledger.settle(
                self.run_id, event, identity=part, attempt=run, tokens=tokens, about=about
            )
        except BlockUsedUpError:
            return USED_UP
        except ReleasedBeforeError:
            return MADE_AGAIN
        return ""

    def abandon(self, ledger: BudgetLedger, run: str, withheld: WithheldRelease) -> None:
        """Give the central price of a window back, of which nothing was released.

        Late reports that are not released change nothing: the window has a charge of its own.
        """
        from beam_ldp.ledger import BlockUsedUpError, ReleasedBeforeError

        part = self._part(withheld)
        if self.grouped or withheld.late or self._ended_before(ledger, run, withheld):
            return
        try:
            ledger.abandon(
                self.run_id,
                part=part.part if self.is_block else "",
                attempt=run,
                randomized=True,
                why=withheld.reason,
                about={"window": _label(withheld), "num_reports": withheld.num_reports},
            )
        except (BlockUsedUpError, ReleasedBeforeError):
            return  # this window was never reserved, or is released

    def _ended_before(
        self, ledger: BudgetLedger, run: str, said: Release | WithheldRelease
    ) -> bool:
        """Whether another start of the run ended this window, or another run released it.

        Late reports of such a window stay away too: this start cannot know who was in time then.
        """
        if not (self.is_block and self.same_reports):
            return False
        parts = (self._part(replace(said, late=late)) for late in (False, True))
        return any(self._ended_by_another(ledger, run, part) for part in parts)

    def _ended_by_another(self, ledger: BudgetLedger, run: str, part: ReleaseIdentity) -> bool:
        from beam_ldp.ledger import LedgerError

        try:
            return ledger.charge(self.run_id, part.part).attempt != run
        except LedgerError:  # it is open here
            return ledger.published(part) is not None

    def _part(self, said: Release | WithheldRelease) -> ReleaseIdentity:
        if said.window is None and self.is_block:
            return replace(self.identity, part="all")
        return part_of(self.identity, said)


@dataclass(frozen=True)
class Begun:
    """A run of a pipeline, as its graph knows it.

    Attributes:
        budget: that pays, with the name of the charge.
        attempt: token of the reservation.
        token: a collection of the one token that a run draws, written down before it comes out;
            None of a stream, whose runs settle under the token of the reservation.
        same_reports: whether a repetition is of the same reports.
    """

    budget: ChargeTo
    attempt: str
    token: beam.PCollection | None
    same_reports: bool

    @property
    def run(self) -> Any:
        """What a stage is told of the run that it is in."""
        return self.attempt if self.token is None else beam.pvalue.AsSingleton(self.token)

    def then(self, persons: beam.PCollection) -> beam.PCollection:
        """The same blocks, not before the run has begun: people are asked after it."""
        if self.token is None:
            return persons
        wait = beam.Map(_unchanged, self.run)
        return persons | "Once begun" >> wait.with_output_types(persons.element_type)


def _unchanged(element: Any, token: str) -> Any:
    return element


def charge(
    begun: Begun,
    worst: Any,
    rows: beam.PCollection,
    found: Releases,
    persons: beam.PCollection | None = None,
    **how: Any,
) -> Releases:
    """Reserve what a composite may release, and settle what becomes of it.

    Called last, when everything else is built: what fails before it is not charged.

    Args:
        begun: the run, and whose budget pays.
        worst: the dearest release of a window.
        rows: what the composite reads.
        found: what it gives; it is returned anew.
        persons: blocks of values with every person once; None where each row is a person.
            People who are asked here are asked of `Begun.then`.
        how: further arguments of `ChargeTo.reserve`.
    """
    budget = begun.budget
    if budget.people_store is not None and persons is None:
        raise ValueError("people_store needs user ids: name the user id column")
    check_servers(rows.pipeline.options, type(rows.pipeline.runner).__name__)
    windowing, bounded = rows.windowing.windowfn, rows.is_bounded
    reservation = budget.reserve(
        worst,
        windowing=windowing,
        bounded=bounded,
        attempt=begun.attempt,
        same_reports=begun.same_reports,
        **how,
    )
    if reservation.people is not None:
        persons | "Leave hashes" >> LeaveHashes(reservation.people)
    kind = found.releases.element_type
    named: Any = typehints.Tuple[str, typehints.Tuple[str, kind]]
    charged, refused = typed_outputs(
        found.releases
        | "Draw tokens" >> beam.ParDo(_Name(reservation)).with_output_types(named)
        # What is settled is what leaves: names are drawn anew with what is made anew before this.
        | "Together" >> beam.GroupByKey(),
        "Charge",
        beam.ParDo(_Settle(reservation), begun.run),
        kind,
        withheld=WithheldRelease,
    )
    giving_back = beam.ParDo(_Abandon(reservation), begun.run).with_output_types(WithheldRelease)
    given_back = found.withheld | "Give back" >> giving_back
    withheld = (given_back, refused) | "All withheld" >> beam.Flatten()
    return Releases(charged, withheld)


class _Draw(beam.DoFn):
    """Draws the token of a run: when it runs, never where the graph is built."""

    def process(self, element: bytes) -> Iterator[str]:
        yield uuid.uuid4().hex


@dataclass(eq=False)
class _Begin(beam.DoFn):
    """Lets a run begin that the ledger lets begin."""

    url: str | None
    run_id: str
    attempt: str

    def process(self, token: str) -> Iterator[str]:
        from beam_ldp.ledger import BudgetLedger

        BudgetLedger(self.url).begin(self.run_id, attempt=self.attempt, start=token)
        yield token


@dataclass(eq=False)
class _Name(beam.DoFn):
    """Gives each release what stands for it."""

    reservation: Reservation

    def process(self, element: Any) -> Iterator[tuple[str, tuple[str, Any]]]:
        yield NO_KEY, (self.reservation.token_of(_release_of(element)), element)


def _release_of(element: Any) -> Release:
    """Of releases of groups, without the group."""
    release: Release = element[1] if isinstance(element, tuple) else element
    return release


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
    """Settles what a window releases, all groups at once. What the ledger did not take goes no
    further: a ledger that is away ends the job, or what the engine tries again of it."""

    def process(
        self,
        element: tuple[str, Iterable[tuple[str, Any]]],
        run: str,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        leaving: dict[bool, dict[str, tuple[str, Any]]] = {False: {}, True: {}}
        for token, one in element[1]:
            release = _release_of(one)
            if release.ran is None:
                yield one
                continue
            named = leaving[release.late]
            group = group_name(one[0]) if isinstance(one, tuple) else ""
            if group in named:
                yield self._withheld(release, MADE_AGAIN, window)
            else:
                named[group] = token, one
        for named in leaving.values():
            yield from self._settled(named, run, window)

    def _settled(self, named: dict[str, tuple[str, Any]], run: str, window: Any) -> Iterator[Any]:
        """What may leave of these; where not all of it may, each group by itself."""
        if not named:
            return
        tokens = {group: token for group, (token, _) in named.items()}
        release = _release_of(next(iter(named.values()))[1])
        try:
            why = self._reservation.settle(self._open(), run, tokens, release)
        except self._away():
            self._say()
            raise
        if why and len(named) > 1:
            for group, one in named.items():
                yield from self._settled({group: one}, run, window)
            return
        for _, one in named.values():
            yield self._withheld(_release_of(one), why, window) if why else one

    def _withheld(self, release: Release, why: str, window: Any) -> TaggedOutput:
        bounds, late = window_bounds(window), release.late
        said = release.num_reports, 0, why, release.question, release.group, bounds, late
        return TaggedOutput("withheld", WithheldRelease(*said))


class _Abandon(_Charging):
    """Gives the central price of what was withheld back; the notices pass through."""

    def process(self, withheld: WithheldRelease, run: str) -> Iterator[WithheldRelease]:
        try:
            self._reservation.abandon(self._open(), run, withheld)
        except self._away():
            self._say()
        yield withheld


def _check_alone(ledger: BudgetLedger, run_id: str) -> None:
    """A LedgerError while another process lives that launched a run; elsewhere the ledger fences.

    Only a run whose charge is open can be taken over.
    """
    from beam_ldp.ledger import LedgerError

    if not ledger.has_run(run_id):
        return
    begun = ledger.charge(run_id)
    launcher = Launcher.of_start(begun) if begun.status == "reserved" else None
    if launcher is not None and launcher.ended == "under way":
        raise LedgerError(
            f"run {run_id!r} is under way: its launcher, process {launcher.pid}, is alive. Wait "
            "for it to end, or end it"
        )


def honest_event(event: Any, honest_fraction: float) -> Any:
    """The event among those reports alone that are not fake."""
    if honest_fraction == 1:
        return event
    return _accounting("reports").honest_part(event, honest_fraction)


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
