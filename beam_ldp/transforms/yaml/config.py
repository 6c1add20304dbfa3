"""What a transform of a YAML pipeline is told, read as strictly as a job file.

Sections are those of `beam_ldp.settings`. An unknown key is an error that names the nearest one;
what a pipeline of this kind cannot do is refused with what does it.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple, get_args

import apache_beam as beam
import numpy as np
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_ldp.questions.base import Asked
from beam_ldp.questions.frequencies import Frequencies
from beam_ldp.questions.means import Means
from beam_ldp.questions.surveys import BinQuestion, ListQuestion, Survey
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import OTHER, Bins, Domain
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.settings import (
    Charge,
    Mechanism,
    Noise,
    People,
    Privacy,
    SettingError,
    Shuffling,
)
from beam_ldp.settings.fields import Setting, nearest, read_setting, settings_of
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.elements.windows import DEFAULT_RULES, WindowRules

Section = Mapping[str, Any]
LEDGER_VARIABLE = "BEAM_LDP_LEDGER"
ENVIRONMENT, NO_LEDGER = "env", "none"  # as a ledger, in the words of job files
UNTRACKED = "a pipeline of Beam YAML, which logs no run"

# What needs more than a pipeline: who decides before anything is published, or publishes again.
_REFUSED = {
    "release.key_file": "its rows have no positions, by which a repetition draws the same row "
    "of a person: memoize with `beam-ldp run` and a job file",
    "release.frozen_values": "publish a second time with `beam-ldp run` and a job file",
    "mechanism.max_bits": "plan with `beam-ldp plan --max-bits`, and give {mechanism.name} and "
    "{privacy.local_epsilon}",
    "mechanism.messages": "plan with `beam-ldp plan mean --messages`, and give {mechanism.name} "
    "and {privacy.local_epsilon}",
    "mechanism.random_bits": "plan with `beam-ldp plan --random-bits`, and run with `beam-ldp run` "
    "and a job file",
}


NEEDED = inspect.Parameter.empty


class Key(NamedTuple):
    """A key that a transform takes: its type, what it means, and its default.

    One whose default is `NEEDED` must be given.
    """

    kind: Any
    meaning: str
    default: Any = None


class Group(NamedTuple):
    """Keys that several transforms take, and what reads them as one argument."""

    keys: Mapping[str, Key]
    read: Callable[..., Any]

    def but(self, **keys: Key | None) -> Group:
        """The same with some keys that mean something else here, or are not taken (None)."""
        changed = {name: keys.get(name, key) for name, key in self.keys.items()}
        return Group({name: key for name, key in changed.items() if key is not None}, self.read)


def strict(**groups: Group) -> Callable[..., Callable[..., beam.PTransform]]:
    """A transform that says of an unknown key which one is near, and of a missing one what it is.

    Beam YAML finds names, types and defaults in the signature, and what they mean in the docstring.
    Both are made here of the function's own arguments and of the groups that it takes.

    Args:
        groups: by the argument that each of them is read as.
    """

    def declared(transform: Callable[..., beam.PTransform]) -> Callable[..., beam.PTransform]:
        signature = inspect.signature(transform, eval_str=True)
        text = inspect.getdoc(transform) or ""
        meanings = dict(re.findall(r"^    (\w+): (.*)$", text, re.MULTILINE))
        keys: dict[str, Key] = {}
        for name, own in signature.parameters.items():
            if name in groups:
                keys |= groups[name].keys
            else:
                keys[name] = Key(own.annotation, meanings[name], own.default)
        keys = dict(sorted(keys.items(), key=lambda one: one[1].default is not NEEDED))

        def checked(**given: Any) -> beam.PTransform:
            for key in given:
                if key not in keys:
                    raise SettingError(f"unknown setting {key}{nearest(str(key), [*keys])}")
            for key, known in keys.items():
                if known.default is NEEDED and given.get(key) is None:
                    raise SettingError(f"{key} is missing: {transform.__name__} needs it")
            told = {key: _plain(one) for key, one in given.items() if one is not None}
            for name, group in groups.items():
                own = {key: told.pop(key) for key in group.keys if key in told}
                told[name] = group.read(**own)
            return transform(**told)

        functools.update_wrapper(checked, transform)
        listed = "".join(f"        {name}: {key.meaning}\n" for name, key in keys.items())
        checked.__doc__ = f"{text.splitlines()[0]}\n\n    Args:\n{listed}    "
        checked.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=key.default,
                    annotation=key.kind,
                )
                for name, key in keys.items()
            ],
            return_annotation=signature.return_annotation,
        )  # fmt: skip
        return checked

    return declared


def _plain(value: Any) -> Any:
    """Mappings also where they came through an expansion service, which makes rows of them."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def section(home: str, given: Any, *kinds: type, without: Sequence[str] = ()) -> list[Any]:
    """One section, as the settings that it is made of.

    Args:
        home: its key.
        given: what stands there.
        kinds: the classes whose fields it holds.
        without: fields that have no meaning here.

    Raises:
        SettingError: naming the key and what is allowed.
    """
    known: dict[str, Setting] = {}
    for kind in kinds:
        known |= {name: one for name, one in settings_of(kind).items() if name not in without}
    if not isinstance(given, Mapping):
        raise SettingError(f"{home} must hold settings, such as {{{next(iter(known))}: ...}}")
    check_keys(home, given, [*known])
    found = {name: read_setting(f"{home}.{name}", known[name], one) for name, one in given.items()}
    for name, value in found.items():
        if f"{home}.{name}" in _REFUSED and value not in (None, False):
            raise SettingError(
                f"{{{home}.{name}}} is not for Beam YAML: {_REFUSED[f'{home}.{name}']}"
            )
    return [
        kind(**{n: found[n] for n in settings_of(kind) if found.get(n) is not None})
        for kind in kinds
    ]


def check_keys(home: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """A SettingError for the first key that is unknown."""
    for name in given:
        if name not in known:
            raise SettingError(f"unknown setting {home}.{name}{nearest(str(name), known)}")


@dataclass(frozen=True)
class How:
    """What every transform is told beside its question.

    Attributes:
        people, privacy, mechanism, shuffle, noise, charge, windows: as in the library.
    """

    people: People
    privacy: Privacy
    mechanism: Mechanism
    shuffle: Shuffling
    noise: Noise
    charge: Charge
    windows: WindowRules

    def budget(self) -> ChargeTo | None:
        """The budget that pays; None where nobody names one, and for simulations.

        Raises:
            SettingError: where it is not said whose budget it is.
        """
        charge = self.charge
        named = charge.ledger or os.environ.get(LEDGER_VARIABLE)
        if charge.no_ledger or self.noise.simulated or not named:
            for name in ("quota", "people_store", "windows"):
                if getattr(charge, name) and not (charge.no_ledger or self.noise.simulated):
                    raise SettingError(f"{{release.{name}}} needs {{release.ledger}}")
            return None
        where = "{release.ledger}" if charge.ledger else LEDGER_VARIABLE
        if not self.noise.dataset:
            raise SettingError(
                f"{where} names a ledger: {{release.dataset}} must name the data set whose budget "
                "is charged (or give ledger: none)"
            )
        if charge.privacy_unit == "user" and not self.people.counted:
            raise SettingError(
                f"{where} names a ledger, and its budget protects people: name the column of their "
                "ids with {people.id}, or declare with {people.one_row} that nobody has two rows"
            )
        return ChargeTo(
            self.noise.dataset,
            charge.ledger,
            charge.run_id,
            charge.windows,
            self.privacy.honest_fraction,
            charge.privacy_unit,
            charge.people_store,
            charge.people_key_file,
            UNTRACKED,
            charge.quota,
        )

    def release(self, query: Asked) -> dict[str, Any]:
        """What `PrivateEstimate` is told."""
        randomizer, privacy = self._mechanism(query), self.privacy
        if randomizer is not None:
            privacy = replace(privacy, local_epsilon=None, delta=0.0, honest_fraction=1.0)
        return {
            "randomizer": "auto" if randomizer is None else randomizer,
            "people": self.people,
            "shuffle": self.shuffle,
            "noise": self.noise,
            "privacy": privacy,
            "privacy_unit": self.charge.privacy_unit,
            "windows": self.windows,
        }

    def _mechanism(self, query: Asked) -> LocalRandomizer | None:
        """The mechanism that is named; None for the most accurate one."""
        name, privacy = self.mechanism.name, self.privacy
        if name == "auto":
            if privacy.expected_users is None:
                raise SettingError("{privacy.expected_users} is missing: plans depend on it")
            if (privacy.epsilon is None) == (privacy.local_epsilon is None):
                raise SettingError(
                    "give one of {privacy.epsilon} (central) and {privacy.local_epsilon}"
                )
            return None
        if isinstance(query, Survey):
            raise SettingError("{mechanism.name} must be auto for several questions", name)
        if privacy.local_epsilon is None or privacy.epsilon is not None:
            raise SettingError(
                "{mechanism.name} needs {privacy.local_epsilon} and no {privacy.epsilon}: only "
                "auto plans for a central target"
            )
        try:
            kind: Any = registry.load(name) if ":" in name else registry.find(name)
            if kind is None:
                known = [*registry.OWN_MODULES]
                raise SettingError(f"{{mechanism.name}} {name} is unknown{nearest(name, known)}")
            made: LocalRandomizer = kind(size_of(query), privacy.local_epsilon)
        except SettingError:
            raise
        except (TypeError, ValueError) as error:
            raise SettingError(f"{{mechanism.name}} {name}: {error}") from None
        return made


def how(
    privacy: Section,
    people: Section | None = None,
    mechanism: Any = None,
    shuffle: Section | None = None,
    release: Section | None = None,
    windows: Section | None = None,
) -> How:
    """The sections that every transform takes. Raises SettingError."""
    release = dict(release if isinstance(release, Mapping) else section("release", release or {}))
    if release.get("ledger") == ENVIRONMENT:
        del release["ledger"]
    elif release.get("ledger") == NO_LEDGER:
        release = {name: one for name, one in release.items() if name != "ledger"}
        release["no_ledger"] = True
    named = {"name": mechanism} if isinstance(mechanism, str) else mechanism or {}
    noise, charge = section("release", release, Noise, Charge)
    (asked,) = section("privacy", privacy, Privacy)
    (chosen,) = section("mechanism", named, Mechanism)
    (gate,) = section("shuffle", shuffle or {}, Shuffling)
    rules = _windows(windows or {})
    return How(_people(people or {}), asked, chosen, gate, noise, charge, rules)


SECTIONS = Group(
    {
        "privacy": Key(
            Section,
            "what it may cost: epsilon, delta, expected_users, local_epsilon, max_local_epsilon.",
            NEEDED,
        ),
        "people": Key(Section | None, "whose rows they are: id, one_row, group_by, groups."),
        "mechanism": Key(Any, "name of a mechanism; default: the most accurate one."),
        "shuffle": Key(Section | None, "min_reports, output, scope."),
        "release": Key(
            Section | None, "dataset, id, seed, ledger and what else belongs to a charge."
        ),
        "windows": Key(Section | None, "of streams: late, delay, public_bounds."),
    },
    how,
)


def _people(given: Any) -> People:
    listed = None
    if isinstance(given, Mapping) and "groups" in given:
        given = dict(given)
        listed = _listed("people.groups", given.pop("groups"), OTHER)
    (found,) = section("people", given, People)
    people: People = replace(found, groups=listed)
    if (people.group_by is None) != (people.groups is None):
        raise SettingError("{people.group_by} and {people.groups} belong together")
    return people


def _windows(given: Any) -> WindowRules:
    known = ("late", "delay", "public_bounds")
    if not isinstance(given, Mapping):
        raise SettingError(f"windows must hold settings, such as {{{known[0]}: release}}")
    check_keys("windows", given, known)
    late = given.get("late", DEFAULT_RULES.late)
    if late not in ("release", DEAD_LETTER):
        raise SettingError("{windows.late} must be one of release, dead-letter", late)
    public = given.get("public_bounds", False)
    if not isinstance(public, bool):
        raise SettingError("{windows.public_bounds} must be true or false", public)
    delay = given.get("delay", 0)
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not delay >= 0:
        raise SettingError("{windows.delay} must be a number of seconds >= 0", delay)
    return WindowRules("release" if late == "release" else "dead_letter", float(delay), public)


# Questions ---------------------------------------------------------------------------------


def _listed(name: str, value: Any, other: str) -> Domain | str:
    """A public list: written down, or the path of a file with one value per line."""
    if isinstance(value, Mapping) and set(value) == {"file"}:
        value = value["file"]
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, list | tuple) or not value:
        raise SettingError(f"{name} must be a list of values, or a file with one per line")
    if any(isinstance(one, bool) or not isinstance(one, str | int) for one in value):
        raise SettingError(
            f"{name} must hold text: put values such as yes, no, 1.5 and dates in quotes"
        )
    try:
        return Domain(tuple(value), other)
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None


def _bins(name: str, value: Any) -> Bins:
    text = value if isinstance(value, str) else None
    if isinstance(value, list | tuple):
        text = ",".join(str(one) for one in value)
    if text is None:
        raise SettingError(f"{name} must be a list of edges, or LOW:HIGH:COUNT")
    try:
        return Bins.parse(text)
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None


def _one_of(home: str, domain: Any, bins: Any, other: Any) -> Any:
    """The list, or the bins."""
    if (domain is None) == (bins is None):
        raise SettingError(f"{home} needs one of domain (a list of values) and bins (of a number)")
    if bins is not None:
        if other != OTHER:
            raise SettingError("other must be left out with bins, which have none of their own")
        return _bins("bins", bins)
    return PortableDomain(_listed("domain", domain, str(other)), str(other))


def _column(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise SettingError(f"{name} must be the name of a column", value)
    return value


def _bad_rows(value: str, other: str) -> Any:
    if value not in (DEAD_LETTER, other):
        raise SettingError(f"bad_rows must be one of {DEAD_LETTER}, {other}", value)
    return "dead_letter" if value == DEAD_LETTER else other


def frequency_query(column: Any, domain: Any, bins: Any, other: Any, bad_rows: str) -> Frequencies:
    """A question about one column with values of a public list. Raises SettingError."""
    listed = _one_of("a frequency", domain, bins, other)
    name = _column("column", column)
    return Frequencies(PortableDomain.of(listed), name, name, _bad_rows(bad_rows, "other"))


def survey_query(questions: Any, bad_rows: str) -> Survey:
    """Several such questions to each person. Raises SettingError."""
    if not isinstance(questions, list | tuple) or not questions:
        raise SettingError("questions must be a list such as [{column: ..., domain: ...}]")
    asked: list[ListQuestion | BinQuestion] = []
    for one in questions:
        if not isinstance(one, Mapping):
            raise SettingError("questions must be a list such as [{column: ..., domain: ...}]")
        check_keys("questions", one, ("column", "domain", "bins", "other", "name"))
        listed = _one_of(
            "each of questions", one.get("domain"), one.get("bins"), one.get("other", OTHER)
        )
        column = _column("questions.column", one.get("column"))
        name = str(one.get("name", ""))
        if isinstance(listed, Bins):
            asked.append(BinQuestion(column, listed, name))
        else:
            asked.append(ListQuestion(column, PortableDomain.of(listed), name))
    return Survey(tuple(asked), _bad_rows(bad_rows, "other"))


def mean_query(column: Any, ranges: Any, bad_rows: str) -> Means:
    """A question about columns of numbers in public ranges. Raises SettingError.

    Args:
        column: one or several, one per coordinate.
        ranges: `[low, high]` for all of them, or one such pair for each, by its name.
        bad_rows: as in job files.
    """
    listed = [column] if isinstance(column, str) else column
    if not isinstance(listed, list | tuple) or not listed:
        raise SettingError("column must be a list of columns of numbers, one per coordinate")
    columns = [_column("column", one) for one in listed]
    if len(set(columns)) < len(columns):
        raise SettingError("column must name each column once")
    if isinstance(ranges, Mapping):
        check_keys("ranges", ranges, columns)
        missing = [name for name in columns if name not in ranges]
        if missing:
            raise SettingError(f"ranges lack {missing[0]}: every column needs its own")
        pairs = [ranges[name] for name in columns]
    else:
        pairs = [ranges] * len(columns)
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise SettingError("ranges must be [LOW, HIGH], or {COLUMN: [LOW, HIGH]} for each column")
    try:
        lows, highs = (tuple(float(pair[i]) for pair in pairs) for i in (0, 1))
        made = CoordinateRanges(lows, highs)
    except (TypeError, ValueError) as error:
        raise SettingError(f"ranges: {error}") from None
    return Means(columns, made, ", ".join(columns), _bad_rows(bad_rows, "zero"))


def any_query(
    bad_rows: str,
    column: Any = None,
    domain: Any = None,
    bins: Any = None,
    other: str = OTHER,
    ranges: Any = None,
    questions: Any = None,
) -> Asked:
    """What is asked, by what is given of it. Raises SettingError."""
    if questions is not None:
        if not (column is None and domain is None and bins is None and ranges is None):
            raise SettingError("questions say their own column, domain and bins")
        return survey_query(questions, bad_rows)
    if column is None:
        raise SettingError("column is missing: or questions, where several are asked")
    if ranges is not None:
        if not (domain is None and bins is None):
            raise SettingError("ranges are for means, and domain and bins for frequencies")
        return mean_query(column, ranges, bad_rows)
    return frequency_query(column, domain, bins, other, bad_rows)


AskedBy = Callable[[str], Asked]  # what is asked, once it is said what becomes of bad rows
ANY_QUESTION = Group(
    {
        "column": Key(Any, "with the value, or the columns of a mean."),
        "domain": Key(Any, "the public list of values, or a file with one per line."),
        "bins": Key(Any, "for a column of numbers, in place of a list: edges, or LOW:HIGH:COUNT."),
        "other": Key(str, "name for all values that are not listed.", OTHER),
        "ranges": Key(
            Any, "of a mean: public range of all, as [LOW, HIGH], or of each, by its column."
        ),
        "questions": Key(
            Sequence[Any] | None,
            "several in place of column, each with column, domain or bins, other and name.",
        ),
    },
    lambda **given: functools.partial(any_query, **given),
)


def labels_of(query: Asked) -> PortableDomain | tuple[str, ...]:
    """Names of what a question's estimate is about."""
    if isinstance(query, Frequencies):
        found: PortableDomain = query.listed
        return found
    return query.columns


def size_of(query: Asked) -> int:
    """What a mechanism must be made for: values, or coordinates."""
    labels = labels_of(query)
    return labels.load().size if isinstance(labels, PortableDomain) else len(labels)


def check_columns(rows: beam.PCollection, query: Asked, people: People) -> None:
    """A SettingError for a column that the schema of the rows lacks, where they have one."""
    schema = rows.element_type
    if not isinstance(schema, RowTypeConstraint):
        schema = RowTypeConstraint.from_user_type(schema) if isinstance(schema, type) else None
    if schema is None:
        return
    present = [name for name, _ in schema._fields]
    for name in (*query.columns, people.id, people.group_by):
        if name is not None and name not in present:
            raise SettingError(
                f"column {name} is missing in the rows{nearest(name, present)}; they have "
                f"{', '.join(present)}"
            )
    _check_types(dict(schema._fields), query)


def _check_types(kinds: Mapping[str, Any], query: Asked) -> None:
    """A SettingError where a reader took the text of codes for numbers, which match no list."""
    asked = query.questions if isinstance(query, Survey) else (query,)
    for one in asked:
        if not isinstance(one, Frequencies | ListQuestion) or one.listed.of_numbers:
            continue
        column = one.column if isinstance(one, ListQuestion) else query.columns[0]
        kind, listed = kinds[column], one.listed
        parts = getattr(kind, "union_types", ()) or get_args(kind) or (kind,)
        numbers = {p for p in parts if isinstance(p, type) and issubclass(p, (Real, np.number))}
        numbers.discard(bool)
        if any(not issubclass(p, (int, np.integer)) for p in numbers):
            why = "floats, which a list of text and integers never holds: a reader makes them of "
            why += "integers beside nulls"
        elif numbers and listed.has_leading_zeros:
            why = "integers, and its list has values with leading zeros: a reader drops those"
        else:
            continue
        raise SettingError(
            f"column {column} holds {why}. Read it as text, with ReadFromCsv by "
            f"dtype: {{{column}: str}}"
        )
