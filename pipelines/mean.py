"""`beam-ldp mean`: the mean of vectors of numbers, one per person.

The same program as `python -m beam_ldp.pipelines.mean`.
"""

from __future__ import annotations

import sys

from rich.console import Console

from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import program_of
from beam_ldp.pipelines.usage.mean import USAGE
from beam_ldp.settings.usage import Arguments


def _published(given: Arguments, console: Console) -> int | None:
    """Only the question, for devices, where that is asked for."""
    if not given["output"].get("publish"):
        return None
    from beam_ldp.pipelines.devices.shares import publish

    return publish(given, console)


PROGRAM = program_of(USAGE, otherwise=_published)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
