"""Who may write what: roles of PostgreSQL, signed rows, answers that are lost, its own clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger, LedgerUnavailableError, audit
from beam_ldp.ledger.connection import signer_of
from beam_ldp.ledger.rows import next_row
from tests.ledger.asked import asked
from tests.ledger.conftest import Clock
from tests.ledger.keys import make_key, private_bytes
from tests.ledger.postgres import as_runs, grant_roles, server

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)


@pytest.fixture(scope="module")
def roles() -> Iterator[dict[str, str]]:
    """A ledger, and the URLs of its owner and of the two roles that the page grants."""
    with server() as url:
        BudgetLedger.create(url)
        grant_roles(url)
        budgets = url.replace("ledger@", "ldp_budgets@", 1)
        yield {"owner": url, "runs": as_runs(url), "budgets": budgets}


def run(ledger: BudgetLedger, name: str) -> Any:
    identity = asked("visits", name)
    charge = ledger.reserve("visits", name, PURE, identity=identity)
    return ledger.settle(name, PURE, identity=identity, attempt=charge.attempt)


def test_the_roles_of_the_page(roles: dict[str, str]) -> None:
    """Runs read and insert charges; budgets come from another role; nobody changes a row."""
    runs, budgets = BudgetLedger(roles["runs"]), BudgetLedger(roles["budgets"])
    with pytest.raises(LedgerUnavailableError, match="row-level security"):
        runs.set_budget("visits", epsilon=9.0, delta=1e-6)
    budgets.set_budget("visits", epsilon=9.0, delta=1e-6, by="Ada")
    assert run(runs, "first").status == "settled"
    runs.checkpoint()
    for url in (roles["runs"], roles["budgets"]):
        engine = sa.create_engine(url)
        for statement in (
            "UPDATE beam_ldp_ledger SET body = '{}'",
            "DELETE FROM beam_ldp_ledger",
            "TRUNCATE beam_ldp_ledger",
            "DROP TABLE beam_ldp_ledger",
        ):
            with engine.connect() as connection, pytest.raises(sa.exc.ProgrammingError):
                connection.exec_driver_sql(statement)
        engine.dispose()
    assert audit(BudgetLedger(roles["owner"]).rows()).clean


def test_the_databases_clock_dates_rows(roles: dict[str, str]) -> None:
    """Without a clock of the test's own, a machine's clock is never asked."""
    ledger = BudgetLedger(roles["owner"])
    ledger.set_budget("dated", epsilon=1.0, delta=1e-6)
    engine = sa.create_engine(roles["owner"])
    with engine.connect() as connection:
        (now,) = connection.exec_driver_sql("SELECT now()").one()
    engine.dispose()
    time = ledger.balances.time
    assert abs((now - type(now).fromisoformat(time)).total_seconds()) < 60


@pytest.mark.parametrize("written", [True, False])
def test_an_answer_that_is_lost_names_the_charge(
    ledger: BudgetLedger, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The commit's reply is lost, after it or before: the same attempt takes the charge up."""
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    identity = asked("visits", "run")
    commit = sa.engine.Connection.commit

    def lost(connection: sa.engine.Connection) -> None:
        (commit if written else sa.engine.Connection.rollback)(connection)
        raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))

    with monkeypatch.context() as patch:
        patch.setattr(sa.engine.Connection, "commit", lost)
        with pytest.raises(LedgerUnavailableError, match="takes it up again") as caught:
            ledger.reserve("visits", "run", PURE, identity=identity)
    told = caught.value
    assert told.run_id == "run" and told.attempt is not None and told.unsure
    assert ledger.has_run("run") == written
    again = ledger.reserve("visits", "run", PURE, identity=identity, attempt=told.attempt)
    assert again.attempt == told.attempt and again.attempts == 1
    with monkeypatch.context() as patch:
        patch.setattr(sa.engine.Connection, "commit", lost)
        with pytest.raises(LedgerUnavailableError, match="takes it up again"):
            ledger.settle("run", PURE, identity=identity, attempt=told.attempt)
    assert ledger.settle("run", PURE, identity=identity, attempt=told.attempt).status == "settled"
    assert ledger.status("visits").spent == 0.25 and audit(ledger.rows()).clean


def test_every_row_names_its_writer_and_may_be_signed(
    url: str, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key()
    (tmp_path / "writer.pem").write_bytes(private_bytes(key))
    plain = BudgetLedger.create(url, clock=clock)
    plain.set_budget("visits", epsilon=1.0, delta=1e-6)
    monkeypatch.setenv("BEAM_LDP_WRITER_KEY", str(tmp_path / "writer.pem"))
    signed = BudgetLedger(url, clock=clock)
    run(signed, "run")
    _, dataset, _, reserve, settle = signed.rows()
    assert signer_of(dataset) is None and dataset.body["writer"]["login"]
    assert signer_of(reserve) == signer_of(settle) == key.public_key().public_bytes_raw().hex()
    forged = {**settle.body, "local_epsilon": 0.0}
    with pytest.raises(ValueError, match="not signed by the key"):
        signer_of(next_row(reserve.head, "settle", forged))
    monkeypatch.setenv("BEAM_LDP_WRITER_KEY", str(tmp_path / "nowhere.pem"))
    with pytest.raises(ValueError, match="cannot be read"):
        BudgetLedger(url)


# Size ---------------------------------------------------------------------------------------------


def test_opening_reads_from_the_last_checkpoint(
    ledger: BudgetLedger, url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the books of both ways are the same, to the last bit."""
    monkeypatch.setattr("beam_ldp.ledger.connection.CHECKPOINT_EVERY", 10)
    ledger.set_budget("visits", epsilon=9.0, delta=1e-6)
    for i in range(12):
        run(ledger, f"run {i}")
    opened = BudgetLedger(url, clock=clock)
    books = opened.balances
    assert books.since_checkpoint < 10 < books.head.count
    assert [row.kind for row in ledger.rows()].count("checkpoint") == 2
    assert books.to_json() == ledger.state.to_json()
    assert run(opened, "more").status == "settled" and audit(ledger.rows()).clean


def test_what_is_printed_of_a_ledger_is_one_line(ledger: BudgetLedger) -> None:
    """A thousand charges were a megabyte."""
    ledger.set_budget("visits", epsilon=9.0, delta=1e-6)
    for i in range(5):
        run(ledger, f"run {i}")
    for told in (ledger.status("visits"), ledger.state, ledger.balances):
        assert "\n" not in repr(told) and len(repr(told)) < 200
    assert "5 charges" in repr(ledger.status("visits"))


@pytest.mark.bench
def test_figures_of_the_page() -> None:
    """A hundred thousand rows, ten thousand charges open: seconds of the processor."""
    from benchmarks.ledger import measure

    found = measure(100_000, 10_000)
    print(found)
    assert found.opening <= 2.0
    assert max(found.reserve, found.settle) <= 5e-3
    assert found.sums_per_row <= 2e-4
