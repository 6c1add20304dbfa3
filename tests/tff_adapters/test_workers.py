"""TFF's worker ends with its program: at its end, on an exception, on Ctrl-C and on SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

COMPUTE = """
import sys, time
import numpy as np
import tensorflow_federated as tff
from tff_adapters.workers import end_workers, workers_ended
import tff_adapters.compat
add = tff.tensorflow.computation(lambda x: x + 1, np.int32)
print(add(1), flush=True)
"""
ENDS = {
    "end": "",
    "exception": "raise KeyError('on purpose')",
    "asked": "assert end_workers() == 1 and end_workers() == 0; print(add(2), flush=True)",
}


def program(code):
    return [sys.executable, "-c", COMPUTE + code]


@pytest.mark.e2e
@pytest.mark.parametrize(
    "how", ["end", *(pytest.param(how, marks=pytest.mark.slow) for how in ("exception", "asked"))]
)
def test_a_program_that_is_piped_ends(how):
    """The worker inherits stdout: were it alive, `communicate` would wait for it."""
    run = subprocess.run(program(ENDS[how]), capture_output=True, text=True, timeout=150)
    assert run.stdout.split() == (["2", "3"] if how == "asked" else ["2"])
    assert (run.returncode != 0) == (how == "exception")
    assert "ServiceManager" not in run.stderr


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name, wrapped", [pytest.param("SIGINT", False, marks=pytest.mark.slow), ("SIGTERM", True)]
)
def test_a_program_that_is_interrupted_ends_its_worker(name, wrapped):
    sleeping = "with workers_ended():\n    time.sleep(600)" if wrapped else "time.sleep(600)"
    child = subprocess.Popen(program(sleeping), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "2\n"
    workers = psutil.Process(child.pid).children(recursive=True)
    assert [worker.name() for worker in workers] == ["worker_binary"]
    time.sleep(0.2)  # into the sleep
    child.send_signal(getattr(signal, name))
    rest, _ = child.communicate(timeout=60)  # ends only when nobody holds the pipe
    assert rest == "" and child.returncode != 0
    assert not psutil.wait_procs(workers, timeout=60)[1]
