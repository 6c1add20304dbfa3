"""Prices as text: never below the real one but for rounding of floats, what is left never above."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.wording import factor, number, rounded_down

pytestmark = pytest.mark.exact
FLOATS = 1e-9  # relative: what multiplying by a power of ten may add


@given(st.floats(1e-300, 1e300))
def test_costs_go_up_and_what_is_left_goes_down_by_less_than_a_fourth_digit(value):
    above, below = float(number(value)), float(rounded_down(value))
    assert value * (1 - FLOATS) <= above <= value * 1.001
    assert value * (1 + FLOATS) >= below >= value * 0.999


def test_what_needs_no_digits_is_as_it_is():
    assert (number(0.94484), number(2.0), number(20_000.0)) == ("0.9449", "2", "20000")
    assert (number(12345.1), number(1e-5), number(100.0)) == ("12350", "0.00001", "100")
    assert (rounded_down(0.94486), rounded_down(0.95)) == ("0.9448", "0.95")
    for written in (number, rounded_down):
        assert (written(math.inf), written(None), written(-0.0)) == ("unbounded", "none", "0")
        assert float(written(1e-310)) == 1e-310  # smaller than one over the largest float


@given(st.floats(1e-3, 700.0))
def test_odds_are_never_said_to_change_by_less_than_they_do(epsilon: float) -> None:
    """At 1.1 they change by a factor of 3.0042: not of 3."""
    assert factor(1.1) == "3.005" and factor(0.001) == "1.002"
    said = float(factor(epsilon).replace(",", ""))
    assert math.exp(epsilon) * (1 - 1e-8) <= said <= math.exp(epsilon) * 1.001 + 1e-3
