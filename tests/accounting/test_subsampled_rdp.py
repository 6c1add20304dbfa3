# ruff: noqa: E501  (golden tables)
"""Rényi divergence of a subsampled shuffle against golden values and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.accounting.divergences import shuffle_rdp as full
from beam_ldp.accounting.divergences.loss_grid import hockey_sticks
from beam_ldp.accounting.divergences.moments import default_orders, rdp_to_epsilon
from beam_ldp.research.published import renyi as published
from tests.accounting import rdp_curves
from tests.accounting.brute_force import renyi, response, shuffled_law

pytestmark = pytest.mark.exact

# order, eps0, n, k, Theorem 5.4.1, refined, forwards, backwards, direct 1/E, direct 2/(E+1)
GOLDEN = [
    (2, 2.0, 10**6, 1000, 3.24966554e-7, 1.27873004e-7, 5.5243913669e-9, 5.5243609397e-9, 1.71432592e-8, 9.73170454e-9),
    (10, 2.0, 10**6, 1000, 1.69328916e-6, 6.86131284e-7, 2.7622362535e-8, 2.7621399006e-8, 8.57162959e-8, 4.86585227e-8),
    (28, 2.0, 10**6, 1000, 5.17753697e-6, 2.21893153e-6, 7.7345171068e-8, 7.7337361410e-8, 2.40005629e-7, 1.36243864e-7),
    (6, 1.5, 60000, 10000, 1.10329545e-3, 4.40907805e-4, 2.2540752919e-5, 2.2538889884e-5, 6.02632863e-5, 3.68557411e-5),
    (16, 1.5, 60000, 10000, 5.09515310e-3, 2.36915977e-3, 6.0113188366e-5, 6.0099187381e-5, 1.60702075e-4, 9.82819702e-5),
    (4, 2.0, 60000, 2000, 4.51115017e-4, 2.03674360e-4, 6.1385423255e-6, 6.1373555220e-6, 1.90462722e-5, 1.08124976e-5),
    (64, 1.0, 10**7, 10**4, 7.63784653e-8, 2.20854812e-8, 3.4757238413e-9, 3.4757079076e-9, 7.43033789e-9, 5.08190365e-9),
]  # fmt: skip


@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"a{r[0]}-e{r[1]}-n{r[2]}-k{r[3]}")
def test_golden_table(row):
    order, epsilon, n, k, thesis, refined, forwards, backwards, direct, strong = row
    assert full.thesis_subsampled(order, epsilon, n, k) == pytest.approx(thesis, rel=2e-8)
    assert full.thesis_subsampled(order, epsilon, n, k, refined=True) == pytest.approx(
        refined, rel=2e-8
    )
    lower = [
        published.two_response_direction(order, epsilon, k, k / n, reverse=r) for r in (False, True)
    ]
    assert lower == pytest.approx([forwards, backwards], rel=1e-9)
    half = 2 / (math.exp(epsilon) + 1)
    assert rdp_curves.direct_rdp(order, epsilon, n, k) == pytest.approx(direct, rel=2e-8)
    assert rdp_curves.direct_rdp(order, epsilon, n, k, half) == pytest.approx(strong, rel=2e-8)


def test_nothing_is_lost_where_the_divergence_is_tiny():
    rate = 1e-4
    value = published.two_response_direction(2, 2.0, 100, rate)
    identity = math.log1p(rate**2 * math.expm1(2.0) ** 2 / (100 * math.exp(2.0)))
    assert value == pytest.approx(identity, rel=1e-11)


def sampled_law(channel: np.ndarray, dataset: tuple[int, ...], k: int) -> dict:
    law: dict = {}
    subsets = list(itertools.combinations(dataset, k))
    for chosen in subsets:
        for histogram, mass in shuffled_law(channel, chosen).items():
            law[histogram] = law.get(histogram, 0.0) + mass / len(subsets)
    return law


@pytest.mark.parametrize(
    ("alphabet", "n", "k", "epsilon", "order", "golden"),
    [
        (2, 6, 4, 1.0, 2, 0.12399),
        (2, 6, 4, 1.0, 10, 0.40953),
        (2, 8, 5, 2.0, 2, 0.38057),
        (2, 8, 5, 2.0, 10, 0.90379),
        (3, 5, 3, 2.0, 2, 0.66789),
        (3, 5, 3, 2.0, 10, 1.18789),
        (2, 4, 2, 0.3, 3, None),
        (3, 3, 1, 1.0, 5, None),
    ],
)
def test_every_proved_bound_lies_above_every_dataset(alphabet, n, k, epsilon, order, golden):
    channel = response(alphabet, epsilon)
    laws = {
        d: sampled_law(channel, d, k)
        for d in itertools.combinations_with_replacement(range(alphabet), n)
    }
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(alphabet), n - 1):
        for x, y in itertools.permutations(range(alphabet), 2):
            first, second = (laws[tuple(sorted((*others, v)))] for v in (x, y))
            worst = max(worst, renyi(first, second, order))
    if golden is not None:
        assert worst == pytest.approx(golden, abs=6e-6)
    assert (
        published.two_response_lower(order, epsilon, k, k / n) <= worst * (1 + 1e-9) or alphabet > 2
    )
    half = 2 / (math.exp(epsilon) + 1)
    uppers = [
        rdp_curves.direct_rdp(order, epsilon, n, k),
        rdp_curves.direct_rdp(
            order, epsilon, n, k, half
        ),  # proved for these mechanisms' smaller cases
        full.thesis_subsampled(order, epsilon, n, k),
        full.thesis_subsampled(order, epsilon, n, k, refined=True),
    ]
    assert all(upper >= worst * (1 - 1e-9) for upper in uppers)


def test_without_sampling_the_direct_pair_is_the_clone_pair():
    assert rdp_curves.direct_rdp(7, 1.0, 500, 500) == pytest.approx(
        rdp_curves.clone_rdp(7, 1.0, 500), rel=1e-9
    )


def composed(bound, rounds: int, delta: float, guess: float) -> float:
    orders = default_orders(guess)
    return rdp_to_epsilon(orders, [rounds * bound(a) for a in orders], delta)[0]


def test_final_epsilons_of_the_training_run():
    def thesis(order):
        return full.thesis_subsampled(order, 2.0, 60000, 2000)

    assert composed(thesis, 6000, 1e-5, 8) == pytest.approx(5.7945, abs=1e-3)

    def direct(order):
        return rdp_curves.direct_rdp(order, 2.0, 60000, 2000)

    assert composed(direct, 6000, 1e-5, 8) == pytest.approx(0.9643, abs=5e-3)

    def wang(order):
        return published.wang_balle_kasiviswanathan(order, 2.0, 60000, 2000)

    assert composed(wang, 6000, 1e-5, 8) == pytest.approx(6.06, abs=0.01)


def test_self_sampling_costs_what_fixed_sampling_costs():
    def per_count(k: int) -> float:
        return full.thesis_subsampled(6, 1.0, 2000, k, refined=True)

    averaged = rdp_curves.self_sampling_rdp(6, 2000, 0.25, per_count)
    assert averaged == pytest.approx(per_count(500), rel=0.05)


@pytest.mark.parametrize("rate", [1e-3, 1e-9, 1e-12])
@pytest.mark.parametrize("top", [1e-6, 1e-3])
def test_a_curve_beside_one_is_not_lost(rate, top):
    """Where 1 + rate (t - 1) is one float for many t the slope was 0/0, and the area left out: 1 %
    at a rate of 1e-9, all at 1e-12. To first order in the rate the integral is elementary."""
    ratios = np.exp(np.linspace(0, top, 400))
    heights = ratios[-1] - ratios
    with np.errstate(all="raise"):
        found = published.sampled_profile_rdp(2.0, ratios, heights, rate)
    assert found == pytest.approx(2 * rate**2 * np.expm1(top) ** 2, rel=1e-2 * top + 1e-6)


def test_equal_ratios_leave_nothing_out():
    losses = np.array([0.0, 0.1, 0.1 + 1e-17, 0.2])
    found = published.sampled_profile_rdp(3.0, np.exp(losses), np.array([0.3, 0.2, 0.2, 0.0]), 0.1)
    alone = published.sampled_profile_rdp(
        3.0, np.exp(losses[[0, 1, 3]]), np.array([0.3, 0.2, 0.0]), 0.1
    )
    assert alone <= found <= alone * (1 + 1e-12)


@pytest.mark.parametrize(
    ("n", "k", "order", "golden", "direct"),
    [(60000, 2000, 4, 2.0536e-5, 1.9046e-5), (10**6, 1000, 10, 9.595e-8, 8.572e-8)],
)
def test_generic_subsampling_is_looser_than_the_direct_pair(n, k, order, golden, direct):
    atoms = rdp_curves.direct_atoms(2.0, k, k, order)
    losses = np.unique(np.append(np.linspace(0, 0.8, 800), np.linspace(0.8, 2.0, 50)))
    heights = hockey_sticks(atoms, losses)
    generic = published.sampled_profile_rdp(order, np.exp(losses), heights, k / n)
    assert rdp_curves.direct_rdp(order, 2.0, n, k) == pytest.approx(direct, rel=1e-4)
    assert golden * (1 - 1e-4) <= generic <= golden * (1 + 1e-3)
