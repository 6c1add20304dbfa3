"""What all tables of estimates have in common: what an estimate is about, and how far it is off."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as pa_csv

from beam_ldp.randomizers.estimate import Estimate

LEVEL = 0.95  # of every interval

PLACE = (  # what an estimate is about
    ("question", pa.string()),
    ("group", pa.string()),
    ("window_start", pa.timestamp("us", tz="UTC")),
    ("window_end", pa.timestamp("us", tz="UTC")),
)


def place_columns(
    num_rows: int, question: str, group: str | None, window: tuple[int, int] | None
) -> dict[str, Any]:
    """The columns of `PLACE`, the same in every row.

    Args:
        num_rows: how many rows.
        question, group: public names.
        window: start and end in microseconds since 1970; None for all of the input.
    """
    values = (question, group, *(window if window is not None else (None, None)))
    return {name: [value] * num_rows for (name, _), value in zip(PLACE, values)}


def errors_against(estimate: Estimate, truth: np.ndarray) -> dict[str, float]:
    """How far an estimate is from a known truth, for simulations and tests."""
    low, high = estimate.confidence_interval(LEVEL)
    off = estimate.value - truth
    return {
        "error.root_mean_square": float(np.sqrt(np.mean(off**2))),
        "error.largest": float(np.abs(off).max()),
        "error.intervals_that_hold": float(np.mean((low <= truth) & (truth <= high))),
    }


def as_csv(table: pa.Table) -> bytes:
    """UTF-8 with a header; nulls are empty, text is quoted where it must be."""
    stream = io.BytesIO()
    pa_csv.write_csv(table, stream, pa_csv.WriteOptions(quoting_style="needed"))
    return stream.getvalue()
