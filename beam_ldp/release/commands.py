"""Every command of `beam-ldp`: one line of help each, and where its object is.

An object is one of three: the `Usage` of a program, which reads its flags itself, since Beam has
some too; a click command; or a function of the flags that gives an exit code. It is loaded when it
is called, so that help loads nothing. Commands of other packages are entry points of the groups
`beam_ldp.commands` and, for kinds of questions, `beam_ldp.questions`: a name is looked for there
only if it is none of these.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from beam_ldp.questions import registry
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
        asks: the name of the command, where the target is a kind of question.
    """

    target: str
    summary: str
    in_jobs: bool = False
    asks: str = ""

    def load(self) -> Any:
        """The object."""
        found = loaded(self.target)
        return registry.usage_of(self.asks, found) if self.asks else found


def _program(module: str, summary: str) -> Command:
    return Command(f"beam_ldp.pipelines.usage.{module}:USAGE", summary, in_jobs=True)


def _decision(target: str, summary: str, in_jobs: bool = False) -> Command:
    return Command(f"beam_ldp.decisions.{target}", summary, in_jobs)


def _click(module: str, summary: str) -> Command:
    return Command(f"beam_ldp.pipelines.{module}:{module}", summary)


def _function(module: str, summary: str) -> Command:
    return Command(f"beam_ldp.pipelines.{module}:main", summary)


# By what is typed; a part of a command stands behind it.
COMMANDS = {
    "frequency": _program("frequency", "How often does each value of a public list occur?"),
    "mean": _program("mean", "What is the mean of people's numbers, or of their vectors?"),
    "user-mean": _program(
        "user_mean", "What is the mean of people's numbers, where each person has many of them?"
    ),
    "heavy-hitters": _program(
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
    "train": Command(
        "beam_ldp.training.usage:USAGE",
        "Train a model by federated learning, with the privacy cost of every round.",
        in_jobs=True,
    ),
    "plan": _function("plan", "Which mechanism, privacy cost, error and report size to expect."),
    "run": Command(
        "beam_ldp.pipelines.job_runs:main", "Any of these programs, as a job file says."
    ),
    "check": _function(
        "check", "Is everything as it must be, before a budget moves or a worker starts?"
    ),
    "ab-test": _decision(
        "ab_test:ab_test",
        "Experiments on randomized outcomes: `ab-test design`, then `ab-test run`."
    ),
    "audit": _click("audit", "Recompute every privacy cost and check that nothing was changed."),
    "audit-interactivity": Command(
        "beam_ldp.research.interactivity.command:audit_interactivity",
        "Who was asked what, from a log: costs, retries, adaptivity.",
    ),
    "bandit": _decision(
        "bandit:bandit",
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

    commands = {
        one.name: Command(one.value, f"of {one.dist.name if one.dist else one.module}")
        for one in metadata.entry_points(group=GROUP)
    }
    for name, target in registry.targets().items():
        commands[name] = Command(target, f"of {target.partition(':')[0]}", True, name)
    return {name: one for name, one in commands.items() if name not in COMMANDS}


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
    if not usage.module:  # of another package, which says only what it asks
        return loaded("beam_ldp.pipelines.programs:program_of")(usage)
    return loaded(f"{usage.module}:PROGRAM")
