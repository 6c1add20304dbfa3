"""TFF's worker starts or is an error, and ends with its program, however that ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import psutil
import pytest
import tensorflow_federated as tff
import typing_extensions
import wrapt

from tff_adapters import compat

COMPUTE = """
import sys, time
import numpy as np
import tensorflow_federated as tff
from tff_adapters.compat import end_workers, workers_ended
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


@pytest.mark.e2e
def test_a_worker_whose_port_is_lost_is_an_error_and_not_a_hang():
    """Another program took the port: the wait for the worker had no end. A process of its own,
    because this one has a worker."""
    code = """
import socket
import numpy as np
import tff_adapters.compat
import tensorflow_federated as tff
from tensorflow_federated.python.core.impl.executor_stacks import executor_factory
from tff_adapters.compat import unused_port
taken = socket.create_server(("", 0))
ports = [taken.getsockname()[1]]
picker = lambda: ports.pop() if ports else unused_port()
executor_factory.portpicker.pick_unused_port = picker
add = tff.tensorflow.computation(lambda x: x + 1, np.int32)
try:
    print(add(1))
except RuntimeError as error:
    print(error)
print(add(2))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.split("\n")
    assert "the worker of TensorFlow Federated died while it started" in lines[0]
    assert lines[1] == "3"


@pytest.mark.exact
def test_states_are_kept_in_files_and_come_back(tmp_path):
    """TensorFlow's proxies of dictionaries, and protocols of typing_extensions since 4.7."""
    manager = tff.program.FileProgramStateManager(tmp_path)
    state = OrderedDict(rounds=np.int32(3), weights=[np.ones(2, np.float32)])
    asyncio.run(manager.save(state, 7))
    found, version = asyncio.run(manager.load_latest(OrderedDict(rounds=0, weights=[0])))
    assert version == 7 and found["rounds"] == 3 and found["weights"][0].tolist() == [1.0, 1.0]


@pytest.mark.exact
def test_other_protocols_are_checked_as_before():
    @typing_extensions.runtime_checkable
    class Named(typing_extensions.Protocol):
        name: str

    assert isinstance(Path("x"), Named) and not isinstance(3, Named)
    assert isinstance(wrapt.ObjectProxy(Path("x")), Named)
    assert not isinstance(wrapt.ObjectProxy(3), Named)


@pytest.mark.exact
def test_ports_of_workers_are_none_that_connections_take(monkeypatch):
    first = compat._first_outgoing_port()
    ports = {compat.unused_port() for _ in range(50)}
    assert len(ports) > 40 and all(10_000 <= port < first for port in ports)
    monkeypatch.setattr(compat, "_OUTGOING_PORTS", compat.Path("/nowhere"))
    assert compat._first_outgoing_port() == 32_768
    monkeypatch.setattr(compat.random.SystemRandom, "randrange", lambda *_: taken)
    with socket.create_server(("", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(OSError, match="no free port in 100 trials"):
            compat.unused_port()
