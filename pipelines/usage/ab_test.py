"""What `beam-ldp ab-test run` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_ldp.pipelines.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage
from beam_ldp.settings.fields import COUNT, setting
from beam_ldp.settings.sections import (
    DEAD_LETTER,
    Charge,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)


@dataclass(frozen=True, kw_only=True)
class OutcomeQuestion:
    """Does an effect show, of a column of outcomes, as a plan says?"""

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

    @property
    def told_once(self) -> bool:
        """Whether reports of other people are never told under the same name."""
        return True

    @property
    def bad_rows(self) -> str:
        """Rows that cannot be used are listed: no value stands for an outcome."""
        return DEAD_LETTER


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
PARTS = (
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

EXAMPLES = """examples:
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

USAGE = Usage(
    name="ab-test run",
    module="beam_ldp.pipelines.experiments.run",
    of_devices=("experiment",),
    summary="Does an effect show? Each person's outcome is randomized where it arises, and the "
    "counts of each arm are decided as the plan says: p-values, effects with intervals and a "
    "verdict, with a stated privacy cost. A plan decides once.",
    synopsis="--input PATH --outcome NAME --arm NAME --design FILE --output DIR [...]",
    examples=EXAMPLES,
    parts=PARTS,
    question="ab_test",
)
