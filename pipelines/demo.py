"""`beam-ldp demo`: a private word count over a million simulated people, from file to record.

`beam-ldp demo mean`: private means of real pictures and of three real tables, beside the truth.
Everything that runs here is what runs on real data: the same programs read the same kinds of files.
Only the people are simulated, and so the truth is known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from beam_ldp.pipelines.flags import format_option, whole

_COMMAND = TypeVar("_COMMAND", bound=Callable[..., Any])


def _options(output: str, users: str, epsilon: float) -> Callable[[_COMMAND], _COMMAND]:
    """What both demos take, with their own defaults."""
    options = (
        click.option("--output", type=click.Path(path_type=Path), default=output,
                     show_default=True, help="folder for the simulated people and the results"),
        click.option("--overwrite", is_flag=True, help="replace the files of an earlier demo"),
        click.option("--users", type=whole, default=users, show_default=True,
                     help="simulated people"),
        click.option("--epsilon", default=epsilon, show_default=True,
                     help="central epsilon to aim at"),
        click.option("--max-local-epsilon", default=5.0, show_default=True,
                     help="largest local epsilon to use"),
        click.option("--delta", default=1e-8, show_default=True,
                     help="delta of the central epsilon"),
        click.option("--no-mlflow", is_flag=True, help="do not log to MLflow"),
        format_option,
    )  # fmt: skip

    def decorated(command: _COMMAND) -> _COMMAND:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


@click.group(
    invoke_without_command=True,
    short_help="A private word count over a million simulated people; `demo mean`: means.",
)
@_options("demo-out", "1e6", 0.05)
@click.option("--words", default=10_000, show_default=True, help="words in the public list")
@click.pass_context
def demo(context: click.Context, /, **asked: Any) -> None:
    """A private word count over a million simulated people, from the file to the record.

    Each of them holds one word, drawn from real English word counts, in a Parquet file. The demo
    then runs `beam-ldp frequency` on it, as on any other data, and compares the result with the
    truth.

    \b
    examples:
      beam-ldp demo --output demo-out
      beam-ldp demo --output demo-out --overwrite --users 1e5 --words 1000
      beam-ldp demo mean --output demo-mean
    """
    if context.invoked_subcommand is not None:
        _refuse_own_options(context)
        return
    from beam_ldp.pipelines.demos.words import run

    sys.exit(run(Console(stderr=asked["form"] == "json"), **asked))


def _refuse_own_options(context: click.Context) -> None:
    """Options in front of another demo's name would be lost without a word."""
    for name in context.params:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(f"{flag} must follow `{context.invoked_subcommand}`", context)


@click.command("mean", short_help="Private means of real pictures and of three tables.")
@_options("demo-mean", "1e5", 1.0)
def demo_mean(**asked: Any) -> None:
    """Private means of real images and of three real tables, compared with the truth.

    Simulated people each hold one handwritten digit, or one row, of data that comes with Python
    packages. The demo then runs `beam-ldp mean` on them, as on any other data.

    \b
    examples:
      beam-ldp demo mean --output demo-mean
      beam-ldp demo mean --output demo-mean --overwrite --users 1e6 --epsilon 0.1
    """
    from beam_ldp.pipelines.demos.means import run

    sys.exit(run(Console(stderr=asked["form"] == "json"), **asked))


demo.add_command(demo_mean)
