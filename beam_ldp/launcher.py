"""Who launched a run: a process, and whether it lives. A living one's charge is not taken over."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from beam_ldp.ledger import Charge

Ended = Literal["ended", "under way", "unknown"]


@dataclass(frozen=True)
class Launcher:
    """A process, so that it can be told from every other one.

    Attributes:
        host, boot, namespace: the machine, its current life, and the container; "" where unknown.
        pid, started: the process, and when it started in the machine's ticks.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> Launcher:
        """The process that asks."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Launcher:
        """A process of this machine and container."""
        return cls(
            host=socket.gethostname(),
            boot=_text("/proc/sys/kernel/random/boot_id"),
            namespace=_linked("/proc/self/ns/pid"),
            pid=pid,
            started=_started(pid),
        )

    @classmethod
    def of_start(cls, charge: Charge) -> Launcher | None:
        """The process of a charge's newest start, by the ledger; None if unknown or this one."""
        named = charge.about.get("launcher")
        launcher = None if named is None else cls(**named)
        return None if launcher == cls.this() else launcher

    @property
    def gone(self) -> Launcher:
        """One that leaves what it has done to somebody else."""
        return replace(self, started="")

    @property
    def ended(self) -> Ended:
        """Whether it lives, as far as this machine can know."""
        here = Launcher.this()
        if not self.boot or not here.boot or self.host != here.host:
            return "unknown"
        if self.boot != here.boot:
            return "ended"
        if self.namespace != here.namespace:
            return "unknown"
        return "under way" if self.started and _started(self.pid) == self.started else "ended"


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _linked(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Field 22 of /proc/PID/stat; a process's name may hold spaces and brackets. A zombie is
    dead."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in ("Z", "X") else ""
