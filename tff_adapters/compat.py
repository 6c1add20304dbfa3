"""TensorFlow Federated as it is: under either of its names, with a worker that ends, and files.

Up to 0.87, types, placements and intrinsics are part of `tensorflow_federated`; releases after it
move them to the package `federated_language`. Everything here takes them from `language`. What
imports this module starts TensorFlow Federated's worker surely, and ends it when it ends itself.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow_federated as tff
import typing_extensions
import wrapt

from beam_ldp.children import Child

_APART = importlib.util.find_spec("federated_language") is not None
language: Any = importlib.import_module("federated_language") if _APART else tff

__all__ = ["end_workers", "language", "tff", "unused_port", "workers_ended"]


# The worker process: it starts, or says that it cannot, and ends with its program ----------
#
# The C++ runtime is a child, `worker_binary`, that inherits stdout and outlives the program: then
# `python train.py | tail` never ends. Importing this module sees to it that the worker ends when
# the interpreter does, after an exception or Ctrl-C too.
#
# TensorFlow Federated asks the system for a free port, lets go of it, and gives it to the worker,
# which binds it a second later. On a busy machine another program may have it by then; the worker
# dies, and the program waits for it for ever. Importing this module has ports chosen where nothing
# but workers takes them, and makes a worker that died while it started an error.
#
# Of a program that is killed, the kernel ends the worker: see `beam_ldp.children`.


_PATIENCE = 5.0  # seconds that a worker has to end by itself
_LEAST_PORT, _TRIED_PORTS = 10_000, 100
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def start_workers_surely() -> None:
    """Choose the ports of workers so that none is lost, and do not wait for a worker that died."""
    from tensorflow_federated.python.core.impl.executor_stacks import executor_factory

    executor_factory.portpicker = SimpleNamespace(pick_unused_port=unused_port)
    executor_factory.time = SimpleNamespace(sleep=_wait_for_living)
    executor_factory.subprocess = SimpleNamespace(Popen=Child)


def unused_port() -> int:
    """A free port below those that the system gives to connections, which take any at any time."""
    for _ in range(_TRIED_PORTS):
        port = random.SystemRandom().randrange(_LEAST_PORT, _first_outgoing_port())
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("", port))
            return port
    raise OSError(f"no free port in {_TRIED_PORTS} trials for a worker of TensorFlow Federated")


def _first_outgoing_port() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return max(_LEAST_PORT + 1000, int(_OUTGOING_PORTS.read_text().split()[0]))
    return 32_768


def _wait_for_living(seconds: float) -> None:
    """Wait for a worker to start.

    Raises:
        RuntimeError: if it has died; the next computation starts another.
    """
    time.sleep(seconds)
    for manager in _managers():
        if isinstance(manager._process, subprocess.Popen) and manager._process.poll() is not None:
            manager._process = manager._stub = None
            raise RuntimeError("the worker of TensorFlow Federated died while it started")


def end_workers() -> int:
    """End the workers that this process started; how many there were.

    The next computation starts a new one.
    """
    managers = [found for found in _managers() if isinstance(found._process, subprocess.Popen)]
    for manager in managers:
        worker = manager._process
        manager._process = manager._stub = None  # a new worker at the next computation
        worker.terminate()
        try:
            worker.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    return len(managers)


def end_workers_at_exit() -> None:
    """End them when the interpreter ends."""
    atexit.register(_end)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: atexit.unregister(_end))


@contextlib.contextmanager
def workers_ended() -> Iterator[None]:
    """End the workers after the block, and where the process is asked to end (SIGTERM) in it.

    For the main thread of a program: SIGTERM becomes `SystemExit`, as Ctrl-C is an exception.
    """

    def leave(signum: int, frame: Any) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        end_workers()


def _end() -> None:
    gc.unfreeze()  # what a program froze is in no list of objects
    kinds = {type(manager) for manager in _managers()}
    end_workers()
    for kind in kinds:  # what its destructor would end is ended, and its modules are gone by then
        with contextlib.suppress(AttributeError):
            del kind.__del__


def _managers() -> Iterator[Any]:
    """TensorFlow Federated's objects that hold a worker of this process, or will."""
    for found in gc.get_objects():
        if type(found).__name__ == "ServiceManager" and hasattr(found, "_process"):
            yield found


# File checkpoints ------------------------------------------------------------------------------
#
# `tff.program.FileProgramStateManager` saves states as TensorFlow's SavedModel, which asks of every
# object whether it follows a protocol of typing_extensions. From 4.7 on that reads an object's
# `__dict__` without its own attribute access, and TensorFlow's proxies of dictionaries (wrapt 1.14)
# have none that may be read so. Earlier ones asked `hasattr`; of proxies this still does.


def read_proxies_as_before() -> None:
    """Have protocols of typing_extensions checked on wrapt's proxies by `hasattr`."""
    kind: Any = type(typing_extensions.Protocol)
    asked = kind.__instancecheck__

    def is_instance(cls: Any, instance: Any) -> bool:
        names = getattr(cls, "__protocol_attrs__", None)
        if names and cls._is_protocol and issubclass(type(instance), wrapt.ObjectProxy):
            return all(hasattr(instance, name) for name in names)
        return bool(asked(cls, instance))

    kind.__instancecheck__ = is_instance


end_workers_at_exit()
start_workers_surely()
read_proxies_as_before()
