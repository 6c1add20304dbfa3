"""`beam-ldp`: the command line. Each command says what it does, with examples, under `--help`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

import beam_ldp

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


# What each command does. Its module, which may bring Beam along, is loaded when it is called.
_COMMANDS = {
    "ab-test": "Experiments on randomized outcomes: `ab-test design`, then `ab-test run`.",
    "audit": "Recompute every privacy cost and check that nothing was changed.",
    "audit-interactivity": "Who was asked what, from a log: costs, retries, adaptivity.",
    "bandit": "Which action is best, from randomized rewards: `bandit plan`, then `bandit start`.",
    "budget": "Grant privacy budgets, and see what is left of them.",
    "doctor": "What is installed, what answers, and whether the mechanisms are sound.",
    "demo": "A private word count over a million simulated people; `demo mean`: means.",
    "finalize": "Settle and log a release whose launcher could not.",
    "keys": "Keys that read public reports at a larger epsilon: `keys derive`.",
    "statement": "What a finished release says of its privacy; `--registry`: as an entry.",
    "recover": "Single values of people who consented, from stored reports and a key.",
    "reconstruct": "What an attacker rebuilds who sees one message: bounds and attacks.",
    "privacy": "What releases cost, by every method; or what fits a target.",
}


class _Commands(click.Group):
    """Loads a command when it is called; names the nearest one where there is none of that name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(
            importlib.import_module(f"beam_ldp.pipelines.{name}"), name
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        said = {name: one.get_short_help_str(200) for name, one in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted((_COMMANDS | said).items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from beam_ldp.settings.fields import nearest

            hint = nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"no command {args[0]!r}{hint}", ctx) from None


@click.group(cls=_Commands, context_settings=CONTEXT)
@click.version_option(beam_ldp.__version__, prog_name="beam-ldp")
def group() -> None:
    """Statistics from people's data, without ever holding that data.

    Values are randomized where they live, shuffled, and only then counted. Every result comes with
    honest error bars and a stated privacy cost.

    \b
    examples:
      beam-ldp demo --output demo-out
      beam-ldp plan frequency --expected-users 1e6 --domain-size 1000 --epsilon 1 --delta 1e-8
      beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 1 --delta 1e-8
      beam-ldp privacy --local-epsilon 2 --expected-users 1e6 --rounds 30 --delta 1e-8
      beam-ldp frequency --help
      beam-ldp mean --help
      beam-ldp user-mean --help
      beam-ldp heavy-hitters --help

    \b
    exit codes: 0 done; 1 the run failed; 2 a flag or an input is wrong, nothing was run;
                3 nothing was released
    """


# Programs that run on Beam take its flags too, so they read their flags themselves; each is
# loaded when it is called. A plan takes the flags of its program.
PROGRAMS = {
    "frequency": "How often does each value of a public list occur?",
    "mean": "What is the mean of people's numbers, or of their vectors?",
    "randomize": "What a device runs: values of a file become packed reports.",
    "collect": "How often does each value occur, from reports that devices have sent?",
    "user-mean": "What is the mean of people's numbers, where each person has many of them?",
    "heavy-hitters": "Which words do many people hold, where nobody listed them?",
    "train": "Train a model by federated learning, with the privacy cost of every round.",
    "plan": "Which mechanism, privacy cost, error and report size to expect.",
    "run": "Any of these programs, as a job file says.",
    "check": "Is everything as it must be, before a budget moves or a worker starts?",
}


def _program(name: str, question: str) -> click.Command:
    @click.command(
        name,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        add_help_option=False,
        short_help=question,
        help=question,
    )
    @click.argument("flags", nargs=-1, type=click.UNPROCESSED)
    def command(flags: Sequence[str]) -> None:
        module = name.replace("-", "_")
        if name == "run":
            from beam_ldp.pipelines.job_files import main as run_job_file

            sys.exit(run_job_file(list(flags)))
        if name == "plan":
            from beam_ldp.pipelines.plan import main as plan

            sys.exit(plan(list(flags)))
        if name == "check":
            from beam_ldp.pipelines.check import main as check

            sys.exit(check(list(flags)))
        from beam_ldp.pipelines.flags import print_help
        from beam_ldp.pipelines.job_files import usage_of

        if (code := print_help(usage_of(module), flags)) is not None:  # before Beam is loaded
            sys.exit(code)
        importlib.import_module("beam_ldp.pipelines.jobs.lean").load_beam()
        sys.exit(importlib.import_module(f"beam_ldp.pipelines.{module}").main(list(flags)))

    return command


for _name, _question in PROGRAMS.items():
    group.add_command(_program(_name, _question))


def main() -> None:
    """Entry point."""
    group(prog_name="beam-ldp")


if __name__ == "__main__":
    main()
