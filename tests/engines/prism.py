"""Prism: Beam's own runner in Go, one process."""

from __future__ import annotations

from tests.engines import worker_pool
from tests.engines.cache import prism_binary
from tests.engines.processes import Group, free_ports


def start(group: Group) -> tuple[str, ...]:
    """Start it; Python workers in the client's own process. Gives the Beam flags."""
    return (*_start(group), "--environment_type=LOOPBACK")


def start_with_pool(group: Group) -> tuple[str, ...]:
    """Start it with a pool of forked Python workers. Gives the Beam flags."""
    group.environment = worker_pool.environment()
    return (*_start(group), *worker_pool.start(group, forking=True))


def _start(group: Group) -> tuple[str, ...]:
    (port,) = free_ports(1)
    binary = str(prism_binary())
    group.start("prism", [binary, "--job_port", str(port), "--serve_http=false"], port)
    return ("--runner=PrismRunner", f"--job_endpoint=localhost:{port}")
