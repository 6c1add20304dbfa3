"""`beam-ldp demo mean`: private means of real pictures and of three real tables, beside the truth.

Only the people are simulated: each of them holds a picture, or a row, drawn from data that ships in
packages. What runs is what runs on anybody's data.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from beam_ldp.pipelines.demos.people import Example, examples
from beam_ldp.pipelines.plan import whole

if TYPE_CHECKING:
    from beam_ldp.pipelines.question import RunResult


@click.command("mean", short_help="Private means of real pictures and of three tables.")
@click.option("--output", type=click.Path(path_type=Path), default="demo-mean", show_default=True,
              help="folder for the simulated people and the results")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="replace the files of an earlier demo")
@click.option("--users", type=whole, default="1e5", show_default=True, help="simulated people")
@click.option("--epsilon", default=1.0, show_default=True, help="central price to aim at")
@click.option("--max-local-epsilon", default=5.0, show_default=True,
              help="promise no less than this to a person with a picture or an answer")  # fmt: skip
@click.option("--delta", default=1e-8, show_default=True, help="of the central price")
@click.option("--no-mlflow", is_flag=True, help="do not log to MLflow")
def demo_mean(output: Path, overwrite: bool, no_mlflow: bool, **target: Any) -> None:
    """Private means of real pictures and of three real tables, beside the truth.

    Simulated people each hold one handwritten digit, or one row, of data that ships in
    packages. Then runs what `beam-ldp mean` runs on anybody's data.

    \b
    examples:
      beam-ldp demo mean --output demo-mean
      beam-ldp demo mean --output demo-mean --overwrite --users 1e6 --epsilon 0.1
    """
    sys.exit(run(Console(), output, overwrite, no_mlflow, **target))


def run(
    console: Console,
    output: Path,
    overwrite: bool,
    no_mlflow: bool,
    users: int,
    epsilon: float,
    max_local_epsilon: float,
    delta: float,
) -> int:
    """The demo; gives the exit code."""
    started = time.monotonic()
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise click.UsageError(f"--output {output} holds an earlier demo; --overwrite replaces it")
    with console.status(f"simulating {users:,} people, four times"):
        asked = examples(users, epsilon, max_local_epsilon, delta, output)
    for example in asked:
        code, result = _ask(console, example, overwrite, no_mlflow)
        if result is None:
            return code
        say_coverage(console, result)
    _say_where(console, output, asked)
    console.print(f"[dim]All of it took {time.monotonic() - started:.0f} s.[/dim]")
    return 0


def _ask(
    console: Console, example: Example, overwrite: bool, no_mlflow: bool
) -> tuple[int, RunResult | None]:
    from beam_ldp.pipelines.mean import Mean
    from beam_ldp.pipelines.run import run_flags

    console.print(Panel(example.story, title=example.title))
    console.print("[bold]What runs now[/bold], and what you would type for data of your own:")
    console.print(f"[green]{escape(_command(example.flags))}[/green]\n", soft_wrap=True)
    flags = [part for flag in example.flags for part in _words(flag)]
    flags += ["--overwrite"] * overwrite + ["--no-mlflow"] * no_mlflow
    return run_flags(Mean, flags, console, example.truth)


def _words(flag: str) -> list[str]:
    """A flag as a shell would split it; only --range has its values apart."""
    return flag.split() if flag.startswith("--range ") else [flag]


def _command(flags: Sequence[str]) -> str:
    quoted = [f"'{f}'" if " " in f and not f.startswith("--range ") else f for f in flags]
    return "beam-ldp mean " + " \\\n    ".join(quoted)


def say_coverage(console: Console, result: RunResult) -> None:
    """How many of the intervals hold the truth, beside how many should."""
    estimate, truth = result.answer.release.estimate, result.answer.truth
    assert truth is not None
    low, high = estimate.confidence_interval(0.95)
    total, holds = len(truth), int(np.count_nonzero((low <= truth) & (truth <= high)))
    at_once = int(np.count_nonzero(result.answer.view.held))  # type: ignore[attr-defined]
    spread = 2 * math.sqrt(total * 0.95 * 0.05)
    console.print(
        f"\n[bold]Are the intervals honest?[/bold] Of the {total} pointwise 95 % intervals of "
        f"estimates.csv, {holds} hold the truth; about {0.95 * total:.0f} should, give or take "
        f"{spread:.0f}, or more where errors are those of worse values than these. Of the {total} "
        f"that hold all at once, {at_once} do.\n"
    )


def _say_where(console: Console, output: Path, asked: Sequence[Example]) -> None:
    console.print(f"[bold]Files of the demo[/bold] in {escape(str(output))}")
    for example in asked:
        for name, purpose in example.files.items():
            console.print(f"  {name.ljust(16)} [dim]{purpose}[/dim]")
