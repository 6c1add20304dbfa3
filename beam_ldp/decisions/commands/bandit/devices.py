"""A batch for devices that randomize themselves: what they are told, and what one makes of it."""

from __future__ import annotations

from typing import Any

from beam_ldp.decisions.commands.bandit.advance import OpenBatch
from beam_ldp.decisions.commands.bandit.published import DeviceRewardQuestion
from beam_ldp.decisions.commands.usage import RewardQuestion
from beam_ldp.decisions.stages.rewards import RewardQuery
from beam_ldp.pipelines.devices.values import DeviceValues, check_new, refuse_decided
from beam_ldp.pipelines.usage import randomize
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.release.job import need, settings_from, with_files
from beam_ldp.release.planner import Planner, Rows
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job, checked
from beam_ldp.settings.usage import Arguments

# What goes with the release.json of a batch: everything else is in it, or means nothing here.
_TAKEN = {
    "source": {"paths", "format", "delimiter", "max_bad_rows"},
    "question": {"column"},
    "people": {"id", "one_row", "group_by"},
    "release": {"release"},
    "output": {"folder", "format"},
    "": {"only_plan"},
}


class RewardValues(DeviceValues):
    """Rewards of people who were served, as the open batch of a bandit asks for them.

    Args:
        given: what was asked for.
        release: what the bandit published.

    Raises:
        SettingError: where the flags say what the release has decided, or do not fit.
    """

    def __init__(self, given: Arguments, release: ReleaseFile) -> None:
        usage = randomize.USAGE
        refuse_decided(given, _TAKEN, "a bandit's batch")
        need(usage, given, "source.paths", "output.folder")
        check_new(given["output"]["folder"])
        assert isinstance(release.asked, DeviceRewardQuestion)
        self.release = release
        self.settings = self._settings(given, release.asked)
        self.program = _Rewards(self.settings, release.asked.batch)

    def _settings(self, given: Arguments, asked: DeviceRewardQuestion) -> Job:
        """What was told, with what the batch says."""
        usage, identity = randomize.USAGE, self.identity
        decided: dict[str, dict[str, Any]] = {
            "privacy": {"local_epsilon": self.release.terms.randomizer.local_epsilon,
                        "model": "local"},
            "people": {"group_by": self.release.group_by, **given["people"],
                       "groups": Domain(asked.plays)},
            "shuffle": {"min_reports": 1},
            "release": {"dataset": identity.dataset, "id": identity.release_id},
        }  # fmt: skip
        column = tuple(given["question"].get("column") or (asked.column,))
        if len(column) > 1:
            raise SettingError("--column must name one column")
        question = RewardQuestion(reward=column[0])
        settings = settings_from(Arguments(decided, []).over(given), usage, question, Job)
        return with_files(checked(settings))


class _Rewards(OpenBatch):
    """What is read of people here; nothing is decided."""

    usage = randomize.USAGE

    def __init__(self, settings: Job, batch: str) -> None:
        Planner.__init__(self, settings)
        self.batch = batch

    def inputs(self) -> Rows:
        return []

    @property
    def query(self) -> RewardQuery:
        return RewardQuery(self.about, None, self.about, batch=self.batch)
