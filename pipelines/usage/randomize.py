"""What `beam-ldp randomize` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass

from beam_ldp.questions.frequency import FrequencyQuestion
from beam_ldp.questions.means import MeanQuestion
from beam_ldp.settings.fields import COUNT, WHOLE, setting
from beam_ldp.settings.sections import (
    DEAD_LETTER,
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
class WrittenEnvelopes:
    """How reports are packed."""

    reports_per_envelope: int = setting(
        1,
        "number of people's reports in one envelope; release.json then allows every "
        "sender as many (default: 1, as devices send them)",
        WHOLE, flag="reports-per-envelope", metavar="N",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReaderLevels:
    """Who may read the same public reports at which epsilon."""

    levels: str | None = setting(
        None,
        "local epsilons of several readers of one public report, from the largest, as 2,1,0.5; "
        "everybody reads at the smallest, the others with a key (`beam-ldp keys derive`); in "
        "place of {privacy.local_epsilon}",
        flag="levels", metavar="EPS,EPS",
    )  # fmt: skip
    level_secret: str | None = setting(
        None,
        "secret of {privacy.levels}, read by the workers: at least 32 bytes that nobody else "
        "reads, from which the readers' keys are derived",
        flag="level-secret", metavar="FILE",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReadLater:
    """Whether single values can be read from the reports later, and by whom."""

    recover_key_file: str | None = setting(
        None,
        "new file, which this run makes: the secret key by which `beam-ldp recover` turns the "
        "report of a person who consents back into the value. It never leaves this machine; "
        "everybody without it is held to {privacy.local_epsilon} (needs {people.id})",
        flag="recover-key-file", metavar="FILE",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlannedExperiment:
    """An experiment, in place of a question of one's own."""

    experiment: str | None = setting(
        None,
        "plan of an experiment (`beam-ldp ab-test design`): {question.column} is the outcome, "
        "{people.group_by} the arm, and all else is in the plan; `beam-ldp ab-test decide` counts "
        "the reports",
        flag="experiment", metavar="FILE",
    )  # fmt: skip
    look: int = setting(
        1, "which of the plan's looks the reports of {question.experiment} are for (default 1)",
        COUNT, flag="look", metavar="N",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PublishedQuestion:
    """A question that was published, in place of one's own."""

    release: str | None = setting(
        None,
        "release.json of a bandit's batch, as `beam-ldp bandit start` wrote it, whose plays are in "
        "{people.group_by}; or of a search for words, as `beam-ldp heavy-hitters --publish` and "
        "`beam-ldp "
        "collect` write it: the people here whose level it is answer (needs {people.id} and "
        "{release.key_file}); {output.folder} is this machine's folder of the whole search",
        flag="release", metavar="FILE",
    )  # fmt: skip


_BAD_ROWS = {
    "choices": (DEAD_LETTER, "other", "zero"),
    "help": "what happens to rows that cannot be used: they are left out and counted "
    "here, or reported without a trace, as `other` for a list and as zero (the "
    "middle of the ranges) for numbers",
}
PARTS = (
    Part("source", Source, DATA),
    Part(
        "question", FrequencyQuestion, DATA, without=("postprocess", "staged"),
        own={
            "bad_rows": _BAD_ROWS,
            "column": {"help": "column with the value (not for text input); repeat it to ask "
                   "several questions"},
        },
    ),
    Part(
        "question", MeanQuestion, DATA, without=("column", "bad_rows", "shape"),
    ),
    Part("question", PlannedExperiment, DATA),
    Part("people", People, DATA),
    Part("privacy", Privacy, PRIVACY, without=("allow_over_target", "model")),
    Part("privacy", ReaderLevels, PRIVACY),
    Part("shuffle", Shuffling, PRIVACY, only=("min_reports",)),
    Part(
        "mechanism", Mechanism, MECHANISM, without=("messages",),
        own={"name": {"help": "name of a frequency oracle or mean mechanism (PACKAGE:CLASS for one "
                      "of your own), or auto for the most accurate one (see `beam-ldp plan`)"}},
    ),
    Part(
        "release", Noise, RELEASE, without=("frozen_values",),
        own={
            "id": {"help": "name of this release; use a new name each time, or old reports "
                   "count again",
                   "basic": True},
            "key_file": {"help": "secret key of memoized noise, read by the workers: another run "
                   "sends the same report for every person, and a collector counts it "
                   "once (needs {people.id})"},
        },
    ),
    Part("release", ReadLater, RELEASE),
    Part("release", PublishedQuestion, RELEASE),
    Part(
        "output", Output, OUTPUT, only=("folder", "format", "job_timeout"),
        own={"job_timeout": {"help": "cancel the job after this time, such as 30m: nothing is "
                             "written, exit code 1 (default: no limit)"},
             "folder": {"help": "new folder for the reports and release.json"}},
    ),
    Part("output", WrittenEnvelopes, OUTPUT),
)  # fmt: skip

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
  one public report that everybody reads at 0.5, and holders of a key at 1 or 2
    beam-ldp randomize --input values.csv --column url --domain urls.txt --levels 2,1,0.5 \\
        --level-secret secret.key --dataset telemetry --release-id week-47 --output reports
  means of numbers, each in a public range, with the noise that meets a central epsilon
    beam-ldp randomize --input visits.csv --column minutes --user-id uid --range 0 1440 \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --dataset telemetry \\
        --release-id week-47 --output reports
  a public group with every report; the smallest group that is released has 20,000 people
    beam-ldp randomize --input values.csv --column url --domain urls.txt --user-id uid \\
        --group-by country --groups countries.txt --epsilon 1 --delta 1e-8 --min-reports 20000 \\
        --dataset telemetry --release-id week-47 --output reports
  reports of which single values can be read once a person consents (`beam-ldp recover`)
    beam-ldp randomize --input values.csv --column answer --domain answers.txt --user-id uid \\
        --local-epsilon 3 --recover-key-file private/week-47.key --dataset survey \\
        --release-id week-47 --output reports
  outcomes of an experiment, as its plan asks for them
    beam-ldp randomize --input visits.csv --column bought --group-by variant --user-id uid \\
        --experiment test.json --dataset visits --output reports
  rewards of people whom a bandit served, as its open batch asks for them
    beam-ldp randomize --release service/batch-1.release.json --input visits.csv \\
        --column reward --group-by play --user-id uid --output reports
  one level of a search for words, as it was published; another one goes into the same folder
    beam-ldp randomize --release level-1/release.json --input words.parquet --column word \\
        --user-id uid --memoize-key-file device.key --output answers
"""

EXIT_CODES = """
exit codes: 0 done; 1 the run failed; 2 a flag or an input is wrong, nothing was run;
            3 nothing was written (no row could be used, or too many could not);
            130 interrupted
"""

USAGE = Usage(
    name="randomize",
    module="beam_ldp.pipelines.randomize",
    asks=("frequency", "mean", "ab_test"),
    summary=(
        "Does what a device does, for a file of people's values: every value is randomized and "
        "packed. Reports and release.json may leave this machine; nothing else is written. "
        "`beam-ldp collect` counts the reports."
    ),
    synopsis=(
        "--input PATH --column NAME (--domain FILE | --bins EDGES | --norm NORM --radius R)"
        " (--local-epsilon EPS0 | --epsilon EPS --delta D --expected-users N) --dataset NAME "
        "--release-id NAME --output DIR [...]"
    ),
    examples=EXAMPLES,
    parts=PARTS,
    exit_codes=EXIT_CODES,
)
