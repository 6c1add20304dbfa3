"""A SuperLink and SuperNodes on loopback, in a session of their own that is ended whole."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "flower.md"
# Leads the session, and ends it where the tests are killed: the kernel tells it (Linux).
_LEADER = """
import ctypes, os, signal, subprocess, sys
def end(*_):
    os.killpg(0, signal.SIGKILL)
if sys.platform == "linux":
    signal.signal(signal.SIGTERM, end)
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        end()
sys.exit(subprocess.call(sys.argv[2:]))
"""
_FILE = re.compile(r'^```(?:python|toml) title="([\w.]+)"\n(.*?)^```', re.M | re.S)


def write_app(folder: Path) -> None:
    """The files of the page."""
    for name, text in _FILE.findall(PAGE.read_text("utf-8")):
        (folder / name).write_text(text, encoding="utf-8")


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses now."""
    for _ in range(50):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        if first + count < 60_000 and all(map(_free, range(first, first + count))):
            return first
    raise OSError("no free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def run_session(script: str, folder: Path, timeout: float) -> tuple[str, list[str]]:
    """What a shell prints, and which of its processes had to be killed; now none is alive.

    Raises:
        AssertionError: with the last lines of it and of the logs beside, where it fails.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    leader = [sys.executable, "-I", "-c", _LEADER, str(os.getpid())]
    output = folder / "session.log"
    with output.open("wb") as stream:
        shell = subprocess.Popen(
            [*leader, "bash", "-euxo", "pipefail", "-c", script],
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | str = shell.wait(timeout)
        except subprocess.TimeoutExpired:
            status = f"none after {timeout:g} s"
        finally:
            left = end_session(shell.pid)
    said = output.read_text("utf-8", "replace")
    logs = "".join(
        f"\n--- {log.name}\n{log.read_text('utf-8', 'replace')[-1500:]}"
        for log in sorted(folder.glob("*.log"))
    )
    assert status == 0, f"status {status}: {logs}"
    return said, left


def end_session(session: int, patience: float = 15.0) -> list[str]:
    """Waits for a session's processes to end, and kills those that do not: their command lines."""
    until = time.monotonic() + patience
    while (left := members(session)) and time.monotonic() < until:
        time.sleep(0.2)
    told = []
    for process in left:
        told.append(" ".join(_command(process))[:200])
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            told.pop()
    until = time.monotonic() + patience
    while members(session):
        assert time.monotonic() < until, "a process outlived its kill"
        time.sleep(0.05)
    return told


def members(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
