"""Parts of `beam-ldp ab-test`. Beam is loaded where a part runs."""

from __future__ import annotations

import click

from beam_ldp.pipelines.commands import part
from beam_ldp.pipelines.experiments.design import design


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


for _part in (design, part("ab-test run"), part("ab-test decide")):
    ab_test.add_command(_part)
