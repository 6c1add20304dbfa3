"""Copies that may only be read can be shown and audited, and nothing is written beside them."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger, LedgerUnavailableError, audit
from tests.ledger.asked import asked

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)
NOBODY = 65534


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A ledger's file in a folder that anybody may enter."""
    made = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    made.set_budget("visits", epsilon=2.0, delta=1e-6)
    made.reserve("visits", "first", PURE, identity=asked("visits", "first"))
    made._store.close()  # or part of it stands in the log beside the file
    folder = Path(tempfile.mkdtemp())
    shutil.copy(tmp_path / "privacy.db", folder)
    yield folder / "privacy.db"
    folder.chmod(0o700)
    shutil.rmtree(folder)


def as_reader(do: Callable[[], None]) -> None:
    """Run it in a process that has no rights of root's, which no file mode stops."""

    def run() -> None:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        do()

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(120)
    assert child.exitcode == 0


@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o555), (0o444, 0o777), (0o644, 0o555)])
def test_a_copy_that_may_only_be_read(copy: Path, file: int, folder: int) -> None:
    """The child is a new process because rights are those of a process."""
    copy.chmod(file)
    copy.parent.chmod(folder)

    def read() -> None:
        ledger = BudgetLedger(f"sqlite:///{copy}")
        assert ledger.status("visits").local_committed == 0.25
        assert audit(ledger.rows()).clean
        with pytest.raises(LedgerUnavailableError, match="readonly|read-only"):
            ledger.reserve("visits", "second", PURE, identity=asked("visits", "second"))

    as_reader(read)
    assert [path.name for path in copy.parent.iterdir()] == ["privacy.db"]


def test_changes_that_wait_beside_the_file_are_seen(tmp_path: Path, copy: Path) -> None:
    """A copy with its write-ahead log, whose rows must not be passed over."""
    live = BudgetLedger(f"sqlite:///{tmp_path / 'privacy.db'}")
    with live._store.engine.connect() as held:  # so that nobody moves the log into the file
        held.exec_driver_sql("SELECT count(*) FROM beam_ldp_ledger").all()
        live.reserve("visits", "second", PURE, identity=asked("visits", "second"))
        for name in ("privacy.db", "privacy.db-wal", "privacy.db-shm"):
            shutil.copy(tmp_path / name, copy.parent)
    for path in copy.parent.iterdir():
        path.chmod(0o444)
    copy.parent.chmod(0o555)

    def read() -> None:
        try:
            found = BudgetLedger(f"sqlite:///{copy}").status("visits").local_committed
        except LedgerUnavailableError:
            return  # where SQLite cannot read the log, nothing is shown
        assert found == 0.5

    as_reader(read)


def test_a_program_sees_datasets_that_others_have_made_since(tmp_path: Path) -> None:
    """Not read-only, and the same: what was read before is not all that there is."""
    url = f"sqlite:///{tmp_path / 'privacy.db'}"
    ledger = BudgetLedger.create(url)
    assert ledger.balances.datasets == []
    BudgetLedger(url).set_budget("visits", epsilon=2.0, delta=1e-6)
    ledger.reserve("visits", "first", PURE, identity=asked("visits", "first"))
