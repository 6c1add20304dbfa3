"""Many programs at once, killed at random points: never above the budget, nothing lost.

On SQLite and on a real PostgreSQL (`make tools` installs Debian's server), whose programs have a
role that reads and inserts charges and nothing else, as the page on the ledger grants it.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_ldp.ledger import BudgetExceededError, BudgetLedger, audit
from tests.ledger.asked import asked
from tests.ledger.postgres import as_runs, find_binaries, grant_roles, server
from tests.ledger.spender import EVENT, Program

PROGRAMS, EACH = 8, 1000
FEW = 40
MEMORY = "/dev/shm"


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if find_binaries() is None:
        pytest.skip("PostgreSQL's server is not installed: `make tools` installs it")
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        # In memory where there is such a place: what is tested is the locking, not the disk.
        folder = Path(tempfile.mkdtemp(dir=MEMORY)) if os.access(MEMORY, os.W_OK) else tmp_path
        request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
        return f"sqlite:///{folder / 'privacy.db'}"
    pytest.importorskip("psycopg")
    import sqlalchemy as sa

    url: str = request.getfixturevalue("postgres")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))
        connection.execute(sa.text("GRANT USAGE ON SCHEMA public TO PUBLIC"))  # as it was made
    engine.dispose()
    BudgetLedger.create(url)
    grant_roles(url)
    return url


def said(programs: list[Program]) -> tuple[set[str], int]:
    """Runs that were settled by their programs' own word, and how many were refused."""
    told = [line for program in programs for line in program.ended(seconds=800)]
    settled = {run_id for word, run_id in told if word == "settled"}
    return settled, sum(word == "refused" for word, _ in told)


def spend_together(
    url: str, folder: Path, each: int, budget: float, kills: int = 0, pause: float = 1.0
) -> tuple[BudgetLedger, int]:
    """Programs that spend at once, some killed on the way; checks what must hold always."""
    ledger = BudgetLedger.create(url)
    ledger.set_budget("visits", epsilon=budget, delta=1e-300, local_epsilon=None)
    runs = as_runs(url)
    programs = [Program.start(runs, f"program {i}", each, folder) for i in range(PROGRAMS)]
    draw = random.Random(1)
    for i in range(kills):
        time.sleep(pause * (0.5 + draw.random()))
        alive = [program for program in programs if program.lives]
        draw.choice(alive or programs).kill()
        programs.append(Program.start(runs, f"later {i}", each, folder))
    settled, refused = said(programs)
    report = audit(ledger.rows())
    assert report.clean, [c for c in report.checks if c.outcome == "failed"]
    charges = report.state.populations["visits"].charges
    assert settled <= {name for name, c in charges.items() if c.status == "settled"}
    spent = sum(charge.event is not None for charge in charges.values())
    assert spent * EVENT.local_epsilon <= budget * (1 + 1e-9)
    return ledger, refused


@pytest.mark.exact
def test_a_few_programs_at_once(database: str, tmp_path: Path) -> None:
    """More is asked for than there is: exactly the budget is spent."""
    ledger, refused = spend_together(database, tmp_path, FEW, budget=0.2)
    assert refused > 0
    assert ledger.status("visits").committed == pytest.approx(0.2)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("visits", "more", EVENT, identity=asked("visits", "more"))


@pytest.mark.exact
def test_a_few_programs_of_which_some_are_killed(database: str, tmp_path: Path) -> None:
    """What a killed program had reserved stays spent; the others go on."""
    ledger, refused = spend_together(database, tmp_path, FEW, budget=100.0, kills=3, pause=0.5)
    charges = ledger.state.populations["visits"].charges
    assert refused == 0 and len(charges) >= PROGRAMS * FEW / 2
    assert sum(charge.status == "reserved" for charge in charges.values()) <= 3


@pytest.mark.exact
@pytest.mark.bench  # a quarter of an hour and more: not for every change
def test_thousands_of_charges_with_programs_killed(database: str, tmp_path: Path) -> None:
    """Eight programs of a thousand charges each, and a hundred kills at random points.

    Each killed program is followed by another one, so there are always eight.
    """
    ledger, refused = spend_together(database, tmp_path, EACH, budget=1e6, kills=100, pause=1.5)
    charges = ledger.state.populations["visits"].charges
    assert refused == 0
    assert len(charges) > PROGRAMS * EACH
    assert sum(charge.status == "reserved" for charge in charges.values()) <= 100
