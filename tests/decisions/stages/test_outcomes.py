"""`PrivateExperiment`: outcomes in a pipeline, and looks that are windows of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import FixedWindows, GlobalWindows, TimestampedValue

from beam_ldp.decisions import (
    ArmCounts,
    ExperimentPlan,
    PrivateExperiment,
    decide,
    decide_releases,
    design_experiment,
)
from beam_ldp.decisions.outcomes import OutcomeEncoder, Outcomes, counts_of
from beam_ldp.questions.columns import NOT_BINARY, SOUND, Column
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.settings import Noise, People, Privacy
from beam_ldp.transforms import Release

ARMS = People(group_by="arm", one_row=True)


def plan_of(**more: Any) -> ExperimentPlan:
    asked: dict[str, Any] = dict(local_epsilon=3, null=0.3, effect=0.3, alpha=0.05, power=0.8)
    return design_experiment(**{**asked, **more})


def released(
    plan: ExperimentPlan, ones: int, arm: str | None, people: int = 100, window: Any = None
) -> Release:
    """A release that was made of so many reports of one."""
    share = plan.channel.share(ones / people)
    estimate = Estimate(np.array([1 - share, share]), np.ones(2), people)
    return Release(estimate, people, None, group=arm, window=window)


@pytest.mark.exact
def test_counts_come_back_from_estimates() -> None:
    plan = plan_of()
    for people in (1, 7, 10**9):
        for ones in {0, 1, people // 3, people}:
            assert counts_of(plan, released(plan, ones, "x", people)) == ArmCounts(people, ones)


@pytest.mark.exact
def test_windows_are_looks_in_their_order() -> None:
    plan = plan_of(looks=3)
    first, second, third = (0, 10), (10, 20), (20, 30)
    quiet = [released(plan, 35, arm, window=second) for arm in plan.arms]
    loud = [released(plan, count, arm, window=third) for arm, count in zip(plan.arms, (20, 90))]
    none = [released(plan, 40, arm, window=first) for arm in plan.arms]
    verdicts = decide_releases(plan, [*loud, *quiet, *none])
    assert [one.decision for one in verdicts] == ["go on", "go on", "effect"]
    looks = [{arm: ArmCounts(100, count) for arm, count in zip(plan.arms, counts)}
             for counts in ((40, 40), (35, 35), (20, 90))]  # fmt: skip
    assert verdicts == tuple(decide(plan, *looks[: i + 1]) for i in range(3))
    at_once = [replace(one, window=first) for one in loud]
    assert [one.decision for one in decide_releases(plan, [*at_once, *quiet])] == ["effect"]


@pytest.mark.exact
def test_windows_that_decide_nothing_are_refused() -> None:
    plan = plan_of(looks=2)
    one = [released(plan, 40, arm, window=(0, 10)) for arm in plan.arms]
    with pytest.raises(ValueError, match="each arm once a window"):
        decide_releases(plan, [*one, one[0]])
    with pytest.raises(ValueError, match="counts must be of the arms"):
        decide_releases(plan, one[:1])
    more = [replace(r, window=(10 * i, 10 * i + 10)) for i in range(3) for r in one]
    with pytest.raises(ValueError, match="looks are decided in the design"):
        decide_releases(plan, more)
    assert decide_releases(plan, []) == ()


@pytest.mark.exact
def test_names_and_limits_of_the_plan() -> None:
    plan = plan_of(looks=2)
    made = PrivateExperiment(plan, column="bought", people=ARMS, noise=Noise(dataset="them"))
    assert made.identity.release_id == f"ab-test-{plan.digest[:16]}-look-1"
    second = PrivateExperiment(
        plan, column="bought", look=2, people=ARMS, noise=Noise(dataset="them")
    )
    other = PrivateExperiment(
        plan_of(looks=2, alpha=0.01), column="bought", people=ARMS, noise=Noise(dataset="them")
    )
    assert len({one.identity.digest for one in (made, second, other)}) == 3
    assert len({Outcomes(plan, "bought", look).digest(None) for look in (1, 2)}) == 2
    with pytest.raises(ValueError, match="column of arms"):
        PrivateExperiment(plan, column="bought")
    with pytest.raises(ValueError, match="column of arms"):
        PrivateExperiment(plan_of(arms=("all",)), column="bought", people=ARMS)
    loud = plan_of(local_epsilon=9)
    with pytest.raises(ValueError, match="local_epsilon"):
        PrivateExperiment(loud, column="bought", people=ARMS)
    PrivateExperiment(loud, column="bought", people=ARMS, privacy=Privacy(max_local_epsilon=10))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("values", "bits"),
    [
        ([0, 1, 2, -1], [0, 1, None, None]),
        ([0.0, 1.0, 0.5, float("nan")], [0, 1, None, None]),
        ([True, False, None], [1, 0, None]),
        (["1", "0", " true", "FALSE", "yes", ""], [1, 0, 1, 0, None, None]),
    ],
)
def test_what_is_an_outcome(values: list[Any], bits: list[int | None]) -> None:
    encoder = OutcomeEncoder(("bought",))
    found, codes = encoder.encode({"bought": Column(pa.array(values), len(values))}, len(values))
    assert [int(bit) if code == SOUND else None for bit, code in zip(found, codes)] == bits
    assert not any(code == NOT_BINARY for bit, code in zip(bits, codes) if bit is not None)


@pytest.mark.pipeline
def test_a_window_is_a_look() -> None:
    """Nothing shows in the first hour; in the second everybody of the variant buys."""
    plan = plan_of(looks=2)
    rows = [
        TimestampedValue({"arm": arm, "bought": hour == 1 and arm == "variant"}, 3600 * hour)
        for hour in range(2)
        for arm in (*plan.arms, "unknown")
        for _ in range(120)
    ]
    with TestPipeline() as pipeline:
        found = (
            pipeline
            | beam.Create(rows)
            | beam.WindowInto(FixedWindows(3600))
            | PrivateExperiment(
                plan, column="bought", people=ARMS, min_reports=100, noise=Noise(seed=5)
            )
        )
        bad = found.bad_rows | "All bad rows" >> beam.WindowInto(GlobalWindows()) | beam.Map(len)
        looks = found | beam.Values() | "All looks" >> beam.WindowInto(GlobalWindows())
        assert_that(looks, _goes_on_and_ends(plan))
        assert_that(bad, _sums_to(240), label="bad rows")


def _goes_on_and_ends(plan: ExperimentPlan) -> Callable[[Any], None]:
    def check(releases: list[Any]) -> None:
        verdicts = decide_releases(plan, releases)
        assert [one.decision for one in verdicts] == ["go on", "effect"]
        assert [one.people for one in verdicts] == [240, 480]

    return check


def _sums_to(count: int) -> Callable[[Any], None]:
    def check(counts: list[int]) -> None:
        assert sum(counts) == count

    return check
