"""Kinds of questions of other packages, by the command that asks them.

A package that is installed names its `Question` as an entry point of the group
`beam_ldp.questions`, by the command:

    [project.entry-points."beam_ldp.questions"]
    count-yes = "polls.yes:YesQuestion"

It then has every door that the kinds of this package have: `beam-ldp count-yes` with its help,
plan, check and job file. A name is looked for here only if it is none of our own: a scan takes
0.08 s.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

from beam_ldp.settings.sections import (
    Charge,
    Mechanism,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)
from beam_ldp.settings.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage

if TYPE_CHECKING:
    from beam_ldp.questions.base import Question

GROUP = "beam_ldp.questions"  # of entry points


@cache
def targets() -> dict[str, str]:
    """Where each kind of another package is, as "module:class", by its command."""
    from importlib import metadata

    return {one.name: one.value for one in metadata.entry_points(group=GROUP)}


def usage_of(command: str, kind: type[Question]) -> Usage:
    """What a kind of question is told on the command line and in job files: its own fields, and
    the sections that every release has.

    Args:
        command: that asks it.
        kind: whose docstring begins with what it asks.
    """
    parts = (
        Part("source", Source, DATA),
        Part("question", kind, DATA),
        Part("people", People, DATA),
        Part("privacy", Privacy, PRIVACY, without=("model",)),
        Part("mechanism", Mechanism, MECHANISM, only=kind.chooses),
        Part("shuffle", Shuffling, MECHANISM),
        Part("release", Noise, RELEASE),
        Part("release", Charge, RELEASE),
        Part("output", Output, OUTPUT),
    )
    name = command.replace("-", "_")
    found = Usage(
        name=command,
        summary=" ".join(str(inspect.getdoc(kind)).split("\n\n")[0].split()),
        synopsis="",
        examples="",
        parts=parts,
        question=name,
    )
    needed: tuple[Any, ...] = ("source.paths", *kind.needs, "output.folder")
    synopsis = " ".join(f"{found.flag_of(one)} VALUE" for one in needed)
    return Usage(**{**vars(found), "synopsis": f"{synopsis} [...]"})
