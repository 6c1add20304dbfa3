"""Roots of falling curves: all found, from any guess, and on the safe side."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting.divergences.hockey_stick import epsilon_bound, epsilon_uppers, safe_roots
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.shuffle_pair import ShufflePair

pytestmark = pytest.mark.exact

TOP = 5.0
CURVES = {
    "straight in the logarithm": lambda e: -25.0 * np.log(e / 0.01),
    "at the top": lambda e: np.log((TOP - e) / 1e-5),
    "flat, then at the top": lambda e: 9.0 + np.log1p(-e / TOP) - 4.0 * np.tanh(e / 0.1),
    "a jump": lambda e: np.where(e < 2.0, 3.0, -1.0) - e,
    "a wave": lambda e: 2.0 - e + 0.9 * np.sin(e),
    "nearly level": lambda e: 1e-3 * (1.0 - e),
    "negative": lambda e: -1.0 - e,
    "positive": lambda e: 1.0 + 0.0 * e,
}
KNOWN = [0.01, TOP - 1e-5, TOP * -math.expm1(-5.0), 2.0, None, 1.0, 0.0, TOP]


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("guess", [1e-200, 1e-3, 1.0, 4.4, 80.0])
def test_every_root_is_found_at_once(guess, upper):
    curves, looked = list(CURVES.values()), []

    def excess(places, epsilons):
        looked.append(len(places))
        return np.array([float(curves[i](e)) for i, e in zip(places, epsilons, strict=True)])

    tops = np.full(len(curves), TOP)
    with np.errstate(divide="ignore"):
        found = safe_roots(excess, np.full(len(curves), guess), tops, upper)
    for name, root, known in zip(CURVES, found.tolist(), KNOWN, strict=True):
        if known is not None:
            assert root == pytest.approx(known, rel=2e-7 if known == TOP else 1e-9), name
        if 0 < root < TOP * (1 - 1e-7):  # on the safe side
            with np.errstate(divide="ignore"):
                assert (CURVES[name](np.float64(root)) <= 0) == upper, name
    assert found[6] == 0.0 and (found[7] > TOP) == upper
    assert sum(looked) < 50 * len(curves)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("shelf", [1e-9, 1e-8, 1e-7, 1e-5])
def test_a_search_that_ends_on_the_wrong_side_is_moved_to_the_right_one(upper, shelf):
    """A shelf so near zero that a step across it looks like none; the root is where it ends."""
    root = 1.0 + shelf if upper else 1.0 - shelf

    def excess(places, epsilons):
        near = np.abs(epsilons - 1.0) <= shelf
        sign = 1.0 if upper else -1.0
        return np.where(near, sign * 1e-16, 1e-3 * (1.0 - epsilons))

    (found,) = safe_roots(excess, np.array([1.0]), np.array([TOP]), upper)
    assert (found >= root) if upper else (0 <= found <= root)
    assert shelf > 3e-7 or abs(found / root - 1) < 11 * shelf  # no farther than it must


@pytest.mark.parametrize("root", [1e-13, 1e-9])
def test_an_epsilon_has_an_allowance_for_its_last_digits(root):
    """Of 1e-15, whatever its size: ratios are known to a few 1e-16."""

    def excess(places, epsilons):
        with np.errstate(divide="ignore"):
            return -25.0 * np.log(epsilons / root)

    low, high = (
        float(safe_roots(excess, np.array([root]), np.array([TOP]), upper)[0])
        for upper in (False, True)
    )
    assert low <= root - 0.9e-15 and high >= root + 0.9e-15


def test_prices_take_few_steps(monkeypatch):
    """What one price costs is how often its integral is taken: 12 to 31 times before."""
    taken = []
    from beam_ldp.accounting.divergences import hockey_stick as module

    one = module._delta.__wrapped__
    monkeypatch.setattr(module, "_delta", lambda *args: taken.append(args) or one(*args))
    for budget, n, delta in [(1.0, 10**6, 1e-8), (8.0, 10**3, 1e-6), (8.0, 10**5, 1e-12)]:
        taken.clear()
        epsilon_bound.__wrapped__(ShufflePair.clones(budget), n, delta, True)
        assert len(taken) <= 14
    taken.clear()  # among so many nothing is to be told
    assert epsilon_bound.__wrapped__(ShufflePair.clones(0.1), 10**12, 1e-6, True) == 0.0
    assert len(taken) == 2


def test_unlike_releases_at_once_are_each_by_itself():
    """Of few reports and many, two to four kinds, at budgets that a crowd hides and does not."""
    pairs = [ShufflePair.clones(budget) for budget in (0.01, 1.0, 6.0, 25.0)]
    pairs += [KRandomizedResponse(size, 3.0).dominating_pair() for size in (2, 50)]
    pairs += [ShufflePair(0.5, ((1.4, 0.8), (1.0, 1.3), (0.6, 0.8)), (0.3, 0.4, 0.3))]
    releases = [
        (pair, n, delta)
        for pair in pairs
        for n in (1, 30, 3000, 10**7, 10**12)
        for delta in (1e-4, 1e-12)
    ]
    found = epsilon_uppers(releases)
    alone = [epsilon_bound(*release, upper=True) for release in releases]
    assert found == pytest.approx(np.array(alone), rel=1e-8)
