"""What `beam-ldp ab-test run` and `decide` take, `beam-ldp bandit advance` and `collect`, and their
help. Imports nothing heavy: somebody who asks for help waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from beam_ldp.pipelines.usage.collect import ReceivedEnvelopes
from beam_ldp.questions.base import Look, Question
from beam_ldp.settings.fields import COUNT, SECONDS, SWITCH, SettingError, setting
from beam_ldp.settings.sections import (
    Charge,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)
from beam_ldp.settings.usage import (
    DATA,
    MECHANISM,
    OUTPUT,
    PRIVACY,
    RELEASE,
    Arguments,
    Part,
    Usage,
)

if TYPE_CHECKING:  # what help need not wait for
    from beam_ldp.decisions.experiments.plan import ExperimentPlan
    from beam_ldp.decisions.outcomes import Outcomes
    from beam_ldp.decisions.rewards import Rewards
    from beam_ldp.settings.job import Job

# beam-ldp ab-test run -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OutcomeQuestion(Question):
    """Does an effect show, of a column of outcomes, as a plan says?

    Attributes:
        plan: what `design` holds, once it was read.
    """

    needs = ("question.column", "question.design")
    told_once = True
    refuses = {
        "group-by": "its groups are the arms, which --arm names",
        "stream": "a verdict is about all people of a look, who must be there before it: each "
        "look is a run of its own",
        "python": "a verdict follows a design that was filed before: use the command, or "
        "`PrivateExperiment` in a pipeline",
        "yaml": "a verdict follows a design that was filed before, which no YAML transform reads",
    }

    column: tuple[str, ...] = setting(
        (), "column with the outcome: 0 or 1, or true or false", flag="outcome", metavar="NAME",
        many=True, basic=True,
    )  # fmt: skip
    design: str = setting(
        "", "the plan, as `beam-ldp ab-test design --output` wrote it", flag="design",
        metavar="FILE", basic=True,
    )  # fmt: skip
    look: int = setting(
        1,
        "which of the plan's looks this is (default 1); its input holds the people who came since "
        "the look before",
        COUNT, flag="look", metavar="N",
    )  # fmt: skip
    plan: ExperimentPlan | None = None

    def settled(self, given: Arguments) -> OutcomeQuestion:
        """With its plan, which fits what else was asked for."""
        from beam_ldp.decisions.outcomes import read_plan
        from beam_ldp.release.job import absolute

        design = absolute(self.design)
        plan = read_plan(design)
        if len(self.column) > 1:
            raise SettingError(
                "{question.column} must name one column: another outcome is another experiment"
            )
        if plan.kind == "compound" or plan.value_range is not None:
            raise SettingError(
                "--design: outcomes are 0 or 1 here; a numeric or compound plan is decided from "
                "counts by `beam_ldp.decisions.decide`"
            )
        if self.look > plan.looks and plan.spending != "anytime":
            raise SettingError(
                f"--look must be at most {plan.looks}, the looks of the plan, got {self.look}"
            )
        self._check_arms(plan, given["people"])
        return replace(self, design=design, plan=plan)

    def _check_arms(self, plan: ExperimentPlan, people: Mapping[str, Any]) -> None:
        arm = people.get("group_by")
        if plan.kind == "arms" and arm is None:
            names = ", ".join(plan.arms)
            raise SettingError(
                f"{{people.group_by}} is missing: which column holds the arms {names}?"
            )
        if plan.kind != "arms" and arm is not None:
            raise SettingError(
                "{people.group_by} is for plans of several arms; this one has a single sample"
            )
        if arm is not None and arm in (*self.column, people.get("id")):
            raise SettingError("{people.group_by} must name a column that is used for nothing else")

    def bind(self, job: Job, look: Look) -> Outcomes:
        from beam_ldp.decisions.outcomes import Outcomes

        assert self.plan is not None
        return Outcomes(self.plan, self.column[0], self.look, self.column[0])


_PEOPLE: dict[str, dict[str, Any]] = {
    "group_by": {
        "flag": "arm", "basic": True,
        "help": "column with the arm that a person is in, by a name that the plan has. Which arm "
        "it is, is not protected",
    },
}  # fmt: skip
EACH_ARM = {
    "min_reports": {"help": "smallest number of reports of each arm to decide anything (default: "
                    "0.9 of those that the plan asks for)"},
}  # fmt: skip
_OF_RUN = (
    Part("source", Source, DATA),
    Part("question", OutcomeQuestion, DATA),
    Part("people", People, DATA, without=("groups",), own=_PEOPLE),
    Part("privacy", Privacy, PRIVACY, only=("honest_fraction", "max_local_epsilon",
                                            "trust_shuffler")),
    Part("shuffle", Shuffling, MECHANISM, only=("min_reports",), own=EACH_ARM),
    Part("release", Noise, RELEASE, without=("id",)),
    Part("release", Charge, RELEASE, without=("run_id",)),
    Part("output", Output, OUTPUT, without=("top",)),
)  # fmt: skip

_EXAMPLES_OF_RUN = """examples:
  the plan, before anybody reports
    beam-ldp ab-test design --null 0.10 --effect 0.01 --local-epsilon 2 --output test.json
  what would be decided and what it costs (reads no rows), then the verdict
    beam-ldp ab-test run --input visits.parquet --user-id uid --arm variant --outcome bought \\
        --design test.json --output verdict --dry-run
    beam-ldp ab-test run --input visits.parquet --user-id uid --arm variant --outcome bought \\
        --design test.json --output verdict
  the second of several looks, at the people who came since the first
    beam-ldp ab-test run ... --input week-2.parquet --look 2 --output look-2
"""

RUN = Usage(
    name="ab-test run",
    module="beam_ldp.decisions.ab_test_run",
    of_devices=("experiment",),
    answered_by="beam_ldp.decisions.ab_test_run:outcomes_on_devices",
    summary="Does an effect show? Each person's outcome is randomized where it arises, and the "
    "counts of each arm are decided as the plan says: p-values, effects with intervals and a "
    "verdict, with a stated privacy cost. A plan decides once.",
    synopsis="--input PATH --outcome NAME --arm NAME --design FILE --output DIR [...]",
    examples=_EXAMPLES_OF_RUN,
    parts=_OF_RUN,
    question="ab_test",
)

# beam-ldp ab-test decide --------------------------------------------------------------------------

_REFUSED = Part(
    "source", Source, DATA, only=("max_bad_rows",),
    own={
        "max_bad_rows": {
            "help": "decide nothing if more envelopes than this are refused: a share below 1, "
            "or a number (default: no limit)"
        }
    },
)  # fmt: skip
_OF_DECIDE = (
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
    _REFUSED,
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

_EXAMPLES_OF_DECIDE = """examples:
  on the side of the devices
    beam-ldp randomize --input visits.csv --column bought --group-by variant --user-id uid \\
        --experiment test.json --dataset visits --output reports
  on the side of the collector
    beam-ldp ab-test decide --reports reports --design test.json
  devices can lie: assume that at least four reports in five are honest
    beam-ldp ab-test decide --reports reports --design test.json --honest-fraction 0.8
"""

DECIDE = Usage(
    name="ab-test decide",
    module="beam_ldp.decisions.ab_test_decide",
    asks=("",),
    summary="Does an effect show, among people whose devices have sent randomized outcomes? This "
    "program starts at the shuffle and never sees an outcome. Whatever cannot be a report of this "
    "experiment is refused and listed, and copies count once. A plan decides once.",
    synopsis="--reports PATH --design FILE [...]",
    examples=_EXAMPLES_OF_DECIDE,
    parts=_OF_DECIDE,
)

# beam-ldp bandit advance --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RewardQuestion(Question):
    """What is the reward of each play of the open batch?

    Attributes:
        asked: what that batch asks, once its service was opened.
    """

    told_once = True
    refuses = {
        "group-by": "its groups are the plays, which --play names",
        "python": "batches follow each other in the folder of a service: use the command",
        "transform": "batches follow each other in the folder of a service: use the command",
        "yaml": "batches follow each other in the folder of a service: use the command",
    }

    reward: str = setting(
        "reward", "column with the reward, from -1 to 1 (default reward)", flag="reward",
        metavar="NAME",
    )  # fmt: skip
    state: str = setting(
        "", "folder of the service, as `beam-ldp bandit start` made it", flag="state",
        metavar="DIR", basic=True,
    )  # fmt: skip
    asked: Rewards | None = None

    @property
    def column(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns that hold what is asked."""
        return (self.reward,)

    def rules(self, job: Job) -> None:
        assert self.asked is not None
        if not self.asked.open.terms.trusts_the_server:
            return
        of_devices = {
            "--people-store": job.charge.people_store,
            "--memoize-key-file": job.noise.key_file,
            "--interaction-log": job.noise.log,
        }
        for flag, value in of_devices.items():
            if value is not None:
                raise SettingError(
                    f"{flag} cannot be used with a service of --model central: people send rewards "
                    "as they are, without a local epsilon, and the server draws noise once, of "
                    "each sum"
                )

    def bind(self, job: Job, look: Look) -> Rewards:
        assert self.asked is not None
        return self.asked


@dataclass(frozen=True, kw_only=True)
class RewardStream:
    """Rewards that keep arriving: which batch is open, their plays say."""

    on: bool = setting(
        False,
        "files keep arriving in {source.paths}: decide one batch after another, each when all of "
        "its slots have their rewards, until the winner is named, or Ctrl-C",
        SWITCH, flag="stream",
    )  # fmt: skip
    stop_after: float | None = setting(
        None, "with {stream.on}: stop after this time, as with Ctrl-C", SECONDS, flag="stop-after",
        metavar="TIME",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.stop_after is not None and not self.on:
            raise SettingError("{stream.stop_after} needs {stream.on}")


PLAY: dict[str, dict[str, Any]] = {
    "group_by": {
        "flag": "play", "basic": False,
        "help": "column with the play, as the batch's slots name it: 2:blue (default play)",
    },
}  # fmt: skip
REWARDS: dict[str, dict[str, Any]] = {
    "paths": {
        "flag": "rewards",
        "help": "rewards of the open batch, a row for each visitor: files, folders or globs, on "
        "any file system that Beam knows; may be repeated",
    },
}  # fmt: skip
OF_BATCH: dict[str, dict[str, Any]] = {
    "bad_rows_file": {
        "help": "where rows that cannot be used are listed; keep this file private (default: "
        "STATE.private/batch-N.bad_rows.jsonl)"
    },
}  # fmt: skip
_OF_ADVANCE = (
    Part("source", Source, DATA, own=REWARDS),
    Part("question", RewardQuestion, DATA),
    Part("people", People, DATA, without=("groups",), own=PLAY),
    Part("stream", RewardStream, DATA),
    Part("release", Noise, RELEASE, without=("id", "dataset", "seed")),
    Part("release", Charge, RELEASE, without=("run_id",)),
    Part("output", Output, OUTPUT, without=("folder", "overwrite", "top"), own=OF_BATCH),
)  # fmt: skip

_EXAMPLES_OF_ADVANCE = """examples:
  what the batch would cost (reads no rows), then its decision
    beam-ldp bandit advance --state service --rewards batch1.parquet --user-id uid --dry-run
    beam-ldp bandit advance --state service --rewards batch1.parquet --user-id uid
  charged to a budget of these people, which is asked before anything is read
    beam-ldp bandit advance --state service --rewards batch1.parquet --user-id uid \\
        --ledger sqlite:///privacy.db
  batch after batch, from files that keep arriving
    beam-ldp bandit advance --state service --rewards inbox --user-id uid --stream
"""

ADVANCE = Usage(
    name="bandit advance",
    module="beam_ldp.decisions.bandit_advance",
    asks=("",),
    summary="Decide the open batch of a service: each person's reward becomes one random bit, only "
    "sums of bits of each play are kept, actions that cannot be best are dropped, and the next "
    "batch is written, or the winner. Where the server is trusted, rewards are summed, and noise "
    "is added to each sum. A batch decides once; its own rewards given again change nothing.",
    synopsis="--state DIR --rewards PATH [...]",
    examples=_EXAMPLES_OF_ADVANCE,
    parts=_OF_ADVANCE,
)

# beam-ldp bandit collect --------------------------------------------------------------------------

_OF_COLLECT = (
    Part("reports", ReceivedEnvelopes, DATA, only=("reports",)),
    Part("question", RewardQuestion, DATA, only=("state",)),
    _REFUSED,
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

_EXAMPLES_OF_COLLECT = """examples:
  on the side of the devices
    beam-ldp randomize --release service/batch-1.release.json --input visits.csv \\
        --column reward --group-by play --user-id uid --output reports
  on the side of the collector
    beam-ldp bandit collect --state service --reports reports
"""

COLLECT = Usage(
    name="bandit collect",
    module="beam_ldp.decisions.bandit_collect",
    asks=("",),
    summary="Decide the open batch of a service from reports that devices have sent: this program "
    "starts at the shuffle and never sees a reward. Whatever cannot be a report of this batch is "
    "refused and listed, and copies count once. A batch decides once.",
    synopsis="--state DIR --reports PATH [...]",
    examples=_EXAMPLES_OF_COLLECT,
    parts=_OF_COLLECT,
)
