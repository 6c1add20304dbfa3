"""TensorFlow Federated's worker process ends with the program that started it.

The C++ runtime is a child, `worker_binary`, that inherits stdout and outlives the program: then
`python train.py | tail` never ends. Importing `tff_adapters.compat` sees to it that the worker
ends when the interpreter does, after an exception or Ctrl-C too.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

_PATIENCE = 5.0  # seconds that a worker has to end by itself


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
