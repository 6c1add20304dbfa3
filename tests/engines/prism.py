"""Prism: Beam's own runner in Go, one process."""

from __future__ import annotations

from tests.engines.cache import prism_binary
from tests.engines.processes import Group, free_ports


def start(group: Group) -> tuple[str, ...]:
    """Start it; gives the Beam flags that send a job there."""
    (port,) = free_ports(1)
    binary = str(prism_binary())
    group.start("prism", [binary, "--job_port", str(port), "--serve_http=false"], port)
    return (
        "--runner=PrismRunner",
        f"--job_endpoint=localhost:{port}",
        "--environment_type=LOOPBACK",
    )
