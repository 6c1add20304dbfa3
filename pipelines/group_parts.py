"""Parts of commands such as `beam-ldp ab-test` that run on Beam."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click


def on_beam(name: str, program: str, module: str, short_help: str) -> click.Command:
    """A part that runs on Beam, and takes its flags too: it reads its flags itself."""

    @click.command(
        name,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        add_help_option=False,
        short_help=short_help,
    )
    @click.argument("flags", nargs=-1, type=click.UNPROCESSED)
    def command(flags: Sequence[str]) -> None:
        from beam_ldp.pipelines.flags import print_help
        from beam_ldp.pipelines.job_files import usage_of

        if (code := print_help(usage_of(program), flags)) is not None:  # before Beam is loaded
            sys.exit(code)
        importlib.import_module("beam_ldp.pipelines.jobs.lean").load_beam()
        sys.exit(importlib.import_module(f"beam_ldp.pipelines.{module}").main(list(flags)))

    return command
