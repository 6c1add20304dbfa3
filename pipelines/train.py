"""`beam-ldp train`: federated training with local privacy, priced round by round.

The same program as `python -m beam_ldp.pipelines.train`. What it does before it trains needs no
TensorFlow: flags, plan, prices.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines import outputs
from beam_ldp.pipelines.options import UsageError, help_text, parse_flags
from beam_ldp.pipelines.records.gates import NothingReleasedError
from beam_ldp.pipelines.running.watch import JobError
from beam_ldp.pipelines.training.charge import charged
from beam_ldp.pipelines.training.facts import bundled_facts
from beam_ldp.pipelines.training.flags import FLAGS
from beam_ldp.pipelines.training.plan import Plan
from beam_ldp.pipelines.training.plans import make_plan
from beam_ldp.pipelines.training.settings import TrainSettings, check_train
from beam_ldp.pipelines.training.view import Result, as_json, plan_line, say_plan, show
from beam_ldp.pipelines.views import terminal

if TYPE_CHECKING:
    from tff_adapters import Flow

DONE, FAILED, MISUSED, NOTHING_RELEASED, INTERRUPTED = 0, 1, 2, 3, 130

SUMMARY = (
    "Train a model on clients' data that never leaves them as it is. In each round sampled clients "
    "report what they would change of the model, clipped and randomized; reports are shuffled and "
    "averaged. Each round is priced before it runs, and training stops before the target is "
    "exceeded. Accuracy is measured on public data only: no loss, accuracy or number of examples "
    "leaves a client."
)
USAGE = (
    "--data NAME|PATH --local-epsilon EPS0 --clients-per-round K --epochs E --delta D --output DIR "
    "[...]"
)
EXAMPLES = """examples:
  what would it cost? (needs no TensorFlow; by the theorem of the thesis and by our accountant)
    beam-ldp train --data mnist --norm l2 --local-epsilon 2 --clients-per-round 2000 \\
        --epochs 200 --delta 1e-5 --dry-run
  some minutes, on images that ship with scikit-learn
    beam-ldp train --data digits --local-epsilon 4 --clients-per-round 100 --epochs 10 \\
        --delta 1e-5 --output out
  5,000 images of MNIST, stopped at a target, charged to the budget of `mnist`
    beam-ldp train --algorithm cldp-sgd --data mnist5k --norm l2 --local-epsilon 2 \\
        --clients-per-round 200 --epochs 30 --delta 1e-5 --dataset mnist --target-epsilon 3 \\
        --output out --ledger sqlite:///privacy.db
  beside it: no privacy, a trusted server at the same epsilon, every client alone
    beam-ldp train --data digits ... --baselines non-private,central-dp,local-only
  own models that distil a shared one; the server is trusted and adds noise once
    beam-ldp train --algorithm adaped --data digits --points-per-client 20 \\
        --shards-per-client 2 --clients-per-round 20 --epochs 5 --noise-multiplier 4 \\
        --delta 1e-5 --output out
  messages with a large local epsilon, a server that adds noise, and the audit of both
    beam-ldp train --algorithm local-central --data digits --points-per-client 4 \\
        --local-epsilon 60 --projection 1 --noise-multiplier 1 --clients-per-round 50 \\
        --epochs 5 --max-participations 5 --delta 1e-5 --output out
  your own clients: one file with a column that says whose a row is
    beam-ldp train --data rows.parquet --client-id uid --features 'f*' --label y --classes 2 \\
        --test-data public.parquet --algorithm fedavg --points-per-client 20 ...
"""
EXIT_CODES = """
exit codes: 0 done, also when the target ended it early; 1 the run failed; 2 a flag or an input is
            wrong, or TensorFlow Federated is not there; 3 nothing was trained (the target or the
            budget does not allow it); 130 interrupted: the rounds that ran stay charged
"""
NO_TENSORFLOW = (
    "training needs TensorFlow Federated, which is not installed here: `make tff` in the "
    "repository of beam-ldp makes an environment that has it (Python 3.11, .venv-tff/); --dry-run "
    "prices named data without it"
)


def execute(settings: TrainSettings, console: Console) -> Result | None:
    """Plan, train, price, write, log. With `--dry-run` only the plan is printed: None.

    Raises:
        UsageError, OutputError: before anything runs.
        NothingReleasedError: if target or budget do not allow it.
        JobError: if the training fails; the rounds that ran stay charged.
    """
    has_tensorflow = importlib.util.find_spec("tensorflow_federated") is not None
    if not has_tensorflow and not (settings.only_plan and settings.bundled):
        raise UsageError(NO_TENSORFLOW)
    if settings.bundled:  # refused before anything is loaded
        early = make_plan(settings, bundled_facts(settings.data, settings.points_per_client))
        if settings.only_plan:
            say_plan(early, _flows(early, console) if has_tensorflow else None)
            return None
    folder = None
    if not settings.only_plan:
        assert settings.output is not None
        folder = outputs.OutputFolder(settings.output, settings.overwrite)
    _hush()
    with console.status("loading TensorFlow and data"):
        from beam_ldp.pipelines.training import data as train_data

        clients, facts = train_data.load_clients(settings)
    for reason, count in clients.left_out.items():
        console.print(f"[yellow]left out:[/yellow] {escape(reason)}, {count:,}")
    plan = make_plan(settings, facts)
    if folder is None:
        say_plan(plan, _flows(plan, console))
        return None
    from beam_ldp.pipelines.training import run as train_run
    from tff_adapters.workers import workers_ended

    console.print(plan_line(plan), style="dim", highlight=False)
    if plan.pricing_note.startswith("warning: "):
        console.print(f"[yellow]{escape(plan.pricing_note)}[/yellow]", soft_wrap=True)
    elif plan.pricing_note:
        console.print(plan.pricing_note, style="dim", highlight=False)
    with charged(plan, console) as (charge, run), workers_ended():
        return train_run.train(plan, clients, folder, charge, run, console)


def _hush() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its chatter would bury the progress


def _flows(plan: Plan, console: Console) -> tuple[Flow, ...]:
    """What a round of the plan lets leave a client."""
    _hush()
    with console.status("reading what leaves a client"):
        from beam_ldp.pipelines.training.learn import flows_of_plan

        return flows_of_plan(plan)


def main(argv: Sequence[str] | None = None) -> int:
    """The program on the command line; the exit codes are in `--help`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or any(flag in ("-h", "--help") for flag in argv):
        print(help_text("beam-ldp train", SUMMARY, USAGE, EXAMPLES + EXIT_CODES, FLAGS))
        return DONE if argv else MISUSED
    errors = Console(stderr=True)
    try:
        values, _ = parse_flags(argv, FLAGS, beams=False)
        result = execute(check_train(values), errors)
    except (UsageError, outputs.OutputError) as error:
        return _failed(errors, MISUSED, f"error: {error}")
    except NothingReleasedError as error:
        return _failed(errors, NOTHING_RELEASED, str(error))
    except JobError as error:
        return _failed(errors, FAILED, f"error: {error}")
    except KeyboardInterrupt:
        return _failed(errors, INTERRUPTED, "interrupted: nothing was written")
    if result is not None and result.plan.settings.format == "json":
        print(terminal.printed_json(as_json(result)))
    elif result is not None:
        show(result)
    sys.stdout.flush()
    return DONE


def _failed(console: Console, code: int, message: str) -> int:
    console.print(f"[red]{escape(message)}[/red]", soft_wrap=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
