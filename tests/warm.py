"""Programs run as a user runs them, each in a process of its own that need not import everything.

A new interpreter imports Beam and this package for seconds before it does what a test is about.
Here one process, started at the first program, imports them, and forks for each program; what the
child runs is `__main__` there, with its own arguments, environment, folder and streams, and ends as
an interpreter ends. Where the start itself is tested, tests start an interpreter.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

IMPORTED = (
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    "beam_ldp.pipelines.cli",
    "beam_ldp.pipelines.frequency",
    "beam_ldp.pipelines.mean",
    "beam_ldp.pipelines.user_mean",
    "dp_accounting",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "numba",
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
)


def run_warm(
    *program: str, cwd: Path | None = None, timeout: float = 240, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `script.py ...` or `-m module ...` to its end.

    Args:
        program: what would stand behind `python`.
        cwd: its folder, instead of this process'.
        timeout: seconds after which it is ended, with exit status -9.
        variables: of its environment, besides those of this process.
    """
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as streams:
        out, err = Path(streams) / "out", Path(streams) / "err"
        order = {"program": program, "cwd": str(cwd or Path.cwd()), "out": str(out),
                 "err": str(err), "env": os.environ | variables}  # fmt: skip
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        ends = threading.Timer(timeout, os.kill, (int(server.stdout.readline()), signal.SIGKILL))
        ends.start()
        try:
            status = int(server.stdout.readline())
        finally:
            ends.cancel()
        return subprocess.CompletedProcess(program, status, _text(out), _text(err))


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.kill)
    return server


def _orders() -> dict[str, Any]:
    """Fork for every order; in the child, return it."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    raise SystemExit


def _become(order: dict[str, Any]) -> list[str]:
    """Take on the order's environment, folder and streams; the program that is left to run."""
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    for number, path in enumerate((os.devnull, order["out"], order["err"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    return order["program"]


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    for name in IMPORTED:
        importlib.import_module(name)
    first, *rest = _become(_orders())
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        sys.modules.pop(rest[0], None)  # it is run, not imported
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, str(Path(first).resolve().parent))
        runpy.run_path(first, run_name="__main__")
