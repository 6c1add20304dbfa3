"""The table of rows: append-only, one writer at a time, in SQLite or PostgreSQL.

A program that charges needs the rights to read and to insert, and no others: nothing is ever
updated, and the lock of PostgreSQL is an advisory one.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from beam_ldp.ledger import kinds
from beam_ldp.ledger.rows import COLUMNS, Row

TABLE, VERSION_TABLE = "beam_ldp_ledger", "beam_ldp_ledger_version"
SCHEMA = "0002"  # of the tables below; another one is refused
BUSY_SECONDS = 60  # that a writer waits for the others; a lost one lets go after as long

_DRIVERS = ("sqlite", "sqlite+pysqlite", "postgresql+psycopg")

metadata = sa.MetaData()
ledger_rows = sa.Table(
    TABLE,
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    # Of charges, for look-ups: a copy of what the body says (`rows.columns_of`).
    sa.Column("run_id", sa.String(200), index=True),
    sa.Column("part", sa.String(200)),
    sa.Column("release_key", sa.String(32), index=True),
    sa.Column("identity_digest", sa.String(64), index=True),
    sa.Column("population", sa.String(200)),
    sa.Column("period", sa.BigInteger),
)
ledger_version = sa.Table(
    VERSION_TABLE, metadata, sa.Column("version_num", sa.String(32), primary_key=True)
)
# Made once: to put a query together takes longer than to run it.
_C = ledger_rows.c
_VALUE: sa.BindParameter[Any] = sa.bindparam("value")
_ROWS = sa.select(ledger_rows).order_by(_C.number)
_ROWS_FROM = _ROWS.where(_C.number >= _VALUE)
_ROW = _ROWS.where(_C.number == _VALUE)
_LAST_CHECKPOINT = (
    sa.select(ledger_rows).where(_C.kind == kinds.CHECKPOINT).order_by(_C.number.desc()).limit(1)
)
_LAST_OF_RUN = sa.select(sa.func.max(_C.number)).where(_C.run_id == _VALUE).scalar_subquery()
_ROWS_OF_RUN = _ROWS.where(
    (_C.run_id == _VALUE)
    & (
        ((_C.kind != kinds.BEGIN) & ((_C.part == "") | (_C.part == sa.bindparam("part"))))
        | (_C.number == _LAST_OF_RUN)
    )
)
_ROWS_OF_RELEASE = _ROWS.where((_C.release_key == _VALUE) & (_C.kind == kinds.RESERVE))
_FIRST_OF_RELEASE = _ROWS_OF_RELEASE.limit(1)
_ROWS_OF_IDENTITY = _ROWS.where(_C.identity_digest == _VALUE)
_LOCK = int.from_bytes(hashlib.sha256(TABLE.encode()).digest()[:8], "big", signed=True)


class LedgerMissingError(RuntimeError):
    """There is no ledger at this place, or not one of this library's version."""


class LedgerUnavailableError(RuntimeError):
    """The database could not be reached, read or written: nothing may be released meanwhile.

    What was being written is either in the ledger as a whole or not at all.

    Attributes:
        unsure: the answer to a commit was lost, so that nobody knows which.
        run_id, attempt: of the charge that was being written; it can be taken up again.
    """

    def __init__(self, message: str, *, unsure: bool = False) -> None:
        super().__init__(message)
        self.unsure = unsure
        self.run_id: str | None = None
        self.attempt: str | None = None

    def about(self, run_id: str, attempt: str | None) -> LedgerUnavailableError:
        """The same of a charge."""
        said = str(self)
        if self.unsure and attempt is not None:
            said += (
                f". Whether run {run_id!r} (attempt {attempt}) is written down is not known: the "
                "same call with this attempt takes it up again, and charges nothing twice"
            )
        told = type(self)(said, unsure=self.unsure)
        told.run_id, told.attempt = run_id, attempt
        return told


class RowStore:
    """Rows in a database. One writer at a time: `writing` holds the lock from reading to commit.

    Args:
        url: SQLAlchemy URL, for example `sqlite:///privacy.db` or
            `postgresql+psycopg://host/database`.

    Raises:
        ValueError: if the URL cannot be understood or names another kind of database.
    """

    def __init__(self, url: str) -> None:
        try:
            self.url = sa.make_url(url)
        except (sa.exc.ArgumentError, ValueError):
            raise ValueError(
                "url must be a database URL such as sqlite:///privacy.db or "
                "postgresql+psycopg://host/database"
            ) from None
        if self.url.drivername == "postgresql":
            self.url = self.url.set(drivername="postgresql+psycopg")
        if self.url.drivername not in _DRIVERS:
            raise ValueError(
                f"url must begin with {' or '.join(_DRIVERS)}, got {self.url.drivername[:40]!r}"
            )
        file = self.url.database or ""
        if self.is_sqlite and (file in ("", ":memory:") or file.startswith("file:")):
            raise ValueError(
                "url must name a file by its path, as sqlite:///privacy.db does: a ledger in "
                "memory would be forgotten"
            )
        self._engine = self._make_engine()
        self._keeper: Connection | None = None

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def holds_a_password(self) -> bool:
        """Whether the URL itself does."""
        return self.url.password is not None or bool(self._secrets)

    @property
    def _secrets(self) -> list[str]:
        return [name for name in self.url.query if "pass" in name.lower()]

    @property
    def shown_url(self) -> str:
        """The URL without its password, wherever that stands."""
        shown = self.url.difference_update_query(self._secrets)
        return shown.render_as_string(hide_password=True)

    @property
    def engine(self) -> Engine:
        return self._engine

    def _make_engine(self) -> Engine:
        if not self.is_sqlite:
            try:
                # Each statement sees what was committed before it, whatever the server's default:
                # a writer must see what the one before it wrote while it waited for the lock.
                return sa.create_engine(
                    self.url, pool_pre_ping=True, isolation_level="READ COMMITTED"
                )
            except ImportError:
                raise ValueError(
                    "url needs PostgreSQL's driver: pip install 'beam-ldp[postgresql]'"
                ) from None
        engine = sa.create_engine(self.url, creator=self._connected, poolclass=sa.NullPool)
        # Python's driver would begin transactions late; a writer must lock before it reads.
        sa.event.listen(engine, "connect", _without_implicit_begin)
        return engine

    def _connected(self) -> sqlite3.Connection:
        """A connection to SQLite; to a copy that may only be read, one that writes nothing.

        By itself SQLite makes files beside the database even for readers. Where it cannot and no
        change waits in such a file, the copy is taken as one that nobody changes.
        """
        path = Path(str(self.url.database))
        if not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return sqlite3.connect(str(path), timeout=BUSY_SECONDS, check_same_thread=False)
        waiting = Path(f"{path}-wal")
        is_still = not (waiting.is_file() and waiting.stat().st_size)
        how = "?mode=ro&immutable=1" if is_still else "?mode=ro"
        where = path.absolute().as_uri() + how
        return sqlite3.connect(where, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

    @contextmanager
    def _reaching(self, doing: str, *, unsure: bool = False) -> Iterator[None]:
        """Turns the driver's errors into one that says what to do."""
        try:
            yield
        except (sa.exc.SQLAlchemyError, OSError) as error:
            cause = getattr(error, "orig", None) or error
            reason = str(cause).strip().partition("\n")[0][:200]
            raise LedgerUnavailableError(
                f"{self.shown_url} cannot be {doing} ({type(cause).__name__}: {reason}). Nothing "
                "may be released until it can",
                unsure=unsure,
            ) from None

    # Coming into being --------------------------------------------------------------------

    def version(self) -> str | None:
        """Version of the ledger's schema here; None if there is no ledger. Never makes a file."""
        if self.is_sqlite and not Path(str(self.url.database)).is_file():
            return None
        with self._reaching("reached or read"), self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(TABLE):
                return None
            return str(connection.execute(sa.select(ledger_version)).scalar_one())

    def make(self) -> None:
        """Create the tables, unless they are there. Two who do so at once make them once.

        Raises:
            LedgerMissingError: if there are tables of another form.
        """
        if self.version() is not None:
            self.check()
            return
        with self._reaching("made"), self._engine.connect() as connection:
            if self.is_sqlite:
                _write_ahead(connection)
            self._lock(connection)
            if not sa.inspect(connection).has_table(TABLE):
                metadata.create_all(connection)
                connection.execute(ledger_version.insert(), {"version_num": SCHEMA})
            connection.commit()

    def check(self) -> None:
        """Refuse a place without a ledger that this version understands.

        Raises:
            LedgerMissingError: which says what to do.
        """
        found = self.version()
        if found is None:
            raise LedgerMissingError(
                f"{self.shown_url} holds no ledger. Create one with `beam-ldp budget init` or "
                "BudgetLedger.create(url); a mistyped URL never does"
            )
        if found > SCHEMA:
            raise LedgerMissingError(
                f"{self.shown_url} was made by a newer beam-ldp (form {found}, this one knows "
                f"{SCHEMA}): use that version"
            )
        if found < SCHEMA:
            raise LedgerMissingError(
                f"{self.shown_url} has form {found}, which no release of beam-ldp ever wrote and "
                f"this one (form {SCHEMA}) cannot read; create another ledger"
            )

    # Reading and writing -------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read what is committed.

        Raises:
            LedgerUnavailableError: if the database cannot be read.
        """
        with self._reaching("reached or read"), self._engine.connect() as connection:
            yield Reader(connection, is_sqlite=self.is_sqlite)

    def rows(self, start: int = 0) -> list[Row]:
        """All rows from number `start` on.

        Raises:
            LedgerUnavailableError: if the database cannot be read.
        """
        with self.reading() as reader:
            return reader.rows(start)

    def row(self, number: int) -> list[Row]:
        """The row of a number, if there is one. Raises as `rows`."""
        with self.reading() as reader:
            return reader.row(number)

    @contextmanager
    def writing(self) -> Iterator[Appender]:
        """Alone with the ledger: nobody else appends until this block ends.

        What was appended is committed when the block ends well, and forgotten otherwise.

        Raises:
            LedgerUnavailableError: if the database cannot be written; `unsure` is set where the
                answer to the commit was lost.
        """
        with self._reaching("written"), self._engine.connect() as connection:
            self._keep()
            try:
                self._lock(connection)
                yield Appender(connection, is_sqlite=self.is_sqlite)
            except BaseException:
                connection.rollback()
                raise
            with self._reaching("written", unsure=True):
                connection.commit()

    def _lock(self, connection: Connection) -> None:
        if self.is_sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        # A program that hangs while it holds the lock must not stop all others for ever.
        for limit in ("lock_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {limit} = '{round(1000 * BUSY_SECONDS)}ms'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")

    def _keep(self) -> None:
        """Hold SQLite's log open: whoever closes it last copies all of it, which takes long.

        Nothing is ever asked through this connection, so it sees no file that is gone.
        """
        if self.is_sqlite and self._keeper is None:
            self._keeper = self._engine.connect()
            self._keeper.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()

    def close(self) -> None:
        """Let go of all connections."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        self._engine.dispose()


def _write_ahead(connection: Connection) -> None:
    """SQLite's mode in which readers and the one writer do not wait for each other.

    Of two who change the mode at once, SQLite tells one that the database is locked, however long
    its timeout.
    """
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            return
        except sa.exc.OperationalError as error:
            if "locked" not in str(error.orig) or time.monotonic() > give_up:
                raise
        time.sleep(0.01)


class Reader:
    """Looks rows up, in one transaction."""

    def __init__(self, connection: Connection, *, is_sqlite: bool) -> None:
        self._connection, self._is_sqlite = connection, is_sqlite

    def now(self) -> datetime | None:
        """The database's clock; None where the database has none of its own."""
        if self._is_sqlite:
            return None
        found = self._connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        assert isinstance(found, datetime)
        return found

    def rows(self, start: int) -> list[Row]:
        """All rows from number `start` on."""
        return self._found(_ROWS_FROM, start)

    def row(self, number: int) -> list[Row]:
        """The row of a number, if there is one."""
        return self._found(_ROW, number)

    def last_checkpoint(self) -> Row | None:
        """The newest row that holds all totals."""
        return next(iter(self._found(_LAST_CHECKPOINT)), None)

    def rows_of_run(self, run_id: str, part: str = "") -> list[Row]:
        """Rows of a run; of a block, those of the whole, those of one part, and the last one.

        Of the rows that count rounds only the last one, and none once the run has ended: each
        holds the whole count, and so does the row that ends it.
        """
        return self._found(_ROWS_OF_RUN, run_id, part=part)

    def first_of_release(self, release_key: str) -> Row | None:
        """The first reservation of a release id."""
        return next(iter(self._found(_FIRST_OF_RELEASE, release_key)), None)

    def rows_of_release(self, release_key: str) -> list[Row]:
        """All reservations of a release id."""
        return self._found(_ROWS_OF_RELEASE, release_key)

    def rows_of_identity(self, digest: str) -> list[Row]:
        """Reservations of an identity, and rows that ended a block's part of that identity."""
        return self._found(_ROWS_OF_IDENTITY, digest)

    def _found(self, query: sa.Select[Any], value: Any = None, **others: Any) -> list[Row]:
        return [
            Row(number, kind, body, previous, digest, dict(zip(COLUMNS, columns)))
            for number, kind, body, previous, digest, *columns in self._connection.execute(
                query, {"value": value, **others}
            )
        ]


class Appender(Reader):
    """Reads and appends inside one transaction."""

    def append(self, row: Row) -> None:
        """Add one row; its number must follow the last one's."""
        self._connection.execute(
            ledger_rows.insert(),
            {
                "number": row.number,
                "kind": row.kind,
                "body": row.text,
                "previous": row.previous,
                "hash": row.hash,
                **row.columns,
            },
        )


def _without_implicit_begin(connection: object, record: object) -> None:
    connection.isolation_level = None  # type: ignore[attr-defined]
