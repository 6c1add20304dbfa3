"""What `beam-ldp frequency` says of itself."""

from __future__ import annotations

from beam_ldp.pipelines.flags import DATA, MECHANISM, OUTPUT, Flags, whole_number, with_own
from beam_ldp.pipelines.usage import Usage
from beam_ldp.pipelines.usage.stream import STREAM_FLAGS

NUMBER_FLAGS: Flags = {
    "--bins": {
        "metavar": "EDGES",
        "help": "for a column of numbers, instead of --domain: public edges such as "
        "0,10,20,50,100, or LOW:HIGH:COUNT; numbers outside count as `other`",
    },
    "--quantiles": {
        "metavar": "LEVELS",
        "help": "quantiles to estimate, such as 0.1,0.5,0.9, with confidence intervals; as fine as "
        "--bins",
    },
    "--between": {
        "action": "append", "metavar": "LOW:HIGH",
        "help": "range to count: how many numbers lie in [LOW, HIGH), each an edge of --bins or "
        "inf; may be repeated",
    },
    "--fan-out": {
        "type": whole_number, "metavar": "N",
        "help": "fan-out: children of each node in the tree behind --quantiles and --between "
        "(default: the most accurate one, see docs/ranges.md)",
    },
}  # fmt: skip

GROUP_FLAGS: Flags = {
    "--group-by": {
        "metavar": "NAME",
        "help": "column with a public group: one result per group, each from at least "
        "--min-reports reports. Every person reports in one group, and which one is not protected",
    },
    "--groups": {
        "metavar": "FILE",
        "help": "public list of groups, one per line; rows of groups not listed count in `other`",
    },
}  # fmt: skip

DESIGN_FLAGS: Flags = {
    "--design": {
        "choices": ["auto", "one", "all"], "default": "auto",
        "help": "for several questions: each person answers one of them, drawn at random, or all "
        "of them with a split budget; auto takes the more accurate one whose privacy cost is no "
        "higher, locally or centrally",
    },
}  # fmt: skip

FLAGS = with_own(
    {
        DATA: {
            "--column": {
                "action": "append", "metavar": "NAME",
                "help": "column with the value (not for text input); repeat it to ask several "
                "questions",
            },
            "--domain": {
                "action": "append", "metavar": "FILE",
                "help": "public list of values, one per line; all other values count as `other`. "
                "With several questions, one for each --column",
            },
            "--other-label": {
                "default": "other", "metavar": "NAME",
                "help": "name for all values not listed, if the list itself holds a value `other`",
            },
            **NUMBER_FLAGS,
            **GROUP_FLAGS,
            **STREAM_FLAGS,
            "--bad-rows": {
                "choices": ["dead-letter", "other"], "default": "dead-letter",
                "help": "what happens to rows that cannot be used: they are listed in "
                "bad_rows.jsonl, or reported as `other` without a trace",
            },
        },
        MECHANISM: {
            "--mechanism": {
                "default": "auto", "metavar": "NAME",
                "help": "name of a frequency oracle (PACKAGE:CLASS for one of your own), or auto "
                "for the most accurate one (see `beam-ldp plan`)",
            },
            **DESIGN_FLAGS,
        },
        OUTPUT: {
            "--top": {
                "type": whole_number, "default": 20, "metavar": "N",
                "help": "number of values in the printed table and in the plot (default 20)",
            },
            "--staged": {
                "metavar": "DIR",
                "help": "run no job: finish the release from what the job of a template with the "
                "same flags left in this folder",
            },
        },
    }
)  # fmt: skip

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
  from a file of flags
    beam-ldp frequency --config job.json --overwrite
"""

USAGE = Usage(
    name="frequency",
    summary="How often does each value of a public list occur? Every person's value is randomized "
    "before it is counted; the result has honest error bars and a stated privacy cost.",
    synopsis="--input PATH --column NAME --domain FILE --delta D "
    "(--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    examples=EXAMPLES,
    flags=FLAGS,
)
