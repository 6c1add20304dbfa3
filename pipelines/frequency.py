"""`beam-ldp frequency`: how often does each value of a public list occur?

The same program as `python -m beam_ldp.pipelines.frequency`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import apache_beam as beam
import numpy as np
from rich.console import Console

from beam_ldp.pipelines import run
from beam_ldp.pipelines.frequencies.answer import FrequencyAnswer
from beam_ldp.pipelines.frequencies.choice import choose
from beam_ldp.pipelines.frequencies.groups import check_groups, load_groups
from beam_ldp.pipelines.frequencies.numeric import NumberQuestion, NumberTree, number_question_of
from beam_ldp.pipelines.frequencies.parts import Parts, PartsRecord, gate_parts, part_facts
from beam_ldp.pipelines.frequencies.parts_answer import PartsAnswer
from beam_ldp.pipelines.frequencies.questions import (
    SeveralLists,
    Survey,
    SurveyChoice,
    columns_of,
    domains_of,
)
from beam_ldp.pipelines.inputs.public_lists import load_list
from beam_ldp.pipelines.inputs.sources import BAD_ROWS, ROWS, TEXT_COLUMN, ReadTable
from beam_ldp.pipelines.jobs import results
from beam_ldp.pipelines.jobs.job import Outputs
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.question import Answer, Choice, Question, Rows
from beam_ldp.pipelines.records.reserving import ledger_url
from beam_ldp.pipelines.run import DONE, FAILED, MISUSED, NOTHING_RELEASED
from beam_ldp.pipelines.settings import Settings, check_common, need
from beam_ldp.pipelines.streams.flags import is_stream, refuse_without_stream
from beam_ldp.pipelines.usage.frequency import FLAGS, USAGE
from beam_ldp.randomizers.bins import Bins
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.questions import Questions
from beam_ldp.transforms import PrivateFrequencies
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.portable import PortableDomain

__all__ = ["DONE", "FAILED", "MISUSED", "NOTHING_RELEASED", "Frequency", "main"]


@dataclass(frozen=True, kw_only=True)
class FrequencySettings(Settings):
    """The flags of `frequency`, checked. Attributes: as the flags of the same names."""

    column: str
    domain: str
    other_label: str
    top: int
    staged: str | None
    group_by: str | None = None
    groups: str | None = None
    columns: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    wanted: NumberQuestion | None = None
    design: str = "auto"

    @property
    def planned_reports(self) -> int:
        """With groups: those of the smallest group that is released."""
        return self.min_reports if self.group_by is not None else super().planned_reports


class Frequency(Question[FrequencySettings]):
    """How often does each value of a public list occur?"""

    usage = USAGE

    def __init__(self, settings: FrequencySettings) -> None:
        super().__init__(settings)
        lists = [load_domain(path, settings.other_label) for path in settings.domains]
        wanted = settings.wanted
        self.domain: Domain | Bins = lists[0] if wanted is None else wanted.bins
        self.survey = survey_of(settings, lists)
        if settings.group_by is not None:
            self.groups = load_groups(settings.groups)
        if self.in_parts:
            self.record_type = PartsRecord  # type: ignore[misc]

    @property
    def in_parts(self) -> bool:
        """Whether several releases come out."""
        return self.survey is not None or self.settings.group_by is not None

    @classmethod
    def check(cls, values: argparse.Namespace) -> FrequencySettings:
        need(values, "input", "delta", "output")
        own = asked_of(values)
        refuse_without_stream(values)
        settings = check_common(values, FrequencySettings, **own)
        check_column(values, settings.input_format)
        if values.top < 1:
            raise UsageError("--top must be >= 1")
        if settings.staged is not None and ledger_url(settings) is not None:
            raise UsageError(
                "--staged cannot be charged to a ledger, which is asked before data are read: run "
                "without a template, or say --no-ledger"
            )
        return settings

    @property
    def about(self) -> str:
        return self.settings.column

    @property
    def plausible(self) -> tuple[Any, Any]:
        return 0.0, 1.0

    def choose(self) -> Choice:
        if self.survey is not None:
            return self.survey.choose(self.settings, self.settings.design)
        return choose(self.settings, self.domain.size)

    def expectation(self, choice: Choice) -> str:
        people = choice.predicted_error * choice.num_reports
        return (
            f"a rare value's count will be off by about {people:,.0f} of "
            f"{choice.num_reports:,} people"
        )

    def inputs(self) -> Rows:
        label = "list" if self.settings.wanted is None else "bins"
        found = [(label, f"{self.domain.size - 1:,} values and {self.settings.other_label!r}")]
        if self.survey is not None:
            found = self.survey.inputs()
        if self.settings.group_by is not None:
            listed = f"{self.groups.size - 1:,} of a public list and {self.groups.other!r}"
            found.append(("groups", f"column {self.settings.group_by}: {listed}"))
        return found

    def expected(self, choice: Choice) -> Rows:
        if isinstance(choice, SurveyChoice) and self.survey is not None:
            return self.survey.expected(choice)
        error, n = choice.predicted_error, choice.num_reports
        said = f"{error:.3g} of the people, that is {error * n:,.0f} of {n:,}"
        return [("error of a rare value", said)]

    def expected_as_json(self, choice: Choice) -> dict[str, Any]:
        if isinstance(choice, SurveyChoice):
            return {"predicted_standard_errors": list(choice.errors)}
        return {"domain_size": self.domain.size}

    def stages(self, pipeline: beam.Pipeline, choice: Choice) -> Outputs:
        settings = self.settings
        table = pipeline | "Read" >> ReadTable(
            settings.input,
            settings.input_format,  # type: ignore[arg-type]
            (*settings.columns, *((settings.group_by,) if settings.group_by else ())),
            settings.user_id,
            bad_rows=self.bad_rows,
            delimiter=settings.csv_delimiter,
        )
        composite = self.composite(choice)
        released = table[ROWS] | "Estimate" >> composite
        releases = released
        if settings.group_by is not None:
            releases = released | "Groups" >> beam.Values().with_output_types(Release)
        return Outputs(
            releases,
            released.withheld,
            (table[BAD_ROWS], released.bad_rows),
            released.persons,
            released.traces,
            composite.identity,
        )

    def composite(self, choice: Choice) -> Any:
        settings = self.settings
        how: dict[str, Any] = dict(
            user_id_column=settings.user_id,
            one_report_per=settings.rows_declared,
            groups=settings.groups,
            group_column=settings.group_by,
            min_reports=settings.min_reports,
            output=settings.shuffle_output,
            scope=settings.scope,
            bad_rows=self.bad_rows,
            question=self.about,
            **self.names,
        )
        if self.survey is not None:
            assert isinstance(choice.randomizer, Questions)
            return self.survey.composite(choice.randomizer, **how)
        return PrivateFrequencies(
            choice.randomizer,  # type: ignore[arg-type]
            domain=self.carried_domain,
            column=settings.column,
            **how,
        )

    @property
    def bad_rows(self) -> Literal["dead_letter", "other"]:
        """What becomes of rows that cannot be used."""
        return "dead_letter" if self.settings.bad_rows_leave_a_trace else "other"

    @property
    def carried_domain(self) -> Bins | PortableDomain:
        """The list, as workers get it."""
        if isinstance(self.domain, Bins):
            return self.domain
        return PortableDomain(self.settings.domain, self.settings.other_label)

    def collect(
        self, choice: Choice, flags: Sequence[str], staging: str, console: Console
    ) -> results.WorkerResults:
        """Run the pipeline, or read what a template's job left."""
        if self.settings.staged is None:
            return super().collect(choice, flags, staging, console)
        found = results.read_all(self.settings.staged)
        if not (found.releases or found.withheld):
            raise UsageError(
                f"--staged {self.settings.staged}: no results, or the job is not done yet"
            )
        self._check_staged(choice, found.identity)
        expected = choice.randomizer.to_config()
        if any(dict(release.mechanism) != expected for release in found.releases):
            raise UsageError(
                f"--staged {self.settings.staged}: made with other flags than these, by another "
                "mechanism"
            )
        return found

    def _check_staged(self, choice: Choice, made: ReleaseIdentity | None) -> None:
        """Refuse results of another release; a release without a name takes that of its job."""
        asked = self.identity(choice)
        if made is not None and not (self.settings.release_id or self.settings.run_id):
            self.run_id = made.release_id
            asked = replace(asked, release_id=made.release_id)
        if made != asked:
            differs = "its identity" if made is None else ", ".join(asked.differences(made))
            raise UsageError(
                f"--staged {self.settings.staged}: made with other flags than these, for another "
                f"release: it differs in {differs}"
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

    def facts(self, choice: Choice, release: Release) -> dict[str, Any]:
        if not isinstance(release, Parts):
            return {}
        return part_facts(
            release, choice.randomizer, self.settings, self.price, self.settings.group_by
        )

    def answer(self, release: Release, choice: Choice, truth: np.ndarray | None) -> Answer:
        if isinstance(release, Parts):
            if self.survey is not None:
                return self.survey.answer(release, self.settings.top)
            return PartsAnswer(release, [self._answer(part, None) for part in release.releases])
        return self._answer(release, truth)

    def _answer(self, release: Release, truth: np.ndarray | None) -> FrequencyAnswer:
        return FrequencyAnswer(release, self.domain.labels, self.settings.top, truth)


def asked_of(values: argparse.Namespace) -> dict[str, Any]:
    """The fields of the settings that say what is asked: columns, lists, bins.

    Raises:
        UsageError: naming the flag and what is allowed.
    """
    wanted = number_question_of(values)
    if wanted is None:
        need(values, "domain")
    check_groups(values)
    columns = columns_of(values)
    domains = () if wanted is not None else domains_of(values, columns)
    if wanted is not None and len(columns) > 1:
        raise UsageError(
            "--bins is about one --column; lists and bins together take a pipeline of your own "
            "(PrivateQuestions, docs/questions.md)"
        )
    return {
        "column": ", ".join(columns) or TEXT_COLUMN,
        "columns": columns or (TEXT_COLUMN,),
        "domain": ", ".join(dict.fromkeys(domains)),
        "domains": domains,
        "wanted": wanted,
    }


def survey_of(settings: FrequencySettings, lists: Sequence[Domain]) -> Survey | None:
    """The questions, where there are several to each person: lists, or levels of a tree."""
    if settings.wanted is not None and settings.wanted.needs_tree:
        return NumberTree(settings.column, settings.wanted)
    if len(settings.columns) > 1:
        return SeveralLists(settings.columns, lists, settings.domains, settings.other_label)
    return None


def check_column(values: argparse.Namespace, input_format: str) -> None:
    """A UsageError unless `--column` fits the format."""
    if input_format == "text" and (values.user_id or values.column):
        raise UsageError("--column and --user-id are not for text: each line is one value")
    if input_format != "text" and not values.column:
        raise UsageError(f"--column is missing: which column of the {input_format} files?")


def load_domain(path: str, other: str) -> Domain:
    """The public list, from any file system that Beam knows."""
    return load_list("--domain", path, other, hint=" (see --other-label)")


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if is_stream(argv, FLAGS):
        from beam_ldp.pipelines import stream

        return stream.main(argv)
    return run.main(Frequency, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.frequency import main as program

    sys.exit(program())
