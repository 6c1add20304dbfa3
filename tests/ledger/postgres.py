"""A PostgreSQL server of the tests' own: Debian's, on a socket in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
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
    """A running server; gives the URL of an empty database. It ends with the block.

    Without a server or its driver the test is skipped, which CI does not allow.
    """
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's server is not installed: `make tools` installs it")
    if find_spec("psycopg") is None:
        pytest.skip("PostgreSQL's driver is not installed: `make setup` installs it")
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


def grant_roles(url: str) -> None:
    """Make the two roles of the page on the ledger, and grant them what it says."""
    import sqlalchemy as sa

    (statements,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.S)
    made, granted = statements.split("GRANT", 1)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        known = connection.exec_driver_sql("SELECT 1 FROM pg_roles WHERE rolname = 'ldp_runs'")
        if not known.fetchall():  # roles are the server's, tables the database's
            connection.exec_driver_sql(made)
        connection.exec_driver_sql(f"GRANT {granted}")
    engine.dispose()


def as_runs(url: str) -> str:
    """The URL of the role that may charge, and nothing else; SQLite has no roles."""
    return url.replace("ledger@", "ldp_runs@", 1) if url.startswith("postgresql") else url
