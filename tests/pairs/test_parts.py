"""Second publications of groups and of batches: what readers see is no function of one shuffle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.pipelines import frequency, programs
from tests.pairs.world import DELTA, FREQUENCY, Program, World

pytestmark = pytest.mark.e2e

GROUPED = Program(
    "groups",
    frequency.PROGRAM,
    (*FREQUENCY.asks, "--group-by=eyes", "--groups={0}/eyes.txt"),
    ("hair", "eyes"),
)
BATCHED = Program(
    "batches",
    frequency.PROGRAM,
    (*FREQUENCY.asks, "--shuffle-output=reports", "--scope=batch"),
    ("hair",),
)
PARTS = [GROUPED, BATCHED]


@pytest.fixture(params=PARTS, ids=lambda program: program.name)
def published(
    request: pytest.FixtureRequest, first: Callable[[Program], World], tmp_path: Path
) -> tuple[World, Program, list[str]]:
    """After the first publication."""
    world = first(request.param).copy(tmp_path / "world")
    return world, request.param, world.flags(request.param)


def paid(world: World) -> float:
    settled = world.ledger.charge("nightly").settled
    assert settled is not None
    return float(event_epsilon(event_from_json(settled), DELTA))


def test_people_are_exchanged_and_then_nothing_changes(
    published: tuple[World, Program, list[str]],
) -> None:
    """All publications together cost the local epsilon: cells of a group are known of nobody."""
    world, program, flags = published
    assert paid(world) < 2.0
    for i in range(40):
        world.people[10_000 + i] = world.people.pop(i)
    assert world.publish(program, "second", flags) == programs.DONE
    world.check(program)
    assert world.record("second")["publication"] == 2
    assert 1.9 < paid(world) <= 2.0  # at the delta of the budget
    assert world.ledger.charge("nightly").local_epsilon == pytest.approx(2.0)
    spent = world.ledger.status("them").spent
    assert world.publish(program, "third", flags) == programs.DONE
    world.check(program)
    assert world.estimates("third") == world.estimates("second")
    assert world.ledger.status("them").spent == spent


def test_a_changed_value_is_refused(published: tuple[World, Program, list[str]]) -> None:
    """And so is a person who moves to another group."""
    world, program, flags = published
    before = world.ledger.charge("nightly")
    for i in range(0, 60, 3):
        eyes = "b" if i % 2 == 0 else "a"
        world.people[i] |= {"hair": "dark", "eyes": eyes}
    assert world.publish(program, "second", flags) == programs.NOTHING_RELEASED
    world.check(program)
    assert world.ledger.charge("nightly") == before
