"""`beam-ldp bandit start`: a service with its first batch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from beam_ldp.decisions.commands.bandit.actions import read_chosen
from beam_ldp.pipelines.flags import format_option, whole
from beam_ldp.settings import SettingError


def width_option(*choices: str) -> Any:
    """The option `--width`, of some of the widths."""
    printed = (
        "; printed: the text's, unproven, with noise that costs twice its epsilon, for comparison"
    )
    return click.option(
        "--width",
        type=click.Choice(choices),
        default="tight",
        show_default=True,
        help="by how much estimates may be off, which decides what is dropped; safe: in closed "
        f"form, and larger{printed if 'printed' in choices else ''}",
    )


rounding_option = click.option(
    "--rounding",
    type=click.Choice(["real", "floor", "ceil"]),
    default="real",
    show_default=True,
    help="of the logarithm of the horizon, which sets how batches grow",
)


@click.command(short_help="A service folder with its first batch: which slots get which action.")
@click.option(
    "--actions",
    metavar="FILE",
    help="Parquet or CSV with a row for each action: its features, of length 1 at most, "
    "are the columns of numbers; its name is the column `name`, or else its number",
)
@click.option(
    "--contexts",
    metavar="FILE",
    help="instead of --actions: policies over contexts, as `beam-ldp bandit plan` takes them; "
    "people's devices choose by what each play says",
)
@click.option("--horizon", type=whole, required=True, help="people in all, as in 1e6")
@click.option("--state", required=True, metavar="DIR", help="folder of the service")
@click.option(
    "--dataset",
    required=True,
    metavar="NAME",
    help="public name of the people, whose budget is charged",
)
@click.option(
    "--name",
    default=None,
    metavar="NAME",
    help="public name of the service (default: that of the folder); another service for "
    "the same people has another name",
)
@click.option(
    "--model",
    type=click.Choice(["shuffled", "local", "central"]),
    default="shuffled",
    show_default=True,
    help="who is trusted: who permutes the reports, nobody, or the server with every reward",
)
@click.option(
    "--epsilon",
    type=float,
    default=1.0,
    show_default=True,
    help="central epsilon of each batch; of the local model that of each report",
)
@click.option(
    "--delta", type=float, default=1e-6, show_default=True, help="delta of the shuffled model"
)
@click.option(
    "--amplify-over",
    type=click.Choice(["action", "batch"]),
    default="action",
    show_default=True,
    help="who hides among whom: people of one action, or all of a batch; the second "
    "needs a secret assignment, which is written to STATE.private",
)
@width_option("tight", "safe")
@rounding_option
@click.option(
    "--smallest-batch",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="batches of fewer people are left out at the beginning: they tell next to "
    "nothing, and hide hardly anybody",
)
@format_option
def start(
    actions: str | None, contexts: str | None, horizon: int, state: str, dataset: str,
    name: str | None, smallest_batch: int, form: str, **asked: Any,
) -> None:  # fmt: skip
    """Begin a service: its terms are fixed, and its first batch is written. Nobody is asked yet.

    The same terms again change nothing; other terms need another folder.

    \b
    example:
      beam-ldp bandit start --actions actions.csv --horizon 1e6 --epsilon 1 \\
          --dataset visitors --state service
    \b
    exit codes: 0 done; 2 a flag or the file does not fit
    """
    from beam_ldp.decisions.bandits.elimination import LinearBandit
    from beam_ldp.decisions.bandits.terms import ServiceTerms
    from beam_ldp.decisions.commands.bandit.service import ServiceFolder
    from beam_ldp.decisions.commands.bandit.view import say_service

    try:
        found = read_chosen(actions, contexts, horizon)
        asked |= dict(actions=found.rows, horizon=horizon, row_error=found.row_error)
        schedule = LinearBandit(**asked).schedule
        small = (schedule.size(i) < smallest_batch for i in range(1, schedule.batches))
        bandit = LinearBandit(skipped=sum(small), **asked)
        folder = os.path.abspath(state)
        terms = ServiceTerms(dataset, name or Path(folder).name, found.names, bandit, found.thetas)
        service = ServiceFolder.start(folder, terms)
    except (ValueError, SettingError) as error:
        raise click.UsageError(str(error)) from None
    say_service(service, form)
    sys.stdout.flush()
