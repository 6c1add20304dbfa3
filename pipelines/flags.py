"""The command line of a program, made of its settings: parsing, help, and Beam's flags beside ours.

An unknown flag is an error that names the nearest match: Beam drops it with a warning, so that a
mistyped `--epsilon` would run with the default.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import click

from beam_ldp.release.commands import COMMANDS, of_others, program_of
from beam_ldp.settings.fields import SWITCH, Setting, SettingError, read_setting
from beam_ldp.settings.usage import Arguments, Usage

_COMMAND = TypeVar("_COMMAND", bound=Callable[..., Any])
NOT_BEAMS = ("dry-run",)  # whose name with an underscore is a flag of Beam's


def read_flags(usage: Usage, argv: Sequence[str]) -> Arguments:
    """What the flags say.

    Args:
        usage: of the program.
        argv: as on the command line. Beam users write underscores, so those are understood too.

    Raises:
        SettingError: on an unknown flag, a stray word, or a value of the wrong kind.
    """
    command = _command(usage)
    try:
        context = command.make_context(
            usage.name, _with_dashes(usage, argv), ignore_unknown_options=True,
            allow_extra_args=True,
        )  # fmt: skip
    except click.UsageError as error:
        raise SettingError(error.format_message()) from None
    found: dict[str, dict[str, Any]] = {}
    for part, name, about in usage:
        value = context.params[_parameter(about)]
        if value in (None, ()):
            continue
        try:
            read = read_setting(f"{part.home}.{name}", about, value)
        except SettingError as error:
            raise SettingError(error.said(usage.flag_of)) from None
        found.setdefault(part.home, {})[name] = read
    if context.args:
        _check_left_over(usage, context.args)
    return Arguments(found, list(context.args))


def _check_left_over(usage: Usage, left_over: list[str]) -> None:
    for flag in left_over:
        if why := usage.refuses.get(flag.removeprefix("--")):
            raise SettingError(f"{flag}: {why}")
    known = [f"--{about.flag}" for _, _, about in usage]
    if usage.runs_on_beam:
        from beam_ldp.release.beam_job import check_beam_flags

        check_beam_flags(left_over, known)
        return
    from beam_ldp.settings.fields import nearest

    first = left_over[0].split("=", 1)[0]
    if first.startswith("--"):
        raise SettingError(f"unknown flag {first}{nearest(first, known)}")
    raise SettingError(f"unexpected argument {first!r}; every value belongs to a flag")


def _parameter(about: Setting) -> str:
    return about.flag.replace("-", "_")


def _command(usage: Usage) -> click.Command:
    """One option for each flag; two settings may share one."""
    options: dict[str, click.Option] = {}
    for _, _, about in usage:
        options[about.flag] = click.Option(
            [f"--{about.flag}", _parameter(about)],
            is_flag=about.kind is SWITCH,
            default=None,
            multiple=about.many,
            nargs=about.arity,
            type=None if about.kind is SWITCH else str,
        )
    return click.Command(usage.name, params=list(options.values()), add_help_option=False)


def _with_dashes(usage: Usage, argv: Sequence[str]) -> list[str]:
    known = {about.flag.replace("-", "_"): about.flag for _, _, about in usage}
    found = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        ours = known.get(name[2:]) if name.startswith("--") else None
        written = name if ours is None or ours in NOT_BEAMS else f"--{ours}"
        found.append(written + equals + value)
    return found


def format_option(command: _COMMAND) -> _COMMAND:
    """The option of every command whether people or programs read what it prints."""
    return click.option(
        "--format", "form", type=click.Choice(["table", "json"]), default="table",
        show_default=True,
        help="what is printed; json: one object on stdout, everything else on stderr",
    )(command)  # fmt: skip


def ledger_errors() -> AbstractContextManager[None]:
    """What a ledger refuses, as Click says it."""
    from beam_ldp.release import reserving

    return reserving.ledger_errors(click.UsageError, click.UsageError)


def whole(text: str) -> int:
    """A whole number >= 1 that may be written as 1e6: a type for click's options."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found != int(found) or found < 1:
        raise click.BadParameter(f"must be a whole number >= 1, got {text}")
    return int(found)


# Help ----------------------------------------------------------------------------------------


def help_text(usage: Usage, everything: bool = False) -> str:
    """What `--help` prints: what one needs; with `everything`, as `--help-all`, every flag."""
    formatter = click.HelpFormatter(width=100, max_width=100)
    formatter.write_usage(f"beam-ldp {usage.name}", usage.synopsis)
    formatter.write_paragraph()
    formatter.write_text(usage.summary)
    groups: dict[str, dict[str, str]] = {}
    for part, _, about in usage:
        if everything or about.basic:
            groups.setdefault(part.title, {})[_written(about)] = _said(usage, about)
    last = groups[list(groups)[-1]]
    last["--help, --help-all"] = "what one needs; every flag" if not everything else "these lists"
    for title, flags in groups.items():
        with formatter.section(title):
            formatter.write_dl(list(flags.items()), col_max=30)
    return formatter.getvalue() + "\n" + usage.examples + usage.exit_codes


def _written(about: Setting) -> str:
    if about.kind is SWITCH:
        return f"--{about.flag}"
    shown = about.metavar or ("[" + "|".join(about.choices) + "]" if about.choices else "VALUE")
    return f"--{about.flag} {shown if isinstance(shown, str) else ' '.join(shown)}"


def _said(usage: Usage, about: Setting) -> str:
    return SettingError(about.help).said(usage.known_flag_of)


def print_help(usage: Usage, argv: Sequence[str]) -> int | None:
    """Help where it is asked for, or nothing is; the exit code, or None where flags are."""
    everything = "--help-all" in argv
    if argv and not everything and not any(flag in ("-h", "--help") for flag in argv):
        return None
    print(help_text(usage, everything))
    return 0 if argv else 2


# Programs and commands --------------------------------------------------------------------------


def start(usage: Usage, argv: Sequence[str] | None = None) -> int:
    """A program on the command line; the exit codes are in its `--help`, shown before Beam loads.

    Workers unpickle what a module defines by the module's own name, which is not that of a module
    that runs as `__main__`: so that one calls this too.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if (code := print_help(usage, argv)) is not None:
        return code
    code = program_of(usage).main(argv)
    return code


def click_command(typed: str) -> click.Command | None:
    """What the command line runs; None where there is no such command."""
    command = COMMANDS.get(typed) or of_others().get(typed)
    if command is None:
        return None
    found = command.load()
    if isinstance(found, click.Command):
        return found

    @click.command(
        typed.rsplit(" ", 1)[-1],
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        add_help_option=False,
        short_help=command.summary,
        help=command.summary,
    )
    @click.argument("flags", nargs=-1, type=click.UNPROCESSED)
    def with_its_own_flags(flags: Sequence[str]) -> None:
        sys.exit(start(found, flags) if isinstance(found, Usage) else found(list(flags)))

    return with_its_own_flags


def part(typed: str) -> click.Command:
    """A part of a command of ours, such as `ab-test run`."""
    found = click_command(typed)
    assert found is not None, typed
    return found
