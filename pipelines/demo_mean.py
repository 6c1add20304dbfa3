"""`beam-ldp demo mean`: private means of real images and of a real medical table, beside the truth.

Only the people are simulated: each of them holds an image, or a patient's row, drawn from data
that scikit-learn ships. What runs is what runs on anybody's data.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from beam_ldp.pipelines.plan import whole

if TYPE_CHECKING:
    from beam_ldp.pipelines.question import Result

PEOPLE_SEED = 20_240_301  # of the simulated people; their noise is always fresh
BRIGHTEST = 16
# Public ranges: what a doctor would say without looking at these patients.
RANGES = {
    "age": (18, 100), "bmi": (10, 60), "blood_pressure": (40, 160),
    "cholesterol": (50, 400), "hdl": (0, 120), "blood_sugar": (40, 200),
}  # fmt: skip
_IN_SKLEARN = ("age", "bmi", "bp", "s1", "s3", "s6")


@dataclass(frozen=True)
class Example:
    """One of the two questions.

    Attributes:
        title, story: what the data are.
        flags: what one would type for data of one's own.
        truth: the mean over the simulated people.
    """

    title: str
    story: str
    flags: tuple[str, ...]
    truth: np.ndarray


def _loaded(name: str, **how: Any) -> Any:
    try:
        from sklearn import datasets
    except ImportError:
        raise click.ClickException(
            "the demo's images and patients come from scikit-learn: pip install scikit-learn"
        ) from None
    return getattr(datasets, name)(**how)


def _drawn(rows: np.ndarray, users: int, salt: int) -> np.ndarray:
    """One real row for each simulated person."""
    rng = np.random.default_rng((PEOPLE_SEED, salt))
    return rows[rng.integers(0, len(rows), users)]


def write_pictures(users: int, folder: Path) -> tuple[Path, np.ndarray]:
    """People with one handwritten digit each, 8 x 8 pixels from 0 to 16, as Parquet.

    Returns:
        The file, and the mean image of these people.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = _drawn(_loaded("load_digits").data.astype(np.uint8), users, 1)
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(images.ravel()), images.shape[1])
    path = folder / "pictures.parquet"
    pq.write_table(pa.table({"user_id": np.arange(users), "pixels": pixels}), path)
    return path, images.mean(axis=0)


def write_patients(users: int, folder: Path) -> tuple[Path, Path, np.ndarray]:
    """People with one row of a medical table each, as CSV, and the public ranges of its columns.

    Returns:
        The file, the file of ranges, and the mean row of these people.
    """
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    table = _loaded("load_diabetes", scaled=False)
    columns = [table.feature_names.index(name) for name in _IN_SKLEARN]
    rows = _drawn(table.data[:, columns], users, 2)
    people, ranges = folder / "patients.csv", folder / "ranges.csv"
    named = {"user_id": np.arange(users), **dict(zip(RANGES, rows.T))}
    pa_csv.write_csv(pa.table(named), people)
    listed = [f"{name},{low},{high}\n" for name, (low, high) in RANGES.items()]
    ranges.write_text("column,low,high\n" + "".join(listed), "utf-8")
    return people, ranges, rows.mean(axis=0)


def examples(
    users: int, epsilon: float, max_local_epsilon: float, delta: float, folder: Path
) -> tuple[Example, Example]:
    """Both questions, their people written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures, mean_image = write_pictures(users, folder)
    patients, ranges, mean_row = write_patients(users, folder)
    shared = (
        "--user-id=user_id", "--one-row-each", f"--epsilon={epsilon:g}", f"--delta={delta:g}",
        f"--expected-users={users}", "--mlflow-experiment=beam-ldp demo",
    )  # fmt: skip
    return (
        Example(
            "Pictures: 64 numbers of one kind",
            f"{users:,} simulated people each hold one of 1,797 real handwritten digits of 8 x 8 "
            f"pixels. They are in {escape(str(pictures))}, as lists.\n"
            f"Nobody is promised less than a local epsilon of {max_local_epsilon:g}: every image "
            "is noise to whoever sees it alone.",
            (f"--input={pictures}", "--columns=pixels", f"--range 0 {BRIGHTEST}", *shared,
             f"--max-local-epsilon={max_local_epsilon:g}",
             f"--output={folder / 'pictures'}", "--dataset=simulated people, real digits"),
            mean_image,
        ),
        Example(
            "A table: six numbers, each in its own unit",
            f"{users:,} simulated people each hold the row of one of 442 real patients. They are "
            f"in {escape(str(patients))}; public ranges of the columns are in "
            f"{escape(str(ranges))}.\n"
            "Here the most accurate mechanism may run, whatever it promises before the shuffle: "
            "many messages per person, each shuffled on its own.",
            (f"--input={patients}", f"--columns={','.join(RANGES)}", f"--ranges={ranges}", *shared,
             f"--output={folder / 'table'}", "--dataset=simulated people, real patients"),
            mean_row,
        ),
    )  # fmt: skip


@click.command("mean", short_help="Private means of real images and of a medical table.")
@click.option("--output", type=click.Path(path_type=Path), default="demo-mean", show_default=True,
              help="folder for the simulated people and the results")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="replace the files of an earlier demo")
@click.option("--users", type=whole, default="1e5", show_default=True, help="simulated people")
@click.option("--epsilon", default=1.0, show_default=True, help="central price to aim at")
@click.option("--max-local-epsilon", default=5.0, show_default=True,
              help="promise no less to a person with a picture than this")  # fmt: skip
@click.option("--delta", default=1e-8, show_default=True, help="of the central price")
@click.option("--no-mlflow", is_flag=True, help="do not log to MLflow")
def demo_mean(output: Path, overwrite: bool, no_mlflow: bool, **target: Any) -> None:
    """Private means of real images and of a real medical table, beside the truth.

    Simulated people each hold one handwritten digit, or one patient's row, of data that
    scikit-learn ships. Then runs what `beam-ldp mean` runs on anybody's data.

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
    folders = [output / name for name in ("pictures", "table")]
    if any(folder.exists() for folder in folders) and not overwrite:
        raise click.UsageError(f"--output {output} holds an earlier demo; --overwrite replaces it")
    with console.status(f"simulating {users:,} people, twice"):
        both = examples(users, epsilon, max_local_epsilon, delta, output)
    for example in both:
        code, result = _ask(console, example, overwrite, no_mlflow)
        if result is None:
            return code
        say_coverage(console, result)
    _say_where(console, output)
    console.print(f"[dim]All of it took {time.monotonic() - started:.0f} s.[/dim]")
    return 0


def _ask(
    console: Console, example: Example, overwrite: bool, no_mlflow: bool
) -> tuple[int, Result | None]:
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


def say_coverage(console: Console, result: Result) -> None:
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


def _say_where(console: Console, output: Path) -> None:
    console.print(f"[bold]Files of the demo[/bold] in {escape(str(output))}")
    for name, purpose in (
        ("pictures.parquet", "the raw data, which a real deployment never has"),
        ("patients.csv", "likewise; ranges.csv holds the public ranges"),
        ("pictures/", "the mean image: open plot.png and privacy.md"),
        ("table/", "the mean row: likewise"),
    ):
        console.print(f"  {name.ljust(16)} [dim]{purpose}[/dim]")
