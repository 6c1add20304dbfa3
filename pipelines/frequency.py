"""`beam-ldp frequency`: how often does each value of a public list occur?

The same program as `python -m beam_ldp.pipelines.frequency`.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import Program, program_of
from beam_ldp.pipelines.usage.frequency import USAGE, StreamSettings
from beam_ldp.release.job import section_from
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments


def _streamed(given: Arguments) -> bool:
    """Whether files keep arriving. Raises SettingError."""
    stream = section_from(given, USAGE, "stream", StreamSettings)
    told = [name for name in given["stream"] if name != "on"]
    if told and not stream.on:
        raise SettingError(f"{USAGE.flag_of(f'stream.{told[0]}')} needs --stream")
    return bool(stream.on)


def _run(given: Arguments, console: Console) -> int:
    if not _streamed(given):
        return ONCE.run(given, console)
    from beam_ldp.pipelines import stream

    return stream.run_stream(given, console)


def _check(given: Arguments) -> Any:
    if not _streamed(given):
        return ONCE.check(given)
    from beam_ldp.pipelines import stream

    return stream.to_check(given)


ONCE = program_of(USAGE)
PROGRAM = Program(USAGE, _run, _check)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
