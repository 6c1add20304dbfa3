"""Flags, read strictly: one `PipelineOptions` subclass, so that Beam's own stand beside ours.

Beam drops a flag that it does not know with a warning, so a mistyped `--epsilon` would run with
the default. Here an unknown flag is an error that names the nearest match, and every value is
checked before a file is opened.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.pipelines.flags import COMMON, Flags, Groups, add_flags
from beam_ldp.pipelines.jobs import watch
from beam_ldp.pipelines.nearest import nearest

IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


class UsageError(ValueError):
    """A flag is missing, unknown, or does not fit; the message names it and what is allowed."""


class ReleaseOptions(PipelineOptions):
    """What the programs need to know, for Beam's parser: the flags of all programs loaded.

    Beam makes one parser of all option classes, in which a name may stand only once. So this one
    class knows every name; which of them a program takes, and with which values, `parse_flags`
    says.
    """

    known: Flags = {name: how for flags in COMMON.values() for name, how in flags.items()}

    @classmethod
    def learn(cls, groups: Groups) -> None:
        """Add the flags of a program."""
        for flags in groups.values():
            cls.known.update({name: how for name, how in flags.items() if name not in cls.known})

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        free = {
            name: {key: value for key, value in how.items() if key != "choices"}
            for name, how in cls.known.items()
        }
        add_flags(parser, {"beam-ldp": free}, both_spellings=True)


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that callers choose the exit code."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        # So that `--range -1e3 1e3` is a range: by itself argparse takes -1e3 for a flag.
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def add_value_provider_argument(self, *names: str, **how: Any) -> None:
        how.pop("type", None)
        self.add_argument(*names, **how)


def _subclasses(cls: type) -> list[type]:
    below: list[type] = cls.__subclasses__()
    return [c for sub in below for c in (sub, *_subclasses(sub))]


def _beam_parser(groups: Groups) -> argparse.ArgumentParser:
    """All flags that Beam knows, runners' own included, and those of one program."""
    parser = _Parser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    seen: set[str] = {ReleaseOptions.__qualname__}
    for cls in _subclasses(PipelineOptions):
        if "_add_argparse_args" in cls.__dict__ and cls.__qualname__ not in seen:
            seen.add(cls.__qualname__)
            cls._add_argparse_args(parser)  # type: ignore[attr-defined]
    add_flags(parser, groups, both_spellings=True)
    return parser


def _own_parser(groups: Groups) -> argparse.ArgumentParser:
    """The flags of a program that does not run on Beam."""
    parser = _Parser(allow_abbrev=False, add_help=False)
    add_flags(parser, groups, both_spellings=True)
    return parser


def parse_flags(
    argv: Sequence[str], groups: Groups, *, beams: bool = True
) -> tuple[argparse.Namespace, list[str]]:
    """The values of a program's flags and Beam's, and the arguments with `--config`'s in front.

    Args:
        argv: as on the command line.
        groups: the program's own.
        beams: whether the program runs on Beam, and takes its flags too.

    Raises:
        UsageError: on an unknown flag, a value of the wrong kind, or an unreadable config.
    """
    arguments = _joined([*_config_arguments(list(argv), groups), *argv], groups)
    parser = _beam_parser(groups) if beams else _own_parser(groups)
    known = _names_of(parser)
    given = [argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")]
    endpoint = watch.job_endpoint(arguments) if beams else None
    if endpoint is not None and not set(known).issuperset(given):
        for name, how in watch.flags_of(endpoint).items():
            if name not in known:
                parser.add_argument(name, **how)
        known = _names_of(parser)
    for name in given:
        if name not in known:
            raise UsageError(f"unknown flag {name}{nearest(name, known)}")
    values, left_over = parser.parse_known_args(arguments)
    if left_over:
        raise UsageError(f"unexpected argument {left_over[0]!r}; every value belongs to a flag")
    return values, arguments


def _names_of(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]


def _joined(arguments: list[str], groups: Groups) -> list[str]:
    """`--bins -1,0,1` as one argument: Beam's parsers take what begins with a dash for a flag."""
    single = {
        name for flags in groups.values() for name, how in flags.items()
        if "nargs" not in how and how.get("action") in (None, "append")
    }  # fmt: skip
    found: list[str] = []
    for argument in arguments:
        negative = re.match(r"-(\d|\.\d|inf\b)", argument)
        if negative and found and found[-1] in single:
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return found


def _config_arguments(argv: list[str], groups: Groups) -> list[str]:
    """The flags of `--config FILE`, as arguments; flags given on the command line are left out."""
    path = None
    for i, argument in enumerate(argv):
        if argument == "--config" and i + 1 < len(argv):
            path = argv[i + 1]
        elif argument.startswith("--config="):
            path = argument.split("=", 1)[1]
    if path is None:
        return []
    try:
        config = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--config {path} cannot be read as JSON ({error})") from None
    if not isinstance(config, dict):
        raise UsageError(f"--config {path} must hold a JSON object of flags")
    several = {
        name.replace("-", "_") for flags in groups.values() for name, how in flags.items()
        if "nargs" in how
    }  # fmt: skip
    given = {a.split("=", 1)[0].replace("-", "_") for a in argv if a.startswith("--")}
    arguments: list[str] = []
    for key, value in config.items():
        name = "--" + str(key)
        if name.replace("-", "_") in given or value is None or value is False:
            continue
        listed = value if isinstance(value, list) else [value]
        if value is True:
            arguments.append(name)
        elif name.replace("-", "_") in several:
            arguments += [name, *map(str, listed)]
        else:
            arguments += [f"{name}={item}" for item in listed]
    return arguments
