"""`beam-ldp plan`: what a release would cost and how accurate it would be. Reads no data."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from beam_ldp.planning import Plan
    from beam_ldp.randomizers.mean.base import Norm
    from beam_ldp.randomizers.registry import Task


SCHEMA_VERSION = 1


def whole(text: str) -> int:
    """A whole number >= 1 that may be written as 1e6: a type for click's options."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found != int(found) or found < 1:
        raise click.BadParameter(f"must be a whole number >= 1, got {text}")
    return int(found)


@click.group(short_help="Which mechanism, privacy cost, error and report size to expect.")
def plan() -> None:
    """Which mechanism, privacy cost, error and report size to expect, before any data is read."""


@plan.command("frequency")
@click.option(
    "--expected-users",
    "users",
    type=whole,
    required=True,
    help="number of people who report, for example 1e6",
)
@click.option("--domain-size", type=whole, required=True,
              help="values of the public list, without `other`")  # fmt: skip
@click.option("--epsilon", type=float, help="central epsilon to aim at, after shuffling")
@click.option("--local-epsilon", type=float, help="local epsilon of each person, instead")
@click.option(
    "--delta", type=float, required=True, help="delta of the central epsilon, far below 1/users"
)
@click.option("--max-bits", type=whole, help="longest report to accept, in bits")
@click.option("--mechanism", "places", multiple=True, metavar="PACKAGE:CLASS",
              help="also compare this mechanism of your own; may be repeated")  # fmt: skip
@click.option("--workers", type=whole, help="number of cores: print how long the job would take")
@click.option(
    "--price-per-core-hour",
    type=click.FloatRange(min=0),
    help="with --workers: print what the job would cost",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path),
              help="plot the error of every mechanism against epsilon, as a PNG")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="what is printed")  # fmt: skip
def frequency(
    users: int,
    domain_size: int,
    epsilon: float | None,
    local_epsilon: float | None,
    delta: float,
    max_bits: int | None,
    places: tuple[str, ...],
    **shown: Any,
) -> None:
    """All mechanisms for counting values of a public list, the most accurate first.

    The error is the standard error, in people, of the count of a value that hardly anybody holds. A
    value stands out when several times as many people hold it.

    \b
    examples:
      beam-ldp plan frequency --expected-users 1e6 --domain-size 1000 --epsilon 1 --delta 1e-8
      beam-ldp plan frequency --expected-users 1e6 --domain-size 1000 --local-epsilon 4 \\
          --delta 1e-8 --max-bits 32 --format json
      beam-ldp plan frequency --expected-users 1e10 --domain-size 1000 --epsilon 1 --delta 1e-12 \\
          --workers 100 --price-per-core-hour 0.05
      beam-ldp plan frequency --expected-users 1e6 --domain-size 1000 --epsilon 1 --delta 1e-8 \\
          --plot plan.png
    """
    from beam_ldp.pipelines.views.plans import frequency_row, show_frequencies
    from beam_ldp.planning import plan_frequencies

    if (epsilon is None) == (local_epsilon is None):
        raise click.UsageError("give one of --epsilon (central target) and --local-epsilon")
    asked = local_epsilon if epsilon is None else epsilon
    assert asked is not None

    def plans_at(budget: float) -> Sequence[Plan]:
        central, local = (None, budget) if epsilon is None else (budget, None)
        return plan_frequencies(users, domain_size + 1, central, local, delta, max_bits)

    title = f"{users:,} people, {domain_size:,} values and `other`, delta = {delta:g}"
    _answer(
        PlanQuestion(
            "frequency",
            asked,
            plans_at,
            task={"users": users, "domain_size": domain_size, "delta": delta},
            row=lambda plan: frequency_row(plan, users),
            show=lambda plans: show_frequencies(plans, users, title),
            error=lambda plan: plan.standard_error * users,
            subtitle=title,
            across="local epsilon" if epsilon is None else "epsilon of readers, after shuffling",
            upward="standard error of a rare value's count, people",
        ),
        places,
        **shown,
    )


@dataclass(frozen=True)
class PlanQuestion:
    """What is planned, and how its plans are shown: all that differs between commands.

    Attributes:
        kind: of the mechanisms.
        asked: the budget.
        plans_at: the plans at a budget, best first.
        task: what was asked, for programs.
        row: a plan, for programs.
        show: the plans, for people.
        error: of a plan, in the picture.
        subtitle, across, upward: words of the picture.
    """

    kind: Task
    asked: float
    plans_at: Callable[[float], Sequence[Any]]
    task: dict[str, Any]
    row: Callable[[Any], dict[str, Any]]
    show: Callable[[Sequence[Any]], None]
    error: Callable[[Any], float]
    subtitle: str
    across: str
    upward: str


def _answer(
    question: PlanQuestion,
    places: Sequence[str],
    *,
    workers: int | None,
    price_per_core_hour: float | None,
    plot: Path | None,
    form: str,
) -> None:
    """Plan, draw, print. The parameters are flags that all plans have."""
    from beam_ldp.pipelines.mechanisms import load_mechanisms
    from beam_ldp.pipelines.views.plans import costs_as_json, show_costs

    if price_per_core_hour is not None and workers is None:
        raise click.UsageError("--price-per-core-hour needs --workers")
    try:
        others = load_mechanisms(places, question.kind)
        with Console(stderr=True).status("comparing mechanisms"):  # shown on terminals only
            plans = question.plans_at(question.asked)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if plot is not None:
        draw_plans(plot, question, plans)
    if form == "json":
        from beam_ldp.pipelines.views.terminal import printed_json

        rows = [question.row(plan) for plan in plans]
        for row, plan in zip(rows, plans):
            if workers is not None and plan.randomizer is not None:
                row["cost"] = costs_as_json(plan.randomizer, question.task["users"], workers,
                                            price_per_core_hour)  # fmt: skip
        print(printed_json({"schema_version": SCHEMA_VERSION, **question.task, "plans": rows}))
        return
    question.show(plans)
    show_summaries(Console(), others)
    if workers is not None:
        usable = [plan.randomizer for plan in plans if plan.randomizer and not plan.excluded]
        show_costs(Console(), usable, question.task["users"], workers, price_per_core_hour)
    sys.stdout.flush()


@plan.command("mechanisms", short_help="All mechanisms, in their own words.")
@click.option("--mechanism", "places", multiple=True, metavar="PACKAGE:CLASS",
              help="also list this mechanism of your own; may be repeated")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json", "markdown"]),
              default="table", show_default=True, help="what is printed")  # fmt: skip
def mechanisms(places: tuple[str, ...], form: str) -> None:
    """List all mechanisms: their other names, what they are for, and what decoding takes.

    \b
    examples:
      beam-ldp plan mechanisms
      beam-ldp plan mechanisms --mechanism my_package:MyOracle --format markdown
    """
    from beam_ldp.pipelines.mechanisms import described, mechanism_of

    try:
        for place in places:
            mechanism_of(place)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    rows = described()
    if form == "json":
        from beam_ldp.pipelines.views.terminal import printed_json

        print(printed_json({"schema_version": SCHEMA_VERSION, "mechanisms": rows}))
    elif form == "markdown":
        for cells in (list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)):
            print(f"| {' | '.join(cells)} |")
    else:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in rows[0]:
            table.add_column(heading, no_wrap=heading == "mechanism")
        for row in rows:
            table.add_row(*map(escape, row.values()))
        Console().print(table)
    sys.stdout.flush()


def show_summaries(console: Console, kinds: Sequence[type[Any]]) -> None:
    """What mechanisms from elsewhere say of themselves, below a plan."""
    from beam_ldp.randomizers.registry import name_of, summary_of, synonyms_of

    for kind in kinds:
        also = f" ({synonyms_of(kind)})" if synonyms_of(kind) else ""
        console.print(f"{name_of(kind)}{also}: {summary_of(kind)}", style="dim", markup=False)


def draw_plans(path: Path, question: PlanQuestion, plans: Sequence[Any]) -> None:
    """Plan at budgets around the one that was asked for, and write the picture of all of them."""
    from beam_ldp.pipelines.views.plans import curves, draw, write_plot

    def plans_at(budget: float) -> Sequence[Any]:
        return plans if budget == question.asked else question.plans_at(budget)

    with Console(stderr=True).status("planning at other budgets"):  # shown on terminals only
        found = curves(plans_at, question.asked, question.error)
    if not found:
        raise click.UsageError("--plot: no mechanism meets these limits at any budget near it")
    figure = draw(found, question.asked, question.subtitle, question.across, question.upward)
    write_plot(figure, path)
    Console(stderr=True).print(
        f"{path}: error against epsilon", style="dim", highlight=False, soft_wrap=True
    )


def norm_of(text: str) -> Norm | float:
    """A norm by its name, or as the p of an l_p norm: a type for click's options."""
    names: tuple[Norm, ...] = ("l2", "l1", "linf", "binary")
    for name in names:
        if text == name:
            return name
    try:
        power = float(text)
    except ValueError:
        power = math.nan
    if not power >= 1:
        raise click.BadParameter(f"must be l2, l1, linf, binary or a number >= 1, got {text}")
    return power


@plan.command("mean", short_help="Mechanisms for the mean of vectors, best first.")
@click.option(
    "--expected-users",
    "users",
    type=whole,
    required=True,
    help="number of people who report, for example 1e6",
)
@click.option("--dimension", type=whole, required=True, help="numbers per person")
@click.option("--norm", type=norm_of, default="l2", show_default=True,
              metavar="[l2|l1|linf|binary|P]",
              help="the norm that --radius bounds: Euclidean length (l2), sum of absolute values "
              "(l1), each number (linf), or the l_P norm; or binary: numbers 0 and 1")  # fmt: skip
@click.option("--radius", type=float, default=1.0, show_default=True,
              help="the bound, in the units of the data")  # fmt: skip
@click.option("--epsilon", type=float,
              help="central epsilon to aim at, after shuffling; with --model local, the local "
              "epsilon")  # fmt: skip
@click.option("--local-epsilon", type=float, help="local epsilon of each person, instead")
@click.option("--delta", type=float, help="delta of the central epsilon, far below 1/users")
@click.option("--max-bits", type=whole, help="largest number of bits that a person may send")
@click.option("--max-local-epsilon", type=float,
              help="largest local epsilon: what a person may lose to somebody who sees the "
              "messages before the shuffle")  # fmt: skip
@click.option("--model", type=click.Choice(["shuffle", "local"]), default="shuffle",
              show_default=True,
              help="who is trusted: a shuffler, or only the device itself")  # fmt: skip
@click.option("--mechanism", "places", multiple=True, metavar="PACKAGE:CLASS",
              help="also compare this mechanism of your own; may be repeated")  # fmt: skip
@click.option("--workers", type=whole, help="number of cores: print how long the job would take")
@click.option(
    "--price-per-core-hour",
    type=click.FloatRange(min=0),
    help="with --workers: print what the job would cost",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path),
              help="plot the error of every mechanism against epsilon, as a PNG")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="what is printed")  # fmt: skip
def plan_mean(
    users: int,
    dimension: int,
    norm: Norm | float,
    places: tuple[str, ...],
    **target: Any,
) -> None:
    """All mechanisms for the mean of vectors, the most accurate first.

    Errors are for the vectors that are worst for the mechanism, in the units of the data: the
    standard error of one coordinate of the mean, and the root mean square norm of the error of the
    whole vector.

    With a central target, every mechanism is tuned to cost exactly that after shuffling. Some send
    one report, which is shuffled with everybody else's; L1Mean, L2Mean, LInfMean and
    BinaryVectorMean send many messages of one bit or a few, each kind shuffled separately. Those
    come far closer to a trusted curator, but protect a person little before the shuffle: see the
    column "local epsilon", which --max-local-epsilon limits.

    The last column but one compares squared errors: under a local budget, with a proved bound for
    all unbiased mechanisms; under a central target, with the noise that a trusted curator would add
    (for reference: there is no proof that shuffling needs as much).

    \b
    examples:
      beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 1 --delta 1e-8 \\
          --plot plan.png
      beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 1 --delta 1e-8 \\
          --max-bits 512
      beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 4 --model local
      beam-ldp plan mean --expected-users 1e5 --dimension 1 --norm linf --radius 24 \\
          --local-epsilon 2 --delta 1e-8 --format json
    """
    names = ("workers", "price_per_core_hour", "plot", "form")
    shown = {name: target.pop(name) for name in names}
    _answer(_mean_question(users, dimension, norm, target), places, **shown)


def _mean_question(
    users: int, dimension: int, norm: Norm | float, target: dict[str, Any]
) -> PlanQuestion:
    """What is planned for the mean of vectors; `target`: of `plan_means`."""
    from beam_ldp.pipelines.views.plans import mean_row, show_means
    from beam_ldp.planning import plan_means

    central, local = target["epsilon"], target["local_epsilon"]
    if (central is None) == (local is None):
        raise click.UsageError("give one of --epsilon (central target) and --local-epsilon")
    shuffled = target["model"] == "shuffle" and local is None
    if shuffled and target["delta"] is None:
        raise click.UsageError("--epsilon is a central target and needs --delta")
    name = "epsilon" if local is None else "local_epsilon"
    title = f"{users:,} people, {dimension:,} coordinates, {_ball(norm, target['radius'])}"
    delta = "" if target["delta"] is None else f", delta = {target['delta']:g}"
    return PlanQuestion(
        "mean",
        target[name],
        lambda budget: plan_means(users, dimension, norm, **{**target, name: budget}),
        task={"users": users, "dimension": dimension, "norm": norm, **target},
        row=mean_row,
        show=lambda plans: show_means(plans, title),
        error=lambda plan: plan.rms_error,
        subtitle=title + delta,
        across="epsilon of readers, after shuffling" if shuffled else "local epsilon",
        upward="RMS error of the mean, in the unit of the data",
    )


def _ball(norm: Norm | float, radius: float) -> str:
    if norm == "binary":
        return "each 0 or 1"
    name = norm if isinstance(norm, str) else f"l{norm:g}"
    return f"{name} ball of radius {radius:g}"
