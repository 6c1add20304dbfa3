"""What `beam-ldp user-mean` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from beam_ldp.pipelines.usage.mean import MeanQuestion
from beam_ldp.settings.fields import NUMBER, WHOLE, Kind, setting
from beam_ldp.settings.sections import (
    Charge,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)
from beam_ldp.settings.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage


def _numbers(value: Any) -> tuple[float, ...]:
    """`60`, `60,800` or a list."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(float(part) for part in parts)


NUMBERS = Kind(
    "a number, or one per column, separated by commas", _numbers,
    {"anyOf": [{"type": "number"}, {"type": "string"},
               {"type": "array", "items": {"type": "number"}}]},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class UserMeanQuestion(MeanQuestion):
    """The mean of people's own means, where each person has many rows."""

    rows_per_user: int = setting(
        1,
        "smallest number of rows per person (default 1); people with fewer count as "
        "{question.outliers}. The more rows, the closer people's means lie together, "
        "and the less noise is needed",
        WHOLE, flag="rows-per-user", metavar="M", basic=True,
    )  # fmt: skip
    sigma: tuple[float, ...] | None = setting(
        None,
        "how far rows lie from their person's own mean: a sub-Gaussian parameter in the"
        " units of the data, or one per column, separated by commas (default: what the "
        "range implies)",
        NUMBERS, flag="sigma", metavar="S", basic=True,
    )  # fmt: skip
    user_sigma: tuple[float, ...] = setting(
        (0.0,),
        "how far people's own means lie from each other, likewise (default 0: all rows "
        "of all people come from one population)",
        NUMBERS, flag="user-sigma", metavar="S",
    )  # fmt: skip
    outliers: float = setting(
        0.0,
        "share of people about whom nothing is assumed, in [0, 1/3) (default 0); the "
        "bias that clipping them can cause is included in every interval",
        NUMBER, flag="outliers", metavar="SHARE",
    )  # fmt: skip
    failure_probability: float = setting(
        0.01,
        "probability that round one fails people who are as assumed (default 0.01); it "
        "is deducted from the level of the intervals",
        NUMBER, flag="failure-probability", metavar="P",
    )  # fmt: skip
    split: Literal["auto", "budget", "users"] = setting(
        "auto",
        "with {privacy.local_epsilon}: everybody answers both rounds, each with part of"
        " the budget, or each person answers one round with all of it; auto takes the "
        "more accurate one. The fewer people of the first round hide each other less: "
        "compare the privacy cost of both rounds",
        flag="split", choices=("auto", "budget", "users"),
    )  # fmt: skip


_OWN: dict[str, dict[str, Any]] = {
    "column": {"help": "columns of numbers: names and globs, separated by commas; may be repeated"},
    "range": {"help": "every number lies in this public range; numbers outside are clipped to it"},
    "radius": {"help": "instead of ranges: bound on the Euclidean norm of every row"},
}  # fmt: skip
PARTS = (
    Part("source", Source, DATA),
    Part(
        "question", UserMeanQuestion, DATA, own=_OWN,
        without=("norm", "one_row_each", "outside"),
    ),
    Part(
        "people", People, DATA, only=("id",),
        own={"id": {"help": "column with the user id: all rows of a person are replaced by "
                   "their mean"}},
    ),
    Part("privacy", Privacy, PRIVACY),
    Part("shuffle", Shuffling, MECHANISM),
    Part("release", Noise, RELEASE),
    Part("release", Charge, RELEASE),
    Part("output", Output, OUTPUT),
)  # fmt: skip

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
    beam-ldp user-mean --input visits.csv --user-id uid --column minutes,steps \\
        --ranges ranges.csv --rows-per-user 30 --model local --local-epsilon 4 \\
        --expected-users 1e5 --output out
"""

USAGE = Usage(
    name="user-mean",
    module="beam_ldp.pipelines.user_mean",
    summary=(
        "The mean of people's numbers where each person has many rows. A person is protected "
        "with all of their rows: rows become one mean per person, a first round finds where "
        "these means lie, and a second one estimates with noise to match."
    ),
    synopsis="--input PATH --user-id NAME --column NAME --range LOW HIGH --delta D "
    "(--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    examples=EXAMPLES,
    parts=PARTS,
    question="user_mean",
)
