"""What devices are told of a batch: its release.json."""

from __future__ import annotations

from beam_ldp.pipelines.devices.questions import DeviceRewardQuestion
from beam_ldp.pipelines.devices.release_file import ReleaseFile
from beam_ldp.protocols.bandits.noise import bit_randomizer
from beam_ldp.protocols.bandits.terms import BatchTerms
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.settings import Noise, People
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity
from beam_ldp.transforms.rewards import RewardQuery

REWARD, PLAY = "reward", "play"


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
