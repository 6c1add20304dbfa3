"""What the collector of a bandit's batch gets: no ids, and nothing of the order of people."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.test_pipeline import TestPipeline as Pipeline
from apache_beam.testing.util import assert_that

from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import PrivateEstimate
from beam_ldp.transforms.elements.blocks import Release, TableBlock

pytestmark = pytest.mark.pipeline

PLAYS = ("3:blue", "3:red")
BIT = bit_randomizer(1.0)
ROWS = [
    {"uid": f"visitor-{i}", "play": PLAYS[i % 2], "reward": (-1.0, 0.5, 1.0)[i % 3]}
    for i in range(240)
]


def table(rows: list[dict[str, Any]]) -> TableBlock:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return TableBlock("rewards", 0, pa.RecordBatch.from_pydict(columns))


def ones(release: Release) -> int:
    """Of the reports, whose mean of -1 and 1 is estimated."""
    mean = float(release.estimate.raw.value[0]) / (1 / BIT.response.gain)
    return round((1 + mean) / 2 * release.num_reports)


def said(one: tuple[str, Release]) -> tuple[str, int, int, bool]:
    """Play, reports, ones, and whether anything in the release is somebody's id."""
    play, release = one
    return play, release.num_reports, ones(release), b"visitor-" in pickle.dumps(vars(release))


def each_play_twice_the_same(told: list[tuple[str, int, int, bool]]) -> None:
    assert len(told) == 4
    assert len(set(told)) == 2  # either order says the same
    assert {(play, reports, named) for play, reports, _, named in told} == {
        ("3:blue", 120, False), ("3:red", 120, False),
    }  # fmt: skip
    assert all(0 < found < 120 for _, _, found, _ in told)


def test_sums_do_not_depend_on_the_order_of_people_and_name_nobody(tmp_path: Path) -> None:
    """Noise is memoized, so that a person's report is the same wherever she stands."""
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    query = Rewards("reward", name="reward", batch="ab" * 32)
    people = People(id="uid", group_by="play", groups=Domain(PLAYS))
    noise = Noise(dataset="visitors", id="banner-3", key_file=str(key))
    with Pipeline() as pipeline:
        told = []
        for order, step in (("as they came", 1), ("backwards", -1)):
            estimate = PrivateEstimate(BIT, query, people=people, noise=noise, min_reports=120)
            rows = pipeline | f"Rows {order}" >> beam.Create([table(ROWS[::step])])
            released = rows | f"Estimate {order}" >> estimate
            told.append(released | f"Said {order}" >> beam.Map(said))
        assert_that(told | beam.Flatten(), each_play_twice_the_same)
