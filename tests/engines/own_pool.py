"""Beam's own pool of Python workers, for several executors at once.

    python -m tests.engines.own_pool --service_port=50001

Every executor counts its workers from 1, and Beam's pool knows them by that name only: one
executor's request to stop a worker can end another's, for which that one waits for ever. A worker
ends with the connection to its executor anyway, so here nothing is stopped by name.
"""

from __future__ import annotations

from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2 as api
from apache_beam.runners.worker import worker_pool_main


def nothing(pool: Any, request: Any, context: Any) -> Any:
    """In place of `StopWorker`."""
    return api.StopWorkerResponse()


def main() -> None:
    """Serve until ended; Beam's flags."""
    worker_pool_main.BeamFnExternalWorkerPoolServicer.StopWorker = nothing
    worker_pool_main.main()


if __name__ == "__main__":
    main()
