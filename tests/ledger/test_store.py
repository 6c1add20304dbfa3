"""The database under the ledger: full, read-only, lost, newer; its errors say what to do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import (
    BudgetExceededError,
    BudgetLedger,
    LedgerMissingError,
    LedgerUnavailableError,
    store,
)
from beam_ldp.ledger.store import SCHEMA, RowStore
from tests import conftest
from tests.ledger.asked import asked
from tests.ledger.conftest import Clock
from tests.ledger.postgres import server

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)


def listen(monkeypatch: pytest.MonkeyPatch, doing: Any) -> None:
    """Runs something on every new connection to SQLite."""
    whole = RowStore._make_engine

    def made(rows: RowStore) -> sa.Engine:
        engine = whole(rows)
        sa.event.listen(engine, "connect", lambda connection, _: doing(connection))
        return engine

    monkeypatch.setattr(RowStore, "_make_engine", made)


# SQLite -------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_loses_nothing(
    ledger: BudgetLedger, clock: Clock, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    head = ledger.state.head

    def full(connection: Any) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")

    with monkeypatch.context() as patch:
        listen(patch, full)
        small = BudgetLedger(url, clock=clock)
        with pytest.raises(LedgerUnavailableError, match="full"):
            small.reserve(
                "visits", "run", PURE, identity=asked("visits", "run"), about={"x": "y" * 100_000}
            )
        assert small.state.head == head
    again = BudgetLedger(url, clock=clock).reserve(
        "visits", "run", PURE, identity=asked("visits", "run")
    )
    assert again.status == "reserved"


def test_a_ledger_that_may_only_be_read_can_be_audited(
    ledger: BudgetLedger, clock: Clock, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    listen(monkeypatch, lambda connection: connection.execute("PRAGMA query_only = 1"))
    reader = BudgetLedger(url, clock=clock)
    assert len(reader.rows()) == 3
    with pytest.raises(LedgerUnavailableError, match="readonly"):
        reader.reserve("visits", "run", PURE, identity=asked("visits", "run"))


def test_who_waits_too_long_is_told(
    ledger: BudgetLedger, clock: Clock, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    waiting = BudgetLedger(url, clock=clock)
    with RowStore(url).writing(), pytest.raises(LedgerUnavailableError, match="locked"):
        waiting.reserve("visits", "run", PURE, identity=asked("visits", "run"))


@pytest.mark.parametrize(
    ("version", "message"), [("9999", "newer beam-ldp"), ("0001", "create another ledger")]
)
def test_another_version_of_the_schema_is_refused(
    ledger: BudgetLedger, url: str, version: str, message: str
) -> None:
    with sa.create_engine(url).begin() as connection:
        connection.execute(
            sa.text("UPDATE beam_ldp_ledger_version SET version_num = :it"), {"it": version}
        )
    with pytest.raises(LedgerMissingError, match=message):
        BudgetLedger(url)
    with pytest.raises(LedgerMissingError, match=message):
        BudgetLedger.create(url)


def test_the_tables_are_those_of_the_form(ledger: BudgetLedger, url: str, tmp_path: Path) -> None:
    """A change of the tables is another form: what is made is what was kept of this one."""
    kept = sqlite3.connect(tmp_path / "kept.db")
    kept.executescript((Path(__file__).parent / "old_ledgers" / f"{SCHEMA}.sql").read_text())
    made = sqlite3.connect(sa.make_url(url).database or "")
    for table in (store.TABLE, store.VERSION_TABLE):
        for what in ("table_info", "index_list"):
            asks = f"PRAGMA {what}({table})"
            told = [{row[1:3] for row in c.execute(asks)} for c in (kept, made)]
            assert told[0] == told[1]
    kept.close()
    made.close()


def test_a_maker_that_was_killed_between_its_tables_left_none(url: str) -> None:
    """All of it is made in one transaction: half a ledger would be refused for ever."""
    rows = RowStore(url)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.ledger_version, "insert", killed)
        with pytest.raises(KeyboardInterrupt):
            rows.make()
    assert rows.version() is None
    BudgetLedger.create(url)
    assert rows.version() == SCHEMA


MAKERS = """
import multiprocessing, sys
from beam_ldp.ledger import BudgetLedger

def made(url):
    return BudgetLedger.create(url).ledger_id

with multiprocessing.get_context("fork").Pool(4) as makers:
    print(*makers.map(made, sys.argv[1:] * 8, chunksize=1))
"""


def test_many_may_make_a_ledger_at_once(url: str) -> None:
    """Forked, so that they meet, by a process without threads, which could be forked while they
    hold a lock: whoever comes second finds what the first one made."""
    done = subprocess.run(
        [sys.executable, "-c", MAKERS, url], capture_output=True, text=True, timeout=60
    )
    assert set(done.stdout.split()) == {BudgetLedger(url).ledger_id}, done.stderr
    assert [row.kind for row in BudgetLedger(url).rows()] == ["genesis"]


def test_threads_share_a_ledger(ledger: BudgetLedger) -> None:
    ledger.set_budget("visits", epsilon=2.0, delta=1e-300)
    outcomes: list[str] = []

    def spend(name: int) -> None:
        for i in range(3):
            try:
                ledger.reserve(
                    "visits", f"{name}/{i}", PURE, identity=asked("visits", f"{name}/{i}")
                )
                outcomes.append("fits")
            except BudgetExceededError:
                outcomes.append("refused")

    threads = [threading.Thread(target=spend, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count("fits"), outcomes.count("refused")) == (8, 4)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite+aiosqlite:///x.db",
        "postgresql+psycopg2://host/db",
        "postgresql+" + "x" * 10_000 + "://host/db",
        "http://host",
        "x" * 100_000,
        "sqlite:///\x00",
    ],
)
def test_hostile_urls(url: str) -> None:
    with pytest.raises((ValueError, LedgerMissingError, LedgerUnavailableError)) as caught:
        BudgetLedger(url)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:hidden@host/db", "postgresql+psycopg://host/db?password=hidden&user=me",
     "postgresql://host/db?sslpassword=hidden"],
)  # fmt: skip
def test_a_password_is_never_shown_wherever_it_stands(url: str) -> None:
    pytest.importorskip("psycopg")
    rows = RowStore(url)
    assert "hidden" not in rows.shown_url and rows.holds_a_password


# PostgreSQL ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture
def fresh(postgres: str) -> str:
    """An empty database whose transactions are serializable unless somebody says otherwise."""
    with sa.create_engine(postgres, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
        connection.execute(
            sa.text("ALTER DATABASE ledger SET default_transaction_isolation = 'serializable'")
        )
    return postgres


def test_a_life_on_postgresql(fresh: str) -> None:
    with pytest.raises(LedgerMissingError, match="budget init"):
        BudgetLedger(fresh)
    ledger, other = BudgetLedger.create(fresh), BudgetLedger.create(fresh)
    ledger.set_budget("名; DROP TABLE x", epsilon=0.5, delta=1e-300)
    for i, one in enumerate((ledger, other)):
        one.reserve(
            "名; DROP TABLE x", f"run {i}", PURE, identity=asked("名; DROP TABLE x", f"run {i}")
        )
    with pytest.raises(BudgetExceededError):
        ledger.reserve("名; DROP TABLE x", "more", PURE, identity=asked("名; DROP TABLE x", "more"))
    assert (
        other.settle(
            "run 0", PURE, identity=asked("名; DROP TABLE x", "run 0"), about={"text": "a\x00b"}
        ).status
        == "settled"
    )
    assert ledger.rows() == other.rows()


def test_a_connection_that_is_lost_is_told_and_made_anew(fresh: str) -> None:
    ledger = BudgetLedger.create(fresh)
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    end = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    killer = sa.create_engine(fresh)
    lost = pytest.raises(LedgerUnavailableError, match="cannot be written")
    with lost, ledger._writing() as it:
        with killer.begin() as connection:
            connection.execute(end)
        it.append("time", {"time": it.balances.time})
    head = ledger.state.head
    assert (
        ledger.reserve("visits", "run", PURE, identity=asked("visits", "run")).number == head.count
    )
    killer.dispose()


def test_a_program_that_hangs_with_the_lock_does_not_stop_others(
    fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = BudgetLedger.create(fresh)
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    monkeypatch.setattr(store, "BUSY_SECONDS", 1)
    with RowStore(fresh).writing(), pytest.raises(LedgerUnavailableError, match="lock timeout"):
        monkeypatch.setattr(store, "BUSY_SECONDS", 0.2)
        ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))


@pytest.mark.parametrize(
    ("required", "skipped", "fails"), [("1", True, True), ("", True, False), ("1", False, False)]
)
def test_where_tools_are_required_a_skipped_test_is_a_failure(
    required: str, skipped: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(conftest.REQUIRED, required)
    said: list[str] = []
    stats = {"skipped": [SimpleNamespace(nodeid="test_of_postgresql")]} if skipped else {}
    reporter = SimpleNamespace(stats=stats, write_line=said.append)
    plugins = SimpleNamespace(get_plugin=lambda name: reporter)
    session: Any = SimpleNamespace(exitstatus=0, config=SimpleNamespace(pluginmanager=plugins))
    conftest.pytest_sessionfinish(session)
    assert (session.exitstatus != 0) == fails
    assert any("test_of_postgresql" in line for line in said) == fails


def test_ci_requires_its_tools() -> None:
    steps = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert f"export {conftest.REQUIRED}=1" in steps and "make tools" in steps


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerUnavailableError, match="reached"):
        BudgetLedger("postgresql://127.0.0.1:9/db?connect_timeout=2")
