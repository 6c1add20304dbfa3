"""What people and programs see of a training: its plan, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.questions.forging import forged_usually
from beam_ldp.release import outputs, terminal
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.record import TrainRecord
from beam_ldp.training.server_plans import LocalCentralPlan
from beam_ldp.wording import many, number

if TYPE_CHECKING:
    from mlflow_ldp import LoggedRun
    from tff_adapters import Flow


@dataclass(frozen=True)
class TrainingResult:
    """What a training gave: what is in the output folder, and the record.

    Attributes:
        plan, record: what was to run, and what that cost.
        curves: measurements of the training and its baselines.
        output: the folder.
        logged: the MLflow run, if there is one.
        report: more about it, to be printed.
    """

    plan: TrainingPlan
    record: TrainRecord
    curves: dict[str, Any]
    output: str
    logged: LoggedRun | None
    report: str = ""


def plan_line(plan: TrainingPlan) -> str:
    """One line about what will run."""
    return (
        f"{plan.question.algorithm}, {plan.model} ({many(plan.dimension, 'parameter')}), "
        f"{plan.mechanism_words}; {many(plan.rounds, 'round')} of {plan.clients_per_round:,} of "
        f"{many(plan.data.num_clients, 'client')} will cost epsilon = "
        f"{number(float(plan.epsilon_of(plan.rounds)))} at delta = {plan.settings.privacy.delta:g}"
    )


def plan_as_json(plan: TrainingPlan, flows: Sequence[Flow] | None) -> dict[str, Any]:
    """The plan, for programs."""
    bound = plan.epsilon_of(plan.rounds)
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "dry_run": True,
        "algorithm": plan.question.algorithm,
        "model": plan.model,
        "parameters": plan.dimension,
        "mechanism": plan.config,
        "bits_per_report": plan.bits_per_report,
        "compression": plan.compression,
        "forged": plan.forged,
        "forged_checked": None
        if plan.check is None
        else forged_usually(plan.check, plan.clients_per_round),
        "num_clients": plan.data.num_clients,
        "clients_per_round": plan.clients_per_round,
        "least_clients": plan.least_clients,
        "sampling": plan.question.sampling,
        "rounds_per_epoch": plan.rounds_per_epoch,
        "rounds": plan.rounds,
        "planned_rounds": plan.planned_rounds,
        "delta": plan.settings.privacy.delta,
        "epsilon": float(bound),
        "epsilon_lower": float(bound.lower) or None,
        "method": str(bound.method),
        "epsilon_seen": plan.seen_epsilon_of(plan.rounds),
        "reader": plan.reader,
        "pricing_note": plan.pricing_note or None,
        "local_epsilon_per_report": plan.report_epsilon,
        "local_epsilon": plan.local_epsilon_of(plan.rounds),
        "privacy_unit": plan.settings.charge.privacy_unit,
        "costs": [vars(point) for point in plan.price_list()],
        "reconstruction": plan.audit(plan.messages_of(plan.rounds)).to_dict()
        if isinstance(plan, LocalCentralPlan)
        else None,
        "flows": None if flows is None else [flow.to_json() for flow in flows],
    }


def say_plan(plan: TrainingPlan, flows: Sequence[Flow] | None) -> None:
    """The plan as tables, on stdout.

    Args:
        plan: what would run.
        flows: what would leave a client; None where no TensorFlow Federated is there to build it.
    """
    console = Console()
    console.print(_plan_table(plan))
    console.print(_price_table(plan))
    if plan.price_list(1)[0].thesis is not None:
        console.print(
            "thesis: Theorem 5.4.1 (5.3.1 without sampling), a larger bound on the same epsilon",
            style="dim",
        )
    if isinstance(plan, LocalCentralPlan):
        print(plan.audit(plan.messages_of(plan.rounds)))
    _say_flows(console, flows)
    sys.stdout.flush()


def _least_said(plan: TrainingPlan) -> str:
    if plan.least_clients == plan.clients_per_round:
        return ""
    return f", of whom at least {plan.least_clients:,} come"


def _plan_table(plan: TrainingPlan) -> Table:
    """What would run, and what all of it would cost against each reader."""
    settings, question = plan.settings, plan.question
    table = Table(title="Plan (nothing was trained)", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("algorithm", f"{question.algorithm}, {many(plan.rounds, 'round')}{_cut(plan)}")
    table.add_row("model", f"{plan.model}, {many(plan.dimension, 'parameter')}")
    table.add_row(
        "clients",
        f"{plan.data.num_clients:,}, {plan.clients_per_round:,} in a round ({question.sampling})"
        + _least_said(plan),
    )
    table.add_row(
        "mechanism",
        f"{plan.mechanism_words}; {many(plan.bits_per_report, 'bit')} per report, "
        f"{plan.compression:,.3g} x float32",
    )
    if plan.forged_words:
        table.add_row("if people lie", plan.forged_words)
    table.add_row("protected", f"one {settings.charge.privacy_unit} (replace-one)")
    table.add_row("one report", _report_said(plan))
    bound = plan.epsilon_of(plan.rounds)
    table.add_row(
        plan.reader,
        f"epsilon = {number(float(bound))} at delta = {settings.privacy.delta:g} ({bound.method})",
    )
    seen = plan.seen_epsilon_of(plan.rounds)
    if seen is not None:
        table.add_row("who also see who took part", f"epsilon = {number(seen)}")
    if plan.pricing_note:
        table.add_row("on that cost", plan.pricing_note)
    return table


def _report_said(plan: TrainingPlan) -> str:
    """What one report promises, and all of a client."""
    if plan.report_epsilon is None:
        printed = plan.question.preset == "printed"
        why = "Gaussian noise has none" if printed else "the server is trusted with it"
        return f"no local epsilon: {why}"
    most = number(plan.local_epsilon_of(plan.rounds))
    return f"local epsilon = {number(plan.report_epsilon)}; all of one client at most {most}"


def _price_table(plan: TrainingPlan) -> Table:
    """Epsilon after some of the epochs, by three accountants."""
    prices = Table(title="Epsilon along the training", title_justify="left")
    for heading in ("epoch", "rounds", "this mechanism", "any mechanism", "thesis"):
        prices.add_column(heading, justify="right")
    for point in plan.price_list():
        prices.add_row(
            f"{point.epoch:,}",
            f"{point.rounds:,}",
            number(point.epsilon),
            "-" if point.any_mechanism is None else number(point.any_mechanism),
            "-" if point.thesis is None else number(point.thesis),
        )
    return prices


def _say_flows(console: Console, flows: Sequence[Flow] | None) -> None:
    if flows is None:
        console.print(
            "What leaves a client is taken from the computation, which needs TensorFlow Federated",
            style="dim",
        )
        return
    table = Table(title="What leaves a client in a round", title_justify="left")
    for heading in ("flow", "of type", "what protects it"):
        table.add_column(heading)
    for flow in flows:
        said = (flow.name, flow.type, f"{flow.verdict}: {flow.protection}")
        table.add_row(*map(escape, said))
    console.print(table)


def _cut(plan: TrainingPlan) -> str:
    if plan.rounds == plan.planned_rounds:
        return ""
    return f" of {plan.planned_rounds:,}: the target of {plan.settings.privacy.epsilon:g} ends it"


def as_json(result: TrainingResult) -> dict[str, Any]:
    """What `--format json` prints."""
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "output": result.output,
        "privacy": result.record.to_json(),
        "curves": result.curves,
        **terminal.logged_as_json(result.logged),
        "report": result.report or None,
    }


def show(result: TrainingResult) -> None:
    """Tables for people, on stdout."""
    console, record = Console(), result.record
    table = Table(title="Model", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    if record.test_accuracy is not None:
        table.add_row("accuracy on public data", f"{record.test_accuracy:.3f}")
    if record.personal_accuracy is not None:
        table.add_row("own models, on average", f"{record.personal_accuracy:.3f}")
        alone = record.local_only_accuracy
        table.add_row("the same, every client alone", "-" if alone is None else f"{alone:.3f}")
    for name, points in result.curves["baselines"].items():
        if points[-1]["accuracy"] is not None and record.personal_accuracy is None:
            table.add_row(name, f"{points[-1]['accuracy']:.3f}")
    table.add_row("rounds", f"{record.rounds:,} of {record.planned_rounds:,}")
    table.add_row(
        f"against {record.reader}",
        f"epsilon = {number(record.epsilon)} at delta = {record.delta:g} ({record.method})",
    )
    if record.epsilon_seen is not None:
        table.add_row(
            "against who also saw who took part", f"epsilon = {number(record.epsilon_seen)}"
        )
    if record.epsilon_thesis is not None:
        table.add_row("", f"by the theorem of the thesis {number(record.epsilon_thesis)}")
    if record.report_epsilon is not None:
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
    if result.report:
        print(result.report)
    console.print(f"[bold]Written to[/bold] {escape(result.output)}", soft_wrap=True)
    terminal.say_logged(console, result.logged)
