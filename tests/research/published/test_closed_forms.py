"""Published closed forms: golden values, conditions, and that none undercuts the exact price."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.accounting.divergences.hockey_stick import epsilon_bound
from beam_ldp.accounting.schedule_prices import OutOfRangeError, feldman_2021_epsilon
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.research.published import closed_forms

pytestmark = pytest.mark.exact

FORMS = (
    closed_forms.erlingsson_2019_epsilon,
    feldman_2021_epsilon,
    closed_forms.balle_2019_hoeffding,
    closed_forms.balle_2019_bennett,
)


@pytest.mark.parametrize(
    ("n", "budget", "delta", "feldman", "hoeffding", "bennett"),
    [
        (10**4, 0.5, 1e-6, 0.0939, 0.054, 0.091),
        (10**4, 2.0, 1e-6, 0.501, 1.02, 0.518),
        (10**4, 4.0, 1e-6, None, 4.0, 4.0),
        (10**6, 2.0, 1e-8, 0.0712, None, None),
        (10**6, 4.0, 1e-6, 0.201, 4.0, 0.363),
    ],
)
def test_one_shuffle_by_the_published_forms(n, budget, delta, feldman, hoeffding, bennett):
    for form, golden in zip(FORMS[1:], (feldman, hoeffding, bennett), strict=True):
        if golden is not None:
            assert form(budget, n, delta) == pytest.approx(golden, rel=6e-3)
    if feldman is None:
        with pytest.raises(OutOfRangeError, match="needs more reports"):
            feldman_2021_epsilon(budget, n, delta)


@given(
    budget=st.floats(0.01, 8.0),
    n=st.floats(1.0, 8.0).map(lambda x: int(10**x)),
    delta=st.floats(-12.0, -2.1).map(lambda x: 10**x),
)
@settings(max_examples=15)
def test_no_form_that_is_proved_undercuts_the_floor_of_the_class(budget, n, delta):
    bound = shuffle_epsilon(budget, n, delta)
    for form in FORMS:
        try:
            value = form(budget, n, delta)
        except OutOfRangeError:
            continue
        assert bound.class_lower * (1 - 1e-9) <= value <= budget


@given(budget=st.floats(0.05, 6.0), n=st.floats(3.0, 8.0).map(lambda x: int(10**x)))
@settings(max_examples=15)
def test_clone_forms_lie_above_their_own_pairs(budget, n):
    """They are closed forms of the clone pair, and nothing else."""
    for form, strong in (
        (feldman_2021_epsilon, False),
        (closed_forms.feldman_2023_epsilon, True),
    ):
        try:
            value = form(budget, n, 1e-8)
        except OutOfRangeError:
            continue
        pair = ShufflePair.clones(budget, strong=strong)
        assert value >= min(budget, epsilon_bound(pair, n, 1e-8, upper=False))


@given(
    budget=st.floats(0.05, 5.0),
    n=st.floats(3.5, 8.0).map(lambda x: int(10**x)),
    more=st.floats(1.01, 10.0),
)
@settings(max_examples=30)
def test_forms_are_monotone(budget, n, more):
    for form in FORMS:
        try:
            here = form(budget, n, 1e-6)
            crowded = form(budget, int(n * more), 1e-6)
            dearer = form(budget * more, n, 1e-6)
        except OutOfRangeError:
            continue
        assert crowded <= here * (1 + 1e-6) and here <= dearer * (1 + 1e-6)


def test_both_masses_at_their_least_would_not_be_a_bound():
    """With 1/E also in the range, Hoeffding's form drops below what ternary response costs."""
    n, budget, delta = 10**4, 3.0, 1e-6
    wrong = closed_forms._least_epsilon(
        lambda e: _hoeffding_of_a_smaller_range(e, budget, n), budget, delta
    )
    assert wrong < shuffle_epsilon(budget, n, delta).class_lower
    assert closed_forms.balle_2019_hoeffding(budget, n, delta) > wrong


def _hoeffding_of_a_smaller_range(epsilon: float, budget: float, n: int) -> float:
    drift = math.expm1(epsilon)
    width = math.exp(-budget) * (math.exp(epsilon) + 1) * 2 * math.sinh(budget)
    crowd = closed_forms._log_crowd(budget, n, 2 * (drift / width) ** 2)
    return math.log(width**2 / (4 * drift)) + crowd


@pytest.mark.parametrize(
    ("form", "arguments", "condition"),
    [
        (closed_forms.erlingsson_2019_epsilon, (0.6, 10**4, 1e-6), "local epsilon <= 0.5"),
        (closed_forms.erlingsson_2019_epsilon, (0.5, 999, 1e-6), "at least 1000 reports"),
        (closed_forms.erlingsson_2019_epsilon, (0.5, 10**4, 0.01), "delta < 0.01"),
        (feldman_2021_epsilon, (4.0, 10**4, 1e-6), "more reports"),
        (closed_forms.feldman_2023_epsilon, (5.0, 10**4, 1e-6), "more reports"),
    ],
)
def test_outside_its_range_a_form_says_what_it_needs(form, arguments, condition):
    with pytest.raises(OutOfRangeError, match=condition):
        form(*arguments)


def test_the_two_conditions_are_the_published_ones():
    n, delta = 10**5, 1e-6
    old = math.log(n / (16 * math.log(2 / delta)))
    new = math.log(n / (8 * math.log(2 / delta)) - 1)
    for form, edge in (
        (feldman_2021_epsilon, old),
        (closed_forms.feldman_2023_epsilon, new),
    ):
        form(edge - 1e-9, n, delta)
        with pytest.raises(OutOfRangeError):
            form(edge + 1e-9, n, delta)
