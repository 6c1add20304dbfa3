"""Public lists on the command line: `--domain urls.txt --groups countries.txt`."""

from __future__ import annotations

from typing import Any

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.inputs.public_lists import load_list
from beam_ldp.pipelines.settings import Settings
from beam_ldp.randomizers.domain import Domain


def check_groups(settings: Settings[Any]) -> None:
    """A UsageError unless the settings about groups fit together."""
    people = settings.people
    if (people.group_by is None) != (people.groups is None):
        raise UsageError("--group-by and --groups belong together: the list of groups is public")
    if people.group_by is None:
        return
    if settings.shuffle.min_reports is None:
        raise UsageError(
            "--group-by needs --min-reports: the smallest number of reports in a group, which "
            "decides how much noise the smallest group needs"
        )
    if people.group_by in (*settings.question.column, people.id):
        raise UsageError("--group-by must name a column that is used for nothing else")


def lists_of(settings: Settings[Any]) -> list[Domain]:
    """The lists of the questions, as files have them. Raises UsageError."""
    question, hint = settings.question, " (see --other-label)"
    return [load_list("--domain", path, question.other, hint) for path in question.domains]


def groups_of(settings: Settings[Any]) -> Domain | None:
    """The public list of groups, if there are any. Raises UsageError."""
    if settings.people.group_by is None:
        return None
    assert settings.groups is not None
    return load_list("--groups", settings.groups)
