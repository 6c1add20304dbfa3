"""Extreme parameters: every price is a number, in order, and no warning is raised on the way."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    shuffle_delta,
    shuffle_epsilon,
)
from beam_ldp.accounting.composition.loss_curves import renyi_divergences
from beam_ldp.accounting.divergences import shuffle_rdp as full
from beam_ldp.research.published import renyi

pytestmark = [pytest.mark.exact, pytest.mark.filterwarnings("error")]

BUDGETS = (1e-6, 1e-3, 1.0, 12.0, 30.0)
CROWDS = (1, 2, 1000, 10**6, 10**9)
ORDERS = (2, 3, 100, 10**4, 10**5)


def in_order(values, falling=False) -> bool:
    """Finite, and monotone but for rounding."""
    found = np.array(values[::-1] if falling else values)
    slack = 1e-9 * np.maximum(np.abs(found[1:]), np.abs(found[:-1])) + 1e-300
    return bool(np.isfinite(found).all() and np.all(np.diff(found) >= -slack))


CURVES = {
    "Theorem 5.3.1": full.thesis_upper_1,
    "binary response": renyi.two_response_lower,
    "Theorem 5.3.2": renyi.thesis_upper_2,
    "Erlingsson 2019": renyi.erlingsson_2019,
    "Theorem 5.4.1": lambda a, e, n: full.thesis_subsampled(a, e, 100 * n, n),
    "refined": lambda a, e, n: full.thesis_subsampled(a, e, 100 * n, n, refined=True),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves_at_the_corners(name):
    """Bounded by the local epsilon where they claim to be, and growing with order and budget."""
    curve = CURVES[name]
    capped = name not in ("Theorem 5.3.2", "Erlingsson 2019")
    for n in CROWDS:
        table = np.array([[curve(a, e, n) for a in ORDERS] for e in BUDGETS])
        assert not np.isnan(table).any() and np.all(table >= 0), (name, n)
        if capped:
            assert np.all(table <= np.array(BUDGETS)[:, None] * (1 + 1e-9)), (name, n)
            assert all(in_order(table[:, i]) for i in range(len(ORDERS))), (name, n)
        if name == "binary response" and n > 1:  # alone, eps0 is reached up to rounding
            assert np.all(table[:, 1:] >= table[:, :-1] * (1 - 1e-6)), n


@pytest.mark.parametrize("budget", BUDGETS)
def test_events_have_divergences_of_every_order(budget):
    local = LocalRandomizerDpEvent(budget)
    orders = np.array([1.0001, 1.5, *ORDERS], dtype=float)
    for n in CROWDS:
        for event, pure in (
            (ShuffledDpEvent(local, n), budget),
            (SubsampledShuffledDpEvent(local, 10 * n, n), math.log1p(0.1 * math.expm1(budget))),
        ):
            found = renyi_divergences(event, orders)
            assert in_order(found), (event, found)
            assert np.all(found >= 0) and found[-1] <= pure * (1 + 1e-9)


CORNERS = [(1e-6, 1000, 1), (1e-6, 1000, 1000), (1.0, 10**9, 1000), (12.0, 10**6, 1), (30.0, 2, 1)]
FAR_CORNERS = [(1e-6, 10, 10**7), (1.0, 1, 10**7), (1.0, 10**9, 10**7), (30.0, 1, 10**7)]


@pytest.mark.parametrize(("budget", "n", "rounds"), CORNERS)
def test_accountant_at_the_corners(budget, n, rounds):
    check_accountant(budget, n, rounds)


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "n", "rounds"), FAR_CORNERS)
def test_accountant_after_ten_million_rounds(budget, n, rounds):
    check_accountant(budget, n, rounds)


def check_accountant(budget, n, rounds) -> None:
    local = LocalRandomizerDpEvent(budget)
    for event in (ShuffledDpEvent(local, n), SubsampledShuffledDpEvent(local, 100 * n, n)):
        accountant = ShuffleAccountant().compose(event, rounds)
        bounds = [accountant.get_epsilon(delta) for delta in (1e-15, 1e-6, 0.5)]
        assert in_order(bounds, falling=True) and bounds[0] <= rounds * budget * (1 + 1e-9)
        for bound in bounds:
            assert 0 <= bound.lower <= bound and bound.class_lower <= bound * (1 + 1e-6)
        deltas = [accountant.get_delta(epsilon) for epsilon in (0.0, 1e-3, 1.0)]
        assert in_order(deltas, falling=True) and deltas[0] <= 1 + 1e-12


def test_one_sampled_report_composed_is_not_free():
    """Sticks cut at the largest loss were not convex; their masses added up to 3.7, then to NaN."""
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(1.0), 100, 1)
    for rounds in (1, 30, 1000):
        bound = ShuffleAccountant().compose(event, rounds).get_epsilon(1e-6)
        assert 0 < bound.class_lower <= bound <= rounds * math.log1p(0.01 * math.expm1(1.0)) + 1e-9


@given(
    budget=st.floats(-4, math.log10(20)).map(lambda x: 10**x),
    n=st.floats(0, 9).map(lambda x: round(10**x)),
    rounds=st.floats(0, 6).map(lambda x: round(10**x)),
    share=st.floats(-4, 0).map(lambda x: 10**x),
    delta=st.floats(-14, -1).map(lambda x: 10**x),
)
@settings(max_examples=6)
def test_price_grows_with_rounds_and_budget_and_falls_with_the_crowd(
    budget, n, rounds, share, delta
):
    """By more than the grids' own looseness (0.3 %)."""

    def price(budget, n, rounds):
        local, users = LocalRandomizerDpEvent(budget), max(n, round(n / share))
        event = SubsampledShuffledDpEvent(local, users, n) if users > n else None
        event = ShuffledDpEvent(local, n) if event is None else event
        return float(ShuffleAccountant().compose(event, rounds).get_epsilon(delta))

    here = price(budget, n, rounds)
    assert 0 <= here <= rounds * budget * (1 + 1e-9)
    assert price(1.5 * budget, n, rounds) >= here * 0.997
    assert price(budget, n, 2 * rounds) >= here * 0.997
    if share == 1.0:
        assert price(budget, 2 * n, rounds) <= here * 1.003


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_there_and_back_at_the_corners(every):
    """At each fourth corner, which are all pairs of crowd and delta, or at all corners."""
    corners = list(itertools.product(BUDGETS, CROWDS, (1e-15, 1e-6, 0.3)))
    for budget, n, delta in corners[::every]:
        bound = shuffle_epsilon(budget, n, delta)
        assert 0 <= bound.class_lower <= bound <= budget
        assert shuffle_delta(budget, n, float(bound)) <= delta * (1 + 1e-6)
