"""`beam-ldp demo mean`: private means of what people hold, of pictures and of tables."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from beam_ldp.pipelines.demos.shown import run_shown
from beam_ldp.pipelines.demos.tables import (
    BRIGHTEST,
    INSURED,
    PATIENTS,
    SURVEY,
    Ranges,
    insured,
    patients,
    survey,
    write_pictures,
    write_rows,
)
from beam_ldp.pipelines.mean import PROGRAM
from beam_ldp.release.run import RunResult
from beam_ldp.release.runner import as_json


def run(
    console: Console,
    output: Path,
    overwrite: bool,
    no_mlflow: bool,
    users: int,
    epsilon: float,
    max_local_epsilon: float,
    delta: float,
    form: str = "table",
) -> int:
    """The demo; gives the exit code."""
    started = time.monotonic()
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise click.UsageError(f"--output {output} holds an earlier demo; --overwrite replaces it")
    with console.status(f"simulating {users:,} people, four times"):
        asked = examples(users, epsilon, max_local_epsilon, delta, output)
    again = ["--overwrite"] * overwrite + ["--no-mlflow"] * no_mlflow
    told = []
    for example in asked:
        console.print(Panel(example.story, title=example.title))
        code, result = run_shown(console, PROGRAM, example.flags, again, example.truth)
        if result is None:
            return code
        _say_coverage(console, result)
        told.append(as_json(result))
    _say_files(console, output, asked)
    console.print(f"[dim]All of it took {time.monotonic() - started:.0f} s.[/dim]")
    if form == "json":
        print(json.dumps({"schema_version": 1, "releases": told}, indent=2, ensure_ascii=False))
    return 0


def _say_coverage(console: Console, result: RunResult) -> None:
    """How many of the intervals hold the truth, beside how many should."""
    estimate, truth = result.view.release.estimate, result.view.truth
    assert truth is not None
    low, high = estimate.confidence_interval(0.95)
    total, holds = len(truth), int(np.count_nonzero((low <= truth) & (truth <= high)))
    at_once = int(np.count_nonzero(result.view.shown.held))  # type: ignore[attr-defined]
    spread = 2 * math.sqrt(total * 0.95 * 0.05)
    console.print(
        "\n"
        f"[bold]Are the intervals honest?[/bold] Of the {total} pointwise 95 % intervals of "
        f"estimates.csv, {holds} hold the truth; about {0.95 * total:.0f} should, give or take "
        f"{spread:.0f}, or more where errors are for worse values than these. Of the {total} that "
        f"hold all at once, {at_once} do.\n"
    )


def _say_files(console: Console, output: Path, asked: Sequence[Example]) -> None:
    console.print(f"[bold]Files of the demo[/bold] in {escape(str(output))}")
    for example in asked:
        for name, purpose in example.files.items():
            console.print(f"  {name.ljust(16)} [dim]{purpose}[/dim]")


@dataclass(frozen=True)
class Example:
    """One of the questions.

    Attributes:
        title, story: what the data are.
        flags: what one would type for data of one's own.
        truth: the mean over the simulated people.
        files: the folder of the results, and the files of people and ranges, with what they are.
    """

    title: str
    story: str
    flags: tuple[str, ...]
    truth: np.ndarray
    files: dict[str, str]


def examples(
    users: int, epsilon: float, max_local_epsilon: float, delta: float, folder: Path
) -> tuple[Example, ...]:
    """All questions, their people written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    demo = _Demo(users, epsilon, max_local_epsilon, delta, folder)
    return (
        demo.pictures(),
        demo.table(
            "patients", "A medical table: six numbers, each in its own unit",
            "the row of one of 442 real patients. Here the most accurate mechanism may run, "
            "whatever it promises before the shuffle: many messages per person, each shuffled on "
            "its own.", patients(), PATIENTS, 2,
        ),
        demo.table(
            "survey", "A survey: what people would rather not say with their name to it",
            "the answers of one of 6,366 real readers of a magazine about their marriage, among "
            "them whether they had an affair. Here too a local epsilon is promised.",
            survey(), SURVEY, 3, demo.promise,
        ),
        demo.table(
            "insured", "Health insurance: doctor visits and health in a year",
            "one of 20,190 real years of insured people.", insured(), INSURED, 4,
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class _Demo:
    """What all questions share: how many people, what it may cost, where their files lie."""

    users: int
    epsilon: float
    max_local_epsilon: float
    delta: float
    folder: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return (
            "--user-id=user_id", "--one-row-each", f"--epsilon={self.epsilon:g}",
            f"--delta={self.delta:g}", f"--expected-users={self.users}",
            "--mlflow-experiment=beam-ldp demo",
        )  # fmt: skip

    @property
    def promise(self) -> str:
        """The flag that promises people a local epsilon."""
        return f"--max-local-epsilon={self.max_local_epsilon:g}"

    def pictures(self) -> Example:
        """People with pictures."""
        path, truth = write_pictures(self.users, self.folder)
        return Example(
            "Pictures: 64 numbers of one kind",
            f"{self.users:,} simulated people each hold one of 1,797 real handwritten digits of "
            f"8 x 8 pixels. They are in {escape(str(path))}, as lists.\n"
            f"Nobody is promised less than a local epsilon of {self.max_local_epsilon:g}: every "
            "image is noise to whoever sees it alone.",
            (f"--input={path}", "--column=pixels", f"--range 0 {BRIGHTEST}", *self.flags,
             self.promise,
             f"--output={self.folder / 'pictures'}", "--dataset=simulated people, real digits"),
            truth,
            {"pictures.parquet": "raw data, which a real deployment never has",
             "pictures/": "the mean image: open plot.png and privacy.md"},
        )  # fmt: skip

    def table(
        self,
        name: str,
        title: str,
        story: str,
        rows: np.ndarray,
        ranges: Ranges,
        salt: int,
        *more: str,
    ) -> Example:
        """People with a row of a table; `more`: flags of this question alone."""
        people, public, truth = write_rows(name, rows, ranges, self.users, salt, self.folder)
        return Example(
            title,
            f"{self.users:,} simulated people each hold {story} They are in {escape(str(people))}; "
            f"public ranges of the columns are in {escape(str(public))}.",
            (f"--input={people}", f"--column={','.join(ranges)}", f"--ranges={public}",
             *self.flags, *more, f"--output={self.folder / name}",
             f"--dataset=simulated people, real {name}"),
            truth,
            {f"{name}.csv": f"raw data; {name}-ranges.csv holds the public ranges",
             f"{name}/": "the mean row: likewise"},
        )  # fmt: skip
