"""`beam-ldp demo`: a private count of the words that people hold, and what is said of it."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.panel import Panel

from beam_ldp.pipelines.demos.corpus import Corpus, load_corpus, write_people
from beam_ldp.pipelines.demos.shown import run_shown
from beam_ldp.pipelines.frequency import PROGRAM
from beam_ldp.release.run import RunResult
from beam_ldp.release.runner import as_json
from beam_ldp.release.statement import statement

OTHER = "(other)"


def run(
    console: Console,
    output: Path,
    overwrite: bool,
    users: int,
    words: int,
    epsilon: float,
    max_local_epsilon: float,
    delta: float,
    no_mlflow: bool,
    form: str = "table",
) -> int:
    """The demo; gives the exit code."""
    started = time.monotonic()
    corpus = load_corpus()
    if not 1 <= words < len(corpus.words):
        raise click.UsageError(f"--words must lie in [1, {len(corpus.words)}), got {words}")
    if (output / "release").exists() and not overwrite:
        raise click.UsageError(f"--output {output} holds an earlier demo; --overwrite replaces it")
    with console.status(f"simulating {users:,} people"):
        people, listed, truth = write_people(corpus, users, words, output)
    flags = frequency_flags(
        people, listed, users, epsilon, max_local_epsilon, delta, output / "release"
    )
    console.print(Panel(_story(corpus, users, words, people, truth), title="The data"))
    again = ["--overwrite"] * overwrite + ["--no-mlflow"] * no_mlflow
    code, result = run_shown(console, PROGRAM, flags, again, truth)
    if result is not None:
        _say_coverage(console, result, truth)
        _say_statement(console, result)
        _say_where(console, output, result)
        console.print(f"[dim]All of it took {time.monotonic() - started:.0f} s.[/dim]")
        _say_next(console)
    if result is not None and form == "json":
        print(json.dumps(as_json(result), indent=2, ensure_ascii=False))
    return code


def frequency_flags(
    people: Path,
    listed: Path,
    users: int,
    epsilon: float,
    max_local_epsilon: float,
    delta: float,
    output: Path,
) -> list[str]:
    """What one would type for data of one's own."""
    return [
        f"--input={people}", "--column=word", "--user-id=user_id",
        f"--domain={listed}", f"--other-label={OTHER}",
        f"--epsilon={epsilon:g}", f"--max-local-epsilon={max_local_epsilon:g}",
        f"--delta={delta:g}", f"--expected-users={users}",
        f"--output={output}", "--dataset=simulated people, real English word counts",
        "--mlflow-experiment=beam-ldp demo",
    ]  # fmt: skip


def _story(corpus: Corpus, users: int, words: int, people: Path, truth: np.ndarray) -> str:
    share = truth[-1] / users
    return (
        f"{users:,} simulated people each hold one English word, drawn from the real counts of "
        f"{len(corpus.words):,} words. They are in {escape(str(people))}.\n"
        f"The public list has the {words:,} words that are most frequent in real text; the other "
        f"{len(corpus.words) - words:,} words are reported as `{OTHER}`, which "
        f"{share:.1%} of people hold.\n"
        "The truth in what follows is the share of a word in real text."
    )


def _say_coverage(console: Console, result: RunResult, truth: np.ndarray) -> None:
    """How many of all intervals hold the truth, beside how many should."""
    estimate = result.view.release.estimate.to_counts()
    low, high = estimate.confidence_interval(0.95)
    holds = int(np.count_nonzero((low <= truth) & (truth <= high)))
    total = len(truth)
    expected, spread = 0.95 * total, 2 * math.sqrt(total * 0.95 * 0.05)
    top = result.view.top
    listed = (
        0 if top.truth is None else int(np.sum((top.low <= top.truth) & (top.truth <= top.high)))
    )
    console.print(
        "\n"
        f"[bold]Are the intervals honest?[/bold] Of all {total:,} pointwise 95 % intervals, "
        f"{holds:,} hold the truth ({holds / total:.1%}); about {expected:,.0f} should, give or "
        f"take {spread:,.0f}. Of the {len(top.labels)} in the table, which hold for all words at "
        f"once, {listed} do. A typical error of a rare word is "
        f"{np.median(estimate.standard_error):,.0f} people.\n"
    )


def _say_statement(console: Console, result: RunResult) -> None:
    console.print(Panel(Markdown(statement(result.record.told())), title="privacy.md"))


def _say_where(console: Console, output: Path, result: RunResult) -> None:
    """What lies where, and how to look at it."""
    console.print(f"[bold]Files of the demo[/bold] in {escape(str(output))}")
    for name, purpose in (
        ("people.parquet", "the simulated people: the raw data, which a real deployment never has"),
        ("words.txt", "the public list"),
        ("release/", "the result: open plot.png and privacy.md first"),
    ):
        console.print(f"  {name.ljust(15)} [dim]{purpose}[/dim]")
    if result.logged is not None:
        console.print("[bold]The MLflow run[/bold] (a SQLite file, no server needed):")
        console.print(f"  {escape(result.logged.ui_command)}", soft_wrap=True)
        console.print("  then open http://127.0.0.1:5000, experiment `beam-ldp demo`")


def _say_next(console: Console) -> None:
    """What to type for a file of one's own, with the path by which this program is found."""
    console.print(
        "\n[bold]Next, your own file[/bold]: a column of it, and the public list of the values to "
        "count. This plans and checks, and reads no value; without --dry-run it runs."
    )
    command = (
        f"{_program()} frequency --input YOUR.csv --column NAME --domain LIST.txt "
        "--epsilon 1 --max-local-epsilon 6 --delta 1e-8 --expected-users 1e6 --output out --dry-run"
    )
    console.print(f"[green]{escape(command)}[/green]", soft_wrap=True)


def _program() -> str:
    """How the program that runs is called from here."""
    running = Path(sys.argv[0])
    on_path = shutil.which("beam-ldp")
    if running.name != "beam-ldp" or (on_path and running.samefile(on_path)):
        return "beam-ldp"
    return os.path.relpath(running)
