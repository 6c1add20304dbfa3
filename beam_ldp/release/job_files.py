"""`beam-ldp run`, job files: what a program is told, in YAML, TOML or JSON, in place of flags.

The sections are those of `beam_ldp.settings`; questions say which program runs:

    source:  {parquet: "events/*.parquet"}
    people:  {id: uid}
    release: {dataset: telemetry, id: week-47, ledger: env}
    questions:
      - {frequency: url, domain: {file: urls.txt}}
    privacy: {epsilon: 1, delta: 1e-8, expected_users: 1e6}
    output:  {folder: out/}
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from beam_ldp.release.commands import (
    PROGRAMS,
    asked_on_devices,
    job_name,
    of_others,
    usage_of,
    usage_or_none,
)
from beam_ldp.settings.fields import Setting, SettingError, nearest, read_setting
from beam_ldp.settings.sections import FORMATS, MAX_LOCAL_EPSILON
from beam_ldp.settings.usage import Arguments, Part, Usage

ENVIRONMENT = "env"  # as a ledger: the one that BEAM_LDP_LEDGER names
_QUESTION, _QUESTIONS, _PROGRAM = "question", "questions", "program"
_FILES = ("domain", "groups", "ranges")  # which may be written as {file: PATH}


def nothing_else(program: str) -> Arguments:
    """What is told beside a file: nothing."""
    return Arguments({}, [])


def read_job(
    path: str, beside: Callable[[str], Arguments] = nothing_else
) -> list[tuple[str, Arguments]]:
    """The programs that a job file runs, each with what it is told, in order.

    Args:
        path: ends in .yaml, .yml, .toml or .json.
        beside: what a program is told beside the file, by its name; it wins over the file.

    Raises:
        SettingError: naming the key or flag and what is allowed.
    """
    return jobs_of(_loaded(path), path, beside)


def jobs_of(
    content: Any,
    path: str = "the job file",
    beside: Callable[[str], Arguments] = nothing_else,
) -> list[tuple[str, Arguments]]:
    """The same of what a file holds."""
    if not isinstance(content, Mapping):
        raise SettingError(f"{path} must hold sections, such as source, people, privacy and output")
    program = content.get(_PROGRAM)
    usage = usage_or_none(program) if program is not None else None
    if program is not None and usage is None:
        raise SettingError(
            f"{path}: {_PROGRAM} must be one of {', '.join(PROGRAMS)}, got {program}"
        )
    questions = content.get(_QUESTIONS, [])
    if not isinstance(questions, list) or not all(isinstance(one, Mapping) for one in questions):
        raise SettingError(f"{path}: {_QUESTIONS} must be a list of questions")
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for one in questions:
        known = usage is not None and "" in usage.asks  # the column: no kind names it
        kind = "" if known else _kind_of(one, path)
        if usage is not None:
            _check_kind(usage, kind, path)
        by_kind.setdefault(kind, []).append(one)
    if not by_kind and program is None:
        raise SettingError(
            f"{path}: {_QUESTIONS} is missing: a list such as [{{frequency: url, domain: ...}}]"
        )
    if program is not None and len(by_kind) > 1:
        raise SettingError(f"{path}: {program} asks questions of one kind, not {len(by_kind)}")
    kinds: list[tuple[str | None, list[Mapping[str, Any]]]] = [*by_kind.items()] or [(None, [])]
    jobs = []
    for one_kind, asked in kinds:
        name = program or str(one_kind)
        given = beside(name).over(_given(content, usage_of(name), one_kind, asked, path))
        jobs.append((name, given if len(kinds) == 1 else _share(given, name, len(kinds))))
    return jobs


def _check_kind(usage: Usage, kind: str, path: str) -> None:
    """Refuse a question that the named program does not ask."""
    program = job_name(usage.name)
    allowed = usage.asks or (program,)
    if kind not in allowed:
        raise SettingError(f"{path}: {program} asks {' or '.join(allowed)}, not {kind}")


_SHARED = ("epsilon", "local_epsilon", "max_local_epsilon", "delta")


def _share(given: Arguments, kind: str, count: int) -> Arguments:
    """One of several releases about the same people: its share of the privacy cost, and a name of
    its own. By basic composition all of them together cost what the file says."""
    found = {home: dict(section) for home, section in given.settings.items()}
    privacy, release, output = (
        found.setdefault(home, {}) for home in ("privacy", "release", "output")
    )
    if privacy and not privacy.get("trust_shuffler"):
        privacy.setdefault("max_local_epsilon", MAX_LOCAL_EPSILON)
    for name in _SHARED:
        if name in privacy:
            privacy[name] /= count
    for name in ("id", "run_id"):
        if name in release:
            release[name] += f"-{kind}"
    if "folder" in output:
        whole = output["folder"].rstrip("/")
        output["folder"] = f"{whole}/{kind}"
        if not found.get("stream"):  # else bad rows would be listed among what others read
            named = os.path.basename(whole).strip(".")  # no . or .., beside which nothing lies
            place = whole if named else os.path.abspath(whole)
            output.setdefault("bad_rows_file", f"{place}.private/{kind}.bad_rows.jsonl")
    return replace(given, settings=found)


def _kind_of(question: Mapping[str, Any], path: str) -> str:
    ours = [name for name in question if name in PROGRAMS]  # looked for among others only then
    kinds = [name for name in ours or question if _is_kind(name)]
    if len(kinds) != 1:
        known = ", ".join(filter(_is_kind, PROGRAMS))
        raise SettingError(f"{path}: each of {_QUESTIONS} must begin with one of {known}")
    return kinds[0]


def _is_kind(program: str) -> bool:
    usage = usage_or_none(program)
    return usage is not None and bool(usage.question)


def _given(
    content: Mapping[str, Any],
    usage: Usage,
    kind: str | None,
    questions: list[Mapping[str, Any]],
    path: str,
) -> Arguments:
    found: dict[str, dict[str, Any]] = {}
    homes = list(dict.fromkeys(part.home for part in usage.parts))
    for home, section in content.items():
        if home in (_QUESTIONS, _PROGRAM):
            continue
        if home in usage.refuses:
            raise SettingError(f"{path}: {home}: {usage.refuses[home]}")
        if home not in homes or home == _QUESTION:
            known = [*(one for one in homes if one != _QUESTION), _QUESTIONS]
            raise SettingError(f"{path}: unknown section {home}{nearest(str(home), known)}")
        if not isinstance(section, Mapping):
            raise SettingError(
                f"{path}: {home} must hold settings, such as {_example(usage, home)}"
            )
        found[home] = _section(usage, home, _plain(home, section), path)
    if kind is not None:
        found[_QUESTION] = _questions(usage, kind, questions, path)
    people = found.get("people", {})
    if "id" in people and people.pop("one_row", False) and kind == "mean":
        # Everybody has one row, which errors are told. One row of each id is drawn in any case.
        found[_QUESTION]["one_row_each"] = True
    return Arguments(found, [])


def _questions(
    usage: Usage, kind: str, questions: list[Mapping[str, Any]], path: str
) -> dict[str, Any]:
    """Several questions of one kind are one question about several columns."""
    found: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for one in questions:
        if kind in one and "column" in one:
            raise SettingError(f"{path}: {kind} names the column: leave column out")
        plain = {"column" if name == kind else name: value for name, value in one.items()}
        plain = {
            name: value["file"]
            if name in _FILES and isinstance(value, Mapping) and set(value) == {"file"}
            else value
            for name, value in plain.items()
        }
        read = _section(usage, _QUESTION, plain, path, settings_of_kind(usage, kind))
        own = {name: read.pop(name) for name in ("column", "domain") if name in read}
        for name in sorted(read.keys() | shared.keys()) if found else ():
            if read.get(name) != shared.get(name):
                raise SettingError(f"{path}: {_QUESTIONS} of one kind must agree on {name}")
        shared = read
        found |= read | {name: (*found.get(name, ()), *value) for name, value in own.items()}
    return found


def settings_of_kind(usage: Usage, kind: str) -> dict[str, Setting]:
    """What a program takes of a question of that kind: devices answer several kinds."""
    known = _settings(usage, _QUESTION)
    if not kind:
        return known
    asked = usage_of(kind)
    own = {"column", "bad_rows", *_settings(asked, _QUESTION), *asked.of_devices}
    return {name: about for name, about in known.items() if name in own}


def _section(
    usage: Usage,
    home: str,
    values: Mapping[str, Any],
    path: str,
    known: dict[str, Setting] | None = None,
) -> dict[str, Any]:
    known = _settings(usage, home) if known is None else known
    found = {}
    for name, value in values.items():
        if name not in known:
            raise SettingError(
                f"{path}: unknown setting {home}.{name}{nearest(str(name), [*known])}"
            )
        try:
            read = read_setting(f"{home}.{name}", known[name], value)
        except SettingError as error:
            raise SettingError(f"{path}: {error}") from None
        if read is not None:
            found[name] = read
    return found


def _settings(usage: Usage, home: str) -> dict[str, Setting]:
    return {
        name: about for part in usage.parts if part.home == home
        for name, about in part.settings.items()
    }  # fmt: skip


def _plain(home: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """A section as its fields: a source is written `{parquet: PATH}`, a list `{file: PATH}`."""
    found = dict(section)
    if home == "source":
        for form in (*FORMATS, "files"):
            if form in found:
                found |= {"paths": found.pop(form)}
                if form not in ("auto", "files"):
                    found["format"] = form
    for name in _FILES:
        if isinstance(found.get(name), Mapping) and set(found[name]) == {"file"}:
            found[name] = found[name]["file"]
    if home == "release" and found.get("ledger") == ENVIRONMENT:
        del found["ledger"]  # the default
    if home == "release" and found.get("ledger") == "none":
        del found["ledger"]
        found["no_ledger"] = True
    return found


def _example(usage: Usage, home: str) -> str:
    name, about = next(iter(_settings(usage, home).items()))
    return f"{{{name}: {about.metavar or 'VALUE'}}}"


def _loaded(path: str) -> Any:
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise SettingError(f"{path} cannot be read: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} cannot be read ({type(error).__name__})") from None
    try:
        if path.endswith((".yaml", ".yml")):
            return _yaml(text)
        if path.endswith(".toml"):
            return _toml(text)
        if path.endswith(".json"):
            return json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path} cannot be read: {error}") from None
    except Exception as error:  # of the YAML library, whose errors are no ValueErrors
        raise SettingError(f"{path} cannot be read: {error}") from None
    raise SettingError(f"{path} must end in .yaml, .toml or .json")


def _each_once(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping; a ValueError where a key stands twice, of which the last would win in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} stands there twice")
    return found


def _yaml(text: str) -> Any:
    import yaml  # type: ignore[import-untyped]

    class Loader(yaml.SafeLoader):
        """Data alone, and every key once."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            self.flatten_mapping(node)
            return _each_once(
                [
                    (self.construct_object(key, deep=True), self.construct_object(one, deep=True))
                    for key, one in node.value
                ]
            )

    return yaml.load(text, Loader)


def _toml(text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


# Writing -----------------------------------------------------------------------------------


def job_text(usage: Usage, given: Arguments) -> str:
    """What was given, as a job file in YAML: `beam-ldp run` of it is the same run."""
    import yaml

    return yaml.safe_dump(job_content(usage, given), sort_keys=False, allow_unicode=True, width=100)


def job_content(usage: Usage, given: Arguments) -> dict[str, Any]:
    """The same as an object."""
    found: dict[str, Any] = {} if usage.question else {_PROGRAM: job_name(usage.name)}
    for part in usage.parts:
        if part.home == _QUESTION:
            if given[_QUESTION]:
                found[_QUESTIONS] = _written_questions(usage, dict(given[_QUESTION]))
        elif given[part.home]:
            found[part.home] = _written(part, given[part.home])
    return found


def _written(part: Part, values: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: _shown(value) for name, value in values.items()}
    if part.home == "source" and "paths" in found:
        form = found.pop("format", "files")
        found = {form if form != "auto" else "files": found.pop("paths"), **found}
    return found


def _written_questions(usage: Usage, values: dict[str, Any]) -> list[dict[str, Any]]:
    if "column" not in values:
        return [{name: _shown(value) for name, value in values.items()}]
    kind = usage.question or _kind_told(usage, values)
    columns, domains = values.pop("column", ()), values.pop("domain", ())
    more = {name: _shown(value) for name, value in values.items()}
    if kind != "frequency" or len(columns) < 2:
        listed = {"domain": _shown(domains)} if domains else {}
        return [{kind: _shown(columns), **listed, **more}]
    if len(domains) == 1:
        domains *= len(columns)
    return [{kind: column, "domain": domain, **more} for column, domain in zip(columns, domains)]


def _kind_told(usage: Usage, values: Mapping[str, Any]) -> str:
    """What devices are asked."""
    if (asked := asked_on_devices(usage, values)) is not None:
        return asked.question
    return "frequency" if "domain" in values or "bins" in values else "mean"


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shown(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return _shown(value[0]) if len(value) == 1 else [_shown(one) for one in value]
    return value


# Schema ------------------------------------------------------------------------------------


def job_schema() -> dict[str, Any]:
    """The JSON Schema of job files, so that editors complete and check them."""
    sections: dict[str, dict[str, Any]] = {}
    questions: list[dict[str, Any]] = []
    for program in (*PROGRAMS, *map(job_name, of_others())):
        usage = usage_or_none(program)
        if usage is None:  # another package's command, which no job file names
            continue
        for part in usage.parts:
            if part.home == _QUESTION:
                continue
            section = sections.setdefault(part.home, {})
            for name, about in part.settings.items():
                section.setdefault(name, _schema(usage, about))
        if usage.question or "" in usage.asks:
            questions.append(_question_schema(usage))
    paths = sections["source"].pop("paths")
    sections["source"] |= {form: paths for form in (*FORMATS[1:], "files")}
    sections["source"].pop("format")
    named = {home: _object(properties) for home, properties in sections.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A job of beam-ldp",
        **_object(
            {
                **named,
                _QUESTIONS: {"type": "array", "items": {"anyOf": questions}, "minItems": 1},
                _PROGRAM: {"enum": list(PROGRAMS)},
            }
        ),
    }


def _question_schema(usage: Usage) -> dict[str, Any]:
    properties = {
        name: _schema(usage, about) for name, about in _settings(usage, _QUESTION).items()
    }
    if usage.question:
        properties = {usage.question: properties.pop("column"), **properties}
    for name in usage.of_devices:
        devices = usage_of("randomize")
        properties[name] = _schema(devices, _settings(devices, _QUESTION)[name])
    for name in _FILES:
        if name in properties:
            file = {"type": "object", "properties": {"file": {"type": "string"}}}
            properties[name] = {"anyOf": [properties[name], file]}
    return _object(properties) | ({"required": [usage.question]} if usage.question else {})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _schema(usage: Usage, about: Setting) -> dict[str, Any]:
    one: dict[str, Any] = dict(about.kind.schema)
    if about.choices:
        one = {"enum": list(about.choices)}
    if about.arity > 1:
        one = {"type": "array", "items": one, "minItems": about.arity, "maxItems": about.arity}
    if about.many:
        one = {"anyOf": [one, {"type": "array", "items": one}]}
    return {"description": SettingError(about.help).said(lambda name: name), **one}
