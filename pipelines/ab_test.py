"""Parts of `beam-ldp ab-test`. Beam is loaded where a part runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from beam_ldp.pipelines.experiments.design import design

if TYPE_CHECKING:
    from rich.console import Console

    from beam_ldp.pipelines.checks import Job
    from beam_ldp.pipelines.flags import Arguments


@click.group(short_help="Experiments on randomized outcomes: `design`, `run`.")
def ab_test() -> None:
    """Experiments whose outcomes are randomized where people are.

    \b
    examples:
      beam-ldp ab-test design --null 0.10 --effect 0.01 --local-epsilon 2 --output test.json
      beam-ldp ab-test run --input visits.parquet --user-id uid --arm variant --outcome bought \\
          --design test.json --output verdict
    """


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
    short_help="Randomize outcomes, count each arm, and decide as a design says.",
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def run(flags: Sequence[str]) -> None:
    """Does an effect show?"""
    from beam_ldp.pipelines.flags import print_help
    from beam_ldp.pipelines.usage.ab_test import USAGE

    if (code := print_help(USAGE, flags)) is not None:  # before Beam is loaded
        sys.exit(code)
    from beam_ldp.pipelines.jobs.lean import load_beam

    load_beam()
    from beam_ldp.pipelines.experiments.run import main

    sys.exit(main(list(flags)))


for _part in (design, run):
    ab_test.add_command(_part)


def run_given(given: Arguments, console: Console) -> int:
    """`ab-test run`, as a job file says."""
    from beam_ldp.pipelines.experiments import run

    return run.run_given(given, console)


def to_check(given: Arguments) -> Job:
    """What `beam-ldp check` looks at. Raises UsageError."""
    from beam_ldp.pipelines.experiments import run

    return run.to_check(given)
