"""A program that is run as its command is shown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines.programs import Program, run_flags
from beam_ldp.release.run import RunResult


def run_shown(
    console: Console,
    program: Program,
    flags: Sequence[str],
    more: Sequence[str],
    truth: np.ndarray,
) -> tuple[int, RunResult | None]:
    """A program on flags that are shown, and on `more`; its exit code and its result."""
    console.print("[bold]What runs now[/bold], and what you would type for your own data:")
    typed = [flag if _is_range(flag) else shlex.quote(flag) for flag in flags]
    shown = " \\\n    ".join([f"beam-ldp {program.usage.name}", *typed])
    console.print(f"[green]{escape(shown)}[/green]\n", soft_wrap=True)
    words = [word for flag in flags for word in (flag.split() if _is_range(flag) else [flag])]
    return run_flags(program, [*words, *more], console, truth)


def _is_range(flag: str) -> bool:
    """Whether it is the one flag whose values stand apart."""
    return flag.startswith("--range ")
