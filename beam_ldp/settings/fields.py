"""A setting is one field: its default, how it is read, its unit and its help stand in one place.

Flags, job files, their JSON Schema and checks derive from the fields of the sections
(`beam_ldp.settings.sections`); a new setting is one more field.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

METADATA = "setting"


_NAME = re.compile(r"\{([a-z]+\.[a-z_]+)\}")
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]")


class SettingError(ValueError):
    """A setting is missing, unknown, or does not fit.

    The message names settings in braces, as `{people.id}`: `said` writes them as flags, `str` as
    keys of a job file. What stands in double brackets is left out where a setting that it names
    does not exist. What somebody wrote stands behind it as it is.

    Args:
        message: with names in braces.
        got: the value that does not fit, if it helps.
    """

    def __init__(self, message: str, got: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self._got = "" if got is None else f", got {got}"

    def said(self, name_of: Callable[[str], str | None]) -> str:
        """The message with every name written by `name_of`, which is given `section.field`.

        >>> SettingError("needs {people.id}[[ and {release.id}]]").said({"people.id": "--id"}.get)
        'needs --id'
        """

        def kept(part: re.Match[str]) -> str:
            return part[1] if all(map(name_of, _NAME.findall(part[1]))) else ""

        message = _OPTIONAL.sub(kept, self.message)
        return _NAME.sub(lambda name: name_of(name[1]) or name[1], message) + self._got

    def __str__(self) -> str:
        return self.said(lambda name: name)


@dataclass(frozen=True)
class Kind:
    """How a value is read.

    Attributes:
        name: what errors say is expected.
        read: a text (of a flag) or a value (of a job file) to what the library uses; raises
            ValueError or TypeError.
        schema: of a job file's value, as JSON Schema.
    """

    name: str
    read: Callable[[Any], Any]
    schema: Mapping[str, Any]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not value:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _positive(value: Any) -> float:
    found = _number(value)
    if not (math.isfinite(found) and found > 0):
        raise ValueError
    return found


def _whole(value: Any) -> int:
    found = _number(value)
    if not math.isfinite(found) or found != int(found):
        raise ValueError
    return int(value) if isinstance(value, int) else int(found)


def _count(value: Any) -> int:
    found = _whole(value)
    if found < 1:
        raise ValueError
    return found


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(value: Any) -> float:
    """`90`, `90s`, `5m`, `2h`, `1d` or `250ms`, in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", str(value).strip())
    if found is None:
        raise ValueError
    return float(found[1]) * _UNITS[found[2] or "s"]


# YAML and people write 1e6, which YAML 1.1 takes for a text.
_NUMERAL = {"type": "string", "pattern": r"^[-+]?[0-9._]+([eE][-+]?[0-9]+)?$"}

TEXT = Kind("text", _text, {"type": "string"})
NUMBER = Kind("a number", _number, {"anyOf": [{"type": "number"}, _NUMERAL]})
POSITIVE = Kind(
    "a number > 0", _positive, {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _NUMERAL]}
)
WHOLE = Kind("a whole number", _whole, {"anyOf": [{"type": "integer"}, _NUMERAL]})
COUNT = Kind(
    "a whole number >= 1", _count, {"anyOf": [{"type": "integer", "minimum": 1}, _NUMERAL]}
)
SWITCH = Kind("true or false", _switch, {"type": "boolean"})
SECONDS = Kind(
    "a time such as 90s, 5m, 2h", _seconds,
    {"anyOf": [{"type": "number", "minimum": 0},
               {"type": "string", "pattern": r"^[0-9.]+(ms|s|m|h|d)?$"}]},
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What is said of a field, once.

    Attributes:
        help: half a sentence, as help and schema show it.
        kind: how it is read.
        flag: without dashes in front; "" for a setting that has no flag.
        metavar: what stands for its value in help.
        choices: what it may be, where that is a short list.
        many: whether it may be repeated, or be a list.
        arity: values of one flag, such as the two ends of a range.
        basic: whether `--help` shows it; `--help-all` shows everything.
    """

    help: str
    kind: Kind = TEXT
    flag: str = ""
    metavar: str | tuple[str, ...] = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    arity: int = 1
    basic: bool = False


def setting(
    default: Any,
    help: str,
    kind: Kind = TEXT,
    *,
    flag: str = "",
    metavar: str | tuple[str, ...] = "",
    choices: tuple[str, ...] = (),
    many: bool = False,
    arity: int = 1,
    basic: bool = False,
) -> Any:
    """A field of a section: see `Setting`. The default is that of flags, job files and library."""
    about = Setting(help, kind, flag, metavar, choices, many, arity, basic)
    return dataclasses.field(default=default, metadata={METADATA: about})


def settings_of(section: type) -> dict[str, Setting]:
    """The settings of a section, by the names of its fields, in their order."""
    return {
        field.name: field.metadata[METADATA]
        for field in dataclasses.fields(section)
        if METADATA in field.metadata
    }


def read_setting(name: str, about: Setting, value: Any) -> Any:
    """A value from a flag or a job file, as the library uses it.

    Args:
        name: `section.field`, for errors.
        about: the setting.
        value: text, or what a job file holds.

    Raises:
        SettingError: naming the setting and what is allowed.
    """
    if value is None:
        return None
    if about.many:
        listed = value if isinstance(value, list | tuple) else [value]
        return tuple(_one(name, about, one) for one in listed)
    return _one(name, about, value)


def _one(name: str, about: Setting, value: Any) -> Any:
    if about.arity > 1:
        if not isinstance(value, list | tuple) or len(value) != about.arity:
            raise SettingError(f"{{{name}}} must be {about.arity} values")
        return tuple(_read(name, about, one) for one in value)
    return _read(name, about, value)


def _read(name: str, about: Setting, value: Any) -> Any:
    if about.choices and value not in about.choices:
        raise SettingError(f"{{{name}}} must be one of {', '.join(about.choices)}", value)
    try:
        return about.kind.read(value)
    except (AttributeError, TypeError, ValueError, OverflowError):
        if value == "":
            raise SettingError(f"{{{name}}} must not be empty") from None
        raise SettingError(f"{{{name}}} must be {about.kind.name}", value) from None


# Names that were mistyped -------------------------------------------------------------------------


def nearest(name: str, known: Sequence[str]) -> str:
    """` (did you mean ...?)`, or nothing where no name is near.

    >>> nearest("--epsilom", ["--delta", "--epsilon"])
    ' (did you mean --epsilon?)'
    >>> nearest("--xyz", ["--delta", "--epsilon"])
    ''
    """
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {found[0]}?)" if found else ""
