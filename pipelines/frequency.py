"""`beam-ldp frequency`: how often does each value of a public list occur?

The same program as `python -m beam_ldp.pipelines.frequency`.
"""

from __future__ import annotations

import sys

from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import program_of
from beam_ldp.pipelines.usage.frequency import USAGE

PROGRAM = program_of(USAGE)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
