# ruff: noqa: E501  (golden tables)
"""Rényi divergence of a full shuffle against golden values and brute force."""

from __future__ import annotations

import itertools
import math

import pytest

from beam_ldp.accounting.divergences import shuffle_rdp as rdp
from beam_ldp.research.published import renyi as published
from tests.accounting import rdp_curves
from tests.accounting.brute_force import renyi, response, shuffled_law

pytestmark = pytest.mark.exact

# order, eps0, n, upper 1, upper 2, Erlingsson, forwards, backwards, reduction, clones, strong
GOLDEN = [
    (2, 1.0, 10**4, 5.90130876e-4, 6.41846183e-3, 6.448025e-2, 1.0861022866e-4, 1.0863382635e-4, 2.95206e-4, 2.32212e-4, 1.58816e-4),
    (10, 1.0, 10**4, 5.12111173e-3, 1.78290606e-2, 3.224013e-1, 5.4273684344e-4, 5.4348410436e-4, 1.47371e-3, 1.1610587821e-3, 7.9407923459e-4),
    (32, 0.5, 10**6, 1.44980419e-5, 4.58385442e-5, 1.990147e-4, 4.0840095114e-6, 4.0840532946e-6, 6.7333e-6, 6.3295e-6, 5.0843e-6),
    (100, 0.5, 10**6, 5.28822254e-5, 1.40170738e-4, 6.219210e-4, 1.2762382043e-5, 1.2762814228e-5, 2.1041e-5, 1.9780e-5, 1.5888e-5),
    (10, 2.0, 10**6, 6.92463726e-4, 6.70266560e-3, 2.433656, 2.7621066814e-5, 2.7622999697e-5, 2.0405e-4, 8.572e-5, 4.866e-5),
    (10, 4.0, 10**6, 4.86604715e-1, 3.48543069, 5.105536e5, 2.6300162086e-4, 2.6317697707e-4, 1.41295e-2, 1.01487e-3, 5.16715e-4),
]  # fmt: skip


@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"a{r[0]}-e{r[1]}-n{r[2]}")
def test_golden_table(row):
    order, epsilon, n, upper_1, upper_2, erlingsson, forwards, backwards, reduction, *clones = row
    assert rdp.thesis_upper_1(order, epsilon, n) == pytest.approx(upper_1, rel=2e-8)
    assert published.thesis_upper_2(order, epsilon, n) == pytest.approx(upper_2, rel=2e-8)
    assert published.erlingsson_2019(order, epsilon, n) == pytest.approx(erlingsson, rel=1e-6)
    assert published.two_response_direction(order, epsilon, n) == pytest.approx(forwards, rel=1e-9)
    assert published.two_response_direction(order, epsilon, n, reverse=True) == pytest.approx(
        backwards, rel=1e-9
    )
    # The blocks only ever add, and add less than a part in a thousand.
    evaluated = [
        published.thesis_reduction_exact(order, epsilon, n),
        rdp_curves.clone_rdp(order, epsilon, n),
        rdp_curves.clone_rdp(order, epsilon, n, 2 / (math.exp(epsilon) + 1)),
    ]
    for value, golden in zip(evaluated, [reduction, *clones], strict=True):
        assert golden * (1 - 3e-4) <= value <= golden * (1 + 1e-3)


@pytest.mark.parametrize(
    ("order", "epsilon", "n", "golden"),
    [
        (2, 1.0, 10**4, 1.08610229e-4),
        (10, 1.0, 10**4, 5.41757729e-4),
        (32, 0.5, 10**6, 4.08377238e-6),
        (100, 0.5, 10**6, 1.27545406e-5),
        (10, 2.0, 10**6, 2.76185241e-5),
        (10, 4.0, 10**6, 2.62771364e-4),
    ],
)
def test_second_moment_alone_is_a_lower_bound(order, epsilon, n, golden):
    simple = rdp_curves.thesis_simple_lower(order, epsilon, n)
    assert simple == pytest.approx(golden, rel=1e-8)
    assert simple <= published.two_response_direction(order, epsilon, n) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("order", "epsilon", "clones", "strong"),
    [
        (2, 1.0, 2.3233350446e-3, 1.5887269072e-3),
        (10, 1.0, 1.1617540720e-2, 7.9438229736e-3),
        (10, 2.0, 8.6539320589e-2, 4.8853213412e-2),
        (50, 2.0, 5.9506689871e-1, 2.5569429075e-1),
    ],
)
def test_clone_divergence_is_exact_where_every_count_is_kept(order, epsilon, clones, strong):
    assert rdp_curves.clone_rdp(order, epsilon, 1000) == pytest.approx(clones, rel=1e-9)
    half = 2 / (math.exp(epsilon) + 1)
    assert rdp_curves.clone_rdp(order, epsilon, 1000, half) == pytest.approx(strong, rel=1e-9)


def test_high_orders_where_the_directions_part():
    assert published.two_response_direction(1000, 2.0, 10**4) == pytest.approx(0.21025846, rel=1e-7)
    backwards = published.two_response_direction(1000, 2.0, 10**4, reverse=True)
    assert backwards == pytest.approx(0.73667644, rel=1e-7)


def worst_by_enumeration(k: int, n: int, epsilon: float, order: float) -> float:
    channel = response(k, epsilon)
    laws = {
        d: shuffled_law(channel, d) for d in itertools.combinations_with_replacement(range(k), n)
    }
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(k), n - 1):
        for x, y in itertools.permutations(range(k), 2):
            first, second = (laws[tuple(sorted((*others, v)))] for v in (x, y))
            worst = max(worst, renyi(first, second, order))
    return worst


@pytest.mark.parametrize(
    ("k", "n", "epsilon", "order", "golden"),
    [
        (2, 2, 0.7, 2, 0.26777),
        (2, 2, 0.7, 10, 0.61043),
        (2, 2, 0.7, 50, 0.68354),
        (2, 10, 0.7, 2, 0.05477),
        (2, 10, 0.7, 10, 0.30809),
        (2, 10, 0.7, 50, 0.61772),
        (2, 14, 3.0, 2, 2.34726),
        (2, 14, 3.0, 10, 2.92442),
        (3, 7, 0.7, 2, 0.07081),
        (3, 7, 0.7, 10, 0.29476),
        (3, 7, 0.7, 50, 0.60156),
        (3, 7, 3.0, 2, 2.45587),
        (4, 4, 0.7, 2, 0.09438),
        (4, 4, 0.7, 10, 0.35494),
        (4, 4, 0.7, 50, 0.62554),
    ],
)
def test_every_proved_bound_lies_above_every_dataset(k, n, epsilon, order, golden):
    worst = worst_by_enumeration(k, n, epsilon, order)
    assert worst == pytest.approx(golden, abs=6e-6)
    lower = published.two_response_lower(order, epsilon, n)
    if k == 2:
        assert lower == pytest.approx(worst, rel=1e-9)
    if k == 3:
        assert rdp_curves.three_response_lower(order, epsilon, n) <= worst * (1 + 1e-9)
    uppers = [
        rdp_curves.clone_rdp(order, epsilon, n),
        published.thesis_reduction_exact(order, epsilon, n),
        rdp.thesis_upper_1(order, epsilon, n),
        published.thesis_upper_1_optimized(order, epsilon, n),
        min(epsilon, published.thesis_upper_2(order, epsilon, n)),
        published.erlingsson_2019(order, epsilon, n),
    ]
    assert all(upper >= worst * (1 - 1e-9) for upper in uppers)


def test_smallest_crowd_by_every_bound():
    """Two people: the reduction is the clone pair there, and the printed bound is far off."""
    strong = 2 / (math.exp(0.7) + 1)
    assert rdp_curves.clone_rdp(2, 0.7, 2, strong) == pytest.approx(0.29342, abs=6e-6)
    assert rdp_curves.clone_rdp(2, 0.7, 2) == pytest.approx(0.32471, abs=6e-6)
    assert published.thesis_reduction_exact(2, 0.7, 2) == pytest.approx(0.32471, abs=6e-6)
    assert rdp.thesis_upper_1(2, 0.7, 2) == 0.7, "printed: 1.6717, more than the local epsilon"


def test_three_responses_beat_two_beyond_log_two():
    assert rdp_curves.three_response_lower(10, 3.0, 1000) > published.two_response_lower(
        10, 3.0, 1000
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 4.0])
def test_leading_constant_is_the_large_crowd_limit(epsilon):
    n, order = 20000, 2
    lower = max(
        published.two_response_lower(order, epsilon, n),
        rdp_curves.three_response_lower(order, epsilon, n),
    )
    assert lower == pytest.approx(order * rdp.leading_constant(epsilon) / (2 * n), rel=5e-3)


def test_simplified_bound_knows_its_range():
    assert math.isinf(published.thesis_simplified(10, 1.0, 10**4))
    n = 10**6
    bound = published.thesis_simplified(5, 0.5, n)
    assert rdp_curves.clone_rdp(5, 0.5, n) <= bound <= 2 * 5 * math.expm1(0.5) ** 2 / n


@pytest.mark.parametrize("n", [10**4, 10**6])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0])
def test_simplified_bound_holds_wherever_its_range_does(n, epsilon):
    """Its printed proof rounds and argues for large crowds only; the clone pair settles it."""
    largest = int((n / 9 * math.exp(-5 * epsilon)) ** 0.25)
    for order in {2, 3, largest // 2, largest}:
        if 2 <= order <= largest:
            bound = published.thesis_simplified(order, epsilon, n)
            assert rdp_curves.clone_rdp(order, epsilon, n) <= bound
    assert math.isinf(published.thesis_simplified(max(2, largest + 1), epsilon, n))


def test_withdrawn_closed_form_knows_its_range():
    strong = 2 / (math.exp(1.0) + 1)
    bound = published.feldman_2023(10, 1.0, 10**4)
    assert bound == pytest.approx(48 * 10 * math.expm1(1.0) ** 2 / (10**4 * math.e))
    assert bound > 10 * rdp_curves.clone_rdp(10, 1.0, 10**4, strong), (
        "it is far from what it bounds"
    )
    edge = 10**4 / (16 * math.e)
    assert math.isfinite(published.feldman_2023(edge * 0.999, 1.0, 10**4))
    assert math.isinf(published.feldman_2023(edge * 1.001, 1.0, 10**4))


def test_chernoff_fraction_helps_for_large_crowds():
    assert published.thesis_upper_1_optimized(32, 0.5, 10**6) == pytest.approx(7.25e-6, rel=0.01)
    assert published.thesis_upper_1_optimized(10, 2.0, 10**6) == pytest.approx(3.14e-4, rel=0.01)


@pytest.mark.parametrize("order", [1.5, 2, 7.5, 64])
def test_bounds_are_monotone(order):
    by_n = [rdp_curves.clone_rdp(order, 1.0, n) for n in (10, 100, 1000, 10**5)]
    by_epsilon = [rdp_curves.clone_rdp(order, e, 1000) for e in (0.1, 0.5, 1, 2, 4)]
    assert by_n == sorted(by_n, reverse=True)
    assert by_epsilon == sorted(by_epsilon)


@pytest.mark.parametrize("order", [1, 2.5, 0])
def test_integer_bounds_refuse_other_orders(order):
    with pytest.raises(ValueError, match="order must be an integer >= 2"):
        rdp.thesis_upper_1(order, 1.0, 100)
