"""`beam-ldp bandit collect`: decide the open batch of a service from reports of devices.

The same program as `python -m beam_ldp.pipelines.bandit_collect`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from rich.console import Console

from beam_ldp.pipelines import programs, run
from beam_ldp.pipelines.bandit_advance import OpenBatch, decide, open_batch
from beam_ldp.pipelines.bandits.choice import BatchRecord, open_service, planned
from beam_ldp.pipelines.bandits.published import REWARD
from beam_ldp.pipelines.bandits.service import ServiceFolder
from beam_ldp.pipelines.checks import Job
from beam_ldp.pipelines.devices.collecting import (
    CollectSettings,
    DeviceReports,
    check_collected,
    count,
)
from beam_ldp.pipelines.devices.questions import DeviceRewardQuestion
from beam_ldp.pipelines.devices.release_file import RELEASE_FILE, load_release
from beam_ldp.pipelines.flags import Arguments
from beam_ldp.pipelines.jobs.job import Outputs
from beam_ldp.pipelines.planner import Choice, Rows
from beam_ldp.pipelines.settings import need
from beam_ldp.pipelines.usage.bandit_advance import RewardQuestion
from beam_ldp.pipelines.usage.bandit_collect import USAGE
from beam_ldp.settings import SettingError
from beam_ldp.transforms.elements.blocks import Release


@dataclass(frozen=True)
class CollectBatchRecord(BatchRecord):
    """The record of a batch whose reports came from devices.

    Attributes:
        sampling: "iid" where a person has one report about one of their rows, else "fixed".
    """

    collected = True

    sampling: str = "fixed"


class CollectBatch(DeviceReports, OpenBatch):
    """Which actions may still be best, from reports that were randomized elsewhere?"""

    usage = USAGE
    settings: CollectSettings[RewardQuestion]

    @classmethod
    def of(cls, given: Arguments) -> CollectBatch:
        """The program as it was told: the service says what was asked. Raises SettingError."""
        need(USAGE, given, "reports.reports")
        service = open_service(given, USAGE)
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
        settings = check_collected(planned(told, service, asked), agreed, question, USAGE)
        return cls(settings, service, asked)

    @property
    def rows_are_people(self) -> bool:
        """Each report has a name of its own, so that copies of it count once."""
        return False

    @property
    def record_type(self) -> type[CollectBatchRecord]:
        return CollectBatchRecord

    def inputs(self) -> Rows:
        return [("release", self.settings.agreed.terms.identity.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> Outputs:
        return count(pipeline, self.settings, self.query, self.staging)

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        return {**super().facts(choice, release), "sampling": self.settings.agreed.sampling}


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


def to_check(given: Arguments) -> Job:
    """What `beam-ldp check` looks at. Raises SettingError."""
    return run.to_check(CollectBatch, given)


def run_given(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""
    service = open_service(given, USAGE)
    return decide(CollectBatch, service, _batches_of(given, service), given, console)


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return programs.run_flags(USAGE, run_given, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.bandit_collect import main as program

    sys.exit(program())
