"""A PostgreSQL server of the tests' own: Debian's, on a socket in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

_OWNER = "postgres"  # the server refuses to run as root


def find_binaries() -> Path | None:
    """The folder of the newest server's programs; None if none is installed."""
    found = sorted(glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4]))
    return Path(found[-1]).parent if found else None


def _run(*command: str) -> None:
    prefix = ["runuser", "-u", _OWNER, "--"] if os.geteuid() == 0 else []
    subprocess.run([*prefix, *command], check=True, capture_output=True, timeout=120)


@contextmanager
def server() -> Iterator[str]:
    """A running server; gives the URL of an empty database. It ends with the block."""
    binaries = find_binaries()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="ledger-pg-", dir="/tmp"))  # sockets need short paths
    if os.geteuid() == 0:
        shutil.chown(folder, _OWNER)
    data = folder / "data"
    try:
        _run(str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "ledger", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        _run(str(binaries / "pg_ctl"), "-D", str(data), "-o", options, "-w", "-l",
             str(folder / "log"), "start")  # fmt: skip
        try:
            _run(str(binaries / "createdb"), "-h", str(folder), "-U", "ledger", "ledger")
            yield f"postgresql+psycopg://ledger@/ledger?host={folder}"
        finally:
            _run(str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
