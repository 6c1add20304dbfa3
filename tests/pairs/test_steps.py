"""Runs that end at every step of a release, and what may come of them: at most one publication.

A run is ended inside this process, by an error that nothing catches and with everything left lying
about as `kill -9` leaves it; `tests/pipelines/test_interrupted_runs.py` does the same to processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs
from beam_ldp.release import charging, outputs, runner
from beam_ldp.release.interrupted_runs import Note
from tests.pairs.world import FREQUENCY, Killed, Program, World, away, die, instead

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path / "world")


STEPS: dict[str, tuple[Any, str]] = {
    "nothing was read": (runner.beam_job, "run_pipeline"),
    "an estimate left the workers": (runner, "gate_bad_rows"),
    "it is finished": (charging, "settle"),
    "it is settled": (outputs.OutputFolder, "publish"),
    "it is published": (runner, "count_people"),
}


def end_at(world: World, flags: list[str], step: str, output: str = "first") -> None:
    """A run that dies as this step begins."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*STEPS[step], die)
        patch.setattr(outputs, "remove", lambda *_: None)  # nobody tidies up
        with pytest.raises(Killed):
            world.publish(FREQUENCY, output, flags)
    for note in world.folder.glob(".*.staging-*/run.json"):  # its process is gone
        left = Note.read(str(note.parent))
        assert left is not None and left.launcher == Launcher.this()
        replace(left, launcher=left.launcher.gone).write(str(note.parent))


QUICK = [(True, "it is finished"), (False, "it is finished"), (False, "it is settled")]
ENDS = [
    pytest.param(memoized, step, id=f"{'memoized' if memoized else 'fresh'}: {step}",
                 marks=[] if (memoized, step) in QUICK else [pytest.mark.slow])
    for memoized in (True, False)
    for step in STEPS
]  # fmt: skip


@pytest.mark.parametrize(("memoized", "step"), ENDS)
def test_a_run_ends_and_another_question_takes_its_name(
    world: World, memoized: bool, step: str
) -> None:
    """What was seen: two columns on one charge."""
    flags = world.flags(FREQUENCY, memoized=memoized, tags=False)
    end_at(world, flags, step)
    world.check(FREQUENCY)
    other = [flag.replace("hair", "eyes") for flag in flags]
    assert world.publish(FREQUENCY, "second", other) == programs.MISUSED
    if memoized:  # and under another name of the run
        assert world.publish(FREQUENCY, "second", instead(other, run_id="b")) == programs.MISUSED
    world.finalize("first")
    world.check(FREQUENCY)
    (charge,) = world.ledger.state.population_of("them").charges_of(0)
    published = bool(world.published)
    assert published == (step in ("it is finished", "it is settled", "it is published") and (
        not memoized or charge.status == "settled"
    ))  # fmt: skip


@pytest.mark.parametrize("step", list(STEPS))
def test_a_memoized_run_is_started_again(world: World, step: str) -> None:
    """Free until something was settled; then the same reports, the same bytes, the same charge."""
    flags = world.flags(FREQUENCY)
    end_at(world, flags, step)
    assert world.publish(FREQUENCY, "second", flags) == programs.DONE
    world.finalize("first")  # what the first start left may only be the same
    world.check(FREQUENCY)
    assert len(world.ledger.state.population_of("them").charges_of(0)) == 1
    assert world.ledger.status("them").local_committed == 2.0


@pytest.mark.parametrize("step", ["an estimate left the workers", "it is settled"])
def test_a_fresh_run_is_never_started_again(world: World, step: str) -> None:
    flags = world.flags(FREQUENCY, memoized=False, tags=False)
    end_at(world, flags, step)
    assert world.publish(FREQUENCY, "second", flags) == programs.MISUSED
    world.check(FREQUENCY)


# The ledger or the tracker is away ----------------------------------------------------------------


@pytest.mark.parametrize("memoized", [True, False], ids=["memoized", "fresh"])
def test_the_ledger_is_away_at_settlement(
    world: World, memoized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = world.flags(FREQUENCY, memoized=memoized, tags=False)
    with monkeypatch.context() as patch:
        patch.setattr(BudgetLedger, "settle", away)
        assert world.publish(FREQUENCY, "first", flags) == programs.NOTHING_RELEASED
    assert world.published == {}
    assert world.ledger.charge("nightly").status == "reserved"
    other = instead([flag.replace("hair", "eyes") for flag in flags], release_id="week-48")
    assert world.publish(FREQUENCY, "second", other) == programs.MISUSED
    code, said = world.finalize("first")
    assert code == 0 and "it is settled, and published" in said, said
    world.check(FREQUENCY)
    assert list(world.published) == ["first"] and not list(world.folder.glob(".first.*"))


def test_the_ledger_is_away_before_anything_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BudgetLedger, "reserve", away)
    assert world.publish(FREQUENCY, "first", world.flags(FREQUENCY)) == programs.MISUSED
    assert world.published == {} and not world.ledger.has_run("nightly")


def test_a_second_publication_whose_ledger_is_away(
    first: Callable[[Program], World], tmp_path: Path
) -> None:
    """Other people: finished, kept, and charged for before it appears."""
    world = first(FREQUENCY).copy(tmp_path / "world")
    flags = world.flags(FREQUENCY)
    spent = world.ledger.status("them").spent
    for i in range(40):
        world.people[10_000 + i] = world.people.pop(i)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BudgetLedger, "republish", away)
        assert world.publish(FREQUENCY, "second", flags) == programs.NOTHING_RELEASED
    world.check(FREQUENCY)
    assert world.ledger.status("them").spent == spent
    code, said = world.finalize("second")
    assert code == 0 and "it is settled, and published" in said, said
    world.check(FREQUENCY)
    assert world.ledger.status("them").spent > spent


def test_the_tracker_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    import mlflow_ldp

    monkeypatch.setattr(mlflow_ldp, "log_release", away)
    flags = [flag for flag in world.flags(FREQUENCY) if flag != "--no-mlflow"]
    assert world.publish(FREQUENCY, "first", flags) == programs.DONE
    world.check(FREQUENCY)


# Two at once --------------------------------------------------------------------------------------


def meanwhile(patch: pytest.MonkeyPatch, what: Callable[[], Any]) -> Callable[[], list[Any]]:
    """Do something once, in the middle of the next run; gives what came of it."""
    found: list[Any] = []
    real = runner.gate_bad_rows

    def both(*arguments: Any) -> Any:
        patch.setattr(runner, "gate_bad_rows", real)
        found.append(what())
        return real(*arguments)

    patch.setattr(runner, "gate_bad_rows", both)
    return lambda: found


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        yield made


def test_the_same_run_twice_at_once_with_one_output(
    world: World, patch: pytest.MonkeyPatch
) -> None:
    """The second one sees that the first one lives."""
    flags = world.flags(FREQUENCY)
    out = [*flags, f"--output={world.folder}/first"]
    second = meanwhile(
        patch, lambda: programs.run_flags(FREQUENCY.program, out, runner.Console(quiet=True))[0]
    )
    assert world.publish(FREQUENCY, "first", flags) == programs.DONE
    assert second() == [programs.MISUSED]
    world.check(FREQUENCY)


def test_the_same_run_twice_at_once_with_two_outputs(
    world: World, patch: pytest.MonkeyPatch
) -> None:
    """The second start takes over; the first one may not publish."""
    flags = world.flags(FREQUENCY)
    second = meanwhile(patch, lambda: world.publish(FREQUENCY, "second", flags))
    assert world.publish(FREQUENCY, "first", flags) == programs.NOTHING_RELEASED
    assert second() == [programs.DONE] and list(world.published) == ["second"]
    world.check(FREQUENCY)


def test_two_runs_of_one_release_at_once(world: World, patch: pytest.MonkeyPatch) -> None:
    flags = world.flags(FREQUENCY)
    second = meanwhile(
        patch, lambda: world.publish(FREQUENCY, "second", instead(flags, run_id="b"))
    )
    assert world.publish(FREQUENCY, "first", flags) == programs.DONE
    assert second() == [programs.MISUSED]
    world.check(FREQUENCY)


def test_two_second_publications_at_once(
    first: Callable[[Program], World], tmp_path: Path, patch: pytest.MonkeyPatch
) -> None:
    """Each would be priced without the other: the one that comes too late is refused."""
    world = first(FREQUENCY).copy(tmp_path / "world")
    flags = world.flags(FREQUENCY)

    def exchange(start: int) -> None:
        for i in range(start, start + 40):
            world.people[10_000 + i] = world.people.pop(i)

    def another() -> int:
        exchange(100)
        return world.publish(FREQUENCY, "third", flags)

    exchange(0)
    third = meanwhile(patch, another)
    assert world.publish(FREQUENCY, "second", flags) == programs.NOTHING_RELEASED
    assert third() == [programs.DONE]
    world.check(FREQUENCY)
