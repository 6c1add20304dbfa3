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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_ldp.ledger import BudgetExceededError, BudgetLedger, audit
from tests.ledger.asked import asked
from tests.ledger.postgres import as_runs, grant_roles, server
from tests.ledger.spender import EVENT, Program, is_memoized

PROGRAMS, EACH = 8, 1000
FEW = 40
MEMORY = "/dev/shm"


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        # In memory where there is such a place: what is tested is the locking, not the disk.
        folder = Path(tempfile.mkdtemp(dir=MEMORY)) if os.access(MEMORY, os.W_OK) else tmp_path
        request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
        return f"sqlite:///{folder / 'privacy.db'}"
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


def kill_on_the_way(programs: list[Program], charges: int, kills: int) -> None:
    """Kills, one after about every so many charges, each of a program that is at work.

    Where in a charge it lands is left to chance: a wait of up to two charges' time before it.
    """
    draw = random.Random(1)
    whole = charges * len("settled program 0/000\n")
    for i in range(kills):
        while sum(p.told.stat().st_size for p in programs) < whole * i / (kills + 10):
            assert any(program.lives for program in programs)
            time.sleep(0.002)
        time.sleep(0.03 * draw.random())
        draw.choice([program for program in programs if program.lives]).kill_and_restart()


def spend_together(
    url: str, folder: Path, each: int, budget: float, kills: int = 0
) -> tuple[BudgetLedger, Counter[str]]:
    """Programs that spend at once, some killed on the way; checks what must hold always.

    Returns the ledger, and how often programs said what.
    """
    ledger = BudgetLedger.create(url)
    ledger.set_budget("visits", epsilon=budget, delta=1e-300, local_epsilon=None)
    runs = as_runs(url)
    programs = [Program.start(runs, f"program {i}", each, folder) for i in range(PROGRAMS)]
    began = time.monotonic()
    kill_on_the_way(programs, PROGRAMS * each, kills)
    told = [line for program in programs for line in program.ended(seconds=800)]
    seconds = time.monotonic() - began
    report = audit(ledger.rows())
    assert report.clean, [c for c in report.checks if c.outcome == "failed"]
    charges = report.state.populations["visits"].charges
    became = {name: charge.status for name, charge in charges.items()}
    said = Counter(word for word, _ in told)
    for word, run_id in told:  # what a program was answered stays, whoever is killed
        assert word == "refused" or became.pop(run_id) == ("reserved" if word == "left" else word)
    assert not became  # nothing else was charged
    spent = sum(charge.event is not None for charge in charges.values())
    assert spent * EVENT.local_epsilon <= budget * (1 + 1e-9)
    landed = sum(program.kills for program in programs)
    print(
        f"\n{runs.partition(':')[0]}: {len(charges):,} charges in {report.state.head.count:,} rows "
        f"by {PROGRAMS} programs, {landed} kills, {seconds:.0f} s: {dict(said)}; the audit is clean"
    )
    assert landed == kills and said["left"] <= kills
    assert all(not is_memoized(run.partition("/")[0]) for word, run in told if word == "left")
    return ledger, said


@pytest.mark.exact
def test_a_few_programs_at_once(database: str, tmp_path: Path) -> None:
    """More is asked for than there is: exactly the budget is spent."""
    ledger, said = spend_together(database, tmp_path, FEW, budget=0.2)
    assert said["refused"] > 0
    assert ledger.status("visits").committed == pytest.approx(0.2)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("visits", "more", EVENT, identity=asked("visits", "more"))


@pytest.mark.exact
def test_a_few_programs_of_which_some_are_killed(database: str, tmp_path: Path) -> None:
    """What is memoized is taken up again; what was fresh and open stays spent; nothing is lost."""
    ledger, said = spend_together(database, tmp_path, FEW, budget=100.0, kills=5)
    assert said["refused"] == 0 and said.total() == PROGRAMS * FEW


@pytest.mark.exact
@pytest.mark.bench  # minutes
def test_thousands_of_charges_with_programs_killed(database: str, tmp_path: Path) -> None:
    """Eight programs of a thousand charges each, and a hundred kills at random points.

    Each killed program is followed by one that goes on with what is left of its thousand.
    """
    ledger, said = spend_together(database, tmp_path, EACH, budget=1e6, kills=100)
    assert said["refused"] == 0 and said.total() == PROGRAMS * EACH
