"""Rewards to a trusted server: sums with noise once, and nothing else that leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows
from numpy.typing import ArrayLike

from beam_ldp.decisions.bandits.noise import CentralSums
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.decisions.stages import PrivateSums
from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import Noise, People
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, ValueBlock, WithheldRelease

PLAYS = Domain(("1:blue", "1:red"))
COUNTS = (4, 4)
PEOPLE = People(id="uid", group_by="play", groups=PLAYS)
DECLARED = People(group_by="play", groups=PLAYS, one_row=True)
THREE = replace(DECLARED, groups=Domain(("1:blue", "1:red", "1:teal")))
QUERY = Rewards("reward", name="reward", batch="ab" * 32)
NAMED = Noise(dataset="visitors", id="batch-1")
SILENT = CentralSums(1e9)  # whose noise is not 0 once in e^476 times
ROWS = [
    {"uid": i, "play": "1:blue" if i % 2 else "1:red", "reward": reward}
    for i, reward in enumerate([1.0, -0.25, 1, "-0.25", -1.0, 0.5, 0.25, 0.5])
]


class Marked(CentralSums):
    """Whose noise is 1000, which shows how often it was added."""

    def release(self, sums: ArrayLike) -> Any:
        return np.asarray(sums) / self.cells + 1000


class Untouched(CentralSums):
    """Whose noise must not be drawn."""

    def release(self, sums: ArrayLike) -> Any:
        raise AssertionError("noise was drawn")


def shown(release: Release) -> tuple[Any, ...]:
    return release.group, release.num_reports, float(release.estimate.value[0])


def test_sums_of_each_play_come_out_with_noise_once() -> None:
    """Of blue 0.5 in all, of red 1.25, of teal 1; bad rows count nowhere."""
    bad = [{"uid": 8, "play": "1:red", "reward": 7}, {"uid": 9, "play": "2:red", "reward": 1}]
    last = {"uid": 10, "play": "1:teal", "reward": 1}
    with TestPipeline() as pipeline:
        rows = pipeline | beam.Create([*ROWS, *bad, last])
        found = rows | PrivateSums(Marked(1.0), QUERY, (4, 3, 1), people=THREE, noise=NAMED)
        told = found.bad_rows | beam.FlatMap(lambda block: [row.reason for row in block])
        assert_that(
            found | beam.Map(shown),
            equal_to([("1:blue", 4, 1000.5 / 4), ("1:red", 4, 1001.25 / 4), ("1:teal", 1, 1001.0)]),
            label="releases",
        )
        assert_that(found.withheld, equal_to([]), label="withheld")
        assert_that(
            told, equal_to(["outside of [-1, 1]", "group that is not listed"]), label="bad rows"
        )


@pytest.mark.parametrize("counts", [(4, 5, 1), (4, 4, 2)])
def test_where_one_play_lacks_people_no_noise_is_drawn_of_any(counts: tuple[int, ...]) -> None:
    """Of teal nobody came at all: of that no stage tells anything."""
    with TestPipeline() as pipeline:
        sums = Untouched(1.0)
        found = pipeline | beam.Create(ROWS) | PrivateSums(sums, QUERY, counts, people=THREE)
        told = found.withheld | beam.Map(lambda one: (one.group, one.num_reports, one.min_reports))
        assert_that(found, equal_to([]), label="releases")
        expected = [("1:blue", 4, counts[0]), ("1:red", 4, counts[1])]
        assert_that(told, equal_to(expected), label="withheld")


def test_of_a_person_with_many_rows_one_counts() -> None:
    blue = replace(PEOPLE, groups=Domain(("1:blue",)))
    rows = 50 * [{"uid": "ann", "play": "1:blue", "reward": 1.0}]
    with TestPipeline() as pipeline:
        found = pipeline | beam.Create(rows) | PrivateSums(SILENT, QUERY, [1], people=blue)
        people = found.persons | beam.Map(len)
        assert_that(people, equal_to([1]), label="persons")
        assert_that(found | beam.Map(shown), equal_to([("1:blue", 1, 1.0)]), label="releases")


def test_a_release_says_what_it_costs_and_how_far_it_is_off() -> None:
    sums = CentralSums(0.5)

    def right(release: Release) -> bool:
        estimate = release.estimate
        grid = float(estimate.value[0]) * release.num_reports * sums.cells
        return (
            release.event == sums.event
            and release.mechanism == sums.to_config()
            and estimate.standard_error[0] == sums.standard_error(4)
            and grid == round(grid)
            and not release.simulated
        )

    with TestPipeline() as pipeline:
        found = pipeline | beam.Create(ROWS) | PrivateSums(sums, QUERY, COUNTS, people=DECLARED)
        assert found.persons is None and found.traces is None
        assert_that(found | beam.Map(right), equal_to([True, True]))


class _Consumers(PipelineVisitor):
    """Who takes what, of the steps that are no composites."""

    def __init__(self) -> None:
        self.of: dict[Any, list[AppliedPTransform]] = {}

    def visit_transform(self, node: AppliedPTransform) -> None:
        for given in node.inputs:
            self.of.setdefault(given, []).append(node)


def test_noise_is_fixed_before_anybody_sees_it() -> None:
    """A step that fails after the noise is repeated with the same noise: what it was given was
    grouped before, which no engine does over."""
    pipeline = beam.Pipeline()
    found = pipeline | beam.Create(ROWS) | PrivateSums(SILENT, QUERY, COUNTS, people=DECLARED)
    _ = found | "One reader" >> beam.Map(shown)
    _ = found | "Another reader" >> beam.Map(shown)
    consumers = _Consumers()
    pipeline.visit(consumers)
    noisy = [node for nodes in consumers.of.values() for node in nodes
             if "/Noise" in node.full_label and node.outputs]  # fmt: skip
    (noise,) = set(noisy)
    readers = consumers.of[noise.outputs[None]]
    assert [node.full_label.split("/")[1] for node in readers] == ["Fix noise"]


def test_nothing_that_leaves_holds_a_reward() -> None:
    """But `persons`, of whom hashes are left where a budget of each is kept."""
    found = beam.Pipeline() | beam.Create(ROWS) | PrivateSums(SILENT, QUERY, COUNTS, people=PEOPLE)
    left = {name: one.element_type for name, one in vars(found).items()
            if isinstance(one, beam.PCollection)}  # fmt: skip
    assert found.element_type is Release
    assert left == {"withheld": WithheldRelease, "bad_rows": BadRowBlock, "persons": ValueBlock}


def test_identities_tell_batches_and_mechanisms_apart() -> None:
    def digest(sums: CentralSums = SILENT, query: Rewards = QUERY) -> bytes:
        named = PrivateSums(sums, query, COUNTS, people=PEOPLE, noise=NAMED).identity
        assert named is not None
        return named.digest

    other = Rewards("reward", name="reward", batch="ac" * 32)
    assert len({digest(), digest(CentralSums(1.0)), digest(query=other)}) == 3
    assert digest() == digest()
    assert PrivateSums(SILENT, QUERY, COUNTS, people=PEOPLE).identity is None


@pytest.mark.parametrize(
    "noise",
    [
        Noise(dataset="visitors", id="b", seed=1),
        Noise(dataset="visitors", id="b", key_file="key"),
        Noise(dataset="visitors", id="b", log="log", log_key_file="key"),
    ],
)
def test_noise_of_devices_is_refused(noise: Noise) -> None:
    with pytest.raises(ValueError, match="noise must hold names alone"):
        PrivateSums(SILENT, QUERY, COUNTS, people=PEOPLE, noise=noise)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="people.groups"):
        PrivateSums(SILENT, QUERY, COUNTS, people=People(id="uid"))
    for counts in ([], [4], [4, 0], [4, 4, 4]):
        with pytest.raises(ValueError, match="counts must hold"):
            PrivateSums(SILENT, QUERY, counts, people=PEOPLE)
    rows = beam.Pipeline() | beam.Create(ROWS) | beam.WindowInto(FixedWindows(60))
    with pytest.raises(ValueError, match="one window"):
        _ = rows | PrivateSums(SILENT, QUERY, COUNTS, people=PEOPLE)
