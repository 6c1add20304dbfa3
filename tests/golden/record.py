"""`python -m tests.golden.record numbers|text|all|old [pytest's arguments]`: freeze what is now.

A commit that records numbers says which changed, and why. Ledgers, envelopes, records and folders
of an earlier version stay as they are, for later ones must read them; `old` leaves them anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.golden.frozen import HERE, NUMBERS, OLD, RECORD, TEXT


def main(part: str, *arguments: str) -> int:
    """Run the tests of this folder, which write what they would compare; in one process."""
    if part not in (NUMBERS, TEXT, "all", OLD):
        print(__doc__)
        return 2
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    return subprocess.call(
        [*pytest, *(arguments or (str(HERE),))],
        env=os.environ | {RECORD: part},
        cwd=Path(__file__).parents[2],
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or ("",)))
