"""`beam-ldp bandit collect`: decide the open batch of a service from reports of devices.

The same program as `python -m beam_ldp.decisions.bandit_collect`.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from beam_ldp.decisions.bandit_advance import BatchRun, decide
from beam_ldp.decisions.rewards import RewardOnDevices, Rewards
from beam_ldp.decisions.service import (
    REWARD,
    ServiceFolder,
    asks_of,
    open_batch,
    open_service,
    planned,
)
from beam_ldp.decisions.usage import COLLECT, RewardQuestion
from beam_ldp.pipelines.devices.values import MANY, DeviceValues, check_new, refuse_decided
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import Program
from beam_ldp.pipelines.usage import randomize
from beam_ldp.questions.base import Choice
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.checks import Preflight
from beam_ldp.release.devices.collecting import CollectedRun, collected_job
from beam_ldp.release.devices.release_file import RELEASE_FILE, ReleaseFile, load_release
from beam_ldp.release.job import need, settings_from, with_files
from beam_ldp.release.run import Run
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job, checked
from beam_ldp.settings.usage import Arguments, Usage


class CollectedBatch(CollectedRun, BatchRun):
    """Which actions may still be best, from reports that were randomized elsewhere?"""


def bound_reports(usage: Usage, given: Arguments) -> CollectedBatch:
    """The release that somebody asked for: the service says what was asked. Raises SettingError."""
    need(usage, given, "reports.reports")
    service = open_service(given, usage)
    if service.terms.trusts_the_server:
        raise SettingError(
            f"--state {service.path}: its server is trusted with rewards, and people send no "
            "reports; `beam-ldp bandit advance` takes the rewards"
        )
    asked = open_batch(service)
    place = str(service.release_file(asked))
    agreed = load_release(place)
    if not isinstance(agreed.asked, RewardOnDevices) or agreed.asked.batch != asked.digest:
        raise SettingError(f"{place} is not what batch {asked.number} asks: put it back")
    told = Arguments({"reports": {"release": place}}, []).over(given)
    question = RewardQuestion(reward=REWARD, state=str(service.path))
    job = collected_job(usage, planned(told, service, asked), agreed, question)
    return CollectedBatch(usage, job, asks_of(REWARD, service, asked))


def _batches_of(given: Arguments, service: ServiceFolder) -> set[int]:
    """Numbers of the batches of this service whose reports are in the folders, as their
    release.json says; none where there is no such file."""
    found = set()
    for path in map(Path, given["reports"].get("reports", ())):
        if not (path / RELEASE_FILE).is_file():
            continue
        named = load_release(str(path / RELEASE_FILE)).terms.identity.release_id
        for number in range(1, len(service.progress.heard) + 2):
            if named == service.terms.release_id(number):
                found.add(number)
    return found


def _check(given: Arguments) -> Preflight:
    """What `beam-ldp check` looks at. Raises SettingError."""
    return Preflight.of(bound_reports(COLLECT, given), given.beam_flags)


def _run(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""
    service = open_service(given, COLLECT)
    return decide(COLLECT, bound_reports, service, _batches_of(given, service), given, console)


# Rewards on devices -------------------------------------------------------------------------------

# What goes with the release.json of a batch: everything else is in it, or means nothing here.
_TAKEN = {
    "source": {"paths", "format", "delimiter", "max_bad_rows"},
    "question": {"column"},
    "people": {"id", "one_row", "group_by"},
    "release": {"release"},
    "output": {"folder", "format"},
    "": {"only_plan"},
}


def rewards_on_devices(given: Arguments, release: ReleaseFile) -> DeviceValues:
    """Rewards of people who were served, as the open batch of a bandit asks for them.

    Args:
        given: what was asked for.
        release: what the bandit published.

    Raises:
        SettingError: where the flags say what the release has decided, or do not fit.
    """
    usage = randomize.USAGE
    refuse_decided(given, _TAKEN, "a bandit's batch")
    need(usage, given, "source.paths", "output.folder")
    check_new(given["output"]["folder"])
    asked, identity = release.asked, release.terms.identity
    assert isinstance(asked, RewardOnDevices)
    column, *more = given["question"].get("column") or (asked.column,)
    if more:
        raise SettingError("--column must name one column")
    decided: dict[str, dict[str, Any]] = {
        "privacy": {"local_epsilon": release.terms.randomizer.local_epsilon, "model": "local"},
        "people": {"group_by": release.group_by, **given["people"], "groups": Domain(asked.plays)},
        "shuffle": {"min_reports": 1},
        "release": {"dataset": identity.dataset, "id": identity.release_id},
    }
    question = RewardQuestion(reward=column)
    job = settings_from(Arguments(decided, []).over(given), usage, question, Job)
    made = DeviceValues()
    made.run = Run(usage, with_files(checked(job)), Rewards(column, asked.batch, column))
    made.run.choice = Choice(release.terms.randomizer, MANY, None, math.nan)
    made.release = release
    return made


PROGRAM = Program(COLLECT, _run, _check, bound_reports)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(COLLECT))
