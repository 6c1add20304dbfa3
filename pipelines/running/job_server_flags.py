"""Flags that only a runner's own job server knows, such as Flink's `--number_of_execution_retries`.

Beam for Python does not list them; it asks the job server when it sends a job. So does this, and
only where a flag is unknown otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SECONDS = 10


def job_endpoint(arguments: Sequence[str]) -> str | None:
    """`host:port` of `--job_endpoint`, where it is given."""
    found = None
    for i, argument in enumerate(arguments):
        if argument == "--job_endpoint" and i + 1 < len(arguments):
            found = arguments[i + 1]
        elif argument.startswith("--job_endpoint="):
            found = argument.split("=", 1)[1]
    return found


def flags_of(endpoint: str, seconds: float = SECONDS) -> dict[str, dict[str, Any]]:
    """The flags of a job server, for argparse, by name; none if it does not answer.

    Args:
        endpoint: its `host:port`.
        seconds: how long to wait for the answer.
    """
    import grpc  # type: ignore[import-untyped]
    from apache_beam.portability.api import beam_job_api_pb2 as messages
    from apache_beam.portability.api import beam_job_api_pb2_grpc as services

    with grpc.insecure_channel(endpoint) as channel:
        try:
            answer = services.JobServiceStub(channel).DescribePipelineOptions(
                messages.DescribePipelineOptionsRequest(), timeout=seconds, wait_for_ready=True
            )
        except grpc.RpcError:
            return {}
    switch = messages.PipelineOptionType.BOOLEAN
    several = messages.PipelineOptionType.ARRAY
    return {
        f"--{option.name}": {
            "action": "store_true" if option.type == switch
            else "append" if option.type == several
            else "store"
        }
        for option in answer.options
    }  # fmt: skip
