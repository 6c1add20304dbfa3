"""`beam-ldp collect`: count reports that were randomized elsewhere; no raw value is ever seen.

The same program as `python -m beam_ldp.pipelines.collect`.
"""

from __future__ import annotations

import sys

from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import program_of
from beam_ldp.pipelines.usage.collect import USAGE
from beam_ldp.release.devices.collecting import bound_reports

PROGRAM = program_of(USAGE, bound_reports)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
