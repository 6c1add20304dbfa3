"""What tests of Flower start ends with them, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flower_adapters.loopback import ROOT, members

STARTS = """
import sys
from pathlib import Path
from tests.flower_adapters.loopback import run_session
script = "sleep 600 & (sleep 601; true) & echo $$ > aside; mv aside shell; sleep 602"
run_session(script, Path(sys.argv[1]), timeout=300)
"""


def within(seconds: float, asked) -> bool:
    until = time.monotonic() + seconds
    while not asked() and time.monotonic() < until:
        time.sleep(0.05)
    return bool(asked())


@pytest.mark.e2e
def test_servers_end_with_tests_that_are_killed(tmp_path: Path) -> None:
    """`kill -9` of whoever started them, amid a command that runs for ten minutes (Linux)."""
    assert sys.platform == "linux", "elsewhere nothing tells them"
    tests = subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path)], cwd=ROOT)
    try:
        assert within(60, (tmp_path / "shell").exists)
        session = os.getsid(int((tmp_path / "shell").read_text()))
        assert session != os.getsid(0) and within(10, lambda: len(members(session)) >= 5)
    finally:
        tests.send_signal(signal.SIGKILL)
        tests.wait()
    assert within(10, lambda: not members(session))
