"""Successive refinement: what every reader, and all who join, learn from one public report."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from beam_ldp.randomizers import LocalRandomizer
from beam_ldp.randomizers.frequency.designs import designs
from beam_ldp.randomizers.frequency.refinable_response import (
    BinaryLevels,
    RefinableResponse,
    best_design,
    checked_levels,
)
from beam_ldp.randomizers.words import WORD_VALUES
from tests.randomizers.frequency import exact_checks as checks

CASES = [
    pytest.param(k, levels, design, id=f"{design}-{k}")
    for k, levels, design in (
        (2, (2.0, 1.0, 0.5), "single"),
        (3, (3.0, 0.7, 0.1), "single"),
        (3, (1.0, 0.5), "paley:3"),
        (6, (2.0, 1.0, 0.3), "singer:2,3"),
        (7, (6.0, 5.9, 0.01), "paley:7"),
    )
]


def steps_of(oracle):
    """The exact law of every shift: `(v,)` Fractions."""
    v = oracle.num_symbols
    for coin in oracle._law.coins:
        kept = Fraction(coin, WORD_VALUES)
        yield [kept * (u == 0) + (1 - kept) / v for u in range(v)]


def first_level(oracle):
    """P(Y_1 = y | x) as its words draw it, up to the words that even spreading leaves over."""
    law, v = oracle._law, oracle.num_symbols
    other = Fraction(WORD_VALUES - law.threshold, v * WORD_VALUES)
    sets = [set(row) for row in oracle.favoured(np.arange(oracle.domain_size)).tolist()]
    favoured = other + Fraction(law.share, WORD_VALUES)
    return [[favoured if y in own else other for y in range(v)] for own in sets]


def joint(oracle):
    """`(x, public report, shifts) -> probability`, all of it."""
    v, first, laws = oracle.num_symbols, first_level(oracle), list(steps_of(oracle))
    for x, y in itertools.product(range(oracle.domain_size), range(v)):
        for shifts in itertools.product(range(v), repeat=len(laws)):
            chance = first[x][y] * math.prod(law[u] for law, u in zip(laws, shifts))
            yield x, (y + sum(shifts)) % v, shifts, chance


def learned(oracle, coalition):
    """The epsilon of all that these levels' readers see together: the report and their keys."""
    views = defaultdict(lambda: [Fraction(0)] * oracle.domain_size)
    for x, report, shifts, chance in joint(oracle):
        views[report, tuple(shifts[j:] for j in coalition)][x] += chance
    return max(math.log(max(seen) / min(seen)) for seen in views.values())


@pytest.mark.exact
@pytest.mark.parametrize(("k", "levels", "design"), CASES)
def test_a_coalition_learns_what_its_largest_level_does_and_the_public_the_least(k, levels, design):
    oracle = RefinableResponse(k, levels[-1], levels, design)
    readers = range(len(levels))
    for size in readers:
        for coalition in itertools.combinations(readers, size + 1):
            found, largest = learned(oracle, coalition), levels[coalition[0]]
            assert largest - 1e-8 <= found <= largest + 1e-15
    assert levels[-1] - 1e-8 <= learned(oracle, ()) <= levels[-1] + 1e-15


@pytest.mark.exact
def test_a_report_for_every_reader_costs_the_sum_instead():
    """The trivial scheme: two independent reports, read together."""
    first, second = RefinableResponse(3, 2.0).channel(), RefinableResponse(3, 1.0).channel()
    both = (first[:, None] * second[None]).reshape(-1, 3)
    assert np.log(both.max(axis=1) / both.min(axis=1)).max() == pytest.approx(3.0, abs=1e-7)


@pytest.mark.exact
@pytest.mark.parametrize(("k", "levels", "design"), CASES)
def test_the_report_of_a_level_has_the_law_of_that_levels_mechanism(k, levels, design):
    """Refined by the exact shifts; so its estimates and variances are those of `at_level`."""
    oracle = RefinableResponse(k, levels[-1], levels, design)
    for number, level in enumerate(levels):
        refined = oracle.at_level(level)
        found = [[Fraction(0)] * k for _ in range(oracle.num_symbols)]
        for x, report, shifts, chance in joint(oracle):
            found[(report - sum(shifts[number:])) % oracle.num_symbols][x] += chance
        assert refined.local_epsilon == level and refined.design == design
        np.testing.assert_allclose(refined.channel(), np.array(found, dtype=float), atol=1e-15)


@pytest.mark.exact
@pytest.mark.parametrize("levels", [(2.0, 1.0, 0.5), (1.0, 0.999999, 1e-6), (12.0, 11.0, 0.1)])
@pytest.mark.parametrize("k", [2, 5, 1000])
def test_every_level_is_rounded_toward_more_privacy(k, levels):
    """Of any two words' worth of outputs, all rounding counted, in whole numbers."""
    oracle = RefinableResponse.of_levels(k, levels)
    for level in levels:
        law = oracle.at_level(level)._law
        most, least = law._most_and_least
        even = (1 - law.kept) / oracle.num_symbols
        ratio = (law.kept * most + even) / (law.kept * least + even)
        # e**level from below, by its series
        exact = sum(Fraction(level) ** i / math.factorial(i) for i in range(80))
        assert ratio <= exact
        assert level - 1e-8 <= math.log(ratio) if level > 1e-3 else ratio > 1


@pytest.mark.exact
@pytest.mark.parametrize("levels", [(2.0, 1.0, 0.5), (3.0, 2.5, 0.2, 0.1)])
def test_two_values_are_the_texts_bits(levels):
    """Section 7.4: chances of flips and of errors, and the bits of the thesis' scheme."""
    oracle, text = RefinableResponse.of_levels(2, levels), BinaryLevels.of(levels)
    assert oracle.design == "single" and oracle.num_symbols == 2
    for flip, law in zip(text.flips[1:], steps_of(oracle)):
        assert float(law[1]) == pytest.approx(flip, abs=1e-8)
    for level, error in zip(levels, text.errors):
        assert oracle.at_level(level).channel()[1, 0] == pytest.approx(error, abs=1e-8)
        assert error == pytest.approx(1 / (math.exp(level) + 1))
    assert oracle.random_bits == pytest.approx(text.bits, abs=1e-7)


@pytest.mark.exact
def test_goldens_of_the_binary_scheme():
    found = BinaryLevels.of((2.0, 1.0, 0.5))
    assert found.errors == pytest.approx((0.1192, 0.2689, 0.3775), abs=5e-5)
    assert found.flips == pytest.approx((0.1192, 0.1966, 0.2350), abs=5e-5)
    assert (found.bits, found.bits_apart) == pytest.approx((2.0288, 2.3233), abs=5e-5)
    ratios = [math.tanh(e / 2) for e in (2.0, 1.0, 0.5)]
    for q, (before, after) in zip(found.flips[1:], itertools.pairwise(ratios)):
        assert q == pytest.approx((1 - after / before) / 2)
    assert BinaryLevels.of((1.0, 0.0)).errors[1] == 0.5


@pytest.mark.exact
def test_figure_7_9():
    """Two readers, the first at 1: the bits of one refined report, and of two reports."""
    told = {
        0.01: (1.8399, 1.8399), 0.25: (1.7871, 1.8288), 0.5: (1.6266, 1.7962),
        0.75: (1.3467, 1.7452), 0.9: (1.0981, 1.7074), 0.99: (0.8797, 1.6827),
    }  # fmt: skip
    for level, bits in told.items():
        found = BinaryLevels.of((1.0, level))
        assert (found.bits, found.bits_apart) == pytest.approx(bits, abs=6e-5)
    assert BinaryLevels.of((1.0, 1 - 1e-12)).bits == pytest.approx(0.8399, abs=6e-5)


@pytest.mark.exact
def test_figure_7_10():
    """One to ten readers, 2, 1.8, 1.7, ...: refining saves more with every one."""
    proposed = [0.5271, 0.7201, 0.8479, 0.9869, 1.1381, 1.3026, 1.4820, 1.6778, 1.8919, 2.1267]
    apart = [0.5271, 1.1161, 1.7370, 2.3901, 3.0755, 3.7930, 4.5424, 5.3229, 6.1338, 6.9737]
    levels = [2.0, *(2 - 0.1 * j for j in range(2, 11))]
    for d in range(1, 11):
        found = BinaryLevels.of(levels[:d])
        assert (found.bits, found.bits_apart) == pytest.approx(
            (proposed[d - 1], apart[d - 1]), abs=6e-5
        )


@pytest.mark.exact
def test_goldens_of_the_additive_form():
    oracle = RefinableResponse(7, 0.3, (2.0, 1.0, 0.3), "singer:2,3")
    assert oracle.kept == pytest.approx((1, 0.579, 0.178), abs=5e-4)
    assert oracle.random_bits == pytest.approx(6.6506, abs=5e-5)
    for e1, e2 in itertools.combinations((2.0, 1.0, 0.3), 2):  # one symbol each: a quotient

        def share(e):
            return math.expm1(e) / (math.exp(e) + 6)

        assert RefinableResponse(7, e2, (e1, e2), "single").kept[1] == pytest.approx(
            share(e2) / share(e1), rel=1e-7
        )


@pytest.mark.exact
def test_levels_that_are_none_are_refused():
    for levels in ((1.0, 0.0), (0.0,), (1.0, 2.0), (2.0, 1.0, 2.0), (), ("1",), (math.inf, 1.0)):
        with pytest.raises(ValueError, match="levels must"):
            checked_levels(levels)
    with pytest.raises(ValueError, match="levels must be at most 16"):
        checked_levels([20.0 - i for i in range(17)])
    for levels in ((0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0)):  # a level above the public one at 0
        with pytest.raises(ValueError, match="levels must"):
            BinaryLevels.of(levels)
    assert checked_levels((2.0, 2.0, 1.0, 1.0)) == (2.0, 1.0)  # one reader of two names
    with pytest.raises(ValueError, match="local_epsilon must be the smallest of levels"):
        RefinableResponse(4, 2.0, (2.0, 1.0))
    with pytest.raises(ValueError, match="level must be one of 2, 1, got 1.5"):
        RefinableResponse(4, 1.0, (2.0, 1.0)).at_level(1.5)
    with pytest.raises(ValueError, match="design must"):
        RefinableResponse(8, 1.0, (2.0, 1.0), "paley:7")


@pytest.mark.exact
def test_the_design_serves_all_levels():
    """Nobody's error exceeds the best of their level by more than with any other design."""
    assert best_design(1000, (5.0,)) == "singer:149,3" and best_design(2, (1.0,)) == "single"
    nothing = np.zeros(100)
    for levels, most in (((2.0, 1.0, 0.5), 1.25), ((6.0, 1.0), 8.0), ((3.0, 0.1), 2.0)):

        def excess(design, levels=levels):
            oracle = RefinableResponse(100, levels[-1], levels, design)
            own = [RefinableResponse(100, level).variance(1, nothing)[0] for level in levels]
            found = [oracle.at_level(level).variance(1, nothing)[0] for level in levels]
            return max(np.divide(found, own))

        others = [excess(design.text) for _, design in designs(100, levels[0])]
        assert excess(None) == pytest.approx(min(others), rel=1e-6) and excess(None) < most


@pytest.mark.exact
def test_configurations_keep_levels_and_design():
    oracle = RefinableResponse.of_levels(50, (3.0, 1.0))
    back = LocalRandomizer.from_config(oracle.to_config())
    assert back == oracle and back.config_digest() == oracle.config_digest()
    listed = {**oracle.to_config(), "levels": [3.0, 1.0]}  # as JSON gives it
    assert LocalRandomizer.from_config(listed) == oracle
    digests = {oracle.at_level(level).config_digest() for level in (3.0, 1.0)}
    assert len(digests) == 2


@pytest.mark.exact
@pytest.mark.parametrize(("k", "levels", "design"), CASES)
def test_every_levels_mechanism_keeps_what_all_oracles_promise(k, levels, design):
    for level in levels:
        oracle = RefinableResponse(k, levels[-1], levels, design).at_level(level)
        checks.check_channel(oracle)
        checks.check_everything_but_the_channel(oracle)


@pytest.mark.exact
def test_residues_that_would_not_be_uniform_are_drawn_again():
    oracle = RefinableResponse(3, 1.0, (2.0, 1.0), "single")
    top = np.uint64(WORD_VALUES - 1)
    words = np.array([[top, top], [0, top], [top, 4]], dtype=np.uint64)
    asked = []

    def redraw(rows, attempt):
        asked.append((rows.tolist(), attempt))
        return np.array([top, 7] if attempt == 0 else [5], dtype=np.uint64)

    assert oracle.shifts(0, words, redraw).tolist() == [2, 0, 1]
    assert asked == [([0, 1], 0), ([0], 1)]
    assert WORD_VALUES % 3 == 1


@pytest.mark.statistical
def test_reports_have_the_law_of_the_channel():
    """Chi-squared over 200,000 reports of one value; a false alarm in 1e-5 of all seeds."""
    from scipy.stats import chi2

    oracle = RefinableResponse(6, 0.5, (2.0, 1.0, 0.5), "singer:2,3")
    n = 200_000
    seen = oracle.accumulate(oracle.randomize(np.full(n, 4), np.random.default_rng(5)))
    expected = n * oracle.channel()[:, 4]
    assert ((seen - expected) ** 2 / expected).sum() < chi2.isf(1e-5, oracle.num_symbols - 1)
