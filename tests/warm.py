"""Programs run as a user runs them, each in a process of its own that need not import everything.

A new interpreter imports Beam and this package for seconds before it does what a test is about.
Here one process, started at the first program, imports them, and forks for each program; what the
child runs is `__main__` there, with its own arguments, environment, folder and streams, and ends as
an interpreter ends. Where the start itself is tested, tests start an interpreter.

A shell finds the same programs in a folder of commands, each of which hands its arguments,
environment, folder and streams over, and ends as the program did.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
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
    "beam_ldp.pipelines.heavy_hitters",
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


COMMAND = """#!{python} -IS
import json, os, socket, sys
program = {before!r} + sys.argv[1:]
if not program or not (program[0] == "-m" or program[0].endswith(".py") or {before!r}):
    os.execv({python!r}, [{python!r}, *program])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"."], [0, 1, 2])
order = {{"program": program, "cwd": os.getcwd(), "env": dict(os.environ)}}
server.sendall(json.dumps(order).encode() + b"\\n")
status = int(server.makefile().readlines()[1])
sys.exit(status if status >= 0 else 128 - status)
"""


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
    order = {"program": program, "cwd": str(cwd or Path.cwd()), "env": os.environ | variables}
    with (
        socket.socket(socket.AF_UNIX) as server,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        open(os.devnull, "rb") as nothing,
    ):
        server.connect(_server())
        streams = [nothing.fileno(), out.fileno(), err.fileno()]
        socket.send_fds(server, [b"."], streams)
        server.sendall(json.dumps(order).encode() + b"\n")
        told = server.makefile()
        ends = threading.Timer(timeout, os.kill, (int(told.readline()), signal.SIGKILL))
        ends.start()
        try:
            status = int(told.readline())
        finally:
            ends.cancel()
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode("utf-8", errors="replace"))
        return subprocess.CompletedProcess(program, status, *said)


@cache
def warm_commands() -> str:
    """A folder for the front of PATH: `beam-ldp`, and the `python` of scripts and modules."""
    folder = Path(_server()).parent / "bin"
    folder.mkdir()
    installed = str(Path(sys.executable).with_name("beam-ldp"))
    commands: dict[str, list[str]] = {"beam-ldp": [installed], "python": []}
    for name, before in commands.items():
        command = folder / name
        command.write_text(
            COMMAND.format(python=sys.executable, before=before, address=_server()), "utf-8"
        )
        command.chmod(0o700)
    return str(folder)


@cache
def _server() -> str:
    """Its address: a socket in a folder that ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    address = str(Path(folder.name) / "socket")
    server = subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    atexit.register(folder.cleanup)
    atexit.register(server.kill)
    return address


def _orders(address: str) -> dict[str, Any]:
    """Fork for every order, and again for its program; there, return it.

    Between both waits who tells the customer how the program ended: orders may come at once.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:  # that it is closed
        customer, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _order_of(customer)
        customer.close()
    raise SystemExit


def _order_of(customer: socket.socket) -> dict[str, Any]:
    streams = socket.recv_fds(customer, 1, 3)[1]
    order = json.loads(customer.makefile().readline())
    child = os.fork()
    if child == 0:
        customer.close()
        return {**order, "streams": streams}
    for stream in streams:
        os.close(stream)
    customer.sendall(b"%d\n" % child)
    customer.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


def _become(order: dict[str, Any]) -> list[str]:
    """Take on the order's environment, folder and streams; the program that is left to run."""
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    for number, stream in enumerate(order["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    return order["program"]


if __name__ == "__main__":
    folder = sys.path.pop(0)  # of this file
    for name in IMPORTED:
        importlib.import_module(name)
    sys.path.append(folder)
    importlib.import_module("confirmed").install()
    sys.path.pop()
    first, *rest = _become(_orders(sys.argv[1]))
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        sys.modules.pop(rest[0], None)  # it is run, not imported
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, str(Path(first).resolve().parent))
        runpy.run_path(first, run_name="__main__")
