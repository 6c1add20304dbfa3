"""What `beam-ldp bandit collect` takes, and its help."""

from __future__ import annotations

from beam_ldp.pipelines.usage import DATA, OUTPUT, RELEASE, Part, Usage
from beam_ldp.pipelines.usage.bandit_advance import RewardQuestion
from beam_ldp.pipelines.usage.collect import ReceivedEnvelopes
from beam_ldp.settings.sections import Charge, Output, Source

PARTS = (
    Part("reports", ReceivedEnvelopes, DATA, only=("reports",)),
    Part("question", RewardQuestion, DATA, only=("state",)),
    Part(
        "source", Source, DATA, only=("max_bad_rows",),
        own={
            "max_bad_rows": {
                "help": "decide nothing if more envelopes than this are refused: a share below 1, "
                "or a number (default: no limit)"
            }
        },
    ),

    Part("release", Charge, RELEASE, without=("run_id", "people_store", "people_key_file")),
    Part(
        "output", Output, OUTPUT, without=("folder", "overwrite", "top"),
        own={
            "bad_rows_file": {
                "help": "where refused envelopes are listed (default: "
                "STATE.private/batch-N.bad_rows.jsonl)"
            },
        },
    ),
)  # fmt: skip

EXAMPLES = """examples:
  on the side of the devices
    beam-ldp randomize --release service/batch-1.release.json --input visits.csv \\
        --column reward --group-by play --user-id uid --output reports
  on the side of the collector
    beam-ldp bandit collect --state service --reports reports
"""

USAGE = Usage(
    name="bandit collect",
    module="beam_ldp.pipelines.bandit_collect",
    asks=("",),
    summary="Decide the open batch of a service from reports that devices have sent: this program "
    "starts at the shuffle and never sees a reward. Whatever cannot be a report of this batch is "
    "refused and listed, and copies count once. A batch decides once.",
    synopsis="--state DIR --reports PATH [...]",
    examples=EXAMPLES,
    parts=PARTS,
)
