"""Sums of many losses: every digit of every tail against 60 digits, and against dp-accounting."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf

from beam_ldp.accounting.composition.loss_curves import loss_grid
from beam_ldp.accounting.divergences.convolution import _RATES, _Laws, _power, places, summed
from beam_ldp.accounting.divergences.loss_grid import LossGrid, together
from beam_ldp.accounting.reports import LocalReports, SampledReports
from tests.accounting.loss_laws import exact_delta, response

pytestmark = pytest.mark.exact

GENERATOR = np.random.default_rng(5)
LAWS = [
    (GENERATOR.random(5) * [1, 0, 1e-3, 1e-9, 1e-12], 3),
    (np.append(np.zeros(4), GENERATOR.random(4)), 2),
    (np.array([1.0, 1e-30]), 5),
]


def exact_sum(laws: list[tuple[np.ndarray, int]]) -> list[mpmath.mpf]:
    """The masses of the sum at 0, 1, 2, ... by 60 digits, factor by factor."""
    total = [mpmath.mpf(1)]
    for mass, count in laws:
        for _ in range(count):
            longer = [mpmath.mpf(0)] * (len(total) + len(mass) - 1)
            for i, one in enumerate(total):
                for j, other in enumerate(mass.tolist()):
                    longer[i + j] += one * other
            total = longer
    return total


@pytest.mark.parametrize("laws", [LAWS, LAWS[:1], LAWS[1:2], [(np.array([0.0, 0.7]), 9)]])
def test_every_mass_lies_between_both_roundings(laws):
    """The exact ones range over sixty powers of ten."""
    with mpmath.workdps(60):
        exact = exact_sum(laws)
        low, high = summed(laws, False), summed(laws, True)
        for place, truth in enumerate(exact):
            below = low.mass[place - low.lowest] if 0 <= place - low.lowest < len(low.mass) else 0.0
            assert below <= truth
            if 0 <= place - high.lowest < len(high.mass):
                assert truth <= high.mass[place - high.lowest]
                if truth > 1e-30:
                    assert high.mass[place - high.lowest] <= truth * (1 + 1e-3) + 1e-24
                    assert below >= truth * (1 - 1e-3) - 1e-24
        assert mpmath.fsum(exact[high.lowest + len(high.mass) :]) <= high.above
        assert mpmath.fsum(exact[: high.lowest]) <= high.mass[0]


@pytest.mark.parametrize(
    ("epsilon", "count"), [(0.3, 100), (0.05, 1000), (0.01, 40_000), (0.001, 10**6)]
)
def test_powers_keep_their_digits_far_into_the_tail(epsilon, count):
    """Binary response: 1e6 releases at six deviations were 2.5 times too high."""
    up = response(epsilon).repeated(count)
    down = LossGrid(up.step, -10, response(epsilon).mass, upward=False).repeated(count)
    mean, deviation = count * epsilon * math.tanh(epsilon / 2), math.sqrt(count) * epsilon
    for deviations in (0.0, 2.4, 6.0, 7.2, 12.0):
        total = mean + deviations * deviation
        exact = exact_delta(epsilon, count, total)
        if exact < 1e-36:
            continue
        below, above = (float(grid.deltas(np.array([total]))[0]) for grid in (down, up))
        assert below <= exact <= above
        assert above / below - 1 < 0.01
        assert down.epsilon(float(exact)) <= total * (1 + 1e-9)
        assert up.epsilon(float(exact)) >= total * (1 - 1e-9)


def test_the_error_is_what_rounding_does_and_not_much_less():
    """Of each tilt by itself: the bound holds, and is within four digits of what is seen."""
    law = response(0.05).mass
    laws = _Laws([(law, 1000)])
    for rate in _RATES:
        tilt = laws.tilt_at(0.0, rate)
        low, high = laws.window(tilt)
        piece = laws.piece(tilt, low, high, 1 << (high - low).bit_length())
        with mpmath.workdps(60):
            p = [mpmath.mpf(float(law[at])) for at in (0, -1)]
            worst = mpmath.mpf(0)
            for heads in range(math.ceil(low / 20), high // 20, 9):
                truth = mpmath.binomial(1000, heads) * p[1] ** heads * p[0] ** (1000 - heads)
                tilted = truth * mpmath.e ** (tilt * mpmath.mpf(20 * heads) - piece.log_sum)
                found = mpmath.mpf(float(piece.tilted[20 * heads - low]))
                worst = max(worst, abs(found - tilted) - piece.relative * tilted)
        assert worst <= piece.error
        assert piece.error < 1e-10 < 1e6 * piece.error


def test_a_composition_of_sampled_shuffles_is_that_of_dp_accounting():
    """One release on one grid, composed by both; theirs adds and takes 1e-16 or so."""
    one = loss_grid(SampledReports(LocalReports(2.0), 60_000, 2_000))
    kept = one.mass > 0.0
    masses = dict(zip((one.lowest + np.flatnonzero(kept)).tolist(), one.mass[kept].tolist()))
    theirs = pld_pmf.create_pmf(masses, one.step, one.beyond, True).self_compose(6_000)
    ours = one.repeated(6_000)
    for delta in (1e-2, 1e-5, 1e-9):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-5)
    assert ours.epsilon(1e-13) == pytest.approx(1.6725, rel=5e-4)  # of Rényi orders: 1.7366


def test_kinds_together_are_kinds_one_after_the_other():
    kinds = [(response(0.4, 8), 7), (response(0.1, 2), 30), (response(0.05, 1), 1)]
    at_once = together(kinds)
    in_turn = together([(grid.repeated(count), 1) for grid, count in kinds])
    for delta in (0.3, 1e-6, 1e-20):
        assert at_once.epsilon(delta) == pytest.approx(in_turn.epsilon(delta), rel=1e-6)


def test_powers_by_squaring():
    base = np.exp(1j * np.linspace(0.0, 3.0, 7)) * 0.9
    for exponent in (1, 2, 7, 100):
        assert _power(base, exponent) == pytest.approx(base**exponent, rel=1e-12)


def test_places_are_those_of_the_sum():
    law = response(0.05).mass
    assert places([(law, 400)]) == pytest.approx(len(summed([(law, 400)], True).mass), rel=0.01)
    assert places([(np.array([0.0, 1.0]), 10**12)]) == 1
