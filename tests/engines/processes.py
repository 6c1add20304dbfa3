"""Servers as processes: started in groups of their own, awaited, known again, ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

START_SECONDS = 90
END_SECONDS = 10


class EngineError(RuntimeError):
    """An engine could not be fetched or did not come up; the message says what to do."""


class PortTakenError(EngineError):
    """A server ended, or never answered; on other ports it may."""


@dataclass(frozen=True)
class Server:
    """One process that we started.

    Attributes:
        role: what it does, e.g. `master`.
        process_id: its id, which is also that of its process group.
        created: when it started, so that another process of the same id is not taken for it.
    """

    role: str
    process_id: int
    created: float

    def process(self) -> psutil.Process | None:
        """The process, if it is still the one that was started."""
        try:
            found = psutil.Process(self.process_id)
            same = abs(found.create_time() - self.created) < 1
            return found if same and found.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def children(self) -> list[psutil.Process]:
        """What it started: executors, harnesses."""
        found = self.process()
        return [] if found is None else found.children(recursive=True)


@dataclass
class Group:
    """The servers of one engine, started one after the other.

    Attributes:
        folder: their working directory; each writes `ROLE.log` there.
        environment: added to that of this process.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)
    _handles: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self,
        role: str,
        command: Sequence[str],
        port: int | None = None,
        ready: Callable[[], bool] | None = None,
    ) -> Server:
        """Start a server and wait until it answers.

        Args:
            role: its name; also that of its log.
            command: the program.
            port: a loopback port that it will listen on.
            ready: what else says that it is there.

        Raises:
            PortTakenError: if it ends, or does not answer within 90 seconds.
        """
        with self.log(role).open("ab") as output:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        self._handles.append(process)
        server = Server(role, process.pid, psutil.Process(process.pid).create_time())
        self.servers.append(server)
        ready = ready or (lambda: port is None or answers(port))
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise PortTakenError(
                    f"{role} did not come up; its log ends with:\n{self.text(role)[-2000:]}"
                )
            time.sleep(0.1)
        return server

    def log(self, role: str) -> Path:
        """Where a server writes."""
        return self.folder / f"{role}.log"

    def text(self, role: str) -> str:
        """What a server has written so far."""
        path = self.log(role)
        return path.read_text(errors="replace") if path.exists() else ""

    def end(self) -> None:
        """End all servers, the last one first, with everything they started."""
        end(self.servers)
        for process in self._handles:
            process.wait()  # our own children: leave no zombies
        self.servers.clear()
        self._handles.clear()


def end(servers: Sequence[Server]) -> None:
    """End servers, the last one first, with everything they started: politely, then not.

    Whoever left the process group (a session of its own) is ended too; a process that is not the
    one that was started is left alone.
    """
    for server in reversed(servers):
        process = server.process()
        if process is None:
            continue
        family = [process, *server.children()]
        _signal_group(server, signal.SIGTERM)
        _, alive = psutil.wait_procs(family, END_SECONDS)
        if alive:
            _signal_group(server, signal.SIGKILL)
        for one in alive:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(alive, END_SECONDS)


def _signal_group(server: Server, number: int) -> None:
    try:
        os.killpg(server.process_id, number)
    except ProcessLookupError:
        return


def answers(port: int) -> bool:
    """Whether somebody listens on this loopback port."""
    try:
        with socket.create_connection(("localhost", port), timeout=1):
            return True
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
