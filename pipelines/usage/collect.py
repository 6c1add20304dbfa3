"""What `beam-ldp collect` says of itself."""

from __future__ import annotations

from beam_ldp.pipelines.flags import BUDGET, COMMON, DATA, MECHANISM, OUTPUT, PRICE, Flags, Groups
from beam_ldp.pipelines.usage import Usage
from beam_ldp.pipelines.usage.frequency import FLAGS as FREQUENCY
from beam_ldp.pipelines.usage.frequency import NUMBER_FLAGS
from beam_ldp.pipelines.usage.mean import FLAGS as MEAN


def _some(flags: Flags, *names: str) -> Flags:
    return {name: flags[name] for name in names}


READ_OFF: Flags = {
    name: {**NUMBER_FLAGS[name], "help": f"{said} (default: what the devices were asked for)"}
    for name, said in (
        ("--quantiles", "quantiles to estimate, where the reports are of a number with a tree"),
        ("--between", "ranges to count, between edges of the bins or inf; may be repeated"),
    )
}
FLAGS: Groups = {
    "the reports": {
        "--reports": {
            "action": "append", "metavar": "PATH",
            "help": "file, folder or glob of envelopes, on any file system that Beam knows; may be "
            "repeated; names that begin with _ or . or end in .json are left out",
        },
        "--release": {
            "metavar": "FILE",
            "help": "release.json: the terms that devices and collector share (see `beam-ldp "
            "randomize`)",
        },
        "--release-id": {
            "metavar": "NAME",
            "help": "the release expected: release.json must name the same one (default: the one "
            "it names)",
        },
        "--mechanism": {
            "metavar": "PACKAGE:CLASS",
            "help": "the mechanism that release.json names, if it is your own and not installed as "
            "a plugin: a file never makes the collector import code",
        },
        "--question": {
            "metavar": "NAME", "help": "name of the question, for the record (default: the release "
            "id)",
        },
        "--domain": {
            "action": "append", "metavar": "FILE",
            "help": "public list of values that the devices used; not for numbers. With several "
            "questions, repeat it in the order of release.json",
        },
        **_some(FREQUENCY[DATA], "--other-label"),
        **READ_OFF,
        "--groups": {
            "metavar": "FILE", "help": "public list of groups that the devices used, if any",
        },
        "--max-bad-rows": {
            **COMMON[DATA]["--max-bad-rows"],
            "help": "release nothing if more envelopes than this are refused (default: no limit)",
        },
        "--bad-rows-file": {
            **COMMON[DATA]["--bad-rows-file"],
            "help": "where refused envelopes are listed (default: OUTPUT.private/bad_rows.jsonl)",
        },
    },
    "the privacy cost": {
        **_some(COMMON[PRICE], "--delta", "--expected-users", "--min-reports"),
        "--epsilon": {
            **COMMON[PRICE]["--epsilon"],
            "help": "central epsilon that was aimed at: if the reports received cost more, a "
            "warning says so; the noise was drawn on the devices and does not change",
        },
        **_some(COMMON[PRICE], "--strict", "--honest-fraction"),
    },
    "the shuffle": _some(COMMON[MECHANISM], "--shuffle-output", "--scope"),
    BUDGET: {
        name: how for name, how in COMMON[BUDGET].items() if not name.startswith("--people")
    },
    OUTPUT: {
        **{name: how for name, how in FREQUENCY[OUTPUT].items() if name != "--staged"},
        **_some(MEAN[OUTPUT], "--shape"),
    },
}  # fmt: skip

EXAMPLES = """examples:
  privacy cost and accuracy in advance (reads no report)
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out --dry-run
  the actual run
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out
  means: the columns and their ranges are in release.json
    beam-ldp collect --reports reports --release reports/release.json \\
        --delta 1e-8 --min-reports 9e5 --output out
  one histogram per group; smaller groups are withheld
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --groups countries.txt --delta 1e-8 --min-reports 20000 --output out
  several questions: a list for each, in the order of release.json
    beam-ldp collect --reports reports --release reports/release.json --domain hair.txt \\
        --domain eyes.txt --delta 1e-8 --min-reports 90000 --output out
  other quantiles than the devices were asked for, from the same reports
    beam-ldp collect --reports reports --release reports/release.json --quantiles 0.25,0.75 \\
        --delta 1e-8 --min-reports 90000 --output out
  devices can lie: assume that at least four reports in five are honest
    beam-ldp collect ... --honest-fraction 0.8
"""

USAGE = Usage(
    name="collect",
    summary=(
        "How often does each value of a public list occur, or what is the mean, among people whose "
        "devices have sent randomized reports? This program starts at the shuffle and never sees a "
        "raw value. Whatever cannot be a report of this release is refused and listed, and copies "
        "count once."
    ),
    synopsis=(
        "--reports PATH --release FILE [--domain FILE] --delta D "
        "(--min-reports N | --expected-users N) --output DIR [...]"
    ),
    examples=EXAMPLES,
    flags=FLAGS,
)
