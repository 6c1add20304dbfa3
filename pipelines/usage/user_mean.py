"""What `beam-ldp user-mean` takes, and its help."""

from __future__ import annotations

from typing import Any

from beam_ldp.questions.user_means import UserMeanQuestion
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
        "people", People, DATA, only=("id", "group_by", "groups"),
        own={"id": {"help": "column with the user id: all rows of a person are replaced by "
                   "their mean"},
             "group_by": {"help": "column with a public group: a person is in that of most of "
                         "the own rows"}},
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
