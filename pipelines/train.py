"""`beam-ldp train`: federated training with local privacy, with the privacy cost of every round.

The same program as `python -m beam_ldp.pipelines.train`. What it does before it trains needs no
TensorFlow: flags, plan, prices.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from glob import has_magic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from beam_ldp.accounting.prices import Price
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import DONE, Program
from beam_ldp.release import outputs, terminal
from beam_ldp.release.checks import Preflight, check_first, say_checks
from beam_ldp.release.inputs.sources import (
    InputFileError,
    RowReader,
    find_all_files,
    format_of,
)
from beam_ldp.release.reserving import would_grant
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments
from beam_ldp.training.charge import charged, refuse_where_local
from beam_ldp.training.checkpoints import Resumed, job_of, resume
from beam_ldp.training.facts import known_facts
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.plans import make_plan
from beam_ldp.training.settings import TrainSettings, check_train
from beam_ldp.training.usage import USAGE
from beam_ldp.training.view import (
    TrainingResult,
    as_json,
    plan_as_json,
    plan_line,
    say_plan,
    show,
)
from beam_ldp.wording import many, verb

if TYPE_CHECKING:
    from tff_adapters import Flow

NO_TENSORFLOW = (
    "training needs TensorFlow Federated, which is not installed here: `make tff` in the "
    "repository of beam-ldp makes an environment that has it (Python 3.11, .venv-tff/); --dry-run "
    "works without it for bundled data and IDX files"
)


def execute(
    settings: TrainSettings,
    console: Console,
    *,
    job: dict[str, Any] | None = None,
    resumed: Resumed | None = None,
) -> TrainingResult | None:
    """Plan, train, price, write, log. With `--dry-run` only the plan is printed: None.

    Args:
        settings: the flags.
        console: for what is said on the way.
        job: the flags as checkpoints keep them.
        resumed: a training that goes on.

    Raises:
        SettingError, OutputError: before anything runs.
        NothingReleasedError: if target or budget do not allow it, or the ledger was away at the
            end: then nothing was published, and `beam-ldp finalize` goes on.
        JobError: if the training fails; the rounds that ran stay charged.
    """
    has_tensorflow = importlib.util.find_spec("tensorflow_federated") is not None
    if not has_tensorflow and not (settings.only_plan and settings.dealt):
        raise SettingError(NO_TENSORFLOW)
    told, early = _told(settings)  # refused before anything is loaded
    if early is not None and settings.only_plan:
        _say_dry_run(early, told, _flows(early, console) if has_tensorflow else None)
        return None
    folder = None
    if not settings.only_plan:
        if resumed is None:
            check_first(told, console)
        token = None if resumed is None else resumed.token
        folder = outputs.OutputFolder(settings.output.folder, settings.output.overwrite, token)
    _hush()
    with console.status("loading TensorFlow and data"):
        from beam_ldp.training.clients import load_clients

        clients, facts = load_clients(settings)
    if resumed is not None:
        resumed.check_clients(clients.names)
    for reason, count in clients.left_out.items():
        console.print(f"[yellow]left out:[/yellow] {escape(reason)}, {count:,}")
    plan = make_plan(settings, facts)
    if folder is None:
        _say_dry_run(plan, told, _flows(plan, console))
        return None
    from beam_ldp.training import run as train_run
    from tff_adapters.compat import workers_ended

    console.print(plan_line(plan), style="dim", highlight=False)
    if plan.pricing_note.startswith("warning: "):
        console.print(f"[yellow]{escape(plan.pricing_note)}[/yellow]", soft_wrap=True)
    elif plan.pricing_note:
        console.print(plan.pricing_note, style="dim", highlight=False)
    if resumed is not None:
        begun = resumed.rounds_begun
        console.print(
            f"going on after round {resumed.checkpoint.rounds:,}; "
            f"{many(begun, 'round')} {verb(begun, 'is', 'are')} charged so far",
            highlight=False,
        )
        if resumed.put_back:
            console.print(
                "[yellow]warning:[/yellow] the files that it goes on from know of "
                f"{many(resumed.put_back, 'round')} fewer: they are older copies, which lower "
                "nothing that is charged",
                soft_wrap=True,
            )
    with charged(plan, console, resumed) as (charge, run), workers_ended():
        return train_run.train(
            plan, clients, folder, charge, run, console, job=job or {}, resumed=resumed
        )


def _check(given: Arguments) -> Preflight:
    """What `beam-ldp check` looks at. Raises SettingError, and NothingReleasedError
    where the target does not allow one round."""
    return _told(check_train(given))[0]


def _told(settings: TrainSettings) -> tuple[Preflight, TrainingPlan | None]:
    """What is checked first: the columns of files; of images that are dealt out, a plan."""
    if not settings.dealt:
        return _job_of_files(settings), None
    plan = make_plan(settings, known_facts(settings))
    rounds, price = plan.rounds, plan.epsilon_of(plan.rounds)
    worst = Price(price, plan.reports_per_round, plan.charged_event_of(rounds))

    local = plan.local_epsilon_of(rounds)

    def ask() -> str:
        if local is None:
            refuse_where_local(settings)
        return would_grant(
            settings, worst, local_event=plan.round_price.sent_in(rounds), schedule=True
        )

    return Preflight(settings, local_epsilon=local, epsilon=float(price), ask=ask), plan


def _say_dry_run(plan: TrainingPlan, told: Preflight, flows: Sequence[Flow] | None) -> None:
    """The plan and the checks, on stdout. Raises what a run would."""
    form = plan.settings.output.format
    if form != "json":
        say_plan(plan, flows)
    say_checks(told, form, plan_as_json(plan, flows))


def _job_of_files(settings: TrainSettings) -> Preflight:
    question = settings.question
    try:
        paths = [path for path, _ in find_all_files([question.data])]
    except InputFileError as error:
        raise SettingError(f"--data {error}") from None
    form = format_of(paths[0])
    if form not in ("csv", "parquet"):  # of TFRecord nothing says what is in it
        return Preflight(settings)
    named = [name for name in question.features if not has_magic(name)]  # patterns match any
    columns = (*named, question.label or "")
    wanted = dict.fromkeys(named, USAGE.flag_of("training.features"))
    wanted[question.label or ""] = USAGE.flag_of("training.label")
    if question.client_id is not None:
        wanted[question.client_id] = USAGE.flag_of("training.client_id")
    reader = RowReader(form, columns, question.client_id, "dead_letter", ",", None)
    found = replace(
        settings, files=tuple(paths), source=replace(settings.source, format=form)
    )  # fmt: skip
    return Preflight(found, wanted, reader)


def _hush() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its chatter would bury the progress


def _flows(plan: TrainingPlan, console: Console) -> tuple[Flow, ...]:
    """What a round of the plan lets leave a client."""
    _hush()
    with console.status("reading what leaves a client"):
        from beam_ldp.training.learners import flows_of_plan

        return flows_of_plan(plan)


def _run(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file; raises as `execute`."""
    output, resumed = given["training"].get("resume"), None
    if output is not None:
        resumed = resume(output, given)
        given = resumed.given
    try:
        settings = check_train(given)
        result = execute(settings, console, job=job_of(given), resumed=resumed)
    finally:
        if resumed is not None:
            resumed.begun.close()
    if result is not None and result.plan.settings.output.format == "json":
        print(terminal.printed_json(as_json(result)))
    elif result is not None:
        show(result)
    sys.stdout.flush()
    return DONE


PROGRAM = Program(USAGE, _run, _check)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
