"""`beam-ldp`: the command line. Each command says what it does, with examples, under `--help`."""

from __future__ import annotations

import warnings

import click

import beam_ldp
from beam_ldp.pipelines.flags import click_command
from beam_ldp.release.commands import COMMANDS

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Commands(click.Group):
    """Loads a command when it is called; names the nearest one where there is none of that name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(typed for typed in COMMANDS if " " not in typed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return click_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(typed, COMMANDS[typed].summary) for typed in self.list_commands(ctx)]
            )

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


def _without_place(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning as a program says it: not where on this machine the code lies that warned."""
    return f"warning: {message}\n"


def main() -> None:
    """Entry point."""
    warnings.formatwarning = _without_place
    group(prog_name="beam-ldp")


if __name__ == "__main__":
    main()
