"""A pool of Python workers that are forked from one process, which has imported everything.

    python -m tests.engines.fork_pool --port=50001

Beam's own pool starts an interpreter for each worker: seconds of imports, some thirty times for a
job on a cluster that keeps no workers. Forked, a worker is there at once, and still a process of
its own that can be killed. It speaks the same protocol. The processes are pool > nursery > workers:
the nursery has no threads and no connections, so that it can be forked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.portability.api import beam_fn_api_pb2 as api
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.utils import thread_pool_executor

import beam_ldp.release.streams.run  # noqa: F401
import tests.engines.fault_job  # noqa: F401


class Nursery:
    """Forks workers, in a process of its own. One request at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        log, written = os.pipe()
        if os.fork() == 0:
            ours.close()
            os.close(log)
            for standard in (1, 2):
                os.dup2(written, standard)
            _raise_workers(theirs)
        theirs.close()
        os.close(written)
        threading.Thread(target=_copy, args=(log,), daemon=True).start()
        self._stream = ours.makefile("rw", encoding="ascii")
        self._lock = threading.Lock()

    def ask(self, **request: str) -> None:
        """Start a worker, and wait until that is done."""
        with self._lock:
            self._stream.write(json.dumps(request) + "\n")
            self._stream.flush()
            if not self._stream.readline():
                raise RuntimeError("the nursery has ended")


def _copy(log: int) -> None:
    """What workers print, where the pool prints: a worker whose disk is full can still say so.

    Beam's worker prints an error before it reports it; where that fails its engine waits for ever.
    """
    while text := os.read(log, 1 << 16):
        os.write(2, text)


def _raise_workers(pool: socket.socket) -> None:
    """The nursery: requests, until the pool ends."""
    workers: set[int] = set()
    stream = pool.makefile("rw", encoding="ascii")
    for line in stream:
        request = json.loads(line)
        workers = {process for process in workers if os.waitpid(process, os.WNOHANG) == (0, 0)}
        process = os.fork()
        if process == 0:
            pool.close()
            _work(request["control"], request["start"])
        workers.add(process)
        stream.write("done\n")
        stream.flush()
    for process in workers:
        os.kill(process, signal.SIGKILL)
    os._exit(0)


def _work(control: str, worker: str) -> None:
    """A worker, until its runner says goodbye."""
    code = 1
    try:
        SdkHarness(control, worker_id=worker, state_cache_size=0).run()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """What engines ask for workers."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._nursery.ask(start=request.worker_id, control=request.control_endpoint.url)
        return api.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Nothing: a worker ends with the connection to its runner, which is closed by now.

        Every executor counts its workers from 1, so the name here may be that of another's worker.
        Beam's own pool ends that one, whose executor then waits for ever.
        """
        return api.StopWorkerResponse()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="A pool of forked Python workers.")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    nursery = Nursery()  # before anything has threads
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(Pool(nursery), server)
    server.add_insecure_port(f"localhost:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
