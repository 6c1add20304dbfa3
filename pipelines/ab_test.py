"""Parts of `beam-ldp ab-test`. Beam is loaded where a part runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from beam_ldp.pipelines.experiments.design import design
from beam_ldp.pipelines.group_parts import on_beam

if TYPE_CHECKING:
    from rich.console import Console

    from beam_ldp.pipelines.checks import Job
    from beam_ldp.pipelines.flags import Arguments


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


ab_test.add_command(design)
ab_test.add_command(
    on_beam(
        "run", "ab_test", "experiments.run",
        "Randomize outcomes, count each arm, and decide as a design says.",
    )
)  # fmt: skip
ab_test.add_command(
    on_beam(
        "decide", "ab_test_decide", "ab_test_decide",
        "The same from reports that devices have sent.",
    )
)  # fmt: skip


def run_given(given: Arguments, console: Console) -> int:
    """`ab-test run`, as a job file says."""
    from beam_ldp.pipelines.experiments import run

    return run.run_given(given, console)


def to_check(given: Arguments) -> Job:
    """What `beam-ldp check` looks at. Raises SettingError."""
    from beam_ldp.pipelines.experiments import run

    return run.to_check(given)
