"""The price of split-and-mix sums, against enumeration of what shufflers show."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from beam_ldp.accounting.divergences import shared_sums as module
from beam_ldp.accounting.divergences.shared_sums import (
    components_excess,
    gaussian_delta,
    noisy_sum_losses,
    shares_for,
    view_distance,
    views_distance,
)
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.accounting.shuffle.split_and_mix import (
    shares_epsilon,
    shares_of,
    split_and_mix_delta,
    split_and_mix_epsilon,
)
from beam_ldp.randomizers.discrete_noise import ROUNDED_VARIANCE, drawn_log_ratio
from beam_ldp.randomizers.mean import SplitAndMixMean

pytestmark = pytest.mark.exact


# What shuffled shares show --------------------------------------------------------------------


@cache
def view(numbers: tuple[int, ...], modulus: int, shares: int) -> np.ndarray:
    """What the shuffled columns show, as a code, for every way to split the numbers."""
    people = len(numbers)
    free = people * (shares - 1)
    digits = np.arange(modulus**free)[:, None] // modulus ** np.arange(free) % modulus
    split = digits.reshape(modulus**free, people, shares - 1)
    last = (np.array(numbers) - split.sum(axis=2)) % modulus
    columns = np.sort(np.concatenate([split, last[:, :, None]], axis=2), axis=1)
    places = modulus ** np.arange(people * shares, dtype=np.int64)
    return np.asarray(columns.reshape(len(columns), -1) @ places)


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Total variation between two samples that list each outcome as often as it is likely."""
    both = np.unique(np.concatenate([first, second]))
    heights = [
        np.bincount(np.searchsorted(both, codes), minlength=len(both)) for codes in (first, second)
    ]
    return float(np.abs(heights[0] - heights[1]).sum()) / 2 / len(first)


def worst_distance(modulus: int, people: int, shares: int) -> float:
    by_sum = defaultdict(list)
    for numbers in itertools.combinations_with_replacement(range(modulus), people):
        by_sum[sum(numbers) % modulus].append(numbers)
    return max(
        distance(view(x, modulus, shares), view(y, modulus, shares))
        for alike in by_sum.values() for x, y in itertools.combinations(alike, 2)
    )  # fmt: skip


CASES = [
    (3, 2, 2), (3, 2, 3), (3, 2, 4), (3, 2, 5), (4, 2, 4), (5, 2, 3), (5, 2, 4), (3, 3, 2),
    (3, 3, 3), (3, 3, 4), (4, 3, 3), (2, 4, 5),
]  # fmt: skip


@pytest.mark.parametrize("modulus, people, shares", CASES)
def test_no_two_data_sets_of_one_sum_are_told_apart_better_than_the_bound(modulus, people, shares):
    worst, bound = worst_distance(modulus, people, shares), view_distance(modulus, people, shares)
    assert 0 < worst <= bound


def test_the_bound_says_something_about_crowds_of_a_few():
    """Four or more of these cases are told apart with less than certainty, as the bound says."""
    assert sum(view_distance(*case) < 1 for case in CASES) >= 4
    assert view_distance(2, 4, 5) < 0.2 < view_distance(2, 4, 4)


def test_a_shuffle_of_whole_numbers_shows_more_than_their_sum():
    """One share is the number itself: (0, 3) and (1, 2) have one sum, and are told apart."""
    assert distance(view((0, 3), 5, 1), view((1, 2), 5, 1)) == 1.0


def by_permutations(modulus: int, people: int, permutations: int) -> float:
    """E modulus^(C-1), C components, over all tuples of permutations."""
    total = count = 0
    for chosen in itertools.product(itertools.permutations(range(people)), repeat=permutations):
        parent = list(range(people))
        for order in chosen:
            for i, j in enumerate(order):
                old, new = parent[i], parent[j]
                parent = [new if p == old else p for p in parent]
        total += modulus ** (len(set(parent)) - 1)
        count += 1
    return total / count


@pytest.mark.parametrize("modulus, people, permutations", [
    (2, 2, 1), (3, 2, 4), (5, 3, 2), (2, 3, 3), (7, 3, 4), (3, 4, 2), (2, 4, 3),
])  # fmt: skip
def test_components_are_bounded_by_the_recurrence(modulus, people, permutations):
    exact = by_permutations(modulus, people, permutations) - 1
    bound = components_excess(modulus, people, permutations)
    assert exact <= bound <= exact * modulus / (modulus - 1) * 1.8


@pytest.mark.parametrize("modulus, permutations", [(4, 3), (2**20, 9), (2**30, 7)])
def test_large_crowds_are_bounded_as_small_ones_are(monkeypatch, modulus, permutations):
    """At 400 people: middle terms that are bounded together against all of them, one by one."""
    together = components_excess(modulus, 400, permutations)
    monkeypatch.setattr(module, "_LISTED", 500)
    one_by_one = components_excess(modulus, 400, permutations)
    assert one_by_one <= together <= 1.01 * one_by_one
    leading = modulus * 400.0 ** (1 - permutations)
    assert leading < one_by_one < 1.1 * leading


def test_closed_form_of_the_paper_is_met_with_fewer_shares():
    """m = ceil((2 s + log2 q)/(log2 n - log2 e) + 2) for a distance 2^-s."""
    for people, bits in ((1000, 20), (8000, 20), (80_000, 25), (800_000, 30)):
        printed = math.ceil((80 + bits) / (math.log2(people) - math.log2(math.e)) + 2)
        ours = shares_for(2**bits, people, 2.0**-40)
        assert printed - 2 <= ours <= printed
        assert view_distance(2**bits, people, ours - 1) > 2.0**-40
    with pytest.raises(ValueError, match="num_people must be more than 2: 256 shares"):
        shares_for(2**20, 2, 2.0**-130)


def law_of_views(codes: np.ndarray) -> dict[int, float]:
    kinds, counts = np.unique(codes, return_counts=True)
    return dict(zip(kinds.tolist(), (counts / len(codes)).tolist()))


def uniform_views(modulus: int, people: int, shares: int, total: int) -> dict[int, float]:
    """What is shown of uniform shares of a sum: on average over all numbers with that sum."""
    found: dict[int, float] = defaultdict(float)
    alike = [x for x in itertools.product(range(modulus), repeat=people)
             if sum(x) % modulus == total]  # fmt: skip
    for numbers in alike:
        for code, chance in law_of_views(view(numbers, modulus, shares)).items():
            found[code] += chance / len(alike)
    return found


@pytest.mark.parametrize("modulus, people, shares", CASES)
def test_chi_squared_of_any_numbers_is_within_the_excess(modulus, people, shares):
    """Relative to uniform shares of the same sum: the claim that a release is priced by."""
    bound = components_excess(modulus, people, shares - 1)
    for total in range(modulus):
        uniform = uniform_views(modulus, people, shares, total)
        worst = 0.0
        for numbers in itertools.combinations_with_replacement(range(modulus), people):
            if sum(numbers) % modulus == total:
                law = law_of_views(view(numbers, modulus, shares))
                worst = max(worst, sum(p**2 / uniform[code] for code, p in law.items()) - 1)
        assert 0 < worst <= bound


def test_densities_are_near_those_of_uniform_shares_but_for_the_chance():
    """Two people, eleven shares modulo 2, enumerated: what is near holds but for a chance x."""
    modulus, people, shares = 2, 2, 11
    apart = views_distance(modulus, people, shares, 1)
    assert 0.02 < apart < 1 / 16
    within = 2 * math.sqrt(apart)
    uniform = uniform_views(modulus, people, shares, 0)
    laws = [law_of_views(view(numbers, modulus, shares)) for numbers in ((0, 0), (1, 1))]
    near = {
        code for code, c in uniform.items()
        if all(abs(law.get(code, 0.0) / c - 1) <= within for law in laws)
    }  # fmt: skip
    for law in laws:
        assert 1 - sum(law.get(code, 0.0) for code in near) <= apart


def test_vectors_are_told_apart_by_the_root_of_their_length():
    one, many = (views_distance(2**24, 8000, 9, size) for size in (1, 1024))
    assert many == pytest.approx(32 * one, rel=1e-9)
    assert view_distance(2**24, 8000, 9) == pytest.approx(one, rel=1e-9)
    assert views_distance(2**24, 2, 9, 1) == math.inf


# What a sum with noise costs --------------------------------------------------------------------


def share_law(deviation: float) -> np.ndarray:
    reach = math.ceil(10 * deviation)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * deviation**2))
    return weights / weights.sum()


def sum_law(deviation: float, people: int) -> np.ndarray:
    found = share_law(deviation)
    for _ in range(people - 1):
        found = np.convolve(found, share_law(deviation))
    return found


def hockey_stick(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def moved(law: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
    return np.pad(law, (0, by)), np.pad(law, (by, 0))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("deviation, people, move", [(2.0, 16, 3), (3.0, 20, 8), (1.0, 30, 6)])
def test_delta_of_a_sum_is_that_of_its_law(deviation, people, move, epsilon):
    """One coordinate, by convolution: never under, and over by little more than 3 of variance."""
    exact = hockey_stick(*moved(sum_law(deviation, people), move), epsilon)
    bound = noisy_sum_losses(move, deviation, people, 1).delta(epsilon)
    variance = people * deviation**2
    wider = gaussian_delta(epsilon, move / math.sqrt(variance - 1.1 * ROUNDED_VARIANCE))
    assert exact <= bound <= wider


def test_delta_of_a_vector_is_bounded_by_its_length():
    """Two coordinates, moved by (6, 5): by the whole law of the plane."""
    law = sum_law(2.0, 18)
    (still, ahead), (down, up) = moved(law, 6), moved(law, 5)
    first, second = np.outer(still, down), np.outer(ahead, up)
    for epsilon in (0.5, 1.5):
        exact = hockey_stick(first, second, epsilon)
        found = noisy_sum_losses(math.hypot(6, 5), 2.0, 18, 2).delta(epsilon)
        assert exact <= found < 1.3 * exact


def test_coarse_noise_pays_for_its_ripples():
    """Deviation 1/2 in many coordinates: the sum of two is no Gaussian, and delta says so."""
    assert noisy_sum_losses(1.0, 0.5, 2, 1000).delta(1.0) == 1.0
    fine, coarse = (noisy_sum_losses(2.0, s, round(400 / s**2), 1) for s in (2.0, 0.7))
    assert coarse.apart > 1e-3 and fine.apart < 1e-15
    assert coarse.delta(1.0) > 1.01 * fine.delta(1.0)


@pytest.mark.parametrize("deviation, people", [(0.7, 12), (2.0, 16), (3.0, 40)])
def test_one_share_of_a_sum_is_nowhere_much_likelier_than_alone(deviation, people):
    """p_(n-1)(z - i)/p_n(z) <= 2 exp(|z i| / ((n - 1) s^2)): what `drawn_log_ratio` rests on."""
    one, fewer, all_of_them = (sum_law(deviation, n) for n in (1, people - 1, people))
    half, within = len(one) // 2, round(6 * math.sqrt(people) * deviation)
    worst = 0.0
    for z in range(-within, within + 1):
        i = np.arange(-half, half + 1)
        ratio = fewer[z - i + len(fewer) // 2] / all_of_them[z + len(all_of_them) // 2]
        bound = 2 * np.exp(np.abs(z * i) / ((people - 1) * deviation**2))
        worst = max(worst, float((ratio / bound).max()))
    assert 0.5 < worst <= 1


def test_tables_of_draws_cost_next_to_nothing_and_few_people_have_no_price():
    assert drawn_log_ratio(37.6, 8000, 16.0) < 1e-24
    assert drawn_log_ratio(2.0, 100, 16.0) < 1e-18
    assert drawn_log_ratio(2.0, 5, 16.0) == drawn_log_ratio(2.0, 1, 16.0) == math.inf
    assert noisy_sum_losses(1.0, 30.0, 5, 1).delta(1.0) == 1.0


def test_gaussian_delta_and_mu_are_inverse():
    for epsilon, delta in ((0.1, 1e-8), (1.0, 1e-6), (8.0, 1e-3)):
        assert gaussian_delta(epsilon, gaussian_mu(epsilon, delta)) == pytest.approx(delta)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_noise_and_shares_are_priced_together(epsilon):
    """All that is shown, noise included, by enumeration: 2 people, 3 shares modulo 5."""
    modulus, shares, noise = 5, 3, sum_law(0.8, 1)
    wrapped = np.bincount(
        (np.arange(len(noise)) - len(noise) // 2) % modulus, noise, minlength=modulus
    )

    def shown(numbers):
        law = defaultdict(float)
        for first, second in itertools.product(range(modulus), repeat=2):
            noisy = (numbers[0] + first) % modulus, (numbers[1] + second) % modulus
            chance = wrapped[first] * wrapped[second]
            codes, counts = np.unique(view(noisy, modulus, shares), return_counts=True)
            for code, count in zip(codes.tolist(), (counts / counts.sum()).tolist()):
                law[code] += chance * count
        return law

    def summed(numbers):
        both = np.zeros(modulus)
        for first, second in itertools.product(range(modulus), repeat=2):
            both[(sum(numbers) + first + second) % modulus] += wrapped[first] * wrapped[second]
        return both

    left, right = shown((0, 1)), shown((2, 1))
    exact = sum(max(0.0, p - math.exp(epsilon) * right[code]) for code, p in left.items())
    noise_alone = hockey_stick(summed((0, 1)), summed((2, 1)), epsilon)
    apart = worst_distance(modulus, 2, shares)
    assert noise_alone < exact <= noise_alone + (1 + math.exp(epsilon)) * apart


# Whole mechanisms -------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [16, 128, 784])
@pytest.mark.parametrize("people", [10_000, 100_000])
def test_squared_error_is_within_1_3_of_a_curators(dimension, people):
    """At equal proved epsilon and delta, with four fifths of the people honest and arriving."""
    mechanism = SplitAndMixMean.for_shuffle(dimension, 1.0, 1e-6, people, honest_fraction=0.8)
    honest = 8 * people // 10
    epsilon = split_and_mix_epsilon(mechanism, honest, 1e-6)
    assert 0.999 < epsilon <= 1.0
    assert split_and_mix_delta(mechanism, epsilon, honest) <= 1e-6
    curator = dimension * mechanism.curator_variance(1.0, 1e-6, people)
    assert 1.25 < mechanism.mean_squared_error(people) / curator < 1.28


def test_fewer_honest_people_cost_more_and_too_few_everything():
    mechanism = SplitAndMixMean.for_shuffle(16, 1.0, 1e-6, 1000)
    costs = [split_and_mix_epsilon(mechanism, n, 1e-6) for n in (1000, 800, 700)]
    assert costs[0] < costs[1] <= 1.0 < costs[2] < 1.2
    assert split_and_mix_epsilon(mechanism, 2, 1e-6) == math.inf
    assert split_and_mix_delta(mechanism, 1.0, 1) > 0.99
    assert split_and_mix_delta(mechanism, 1.0, 2) == 1.0
    chance = shares_of(mechanism, 800).losses.chance
    assert split_and_mix_delta(mechanism, 1e3, 800) == chance
    assert shares_epsilon(shares_of(mechanism, 800), 0.0) == math.inf


def test_targets_are_checked():
    mechanism = SplitAndMixMean(4)
    for wrong in (0.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
            split_and_mix_delta(mechanism, wrong, 100)
        with pytest.raises(ValueError, match=r"delta must lie in \(0, 1\)"):
            split_and_mix_epsilon(mechanism, 100, wrong)
