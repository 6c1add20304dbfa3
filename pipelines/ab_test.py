"""`beam-ldp ab-test`: experiments on randomized outcomes. Nothing here loads Beam."""

from __future__ import annotations

import click

from beam_ldp.pipelines.experiments.design import design


@click.group(short_help="Experiments on randomized outcomes: `ab-test design`.")
def ab_test() -> None:
    """Experiments whose outcomes are randomized where people are.

    \b
    examples:
      beam-ldp ab-test design --null 0.10 --effect 0.01 --local-epsilon 2 --output test.json
    """


ab_test.add_command(design)
