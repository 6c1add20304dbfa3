"""A job from what somebody asked for: its sections as they were given, and what its files say."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from beam_ldp.questions.base import Question
from beam_ldp.questions.means import read_ranges
from beam_ldp.release.inputs.public_lists import check_groups, read_public, why
from beam_ldp.settings import (
    Charge,
    Mechanism,
    Noise,
    Output,
    People,
    Privacy,
    SettingError,
    Shuffling,
    Source,
)
from beam_ldp.settings.job import J, Job, checked
from beam_ldp.settings.usage import Arguments, Usage

_SECTIONS: dict[str, tuple[tuple[str, type], ...]] = {
    "source": (("source", Source),),
    "people": (("people", People),),
    "privacy": (("privacy", Privacy),),
    "mechanism": (("mechanism", Mechanism),),
    "shuffle": (("shuffle", Shuffling),),
    "release": (("noise", Noise), ("charge", Charge)),
    "output": (("output", Output),),
}


def settings_from(given: Arguments, usage: Usage, question: Any, kind: Callable[..., J]) -> J:
    """The sections as they were given; rules between them are for `checked`.

    Args:
        given: what was asked for.
        usage: of the program, for errors.
        question: the program's own section.
        kind: makes the program's settings of sections.

    Raises:
        SettingError: naming the setting and what is allowed.
    """
    for part, name, about in usage:
        if {"PATH", "FILE", "DIR"} & {*str(about.metavar).split("|")}:
            _check_reachable(given, f"--{about.flag}", given[part.home].get(name))
    sections = {
        name: section_from(given, usage, home, section)
        for home, found in _SECTIONS.items()
        for name, section in found
    }
    people, noise, charge = sections["people"], sections["noise"], sections["charge"]
    sections |= {
        "people": replace(people, groups=absolute(people.groups)),
        "noise": replace(
            noise,
            key_file=absolute(noise.key_file),
            log=absolute(noise.log),
            log_key_file=absolute(noise.log_key_file),
        ),
        "charge": replace(
            charge,
            people_store=absolute(charge.people_store),
            people_key_file=absolute(charge.people_key_file),
        ),
    }
    return kind(**sections, question=question, only_plan=given.action("only_plan"))


def _check_reachable(given: Arguments, flag: str, paths: Any) -> None:
    """Beam, which loads slowly, is asked only of paths in stores. A list may be here already."""
    for path in paths if isinstance(paths, (tuple, list)) else (paths,):
        if isinstance(path, (str, os.PathLike)) and "://" in str(path):
            from beam_ldp.transforms.files import check_store

            try:
                check_store(str(path), given.beam_flags)
            except ValueError as error:
                raise SettingError(f"{flag} {error}") from None


def absolute(path: Any) -> Any:
    """A local path as workers need it, who may stand in another folder; anything else as it is."""
    local = isinstance(path, str) and path and "://" not in path
    return os.path.abspath(path) if local else path


def section_from(given: Arguments, usage: Usage, home: str, section: type) -> Any:
    """One section as it was given. Raises SettingError."""
    names = {field.name for field in dataclasses.fields(section)}
    try:
        return section(**{name: one for name, one in given[home].items() if name in names})
    except SettingError as error:
        raise SettingError(error.said(usage.flag_of)) from None


def need(usage: Usage, given: Arguments, *names: str) -> None:
    """A SettingError for the first of these settings, as `section.field`, that is not given."""
    for name in names:
        home, field = name.split(".")
        if given[home].get(field) in (None, "", ()):
            raise SettingError(f"{usage.flag_of(name)} is missing")


def with_files(settings: J, *, may_be_empty: bool = False) -> J:
    """The settings with what the launcher finds of the input: its files, their format. Raises
    SettingError."""
    from beam_ldp.release.inputs.sources import InputFileError, find_all_files  # loads Beam

    source = settings.source
    try:
        files = find_all_files(source.paths)
    except InputFileError as error:
        if not may_be_empty:  # of a stream, whose files are still to come
            raise SettingError(f"--input {error}") from None
        files = []
    found = _format_of(source, files)
    _check_column(found, settings.question.column, settings.people.id)
    delimiter = source.delimiter
    if delimiter and found != "csv":
        raise SettingError(f"--csv-delimiter is for CSV, and the input is {found}")
    if not delimiter:
        tabs = files and files[0][0].lower().split(".gz")[0].endswith(".tsv")
        delimiter = "\t" if tabs else ","
    question = settings.question
    if getattr(question, "domains", ()):
        question = replace(question, domains=tuple(map(absolute, question.domains)))
    return replace(
        settings,
        question=question,
        source=replace(source, format=found, delimiter=delimiter),
        files=tuple(path for path, _ in files),
        input_bytes=sum(size for _, size in files),
    )


def _check_column(form: str, column: Sequence[str], user_id: str | None) -> None:
    """Text has no columns; everything else needs some."""
    if form == "text" and (user_id or column):
        raise SettingError(
            "--column and --user-id cannot be used with text input, where each line is one value"
        )
    if form != "text" and not column:
        raise SettingError(f"--column is missing: which column of the {form} files?")


def _format_of(source: Source, files: Sequence[tuple[str, int]]) -> str:
    if source.format != "auto":
        return source.format
    from beam_ldp.release.inputs.sources import format_of

    found = {format_of(path) for path, _ in files}
    if len(found) != 1 or None in found:
        raise SettingError(
            "--input-format must be given: the format (parquet, csv, jsonl, text) cannot "
            "be told from the file extensions"
        )
    return str(found.pop())


def ranges_in(path: str) -> Mapping[str, tuple[float, float]]:
    """The public range of each column, as a file lists them. Raises SettingError."""
    try:
        content = read_public(path)
    except Exception as error:
        raise SettingError(f"--ranges {path}: cannot be read ({why(error)})") from None
    return read_ranges(path, content)


def kind_of(usage: Usage) -> type[Question]:
    """What a command asks."""
    (kind,) = {part.section for part in usage.parts if part.home == "question"}
    return kind


def declared(usage: Usage, given: Arguments, kind: type[Question] | None = None) -> Question:
    """The question as a command or job file says it. Raises SettingError."""
    found: Question = section_from(given, usage, "question", kind or kind_of(usage))
    try:
        return found.settled(given)
    except SettingError as error:
        raise SettingError(error.said(usage.flag_of)) from None


def checked_job(usage: Usage, given: Arguments, question: Question, *, stream: bool = False) -> Job:
    """The job, every rule checked, before any file is looked for. Raises SettingError."""
    job = question.filled(settings_from(given, usage, question, Job))
    check_groups(job)
    question.rules(job)
    return checked(job, stream=stream)
