"""What `beam-ldp mean` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beam_ldp.settings.fields import NUMBER, POSITIVE, SWITCH, WHOLE, Kind, setting
from beam_ldp.settings.sections import (
    DEAD_LETTER,
    Charge,
    Mechanism,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)
from beam_ldp.settings.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.base import Clipping, Norm

NORMS: tuple[Norm, ...] = ("l2", "l1", "linf", "binary")


def _norm(value: Any) -> Norm | float:
    """A norm by its name, or as the p of an l_p norm."""
    for name in NORMS:
        if value == name:
            return name
    if not (power := float(value)) >= 1:
        raise ValueError
    return power


NORM = Kind(
    f"{', '.join(NORMS)} or a number >= 1", _norm,
    {"anyOf": [{"enum": list(NORMS)}, {"type": "number", "minimum": 1}]},
)  # fmt: skip


def _ranges(value: Any) -> str | dict[str, tuple[float, float]]:
    """The path of a file; or in a job file the ranges themselves, by column."""
    if isinstance(value, str):
        return value
    return {str(name): (float(low), float(high)) for name, (low, high) in value.items()}


_RANGE = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
RANGES = Kind(
    "a file, or in a job file {COLUMN: [LOW, HIGH]}", _ranges,
    {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": _RANGE}]},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MeanQuestion:
    """The mean of one vector of numbers from each person.

    With `range` or `ranges` the norm is "linf" and the radius 1, once they are checked.
    """

    column: tuple[str, ...] = setting(
        (),
        "columns of numbers, one per coordinate: names or globs, separated by commas; "
        "may be repeated. Or a single column of lists",
        flag="column", metavar="NAMES", many=True, basic=True,
    )  # fmt: skip
    dimension: int | None = setting(
        None, "length of the lists, where the files do not say", WHOLE, flag="dimension",
        metavar="D",
    )  # fmt: skip
    norm: Norm | float = setting(
        "l2",
        "what {question.radius} bounds: Euclidean length (l2, the default), the sum of "
        "absolute values (l1), each number (linf), the l_P norm; binary: numbers 0 and "
        "1",
        NORM, flag="norm", metavar="[l2|l1|linf|binary|P]", basic=True,
    )  # fmt: skip
    radius: float = setting(
        0.0, "the bound on that norm, in the units of the data; public, never taken from the"
        " data", POSITIVE,
        flag="radius", metavar="R", basic=True,
    )  # fmt: skip
    range: tuple[float, float] | None = setting(
        None, "instead of {question.norm} and {question.radius}: every number lies in this "
        "public range", NUMBER,
        flag="range", metavar=("LOW", "HIGH"), arity=2, basic=True,
    )  # fmt: skip
    ranges: str | dict[str, tuple[float, float]] | None = setting(
        None, "instead of {question.range}: a CSV file of column,low,high with a public range"
        " for each column",
        RANGES,
        flag="ranges",
        metavar="FILE",
    )  # fmt: skip
    one_row_each: bool = setting(
        False,
        "declares that every {people.id} has one row, so that errors need not allow for"
        " drawing a row; one report per person is sent in any case",
        SWITCH, flag="one-row-each",
    )  # fmt: skip
    outside: Clipping = setting(
        "clip",
        "values outside those bounds: clipped to the bound on the device, uncounted; or"
        " stop the run",
        flag="outside", choices=("clip", "raise"),
    )  # fmt: skip
    bad_rows: str = setting(
        DEAD_LETTER,
        "what happens to rows that cannot be used: they are listed in bad_rows.jsonl, "
        "or reported as zero (the middle of the ranges) without a trace",
        flag="bad-rows", choices=(DEAD_LETTER, "zero"),
    )  # fmt: skip
    shape: str | None = setting(
        None, "the coordinates are the pixels of an image, row by row: plot the mean as an "
        "image",
        flag="shape", metavar="HxW",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PublishedMean:
    """Whether devices answer."""

    publish: bool = setting(
        False,
        "read no rows: write release.json, the question for devices that send shares (needs "
        "{privacy.trust_shuffler}); an edge answers it with `beam-ldp randomize --release`, and "
        "`beam-ldp collect` adds up what came",
        SWITCH, flag="publish",
    )  # fmt: skip


WITHOUT_GROUPS = ("group_by", "groups")
PARTS = (
    Part("source", Source, DATA),
    Part("question", MeanQuestion, DATA),
    Part("people", People, DATA, without=WITHOUT_GROUPS),
    Part("privacy", Privacy, PRIVACY),
    Part(
        "mechanism",
        Mechanism,
        MECHANISM,
        without=("random_bits",),
        own={
            "name": {
                "help": "name of a mean mechanism (PACKAGE:CLASS for one of your own), or "
                "auto for the most accurate one (see `beam-ldp plan mean`)"
            }
        },
    ),
    Part("shuffle", Shuffling, MECHANISM),
    Part("release", Noise, RELEASE),
    Part("release", Charge, RELEASE),
    Part("output", Output, OUTPUT),
    Part("output", PublishedMean, OUTPUT),
)

EXAMPLES = """examples:
  privacy cost and accuracy in advance (reads the names of columns, not rows)
    beam-ldp mean --input vectors.parquet --column 'f*' --norm l2 --radius 1 \\
        --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out --dry-run
  numbers in different units: a file of public ranges (column,low,high)
    beam-ldp mean --input people.csv --column age,bmi,charges --ranges ranges.csv \\
        --epsilon 1 --delta 1e-8 --expected-users 1e5 --output out
  one number per person between 0 and 1440, with a local epsilon of at most 4
    beam-ldp mean --input visits.csv --column minutes --user-id uid --range 0 1440 \\
        --epsilon 1 --max-local-epsilon 4 --delta 1e-8 --expected-users 1e5 --output out
  images of 28 x 28 in one column of lists; only the device is trusted
    beam-ldp mean --input images.parquet --column pixels --norm l2 --radius 28 --shape 28x28 \\
        --model local --epsilon 4 --expected-users 1e5 --output out
  vectors that devices hold, who trust the collector: the question for them
    beam-ldp mean --publish --column age,bmi --user-id uid --norm l2 --radius 100 --epsilon 1 \\
        --delta 1e-8 --expected-users 1e5 --trust-shuffler --dataset health \\
        --release-id week-47 --output question
  on a cluster (all of Beam's flags are understood)
    beam-ldp mean ... --runner=SparkRunner --job_endpoint=host:8099 --environment_type=LOOPBACK
"""

USAGE = Usage(
    name="mean",
    module="beam_ldp.pipelines.mean",
    summary="The mean of vectors of numbers, one per person. Every person's vector is randomized "
    "before anything is added up; the result has honest error bars and a stated privacy cost.",
    synopsis="--input PATH --column NAMES (--norm NORM --radius R | --range LOW HIGH | --ranges "
    "FILE) --delta D (--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    examples=EXAMPLES,
    parts=PARTS,
    question="mean",
)
