"""What devices are told of a batch: its release.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.bandits.terms import BatchTerms
from beam_ldp.decisions.stages.rewards import RewardQuery, reward_digest
from beam_ldp.questions.published import Published, names_in
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.settings import Noise, People
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity

REWARD, PLAY = "reward", "play"


@dataclass(frozen=True)
class DeviceRewardQuestion(Published):
    """What a person's reward was, in one batch of a bandit.

    Attributes:
        column: with the reward, from -1 to 1.
        batch: its digest, in hexadecimal.
        plays: that the batch asks about; a report says which of them it is of.
    """

    answered_by = "beam_ldp.decisions.commands.bandit.devices:RewardValues"

    column: str
    batch: str
    plays: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.batch) != 64 or set(self.batch) - set("0123456789abcdef"):
            raise ValueError("questions: batch must be 32 bytes in hexadecimal")
        if not self.plays or len(set(self.plays)) < len(self.plays):
            raise ValueError("questions: plays must be distinct names")

    def to_json(self) -> dict[str, Any]:
        return {"column": self.column, "batch": self.batch, "plays": list(self.plays)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> DeviceRewardQuestion:
        column, batch = names_in([found["column"], found["batch"]])
        return cls(column, batch, names_in(found["plays"]))

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        return reward_digest(self.batch)

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        if not isinstance(randomizer, ScalarMean) or randomizer.radius != 1.0:
            raise ValueError("release terms contradict themselves: a reward lies in [-1, 1]")


def release_of(asked: BatchTerms) -> ReleaseFile:
    """The terms that devices and collector share. Whoever lets devices send sees to it that nobody
    sends two reports."""
    plays = Domain(asked.plays)
    people = People(group_by=PLAY, groups=plays, one_row=True)
    query = RewardQuery(REWARD, batch=asked.digest)
    randomizer = bit_randomizer(asked.local_epsilon)
    identity = release_identity(
        randomizer.config_digest(),
        columns=query.columns,
        values_digest=lambda: query.digest(randomizer),
        people=people,
        noise=Noise(dataset=asked.terms.dataset, id=asked.release_id),
        bounding=bounding_of(people),
    )
    own, named = of_release(randomizer, identity)
    assert named is not None  # it has its names
    return ReleaseFile(
        ReleaseTerms(own, named),
        group_by=PLAY,
        groups_digest=plays.digest,
        asked=DeviceRewardQuestion(REWARD, asked.digest, asked.plays),
    )
