"""The settings that a program takes, its help, and what somebody asked it for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from beam_ldp.settings.fields import SWITCH, Setting, setting, settings_of

TEXT_COLUMN = "value"  # what lines of text are called

DATA = "the data"
PRIVACY = "the privacy cost (give one of the two epsilons)"
MECHANISM = "the mechanism and the shuffler"
RELEASE = "the release and its budget"
OUTPUT = "the output"

EXIT_CODES = """
exit codes: 0 done; 1 the run failed; 2 a flag or an input is wrong, nothing was run;
            3 nothing was published (too few reports, too many bad rows, a cost above --epsilon,
            the budget, or a ledger that could not be reached at the end: `beam-ldp finalize`
            then continues);
            130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Action:
    """What to do with the settings, other than to run them."""

    only_plan: bool = setting(
        False, "print plan, privacy cost and checks (as `beam-ldp check`); run nothing", SWITCH,
        flag="dry-run", basic=True,
    )  # fmt: skip
    print_job: bool = setting(
        False, "print these settings as a job file for `beam-ldp run`, and do nothing else",
        SWITCH, flag="print-job", basic=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Some settings of one section, as a program takes them.

    Attributes:
        home: the section's key in a job file, and the first half of its settings' names.
        section: the value object.
        title: of the group in help.
        without: fields that mean nothing here.
        only: the fields that mean something here; None for all of them.
        own: what the program says differently about a field: arguments of `Setting`, by name.
    """

    home: str
    section: type
    title: str
    without: Sequence[str] = ()
    only: Sequence[str] | None = None
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Setting]:
        """By the names of the fields."""
        return {
            name: dataclasses.replace(about, **self.own.get(name, {}))
            for name, about in settings_of(self.section).items()
            if name not in self.without and (self.only is None or name in self.only)
        }

    @property
    def defaults(self) -> dict[str, Any]:
        """By the names of the fields."""
        return {field.name: field.default for field in dataclasses.fields(self.section)}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A program on the command line, and in a job file.

    Attributes:
        name: the command.
        summary: what it does.
        synopsis: the flags that it cannot do without.
        examples, exit_codes: below the flags.
        module: where its `PROGRAM` is, which brings Beam along.
        parts: the settings that it takes, in the order of its help.
        question: what its questions are called in a job file; "" for a program that has none.
        asks: the kinds of questions that its job file may have, where they are not its own; ""
            is a question that names no column.
        of_devices: settings of `randomize` that such a question takes where devices answer it.
        answered_by: "module:class" of the `DeviceValues` that do.
        runs_on_beam: whether it takes Beam's own flags too.
        action: what to do with the settings, other than to run them.
    """

    name: str
    summary: str
    synopsis: str
    examples: str
    parts: tuple[Part, ...]
    module: str = ""
    question: str = ""
    asks: tuple[str, ...] = ()
    of_devices: tuple[str, ...] = ()
    answered_by: str = ""
    exit_codes: str = EXIT_CODES
    runs_on_beam: bool = True
    action: type = Action

    def __iter__(self) -> Iterator[tuple[Part, str, Setting]]:
        """Every setting, with the name of its field."""
        for part in (*self.parts, Part("", self.action, OUTPUT)):
            for name, about in part.settings.items():
                yield part, name, about

    @property
    def refuses(self) -> dict[str, str]:
        """Doors that its question has not, by their flags, each with the sentence that says why."""
        found = (getattr(part.section, "refuses", {}) for part in self.parts)
        return {door: why for doors in found for door, why in doors.items()}

    def known_flag_of(self, name: str) -> str | None:
        """The flag of `section.field`; None where the program lacks that setting."""
        for part, field_name, about in self:
            if name == f"{part.home}.{field_name}":
                return f"--{about.flag}"
        return None

    def flag_of(self, name: str) -> str:
        """The flag of `section.field`, for messages; the name itself where there is none."""
        return self.known_flag_of(name) or name


@dataclass(frozen=True)
class Arguments:
    """What somebody asked for, before any rule is checked.

    Attributes:
        settings: by section and field, read; only those that were given.
        beam_flags: what is left, for Beam.
    """

    settings: dict[str, dict[str, Any]]
    beam_flags: list[str]

    def __getitem__(self, home: str) -> dict[str, Any]:
        return self.settings.get(home, {})

    def action(self, name: str) -> bool:
        """Whether this `Action` was asked for."""
        return bool(self[""].get(name))

    def over(self, other: Arguments) -> Arguments:
        """These settings, and those of `other` that are not among them."""
        homes = dict.fromkeys([*other.settings, *self.settings])
        return Arguments({home: {**other[home], **self[home]} for home in homes}, self.beam_flags)
