"""Processes that end with the one that started them, however that one ends.

A program that is killed (`kill -9`, memory) ends nothing itself. On Linux the kernel ends its
children: `PR_SET_PDEATHSIG`, which holds until the thread ends that started the child, and is
therefore set for a thread that lives as long as the program. Elsewhere the child stays.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

# In the new process: dies with its parent, unless that is gone already, and becomes the child.
# Not between fork and exec: a program with threads may run nothing of Python there.
_DYING_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


class Child(subprocess.Popen[bytes]):
    """A process that the kernel ends with this program."""

    def __init__(self, args: list[str], **options: Any) -> None:
        if sys.platform != "linux" or not sys.executable:
            super().__init__(args, **options)
            return
        told = [sys.executable, "-I", "-S", "-c", _DYING_WITH_PARENT, str(os.getpid()), *args]
        _in_lasting_thread(partial(super().__init__, told, **options))
        self.args = args


def _in_lasting_thread(run: Callable[[], None]) -> None:
    """Run something in a thread that ends only with the program. Raises what it raises."""
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def forever() -> None:
        try:
            run()
        except BaseException as error:
            done.put(error)
            return
        done.put(None)
        threading.Event().wait()

    threading.Thread(target=forever, daemon=True, name="parent of a child").start()
    error = done.get()
    if error is not None:
        raise error
