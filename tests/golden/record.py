"""`python -m tests.golden.record numbers|text|all [pytest's arguments]`: freeze what is given now.

A commit that records numbers says which changed, and why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.golden.frozen import HERE, NUMBERS, RECORD, TEXT


def main(part: str, *arguments: str) -> int:
    """Run the tests of this folder, which write what they would compare; in one process."""
    if part not in (NUMBERS, TEXT, "all"):
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
