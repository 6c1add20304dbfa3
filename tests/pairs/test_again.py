"""A run that was killed, and what comes after it: the same command, `finalize`, or both.

Commands without a name for the run, as a cron job has them: what a release is decides which charge
it goes on under. Fresh noise proves nothing, so it is charged anew or refused.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.launcher import Launcher
from beam_ldp.ledger import audit
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release import charging, reserving, runner
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.run import Run
from tests.pairs.test_steps import end_at, meanwhile
from tests.pairs.world import FREQUENCY, Killed, World, die, instead

pytestmark = pytest.mark.e2e

READ, ESTIMATE, SETTLED = "nothing was read", "an estimate left the workers", "it is settled"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path / "world")


@dataclass(frozen=True)
class Pair:
    """A run that is killed, and the same command again.

    Attributes:
        step: where it is killed.
        memoized, named: its noise, and whether its command names the run.
        between: flags of `finalize`s in between, each with its exit code.
        code: of the second run.
        charged: local epsilon that people are charged in the end; a release costs 2.
        room: local budget: 3 has room for one release.
    """

    step: str
    memoized: bool
    named: bool = False
    between: tuple[tuple[tuple[str, ...], int], ...] = ()
    code: int = programs.DONE
    charged: float = 2.0
    room: float = 3.0


PAIRS = {
    "memoized, before anything was read: free": Pair(READ, True),
    "memoized, with an estimate: free": Pair(ESTIMATE, True),
    "memoized, settled: the same reports again, free": Pair(SETTLED, True),
    "memoized, finalize in between: free": Pair(ESTIMATE, True, between=(((), 1), ((), 1))),
    "memoized, given back in between: charged": Pair(
        READ, True, between=((("--ended",), 0), (("--ended",), 2)), charged=4.0, room=5.0
    ),
    "memoized, given back: refused where the budget has no room": Pair(
        READ, True, between=((("--ended",), 0),), code=programs.NOTHING_RELEASED
    ),
    "fresh, named: refused": Pair(ESTIMATE, False, named=True, code=programs.MISUSED),
    "fresh: charged": Pair(ESTIMATE, False, charged=4.0, room=5.0),
    "fresh: refused where the budget has no room": Pair(
        ESTIMATE, False, code=programs.NOTHING_RELEASED
    ),
    "fresh, finalized twice: given back once, and charged": Pair(
        READ, False, between=(((), 0), ((), 2)), charged=4.0, room=5.0
    ),
}
SLOW = (list(PAIRS)[0], list(PAIRS)[5], *list(PAIRS)[8:])


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in PAIRS],
)
def test_a_command_that_was_killed_and_is_run_again(world: World, name: str) -> None:
    pair = PAIRS[name]
    flags = world.flags(FREQUENCY, memoized=pair.memoized, tags=False)
    flags = flags if pair.named else instead(flags, run_id=None)
    world.ledger.set_budget("them", epsilon=30.0, delta=1e-6, local_epsilon=pair.room)
    end_at(world, flags, pair.step, "out")
    for more, code in pair.between:
        assert world.finalize("out", *more)[0] == code
    assert world.publish(FREQUENCY, "out", flags) == pair.code
    if pair.code == programs.DONE:
        assert world.finalize("out")[0] == 0  # what the first start left
        assert not list(world.folder.glob(".out.*"))
    world.check(FREQUENCY)
    assert world.ledger.status("them").local_committed == pair.charged
    assert audit(world.ledger.rows()).clean


def test_a_check_does_not_count_the_charge_twice_that_a_run_goes_on_under(world: World) -> None:
    flags = instead(world.flags(FREQUENCY, tags=False), run_id=None)
    world.ledger.set_budget("them", epsilon=30.0, delta=1e-6, local_epsilon=3.0)
    end_at(world, flags, ESTIMATE, "out")

    def said(*more: str) -> str:
        given = read_flags(FREQUENCY.program.usage, [*flags, f"--output={world.folder}/out", *more])
        (found,) = [f for f in programs.checks_of("frequency", given) if f.check == "budget"]
        return f"{found.status}: {found.said}"

    assert said().endswith("was started before and is charged: it goes on, for free")
    assert "with another worst case cannot go on under it" in said("--min-reports=200")
    flags[:] = instead(flags, release_id="another")
    assert said().startswith("refused: ")


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_job_server_that_is_killed_leaves_what_finalize_needs(
    world: World, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """A job that failed in the launcher's own process is over, and nobody need declare it."""

    def lost(*_: Any, **__: Any) -> Any:
        raise JobError("the job server does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(runner.beam_job, "ends_with_launcher", lambda *_: not elsewhere)
        patch.setattr(Run, "collect", lost)
        flags = world.flags(FREQUENCY, memoized=False, tags=False)
        assert world.publish(FREQUENCY, "out", flags) != programs.DONE
    assert world.ledger.charge("nightly").status == "reserved"
    if elsewhere:
        code, said = world.finalize("out")
        assert code == 1 and "`beam-ldp finalize --ended` gives back" in said
    code, said = world.finalize("out", *["--ended"] * elsewhere)
    assert code == 0 and "released nothing" in said
    assert world.ledger.charge("nightly").status == "abandoned"
    assert not list(world.folder.glob(".out.*"))
    world.check(FREQUENCY)


@pytest.mark.parametrize(("output", "expected"), [("out", "refused"), ("other", "overtaken")])
def test_the_same_command_twice_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, output: str, expected: str
) -> None:
    flags = instead(world.flags(FREQUENCY, tags=False), run_id=None)
    again: Callable[[], Any] = lambda: programs.run_flags(  # noqa: E731
        FREQUENCY.program,
        [*flags, f"--output={world.folder}/{output}"],
        runner.Console(quiet=True),
    )[0]
    if expected == "overtaken":
        again = lambda: world.publish(FREQUENCY, output, flags)  # noqa: E731
    second = meanwhile(monkeypatch, again)
    first = world.publish(FREQUENCY, "out", flags)
    codes = {"refused": (programs.DONE, programs.MISUSED),
             "overtaken": (programs.NOTHING_RELEASED, programs.DONE)}  # fmt: skip
    assert (first, *second()) == codes[expected]
    world.check(FREQUENCY)
    assert world.ledger.status("them").local_committed == 2.0


def test_a_run_of_another_process_that_lives_is_not_overtaken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output is another one, so no note beside this one tells of it: the ledger does."""
    flags = instead(world.flags(FREQUENCY, tags=False), run_id=None)
    child = subprocess.Popen(["sleep", "60"])
    try:
        other = Launcher.of(child.pid)
        with monkeypatch.context() as patch:
            patch.setattr(reserving.Launcher, "this", classmethod(lambda _: other))
            patch.setattr(charging, "settle", die)
            with pytest.raises(Killed):
                world.publish(FREQUENCY, "elsewhere", flags)
        assert world.publish(FREQUENCY, "out", flags) == programs.MISUSED
    finally:
        child.kill()
        child.wait()
    assert world.publish(FREQUENCY, "out", flags) == programs.DONE
    world.check(FREQUENCY)
    assert world.ledger.status("them").local_committed == 2.0
