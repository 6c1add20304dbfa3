"""A program in this process: its exit code, and what it says."""

from __future__ import annotations

import io

from rich.console import Console

from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.programs import Program


def told(program: Program, flags: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    code = program.as_told(read_flags(program.usage, flags), Console(file=said, width=400))
    return code, said.getvalue()
