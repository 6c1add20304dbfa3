"""`beam-ldp demo`: a private word count over a million simulated people, from file to record.

`beam-ldp demo mean`: private means of real pictures and of three real tables, beside the truth.
Everything that runs here is what runs on real data: the same programs read the same kinds of files.
Only the people are simulated, and so the truth is known.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from beam_ldp.pipelines.flags import format_option, whole

if TYPE_CHECKING:
    from beam_ldp.pipelines.question import Question, RunResult


_COMMAND = TypeVar("_COMMAND", bound=Callable[..., Any])
OTHER = "(other)"
CORPUS = "frequency_dictionary_en_82_765.txt"
PEOPLE_SEED = 20_240_229  # of the simulated people; their noise is always fresh
ROW_GROUP = 1 << 17


@dataclass(frozen=True)
class Corpus:
    """Words with their counts in real text, most frequent first."""

    words: tuple[str, ...]
    counts: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        return self.counts / self.counts.sum()


def load_corpus() -> Corpus:
    """English words and how often each occurs in real text, from the package symspellpy.

    Raises:
        click.ClickException: if the package is not installed.
    """
    try:
        import symspellpy
    except ImportError:
        raise click.ClickException(
            "the demo's words come from the package symspellpy: pip install 'beam-ldp[demo]'"
        ) from None
    path = Path(symspellpy.__file__).parent / CORPUS
    lines = [line.split() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    lines.sort(key=lambda line: (-int(line[1]), line[0]))
    return Corpus(tuple(line[0] for line in lines), np.array([int(line[1]) for line in lines]))


def write_people(
    corpus: Corpus, users: int, domain_size: int, folder: Path
) -> tuple[Path, Path, np.ndarray]:
    """Simulated people, one word each, and the public list of words.

    Returns:
        Path of the people (Parquet), path of the list, and the truth: how many of so many people
        hold each listed word where all text is counted (`other` last). Estimates from one drawn row
        per person speak of the population that the people come from, and their intervals allow
        for that draw.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(PEOPLE_SEED)
    held = rng.choice(len(corpus.words), size=users, p=corpus.shares).astype(np.int32)
    ids = rng.permutation(users).astype(np.int64)
    words = pa.array(corpus.words)
    table = pa.table(
        {"user_id": ids, "word": pa.DictionaryArray.from_arrays(pa.array(held), words).cast("str")}
    )
    folder.mkdir(parents=True, exist_ok=True)
    people, listed = folder / "people.parquet", folder / "words.txt"
    pq.write_table(table, people, row_group_size=ROW_GROUP)
    listed.write_text("".join(f"{word}\n" for word in corpus.words[:domain_size]), "utf-8")
    shares = corpus.shares
    truth = np.append(shares[:domain_size], shares[domain_size:].sum()) * users
    return people, listed, truth


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
    sys.exit(run(Console(stderr=asked["form"] == "json"), **asked))


def _refuse_own_options(context: click.Context) -> None:
    """Options in front of another demo's name would be lost without a word."""
    for name in context.params:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(f"{flag} must follow `{context.invoked_subcommand}`", context)


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
    from beam_ldp.pipelines.frequency import Frequency
    from beam_ldp.pipelines.run import as_json

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
    code, result = _run(console, Frequency, flags, again, truth)
    if result is not None:
        say_coverage(console, result, truth)
        _say_statement(console, result)
        say_where(console, output, result)
        console.print(f"[dim]All of it took {time.monotonic() - started:.0f} s.[/dim]")
        _say_next(console)
    if result is not None and form == "json":
        print(json.dumps(as_json(result), indent=2, ensure_ascii=False))
    return code


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


def _run(
    console: Console,
    program: type[Question[Any]],
    flags: Sequence[str],
    more: Sequence[str],
    truth: np.ndarray,
) -> tuple[int, RunResult | None]:
    """A program on flags that are shown, and on `more`; its exit code and its result."""
    from beam_ldp.pipelines.run import run_flags

    console.print("[bold]What runs now[/bold], and what you would type for your own data:")
    typed = [flag if _is_range(flag) else shlex.quote(flag) for flag in flags]
    shown = " \\\n    ".join([f"beam-ldp {program.usage.name}", *typed])
    console.print(f"[green]{escape(shown)}[/green]\n", soft_wrap=True)
    words = [word for flag in flags for word in (flag.split() if _is_range(flag) else [flag])]
    return run_flags(program, [*words, *more], console, truth)


def _is_range(flag: str) -> bool:
    """Whether it is the one flag whose values stand apart."""
    return flag.startswith("--range ")


def say_coverage(console: Console, result: RunResult, truth: np.ndarray) -> None:
    """How many of all intervals hold the truth, beside how many should."""
    estimate = result.answer.release.estimate.to_counts()
    low, high = estimate.confidence_interval(0.95)
    holds = int(np.count_nonzero((low <= truth) & (truth <= high)))
    total = len(truth)
    expected, spread = 0.95 * total, 2 * math.sqrt(total * 0.95 * 0.05)
    top = result.answer.top  # type: ignore[attr-defined]
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
    from rich.markdown import Markdown

    from beam_ldp.pipelines.records.statement import privacy_statement

    console.print(Panel(Markdown(privacy_statement(result.record)), title="privacy.md"))


def say_where(console: Console, output: Path, result: RunResult) -> None:
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
    sys.exit(run_means(Console(stderr=asked["form"] == "json"), **asked))


def run_means(
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
    from beam_ldp.pipelines.mean import Mean
    from beam_ldp.pipelines.run import as_json

    started = time.monotonic()
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise click.UsageError(f"--output {output} holds an earlier demo; --overwrite replaces it")
    with console.status(f"simulating {users:,} people, four times"):
        asked = examples(users, epsilon, max_local_epsilon, delta, output)
    again = ["--overwrite"] * overwrite + ["--no-mlflow"] * no_mlflow
    told = []
    for example in asked:
        console.print(Panel(example.story, title=example.title))
        code, result = _run(console, Mean, example.flags, again, example.truth)
        if result is None:
            return code
        say_means_coverage(console, result)
        told.append(as_json(result))
    _say_means_files(console, output, asked)
    console.print(f"[dim]All of it took {time.monotonic() - started:.0f} s.[/dim]")
    if form == "json":
        print(json.dumps({"schema_version": 1, "releases": told}, indent=2, ensure_ascii=False))
    return 0


def say_means_coverage(console: Console, result: RunResult) -> None:
    """How many of the intervals hold the truth, beside how many should."""
    estimate, truth = result.answer.release.estimate, result.answer.truth
    assert truth is not None
    low, high = estimate.confidence_interval(0.95)
    total, holds = len(truth), int(np.count_nonzero((low <= truth) & (truth <= high)))
    at_once = int(np.count_nonzero(result.answer.view.held))  # type: ignore[attr-defined]
    spread = 2 * math.sqrt(total * 0.95 * 0.05)
    console.print(
        "\n"
        f"[bold]Are the intervals honest?[/bold] Of the {total} pointwise 95 % intervals of "
        f"estimates.csv, {holds} hold the truth; about {0.95 * total:.0f} should, give or take "
        f"{spread:.0f}, or more where errors are for worse values than these. Of the {total} that "
        f"hold all at once, {at_once} do.\n"
    )


def _say_means_files(console: Console, output: Path, asked: Sequence[Example]) -> None:
    console.print(f"[bold]Files of the demo[/bold] in {escape(str(output))}")
    for example in asked:
        for name, purpose in example.files.items():
            console.print(f"  {name.ljust(16)} [dim]{purpose}[/dim]")


demo.add_command(demo_mean)


# The simulated people of `demo mean`, and the questions they are asked ----------------------------
#
# Each person holds a row, or a picture, drawn with replacement from real data of packages:
# scikit-learn's handwritten digits and diabetes patients; statsmodels' survey on marriages (Fair
# 1978, 6,366 answers) and the RAND health insurance experiment (20,190 years of insured people).


PEOPLE_SEED = 20_240_301  # of the simulated people; their noise is always fresh
BRIGHTEST = 16

Ranges = dict[str, tuple[float, float]]
# Public ranges: what one would say of such people without looking at these.
PATIENTS: Ranges = {
    "age": (18, 100), "bmi": (10, 60), "blood_pressure": (40, 160),
    "cholesterol": (50, 400), "hdl": (0, 120), "blood_sugar": (40, 200),
}  # fmt: skip
SURVEY: Ranges = {
    "happy_marriage": (1, 5), "religious": (1, 4), "years_married": (0, 25),
    "children": (0, 6), "had_affair": (0, 1),
}  # fmt: skip
INSURED: Ranges = {
    "doctor_visits": (0, 80), "limited": (0, 1), "chronic_diseases": (0, 60),
    "fair_or_poor_health": (0, 1),
}  # fmt: skip


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


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise click.ClickException(
            f"the data of the demo comes from {package}: pip install 'beam-ldp[demo]'"
        ) from None


def _drawn(rows: np.ndarray, users: int, salt: int) -> np.ndarray:
    """One real row for each simulated person."""
    rng = np.random.default_rng((PEOPLE_SEED, salt))
    return rows[rng.integers(0, len(rows), users)]


def patients() -> np.ndarray:
    """442 patients: the columns of `PATIENTS`."""
    table = _module("sklearn.datasets", "scikit-learn").load_diabetes(scaled=False)
    named = dict(zip(table.feature_names, table.data.T))
    return np.column_stack([named[name] for name in ("age", "bmi", "bp", "s1", "s3", "s6")])


def survey() -> np.ndarray:
    """6,366 answers about a marriage: the columns of `SURVEY`; affairs only as whether."""
    table = _module("statsmodels.api", "statsmodels").datasets.fair.load_pandas().data
    answers = table[["rate_marriage", "religious", "yrs_married", "children"]]
    return np.column_stack([answers.to_numpy(), table["affairs"] > 0])


def insured() -> np.ndarray:
    """20,190 years of insured people: the columns of `INSURED`."""
    table = _module("statsmodels.api", "statsmodels").datasets.randhie.load_pandas().data
    poor = table["hlthf"] + table["hlthp"]
    return np.column_stack([table[["mdvis", "physlm", "disea"]].to_numpy(), poor])


def write_pictures(users: int, folder: Path) -> tuple[Path, np.ndarray]:
    """People with one handwritten digit each, 8 x 8 pixels from 0 to 16, as Parquet.

    Returns:
        The file, and the mean image of these people.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    digits = _module("sklearn.datasets", "scikit-learn").load_digits().data
    images = _drawn(digits.astype(np.uint8), users, 1)
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(images.ravel()), images.shape[1])
    path = folder / "pictures.parquet"
    pq.write_table(pa.table({"user_id": np.arange(users), "pixels": pixels}), path)
    return path, images.mean(axis=0)


def write_rows(
    name: str, rows: np.ndarray, ranges: Ranges, users: int, salt: int, folder: Path
) -> tuple[Path, Path, np.ndarray]:
    """People with one row of a table each, as CSV, and the public ranges of its columns.

    Returns:
        The file, the file of ranges, and the mean row of these people.
    """
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    held = _drawn(rows, users, salt)
    people, public = folder / f"{name}.csv", folder / f"{name}-ranges.csv"
    pa_csv.write_csv(pa.table({"user_id": np.arange(users), **dict(zip(ranges, held.T))}), people)
    listed = [f"{column},{low},{high}\n" for column, (low, high) in ranges.items()]
    public.write_text("column,low,high\n" + "".join(listed), "utf-8")
    return people, public, held.mean(axis=0)


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
