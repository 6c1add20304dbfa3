"""`beam-ldp train`: federated training with local privacy, priced round by round.

The same program as `python -m beam_ldp.pipelines.train`. What it does before it trains needs no
TensorFlow: flags, plan, prices.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import beam_ldp
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.pipelines import charging, outputs, terminal
from beam_ldp.pipelines.charging import NoCharge
from beam_ldp.pipelines.gates import NothingReleasedError
from beam_ldp.pipelines.options import UsageError, help_text, parse_flags
from beam_ldp.pipelines.price import Price
from beam_ldp.pipelines.settings import Settings
from beam_ldp.pipelines.statement import number
from beam_ldp.pipelines.train_plan import Plan, bundled_facts, make_plan
from beam_ldp.pipelines.train_record import TrainRecord
from beam_ldp.pipelines.train_settings import FLAGS, TrainSettings, check_train
from beam_ldp.pipelines.watch import JobError

if TYPE_CHECKING:
    from beam_ldp.pipelines.train_learn import Measured

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


@dataclass
class Run:
    """What has run so far.

    Attributes:
        begun: rounds that were charged, whether or not they ended.
        curve: measurements on public data with the price so far, one per epoch.
        metrics: TensorFlow Federated's, of the last round.
    """

    begun: int = 0
    curve: list[tuple[Measured, float]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a training gave: what is in the output folder, and the record."""

    plan: Plan
    record: TrainRecord
    curves: dict[str, Any]
    output: str
    mlflow_run_id: str | None


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
            say_plan(early)
            return None
    folder = None
    if not settings.only_plan:
        assert settings.output is not None
        folder = outputs.OutputFolder(settings.output, settings.overwrite)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its chatter would bury the progress
    with console.status("loading TensorFlow and data"):
        from beam_ldp.pipelines import train_learn

        clients, facts = train_learn.load_clients(settings)
    for reason, count in clients.left_out.items():
        console.print(f"[yellow]left out:[/yellow] {escape(reason)}, {count:,}")
    plan = make_plan(settings, facts)
    if folder is None:
        say_plan(plan)
        return None
    from beam_ldp.pipelines import train_run
    from tff_adapters.workers import workers_ended

    console.print(plan_line(plan), style="dim", highlight=False)
    with charged(plan, console) as (charge, run), workers_ended():
        return train_run.train(plan, clients, folder, charge, run, console)


@contextmanager
def charged(plan: Plan, console: Console) -> Iterator[tuple[NoCharge, Run]]:
    """Reserve all rounds; settle at those that ran, however it ends."""
    settings, run = plan.settings, Run()
    bound = plan.epsilon_of(plan.rounds)
    worst = Price(bound, plan.reports_per_round, plan.event_of(plan.rounds))
    charge = charging.reserve(
        cast(Settings, settings), worst, plan.local_epsilon_of(plan.rounds), f"train {plan.model}"
    )
    try:
        yield charge, run
    except BaseException:
        if "run_id" in charge.facts:
            _settle_part(plan, charge, run, console)
        raise


def _settle_part(plan: Plan, charge: NoCharge, run: Run, console: Console) -> None:
    run_id = escape(charge.facts["run_id"])
    try:
        if run.begun:
            charge.settle(settlement(plan, charge, run.begun))
            console.print(f"run {run_id} was charged for {run.begun:,} rounds", soft_wrap=True)
        else:
            charge.abandon("no round began", randomized=False)
    except Exception as error:
        console.print(
            f"[yellow]warning:[/yellow] the ledger could not be written ({type(error).__name__}): "
            f"run {run_id} stays charged at its worst case until `beam-ldp budget abandon`",
            soft_wrap=True,
        )


def settlement(plan: Plan, charge: NoCharge, rounds: int) -> dict[str, Any]:
    """What the ledger is told of so many rounds."""
    bound = plan.epsilon_of(rounds)
    return {
        "run_id": charge.facts["run_id"],
        "event": event_to_json(plan.event_of(rounds)),
        "local_epsilon": plan.local_epsilon_of(rounds),
        "mechanism": plan.mechanism.to_config(),
        "question": f"train {plan.model}",
        "epsilon": float(bound),
        "delta": plan.settings.delta,
        "method": str(bound.method),
        "proof_status": str(bound.proof_status),
        "num_reports": plan.reports_per_round,
    }


def make_record(plan: Plan, clients_left_out: int, run: Run, charge: NoCharge) -> TrainRecord:
    """What privacy.json will hold."""
    settings, mechanism = plan.settings, plan.mechanism
    last, _ = run.curve[-1]
    bound = plan.epsilon_of(run.begun)
    point = plan.price_after(run.begun)
    warnings = []
    if plan.data.num_test == 0:
        warnings.append("no public test data: nothing is known about the model's accuracy")
    if run.begun < plan.planned_rounds:
        warnings.append("the target ended the training before all epochs had run")
    return TrainRecord(
        question=f"train {plan.model}",
        dataset=settings.dataset,
        mechanism=dict(mechanism.to_config()),
        local_epsilon=plan.local_epsilon_of(run.begun),
        epsilon=float(bound),
        epsilon_lower=float(bound.lower) or None,
        epsilon_class_lower=float(bound.class_lower) or None,
        delta=settings.delta,
        method=str(bound.method),
        proof_status=str(bound.proof_status),
        num_reports=plan.reports_per_round,
        num_bad_rows=clients_left_out,
        min_reports=plan.reports_per_round,
        honest_fraction=1.0,
        priced_reports=plan.reports_per_round,
        smallest_batch=plan.reports_per_round,
        output="statistic",
        scope="global",
        user_id=settings.client_id,
        bad_rows=settings.bad_rows,
        exactness=mechanism.exactness,
        bits_per_report=mechanism.bits_per_report,
        target_epsilon=settings.target_epsilon,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=beam_ldp.__version__,
        warnings=tuple(warnings),
        event=event_to_json(plan.event_of(run.begun)),
        algorithm=settings.algorithm,
        model=plan.model,
        dimension=plan.dimension,
        unit=settings.privacy_unit,
        report_epsilon=mechanism.local_epsilon,
        norm=settings.norm,
        clip=settings.clip,
        num_clients=plan.data.num_clients,
        clients_per_round=plan.clients_per_round,
        sampling=settings.sampling,
        points_per_client=settings.points_per_client,
        points_sampled=settings.points_sampled,
        rounds=run.begun,
        planned_rounds=plan.planned_rounds,
        stopped="finished" if run.begun == plan.planned_rounds else "target",
        epsilon_any_mechanism=point.any_mechanism,
        epsilon_thesis=point.thesis,
        epsilon_seen=plan.seen_epsilon_of(run.begun),
        test_accuracy=last.accuracy if plan.data.num_test else None,
        test_loss=last.loss if plan.data.num_test else None,
        bits_per_client=_bits(run.metrics),
        **charge.facts,
    )


def _bits(metrics: Any) -> int | None:
    """Bits that a client handed over in the last round, wherever the measurements say so."""
    if not hasattr(metrics, "items"):
        return None
    for name, value in metrics.items():
        found = int(value) if name == "bits_per_client" else _bits(value)
        if found is not None:
            return found
    return None


# What people see ------------------------------------------------------------------------------


def plan_line(plan: Plan) -> str:
    """One line about what will run."""
    return (
        f"{plan.settings.algorithm}, {plan.model} ({plan.dimension:,} parameters), "
        f"{type(plan.mechanism).__name__} with local epsilon "
        f"{number(plan.mechanism.local_epsilon)}; {plan.rounds:,} rounds of "
        f"{plan.clients_per_round:,} of {plan.data.num_clients:,} clients will cost epsilon = "
        f"{number(float(plan.epsilon_of(plan.rounds)))} at delta = {plan.settings.delta:g}"
    )


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """The plan, for programs."""
    bound = plan.epsilon_of(plan.rounds)
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "dry_run": True,
        "algorithm": plan.settings.algorithm,
        "model": plan.model,
        "parameters": plan.dimension,
        "mechanism": plan.mechanism.to_config(),
        "bits_per_report": plan.mechanism.bits_per_report,
        "num_clients": plan.data.num_clients,
        "clients_per_round": plan.clients_per_round,
        "sampling": plan.settings.sampling,
        "rounds_per_epoch": plan.rounds_per_epoch,
        "rounds": plan.rounds,
        "planned_rounds": plan.planned_rounds,
        "delta": plan.settings.delta,
        "epsilon": float(bound),
        "epsilon_lower": float(bound.lower) or None,
        "method": str(bound.method),
        "epsilon_seen": plan.seen_epsilon_of(plan.rounds),
        "local_epsilon_per_report": plan.mechanism.local_epsilon,
        "local_epsilon": plan.local_epsilon_of(plan.rounds),
        "privacy_unit": plan.settings.privacy_unit,
        "prices": [vars(point) for point in plan.price_list()],
    }


def say_plan(plan: Plan) -> None:
    """What `--dry-run` prints, on stdout."""
    if plan.settings.format == "json":
        print(terminal.printed_json(plan_as_json(plan)))
        return
    settings, console = plan.settings, Console()
    table = Table(title="Plan (nothing was trained)", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("algorithm", f"{settings.algorithm}, {plan.rounds:,} rounds{_cut(plan)}")
    table.add_row("model", f"{plan.model}, {plan.dimension:,} parameters")
    table.add_row(
        "clients",
        f"{plan.data.num_clients:,}, {plan.clients_per_round:,} in a round ({settings.sampling})",
    )
    table.add_row(
        "mechanism",
        f"{type(plan.mechanism).__name__}, {plan.mechanism.bits_per_report:,} bits per report",
    )
    table.add_row("protected", f"one {settings.privacy_unit} (replace-one)")
    table.add_row("one report", f"local epsilon = {number(plan.mechanism.local_epsilon)}")
    bound = plan.epsilon_of(plan.rounds)
    table.add_row(
        "readers of models",
        f"epsilon = {number(float(bound))} at delta = {settings.delta:g} ({bound.method})",
    )
    seen = plan.seen_epsilon_of(plan.rounds)
    if seen is not None:
        table.add_row("who also see who took part", f"epsilon = {number(seen)}")
    console.print(table)
    prices = Table(title="Epsilon along the training", title_justify="left")
    for heading in ("epoch", "rounds", "this mechanism", "any mechanism", "thesis"):
        prices.add_column(heading, justify="right")
    for point in plan.price_list():
        prices.add_row(
            f"{point.epoch:,}",
            f"{point.rounds:,}",
            number(point.epsilon),
            number(point.any_mechanism),
            "-" if point.thesis is None else number(point.thesis),
        )
    console.print(prices)
    console.print(
        "thesis: Theorem 5.4.1 (5.3.1 without sampling), a larger bound of the same price",
        style="dim",
    )
    sys.stdout.flush()


def _cut(plan: Plan) -> str:
    if plan.rounds == plan.planned_rounds:
        return ""
    return f" of {plan.planned_rounds:,}: the target of {plan.settings.target_epsilon:g} ends it"


def as_json(result: Result) -> dict[str, Any]:
    """What `--format json` prints."""
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "output": result.output,
        "privacy": result.record.to_json(),
        "curves": result.curves,
        "mlflow_run_id": result.mlflow_run_id,
    }


def show(result: Result) -> None:
    """Tables for people, on stdout."""
    console, record = Console(), result.record
    table = Table(title="Model", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    if record.test_accuracy is not None:
        table.add_row("accuracy on public data", f"{record.test_accuracy:.3f}")
    for name, points in result.curves["baselines"].items():
        table.add_row(name, f"{points[-1]['accuracy']:.3f}")
    table.add_row("rounds", f"{record.rounds:,} of {record.planned_rounds:,}")
    table.add_row(
        "against readers of models",
        f"epsilon = {number(record.epsilon)} at delta = {record.delta:g} ({record.method})",
    )
    if record.epsilon_thesis is not None:
        table.add_row("", f"by the theorem of the thesis {number(record.epsilon_thesis)}")
    table.add_row(
        "against who sees a report", f"local epsilon = {number(record.report_epsilon)} each"
    )
    table.add_row(
        "protected", f"one {record.unit} (replace-one); [bold]not[/bold] that a client took part"
    )
    budget = f"charged to the budget of {record.dataset!r} as {record.run_id}"
    if record.run_id is None:
        budget = f"not charged ({record.charged.removeprefix('no: ')})"
    table.add_row("budget", escape(budget))
    console.print(table)
    console.print(f"[bold]Written to[/bold] {escape(result.output)}", soft_wrap=True)
    if result.mlflow_run_id is not None:
        console.print(f"[bold]MLflow[/bold] run {result.mlflow_run_id}")


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
