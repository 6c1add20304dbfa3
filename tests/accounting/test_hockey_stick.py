"""The hockey stick of a shuffled batch against sums over every crowd, report and data set."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from beam_ldp.accounting.divergences import hockey_stick as module
from beam_ldp.accounting.divergences.enumerated import law_of_one
from beam_ldp.accounting.divergences.hockey_stick import (
    MAX_REPORTS,
    epsilon_bounds,
    hockey_stick,
    largest_log_ratio,
)
from beam_ldp.randomizers.shuffle_pair import (
    ShufflePair,
    two_level_witnesses,
    witness_from_channel,
)
from tests.accounting.brute_force import response, shuffled_law
from tests.accounting.rdp_curves import positive_part

pytestmark = pytest.mark.exact


def by_definition(pair: ShufflePair, n: int, epsilon: float) -> float:
    """E over the crowd size M of the positive part of the mean of M differences."""
    growth = math.exp(epsilon)
    total = 0.0
    for extra in range(n):
        weight = math.comb(n - 1, extra) * pair.blanket_mass**extra
        weight *= (1 - pair.blanket_mass) ** (n - 1 - extra)
        if weight == 0.0:
            continue
        crowd = extra + 1
        for drawn in itertools.combinations_with_replacement(range(len(pair.ratios)), crowd):
            orders = math.factorial(crowd)
            chance, difference = 1.0, 0.0
            for i in set(drawn):
                orders //= math.factorial(drawn.count(i))
            for i in drawn:
                chance *= pair.probabilities[i]
                difference += pair.ratios[i][0] - growth * pair.ratios[i][1]
            total += weight * orders * chance * max(0.0, difference / crowd)
    return total


def clone_delta(epsilon_0: float, n: int, epsilon: float, mass: float) -> float:
    """The clone pair in closed form for each number of clones, all of them summed."""
    e, t = math.exp(epsilon_0), math.exp(epsilon)
    clones = np.arange(n)
    crowd = clones + 1
    w = e / (e + 1)
    first = np.floor(crowd * (t * e - 1) / ((e - 1) * (1 + t))) + 1
    below, at = binom.sf(first - 2, clones, 0.5), binom.sf(first - 1, clones, 0.5)
    deltas = w * below + (1 - w) * at - t * ((1 - w) * below + w * at)
    return float(np.sum(binom.pmf(clones, n - 1, mass) * np.maximum(deltas, 0.0)))


def exact_delta(channel: np.ndarray, one: tuple[int, ...], two: tuple[int, ...], epsilon) -> float:
    p, q = shuffled_law(channel, one), shuffled_law(channel, two)
    return sum(max(0.0, p[y] - math.exp(epsilon) * q[y]) for y in p)


@st.composite
def channels(draw, values=3, most_reports=4, budget=3.0):
    """A random channel with likelihood ratios of at most e^budget."""
    rows = draw(st.integers(2, most_reports))
    level = st.floats(0.0, budget / 2)
    table = draw(
        st.lists(st.lists(level, min_size=values, max_size=values), min_size=rows, max_size=rows)
    )
    weights = np.exp(np.array(table))
    return weights / weights.sum(axis=0)


_LAST_DIGIT = np.exp([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])  # of it all is left, at the largest ratio


@given(channel=channels(), n=st.integers(1, 5), share=st.floats(0.0, 1.0))
@example(channel=_LAST_DIGIT / _LAST_DIGIT.sum(axis=0), n=1, share=1.0)
@example(channel=_LAST_DIGIT / _LAST_DIGIT.sum(axis=0), n=5, share=1.0)
def test_enumeration_equals_the_definition(channel, n, share):
    """Size-biasing: one sum of independent terms equals the mixture over crowd sizes."""
    own = ShufflePair.from_channel(channel, 0, 1, "")
    for pair in (own, witness_from_channel(channel, 0, 1, 2)):
        epsilon = share * max(0.0, largest_log_ratio(pair))
        low, high = hockey_stick(pair, n, epsilon)
        known = by_definition(pair, n, epsilon)
        assert low - 1e-14 <= known <= high + 1e-14
        assert high - low <= 3e-9 * high


@given(channel=channels(), n=st.integers(1, 5), share=st.floats(0.0, 1.0))
@settings(max_examples=30)
def test_a_witness_is_two_concrete_data_sets(channel, n, share):
    for others in (0, 1, 2):
        pair = witness_from_channel(channel, 0, 1, others)
        epsilon = share * max(0.0, largest_log_ratio(pair))
        rest = (others,) * (n - 1)
        known = exact_delta(channel, (0, *rest), (1, *rest), epsilon)
        assert hockey_stick(pair, n, epsilon).upper == pytest.approx(known, rel=1e-8, abs=1e-13)


@given(channel=channels(most_reports=3), n=st.integers(1, 4), share=st.floats(0.0, 1.0))
@settings(max_examples=30)
def test_a_dominating_pair_dominates_every_data_set(channel, n, share):
    pair = ShufflePair.from_channel(channel, 0, 1, "")
    epsilon = share * max(0.0, largest_log_ratio(pair))
    bound = hockey_stick(pair, n, epsilon).upper
    worst = max(
        exact_delta(channel, (0, *rest), (1, *rest), epsilon)
        for rest in itertools.combinations_with_replacement(range(3), n - 1)
    )
    assert worst <= bound + 1e-13
    local = math.log((channel[:, :, None] / channel[:, None, :]).max())
    if local > 1e-3:
        clones = hockey_stick(ShufflePair.clones(local), n, epsilon).upper
        assert worst <= clones + 1e-13
        assert bound <= clones * (1 + 1e-6) + 1e-13, "the own blanket is the best decomposition"


PAIRS = {
    "clones": ShufflePair.clones(2.0),
    "strong": ShufflePair.clones(2.0, strong=True),
    "3-RR": ShufflePair.two_level(math.exp(2.0), 1 / 3, 0.0, ""),
    "1000-RR": ShufflePair.two_level(math.exp(4.0), 1 / 1000, 0.0, ""),
    "quarters": ShufflePair.two_level(math.exp(1.0), 0.5, 0.25, ""),
    "others the same": two_level_witnesses(math.exp(2.0), 0.5, 0.0)[0],
    "others a third": two_level_witnesses(math.exp(2.0), 1 / 3, 0.0, (0.0,))[1],
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_integral_brackets_the_enumeration(name, n, monkeypatch):
    """Two unlike methods; the integral must contain the exact value, and be near it."""
    pair = PAIRS[name]
    grid = [share * largest_log_ratio(pair) for share in (0.0, 0.05, 0.2, 0.5, 0.8)]
    known = [hockey_stick(pair, n, epsilon) for epsilon in grid]
    monkeypatch.setattr(module, "listable", lambda pair, n: False)
    monkeypatch.setattr(module, "_delta", module._delta.__wrapped__)  # which remembers
    found = [hockey_stick(pair, n, epsilon) for epsilon in grid]
    for (low, high), (below, above) in zip(known, found, strict=True):
        assert below <= high * (1 + 1e-9) + 1e-300 and low * (1 - 1e-9) <= above
        if n > 2 and high > 1e-20:
            assert above - below <= 0.06 * above


@given(channel=channels(), n=st.integers(3, 12), share=st.floats(0.0, 0.9))
@settings(max_examples=40)
def test_integral_is_a_bound_for_any_channel(channel, n, share):
    pair = ShufflePair.from_channel(channel, 0, 1, "")
    epsilon = share * max(0.0, largest_log_ratio(pair))
    known = hockey_stick(pair, n, epsilon)
    law = law_of_one(pair)
    values = law.difference - math.expm1(epsilon) * law.second
    if values.max() <= 1e-6:
        return
    low, high = positive_part(values, law.probability, n)
    scale = 1.0 / (n * pair.blanket_mass)
    assert low * scale <= known.upper * (1 + 1e-9) + 1e-15
    assert high * scale >= known.lower * (1 - 1e-9) - 1e-15


@pytest.mark.parametrize(("epsilon_0", "n"), [(0.1, 1000), (1.0, 300), (2.0, 10**4), (4.0, 10**5)])
@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize("delta", [0.05, 1e-6, 1e-11])
def test_clones_equal_the_closed_form(epsilon_0, n, strong, delta):
    pair = ShufflePair.clones(epsilon_0, strong)
    low, high = epsilon_bounds(pair, n, delta)
    assert high - low <= 1e-4 * high
    if high == 0.0:
        assert clone_delta(epsilon_0, n, 0.0, pair.blanket_mass) <= delta
        return
    assert clone_delta(epsilon_0, n, low * (1 - 1e-7), pair.blanket_mass) >= delta * (1 - 1e-7)
    assert clone_delta(epsilon_0, n, high * (1 + 1e-7), pair.blanket_mass) <= delta * (1 + 1e-7)


@pytest.mark.parametrize(
    ("pair", "known"),
    [
        (ShufflePair.clones(4.0), 0.16977),
        (ShufflePair.clones(4.0, strong=True), 0.11815),
        (two_level_witnesses(math.exp(4.0), 0.5, 0.0)[0].swapped(), 0.08471),
        (two_level_witnesses(math.exp(4.0), 1 / 3, 0.0, (0.0,))[1], 0.11702),
        (ShufflePair.two_level(math.exp(4.0), 1 / 1000, 0.0, ""), 0.02430),
    ],
    ids=["clones", "strong clones", "2-RR", "3-RR", "1000-RR"],
)
def test_golden_values(pair, known):
    """n = 1e5, local epsilon 4, delta = 1e-6."""
    low, high = epsilon_bounds(pair, 10**5, 1e-6)
    assert low <= known + 6e-6 and known - 6e-6 <= high and high - low < 1e-5


@pytest.mark.parametrize(
    ("n", "epsilon_0", "delta", "weak", "strong"),
    [
        (10**4, 0.5, 1e-6, 0.0204, 0.0181),
        (10**4, 2.0, 1e-6, 0.155, 0.114),
        (10**4, 4.0, 1e-6, 0.601, 0.411),
        (10**6, 2.0, 1e-8, 0.01756, 0.01304),
        (10**6, 4.0, 1e-6, 0.0493, 0.0343),
    ],
)
def test_golden_table(n, epsilon_0, delta, weak, strong):
    for known, kind in ((weak, False), (strong, True)):
        found = epsilon_bounds(ShufflePair.clones(epsilon_0, kind), n, delta)[1]
        assert found == pytest.approx(known, rel=4e-3)


@pytest.mark.parametrize("epsilon_0", [1e-6, 0.1, 2.0, 6.0])
@pytest.mark.parametrize("n", [10**3, 10**6, 10**9])
@pytest.mark.parametrize("delta", [1e-2, 1e-8, 1e-15])
def test_both_sides_stay_close(epsilon_0, n, delta):
    third = two_level_witnesses(math.exp(epsilon_0), 1 / 3, 0.0, (0.0,))[1]
    for pair in (ShufflePair.clones(epsilon_0), third):
        low, high = epsilon_bounds(pair, n, delta)
        assert 0.0 <= low <= high <= epsilon_0 * (1 + 1e-11)
        assert high - low <= 3e-4 * high


@given(
    epsilon_0=st.floats(-6.0, math.log10(30.0)).map(lambda x: 10.0**x),
    n=st.floats(0.0, 9.0).map(lambda x: int(10.0**x)),
    delta=st.floats(-15.0, -0.1).map(lambda x: 10.0**x),
    which=st.sampled_from(["clones", "1000-RR", "third", "same"]),
)
def test_no_corner_gives_nonsense(epsilon_0, n, delta, which):
    ratio = math.exp(epsilon_0)
    pair = {
        "clones": lambda: ShufflePair.clones(epsilon_0),
        "1000-RR": lambda: ShufflePair.two_level(ratio, 1e-3, 0.0, ""),
        "third": lambda: two_level_witnesses(ratio, 1 / 3, 0.0, (0.0,))[1],
        "same": lambda: two_level_witnesses(ratio, 0.5, 0.0)[0].swapped(),
    }[which]()
    low, high = epsilon_bounds(pair, n, delta)
    assert 0.0 <= low <= high <= epsilon_0 * (1 + 1e-9)
    assert hockey_stick(pair, n, high).lower <= delta


@given(
    epsilon_0=st.floats(0.05, 8.0),
    n=st.integers(2, 10**8),
    epsilon=st.floats(0.0, 3.0),
    more=st.floats(1.05, 10.0),
)
@settings(max_examples=40)
def test_delta_falls_with_reports_and_epsilon_and_grows_with_the_local_budget(
    epsilon_0, n, epsilon, more
):
    def delta(budget, reports, at):
        return hockey_stick(ShufflePair.clones(budget), reports, at)

    here = delta(epsilon_0, n, epsilon)
    assert delta(epsilon_0, math.ceil(n * more), epsilon).lower <= here.upper
    assert delta(epsilon_0, n, epsilon * more).lower <= here.upper
    assert delta(epsilon_0 * more, n, epsilon).upper >= here.lower


def test_delta_at_zero_is_total_variation_and_vanishes_at_the_largest_ratio():
    pair = ShufflePair.clones(1.0)
    assert hockey_stick(pair, 1, 0.0).upper == pytest.approx(math.tanh(0.5), rel=1e-8)
    assert hockey_stick(pair, 50, 1.0).upper < 1e-12
    assert hockey_stick(pair, 50, 1.5) == (0.0, 0.0)
    same = ShufflePair(1.0, ((1.0, 1.0),), (1.0,))
    assert hockey_stick(same, 10, 0.0) == (0.0, 0.0)
    assert epsilon_bounds(same, 10, 1e-9) == (0.0, 0.0)


def test_arguments_are_checked():
    pair = ShufflePair.clones(1.0)
    for wrong in (0, -1, 1.5, True, MAX_REPORTS + 1, math.nan):
        with pytest.raises(ValueError, match="num_reports"):
            hockey_stick(pair, wrong, 0.1)
    for wrong in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon"):
            hockey_stick(pair, 10, wrong)


def test_ternary_beats_binary_randomized_response_above_log_two():
    """The response that is worst for a crowd depends on the budget."""
    for epsilon_0, ternary_wins in ((0.4, False), (2.0, True), (4.0, True)):
        binary = two_level_witnesses(math.exp(epsilon_0), 0.5, 0.0)[0]
        ternary = two_level_witnesses(math.exp(epsilon_0), 1 / 3, 0.0, (0.0,))[1]
        two = max(epsilon_bounds(p, 10**5, 1e-6)[0] for p in (binary, binary.swapped()))
        assert (epsilon_bounds(ternary, 10**5, 1e-6)[0] > two) is ternary_wins


def test_mixed_data_sets_lie_between_the_witnesses_and_the_strong_clones():
    """Every data set of six people and binary response: a mixed one can be worse than any witness.

    (For Rényi divergences none is; that the hockey stick differs was found by this enumeration.)
    """
    channel, epsilon = response(2, 1.0), 0.3
    pair = two_level_witnesses(math.e, 0.5, 0.0)[0]
    lower = max(hockey_stick(p, 6, epsilon).lower for p in (pair, pair.swapped()))
    upper = hockey_stick(ShufflePair.clones(1.0, strong=True), 6, epsilon).upper
    found = [
        exact_delta(channel, (one, *rest), (1 - one, *rest), epsilon)
        for rest in itertools.combinations_with_replacement(range(2), 5)
        for one in (0, 1)
    ]
    same = [exact_delta(channel, (0, *(1,) * 5), (1, *(1,) * 5), epsilon)]
    same.append(exact_delta(channel, (1, *(1,) * 5), (0, *(1,) * 5), epsilon))
    assert lower == pytest.approx(max(same), rel=1e-8)
    assert lower < 0.9 * max(found) and max(found) <= upper
