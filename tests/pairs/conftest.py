"""What pairs of runs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beam_ldp.pipelines import programs
from beam_ldp.questions.frequency_view import FrequencyView
from beam_ldp.questions.mean_view import MeanView
from beam_ldp.questions.parts import PartsView
from beam_ldp.release import runner
from tests.made_once import MadeOnce
from tests.pairs.world import Program, World, people


@pytest.fixture(scope="module", autouse=True)
def plain_pictures() -> Iterator[None]:
    """Pictures take longer than releases of so few people."""
    with pytest.MonkeyPatch.context() as patch:
        for view in (FrequencyView, MeanView, PartsView):
            patch.setattr(view, "figure", lambda *_: None)
        patch.setattr(runner, "png", lambda _: b"")
        yield


@pytest.fixture(scope="session")
def first(made_once: MadeOnce) -> Callable[[Program], World]:
    """The world after the first release of a program, made once in a session: take a copy."""

    def fill(program: Program, folder: Path) -> None:
        world = World.make(folder / "world")
        assert world.publish(program, "first", world.flags(program)) == programs.DONE
        world.check(program)

    def of(program: Program) -> World:
        folder = made_once.folder(f"first release: {program}", lambda place: fill(program, place))
        return World(folder / "world", published={"first": people()})

    return of
