"""Beam's own flags, read strictly: Beam drops a flag that it does not know with a warning."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.jobs import watch
from beam_ldp.settings import Charge, Noise, Privacy, SettingError
from beam_ldp.settings.fields import SWITCH, TEXT, nearest, settings_of

IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


class _Parser(argparse.ArgumentParser):
    """Beam describes its flags to argparse. Raises instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def add_value_provider_argument(self, *names: str, **how: Any) -> None:
        how.pop("type", None)
        self.add_argument(*names, **how)


class BudgetOptions(PipelineOptions):
    """The flags about budgets, for Beam programs of one's own: see `charge_to`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        for section, names in _OF_BUDGETS:
            defaults = {field.name: field.default for field in fields(section)}
            for name, about in settings_of(section).items():
                if names is None or name in names:
                    how: dict[str, Any] = {"help": str(SettingError(about.help))}
                    if about.kind is SWITCH:
                        how |= {"action": "store_true", "default": False}
                    else:
                        how["default"] = defaults[name]
                        if about.kind is not TEXT:  # argparse reads defaults as well
                            how["type"] = about.kind.read
                    dest = about.flag.replace("-", "_")
                    parser.add_argument(f"--{about.flag}", f"--{dest}", dest=dest, **how)


_OF_BUDGETS: tuple[tuple[type, tuple[str, ...] | None], ...] = (
    (Charge, None),
    (Noise, ("dataset",)),
    (Privacy, ("honest_fraction",)),
)


def _subclasses(cls: type) -> list[type]:
    below: list[type] = cls.__subclasses__()
    return [c for sub in below for c in (sub, *_subclasses(sub))]


def _beam_parser() -> _Parser:
    """All flags that Beam knows, runners' own included."""
    parser = _Parser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    seen = {BudgetOptions.__qualname__}
    for cls in _subclasses(PipelineOptions):
        if "_add_argparse_args" in cls.__dict__ and cls.__qualname__ not in seen:
            seen.add(cls.__qualname__)
            cls._add_argparse_args(parser)  # type: ignore[attr-defined]
    return parser


def check_beam_flags(arguments: Sequence[str], ours: Sequence[str]) -> None:
    """A UsageError unless every argument is a flag of Beam's or a value of one.

    Args:
        arguments: what is no flag of the program.
        ours: the program's flags, of which one may have been meant.
    """
    parser = _beam_parser()
    given = [argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")]
    known = _names_of(parser)
    endpoint = watch.job_endpoint(arguments)
    if endpoint is not None and not set(known).issuperset(given):
        for name, how in watch.flags_of(endpoint).items():
            if name not in known:
                parser.add_argument(name, **how)
        known = _names_of(parser)
    for name in given:
        if name not in known:
            raise UsageError(f"unknown flag {name}{nearest(name, [*ours, *known])}")
    _, left_over = parser.parse_known_args(list(arguments))
    if left_over:
        raise UsageError(f"unexpected argument {left_over[0]!r}; every value belongs to a flag")


def _names_of(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]
