"""Rewards of a bandit's batch: rows to numbers of [-1, 1] and public plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np

from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.settings import People
from beam_ldp.transforms.device.encode import ColumnNames, EncodeStage
from beam_ldp.transforms.device.vectors import EncodeNumbers
from beam_ldp.transforms.elements.columns import SOUND, TOO_LARGE, Codes
from beam_ldp.transforms.elements.portable import groups_of
from beam_ldp.transforms.queries import MeanQuery


def reward_digest(batch: str) -> bytes:
    """What stands for a batch in the identity of its release.

    Args:
        batch: digest of it, in hexadecimal.
    """
    return digest_of(b"bandit batch", bytes.fromhex(batch))


@dataclass(frozen=True)
class RewardQuery(MeanQuery):
    """What the reward of each play is, on average.

    Attributes:
        batch: digest of the batch that asks. It is part of the release's identity: another batch
            is another release.
    """

    batch: str = ""

    def digest(self, randomizer: Any) -> bytes:
        return reward_digest(self.batch)

    def check(self, randomizer: Any) -> None:
        if not isinstance(randomizer, ScalarMean) or randomizer.radius != 1.0:
            raise TypeError("randomizer must be a ScalarMean of radius 1: rewards lie in [-1, 1]")

    def encoder(self, randomizer: Any, people: People) -> beam.PTransform:
        return EncodeRewards(*self.columns, people=people)


class EncodeRewards(EncodeStage):
    """Turns rows into `ValueBlock`s of rewards. Nothing is private yet.

    A reward is a number of [-1, 1], or text that spells one. Any other row, and a row whose play is
    not of this batch, goes to the attribute `bad_rows` of the result. Nothing is clipped: a reward
    outside says that the data are not what the bandit learns from.

    Args:
        column: name of the column with the reward.
        people: the columns with a person's id and play, and the public list of plays.
    """

    def __init__(self, column: str, *, people: People = People()) -> None:
        super().__init__()
        self._doer = _EncodeRewards(
            names=ColumnNames.of((column,), people),
            groups=groups_of(people),
            hide_bad=False,
            only_listed=True,
            dimension=1,
            ranges=None,
            binary=False,
        )

    def display_data(self) -> dict[str, Any]:
        return {"reward": "-1 to 1"}


@dataclass(eq=False, kw_only=True)
class _EncodeRewards(EncodeNumbers):
    def _fitted(self, vectors: np.ndarray, codes: Codes) -> tuple[np.ndarray, Codes]:
        beyond = (codes == SOUND) & (np.abs(vectors[:, 0]) > 1)
        codes[beyond] = TOO_LARGE
        vectors[beyond] = 0.0
        return vectors, codes
