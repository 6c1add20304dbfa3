"""What `beam-ldp randomize` says of itself."""

from __future__ import annotations

from beam_ldp.pipelines.flags import COMMON, DATA, MECHANISM, OUTPUT, PRICE, Groups, whole_number
from beam_ldp.pipelines.usage import Usage
from beam_ldp.pipelines.usage.frequency import DESIGN_FLAGS, GROUP_FLAGS, NUMBER_FLAGS
from beam_ldp.pipelines.usage.frequency import FLAGS as FREQUENCY
from beam_ldp.pipelines.usage.mean import FLAGS as MEAN

MEAN_FLAGS = (
    "--columns", "--dimension", "--norm", "--radius", "--range", "--ranges", "--one-row-each",
    "--outside",
)  # fmt: skip
_NOT_DATA = ("--input", "--bad-rows-file")
FLAGS: Groups = {
    DATA: {
        "--input": COMMON[DATA]["--input"],
        **{
            name: FREQUENCY[DATA][name]
            for name in ("--column", "--domain", "--other-label", *NUMBER_FLAGS)
        },
        **GROUP_FLAGS,
        **{name: MEAN[DATA][name] for name in MEAN_FLAGS},
        **{name: COMMON[DATA][name] for name in COMMON[DATA] if name not in _NOT_DATA},
        "--bad-rows": {
            "choices": ["dead-letter", "other", "zero"], "default": "dead-letter",
            "help": "what happens to rows that cannot be used: they are left out and counted here, "
            "or reported without a trace, as `other` for a list and as zero (the middle of the "
            "ranges) for numbers",
        },
    },
    PRICE: {
        name: how for name, how in COMMON[PRICE].items() if name != "--strict"
    },
    MECHANISM: {
        "--mechanism": {
            **FREQUENCY[MECHANISM]["--mechanism"],
            "help": "name of a frequency oracle or mean mechanism (PACKAGE:CLASS for one of your "
            "own), or auto for the most accurate one (see `beam-ldp plan`)",
        },
        **DESIGN_FLAGS,
        "--max-bits": COMMON[MECHANISM]["--max-bits"],
        "--release-id": {
            "metavar": "NAME",
            "help": "name of this release; use a new name each time, or old reports count again",
        },
        "--memoize-key-file": {
            **COMMON[MECHANISM]["--memoize-key-file"],
            "help": "secret key of memoized noise, read by the workers: another run sends the same "
            "report for every person, and a collector counts it once (needs --user-id)",
        },
        "--seed": COMMON[MECHANISM]["--seed"],
    },
    OUTPUT: {
        "--output": {
            "metavar": "DIR", "help": "new folder for the reports and release.json",
        },
        "--dataset": COMMON[OUTPUT]["--dataset"],
        "--reports-per-envelope": {
            "type": whole_number, "default": 1, "metavar": "N",
            "help": "number of people's reports in one envelope; release.json then allows every "
            "sender as many (default: 1, as devices send them)",
        },
        "--format": COMMON[OUTPUT]["--format"],
        "--config": COMMON[OUTPUT]["--config"],
    },
}  # fmt: skip

EXAMPLES = """examples:
  on the side of the devices
    beam-ldp randomize --input values.csv --column url --domain urls.txt --local-epsilon 3 \\
        --dataset telemetry --release-id week-47 --output reports
  on the side of the collector
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out
  several questions, of which each person answers one; or a number: its quantiles
    beam-ldp randomize --input survey.csv --column hair --domain hair.txt --column eyes \\
        --domain eyes.txt --local-epsilon 2 --dataset telemetry --release-id week-47 \\
        --output reports
    beam-ldp randomize --input people.csv --column age --bins 0:120:120 --quantiles 0.1,0.5,0.9 \\
        --local-epsilon 2 --dataset telemetry --release-id week-47 --output reports
  means of numbers, each in a public range, with the noise that meets a central epsilon
    beam-ldp randomize --input visits.csv --columns minutes --user-id uid --range 0 1440 \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --dataset telemetry \\
        --release-id week-47 --output reports
  a public group with every report; the smallest group that is released has 20,000 people
    beam-ldp randomize --input values.csv --column url --domain urls.txt --user-id uid \\
        --group-by country --groups countries.txt --epsilon 1 --delta 1e-8 --min-reports 20000 \\
        --dataset telemetry --release-id week-47 --output reports
"""

EXIT_CODES = """
exit codes: 0 done; 1 the run failed; 2 a flag or an input is wrong, nothing was read;
            3 nothing was written (no row could be used, or too many could not);
            130 interrupted
"""

USAGE = Usage(
    name="randomize",
    summary=(
        "Does what a device does, for a file of people's values: every value is randomized and "
        "packed. Reports and release.json may leave this machine; nothing else is written. "
        "`beam-ldp collect` counts the reports."
    ),
    synopsis=(
        "--input PATH (--column NAME (--domain FILE | --bins EDGES) | --columns NAMES --radius R)"
        " (--local-epsilon EPS0 | --epsilon EPS --delta D --expected-users N) --dataset NAME "
        "--release-id NAME --output DIR [...]"
    ),
    examples=EXAMPLES,
    flags=FLAGS,
    exit_codes=EXIT_CODES,
)
