"""The worst case of a run, set aside in the ledger that its flags name before anything is read."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.accounting.prices import Price
from beam_ldp.launcher import Launcher
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release.beam_job import BudgetOptions
from beam_ldp.release.charging import ChargeSettings, NoCharge, RunCharge
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.release.interrupted_runs import find_interrupted_runs
from beam_ldp.release.publishing import Republication, known_again, said_of_another
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import LEDGER_VARIABLE
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.device.keyed import PeopleFolder, read_key
from beam_ldp.wording import number, rounded_down

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge

NO_LEDGER = "no: no ledger was named"
SIMULATED = "no: a simulation has no privacy cost"
REQUIRE_VARIABLE = "BEAM_LDP_REQUIRE_LEDGER"  # "1": no run goes uncharged


def reserve(
    settings: ChargeSettings,
    worst: Price | None,
    about: str,
    *,
    identity: ReleaseIdentity | None = None,
    same_reports: bool | None = None,
    run_id: str | None = None,
    mechanism: str = "",
    local_event: Any = None,
    schedule: bool = False,
) -> NoCharge:
    """Set the worst case of a run aside.

    Args:
        settings: the flags.
        worst: the price if only `min_reports` arrive; None in a simulation.
        about: the public name of what is asked.
        identity: of the release; default: one of the mechanism and what is asked.
        same_reports: whether a repetition is of the same reports, as of envelopes that devices
            sent; default: if noise is memoized.
        run_id: name of the charge.
        mechanism: digest of its configuration, hexadecimal.
        local_event: what people send, where the event of the price says only what a trusted server
            publishes.
        schedule: all of the event is fixed beforehand: committed where the budget has a share of
            delta for that.

    Raises:
        SettingError: if the ledger, the data set or the privacy unit does not fit.
        NothingReleasedError: if the budget does not allow it. Nothing was read.
    """
    if worst is None:
        return NoCharge(SIMULATED)
    url = ledger_url(settings)
    if url is None:
        return NoCharge(NO_LEDGER)
    run_id = run_id or settings.charge.run_id or f"{settings.dataset}-{uuid.uuid4().hex[:12]}"
    with ledger_errors():
        from beam_ldp.ledger import BudgetLedger
        from beam_ldp.ledger.rows import check_name

        ledger = BudgetLedger(url)
        check_name("run_id", run_id)
        identity = identity or _identity(settings, run_id, about, mechanism)
        _check_key(settings, identity)
        if same_reports is None:
            same_reports = bool(identity.key)
        begun = _begun(ledger, settings, run_id, identity if same_reports else None)
        run_id = run_id if begun is None else begun.run_id
        _check_alone(settings, run_id, begun)
        published = ledger.published(identity) if same_reports else None
        if published is not None and (identity.key or known_again(settings)):
            _check_quota(settings, published)
            people = _people(settings, ledger, published.run_id)
            return Republication(ledger, published, people, settings)
        charge = ledger.reserve(
            settings.dataset,
            run_id,
            _asked_for(ledger, settings, worst, schedule),
            identity=identity,
            local_event=local_event,
            privacy_unit=settings.charge.privacy_unit,
            memoized=same_reports,
            quota=settings.charge.quota,
            about=_about(settings, about),
        )
    return RunCharge(ledger, charge, _people(settings, ledger, charge.run_id))


def would_grant(
    settings: ChargeSettings,
    worst: Price | None,
    *,
    identity: ReleaseIdentity | None = None,
    count: int | None = None,
    local_event: Any = None,
    one_round: bool = True,
    schedule: bool = False,
) -> str:
    """Whether the ledger would grant what `reserve` asks for, in a sentence; nothing is written.

    Args:
        settings, worst, identity, local_event, schedule: as of `reserve`.
        count: windows, where a block of them would be reserved.
        one_round: whether everybody is asked once.

    Raises:
        SettingError, NothingReleasedError: as `reserve` would.
    """
    if worst is None:
        return "a simulation is not charged"
    url = ledger_url(settings)
    if url is None:
        return "no ledger is named: nothing is charged"
    with ledger_errors():
        from beam_ldp.ledger import BudgetLedger
        from beam_ldp.ledger.rows import check_name

        ledger = BudgetLedger(url)
        if settings.charge.run_id is not None:
            check_name("run_id", settings.charge.run_id)
        if identity is not None:
            _check_key(settings, identity)
            published = ledger.published(identity)
            if published is not None:
                _check_quota(settings, published)
                said = said_of_another(settings, one_round, bool(identity.key))
                return f"published before by run {published.run_id!r}: {said}"
        begun = _begun(ledger, settings, settings.charge.run_id, identity)
        if begun is not None:
            _check_alone(settings, begun.run_id, begun)
        granted = ledger.status(settings.dataset).budget
        committed = ledger.would_grant(
            settings.dataset,
            _asked_for(ledger, settings, worst, schedule),
            count=count,
            local_event=local_event,
            quota=settings.charge.quota,
            privacy_unit=settings.charge.privacy_unit,
            resumed=begun,
            identity=identity,
        )
    if begun is not None:
        return f"run {begun.run_id!r} was started before and is charged: it goes on, for free"
    remains = rounded_down(max(0.0, granted.epsilon - committed))
    return (
        f"epsilon {number(committed)} of {granted.epsilon:g} at delta = {granted.delta:g} would be "
        f"spent or reserved with this run, {remains} would remain"
    )


def _asked_for(ledger: BudgetLedger, settings: ChargeSettings, worst: Price, schedule: bool) -> Any:
    """The event of a reservation."""
    if not schedule:
        return worst.event
    return ledger.status(settings.dataset).committing(worst.event, settings.charge.quota)


def store_of_ledger(settings: ChargeSettings) -> str | None:
    """MLflow's store that all runs of the ledger share; None where there is none. Reads only.

    Raises:
        SettingError, NothingReleasedError: as `reserve` would, of a ledger that cannot be read.
    """
    url = None if settings.noise.simulated else ledger_url(settings)
    if url is None:
        return None
    with ledger_errors():
        from beam_ldp.ledger import BudgetLedger

        return BudgetLedger(url).mlflow_uri


@contextmanager
def ledger_errors(
    refused: type[Exception] = SettingError,
    exceeded: type[Exception] = NothingReleasedError,
) -> Iterator[None]:
    """What a ledger refuses becomes an error that says what to do.

    Args:
        refused: raised if its packages are missing, or it is not there, damaged, or not for this.
        exceeded: raised if the budget does not allow it.
    """
    try:
        from beam_ldp.ledger import (
            BudgetExceededError,
            LedgerCorruptedError,
            LedgerMissingError,
            LedgerUnavailableError,
        )
    except ImportError:
        raise refused(
            "the ledger's packages are not installed: pip install 'beam-ldp[ledger]'"
        ) from None
    try:
        yield
    except BudgetExceededError as error:
        raise exceeded(str(error)) from None
    except LedgerCorruptedError as error:
        raise refused(f"the ledger is damaged: {error}. See `beam-ldp audit`") from None
    except (ValueError, LedgerMissingError, LedgerUnavailableError) as error:
        raise refused(str(error)) from None


def _about(settings: ChargeSettings, question: str) -> dict[str, Any]:
    """What the ledger keeps beside the charge."""
    told: dict[str, Any] = {"question": question, "one_report_per": settings.one_report_per}
    told["launcher"] = asdict(Launcher.this())
    return {**told, **untracked(settings), **trusted(settings)}


def _check_quota(settings: ChargeSettings, published: Charge) -> None:
    """A further publication counts in place of the first one, where that was charged."""
    if settings.charge.quota != published.quota:
        raise SettingError(
            f"--quota must be {published.quota!r}: this release was published by run "
            f"{published.run_id!r}, charged to that quota, and a second publication is charged "
            "there too"
        )


def _check_key(settings: ChargeSettings, identity: ReleaseIdentity) -> None:
    if settings.noise.key_file is None or identity.key:
        return
    try:
        read_key(settings.noise.key_file, "--memoize-key-file")
    except ValueError as error:
        raise SettingError(
            f"{error}; where a run is charged, the key is read where it is started too: the ledger "
            "keeps a commitment to it, which distinguishes releases"
        ) from None


def _begun(
    ledger: BudgetLedger,
    settings: ChargeSettings,
    run_id: str | None,
    identity: ReleaseIdentity | None,
) -> Charge | None:
    """The charge that this run has: that of its name, else the open one of the same reports.

    Args:
        ledger: that would hold it.
        settings: the flags; a name that they give goes before the identity.
        run_id: of the run, if it has one already.
        identity: of reports that stay the same; None where a repetition draws others.
    """
    if run_id is not None and ledger.has_run(run_id):
        return ledger.charge(run_id)
    if identity is None or settings.charge.run_id is not None:
        return None
    return ledger.open_charge(identity)


def _check_alone(settings: ChargeSettings, run_id: str, begun: Charge | None) -> None:
    """Refuse to start a run a second time while its launcher lives; elsewhere the ledger fences.

    The ledger knows the launcher of the newest start, whatever its output; a note beside the output
    is that of a start of this very process, too.
    """
    notes = find_interrupted_runs(settings.output.folder) if settings.output.folder else []
    launchers = [run.note.launcher for run in notes if run.note.run_id == run_id]
    named = begun and begun.status == "reserved" and Launcher.of_start(begun)
    launchers += [named] if named else []
    for launcher in launchers:
        if launcher.ended == "under way":
            raise SettingError(
                f"run {run_id!r} is under way: its launcher, process {launcher.pid}, is alive"
            )


def _identity(settings: ChargeSettings, run_id: str, about: str, mechanism: str) -> ReleaseIdentity:
    """What is released. Where the key cannot be read here, no restart is free."""
    identity = ReleaseIdentity(
        settings.dataset,
        settings.noise.id or run_id,
        mechanism,
        tuple(about.split(", ")),
        privacy_unit=settings.charge.privacy_unit,
    )
    if settings.noise.key_file is None:
        return identity
    try:
        return identity.committed(read_key(settings.noise.key_file))
    except ValueError:
        return identity


def untracked(settings: ChargeSettings) -> dict[str, str]:
    """Why this run will not be in MLflow, if that is so: audits then do not call it missing."""
    return {"untracked": "--no-mlflow"} if settings.output.no_mlflow else {}


def trusted(settings: ChargeSettings) -> dict[str, str]:
    """That the shuffler alone may protect people, where that was declared."""
    return {"trust_shuffler": "yes"} if settings.privacy.trust_shuffler else {}


def _people(settings: ChargeSettings, ledger: BudgetLedger, run_id: str) -> PeopleFolder | None:
    if settings.charge.people_store is None or settings.charge.people_key_file is None:
        return None
    population = ledger.population(settings.dataset)
    return PeopleFolder(
        settings.charge.people_store, settings.charge.people_key_file, population, run_id
    )


def charge_to(options: PipelineOptions) -> ChargeTo | None:
    """The budget that the flags of a Beam program of one's own name, for its composites.

    The flags are those of the programs here: `--ledger` (or BEAM_LDP_LEDGER), `--dataset`,
    `--budget-windows` for unbounded data, `--run-id`, `--quota`, `--honest-fraction`,
    `--privacy-unit`, `--people-store`, `--people-key-file`.

    Args:
        options: `PipelineOptions(flags)`.

    Returns:
        What to give to a composite as `budget`; None with `--no-ledger`: nothing is charged.

    Raises:
        SettingError: if no ledger or no dataset is named: a run is uncharged only if it says so.
    """
    told = options.view_as(BudgetOptions)
    if told.no_ledger:
        check_may_be_uncharged()
        return None
    if not (told.ledger or os.environ.get(LEDGER_VARIABLE)):
        raise SettingError(f"--ledger is missing (or {LEDGER_VARIABLE}, or --no-ledger)")
    if not told.dataset:
        raise SettingError("--dataset must name the data set whose budget is charged")
    try:
        return ChargeTo(
            told.dataset,
            told.ledger,
            run_id=told.run_id,
            quota=told.quota,
            windows=told.budget_windows,
            honest_fraction=told.honest_fraction,
            privacy_unit=told.privacy_unit,
            people_store=told.people_store,
            people_key_file=told.people_key_file,
        )
    except ValueError as error:
        raise SettingError(str(error)) from None


def ledger_url(settings: ChargeSettings) -> str | None:
    """The ledger that is named by a flag or by the environment; None if there is none."""
    named = settings.charge.ledger or os.environ.get(LEDGER_VARIABLE) or None
    if settings.charge.no_ledger or named is None:
        check_may_be_uncharged()
        return None
    return named


def check_may_be_uncharged() -> None:
    """A SettingError where a run without a ledger is not allowed (BEAM_LDP_REQUIRE_LEDGER)."""
    if os.environ.get(REQUIRE_VARIABLE, "") not in ("", "0"):
        raise SettingError(
            f"{REQUIRE_VARIABLE} is set: every run but a simulation is charged to a ledger "
            f"(--ledger or {LEDGER_VARIABLE}), and --no-ledger is not allowed"
        )
