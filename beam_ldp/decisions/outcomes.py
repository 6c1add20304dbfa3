"""Outcomes of an experiment: what is asked, what a plan says of it, and what was counted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_ldp.decisions.experiments.arms import ArmCounts
from beam_ldp.decisions.experiments.plan import ExperimentPlan
from beam_ldp.planning import Plan
from beam_ldp.questions.base import Asked, Choice, Part, Rows
from beam_ldp.questions.columns import NOT_BINARY, SOUND, Column
from beam_ldp.questions.encoders import ColumnEncoder, Encoded
from beam_ldp.questions.number_columns import VectorReader
from beam_ldp.questions.published import Published, names_in
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.settings import Privacy, SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.sections import EXPECTED_SHARE

if TYPE_CHECKING:
    from beam_ldp.decisions.views import OutcomeView

Counts = Mapping[str, ArmCounts]  # of each arm


def outcome_digest(plan: str, look: int) -> bytes:
    """What stands for the question of an experiment in the identity of a release.

    Args:
        plan: digest of the plan, in hexadecimal.
        look: from 1.
    """
    return digest_of(b"experiment", bytes.fromhex(plan), b"%d" % look)


@dataclass(frozen=True, eq=False)
class Outcomes(Asked):
    """How many people of each arm have the outcome, and what that decides.

    Attributes:
        experiment: its plan. Its digest is part of the release's identity: another plan is
            another release.
        column: with the outcome, 0 or 1.
        look: which look at the experiment it is, from 1.
        name: for the record.
        earlier: what was counted at the looks before this one.
    """

    experiment: ExperimentPlan
    column: str
    look: int = 1
    name: str = ""
    earlier: tuple[Counts, ...] = ()
    only_listed = True  # a row of an arm that is not in the plan is a bad row

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def digest(self, mechanism: Any) -> bytes:
        return outcome_digest(self.experiment.digest, self.look)

    def check(self, mechanism: Any) -> None:
        if not isinstance(mechanism, FrequencyOracle) or mechanism.domain_size != 2:
            raise TypeError("randomizer must be a FrequencyOracle of two values")

    def mechanism(self, privacy: Privacy) -> KRandomizedResponse:
        return self.experiment.randomizer()

    def encoder(self, mechanism: Any) -> OutcomeEncoder:
        return OutcomeEncoder(self.columns)

    def on_devices(self, job: Job, mechanism: Any) -> OutcomeOnDevices:
        return OutcomeOnDevices(self.column, self.experiment.digest, self.look)

    # Before the data --------------------------------------------------------------------------

    def best(self, job: Job) -> Plan:
        randomizer = self.experiment.randomizer()
        return Plan(type(randomizer).__name__, randomizer)

    def chosen(self, job: Job, mechanism: LocalRandomizer) -> Choice:
        from beam_ldp.accounting.prices import expected_price

        plan, privacy, price = self.experiment, job.privacy, None
        if not job.noise.simulated:
            price = expected_price(mechanism, plan.crowd(), privacy.delta, privacy.honest_fraction)
        return Choice(mechanism, plan.crowd(), price, self._error())

    def _error(self) -> float:
        """Standard error of the effect that has the smallest arm, at the end of the plan."""
        plan = self.experiment
        variance = plan.channel.rate(plan.null_share) * (1 - plan.channel.rate(plan.null_share))
        counts = sorted(plan.arm_people().values())
        sides = counts[:1] if len(counts) == 1 else [counts[0], plan.arm_people()[plan.arms[0]]]
        return math.sqrt(sum(variance / count for count in sides)) / plan.channel.contrast

    def expectation(self, job: Job, choice: Choice) -> str:
        plan = self.experiment
        return (
            f"an effect of {plan.effect:+g} will be seen with probability {plan.power:g}, and "
            f"claimed with {plan.alpha:g} at most where there is none"
        )

    def inputs(self, job: Job) -> Rows:
        plan = self.experiment
        against = "the control" if plan.kind == "arms" else f"a rate of {plan.null:g}"
        rows = [("plan", f"{plan.digest[:16]}: {self.column}, {plan.effect:+g} against {against}")]
        if plan.kind == "arms":
            rows.append(("arms", f"column {job.people.group_by}: {', '.join(plan.arms)}"))
        if plan.looked:
            rows.append(("look", f"{self.look} of {plan.looks}"))
        return rows

    def expected(self, job: Job, choice: Choice) -> Rows:
        plan = self.experiment
        return [
            ("people needed", f"{plan.people:,}"),
            ("false alarms", f"{plan.alpha:g} of experiments without an effect, at most"),
            ("power", f"{plan.power:g} of experiments with an effect of {plan.effect:+g}"),
            ("error of the effect", f"about {readable(choice.predicted_error * plan.scale)}"),
        ]

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        return {"plan": {**self.experiment.to_json(), "digest": self.experiment.digest}}

    # After the data ---------------------------------------------------------------------------

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        """With `plan`, the digest of it; `decision`, "effect", "no effect shown" or "go on";
        `alpha`, the probability of deciding any effect where there is none, at most; and
        `effect_interval_level`, with which the intervals of all effects hold at once."""
        plan, verdict = self.experiment, self.view(job, choice, release).verdict
        return {
            "kind": "experiment",
            "statistic": "experiment",
            "plan": plan.digest,
            "decision": verdict.decision,
            "look": verdict.look,
            "looks": plan.looks,
            "alpha": plan.alpha,
            "effect_interval_level": verdict.interval_level,
        }

    def view(self, job: Job, choice: Choice, release: Any, truth: Any = None) -> OutcomeView:
        """Of all arms together: they decide together."""
        from beam_ldp.decisions.views import OutcomeView

        plan = self.experiment
        counts = {part.group or plan.arms[0]: counts_of(plan, part) for part in release.releases}
        return OutcomeView(release, plan, (*self.earlier, counts))

    def view_of_parts(self, job: Job, choice: Choice, parts: Any) -> OutcomeView:
        return self.view(job, choice, parts)


def decision_id(plan: ExperimentPlan, look: int) -> str:
    """The release id of a decision: whoever decides the plan again decides the same release."""
    return f"ab-test-{plan.digest[:16]}" + (f"-look-{look}" if plan.looked else "")


def least_reports(plan: ExperimentPlan) -> int:
    """Reports of an arm and look below which nothing is decided, if nobody says otherwise."""
    return max(1, math.ceil(EXPECTED_SHARE * plan.crowd()))


def counts_of(plan: ExperimentPlan, release: Part) -> ArmCounts:
    """The counts of reports that an estimate of this plan was made of."""
    reports = release.num_reports
    return ArmCounts(reports, round(plan.channel.rate(float(release.estimate.value[1])) * reports))


def read_plan(path: str) -> ExperimentPlan:
    """The plan of a file that `ab-test design` wrote. Raises SettingError."""
    try:
        stored = json.loads(Path(path).read_text("utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("a plan is a JSON object")
        return ExperimentPlan.from_json(stored)
    except OSError as error:
        raise SettingError(f"--design {path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingError(f"--design {path}: {error}") from None


@dataclass(frozen=True)
class OutcomeEncoder(ColumnEncoder):
    """A column of outcomes to bits: 0 or 1, a truth value, or text that spells one of them."""

    def encode_column(self, column: Column) -> Encoded:
        told = _spelled(column)
        numbers, codes = VectorReader(1).read([told], told.num_rows)
        bits = numbers[:, 0]
        codes[(codes == SOUND) & (bits != 0) & (bits != 1)] = NOT_BINARY
        return (bits == 1).astype(np.uint8), codes

    @property
    def shown(self) -> dict[str, Any]:
        return {"outcome": "0 or 1"}


def _spelled(column: Column) -> Column:
    """The column with `true` and `false`, however they are written, as digits."""
    data = column.data
    if not isinstance(data, pa.Array):
        return column
    if not (pa.types.is_string(data.type) or pa.types.is_large_string(data.type)):
        return column
    lower = pc.ascii_lower(pc.ascii_trim_whitespace(data))
    digits = pc.replace_substring_regex(lower, "^true$", "1")
    return Column(pc.replace_substring_regex(digits, "^false$", "0"), column.num_rows)


# On devices -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutcomeOnDevices(Published):
    """Whether a person of an experiment has the outcome.

    Attributes:
        column: with the outcome.
        plan: digest of the experiment's plan, in hexadecimal.
        look: which of its looks, from 1.
    """

    column: str
    plan: str
    look: int

    def __post_init__(self) -> None:
        if len(self.plan) != 64 or set(self.plan) - set("0123456789abcdef"):
            raise ValueError("questions: plan must be 32 bytes in hexadecimal")
        if type(self.look) is not int or self.look < 1:
            raise ValueError("questions: look must be an integer >= 1")

    def to_json(self) -> dict[str, Any]:
        return {"column": self.column, "plan": self.plan, "look": self.look}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> OutcomeOnDevices:
        column, plan = names_in([found["column"], found["plan"]])
        return cls(column, plan, found["look"])

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        return outcome_digest(self.plan, self.look)

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        if not isinstance(randomizer, FrequencyOracle) or randomizer.domain_size != 2:
            raise ValueError("release terms contradict themselves: an outcome is a bit")
