"""Conversions and compositions against closed forms and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.accounting.divergences import shuffle_rdp
from beam_ldp.accounting.divergences.moments import (
    closed_form_epsilon,
    default_orders,
    interpolate_order,
    rdp_to_delta,
    rdp_to_epsilon,
)
from beam_ldp.research.published import closed_forms, renyi
from beam_ldp.research.published.renyi import at_real_orders

pytestmark = pytest.mark.exact

ORDERS = default_orders(100)


@given(st.floats(1e-6, 1.0), st.floats(1e-12, 0.1))
def test_conversion_agrees_with_the_reference(rho, delta):
    curve = rho * ORDERS
    ours, _ = rdp_to_epsilon(ORDERS, curve, delta)
    theirs, _ = rdp.compute_epsilon(ORDERS, curve, delta)
    assert ours == pytest.approx(max(0.0, theirs), rel=1e-9, abs=1e-12)
    assert ours <= closed_form_epsilon(rho, delta) * 1.5 + 1


@given(st.floats(1e-4, 0.5), st.floats(1e-10, 1e-2))
def test_the_two_directions_undo_each_other(rho, delta):
    curve = rho * ORDERS
    epsilon, _ = rdp_to_epsilon(ORDERS, curve, delta)
    if epsilon > 0:
        back, _ = rdp_to_delta(ORDERS, curve, epsilon)
        assert back == pytest.approx(delta, rel=1e-6)


@given(st.floats(2.0, 50.0))
def test_chord_lies_above_a_convex_curve(order):
    def bound(a):
        return 0.01 * a  # (a - 1) * 0.01 * a is convex

    between = interpolate_order(order, bound(math.floor(order)), bound(math.ceil(order)))
    assert bound(order) <= between * (1 + 1e-12)
    assert between <= bound(order) * 1.2


@pytest.mark.parametrize("order", [1.05, 1.5, 2.0, 2.3, 7.5, 40.9])
def test_integer_bounds_hold_at_real_orders(order):
    """Of a curve that is known at every order: binary randomized response of a million."""
    exact = renyi.two_response_direction(order, 1.0, 10**6)
    between = at_real_orders(lambda a: renyi.two_response_direction(a, 1.0, 10**6))
    assert exact <= between(order) * (1 + 1e-12)
    assert between(order) <= exact * (2.1 if order < 2 else 1.1)
    real = at_real_orders(lambda a: shuffle_rdp.thesis_upper_1(a, 1.0, 10**4))
    assert real(order) >= renyi.two_response_lower(order, 1.0, 10**4)


def test_there_is_no_order_one():
    with pytest.raises(ValueError, match="order must be > 1"):
        at_real_orders(float)(1.0)


def test_real_orders_help_where_many_rounds_want_less_than_two():
    def bound(order):
        return shuffle_rdp.thesis_upper_1(order, 2.0, 1000)

    rounds, orders = 3000, np.concatenate([np.linspace(1.1, 1.9, 9), ORDERS])
    whole = [rounds * bound(int(a)) for a in ORDERS]
    real = [rounds * at_real_orders(bound)(float(a)) for a in orders]
    by_integers, _ = rdp_to_epsilon(ORDERS, whole, 1e-6)
    assert rdp_to_epsilon(orders, real, 1e-6)[0] <= by_integers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([2.0], [0.1, 0.2], 0.1), "same length"),
        (([2.0], [float("nan")], 0.1), "NaN"),
        (([1.0], [0.1], 0.1), "orders must hold"),
        (([2.0], [0.1], 0.0), "delta must lie in"),
    ],
)
def test_bad_curves_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        rdp_to_epsilon(*arguments)


@given(st.floats(1e-3, 3.0), st.integers(1, 200), st.floats(1e-9, 1e-3))
def test_optimal_composition_is_never_worse(epsilon, count, slack):
    exact, delta = closed_forms.compose_kov_exact(epsilon, 1e-9, count, slack)
    closed, same_delta = closed_forms.compose_kov(epsilon, 1e-9, count, slack)
    strong, _ = closed_forms.compose_strong(epsilon, 1e-9, count, slack)
    assert delta == same_delta
    assert exact <= closed * (1 + 1e-9)
    assert exact <= min(strong, closed_forms.compose_basic(epsilon, 0, count)[0]) * (1 + 1e-9)


def test_optimal_composition_by_enumeration():
    epsilon, count, slack = 0.5, 3, 0.05
    total, _ = closed_forms.compose_kov_exact(epsilon, 0.0, count, slack)
    truth = 1 / (1 + math.exp(-epsilon))
    hockey = 0.0
    for heads in range(count + 1):
        ways = math.comb(count, heads)
        p = ways * truth**heads * (1 - truth) ** (count - heads)
        q = ways * truth ** (count - heads) * (1 - truth) ** heads
        hockey += max(p - math.exp(total) * q, 0.0)
    assert hockey == pytest.approx(slack, rel=1e-9)


def test_subsampling_of_a_guarantee():
    epsilon, delta = closed_forms.subsample(1.0, 1e-6, 0.1)
    assert epsilon == pytest.approx(math.log1p(0.1 * math.expm1(1.0)))
    assert delta == pytest.approx(1e-7)
    assert closed_forms.subsample(1.0, 1e-6, 1.0)[0] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="rate must lie in"):
        closed_forms.subsample(1.0, 0.0, 1.5)


def test_default_orders_reach_far_enough():
    assert ORDERS[0] == 2 and np.all(np.diff(ORDERS) > 0)
    assert default_orders(1e4)[-1] >= 0.8 * 8e4


@pytest.mark.parametrize("compose", [closed_forms.compose_kov, closed_forms.compose_kov_exact])
def test_compositions_grow_with_everything(compose):
    here = compose(0.3, 1e-9, 50, 1e-6)[0]
    assert here <= compose(0.31, 1e-9, 50, 1e-6)[0]
    assert here <= compose(0.3, 1e-9, 51, 1e-6)[0]
    assert here <= compose(0.3, 1e-9, 50, 0.9e-6)[0]
    assert closed_forms.compose_basic_with(0.3, 1e-9, 50, 1e-6)[0] == pytest.approx(15.0)
