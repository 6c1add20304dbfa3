"""What `beam-ldp frequency` takes, and its help."""

from __future__ import annotations

from beam_ldp.questions.frequency import FrequencyQuestion
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

PARTS = (
    Part("source", Source, DATA),
    Part("question", FrequencyQuestion, DATA),
    Part("people", People, DATA),
    STREAM,
    Part("privacy", Privacy, PRIVACY, without=("model",)),
    Part(
        "mechanism",
        Mechanism,
        MECHANISM,
        without=("messages",),
        own={
            "name": {
                "help": "name of a frequency oracle (PACKAGE:CLASS for one of your own), or "
                "auto for the most accurate one (see `beam-ldp plan`)"
            }
        },
    ),
    Part("shuffle", Shuffling, MECHANISM),
    Part("release", Noise, RELEASE),
    Part("release", Charge, RELEASE),
    Part("output", Output, OUTPUT),
)

EXAMPLES = """examples:
  privacy cost and accuracy in advance (reads no data)
    beam-ldp frequency --input 'events/*.parquet' --column url --domain urls.txt \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --output out --dry-run
  the actual run, one report per person
    beam-ldp frequency --input 'events/*.parquet' --column url --user-id uid --domain urls.txt \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --output out
  on a cluster (all of Beam's flags are understood)
    beam-ldp frequency ... --runner=SparkRunner --job_endpoint=host:8099 --environment_type=LOOPBACK
  one histogram per country; a person reports in one country, each country has its own privacy cost
    beam-ldp frequency --input 'events/*.parquet' --column url --user-id uid --domain urls.txt \\
        --group-by country --groups countries.txt --epsilon 1 --delta 1e-8 --min-reports 20000 \\
        --output out
  several questions: each person answers one, or all with a split budget, whichever is more accurate
    beam-ldp frequency --input survey.csv --column hair --domain hair.txt --column eyes \\
        --domain eyes.txt --local-epsilon 1 --delta 1e-8 --expected-users 1e5 --output out
  a number: its quantiles, and how many people lie in a range
    beam-ldp frequency --input people.parquet --column age --user-id uid --bins 0:120:120 \\
        --quantiles 0.1,0.5,0.9 --between 18:65 --epsilon 1 --delta 1e-8 --expected-users 1e5 \\
        --output out
  files that keep arriving: one release a minute, at most 100 of them (docs/streaming.md)
    beam-ldp frequency --input inbox --input-format csv --column url --domain urls.txt --stream \\
        --time-column t --window 60s --allowed-lateness 5m --budget-windows 100 \\
        --local-epsilon 2 --delta 1e-8 --min-reports 1000 --output out
  the same from a job file, which --print-job writes
    beam-ldp run job.yaml --overwrite
"""

USAGE = Usage(
    name="frequency",
    module="beam_ldp.pipelines.frequency",
    summary="How often does each value of a public list occur? Every person's value is randomized "
    "before it is counted; the result has honest error bars and a stated privacy cost.",
    synopsis="--input PATH --column NAME --domain FILE --delta D "
    "(--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    examples=EXAMPLES,
    parts=PARTS,
    question="frequency",
)
