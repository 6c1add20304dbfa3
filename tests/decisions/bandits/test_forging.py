"""Forged reports: what they move, and how many it takes, by moving sums themselves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit, forgers_to_drop, influence

pytestmark = pytest.mark.exact

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.6], [0.6, -0.7]])


def asked(number: int = 7, **terms: str) -> Batch:
    bandit = LinearBandit(actions=ACTIONS, horizon=10_000, **terms)  # type: ignore[arg-type]
    batch = bandit.batch(number, np.arange(4))
    assert batch is not None
    return batch


@pytest.mark.parametrize("model", ["local", "central", "none"])
def test_one_report_moves_estimates_by_its_influence(model):
    batch = asked(model=model)
    sums = np.array([3.0, -40.0])
    before, moved = batch.estimates(sums), []
    for place, sign in itertools.product(range(2), (-1, 1)):
        after = sums + 2 * sign * batch.noise.bound * np.eye(2)[place]
        moved.append(np.abs(batch.estimates(after) - before).max())
    assert max(moved) == pytest.approx(influence(batch), rel=1e-12)


def dropped(batch: Batch, forged: int) -> bool:
    """Whether so many forged reports of one play drop an action that led, for any play and lead."""
    for place, sign in itertools.product(range(2), (-1, 1)):
        step = 2 * sign * batch.noise.bound * np.eye(2)[place] * forged
        if forged > batch.counts[place]:
            continue
        moved = batch.estimates(step)  # from all estimates equal: the nearest lead there is
        if len(batch.survivors(moved)) < 4:
            return True
    return False


def test_fewer_forgers_drop_nobody():
    batch = asked(model="local")
    least = forgers_to_drop(batch)
    assert 50 < least < batch.people / 4
    assert not dropped(batch, int(least) - 1)
    assert dropped(batch, int(least))


def test_one_laplace_report_drops_whom_it_likes():
    batch = asked(model="local", report="laplace")
    assert math.isinf(influence(batch)) and forgers_to_drop(batch) == 1
    batch = asked(model="local")
    assert math.isfinite(influence(batch))


def test_it_takes_the_same_share_of_people_at_every_epsilon():
    """A report moves as much more as the width is wider."""
    found = [forgers_to_drop(asked(model="local", epsilon=e)) for e in (0.5, 1.0, 4.0)]  # type: ignore[arg-type]
    assert len(set(found)) == 1 and found[0] == forgers_to_drop(asked(model="none"))
    assert influence(asked(model="local")) > 2 * influence(asked(model="none"))


def test_small_batches_cannot_be_turned():
    assert math.isinf(forgers_to_drop(asked(1, model="local")))
