"""Trainings of which older copies are put back: what is charged never falls below what was asked.

Six rounds began and the training was killed. Copies were taken after the third. No TensorFlow.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from beam_ldp.ledger import BudgetLedger, LedgerUnavailableError
from beam_ldp.release.gates import NotPublishedError
from beam_ldp.release.interrupted_runs import BEGUN, NOTE, BegunRounds, Note
from beam_ldp.training import charge as charge_module
from beam_ldp.training.charge import charged
from beam_ldp.training.checkpoints import (
    CHECKPOINT,
    Checkpoint,
    CheckpointError,
    Resumed,
    resume,
)
from tests.pipelines.test_train_checkpoints import DEAD, QUIET, World, flags, plan_of

pytestmark = pytest.mark.exact

EACH = 4.0  # local epsilon of a round
Copy = Callable[[Path, Path], object]


def files(*names: str, copy: Copy = shutil.copyfile) -> Copy:
    def put_back(backup: Path, staging: Path) -> None:
        for name in names:
            copy(backup / name, staging / name)

    return put_back


def folder(copy: Copy) -> Copy:
    def put_back(backup: Path, staging: Path) -> None:
        shutil.rmtree(staging)
        shutil.copytree(backup, staging, copy_function=copy)

    return put_back


# What is put back, and whether the training can go on from what is there then.
COPIES: dict[str, tuple[Copy, bool]] = {
    "count": (files(BEGUN), True),
    "count and its times": (files(BEGUN, copy=shutil.copy2), True),
    "checkpoint": (files(CHECKPOINT), True),
    "both": (files(CHECKPOINT, BEGUN), True),
    "both and their times": (files(CHECKPOINT, BEGUN, copy=shutil.copy2), True),
    "folder": (folder(shutil.copyfile), True),
    "folder and its times": (folder(shutil.copy2), True),
    "an empty count": (lambda _, staging: (staging / BEGUN).write_bytes(b""), True),
    "no count": (lambda _, staging: (staging / BEGUN).unlink(), False),
    "no checkpoint": (lambda _, staging: (staging / CHECKPOINT).unlink(), False),
}


def killed(world: World) -> Path:
    """A training that was killed after its sixth round, and what there was after its third."""
    backup = world.place / "backup"

    def seen(number: int) -> None:
        if number == 3:
            shutil.copytree(world.staging, backup)

    world.killed(begun=6, rounds=6, seen=seen)
    if (world.staging / NOTE).exists():
        shutil.copyfile(world.staging / NOTE, backup / NOTE)
    held = Checkpoint.read(str(backup))
    assert held is not None
    replace(held, launcher=DEAD).write(str(backup))  # its process is gone there, too
    return backup


def start(world: World, found: Resumed, rounds: int = 0, dies: bool = True) -> None:
    """It goes on for so many rounds, and its process is killed."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(charge_module, "_settle_part", lambda *_: None)
        with charged(plan_of(found.given), QUIET, found) as (charge, ran):
            charge.leave_note(str(world.staging), ends_with_launcher=True,
                              rounds=world.plan.round_price)  # fmt: skip
            for _ in range(rounds):
                ran.begun += 1
                charge.begin_round()
            raise KeyboardInterrupt
    if dies:
        world.die()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("what", COPIES)
def test_it_is_ended(world: World, what: str) -> None:
    """Charged for all six, by `beam-ldp finalize`."""
    put_back, _ = COPIES[what]
    put_back(killed(world), world.staging)
    code, said = world.finalize()
    assert code == 0 and "at the 6 rounds that began" in said
    assert world.ledger.charge("one").local_epsilon == 6 * EACH


@pytest.mark.parametrize("what", COPIES)
def test_it_goes_on(world: World, what: str) -> None:
    """At what the ledger knows: seven rounds are charged when one more has begun."""
    put_back, can = COPIES[what]
    put_back(killed(world), world.staging)
    if not can:
        return world.refused("nothing to go on|left anything to go on from")
    found = world.resume()
    assert (found.rounds_begun, found.put_back) == (6, 6 - files_know(what))
    assert world.finish(found, rounds=1).local_epsilon == 7 * EACH


def files_know(what: str) -> int:
    """Rounds that the count knows, as it was put back."""
    return 6 if what == "checkpoint" else 0 if "empty" in what else 3


@pytest.mark.parametrize("what", [what for what, (_, can) in COPIES.items() if can])
def test_what_no_ledger_counts_is_refused_or_counted_whole(tmp_path: Path, what: str) -> None:
    world = World(tmp_path, charged=False)
    put_back, _ = COPIES[what]
    put_back(killed(world), world.staging)
    world.refused("was copied, or restored from a backup")


def test_of_a_folder_and_its_copy_one_goes_on(world: World) -> None:
    killed(world)
    copy = world.place / ".copy.staging-0123abcd"
    shutil.copytree(world.staging, copy, copy_function=shutil.copy2)
    start(world, world.resume(), rounds=1)
    there = flags(f"--resume {world.place / 'copy'} {world.to}")
    with pytest.raises(CheckpointError, match="another start of run 'one' took over"):
        resume(str(world.place / "copy"), there)
    out, world.out = world.out, str(world.place / "copy")
    code, said = world.finalize()
    assert code == 1 and "another start of it goes on" in said, "nor is it ended from the copy"
    world.out = out
    assert world.finish(world.resume(), rounds=1).local_epsilon == 8 * EACH


def test_of_a_folder_and_its_copy_that_start_at_once_one_goes_on(world: World) -> None:
    """Both have read the ledger when the first one begins."""
    killed(world)
    copy = world.place / ".copy.staging-0123abcd"
    shutil.copytree(world.staging, copy, copy_function=shutil.copy2)
    there = flags(f"--resume {world.place / 'copy'} {world.to}")
    first, second = world.resume(), resume(str(world.place / "copy"), there)
    start(world, first, rounds=1)
    world.staging = copy
    with pytest.raises(NotPublishedError, match="another start of run 'one' took over"):
        start(world, second, rounds=1)
    assert world.ledger.charge("one").rounds_begun == 7


@pytest.mark.parametrize("ends", [True, False], ids=["is ended", "goes on"])
@pytest.mark.parametrize("anchored", [True, False])
def test_a_ledger_that_is_put_back(
    tmp_path: Path, anchored: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anchors show it; without them the files of the training know of more."""
    place = f"file://{tmp_path}/anchors.jsonl?rows=1" if anchored else "none"
    monkeypatch.setenv("BEAM_LDP_ANCHORS", place)
    world = World(tmp_path)
    database, backup = tmp_path / "privacy.db", tmp_path / "privacy.bak"

    def seen(number: int) -> None:
        if number == 3:
            copy_of(database, backup)

    world.killed(begun=6, rounds=6, seen=seen)
    copy_of(backup, database)
    world.ledger = BudgetLedger(world.ledger.url)
    assert world.ledger.charge("one").rounds_begun == 3
    if ends:
        code, said = world.finalize()
        is_open = world.ledger.charge("one").status == "reserved"
        assert (code, is_open) == ((2, True) if anchored else (0, False)), said
        assert not anchored or "3 rows are gone" in said and "Restore the newest copy" in said
        assert not anchored or world.finalize()[0] == 2, "nor the next time"
        return
    found = world.resume()
    if anchored:
        with pytest.raises(NotPublishedError, match="the ledger was reset: 3 rows are gone"):
            start(world, found)
        return
    assert world.finish(found, rounds=1).local_epsilon == 7 * EACH


def copy_of(database: Path, place: Path) -> None:
    with sqlite3.connect(database) as one, sqlite3.connect(place) as other:
        one.backup(other)


def test_it_goes_on_twice_and_is_ended(world: World) -> None:
    killed(world)
    for _ in range(2):
        start(world, world.resume(), rounds=1)
    assert world.finalize()[0] == 0
    assert world.ledger.charge("one").local_epsilon == 8 * EACH


KILLS = {
    "before the ledger knows of the start": (BudgetLedger, "begin", 6),
    "between the file and the ledger": (BudgetLedger, "begin", 7),
    "before the file": (BegunRounds, "begin", 6),
    "before the note": (Note, "write", 6),
}


@pytest.mark.parametrize("ends", [True, False], ids=["is ended", "goes on"])
@pytest.mark.parametrize("step", KILLS)
def test_it_is_killed_between_two_steps(world: World, step: str, ends: bool) -> None:
    """Whatever was written last, the next program knows of all rounds that may have begun."""
    killed(world)
    place, name, begun = KILLS[step]
    found, real = world.resume(), getattr(place, name)

    def dies(*given: object, **how: object) -> object:
        at_start = "the start" in step
        if place is not BudgetLedger or at_start == bool(how.get("start")):
            raise KeyboardInterrupt
        return real(*given, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, dies)
        start(world, found, rounds=1, dies=False)
    world.die()
    if ends:
        assert world.finalize()[0] == 0
        assert world.ledger.charge("one").local_epsilon == begun * EACH
    else:
        assert world.finish(world.resume(), rounds=1).local_epsilon == (begun + 1) * EACH


def test_nobody_is_asked_while_the_ledger_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(world)
    found = world.resume()

    def away(*_: object, **how: object) -> None:
        raise LedgerUnavailableError("away")

    with (
        pytest.raises(NotPublishedError, match="did not take the next round"),
        charged(plan_of(found.given), QUIET, found) as (charge, ran),
    ):
        monkeypatch.setattr(BudgetLedger, "begin", away)
        ran.begun += 1
        charge.begin_round()
    monkeypatch.undo()
    assert world.ledger.charge("one").status == "reserved"
    assert world.finish(world.resume(), rounds=1).local_epsilon == 8 * EACH
