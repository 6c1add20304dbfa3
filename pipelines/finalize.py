"""`beam-ldp finalize`: settle, publish and log a release whose launcher could not."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines.budget import ledger_option, open_ledger
from beam_ldp.pipelines.flags import format_option, ledger_errors
from beam_ldp.release.terminal import (
    logged_as_json,
    printable,
    printed_json,
    say_logged,
)
from beam_ldp.settings.job import LEDGER_VARIABLE

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge
    from beam_ldp.release.interrupted_runs import InterruptedRun
    from mlflow_ldp import LoggedRun

DONE, NOT_YET = 0, 1


@click.command(short_help="Settle, publish and log a release whose launcher could not.")
@click.argument("output")
@ledger_option
@click.option("--mlflow-uri", metavar="URI",
              help="tracking server to log to (default: the one that the ledger names, unless the "
              "run was not to be logged; without one, nothing is logged)")  # fmt: skip
@click.option("--mlflow-experiment", default="beam-ldp", show_default=True)
@click.option("--ended", is_flag=True,
              help="declare that no job of these runs is running any more: their cluster or job "
              "server was stopped, or their machine; what this machine sees running is never "
              "ended")  # fmt: skip
@format_option
def finalize(
    output: str,
    ledger: str | None,
    mlflow_uri: str | None,
    mlflow_experiment: str,
    ended: bool,
    form: str,
) -> None:
    """Settle, publish and log the release in the folder OUTPUT, from any machine that can read it.

    For runs whose ledger or tracking server could not be reached when they ended, and for runs that
    were lost on the way: what was finished is settled and then published; the central epsilon of
    what was provably not released is returned; everything else counts as spent. What lost runs left
    beside OUTPUT is removed, of runs that were not charged too. Reports what it did, and is safe to
    repeat.

    \b
    examples:
      beam-ldp finalize out --ledger sqlite:///privacy.db --mlflow-uri http://tracking:5000
      beam-ldp finalize out --ended    # its job server was killed
    \b
    exit codes: 0 done; 1 a run is, or may be, still under way, or logging failed; 2 nothing found
    """
    console = Console(stderr=form == "json", record=True)
    code, told = _finalized(output, ledger, mlflow_uri, mlflow_experiment, console, ended)
    if form == "json":
        said = console.export_text().splitlines()
        about = {"schema_version": 1, "output": output, "exit_code": code, "said": said}
        print(printed_json({**about, **told}))
    sys.exit(code)


def _finalized(
    output: str,
    ledger: str | None,
    mlflow_uri: str | None,
    experiment: str,
    console: Console,
    ended: bool,
) -> tuple[int, dict[str, Any]]:
    """What the command does; its exit code, and what it did for programs."""
    code = settle_interrupted(output, ledger, console, ended)
    record = read_record(output)
    if record is None:
        if code is None:
            code = _end_stream(output, ledger, console, ended)
        if code is None:
            left = _leftovers(output)
            raise click.UsageError(
                f"{output} holds no privacy record, and no run with this output was lost. {left}A "
                "reservation whose run left nothing at all stays charged; if you know that nothing "
                "of it was released, return it with `beam-ldp budget abandon`"
            )
        return code, {"released": False, "run_id": None, **logged_as_json(None)}
    book = _settle(record, ledger, console)
    if mlflow_uri is None and book is not None and record.get("untracked") is None:
        mlflow_uri = book.mlflow_uri
    told = {"released": True, "run_id": record.get("run_id")}
    if mlflow_uri is None:
        return code or DONE, {**told, **logged_as_json(None)}
    there, logged = _log(record, output, book, mlflow_uri, experiment, console)
    return code or (DONE if there else NOT_YET), {**told, **logged_as_json(logged)}


def _end_stream(output: str, ledger: str | None, console: Console, ended: bool) -> int | None:
    """Give back what a lost stream has not used; the exit code, or None if this is no stream."""
    from beam_ldp.release.outputs import is_local
    from beam_ldp.release.streams.results import (
        give_back_rest,
        has_left_nothing,
        note_of,
        run_of,
    )

    run_id = run_of(output) if is_local(output) else None
    if run_id is None:
        return None
    name, note = escape(printable(run_id)), note_of(output)

    def say(what: str) -> None:
        console.print(f"run {name} {what}", soft_wrap=True)

    if note is not None and note.launcher.ended == "under way":
        say(f"is under way: its launcher, process {note.launcher.pid}, lives")
        return NOT_YET
    if has_left_nothing(output):
        if ledger is None and not os.environ.get(LEDGER_VARIABLE):
            say("is a stream that has ended: there is nothing to do. If it was charged, --ledger "
                "tells whether that is settled")  # fmt: skip
            return DONE
        book = open_ledger(ledger)
        with ledger_errors():
            if not (book.has_run(run_id) and book.charge(run_id).status == "reserved"):
                say("is a stream that has ended, of which the ledger holds nothing open")
                return DONE
    if not ended:
        say(
            "is a stream, whose windows were each settled before they appeared. If it was lost, "
            "start it again with the same flags; or, once its job is over, `beam-ldp finalize "
            "--ended` gives back what it did not use"
        )
        return NOT_YET
    if note is not None and not note.run_id:
        say("is a stream that is not charged: there is nothing to give back")
        return DONE
    book = open_ledger(ledger)
    with ledger_errors():
        if note is not None and book.ledger_id != note.ledger_id:
            raise click.UsageError("the stream was charged to another ledger")
        if book.charge(run_id).status != "reserved":
            say("has nothing left: each window that was reserved has ended")
            return DONE
        given = give_back_rest(book, run_id, output, None if note is None else note.attempt)
    say(f"was lost: {given} windows that it did not use are given back")
    return DONE


def _leftovers(output: str) -> str:
    """What lies beside an output of which nobody knows whose it is, in a sentence."""
    from beam_ldp.release.interrupted_runs import unknown_leftovers

    found = unknown_leftovers(output)
    if not found:
        return ""
    return (
        f"No note tells whose {', '.join(found)} is: once no run with this output is under way, "
        "`beam-ldp finalize --ended` removes it. "
    )


def _settle(record: dict[str, Any], ledger: str | None, console: Console) -> BudgetLedger | None:
    """Settle a release from its record; the ledger, if it was charged to one."""
    from beam_ldp.release import charging

    if record.get("run_id") is None:
        console.print(f"not charged ({escape(str(record.get('charged')))}): nothing to settle")
        return None
    book = open_ledger(ledger)
    with ledger_errors():
        if book.ledger_id != record["ledger_id"]:
            raise click.UsageError(f"the release was charged to another ledger: {record['ledger']}")
        charge = book.charge(record["run_id"])
        identity = charging.identity_of(book, record)
        if charge.identity != identity:
            raise click.UsageError(
                f"the release is not the one of run {record['run_id']!r}: it differs in its "
                f"{', '.join(charge.identity.differences(identity))}"
            )
        if charge.status != "settled":
            charging.settle(book, record)
    console.print(f"run {escape(record['run_id'])} is settled", soft_wrap=True)
    return book


def read_record(output: str) -> dict[str, Any] | None:
    """The privacy record of an output; None if there is none.

    Raises:
        click.UsageError: if there is something else.
    """
    from apache_beam.io.filesystems import FileSystems

    from beam_ldp.transforms.files import reason

    path = f"{output.rstrip('/')}/privacy.json"
    try:
        if not FileSystems.exists(path):
            return None
        with FileSystems.open(path, "application/octet-stream") as file:
            record = json.loads(file.read())
    except Exception as error:
        raise click.UsageError(f"{path} cannot be read ({reason(path, error)})") from None
    if not isinstance(record, dict) or "event" not in record:
        raise click.UsageError(f"{path} is no privacy record of this version")
    return record


# Lost runs ----------------------------------------------------------------------------------------


def settle_interrupted(
    output: str, ledger: str | None, console: Console, ended: bool
) -> int | None:
    """End the charges of runs that were lost on the way to this output, and remove what they left.

    Returns:
        The exit code so far; None if there is no such run.
    """
    from beam_ldp.release import outputs
    from beam_ldp.release.interrupted_runs import find_interrupted_runs, unknown_leftovers
    from beam_ldp.transforms.files import check_store

    try:
        check_store(output)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    lost = find_interrupted_runs(output, declared=ended)
    book = open_ledger(ledger) if any(run.note.run_id for run in lost) else None
    codes = [_end(run, book, console) for run in lost]
    for folder in unknown_leftovers(output) if ended else ():
        outputs.remove(folder)
        console.print(f"{escape(folder)} is removed: it was left by a lost run", soft_wrap=True)
        codes.append(DONE)
    return max(codes, default=None)


def _end(run: InterruptedRun, book: BudgetLedger | None, console: Console) -> int:
    name = escape(printable(run.note.run_id or f"of {run.output}, which is not charged,"))

    def say(what: str) -> None:
        console.print(f"run {name} {what}", soft_wrap=True)

    with run.held() as alone, ledger_errors():
        if not alone:
            say("is under way: another program goes on with its training")
            return NOT_YET
        if run.ended == "under way":
            say(f"is under way: its launcher, process {run.note.launcher.pid}, lives")
            return NOT_YET
        if book is None or not run.note.run_id:
            return _end_uncharged(run, say)
        if book.ledger_id != run.note.ledger_id:
            say("was charged to another ledger")
            return NOT_YET
        if not book.has_run(run.note.run_id):
            raise click.UsageError(f"the ledger holds no reservation of run {run.note.run_id!r}")
        charge = book.charge(run.note.run_id)
        if run.is_finished and charge.status != "abandoned":
            return _publish(run, book, say)
        if charge.status != "reserved" or run.note.attempt_of(charge) not in (None, charge.attempt):
            return _end_overtaken(run, charge, say)
        return _end_reserved(run, book, say)


def _end_uncharged(run: InterruptedRun, say: Any) -> int:
    """What a run left that no ledger knows: published if it was finished, else removed."""
    from beam_ldp.release.outputs import OutputError

    if run.is_finished:
        try:
            run.publish()
        except OutputError as error:
            say(f"is finished and not published: {error}")
            return NOT_YET
        say("was finished: it is published")
        return DONE
    if run.note.rounds is not None and not run.declared:
        say("is a training that was lost: `beam-ldp train --resume` goes on with it, and "
            "`beam-ldp finalize --ended` removes it")  # fmt: skip
        return NOT_YET
    if run.ended != "ended":
        say("may still be running on another machine: `--ended` declares that it is not")
        return NOT_YET
    run.remove()
    say("was lost: what it left is removed")
    return DONE


def _end_overtaken(run: InterruptedRun, charge: Charge, say: Any) -> int:
    """What a start left whose charge has ended, or is another start's by now."""
    is_open = charge.status == "reserved"
    if run.note.rounds is not None:
        status = f"was lost and is {charge.status} already"
        status = "was overtaken: another start of it goes on" if is_open else status
        say(f"{status}; {escape(run.staging)} is left of it")
        return NOT_YET if is_open else DONE
    run.remove()
    status = "started again meanwhile" if is_open else f"{charge.status} already"
    say(f"was lost and is {status}: what it left is removed")
    return DONE


def _publish(run: InterruptedRun, book: BudgetLedger, say: Any) -> int:
    """Settle and publish what a run had finished, when the ledger or the launcher was lost."""
    from beam_ldp.ledger import BudgetExceededError, LedgerError
    from beam_ldp.release.outputs import OutputError
    from beam_ldp.release.publishing import take

    assert run.record is not None
    try:
        take(book, run.record, run.note)
        run.publish()
    except BudgetExceededError as error:
        say(f"is finished and not published: {error}")
        return NOT_YET
    except LedgerError as error:
        run.remove()
        say(f"was finished and will never be published: {error}")
        return DONE
    except OutputError as error:
        if _is_there(run):
            run.remove()
            say("is settled, and another start of it is published: what this one left is removed")
            return DONE
        say(f"is settled and not published: {error}")
        return NOT_YET
    say("was finished: it is settled, and published")
    return DONE


def _is_there(run: InterruptedRun) -> bool:
    """Whether the output holds the same reports of the same charge."""
    there, left = read_record(run.output) or {}, run.record or {}
    return all(there.get(name) == left.get(name) for name in ("run_id", "identity_digest")) and (
        there.get("report_digest") is not None
        and there["report_digest"] == left.get("report_digest")
    )


def _end_reserved(run: InterruptedRun, book: BudgetLedger, say: Any) -> int:
    from beam_ldp.launcher import Launcher
    from beam_ldp.release import charging

    run_id, charge = run.note.run_id, book.charge(run.note.run_id)
    attempt, launcher = run.note.attempt_of(charge), Launcher.of_start(charge)
    if launcher is not None and launcher.ended == "under way":
        say(f"is under way: the ledger names process {launcher.pid} as its launcher, which lives")
        return NOT_YET
    if charge.memoized and not run.declared:
        say(
            "stays charged: the same command goes on under this charge, for free. Or, if no job "
            "of it is running any more, `beam-ldp finalize --ended` gives its central epsilon back"
        )
        return NOT_YET
    is_training = run.note.rounds is not None or charge.rounds_begun is not None
    if is_training and run.ended == "ended":
        return _end_training(run, book, say)
    if run.released_nothing and not is_training:
        why = "its launcher was lost before any estimate left the workers"
        book.abandon(run_id, randomized=True, why=why, attempt=attempt)
        run.remove()
        say(
            f"released nothing, for {why}: its central epsilon is returned, the local epsilon of "
            "the people in it stays spent"
        )
        return DONE
    if run.record and not is_training:
        charging.settle(book, run.record, attempt)
        run.remove()
        say("was lost while its output was written: it counts as spent, at what was received")
        return DONE
    if not is_training and (run.has_estimate or run.record is not None):
        about = {"lost": "its launcher was lost after an estimate had left the workers"}
        book.settle(run_id, charge.reserved, identity=charge.identity, attempt=attempt, about=about)
        run.remove()
        say(
            "was lost after an estimate had left the workers: it counts as spent, at its worst "
            "case, and what it left is removed"
        )
        return DONE
    say(
        "stays charged at its worst case: its launcher or its job may still be running on another "
        "machine. Once you know that neither is, `beam-ldp finalize --ended` gives back what it "
        "did not release"
    )
    return NOT_YET


def _end_training(run: InterruptedRun, book: BudgetLedger, say: Any) -> int:
    """A lost training is charged for the rounds that began; as a whole, if that is not known.

    Of ledger, file and checkpoint the one counts that knows of most: an older copy lowers nothing.
    The ledger alone says what a round costs: a file that was changed lowers nothing either.
    """
    from beam_ldp.release.interrupted_runs import RoundsPrice
    from beam_ldp.training.checkpoints import most_begun

    run_id, noted = run.note.run_id, run.note.rounds
    charge = book.charge(run_id)
    price = RoundsPrice.reserved(charge)
    attempt = run.note.attempt_of(charge)
    begun = most_begun(run.staging, run.begun, charge.rounds_begun)
    if begun == 0 and run.record is not None:
        begun = None  # a record was being written, so that some began
    if begun == 0:
        why = "its launcher was lost before a round began"
        book.abandon(run_id, randomized=False, why=why, attempt=attempt)
        run.remove()
        say("was lost before a round of its training began: its charge is given back")
        return DONE
    if begun is None or noted is None or noted.most != price.most:
        unknown = "how many rounds began" if begun is None else "what each round costs"
        about: dict[str, Any] = {"lost": f"its launcher was lost; {unknown} is not known"}
        book.settle(run_id, charge.reserved, identity=charge.identity, attempt=attempt, about=about)
        say(f"was lost: {unknown} is not known; it counts as spent, at its worst case")
        return DONE
    about = {"lost": "its launcher was lost in its training", "rounds": begun}
    book.settle(
        run_id,
        price.event_of(begun),
        identity=charge.identity,
        attempt=attempt,
        local_event=price.sent_in(begun),
        proof=f"{begun:,} rounds began",
        about=about,
    )
    if run.record:  # it was over, and its output is not whole: there is nothing to go on with
        run.remove()
    say(f"was lost in its training: it counts as spent, at the {begun:,} rounds that began")
    if run.begun is not None and run.begun < begun:
        say(f"left a count of {run.begun:,} rounds: an older copy, which lowers nothing")
    return DONE


# MLflow -------------------------------------------------------------------------------------------


def _log(
    record: dict[str, Any],
    output: str,
    book: BudgetLedger | None,
    uri: str,
    experiment: str,
    console: Console,
) -> tuple[bool, LoggedRun | None]:
    """Log a release once; whether it is there, and where, if that was done now."""
    import mlflow_ldp
    from beam_ldp.release import outputs

    if not mlflow_ldp.available():
        raise click.UsageError("MLflow is not installed: pip install 'beam-ldp[mlflow]'")
    tags: dict[str, str] = {}
    metrics: dict[str, float] = {}
    if book is not None:
        tags = mlflow_ldp.charge_tags(book, record["run_id"], record["event"])
        metrics = mlflow_ldp.dataset_metrics(book, record["dataset"])
        metrics |= mlflow_ldp.people_metrics(book, record["dataset"])
    try:
        if mlflow_ldp.has_record(uri, record):
            console.print("the tracking server has it already")
            return True, None
        logged = mlflow_ldp.log_release(
            record,
            output if outputs.is_local(output) else None,
            tracking_uri=uri,
            experiment=experiment,
            run_name=str(record["question"]),
            metrics=metrics,
            tags=tags,
        )
        if book is not None:
            mlflow_ldp.log_budget(
                book,
                record["dataset"],
                tracking_uri=uri,
                experiment_id=logged.experiment_id,
            )
    except Exception as error:
        console.print(
            f"[yellow]warning:[/yellow] it was not logged to MLflow ({type(error).__name__}); "
            "repeat this command to try again",
            soft_wrap=True,
        )
        return False, None
    say_logged(console, logged)
    return True, logged
