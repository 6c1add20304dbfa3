"""What `beam-ldp collect` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass

from beam_ldp.questions.frequency import FrequencyQuestion
from beam_ldp.questions.means import MeanQuestion
from beam_ldp.settings.fields import setting
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
from beam_ldp.settings.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage


@dataclass(frozen=True, kw_only=True)
class ReceivedEnvelopes:
    """Where the reports are, and what devices and collector agreed upon."""

    reports: tuple[str, ...] = setting(
        (),
        "file, folder or glob of envelopes, on any file system that Beam knows; may be "
        "repeated; names that begin with _ or . or end in .json are left out",
        flag="reports", metavar="PATH", many=True, basic=True,
    )  # fmt: skip
    release: str = setting(
        "",
        "release.json: the terms that devices and collector share (see `beam-ldp "
        "randomize`)",
        flag="release", metavar="FILE", basic=True,
    )  # fmt: skip
    level_key: str | None = setting(
        None,
        "key of a level (see `beam-ldp keys derive`), read by the workers: the same reports at "
        "its larger epsilon (default: read what everybody reads)",
        flag="level-key", metavar="FILE",
    )  # fmt: skip
    question: str | None = setting(
        None, "name of the question, for the record (default: the release id)", flag="question",
        metavar="NAME",
    )  # fmt: skip


def _read_off(help: str) -> dict[str, str]:
    return {"help": f"{help} (default: what the devices were asked for)"}


PARTS = (
    Part("reports", ReceivedEnvelopes, DATA),
    Part(
        "question",
        FrequencyQuestion,
        DATA,
        only=("domain", "other", "quantiles", "between", "postprocess"),
        own={
            "domain": {
                "help": "public list of values that the devices used; not for numbers. With"
                " several questions, repeat it in the order of release.json"
            },
            "quantiles": _read_off(
                "quantiles to estimate, where the reports are of a number with a tree"
            ),
            "between": _read_off(
                "ranges to count, between edges of the bins or inf; may be repeated"
            ),
        },
    ),
    Part("question", MeanQuestion, OUTPUT, only=("shape",)),
    Part(
        "people",
        People,
        DATA,
        only=("groups",),
        own={"groups": {"help": "public list of groups that the devices used, if any"}},
    ),
    Part(
        "source",
        Source,
        DATA,
        only=("max_bad_rows",),
        own={
            "max_bad_rows": {
                "help": "release nothing if more envelopes than this are refused: a share below 1, "
                "or a number (default: no limit)"
            }
        },
    ),
    Part(
        "privacy",
        Privacy,
        PRIVACY,
        without=("local_epsilon", "max_local_epsilon", "trust_shuffler", "model"),
        own={
            "epsilon": {
                "help": "central epsilon that the release may cost; the noise was drawn on the "
                "devices and does not change"
            },
            "allow_over_target": {
                "help": "release even if the reports received cost more than {privacy.epsilon}"
            },
        },
    ),
    Part(
        "mechanism",
        Mechanism,
        MECHANISM,
        only=("name",),
        own={
            "name": {
                "help": "the mechanism that release.json names, if it is your own and not "
                "installed as a plugin: a file never makes the collector import "
                "code",
                "metavar": "PACKAGE:CLASS",
                "basic": False,
            }
        },
    ),
    Part("shuffle", Shuffling, MECHANISM),
    Part(
        "release",
        Noise,
        RELEASE,
        only=("dataset", "id", "frozen_values"),
        own={
            "id": {
                "help": "the release expected: release.json must name the same one "
                "(default: the one it names)"
            }
        },
    ),
    Part("release", Charge, RELEASE, without=("people_store", "people_key_file")),
    Part(
        "output",
        Output,
        OUTPUT,
        own={
            "bad_rows_file": {
                "help": "where refused envelopes are listed (default: "
                "OUTPUT.private/bad_rows.jsonl)"
            }
        },
    ),
)

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
  reports for several readers, with the key of one of them
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --level-key partner.key --delta 1e-8 --min-reports 90000 --output out
  devices can lie: assume that at least four reports in five are honest
    beam-ldp collect ... --honest-fraction 0.8
"""

USAGE = Usage(
    name="collect",
    module="beam_ldp.pipelines.collect",
    asks=("",),
    summary=(
        "How often does each value of a public list occur, or what is the mean, among people "
        "whose devices have sent randomized reports? This program starts at the shuffle and "
        "never sees a raw value. Whatever cannot be a report of this release is refused and "
        "listed, and copies count once."
    ),
    synopsis=(
        "--reports PATH --release FILE [--domain FILE] --delta D "
        "(--min-reports N | --expected-users N) --output DIR [...]"
    ),
    examples=EXAMPLES,
    parts=PARTS,
)
