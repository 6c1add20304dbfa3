"""What `beam-ldp mean` says of itself."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING

from beam_ldp.pipelines.flags import (
    DATA,
    MECHANISM,
    OUTPUT,
    Flags,
    positive_number,
    whole_number,
    with_own,
)
from beam_ldp.pipelines.usage import Usage

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.balls import Norm

NORMS: tuple[Norm, ...] = ("l2", "l1", "linf", "binary")


def norm_of(text: str) -> Norm | float:
    """A norm by its name, or as the p of an l_p norm."""
    for name in NORMS:
        if text == name:
            return name
    with suppress(ValueError):
        if (power := float(text)) >= 1:
            return power
    raise argparse.ArgumentTypeError(f"must be {', '.join(NORMS)} or a number >= 1, got {text}")


COLUMNS: Flags = {
    "--columns": {
        "action": "append", "metavar": "NAMES",
        "help": "columns of numbers, one per coordinate: names or globs, separated by commas; may "
        "be repeated. Or a single column of lists",
    },
    "--dimension": {
        "type": whole_number, "metavar": "D",
        "help": "length of the lists, where the files do not say",
    },
}  # fmt: skip

FLAGS = with_own(
    {
        DATA: {
            **COLUMNS,
            "--norm": {
                "type": norm_of, "metavar": "[l2|l1|linf|binary|P]",
                "help": "what --radius bounds: Euclidean length (l2, the default), the sum of "
                "absolute values (l1), each number (linf), the l_P norm; binary: numbers 0 and 1",
            },
            "--radius": {
                "type": positive_number, "metavar": "R",
                "help": "the bound on that norm, in the units of the data; public, never taken "
                "from the data",
            },
            "--range": {
                "nargs": 2, "type": float, "metavar": ("LOW", "HIGH"),
                "help": "instead of --norm and --radius: every number lies in this public range",
            },
            "--ranges": {
                "metavar": "FILE",
                "help": "instead of --range: a CSV file of column,low,high with a public range for "
                "each column",
            },
            "--one-row-each": {
                "action": "store_true", "default": False,
                "help": "declares that every --user-id has one row, so that errors need not allow "
                "for drawing a row; one report per person is sent in any case",
            },
            "--outside": {
                "choices": ["clip", "raise"], "default": "clip",
                "help": "values outside those bounds: clipped to the bound on the device, "
                "uncounted; or stop the run",
            },
            "--bad-rows": {
                "choices": ["dead-letter", "zero"], "default": "dead-letter",
                "help": "what happens to rows that cannot be used: they are listed in "
                "bad_rows.jsonl, or reported as zero (the middle of the ranges) without a trace",
            },
        },
        MECHANISM: {
            "--mechanism": {
                "default": "auto", "metavar": "NAME",
                "help": "name of a mean mechanism (PACKAGE:CLASS for one of your own), or auto for "
                "the most accurate one (see `beam-ldp plan mean`)",
            },
            "--model": {
                "choices": ["shuffle", "local"], "default": "shuffle",
                "help": "who is trusted: a shuffler, or only the device itself (local); --epsilon "
                "is then the local epsilon and needs no --delta",
            },
        },
        OUTPUT: {
            "--top": {
                "type": whole_number, "default": 20, "metavar": "N",
                "help": "number of coordinates in the printed table (default 20)",
            },
            "--shape": {
                "metavar": "HxW",
                "help": "the coordinates are the pixels of an image, row by row: plot the mean as "
                "an image",
            },
        },
    }
)  # fmt: skip

EXAMPLES = """examples:
  privacy cost and accuracy in advance (reads the names of columns, not rows)
    beam-ldp mean --input vectors.parquet --columns 'f*' --norm l2 --radius 1 \\
        --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out --dry-run
  numbers in different units: a file of public ranges (column,low,high)
    beam-ldp mean --input people.csv --columns age,bmi,charges --ranges ranges.csv \\
        --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out
  one number per person between 0 and 1440, with a local epsilon of at most 4
    beam-ldp mean --input visits.csv --columns minutes --user-id uid --range 0 1440 \\
        --epsilon 1 --max-local-epsilon 4 --delta 1e-8 --expected-users 1e5 --output out
  images of 28 x 28 in one column of lists; only the device is trusted
    beam-ldp mean --input images.parquet --columns pixels --norm l2 --radius 28 --shape 28x28 \\
        --model local --epsilon 4 --expected-users 1e5 --output out
  on a cluster (all of Beam's flags are understood)
    beam-ldp mean ... --runner=SparkRunner --job_endpoint=host:8099 --environment_type=LOOPBACK
"""

USAGE = Usage(
    name="mean",
    summary="The mean of vectors of numbers, one per person. Every person's vector is randomized "
    "before anything is added up; the result has honest error bars and a stated privacy cost.",
    synopsis="--input PATH --columns NAMES (--norm NORM --radius R | --range LOW HIGH | --ranges "
    "FILE) --delta D (--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    examples=EXAMPLES,
    flags=FLAGS,
)
