"""Privacy of whole runs, exactly: every transcript of two batches, with one person replaced.

The bandits are real ones, as small as they get: 21 people, of whom 4 are asked first and 11 or 12
then, about actions that depend on what was released of the first. Widths are made small, so that
actions are dropped; no price depends on them.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit
from beam_ldp.decisions.bandits.logs import price_of_all, price_once
from beam_ldp.decisions.bandits.noise import CentralSums
from beam_ldp.decisions.bandits.progress import BanditProgress, Heard
from tests.decisions.bandits.transcripts import (
    Enumerated,
    View,
    divergence,
    reports,
    secret_sums,
    sums,
)

pytestmark = pytest.mark.exact

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
EPSILON, DELTA = 1.0, 0.02
FUNCTIONS = [np.array(f) for f in itertools.product((-1, 1), repeat=3)]  # of actions to rewards
MIXED = np.random.default_rng(0).choice([-1, 1], size=(12, 3))
OTHERS = [np.tile(f, (12, 1)) for f in ((-1, -1, -1), (1, 1, 1), (-1, 1, 1))] + [MIXED]
FIRST, SECOND, BOTH = (1,), (2,), (1, 2)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beam_ldp.decisions.bandits.elimination.tight_width", lambda *_: 0.3)


def tiny(**terms: Any) -> LinearBandit:
    return LinearBandit(actions=ACTIONS, horizon=21, epsilon=EPSILON, delta=DELTA, **terms)


@lru_cache
def neighbours(view: View, batches: tuple[int, ...], model: str, over: str) -> list[np.ndarray]:
    """For each kind of other people: (functions, transcripts) masses, for all outcome functions of
    one person who is in these batches."""
    run = Enumerated(tiny(model=model, amplify_over=over), view)
    told = list(run.law(dict.fromkeys(BOTH, MIXED)))
    found = []
    for others in OTHERS:
        laws = []
        for mine in FUNCTIONS:
            crowds = {number: others.copy() for number in BOTH}
            for number in batches:
                crowds[number][0] = mine
            laws.append(run.masses(crowds, told))
        found.append(np.array(laws))
    return found


def worst(
    view: View,
    batches: tuple[int, ...],
    epsilon: float,
    model: str = "shuffled",
    over: str = "action",
) -> float:
    """Largest hockey-stick divergence of all neighbours."""
    return max(
        divergence(first, second, epsilon)
        for laws in neighbours(view, batches, model, over)
        for first, second in itertools.permutations(laws, 2)
    )


def second_batches(bandit: LinearBandit, view: View) -> list[Batch]:
    """All that may be asked after the first batch."""
    run = Enumerated(bandit, view)
    run.law({1: MIXED, 2: MIXED})
    return [b for b in run.opened.values() if b is not None and b.number == 2]


def test_the_second_batch_depends_on_the_first():
    found = second_batches(tiny(), sums)
    plays = {tuple(batch.played.tolist()) for batch in found}
    assert plays == {(0, 1), (1, 2), (0,)}
    assert {batch.people for batch in found} == {12}
    assert len({batch.noise.epsilon for batch in found}) == 2  # of crowds of 6 and 12
    for view in (sums, secret_sums, reports):
        law = Enumerated(tiny(), view).law({1: MIXED, 2: MIXED})
        assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("batches", [FIRST, SECOND])
@pytest.mark.parametrize(
    ("over", "view"), [("action", sums), ("batch", secret_sums)], ids=["action", "secret"]
)
def test_a_shuffled_run_costs_what_it_says_whichever_batch_one_is_in(over, view, batches):
    bandit = tiny(amplify_over=over)
    told = worst(view, batches, EPSILON, over=over)
    assert 0.3 * DELTA < told <= DELTA
    # The price of batches as they are asked is no less than what is told at it.
    asked = [BanditProgress(bandit).open, *second_batches(bandit, view)]
    price = price_once(bandit, asked, DELTA)
    assert price <= EPSILON
    assert worst(view, batches, price, over=over) <= DELTA * (1 + 1e-9)


@pytest.mark.parametrize("batches", [FIRST, SECOND])
def test_the_price_of_a_secret_assignment_fails_where_it_is_seen(batches):
    """Spec fault F17: sums by action, of people whose actions are known, hide fewer."""
    assert worst(sums, batches, EPSILON, over="batch") > 1.3 * DELTA


def test_the_worst_outcomes_are_the_same_for_all_actions():
    """The text's proof takes a person's reward for one number; what she returns depends on the
    action that she happens to get. It costs no more, which the proof had to show."""
    most = {True: 0.0, False: 0.0}
    for laws in neighbours(secret_sums, SECOND, "shuffled", "batch"):
        for (f, first), (g, second) in itertools.permutations(zip(FUNCTIONS, laws), 2):
            constant = len(set(f)) == len(set(g)) == 1
            most[constant] = max(most[constant], divergence(first, second, EPSILON))
    assert 0 < most[False] <= most[True] * (1 + 1e-12)


@pytest.mark.parametrize("batches", [FIRST, SECOND])
def test_reports_of_the_local_model_tell_epsilon_and_no_more(batches):
    logs = [np.log(laws) for laws in neighbours(reports, batches, "local", "action")]
    largest = max(float(np.ptp(one, axis=0).max()) for one in logs)
    assert largest == pytest.approx(EPSILON, rel=1e-8)
    assert largest <= EPSILON * (1 + 1e-12)


@pytest.mark.parametrize(
    ("model", "over", "view"),
    [
        ("shuffled", "action", sums),
        ("shuffled", "batch", secret_sums),
        ("local", "action", reports),
    ],
    ids=["action", "secret", "local"],
)
def test_whoever_is_in_both_batches_pays_for_both(model, over, view):
    bandit = tiny(model=model, amplify_over=over)
    first = BanditProgress(bandit).open
    assert first is not None
    dearest = max(price_of_all(bandit, [first, b], DELTA) for b in second_batches(bandit, view))
    assert worst(view, BOTH, dearest, model, over) <= DELTA
    assert worst(view, BOTH, EPSILON, model, over) > 2 * DELTA  # the maximum is not enough


# A trusted server: integers with exact noise ------------------------------------------------------


def log_ratio(rate: float, before: int, after: int, released: np.ndarray) -> np.ndarray:
    """Of discrete Laplace noise around two sums, whose normalization is the same."""
    return rate * (np.abs(released - after) - np.abs(released - before))


@pytest.mark.parametrize("batches", [FIRST, SECOND, BOTH])
def test_a_central_run_tells_epsilon_a_batch(batches):
    """On a grid of one cell a reward: decisions are those of the released sums themselves."""
    bandit, grid = tiny(model="central"), np.arange(-14, 15)
    rate = float(CentralSums(EPSILON, cells=1).rate)
    start, most, asked = BanditProgress(bandit), 0.0, set()
    assert start.open is not None and start.open.counts.tolist() == [2, 2]
    # One person's reward of the first action played goes from -1 to 1, everybody else's are 1.
    moved = log_ratio(rate, 0, 2, grid) if 1 in batches else np.zeros(len(grid))
    for (place, first), second in itertools.product(enumerate(grid.tolist()), (-2, 0, 2)):
        batch = start.after(Heard((2, 2), (float(first), float(second)))).open
        later = 0.0
        if batch is not None:
            total = int(batch.counts[0])
            asked.add(tuple(batch.played.tolist()))
            change = log_ratio(rate, total - 2, total, grid) if 2 in batches else np.zeros(1)
            later = float(np.abs(change).max())
        most = max(most, abs(float(moved[place])) + later)
    assert len(asked) > 2
    assert most == pytest.approx(len(batches) * EPSILON, rel=1e-12)
