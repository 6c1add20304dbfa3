"""Rows of rewards: what counts, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.rewards import RewardEncoder, Rewards, reward_digest
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean import LInfMean, ScalarMean
from beam_ldp.settings import People
from beam_ldp.transforms import PrivateEstimate
from beam_ldp.transforms.device.encode import Encode

PLAYS = Domain(("1:blue", "1:red"))
PEOPLE = People(group_by="play", groups=PLAYS, one_row=True)
DIGEST = "ab" * 32
ROWS: list[dict[str, Any]] = [
    {"play": "1:blue", "reward": 1}, {"play": "1:red", "reward": "-0.25"},
    {"play": "1:red", "reward": True}, {"play": "1:blue", "reward": -1.0},
]  # fmt: skip
BAD: list[tuple[dict[str, Any], str]] = [
    ({"play": "1:red", "reward": 1.5}, "outside of [-1, 1]"),
    ({"play": "1:red", "reward": -1e300}, "outside of [-1, 1]"),
    ({"play": "1:red", "reward": float("inf")}, "infinite"),
    ({"play": "1:red", "reward": float("nan")}, "NaN"),
    ({"play": "1:red", "reward": "often"}, "not a number"),
    ({"play": "1:red"}, "missing column"),
    ({"play": "2:red", "reward": 1}, "group that is not listed"),
    ({"reward": 1}, "no group"),
]


def test_rewards_of_this_batch_count_and_all_else_is_told() -> None:
    """With a reason each, and nothing of what the row holds."""

    def values(block: Any) -> list[tuple[int, float]]:
        return list(zip(block.groups.tolist(), block.values[:, 0].tolist()))

    with TestPipeline() as pipeline:
        rows = pipeline | beam.Create([*ROWS, *(row for row, _ in BAD)])
        encoder = RewardEncoder(("reward",), 1)
        found = rows | Encode(encoder, people=PEOPLE, only_listed=True)
        told = found.bad_rows | beam.FlatMap(lambda block: [row.reason for row in block])
        assert_that(
            found | beam.FlatMap(values),
            equal_to([(0, 1.0), (1, -0.25), (1, 1.0), (0, -1.0)]),
            label="values",
        )
        assert_that(told, equal_to([reason for _, reason in BAD]), label="reasons")


def test_a_batch_comes_out_by_plays() -> None:
    query = Rewards("reward", name="reward", batch=DIGEST)
    with TestPipeline() as pipeline:
        released = (
            pipeline
            | beam.Create(300 * ROWS)
            | PrivateEstimate(bit_randomizer(6.0), query, people=PEOPLE, min_reports=600)
        )
        told = released | beam.MapTuple(lambda play, one: (play, one.num_reports))
        assert_that(told, equal_to([("1:blue", 600), ("1:red", 600)]))


@pytest.mark.parametrize(
    "randomizer", [LInfMean(1, 2.0), ScalarMean(1, local_epsilon=2.0, radius=2.0)]
)
def test_only_mechanisms_of_a_reward_answer(randomizer: Any) -> None:
    with pytest.raises(TypeError, match="radius 1"):
        PrivateEstimate(randomizer, Rewards("reward", batch=DIGEST), min_reports=10)


def test_batches_are_told_apart() -> None:
    assert len(reward_digest(DIGEST)) == 16
    assert reward_digest(DIGEST) != reward_digest("ac" * 32)
    query = Rewards("reward", batch=DIGEST)
    assert query.digest(bit_randomizer(1.0)) == reward_digest(DIGEST)
    assert np.isclose(bit_randomizer(1.0).points, [-1, 1]).all()
