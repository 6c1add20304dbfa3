"""Bounds on what frequencies can be known to: goldens, and mechanisms between them."""

from __future__ import annotations

import math

import pytest

from beam_ldp.planning.frequencies import least_errors
from beam_ldp.randomizers.entropy import critical_bits
from beam_ldp.randomizers.frequency import (
    KRandomizedResponse,
    LimitedHadamard,
    ProjectiveGeometryResponse,
    SubsetSelection,
)

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("arguments", "golden"),
    [
        ((1000, 1e8, 1.0, 1.0), 4.13107567e-6),
        ((1000, 5e5, 1.0, 1.0), 9.06569419e-5),
        ((64, 1e6, 0.5, 0.2), 1.20772497e-3),
    ],
)
def test_figures_of_the_specification(arguments: tuple[int, float, float, float], golden: float):
    assert least_errors(*arguments).squared == pytest.approx(golden, rel=1e-8)


@pytest.mark.parametrize("k", [16, 63, 64, 1000])
@pytest.mark.parametrize("budget", [0.1, 1.0, 3.0])
def test_mechanisms_lie_between_the_bounds(k: int, budget: float) -> None:
    for n in (1000, 10**5, 10**8):
        for bits in (0.01, 0.1, 0.5, 1.0):
            mechanism = LimitedHadamard(k, budget, bits, "binary", "public")
            error = mechanism.variance(n, None, "iid").sum()
            found = least_errors(k, n, budget, bits)
            assert found.squared < error <= found.squared_reached * (1 + 1e-9)
        for other in (
            KRandomizedResponse(k, budget),
            SubsetSelection(k, budget),
            ProjectiveGeometryResponse(k, budget),
        ):
            assert least_errors(k, n, budget).squared < other.variance(n, None, "iid").sum()


def test_limits_and_order() -> None:
    """Many people: k/(4 n E tanh^2); fewer bits never make either bound smaller; where bits do not
    limit, nothing depends on them."""
    k, n, budget = 1000, 1e15, 1.0
    ratio = math.exp(budget)
    found = least_errors(k, n, budget)
    assert found.squared == pytest.approx(k / (4 * n * ratio * math.tanh(0.5) ** 2), rel=1e-6)
    assert found.squared_reached / found.squared == pytest.approx(8 * ratio, rel=1e-6)
    assert found.per_value == math.sqrt(found.squared / k)
    bits = [0.001, 0.01, 0.1, 0.5, 0.8, critical_bits(budget), 1.0, 20.0]
    series = [least_errors(k, 1e6, budget, one) for one in bits]
    for lower, upper in zip(series, series[1:]):
        assert lower.squared >= upper.squared
        assert lower.squared_reached >= upper.squared_reached
    assert series[-1] == series[-2] == series[-3] == least_errors(k, 1e6, budget)


def test_absolute_errors() -> None:
    """sqrt(k L/32) with the printed L, from enough people on; the sum of squares bounds the other
    side by Cauchy and Schwarz."""
    k, n, budget = 100, 1e6, 1.0
    ratio = math.exp(budget)
    printed = k * (ratio + 1) ** 2 / (16 * n * ratio * (ratio - 1) ** 2)
    found = least_errors(k, n, budget)
    assert found.absolute == pytest.approx(math.sqrt(k * printed / 32), rel=1e-12)
    assert found.absolute_reached == pytest.approx(math.sqrt(k * found.squared_reached))
    assert found.absolute < found.absolute_reached
    enough = k**2 / (32 * ratio * math.tanh(budget / 2) ** 2)
    assert least_errors(k, enough * 0.99, budget).absolute == 0.0
    assert least_errors(k, enough * 1.01, budget).absolute > 0.0


@pytest.mark.parametrize("wrong", [(1, 10, 1.0), (2, 0, 1.0), (2, 10, 0.0), (2, 10, 1.0, 0.0)])
def test_arguments_are_checked(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must be"):
        least_errors(*wrong)  # type: ignore[arg-type]
