"""Time, processor time and memory of a process; and programs in environments of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

INTERVAL = 0.05  # seconds between looks at the memory


@dataclass(frozen=True)
class Measurement:
    """What a run took.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: of all its processes.
        launcher_mib: largest resident set of the process itself (on the local runner it holds the
            exchange).
        worker_mib: the largest of any process that it started.
        output: what it printed.
    """

    seconds: float
    cpu_seconds: float
    launcher_mib: float
    worker_mib: float
    output: str


def run_measured(command: list[str], timeout: float | None = None) -> Measurement:
    """Run a command to its end.

    Raises:
        RuntimeError: if it fails or takes longer than `timeout` seconds; the message ends with what
            it wrote.
    """
    begin = time.perf_counter()
    # As most users run: Python keeps what it compiled, so that only the first start compiles.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    resident: dict[int, int] = {}
    used: dict[int, float] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(INTERVAL):
            try:
                parent = psutil.Process(process.pid)
                family = [parent, *parent.children(recursive=True)]
            except psutil.Error:
                return
            for member in family:
                try:
                    size = member.memory_info().rss
                    resident[member.pid] = max(resident.get(member.pid, 0), size)
                    used[member.pid] = sum(member.cpu_times()[:2])
                except psutil.Error:  # it ended meanwhile
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        raise RuntimeError(f"took longer than {timeout} s: {' '.join(command)}") from None
    finally:
        done.set()
        watcher.join()
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise RuntimeError(errors.decode(errors="replace")[-2000:])
    workers = [size for pid, size in resident.items() if pid != process.pid]
    return Measurement(
        seconds,
        sum(used.values()),
        resident.get(process.pid, 0) / 2**20,
        max(workers, default=0) / 2**20,
        output.decode(),
    )


def run_peers(script: str, packages: Sequence[str], given: object = None) -> Any:
    """What a script of this folder prints last, as JSON, where only these packages are installed.

    The environment is made with uv if there is one, else with venv and pip, and removed. `given`
    is what the script reads, as JSON.
    """
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "env" / "bin" / "python"
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        if Path(uv).exists():
            make = [uv, "venv", "--quiet", "--python", sys.executable, f"{folder}/env"]
            install = [uv, "pip", "install", "--quiet", "--python", str(python), *packages]
        else:
            make = [sys.executable, "-m", "venv", f"{folder}/env"]
            install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        for command in (make, install):
            subprocess.run(command, check=True, timeout=600)
        ran = subprocess.run(
            [str(python), str(Path(__file__).with_name(script))],
            input=json.dumps(given),
            check=True,
            timeout=900,
            capture_output=True,
            text=True,
        )
    return json.loads(ran.stdout.splitlines()[-1])
