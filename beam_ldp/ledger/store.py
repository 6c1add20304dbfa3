"""The table of rows: append-only, one writer at a time, in SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from beam_ldp.ledger.rows import Head, Row, canonical, parse

TABLE = "beam_ldp_ledger"
VERSION_TABLE = (
    "beam_ldp_ledger_version"  # MLflow uses Alembic's default name, maybe in one database
)
BUSY_SECONDS = 60.0

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
    """There is no ledger at this place, or it is older than this library."""


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
        except sa.exc.ArgumentError:
            raise ValueError(
                "url must be a database URL such as sqlite:///privacy.db or "
                "postgresql+psycopg://host/database"
            ) from None
        if self.url.get_backend_name() not in ("sqlite", "postgresql"):
            raise ValueError(
                f"url must name SQLite or PostgreSQL, got {self.url.get_backend_name()}"
            )
        if self.is_sqlite and self.url.database in (None, "", ":memory:"):
            raise ValueError("url must name a file: a ledger in memory would be forgotten")
        self._engine = self._make_engine()

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def shown_url(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)

    @property
    def engine(self) -> Engine:
        return self._engine

    def _make_engine(self) -> Engine:
        if not self.is_sqlite:
            return sa.create_engine(self.url, pool_pre_ping=True)
        engine = sa.create_engine(
            self.url, connect_args={"timeout": BUSY_SECONDS}, poolclass=sa.NullPool
        )
        # Python's driver would begin transactions late; a writer must lock before it reads.
        sa.event.listen(engine, "connect", _without_implicit_begin)
        return engine

    # Coming into being --------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether a ledger is here. Never creates a file."""
        if self.is_sqlite and not Path(str(self.url.database)).is_file():
            return False
        try:
            return sa.inspect(self._engine).has_table(TABLE)
        except sa.exc.DBAPIError:
            raise LedgerMissingError(f"{self.shown_url} cannot be reached or read") from None

    def migrate(self) -> None:
        """Create the table, or bring an older one to this library's form."""
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["engine"] = self._engine
        command.upgrade(config, "head")
        if self.is_sqlite:  # readers and the one writer then do not wait for each other
            with self._engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def check(self) -> None:
        """Refuse a place without a ledger.

        Raises:
            LedgerMissingError: which says how to make one.
        """
        if not self.exists():
            raise LedgerMissingError(
                f"{self.shown_url} holds no ledger. A mistyped URL never makes one: "
                "`beam-ldp budget init` does, or BudgetLedger.create(url)"
            )

    # Reading and writing -------------------------------------------------------------------

    def rows(self, start: int = 0) -> list[Row]:
        """All rows from number `start` on.

        Raises:
            LedgerMissingError: if the database cannot be read.
        """
        try:
            with self._engine.connect() as connection:
                return list(_read(connection, start))
        except sa.exc.DBAPIError:
            raise LedgerMissingError(f"{self.shown_url} cannot be reached or read") from None

    @contextmanager
    def writing(self) -> Iterator[Appender]:
        """Alone with the ledger: nobody else appends until this block ends.

        What was appended is committed when the block ends well, and forgotten otherwise.
        """
        with self._engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql(f"LOCK TABLE {TABLE} IN EXCLUSIVE MODE")
            try:
                yield Appender(connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

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
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": True}


def _without_implicit_begin(connection: object, record: object) -> None:
    connection.isolation_level = None  # type: ignore[attr-defined]


def head_of(rows: list[Row]) -> Head:
    """The head of a chain of rows."""
    return rows[-1].head if rows else Head()
