"""The charge of one run: reserved before anything is read, settled before it is published."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines.options import ReleaseOptions, UsageError
from beam_ldp.pipelines.records.gates import NothingReleasedError, NotPublishedError
from beam_ldp.pipelines.records.lost_runs import (
    BegunRounds,
    Launcher,
    Note,
    RoundPrice,
    find_lost_runs,
)
from beam_ldp.pipelines.records.price import Price
from beam_ldp.pipelines.running import results
from beam_ldp.pipelines.running.watch import JobError
from beam_ldp.pipelines.settings import LEDGER_VARIABLE
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.keys import read_key
from beam_ldp.transforms.people import PeopleFolder, files_at

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge

NO_LEDGER = "no: no ledger was named"
SIMULATED = "no: a simulation has no price"
YES = "yes"
REQUIRE_VARIABLE = "BEAM_LDP_REQUIRE_LEDGER"  # "1": no run goes uncharged
_LONGEST_WHY = 1000  # characters of an error that go into the ledger


class NoCharge:
    """A run that is not charged, and why: every output says so."""

    people: PeopleFolder | None = None  # where hashes of the people asked are left
    publication: str = ""  # name of the folder in it for hashes of memoized reports

    def __init__(self, why: str) -> None:
        self.facts: dict[str, Any] = {"charged": why}
        self.num_reports: int | None = None  # that came, once that is known

    def abandon(self, why: str, *, randomized: bool = True) -> None:
        """Nothing to give back."""

    def price(
        self, price: Price, release: Release, found: results.Collected, randomizer: Any
    ) -> Price:
        """What this release costs, with what was published of the same reports before."""
        return price

    def settle(self, record: Mapping[str, Any]) -> None:
        """Nothing to write down."""

    def leave_note(
        self,
        staging: str,
        *,
        ends_with_launcher: bool,
        rounds: RoundPrice | None = None,
        overwrite: bool = False,
    ) -> None:
        """Nothing to find again."""

    def let_go(self, staging: str) -> None:
        """Nothing that somebody else could go on with."""

    def begin_round(self) -> None:
        """Nothing to count."""

    def count_people(self) -> None:
        """Nobody to count."""

    def check_people(self, num_reports: int) -> None:
        """Nobody to compare reports with."""

    def tags(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Nothing to tie an MLflow run to."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Nothing that only a ledger knows."""
        return {}

    def show_budget(self, tracking_uri: str, experiment_id: str) -> None:
        """No budget to show."""


class RunCharge(NoCharge):
    """A reservation of this run, and what became of it.

    Args:
        ledger: that holds it.
        charge: as it was reserved.
        people: where hashes of the people asked are left, if they are.
    """

    def __init__(
        self, ledger: BudgetLedger, charge: Charge, people: PeopleFolder | None = None
    ) -> None:
        super().__init__(YES)
        self._ledger, self._charge = ledger, charge
        self._run_id, self._dataset = charge.run_id, charge.dataset
        self._begun: BegunRounds | None = None
        self._note: Note | None = None
        self.people = people
        self.publication = charge.attempt
        self.facts |= {
            "ledger": ledger.url,
            "ledger_id": ledger.ledger_id,
            "run_id": charge.run_id,
        }

    def abandon(self, why: str, *, randomized: bool = True) -> None:
        """Give the central price back: nothing was released, though people may have randomized."""
        told = {} if self.num_reports is None else {"num_reports": self.num_reports}
        self._ledger.abandon(
            self._run_id, randomized=randomized, why=why, attempt=self._charge.attempt, about=told
        )
        self.count_people()

    def settle(self, record: Mapping[str, Any]) -> None:
        """Write down what is released."""
        settle(self._ledger, record, self._charge.attempt, self._publications)

    @property
    def _publications(self) -> tuple[str, ...]:
        """The folder with hashes of this publication's memoized reports, if there is one."""
        return (self.publication,) if self.people is not None and self._charge.memoized else ()

    def leave_note(
        self,
        staging: str,
        *,
        ends_with_launcher: bool,
        rounds: RoundPrice | None = None,
        overwrite: bool = False,
    ) -> None:
        """Leave word in the staging folder, for `beam-ldp finalize` if this launcher is lost.

        Args:
            staging: the folder.
            ends_with_launcher: see `Note`.
            rounds: of a training, whose rounds are then counted by `begin_round`.
            overwrite: whether what is published may replace an output.
        """
        if rounds is not None:
            self._begun = BegunRounds(staging)
        self._note = Note(
            self._run_id,
            self._ledger.ledger_id,
            ends_with_launcher,
            Launcher.this(),
            rounds,
            self._charge.attempt,
            self._charge.identity.to_json(),
            self._publications,
            overwrite,
        )
        self._note.write(staging)

    def let_go(self, staging: str) -> None:
        """Leave what is finished to `beam-ldp finalize`, though this process may live on."""
        if self._note is not None:
            replace(self._note, launcher=self._note.launcher.gone).write(staging)

    def begin_round(self) -> None:
        """Write down that one more round of a training begins; before it does."""
        if self._begun is not None:
            self._begun.begin()

    def count_people(self) -> None:
        """Count what each person was charged locally, this run included."""
        if self.people is not None:
            store = self.people.store.removeprefix("file://")
            self._ledger.count_people(self._dataset, store, files=files_at(store))

    def check_people(self, num_reports: int) -> None:
        """A JobError if more reports came than people left hashes: nothing is released then."""
        from beam_ldp.ledger.people import AskedPeople, DamagedTagsError, folder_of
        from beam_ldp.ledger.people_count import FewerPeopleError, check_people

        if self.people is None:
            return
        store = self.people.store.removeprefix("file://")
        folder = folder_of(store, self.people.population, self.people.run, None)
        try:
            check_people(AskedPeople.open(files_at(store), folder), num_reports)
        except (FewerPeopleError, DamagedTagsError) as error:
            raise JobError(str(error)) from None

    def tags(self, record: Mapping[str, Any]) -> dict[str, str]:
        """What ties an MLflow run to the charge, and anchors the ledger's head there."""
        import mlflow_ldp

        return mlflow_ldp.charge_tags(self._ledger, self._run_id, record["event"])

    def metrics(self) -> dict[str, float]:
        """What all runs about these people have spent, and what each of them was charged."""
        import mlflow_ldp

        return mlflow_ldp.dataset_metrics(self._ledger, self._dataset) | mlflow_ldp.people_metrics(
            self._ledger, self._dataset
        )

    def show_budget(self, tracking_uri: str, experiment_id: str) -> None:
        """The next step of the MLflow run that shows the budget's history."""
        import mlflow_ldp

        mlflow_ldp.log_budget(
            self._ledger, self._dataset, tracking_uri=tracking_uri, experiment_id=experiment_id
        )


@contextmanager
def spent_unless_settled(charge: NoCharge, console: Console) -> Iterator[None]:
    """Around everything between the reservation and the finished output.

    What was provably not released is given back; what ends in any other way stays charged.
    """
    try:
        yield
    except UsageError as error:  # nothing was started
        _give_back(charge, console, str(error), randomized=False)
        raise
    except NotPublishedError:  # the charge stands, for now or for good
        raise
    except NothingReleasedError as error:
        _give_back(charge, console, str(error), randomized=True)
        raise
    except BaseException:
        if "run_id" in charge.facts:
            console.print(
                f"run {escape(charge.facts['run_id'])} stays charged at its worst case; if "
                "provably nothing of it was released, `beam-ldp budget abandon` gives it back",
                soft_wrap=True,
            )
        raise


def _give_back(charge: NoCharge, console: Console, why: str, *, randomized: bool) -> None:
    try:
        charge.abandon(why[:_LONGEST_WHY], randomized=randomized)
    except Exception as error:
        console.print(
            f"[yellow]warning:[/yellow] the ledger could not be written ({type(error).__name__}): "
            f"run {escape(charge.facts['run_id'])} stays charged until `beam-ldp budget abandon`",
            soft_wrap=True,
        )


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
    if publications:
        about["publications"] = list(publications)
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


# What the ledger is told of a release, beside its event.
_TOLD = ("question", "epsilon", "delta", "method", "proof_status", "num_reports", "output")


class Charged(Protocol):
    """What a charge asks of every program's settings. Attributes: as the flags.

    `one_report_per` says whose report is charged as one.
    """

    @property
    def ledger(self) -> str | None: ...
    @property
    def no_ledger(self) -> bool: ...
    @property
    def dataset(self) -> str: ...
    @property
    def delta(self) -> float: ...
    @property
    def honest_fraction(self) -> float: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def privacy_unit(self) -> str: ...
    @property
    def one_report_per(self) -> str: ...
    @property
    def memoize_key_file(self) -> str | None: ...
    @property
    def frozen_values(self) -> bool: ...
    @property
    def people_store(self) -> str | None: ...
    @property
    def people_key_file(self) -> str | None: ...
    @property
    def output(self) -> str | None: ...
    @property
    def no_mlflow(self) -> bool: ...


def reserve(
    settings: Charged,
    worst: Price | None,
    about: str,
    *,
    identity: ReleaseIdentity | None = None,
    run_id: str | None = None,
    mechanism: str = "",
    local_event: Any = None,
) -> NoCharge:
    """Set the worst case of a run aside.

    Args:
        settings: the flags.
        worst: the price if only `min_reports` arrive; None in a simulation.
        about: the public name of what is asked.
        identity: of the release; default: one of the mechanism and what is asked.
        run_id: name of the charge.
        mechanism: digest of its configuration, hexadecimal.
        local_event: what people send, where the event of the price says only what a trusted server
            publishes.

    Raises:
        UsageError: if the ledger, the data set or the privacy unit does not fit.
        NothingReleasedError: if the budget does not allow it. Nothing was read.
    """
    if worst is None:
        return NoCharge(SIMULATED)
    url = ledger_url(settings)
    if url is None:
        return NoCharge(NO_LEDGER)
    try:
        from beam_ldp.ledger import (
            BudgetExceededError,
            BudgetLedger,
            LedgerCorruptedError,
            LedgerMissingError,
            LedgerUnavailableError,
        )
        from beam_ldp.ledger.checks import check_name
    except ImportError:
        raise UsageError(
            "the ledger's packages are not installed: pip install 'beam-ldp[ledger]'"
        ) from None

    run_id = run_id or settings.run_id or f"{settings.dataset}-{uuid.uuid4().hex[:12]}"
    try:
        ledger = BudgetLedger(url)
        check_name("run_id", run_id)
        identity = identity or _identity(settings, run_id, about, mechanism)
        _check_key(settings, identity)
        _check_alone(settings, run_id)
        published = ledger.published(identity)
        if published is not None:
            from beam_ldp.pipelines.records.republishing import Republication

            people = _people(settings, ledger, published.run_id)
            return Republication(ledger, published, people, settings)
        charge = ledger.reserve(
            settings.dataset,
            run_id,
            worst.event,
            identity=identity,
            local_event=local_event,
            privacy_unit=settings.privacy_unit,
            memoized=bool(identity.key),
            about={
                "question": about,
                "one_report_per": settings.one_report_per,
                **untracked(settings),
            },
        )
    except BudgetExceededError as error:
        raise NothingReleasedError(str(error)) from None
    except LedgerCorruptedError as error:
        raise UsageError(f"the ledger is damaged: {error}. See `beam-ldp audit`") from None
    except (ValueError, LedgerMissingError, LedgerUnavailableError) as error:
        raise UsageError(str(error)) from None
    return RunCharge(ledger, charge, _people(settings, ledger, run_id))


def _check_key(settings: Charged, identity: ReleaseIdentity) -> None:
    if settings.memoize_key_file is not None and not identity.key:
        raise UsageError(
            "--memoize-key-file must be readable where the run is started too: the ledger keeps a "
            "commitment to the key, which tells releases apart"
        )


def _check_alone(settings: Charged, run_id: str) -> None:
    """Refuse to start a run a second time while its launcher lives; elsewhere the ledger fences."""
    for run in find_lost_runs(settings.output) if settings.output else ():
        if run.note.run_id == run_id and run.note.launcher.ended == "under way":
            raise UsageError(
                f"run {run_id!r} is under way: its launcher, process {run.note.launcher.pid}, "
                "lives, and has this --output"
            )


def _identity(settings: Charged, run_id: str, about: str, mechanism: str) -> ReleaseIdentity:
    """What is released. Where the key cannot be read here, no restart is free."""
    identity = ReleaseIdentity(
        settings.dataset,
        getattr(settings, "release_id", None) or run_id,
        mechanism,
        tuple(about.split(", ")),
        privacy_unit=settings.privacy_unit,
    )
    if settings.memoize_key_file is None:
        return identity
    try:
        return identity.committed(read_key(settings.memoize_key_file))
    except ValueError:
        return identity


def untracked(settings: Charged) -> dict[str, str]:
    """Why this run will not be in MLflow, if that is so: audits then do not call it missing."""
    return {"untracked": "--no-mlflow"} if settings.no_mlflow else {}


def _people(settings: Charged, ledger: BudgetLedger, run_id: str) -> PeopleFolder | None:
    if settings.people_store is None or settings.people_key_file is None:
        return None
    population = ledger.population(settings.dataset)
    return PeopleFolder(settings.people_store, settings.people_key_file, population, run_id)


def charge_to(options: PipelineOptions) -> ChargeTo | None:
    """The budget that the flags of a Beam program of one's own name, for its composites.

    The flags are those of the programs here: `--ledger` (or BEAM_LDP_LEDGER), `--dataset`,
    `--budget-windows` for unbounded data, `--run-id`, `--honest-fraction`, `--privacy-unit`,
    `--people-store`, `--people-key-file`.

    Args:
        options: `PipelineOptions(flags)`.

    Returns:
        What to give to a composite as `budget`; None with `--no-ledger`: nothing is charged.

    Raises:
        UsageError: if no ledger or no dataset is named: a run is uncharged only if it says so.
    """
    flags = options.view_as(ReleaseOptions)
    if flags.no_ledger:
        check_may_be_uncharged()
        return None
    if not (flags.ledger or os.environ.get(LEDGER_VARIABLE)):
        raise UsageError(f"--ledger is missing (or {LEDGER_VARIABLE}, or --no-ledger)")
    if not flags.dataset:
        raise UsageError("--dataset must name the data set whose budget is charged")
    try:
        return ChargeTo(
            flags.dataset,
            flags.ledger,
            run_id=flags.run_id,
            windows=flags.budget_windows,
            honest_fraction=flags.honest_fraction,
            privacy_unit=flags.privacy_unit,
            people_store=flags.people_store,
            people_key_file=flags.people_key_file,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def ledger_url(settings: Charged) -> str | None:
    """The ledger that is named by a flag or by the environment; None if there is none."""
    named = settings.ledger or os.environ.get(LEDGER_VARIABLE) or None
    if settings.no_ledger or named is None:
        check_may_be_uncharged()
        return None
    return named


def check_may_be_uncharged() -> None:
    """A UsageError where a run without a ledger is not allowed (BEAM_LDP_REQUIRE_LEDGER)."""
    if os.environ.get(REQUIRE_VARIABLE, "") not in ("", "0"):
        raise UsageError(
            f"{REQUIRE_VARIABLE} is set: every run that is no simulation is charged to a ledger "
            f"(--ledger or {LEDGER_VARIABLE}), and --no-ledger is not allowed"
        )
