"""Every command of `beam-ldp`: one line of help each, and where its object is.

An object is one of three: the `Usage` of a program, which reads its flags itself, since Beam has
some too; a click command; or a function of the flags that gives an exit code. It is loaded when it
is called, so that help loads nothing. Commands of other packages are entry points of the group
`beam_ldp.commands`: a name is looked for there only if it is none of these.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import click

from beam_ldp.pipelines.flags import print_help
from beam_ldp.settings.usage import Usage

GROUP = "beam_ldp.commands"  # of entry points


def loaded(target: str) -> Any:
    """The object "module:object"."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Command:
    """Where a command is.

    Attributes:
        target: "module:object".
        summary: its line of help.
        in_jobs: whether it is a program that job files and `beam-ldp check` name too.
    """

    target: str
    summary: str
    in_jobs: bool = False

    def load(self) -> Any:
        """The object."""
        return loaded(self.target)


def _program(module: str, summary: str) -> Command:
    return Command(f"beam_ldp.pipelines.usage.{module}:USAGE", summary, in_jobs=True)


def _kind(module: str, summary: str) -> Command:
    return Command(f"beam_ldp.release.usage.{module}:USAGE", summary, in_jobs=True)


def _decision(target: str, summary: str, in_jobs: bool = False) -> Command:
    return Command(f"beam_ldp.decisions.commands.{target}", summary, in_jobs)


def _click(module: str, summary: str) -> Command:
    return Command(f"beam_ldp.pipelines.{module}:{module}", summary)


def _function(module: str, summary: str) -> Command:
    return Command(f"beam_ldp.pipelines.{module}:main", summary)


# By what is typed; a part of a command stands behind it.
COMMANDS = {
    "frequency": _kind("frequency", "How often does each value of a public list occur?"),
    "mean": _kind("mean", "What is the mean of people's numbers, or of their vectors?"),
    "user-mean": _kind(
        "user_mean", "What is the mean of people's numbers, where each person has many of them?"
    ),
    "heavy-hitters": _kind(
        "heavy_hitters", "Which words do many people hold, where nobody listed them?"
    ),
    "ab-test run": _decision(
        "usage:RUN",
        "Randomize outcomes, count each arm, and decide as a design says.",
        in_jobs=True,
    ),
    "randomize": _program(
        "randomize", "What a device runs: values of a file become packed reports."
    ),
    "collect": _program(
        "collect", "How often does each value occur, from reports that devices have sent?"
    ),
    "ab-test decide": _decision(
        "usage:DECIDE", "The same from reports that devices have sent.", in_jobs=True
    ),
    "bandit advance": _decision(
        "usage:ADVANCE",
        "Decide the open batch from its rewards; write the next, or the winner.",
        in_jobs=True,
    ),
    "bandit collect": _decision(
        "usage:COLLECT", "The same from reports that devices have sent.", in_jobs=True
    ),
    "train": _program(
        "train", "Train a model by federated learning, with the privacy cost of every round."
    ),
    "plan": _function("plan", "Which mechanism, privacy cost, error and report size to expect."),
    "run": Command(
        "beam_ldp.pipelines.job_runs:main", "Any of these programs, as a job file says."
    ),
    "check": _function(
        "check", "Is everything as it must be, before a budget moves or a worker starts?"
    ),
    "ab-test": _decision(
        "ab_test.group:ab_test",
        "Experiments on randomized outcomes: `ab-test design`, then `ab-test run`."
    ),
    "audit": _click("audit", "Recompute every privacy cost and check that nothing was changed."),
    "audit-interactivity": Command(
        "beam_ldp.research.interactivity.command:audit_interactivity",
        "Who was asked what, from a log: costs, retries, adaptivity.",
    ),
    "bandit": _decision(
        "bandit.group:bandit",
        "Which action is best, from randomized rewards: `bandit plan`, then `bandit start`.",
    ),
    "budget": _click("budget", "Grant privacy budgets, and see what is left of them."),
    "doctor": _click(
        "doctor", "What is installed, what answers, and whether the mechanisms are sound."
    ),
    "demo": _click(
        "demo", "A private word count over a million simulated people; `demo mean`: means."
    ),
    "finalize": _click("finalize", "Settle and log a release whose launcher could not."),
    "keys": _click("keys", "Keys that read public reports at a larger epsilon: `keys derive`."),
    "statement": _click(
        "statement",
        "What a finished release says of its privacy; `--registry`: as an entry.",
    ),
    "recover": _click(
        "recover", "Single values of people who consented, from stored reports and a key."
    ),
    "reconstruct": Command(
        "beam_ldp.research.attacks.command:reconstruct",
        "What an attacker rebuilds who sees one message: bounds and attacks.",
    ),
    "privacy": Command(
        "beam_ldp.research.published.command:privacy",
        "What releases cost, by every method; or what fits a target.",
    ),
}  # fmt: skip


def job_name(typed: str) -> str:
    """What a program is called in job files: `ab_test_decide`; a part `run` names its command."""
    return typed.removesuffix(" run").replace(" ", "_").replace("-", "_")


PROGRAMS = {job_name(typed): command for typed, command in COMMANDS.items() if command.in_jobs}


@cache
def of_others() -> Mapping[str, Command]:
    """Commands of other packages that are installed, by what is typed. Takes 0.08 s."""
    from importlib import metadata

    return {
        one.name: Command(one.value, f"of {one.dist.name if one.dist else one.module}")
        for one in metadata.entry_points(group=GROUP)
        if one.name not in COMMANDS
    }


def usage_or_none(program: str) -> Usage | None:
    """What a program takes, by its name in job files; None where there is no such program."""
    others = (
        {job_name(typed): one for typed, one in of_others().items()}
        if (program not in PROGRAMS)
        else {}
    )
    command = PROGRAMS.get(program) or others.get(program)
    found = command.load() if command is not None else None
    return found if isinstance(found, Usage) else None


def usage_of(program: str) -> Usage:
    """The same of a program that there is."""
    if (found := usage_or_none(program)) is None:
        raise LookupError(f"no program {program}")
    return found


def asked_on_devices(usage: Usage, question: Mapping[str, Any]) -> Usage | None:
    """The program whose question devices are asked; None for a question of their own."""
    asked = (usage_of(kind) for kind in usage.asks)
    return next((one for one in asked if question.keys() & set(one.of_devices)), None)


def program_of(usage: Usage) -> Any:
    """The `Program` of that usage; this loads Beam."""
    from beam_ldp.fast_start import load_beam

    load_beam()
    return loaded(f"{usage.module}:PROGRAM")


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
