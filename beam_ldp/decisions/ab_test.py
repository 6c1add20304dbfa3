"""`beam-ldp ab-test`: its parts, and `ab-test design`: how many people an experiment needs. Neither
reads data; Beam is loaded where a part runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beam_ldp.pipelines.flags import format_option, part, whole

if TYPE_CHECKING:
    from beam_ldp.decisions.experiments.plan import ExperimentPlan


@click.group(short_help="Experiments on randomized outcomes: `design`, `run`, `decide`.")
def ab_test() -> None:
    """Experiments whose outcomes are randomized where people are.

    \b
    examples:
      beam-ldp ab-test design --null 0.10 --effect 0.01 --local-epsilon 2 --output test.json
      beam-ldp ab-test run --input visits.parquet --user-id uid --arm variant --outcome bought \\
          --design test.json --output verdict
      beam-ldp ab-test decide --reports reports --design test.json
    """


@ab_test.command(short_help="People needed, what is decided, and what it costs.")
@click.option("--null", type=float, required=True,
              help="rate of ones (or mean) without an effect: of the control")  # fmt: skip
@click.option("--effect", type=float, required=True,
              help="what is to be seen on top of it; below zero for a smaller rate")  # fmt: skip
@click.option("--local-epsilon", type=float, required=True,
              help="local epsilon of each report")  # fmt: skip
@click.option("--alpha", type=float, default=0.05, show_default=True,
              help="probability of deciding an effect where there is none, at most")  # fmt: skip
@click.option("--power", type=float, default=0.8, show_default=True,
              help="probability of deciding the effect where there is one, at least")  # fmt: skip
@click.option("--delta", type=float, default=1e-8, show_default=True,
              help="delta of the central epsilon")  # fmt: skip
@click.option("--arms", default="2", show_default=True,
              help="how many arms, or their names, the control first, as in now,red,green; 1: one "
              "sample against a rate that is known")  # fmt: skip
@click.option("--shares",
              help="share of the people of each arm, as in 0.9,0.1  [default: equal]")  # fmt: skip
@click.option("--sided", type=click.Choice(["one", "two"]), default="one", show_default=True,
              help="whether effects of the other sign are looked for too (two)")  # fmt: skip
@click.option("--looks", type=whole, default=1, show_default=True,
              help="how often the counts may be looked at before it ends")  # fmt: skip
@click.option("--spending", type=click.Choice(["obrien-fleming", "pocock", "anytime"]),
              default="obrien-fleming", show_default=True,
              help="how alpha is spent over the looks: late (obrien-fleming), evenly (pocock), or "
              "so that they may be timed by what was seen (anytime)")  # fmt: skip
@click.option("--value-range",
              help="smallest and largest value of a numeric outcome, as in 0,50")  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
              help="new file for the plan, as JSON")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path),
              help="plot the least effect that is seen against the people, as a PNG")  # fmt: skip
@format_option
def design(
    arms: str,
    shares: str | None,
    value_range: str | None,
    output: Path | None,
    plot: Path | None,
    form: str,
    **asked: Any,
) -> None:
    """How many people an experiment needs, what it decides, and what it costs in privacy.

    Everything is fixed before anybody reports. Two arms are compared by Fisher's exact test of the
    randomized outcomes, whose level holds whatever the control's rate is.

    \b
    examples:
      beam-ldp ab-test design --null 0.10 --effect 0.01 --local-epsilon 2 \\
          --alpha 0.01 --power 0.9 --output test.json
      beam-ldp ab-test design --null 0.10 --effect 0.01 --local-epsilon 2 --arms 1
      beam-ldp ab-test design --null 0.10 --effect 0.02 --local-epsilon 2 \\
          --arms now,red,green --looks 4 --plot people.png
    \b
    exit codes: 0 done; 2 a flag does not fit
    """
    from beam_ldp.decisions.experiments.plan import design_experiment
    from beam_ldp.decisions.views import plan_json, plot_people, show_plan

    try:
        plan = design_experiment(
            **asked,
            arms=_arm_names(arms),
            shares=_numbers("--shares", shares),
            value_range=_numbers("--value-range", value_range, 2),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if output is not None:
        _write_new(output, plan)
    if plot is not None:
        try:
            plot.write_bytes(plot_people(plan))
        except OSError as error:
            raise click.UsageError(f"--plot {plot}: {error.strerror}") from None
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json(plan_json(plan)))
    else:
        show_plan(plan, output, plot)
    sys.stdout.flush()


def _arm_names(text: str) -> tuple[str, ...]:
    """Names that were given, or names for so many arms."""
    if not text.strip().isdigit():
        return tuple(name.strip() for name in text.split(","))
    count = int(text)
    if not 1 <= count <= 100:
        raise ValueError(f"--arms must be 1 to 100, or names, got {text}")
    if count <= 2:
        return ("everybody",) if count == 1 else ("control", "variant")
    return ("control", *(f"variant-{i}" for i in range(1, count)))


def _numbers(flag: str, text: str | None, count: int | None = None) -> tuple[float, ...] | None:
    """Numbers between commas."""
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or count not in (None, len(found)):
        raise ValueError(f"{flag} must be {count or 'some'} numbers between commas, got {text}")
    return found


def _write_new(path: Path, plan: ExperimentPlan) -> None:
    """The plan's file; one that is there is kept, and has to be the same."""
    text = json.dumps({**plan.to_json(), "digest": plan.digest}, indent=2) + "\n"
    try:
        if path.exists() and path.read_text("utf-8") != text:
            raise click.UsageError(f"--output {path} exists: a design is never overwritten")
        path.write_text(text, "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--output {path} cannot be written ({error})") from None


for _part in ("ab-test run", "ab-test decide"):
    ab_test.add_command(part(_part))
