"""Outcomes of an experiment: rows to bits and public arms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.settings import Noise, People, Privacy
from beam_ldp.settings.sections import EXPECTED_SHARE
from beam_ldp.transforms.composite import HowReleased, PrivateEstimate
from beam_ldp.transforms.device.encode import ColumnNames, EncodeBlocks, EncodeStage
from beam_ldp.transforms.device.number_columns import VectorEncoder
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.columns import NOT_BINARY, SOUND, Codes, Column
from beam_ldp.transforms.elements.portable import groups_of
from beam_ldp.transforms.queries import Query

if TYPE_CHECKING:  # which workers need not load
    from typing_extensions import Unpack

    from beam_ldp.decisions import ArmCounts, ExperimentPlan, ExperimentVerdict


def outcome_digest(plan: str, look: int) -> bytes:
    """What stands for the question of an experiment in the identity of a release.

    Args:
        plan: digest of the plan, in hexadecimal.
        look: from 1.
    """
    return digest_of(b"experiment", bytes.fromhex(plan), b"%d" % look)


@dataclass(frozen=True)
class OutcomeQuery(Query):
    """How many people of each arm have the outcome.

    Attributes:
        experiment: its plan. Its digest is part of the release's identity: another plan is
            another release.
        column: with the outcome, 0 or 1.
        look: which look at the experiment it is, from 1.
        name: for the record.
    """

    experiment: ExperimentPlan
    column: str
    look: int = 1
    name: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def digest(self, randomizer: Any) -> bytes:
        return outcome_digest(self.experiment.digest, self.look)

    def check(self, randomizer: Any) -> None:
        if not isinstance(randomizer, FrequencyOracle) or randomizer.domain_size != 2:
            raise TypeError("randomizer must be a FrequencyOracle of two values")

    def plan(self, privacy: Privacy) -> KRandomizedResponse:
        return self.experiment.randomizer()

    def encoder(self, randomizer: Any, people: People) -> beam.PTransform:
        return EncodeOutcomes(self.column, people=people)


class PrivateExperiment(PrivateEstimate):
    """How many people of each arm of an experiment have the outcome, under local privacy.

    Whom it protects, and what comes out: as in `PrivateEstimate`; which arm a person is in is not
    protected. In: rows. Out: a `(arm, Release)` for each arm and window, or a `Release` where there
    is one sample. `decide_releases` says what they decide; each window is a look.

    Args:
        plan: of the experiment, whose looks are as many as there will be windows.
        column: with the outcome: 0 or 1, or true or false. Other rows are bad ones.
        look: which look this is, where each is a pipeline of its own.
        question: name of what is asked, for the record.
        how: as in `PrivateEstimate`. `people` names the column of arms (`group_by`), whose list is
            the plan's; the least number of reports of an arm is 0.9 of the planned one, if it is
            not given; `noise` without an id is named after the plan.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        ValueError: for arguments that do not fit together.

    >>> import apache_beam as beam
    >>> from beam_ldp.decisions import design_experiment
    >>> plan = design_experiment(local_epsilon=2, null=0.2, effect=0.5, alpha=0.05, power=0.8)
    >>> people = People(group_by="arm", one_row=True)
    >>> rows = [{"arm": arm, "bought": i % 10 < 2} for i in range(60)
    ...         for arm in ("control", "variant")]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     counted = (
    ...         pipeline
    ...         | beam.Create(rows)
    ...         | PrivateExperiment(plan, column="bought", people=people)
    ...     )
    ...     _ = counted | beam.MapTuple(lambda arm, release: release.num_reports) | beam.Map(print)
    60
    60
    """

    def __init__(
        self,
        plan: ExperimentPlan,
        *,
        column: str,
        look: int = 1,
        question: str = "",
        **how: Unpack[HowReleased],
    ) -> None:
        people, noise = how.get("people", People()), how.get("noise", Noise())
        if (plan.kind == "arms") != (people.group_by is not None):
            raise ValueError("people must name the column of arms (group_by) exactly if there are")
        if people.groups is not None:
            raise ValueError("people: groups must be left out: the plan lists the arms")
        if plan.kind == "arms":
            how["people"] = replace(people, groups=Domain(plan.arms))
        if noise.dataset and noise.id is None:
            how["noise"] = replace(noise, id=decision_id(plan, look))
        if how.get("min_reports") is None and "shuffle" not in how:
            how["min_reports"] = least_reports(plan)
        super().__init__(plan.randomizer(), OutcomeQuery(plan, column, look, question), **how)


def decision_id(plan: ExperimentPlan, look: int) -> str:
    """The release id of a decision: whoever decides the plan again decides the same release."""
    return f"ab-test-{plan.digest[:16]}" + (f"-look-{look}" if plan.looked else "")


def least_reports(plan: ExperimentPlan) -> int:
    """Reports of an arm and look below which nothing is decided, if nobody says otherwise."""
    return max(1, math.ceil(EXPECTED_SHARE * plan.crowd()))


def counts_of(plan: ExperimentPlan, release: Release) -> ArmCounts:
    """The counts of reports that an estimate of this plan was made of."""
    from beam_ldp.decisions import ArmCounts

    reports = release.num_reports
    return ArmCounts(reports, round(plan.channel.rate(float(release.estimate.value[1])) * reports))


def decide_releases(
    plan: ExperimentPlan, releases: Iterable[Release]
) -> tuple[ExperimentVerdict, ...]:
    """What an experiment decides whose looks are windows of a stream: a verdict for each look.

    Looks are taken in the order of their windows, up to the first that shows an effect: what comes
    later decides nothing.

    Args:
        plan: of the experiment.
        releases: of `PrivateExperiment`, in any order.

    Raises:
        ValueError: for a window without one of the arms, or with one twice (rows that came late
            were released), and for more windows than looks. Complexity: that of the plan's rule.
    """
    from beam_ldp.decisions import decide

    looks: dict[tuple[int, int], dict[str, ArmCounts]] = defaultdict(dict)
    for release in releases:
        arm, found = release.group or plan.arms[0], looks[release.window or (0, 0)]
        if arm in found:
            raise ValueError(f"releases must hold each arm once a window, {arm!r} is there twice")
        found[arm] = counts_of(plan, release)
    verdicts: list[ExperimentVerdict] = []
    for number in range(1, len(looks) + 1):
        verdicts.append(decide(plan, *(looks[window] for window in sorted(looks)[:number])))
        if verdicts[-1].decision == "effect":
            break
    return tuple(verdicts)


class EncodeOutcomes(EncodeStage):
    """Turns rows into `ValueBlock`s of bits. Nothing is private yet.

    An outcome is 0 or 1, a truth value, or text that spells one of them. Any other row, and a row
    of an arm that is not in the plan, goes to the attribute `bad_rows` of the result.

    Args:
        column: name of the column with the outcome.
        people: the columns with a person's id and arm, and the public list of arms.
    """

    def __init__(self, column: str, *, people: People = People()) -> None:
        super().__init__()
        self._doer = _EncodeBits(
            names=ColumnNames.of((column,), people),
            groups=groups_of(people),
            hide_bad=False,
            only_listed=True,
            column=column,
        )

    def display_data(self) -> dict[str, Any]:
        return {"outcome": "0 or 1"}


@dataclass(eq=False, kw_only=True)
class _EncodeBits(EncodeBlocks):
    column: str

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        told = _spelled(columns.get(self.column, Column(None, num_rows)))
        numbers, codes = VectorEncoder(1).encode([told], num_rows)
        bits = numbers[:, 0]
        codes[(codes == SOUND) & (bits != 0) & (bits != 1)] = NOT_BINARY
        return (bits == 1).astype(np.uint8), codes


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
