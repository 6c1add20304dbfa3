"""A release as it was asked for: the job with every rule checked, the question bound to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_ldp.questions.base import Question
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.inputs.previews import choose_fields, dimension_of, read_fields
from beam_ldp.release.inputs.public_lists import load_list
from beam_ldp.release.inputs.sources import InputFileError
from beam_ldp.release.job import checked_job, declared, kind_of, need, ranges_in, with_files
from beam_ldp.release.reserving import ledger_url
from beam_ldp.release.run import Run
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import TEXT_COLUMN, Arguments, Usage
from beam_ldp.transforms.elements.portable import PortableDomain


class FilesLook:
    """What a job's files say: lists, and the header of the first input.

    Args:
        job: whose.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def domain(self, path: str, other: str) -> Domain:
        """The list of a file. Raises SettingError."""
        return load_list("--domain", path, other, " (see --other-label)")

    def carried(self, domain: Any, other: str = "other") -> PortableDomain:
        """The list as workers read it."""
        return PortableDomain(domain, other)

    def columns(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are named; lines of text have one, which nobody names."""
        return named or (TEXT_COLUMN,)

    def coordinates(self, columns: Sequence[str], dimension: int | None) -> tuple[list[str], int]:
        """Columns, and numbers per person, by a header or footer. Raises SettingError."""
        job = self.job
        form, delimiter = job.source.format, job.source.delimiter
        if not job.files:  # those of a stream, which may still come
            return _without_a_file(columns, dimension)
        try:
            known = read_fields(job.files[0], form, delimiter)
        except InputFileError as error:
            raise SettingError(f"--input {error}") from None
        beside = delimiter if form == "csv" else ""
        fields = choose_fields(columns, known, job.people.id, beside)
        return [field.name for field in fields], dimension_of(fields, dimension)

    def ranges(self, path: str) -> Mapping[str, tuple[float, float]]:
        """Of each column. Raises SettingError."""
        return ranges_in(path)


def _without_a_file(columns: Sequence[str], dimension: int | None) -> tuple[list[str], int]:
    """Columns that are named one by one, and numbers per person. Raises SettingError."""
    names = [part.strip() for text in columns for part in text.split(",") if part.strip()]
    if any(set("*?[") & set(name) for name in names):
        raise SettingError(
            "{question.column} must name each column: there is no file yet that says which it has"
        )
    return names, len(names) if len(names) > 1 else dimension or 1


def run_of(usage: Usage, given: Arguments, question: Question, *, stream: bool = False) -> Run:
    """The release of a question, its files found and looked at; those of a stream may still come.
    Raises SettingError.
    """
    job = with_files(checked_job(usage, given, question, stream=stream), may_be_empty=stream)
    if getattr(job.question, "staged", None) is not None and ledger_url(job) is not None:
        raise SettingError(
            "--staged cannot be charged to a ledger, which must grant the budget before data is "
            "read: run without a template, or give --no-ledger"
        )
    return Run(usage, job, job.question.bind(job, FilesLook(job)))


def bound(usage: Usage, given: Arguments, *, stream: bool = False) -> Run:
    """The release that somebody asked for, or that of each window of a stream; reads what is
    public, and no data.

    Raises:
        SettingError: if that does not fit the flags.
    """
    need(usage, given, "source.paths", *kind_of(usage).needed(given), "output.folder")
    return run_of(usage, given, declared(usage, given), stream=stream)
