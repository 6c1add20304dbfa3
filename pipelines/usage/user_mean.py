"""What `beam-ldp user-mean` says of itself."""

from __future__ import annotations

import argparse
from typing import Any

from beam_ldp.pipelines.flags import (
    DATA,
    MECHANISM,
    OUTPUT,
    Groups,
    positive_number,
    whole_number,
    with_own,
)
from beam_ldp.pipelines.usage import Usage
from beam_ldp.pipelines.usage.mean import COLUMNS
from beam_ldp.pipelines.usage.mean import FLAGS as OF_MEAN


def numbers(text: str) -> tuple[float, ...]:
    """`60` or `60,800`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number, or one per column, separated by commas, got {text}"
        ) from None


# The plan of both rounds chooses the mechanisms.
_NOT_HERE = ("--mechanism", "--max-bits")

_OWN: dict[str, dict[str, Any]] = {
    DATA: {
        "--column": {"metavar": "NAME", "help": "column of numbers; short for --columns with one "
        "name"},
        **COLUMNS,
        "--user-id": {
            "metavar": "NAME",
            "help": "column with the user id: all rows of a person are replaced by their mean",
        },
        "--range": OF_MEAN[DATA]["--range"]
        | {"help": "every number lies in this public range; numbers outside are clipped to it"},
        "--ranges": OF_MEAN[DATA]["--ranges"],
        "--radius": {
            "type": positive_number, "metavar": "R",
            "help": "instead of ranges: bound on the Euclidean norm of every row",
        },
        "--bad-rows": OF_MEAN[DATA]["--bad-rows"],
        "--rows-per-user": {
            "type": whole_number, "default": 1, "metavar": "M",
            "help": "smallest number of rows per person (default 1); people with fewer count as "
            "--outliers. The more rows, the closer people's means lie together, and the less noise "
            "is needed",
        },
        "--sigma": {
            "type": numbers, "metavar": "S",
            "help": "how far rows lie from their person's own mean: a sub-Gaussian parameter in "
            "the units of the data, or one per column, separated by commas (default: what the "
            "range implies)",
        },
        "--user-sigma": {
            "type": numbers, "default": (0.0,), "metavar": "S",
            "help": "how far people's own means lie from each other, likewise (default 0: all rows "
            "of all people come from one population)",
        },
        "--outliers": {
            "type": float, "default": 0.0, "metavar": "SHARE",
            "help": "share of people about whom nothing is assumed, in [0, 1/3) (default 0); the "
            "bias that clipping them can cause is included in every interval",
        },
        "--failure-probability": {
            "type": float, "default": 0.01, "metavar": "P",
            "help": "probability that round one fails people who are as assumed (default 0.01); it "
            "is deducted from the level of the intervals",
        },
    },
    MECHANISM: {
        "--model": OF_MEAN[MECHANISM]["--model"],
        "--split": {
            "choices": ["auto", "budget", "users"], "default": "auto",
            "help": "with --local-epsilon: everybody answers both rounds, each with part of the "
            "budget, or each person answers one round with all of it; auto takes the more accurate "
            "one. The fewer people of the first round hide each other less: compare the privacy "
            "cost of both rounds",
        },
    },
    OUTPUT: {name: OF_MEAN[OUTPUT][name] for name in ("--top", "--shape")},
}  # fmt: skip

FLAGS: Groups = {
    title: {name: how for name, how in flags.items() if name not in _NOT_HERE}
    for title, flags in with_own(_OWN).items()
}

EXAMPLES = """examples:
  privacy cost and accuracy in advance (reads the names of columns, not rows)
    beam-ldp user-mean --input visits.csv --user-id uid --column minutes --range 0 1440 \\
        --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out --dry-run
  people have 30 rows or more, spread by about an hour: two rounds with far less noise
    beam-ldp user-mean --input visits.csv --user-id uid --column minutes --range 0 1440 \\
        --rows-per-user 30 --sigma 60 --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out
  the same, where people also differ by an hour, and one in a hundred may be anything
    beam-ldp user-mean ... --user-sigma 60 --outliers 0.01
  several columns at once, where only the device is trusted
    beam-ldp user-mean --input visits.csv --user-id uid --columns minutes,steps \\
        --ranges ranges.csv --rows-per-user 30 --model local --local-epsilon 4 \\
        --expected-users 1e5 --output out
"""

USAGE = Usage(
    name="user-mean",
    summary="The mean of people's numbers where each person has many rows. A person is protected "
    "with all of their rows: rows become one mean per person, a first round finds where these "
    "means lie, and a second one estimates with noise to match.",
    synopsis="--input PATH --user-id NAME --column NAME --range LOW HIGH --delta D "
    "(--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    examples=EXAMPLES,
    flags=FLAGS,
)
