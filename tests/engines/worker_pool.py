"""Beam's pool of Python workers: starts a process for every worker that an engine asks for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.engines.processes import Group, free_ports

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """What workers need: this interpreter first on the path, and the tests' own classes."""
    # The pool starts `python` from PATH; another one has no Beam, and the job waits for ever.
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get("PATH", "")])
    return {"PATH": path, "PYTHONPATH": str(ROOT)}


def start(group: Group, forking: bool = False) -> tuple[str, ...]:
    """Start a pool; gives the Beam flags that make an engine ask there for its workers.

    Args:
        group: where it belongs; its environment must be that of this module.
        forking: workers are forked (`tests.engines.fork_pool`), not started anew as Beam does it.
    """
    (port,) = free_ports(1)
    if forking:
        pool = ["tests.engines.fork_pool", f"--port={port}"]
    else:
        pool = ["tests.engines.own_pool", f"--service_port={port}"]
    group.start("workers", [sys.executable, "-m", *pool], port)
    # A worker that is kept for later stages is asked again after its death, at every attempt.
    return ("--environment_type=EXTERNAL", f"--environment_config=localhost:{port}",
            "--environment_cache_millis=0")  # fmt: skip
