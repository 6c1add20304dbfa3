"""What `beam-ldp ab-test decide` takes, and its help."""

from __future__ import annotations

from beam_ldp.pipelines.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage
from beam_ldp.pipelines.usage.ab_test import EACH_ARM, OutcomeQuestion
from beam_ldp.pipelines.usage.collect import ReceivedEnvelopes
from beam_ldp.settings.sections import Charge, Noise, Output, Privacy, Shuffling, Source

PARTS = (
    Part(
        "reports", ReceivedEnvelopes, DATA, only=("reports", "release"),
        own={
            "release": {
                "help": "release.json: the terms that devices and collector share (default: the "
                "one in the folder of {reports.reports})",
                "basic": False,
            }
        },
    ),
    Part("question", OutcomeQuestion, DATA, only=("design",)),
    Part(
        "source", Source, DATA, only=("max_bad_rows",),
        own={
            "max_bad_rows": {
                "help": "decide nothing if more envelopes than this are refused: a share below 1, "
                "or a number (default: no limit)"
            }
        },
    ),
    Part("privacy", Privacy, PRIVACY, only=("honest_fraction",)),
    Part("shuffle", Shuffling, MECHANISM, only=("min_reports",), own=EACH_ARM),
    Part("release", Noise, RELEASE, only=("dataset", "frozen_values")),
    Part("release", Charge, RELEASE, without=("run_id", "people_store", "people_key_file")),
    Part(
        "output", Output, OUTPUT, without=("top",),
        own={
            "folder": {
                "help": "folder to write; it appears complete or not at all (default: beside the "
                "design, test.verdict-1 of test.json)"
            },
            "bad_rows_file": {
                "help": "where refused envelopes are listed (default: "
                "OUTPUT.private/bad_rows.jsonl)"
            },
        },
    ),
)  # fmt: skip

EXAMPLES = """examples:
  on the side of the devices
    beam-ldp randomize --input visits.csv --column bought --group-by variant --user-id uid \\
        --experiment test.json --dataset visits --output reports
  on the side of the collector
    beam-ldp ab-test decide --reports reports --design test.json
  devices can lie: assume that at least four reports in five are honest
    beam-ldp ab-test decide --reports reports --design test.json --honest-fraction 0.8
"""

USAGE = Usage(
    name="ab-test decide",
    module="beam_ldp.pipelines.ab_test_decide",
    asks=("",),
    summary="Does an effect show, among people whose devices have sent randomized outcomes? This "
    "program starts at the shuffle and never sees an outcome. Whatever cannot be a report of this "
    "experiment is refused and listed, and copies count once. A plan decides once.",
    synopsis="--reports PATH --design FILE [...]",
    examples=EXAMPLES,
    parts=PARTS,
)
