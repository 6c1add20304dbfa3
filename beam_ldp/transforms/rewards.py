"""Rewards of a bandit's batch: rows to numbers of [-1, 1] and public plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_ldp.questions.columns import SOUND, TOO_LARGE, Codes
from beam_ldp.questions.encoders import Encoded, VectorEncoder
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.mean import ScalarMean
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
    only_listed = True  # a row whose play is not of this batch is a bad row

    def digest(self, randomizer: Any) -> bytes:
        return reward_digest(self.batch)

    def check(self, randomizer: Any) -> None:
        if not isinstance(randomizer, ScalarMean) or randomizer.radius != 1.0:
            raise TypeError("randomizer must be a ScalarMean of radius 1: rewards lie in [-1, 1]")

    def encoder(self, randomizer: Any) -> RewardEncoder:
        return RewardEncoder(self.columns, 1)


@dataclass(frozen=True)
class RewardEncoder(VectorEncoder):
    """A column of rewards: numbers of [-1, 1], or text that spells one. Any other row is bad.

    Nothing is clipped: a reward outside says that the data are not what the bandit learns from.
    """

    instead = None

    def fitted(self, vectors: np.ndarray, codes: Codes) -> Encoded:
        beyond = (codes == SOUND) & (np.abs(vectors[:, 0]) > 1)
        codes[beyond] = TOO_LARGE
        vectors[beyond] = 0.0
        return vectors, codes

    @property
    def shown(self) -> dict[str, Any]:
        return {"reward": "-1 to 1"}
