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
        "--column": {"metavar": "NAME", "help": "column of numbers; short for --columns"},
        **COLUMNS,
        "--user-id": {
            "metavar": "NAME",
            "help": "column that says whose row it is: all rows of a person become their mean",
        },
        "--range": OF_MEAN[DATA]["--range"]
        | {"help": "every number lies in this public range; others are moved to its ends"},
        "--ranges": OF_MEAN[DATA]["--ranges"],
        "--radius": {
            "type": positive_number, "metavar": "R",
            "help": "instead of ranges: every row, taken as a vector, is at most so long (Euclid)",
        },
        "--bad-rows": OF_MEAN[DATA]["--bad-rows"],
        "--rows-per-user": {
            "type": whole_number, "default": 1, "metavar": "M",
            "help": "rows that a person has at least (default 1); of those with fewer, --outliers "
            "speaks. The more, the closer people's means lie together, and the less noise it takes",
        },
        "--sigma": {
            "type": numbers, "metavar": "S",
            "help": "how far rows lie from their person's own mean: a sub-Gaussian parameter, in "
            "the unit of the data; or one per column, separated by commas (default: what the range "
            "gives)",
        },
        "--user-sigma": {
            "type": numbers, "default": (0.0,), "metavar": "S",
            "help": "likewise, how far the persons' own means lie from each other (default 0: all "
            "rows of all people come from one population)",
        },
        "--outliers": {
            "type": float, "default": 0.0, "metavar": "SHARE",
            "help": "share of the people about whom nothing is supposed, in [0, 1/3) (default 0); "
            "what clipping them can shift is in every interval",
        },
        "--failure-probability": {
            "type": float, "default": 0.01, "metavar": "P",
            "help": "that round one fails people who are as supposed (default 0.01); it is taken "
            "out of the level of the intervals",
        },
    },
    MECHANISM: {
        "--model": OF_MEAN[MECHANISM]["--model"],
        "--split": {
            "choices": ["auto", "budget", "users"], "default": "auto",
            "help": "with --local-epsilon: everybody answers both rounds with a part of the "
            "budget, or each person one round with all of it; auto takes the more accurate. The "
            "few people of the first round hide less once they are shuffled: see both prices",
        },
    },
    OUTPUT: {name: OF_MEAN[OUTPUT][name] for name in ("--top", "--shape")},
}  # fmt: skip

FLAGS: Groups = {
    title: {name: how for name, how in flags.items() if name not in _NOT_HERE}
    for title, flags in with_own(_OWN).items()
}

EXAMPLES = """examples:
  what would it cost, and how accurate would it be? (looks at the columns' names, not at rows)
    beam-ldp user-mean --input visits.csv --user-id uid --column minutes --range 0 1440 \\
        --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out --dry-run
  people have 30 rows or more, spread by about an hour: two rounds, far less noise
    beam-ldp user-mean --input visits.csv --user-id uid --column minutes --range 0 1440 \\
        --rows-per-user 30 --sigma 60 --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out
  the same where people differ by an hour too, and one in a hundred is anything
    beam-ldp user-mean ... --user-sigma 60 --outliers 0.01
  several columns at once, nobody but the device trusted
    beam-ldp user-mean --input visits.csv --user-id uid --columns minutes,steps \\
        --ranges ranges.csv --rows-per-user 30 --model local --local-epsilon 4 \\
        --expected-users 1e5 --output out
"""

USAGE = Usage(
    name="user-mean",
    summary="The mean of people's numbers where each person has many rows. A person is protected "
    "with all of them: rows become one mean per person, a first round finds where those lie, a "
    "second one asks with noise to match.",
    synopsis="--input PATH --user-id NAME --column NAME --range LOW HIGH --delta D "
    "(--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    examples=EXAMPLES,
    flags=FLAGS,
)
