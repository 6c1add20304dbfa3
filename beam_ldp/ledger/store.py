"""The table of rows: append-only, one writer at a time, in SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from beam_ldp.ledger.rows import Head, Row, canonical, parse

TABLE = "beam_ldp_ledger"
# MLflow uses Alembic's default name, maybe in one database.
VERSION_TABLE = "beam_ldp_ledger_version"
SCHEMA = "0001"  # the newest of `migrations/versions`
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
)


class LedgerMissingError(RuntimeError):
    """There is no ledger at this place, or not one of this library's version."""


class LedgerUnavailableError(RuntimeError):
    """The database could not be reached, read or written: nothing may be released meanwhile.

    What was being written is either in the ledger as a whole or not at all.
    """


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
        engine = sa.create_engine(
            self.url, connect_args={"timeout": BUSY_SECONDS}, poolclass=sa.NullPool
        )
        # Python's driver would begin transactions late; a writer must lock before it reads.
        sa.event.listen(engine, "connect", _without_implicit_begin)
        return engine

    @contextmanager
    def _reaching(self, doing: str) -> Iterator[None]:
        """Turns the driver's errors into one that says what to do."""
        try:
            yield
        except (sa.exc.SQLAlchemyError, OSError) as error:
            cause = getattr(error, "orig", None) or error
            reason = str(cause).strip().partition("\n")[0][:200]
            raise LedgerUnavailableError(
                f"{self.shown_url} cannot be {doing} ({type(cause).__name__}: {reason}). Nothing "
                "may be released until it can"
            ) from None

    # Coming into being --------------------------------------------------------------------

    def version(self) -> str | None:
        """Version of the ledger's schema here; None if there is no ledger. Never makes a file."""
        if self.is_sqlite and not Path(str(self.url.database)).is_file():
            return None
        with self._reaching("reached or read"), self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(TABLE):
                return None
            found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}")
            return str(found.scalar_one())

    def migrate(self) -> None:
        """Create the table, or bring an older one to this library's form."""
        from alembic import command
        from alembic.config import Config

        found = self.version()
        if found is not None and found > SCHEMA:
            raise LedgerMissingError(self._newer(found))
        config = Config()
        folder = str(Path(__file__).parent / "migrations")
        config.set_main_option("script_location", folder.replace("%", "%%"))
        config.attributes["engine"] = self._engine
        with self._reaching("made"):
            command.upgrade(config, "head")
            if self.is_sqlite:  # readers and the one writer then do not wait for each other
                with self._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def check(self) -> None:
        """Refuse a place without a ledger that this version understands.

        Raises:
            LedgerMissingError: which says what to do.
        """
        found = self.version()
        if found is None:
            raise LedgerMissingError(
                f"{self.shown_url} holds no ledger. A mistyped URL never makes one: "
                "`beam-ldp budget init` does, or BudgetLedger.create(url)"
            )
        if found > SCHEMA:
            raise LedgerMissingError(self._newer(found))
        if found < SCHEMA:
            raise LedgerMissingError(
                f"{self.shown_url} has an older form ({found}): `beam-ldp budget init` brings it "
                "to this version's, and loses nothing"
            )

    def _newer(self, found: str) -> str:
        return (
            f"{self.shown_url} was made by a newer beam-ldp (form {found}, this one knows "
            f"{SCHEMA}): use that version"
        )

    # Reading and writing -------------------------------------------------------------------

    def rows(self, start: int = 0) -> list[Row]:
        """All rows from number `start` on.

        Raises:
            LedgerUnavailableError: if the database cannot be read.
        """
        with self._reaching("reached or read"), self._engine.connect() as connection:
            return list(_read(connection, start))

    @contextmanager
    def writing(self) -> Iterator[Appender]:
        """Alone with the ledger: nobody else appends until this block ends.

        What was appended is committed when the block ends well, and forgotten otherwise.

        Raises:
            LedgerUnavailableError: if the database cannot be written.
        """
        with self._reaching("written"), self._engine.connect() as connection:
            try:
                self._lock(connection)
                yield Appender(connection)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def _lock(self, connection: Connection) -> None:
        if self.is_sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        # A program that hangs while it holds the lock must not stop all others for ever.
        for limit in ("lock_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {limit} = '{round(1000 * BUSY_SECONDS)}ms'")
        connection.exec_driver_sql(f"LOCK TABLE {TABLE} IN EXCLUSIVE MODE")

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()


class Appender:
    """Reads and appends inside one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, start: int) -> list[Row]:
        """All rows from number `start` on."""
        return list(_read(self._connection, start))

    def append(self, row: Row) -> None:
        """Add one row; its number must follow the last one's."""
        self._connection.execute(
            ledger_rows.insert().values(
                number=row.number,
                kind=row.kind,
                body=canonical(row.body).decode(),
                previous=row.previous,
                hash=row.hash,
            )
        )


def _read(connection: Connection, start: int) -> Iterator[Row]:
    query = (
        sa.select(ledger_rows).where(ledger_rows.c.number >= start).order_by(ledger_rows.c.number)
    )
    for number, kind, body, previous, digest in connection.execute(query):
        yield Row(number, kind, _body(body), previous, digest)


def _body(text: str) -> dict[str, object]:
    """The body; what is no JSON object becomes one that no hash fits."""
    try:
        found = parse(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"unreadable": True}


def _without_implicit_begin(connection: object, record: object) -> None:
    connection.isolation_level = None  # type: ignore[attr-defined]


def head_of(rows: list[Row]) -> Head:
    """The head of a chain of rows."""
    return rows[-1].head if rows else Head()
