"""`beam-ldp bandit collect`: decide the open batch of a service from reports of devices.

The same program as `python -m beam_ldp.decisions.commands.bandit.collect`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from beam_ldp.decisions.commands.bandit.advance import OpenBatch, decide, open_batch
from beam_ldp.decisions.commands.bandit.choice import BatchRecord, open_service, planned
from beam_ldp.decisions.commands.bandit.published import REWARD, DeviceRewardQuestion
from beam_ldp.decisions.commands.bandit.service import ServiceFolder
from beam_ldp.decisions.commands.from_devices import DecidesFromReports
from beam_ldp.decisions.commands.usage import COLLECT, RewardQuestion
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import Program
from beam_ldp.release.checks import Preflight
from beam_ldp.release.devices.collecting import (
    CollectSettings,
    check_collected,
)
from beam_ldp.release.devices.release_file import RELEASE_FILE, load_release
from beam_ldp.release.job import need
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments


@dataclass(frozen=True)
class CollectBatchRecord(BatchRecord):
    """The record of a batch whose reports came from devices.

    Attributes:
        sampling: "iid" where a person has one report about one of their rows, else "fixed".
    """

    collected = True

    sampling: str = "fixed"


class CollectBatch(DecidesFromReports, OpenBatch):
    """Which actions may still be best, from reports that were randomized elsewhere?"""

    usage = COLLECT
    settings: CollectSettings

    @classmethod
    def of(cls, given: Arguments) -> CollectBatch:
        """The program as it was told: the service says what was asked. Raises SettingError."""
        need(COLLECT, given, "reports.reports")
        service = open_service(given, COLLECT)
        if service.terms.trusts_the_server:
            raise SettingError(
                f"--state {service.path}: its server is trusted with rewards, and people send no "
                "reports; `beam-ldp bandit advance` takes the rewards"
            )
        asked = open_batch(service)
        place = str(service.release_file(asked))
        agreed = load_release(place)
        if not isinstance(agreed.asked, DeviceRewardQuestion) or agreed.asked.batch != asked.digest:
            raise SettingError(f"{place} is not what batch {asked.number} asks: put it back")
        told = Arguments({"reports": {"release": place}}, []).over(given)
        question = RewardQuestion(reward=REWARD, state=str(service.path))
        settings = check_collected(planned(told, service, asked), agreed, question, COLLECT)
        return cls(settings, service, asked)

    @property
    def rows_are_people(self) -> bool:
        """Each report has a name of its own, so that copies of it count once."""
        return False

    @property
    def record_type(self) -> type[CollectBatchRecord]:
        return CollectBatchRecord


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
    return programs.to_check(CollectBatch, given)


def _run(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""
    service = open_service(given, COLLECT)
    return decide(CollectBatch, service, _batches_of(given, service), given, console)


PROGRAM = Program(COLLECT, _run, _check)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(COLLECT))
