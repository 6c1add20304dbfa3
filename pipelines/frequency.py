"""`beam-ldp frequency`: how often does each value of a public list occur?

The same program as `python -m beam_ldp.pipelines.frequency`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from rich.console import Console

from beam_ldp.pipelines import programs
from beam_ldp.pipelines.commands import start
from beam_ldp.pipelines.frequencies.answer import FrequencyAnswer, PartsAnswer
from beam_ldp.pipelines.frequencies.choice import FrequencyPlanner, checked_frequency
from beam_ldp.pipelines.frequencies.parts import Parts, PartsRecord, gate_parts, part_facts
from beam_ldp.pipelines.frequencies.questions import FrequencySettings, SeveralLists
from beam_ldp.pipelines.programs import Program
from beam_ldp.pipelines.usage.frequency import USAGE, StreamSettings
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import worker_results as results
from beam_ldp.release.checks import Job
from beam_ldp.release.inputs.public_lists import groups_of, lists_of
from beam_ldp.release.job import need, section_from, with_files
from beam_ldp.release.planner import Choice
from beam_ldp.release.question import Answer, Question
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.reserving import ledger_url
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.queries import FrequencyQuery, Query
from beam_ldp.transforms.questions import SurveyQuery


class Frequency(FrequencyPlanner, Question[FrequencySettings]):
    """How often does each value of a public list occur?"""

    usage = USAGE
    domain: Domain | Bins
    groups: Domain | None

    def __init__(self, settings: FrequencySettings) -> None:
        super().__init__(settings, lists_of(settings), groups_of(settings))

    @property
    def record_type(self) -> type[PrivacyRecord]:
        return PartsRecord if self.in_parts else PrivacyRecord

    @property
    def in_parts(self) -> bool:
        """Whether several releases come out."""
        return self.survey is not None or self.settings.people.group_by is not None

    @classmethod
    def check(cls, given: Arguments) -> FrequencySettings:
        need(USAGE, given, "source.paths", "privacy.delta", "output.folder")
        stream = section_from(given, USAGE, "stream", StreamSettings)
        told = [name for name in given["stream"] if name != "on"]
        if told and not stream.on:
            raise SettingError(f"{USAGE.flag_of(f'stream.{told[0]}')} needs --stream")
        settings = checked_frequency(given, USAGE, stream=stream.on)
        settings = with_files(settings, may_be_empty=stream.on)
        if settings.question.staged is not None and ledger_url(settings) is not None:
            raise SettingError(
                "--staged cannot be charged to a ledger, which must grant the budget before data "
                "is read: run without a template, or give --no-ledger"
            )
        return settings

    @classmethod
    def run_otherwise(cls, given: Arguments, console: Console) -> int | None:
        if not given["stream"].get("on"):
            return None
        from beam_ldp.pipelines import stream

        return stream.run_stream(given, console)

    @property
    def about(self) -> str:
        return self.settings.question.name

    @property
    def plausible(self) -> tuple[Any, Any]:
        return 0.0, 1.0

    @cached_property
    def query(self) -> Query:
        if self.survey is not None:
            return SurveyQuery(self.survey.asked, self.bad_rows)
        name = self.settings.question.name
        return FrequencyQuery(self.carried_domain, name, self.about, self.bad_rows)

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self.settings.question.columns

    def unlisted(self, values: np.ndarray) -> tuple[str, ...]:
        if isinstance(self.survey, SeveralLists):
            lists = self.survey.domains.items()
            return tuple(
                column
                for i, (column, listed) in enumerate(lists)
                if (values[:, i] == listed.size - 1).all()
            )
        none = self.survey is None and (values == self.domain.size - 1).all()
        return self.value_columns if none else ()

    @property
    def bad_rows(self) -> Literal["dead_letter", "other"]:
        """What becomes of rows that cannot be used."""
        return "dead_letter" if self.settings.bad_rows_leave_a_trace else "other"

    @property
    def carried_domain(self) -> Bins | PortableDomain:
        """The list, as workers get it."""
        if isinstance(self.domain, Bins):
            return self.domain
        return PortableDomain(self.settings.question.domains[0], self.settings.question.other)

    def collect(
        self, choice: Choice[Any], flags: Sequence[str], staging: str, console: Console
    ) -> results.WorkerResults:
        """Run the pipeline, or read what a template's job left."""
        if self.settings.question.staged is None:
            return super().collect(choice, flags, staging, console)
        found = results.read_all(self.settings.question.staged)
        if not (found.releases or found.withheld):
            raise SettingError(
                f"--staged {self.settings.question.staged}: there are no results, or the job is "
                "not done yet"
            )
        self._check_staged(choice, found.identity)
        expected = choice.mechanism.to_config()
        if any(dict(release.mechanism) != expected for release in found.releases):
            raise SettingError(
                f"--staged {self.settings.question.staged}: it was made with other flags, by "
                "another mechanism"
            )
        return found

    def _check_staged(self, choice: Choice[Any], made: ReleaseIdentity | None) -> None:
        """Refuse results of another release; a release without a name takes that of its job."""
        asked = self.identity(choice)
        if made is not None and not (self.settings.noise.id or self.settings.charge.run_id):
            self.run_id = made.release_id
            asked = replace(asked, release_id=made.release_id)
        if made != asked:
            differs = "its identity" if made is None else ", ".join(asked.differences(made))
            raise SettingError(
                f"--staged {self.settings.question.staged}: it was made with other flags, for "
                f"another release: it differs in {differs}"
            )

    def gate(self, found: results.WorkerResults) -> Release:
        if not self.in_parts:
            return super().gate(found)
        return gate_parts(
            found.releases,
            found.withheld,
            self.settings,
            self.about,
            found.bad_rows,
            () if self.survey is None else self.survey.names,
        )

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        found = {"postprocess": self.settings.question.postprocess}
        if not isinstance(release, Parts):
            return found
        of_parts = part_facts(
            release, choice.mechanism, self.settings, self.price, self.settings.people.group_by
        )
        return {**found, **of_parts}

    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> Answer:
        release = postprocessed(release, self.settings.question.postprocess)
        if isinstance(release, Parts):
            if self.survey is not None:
                return self.survey.answer(release, self.settings.output.top)
            return PartsAnswer(release, [self._answer(part, None) for part in release.releases])
        return self._answer(release, truth)

    def _answer(self, release: Release, truth: np.ndarray | None) -> FrequencyAnswer:
        return FrequencyAnswer(release, self.domain.labels, self.settings.output.top, truth)


def postprocessed(release: Release, method: Any) -> Release:
    """The release, or each of its parts, as it is shown: groups and questions by themselves."""
    if isinstance(release, Parts):
        shown = tuple(postprocessed(part, method) for part in release.releases)
        return replace(release, releases=shown)
    return replace(release, estimate=release.estimate.postprocess(method))


def _check(given: Arguments) -> Job:
    """What `beam-ldp check` looks at. Raises SettingError."""
    if not given["stream"].get("on"):
        return programs.to_check(Frequency, given)
    from beam_ldp.pipelines import stream

    return stream.to_check(given)


PROGRAM = Program(USAGE, partial(programs.run_and_show, Frequency), _check)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
