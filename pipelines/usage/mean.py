"""What `beam-ldp mean` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass

from beam_ldp.questions.means import MeanQuestion
from beam_ldp.settings.fields import SWITCH, setting
from beam_ldp.settings.sections import (
    Charge,
    Mechanism,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)
from beam_ldp.settings.streaming import STREAM
from beam_ldp.settings.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage


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


PARTS = (
    Part("source", Source, DATA),
    Part("question", MeanQuestion, DATA),
    Part("people", People, DATA),
    STREAM,
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
  files that keep arriving: one release an hour, at most 24 of them (docs/streaming.md)
    beam-ldp mean --input inbox --input-format csv --column minutes --range 0 1440 --stream \\
        --time-column t --window 1h --budget-windows 24 --local-epsilon 2 --delta 1e-8 \\
        --min-reports 1000 --output out
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
