"""Every method of the registry, whatever it is called, against every data set of a few people."""

from __future__ import annotations

from functools import cache, reduce

import pytest

from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.schedule_prices import Method, OutOfRangeError
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.research.published.methods import methods
from tests.accounting.brute_force import (
    Pairs,
    channel_pairs,
    coin_pairs,
    response_rows,
    two_level_pairs,
)

pytestmark = pytest.mark.exact

DELTAS = (0.3, 1e-2, 1e-5)
# eps0, people, drawn, rounds, points, points sent, sampling
FIXED = "without_replacement"
SHAPES = [
    (1.0, 1, 1, 1, 1, 1, FIXED),
    (0.4, 5, 5, 1, 1, 1, FIXED),
    (3.0, 4, 4, 1, 1, 1, FIXED),
    (1.0, 3, 3, 3, 1, 1, FIXED),
    (2.0, 6, 2, 1, 1, 1, FIXED),
    (0.5, 5, 4, 2, 1, 1, FIXED),
    (1.0, 2, 2, 1, 3, 1, FIXED),
    (2.0, 3, 2, 1, 2, 2, FIXED),
    (1.0, 2, 1, 2, 3, 2, FIXED),
    (1.5, 4, 2, 1, 1, 1, "self"),
    (0.7, 3, 2, 2, 1, 1, "self"),
    (1.5, 3, 1, 1, 2, 1, "self"),
    (2.0, 3, 2, 1, 1, 1, "poisson"),
    (1.0, 2, 1, 1, 2, 1, "poisson"),
]  # fmt: skip


def schedule(shape, randomizer=None) -> Schedule:
    budget, n, k, rounds, points, sent, sampling = shape
    return Schedule(budget, n, k, rounds, points, sent, sampling, randomizer)


@cache
def truth(values: int, shape) -> Pairs:
    budget, n, k, rounds, points, sent, sampling = shape
    rows = response_rows(values, budget)
    if sampling != FIXED:
        each = sampling == "poisson"
        join = k / (n * points) if each else k / n
        once = coin_pairs(rows, n, points, join, each)
    elif points > 1:
        once = two_level_pairs(rows, n, points, k, sent)
    else:
        once = channel_pairs(rows, n, k)
    return reduce(Pairs.times, [once] * rounds)


@cache
def prices(method: Method, at: Schedule) -> dict[float, float]:
    """Price at each delta where the method proves something."""
    found = {}
    for delta in DELTAS:
        try:
            if method.proved(at):
                found[delta] = float(method.price(at, delta))
        except OutOfRangeError:
            continue
    return found


def overspent(method: Method, at: Schedule, pairs: Pairs) -> dict[float, float]:
    """The deltas that data exceed at the price, and what they really are."""
    really = {delta: pairs.sticks([price])[0] for delta, price in prices(method, at).items()}
    return {d: found for d, found in really.items() if found > d * (1 + 1e-9) + 1e-14}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s)))
def test_proved_prices_hold_for_every_dataset(shape):
    applied = set()
    for values in (2, 3):
        for randomizer in (None, KRandomizedResponse(values, shape[0])):
            at = schedule(shape, randomizer)
            for method in methods():
                if method.kind == "upper":
                    assert overspent(method, at, truth(values, shape)) == {}, (method.name, at)
                    applied |= {method.name} if prices(method, at) else set()
    assert len(applied) >= 3, "some methods apply everywhere"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s)))
def test_lower_prices_are_reached_by_a_dataset(shape):
    for method in methods():
        if method.kind != "lower":
            continue
        for values in (2, 3):
            at = schedule(shape, KRandomizedResponse(values, shape[0]))
            own = method.proved_for == "this mechanism"
            judges = [truth(v, shape) for v in ((values,) if own else (2, 3))]
            for delta, price in prices(method, at).items():
                if price > 0:
                    reached = max(pairs.sticks([price * (1 - 1e-6)])[0] for pairs in judges)
                    assert reached >= delta * (1 - 1e-6), (method.name, at, delta)


def test_every_proved_method_is_judged_somewhere():
    """All but those that need thousands of people, whose conditions no small crowd meets."""
    large = {
        "Feldman et al. 2021, Theorem 3.1",
        "Feldman et al. 2023, Theorem 3.2",
        "Feldman et al. 2023, Corollary 4.3",
        "Erlingsson et al. 2019",
        "thesis, Corollary 5.3.1",
        "own messages",
    }
    judged = set()
    for shape in SHAPES:
        for randomizer in (None, KRandomizedResponse(2, shape[0])):
            at = schedule(shape, randomizer)
            judged |= {m.name for m in methods() if m.kind == "upper" and prices(m, at)}
    never = {m.name for m in methods() if m.kind == "upper" and not m.proved(_plain())}
    assert {m.name for m in methods() if m.kind == "upper"} - judged <= large | never


def _plain() -> Schedule:
    return schedule(SHAPES[1], KRandomizedResponse(2, SHAPES[1][0]))


def test_an_approximation_is_refuted():
    """The limit for large crowds says of itself that it bounds nothing."""
    limit = next(m for m in methods() if m.name == "Gaussian limit of the class")
    assert limit.kind == "approximation" and not limit.proved(_plain())
    refuted = [
        (shape, delta)
        for shape in SHAPES
        for delta in DELTAS
        if truth(2, shape).sticks([limit.price(schedule(shape), delta)])[0] > 1.05 * delta
    ]
    assert refuted, "the harness would notice a false bound here"
