"""The charge of one run: reserved before anything is read, settled before it is published.

`settle` tells the ledger of a release, from its privacy record; it is safe to repeat.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from apache_beam.io.filesystem import BeamIOError
from rich.console import Console
from rich.markup import escape

from beam_ldp import settings as sections
from beam_ldp.accounting.prices import Price
from beam_ldp.launcher import Launcher
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import worker_results as results
from beam_ldp.release.gates import NothingReleasedError, NotPublishedError
from beam_ldp.release.interrupted_runs import BegunRounds, Note, RoundsPrice
from beam_ldp.release.job_monitor import JobError
from beam_ldp.settings import SettingError
from beam_ldp.transforms.device.keyed import PeopleFolder, files_at
from beam_ldp.transforms.elements.blocks import Release

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge
    from beam_ldp.release.outputs import OutputFolder

YES = "yes"
_LONGEST_WHY = 1000  # characters of an error that go into the ledger


class ChargeSettings(Protocol):
    """What a charge asks of every program's settings. Attributes: the sections.

    `one_report_per` says whose report is charged as one.
    """

    @property
    def dataset(self) -> str: ...
    @property
    def one_report_per(self) -> str: ...
    @property
    def noise(self) -> sections.Noise: ...
    @property
    def charge(self) -> sections.Charge: ...
    @property
    def privacy(self) -> sections.Privacy: ...
    @property
    def output(self) -> sections.Output: ...


class NoCharge:
    """A run that is not charged, and why: every output says so."""

    people: PeopleFolder | None = None  # where hashes of the people asked are left
    publication: str = ""  # name of the folder in it for hashes of memoized reports
    mlflow_uri: str | None = None  # MLflow's store that all runs of the ledger share
    whole = False  # whether a schedule was committed, which is charged wherever it ends
    way_back = "If provably nothing of it was released, return it with `beam-ldp budget abandon`"

    def __init__(self, why: str, begun: BegunRounds | None = None) -> None:
        self.facts: dict[str, Any] = {"charged": why}
        self._begun = begun  # of a training that goes on
        self._start = ""  # its token
        self._note: Note | None = None
        self.num_reports: int | None = None  # that came, once that is known

    def abandon(self, why: str, *, randomized: bool = True) -> None:
        """Nothing to give back."""

    def price(
        self, price: Price, release: Release, found: results.WorkerResults, randomizer: Any
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
        rounds: RoundsPrice | None = None,
        overwrite: bool = False,
    ) -> None:
        """Leave word in the staging folder, for `beam-ldp finalize` if this launcher is lost.

        A training that goes on takes over from the start before it, in the ledger too, so that of
        two copies of a staging folder only one does.

        Args:
            staging: the folder.
            ends_with_launcher: see `Note`.
            rounds: of a training, whose rounds are then counted by `begin_round`.
            overwrite: whether what is published may replace an output.
        """
        self._start = "" if self._begun is None else uuid.uuid4().hex
        if rounds is not None:
            self._begun = self._begun or BegunRounds(staging)
        self._note = replace(
            self._whose,
            ends_with_launcher=ends_with_launcher,
            rounds=rounds,
            overwrite=overwrite,
        )
        self._note.write(staging)
        if self._begun is not None:
            self._tell_ledger(self._begun.count, starts=True)

    @property
    def _whose(self) -> Note:
        """What a note says of the charge: that there is none."""
        return Note("", "", False, Launcher.this())

    def let_go(self, staging: str) -> None:
        """Leave the staging folder to `beam-ldp finalize`, though this process may live on."""
        if self._note is not None:
            replace(self._note, launcher=self._note.launcher.gone).write(staging)

    def begin_round(self, withheld: bool = False) -> None:
        """Write down that one more round of a training begins, before anybody is asked: in the
        staging folder, and in the ledger.

        Args:
            withheld: whether its result will not be released: too few clients came.

        Raises:
            NotPublishedError: if the ledger does not take it; nobody may be asked then.
        """
        if self._begun is not None:
            self._begun.begin(withheld)
            self._tell_ledger(self._begun.count)

    def _tell_ledger(self, rounds: int, starts: bool = False) -> None:
        """No ledger counts rounds."""

    def end_rounds(self) -> None:
        """The training begins no further rounds in this process."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None

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
        begun: rounds of a training that goes on.
    """

    def __init__(
        self,
        ledger: BudgetLedger,
        charge: Charge,
        people: PeopleFolder | None = None,
        begun: BegunRounds | None = None,
    ) -> None:
        from beam_ldp.ledger.losses import committed

        super().__init__(YES, begun)
        self._ledger, self._charge = ledger, charge
        self._run_id, self._dataset = charge.run_id, charge.dataset
        self.people = people
        self.publication = charge.attempt
        self.mlflow_uri = ledger.mlflow_uri
        self.whole = committed(charge.reserved)
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

    @property
    def _whose(self) -> Note:
        before = self._charge.attempt
        return Note(
            self._run_id,
            self._ledger.ledger_id,
            False,
            Launcher.this(),
            attempt=self._start or before,
            identity=self._charge.identity.to_json(),
            publications=self._publications,
            before=before if self._start else None,
        )

    def _tell_ledger(self, rounds: int, starts: bool = False) -> None:
        """How many rounds have begun, before anybody is asked."""
        start = (self._start or self._charge.attempt) if starts else None
        from beam_ldp.ledger import LedgerError, LedgerUnavailableError

        try:
            self._charge = self._ledger.begin(
                self._run_id, attempt=self._charge.attempt, start=start, rounds=rounds
            )
        except Exception as error:
            ours = isinstance(error, (LedgerError, LedgerUnavailableError))
            why = str(error) if ours else type(error).__name__
            raise NotPublishedError(
                f"the training ends here, since the ledger did not take the next round ({why}). "
                "`beam-ldp train --resume` continues it; `beam-ldp finalize` ends its charge"
            ) from None

    def count_people(self) -> None:
        """Count what each person was charged locally, this run included."""
        if self.people is not None:
            store = self.people.store.removeprefix("file://")
            self._ledger.count_people(self._dataset, store, files=files_at(store))

    def check_people(self, num_reports: int) -> None:
        """A JobError if more reports came than people left hashes: nothing is released then."""
        from beam_ldp.ledger.accounts import FewerPeopleError, check_people
        from beam_ldp.ledger.participants import AskedPeople, DamagedTagsError, folder_of

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
    except SettingError as error:  # nothing was started
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
                f"run {escape(charge.facts['run_id'])} stays charged at its worst case. "
                f"{charge.way_back}",
                soft_wrap=True,
            )
        raise


@contextmanager
def kept_if_it_fails(
    charge: NoCharge, folder: OutputFolder, staging: str, *, elsewhere: bool
) -> Iterator[None]:
    """Around a charged job: where it fails or is interrupted, what `beam-ldp finalize` needs stays.

    Args:
        charge: of the run, its note left.
        folder: of its output.
        staging: where the note is, and what the workers left.
        elsewhere: whether the job may outlive this process.
    """
    try:
        yield
    except (SettingError, NothingReleasedError):
        raise
    except (Exception, KeyboardInterrupt):
        if charge.facts["charged"] == YES:
            with suppress(OSError, BeamIOError):  # a full disk: the run's first note stays
                folder.keep = True
                charge.let_go(staging)
            charge.way_back = (
                "Once its job is over (its cluster or job server is stopped), `beam-ldp finalize "
                f"{folder.path} --ended` gives back what it did not release"
                if elsewhere
                else f"`beam-ldp finalize {folder.path}` gives back what it did not release"
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


# Beside its event.
_TOLD = ("question", "epsilon", "delta", "method", "proof_status", "num_reports", "output",
         "certificate")  # fmt: skip


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
        about.pop("certificate", None)
    if record.get("memoized") or record.get("report_digest") is not None:
        about["publications"] = [publication_of(record, publications)]
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


def publication_of(record: Mapping[str, Any], folders: Sequence[str]) -> dict[str, Any]:
    """What a later publication of the same reports must know of this one.

    `folder` of hashes, "" without; `people` who reported; `least` reports of a group that is shown;
    `whole`: whether all reports of each group were shown together.
    """
    withheld = sum(part["num_reports"] for part in record.get("withheld", ()))
    return {
        "folder": next(iter(folders), ""),
        "people": record["num_reports"] + withheld,
        "least": record["min_reports"],
        "whole": bool(record.get("one_shuffle")),
    }


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
