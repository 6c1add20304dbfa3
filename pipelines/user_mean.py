"""`beam-ldp user-mean`: the mean of people's numbers, where each person has many of them.

The same program as `python -m beam_ldp.pipelines.user_mean`.
"""

from __future__ import annotations

import sys

from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import program_of
from beam_ldp.pipelines.usage.user_mean import USAGE

PROGRAM = program_of(USAGE)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
