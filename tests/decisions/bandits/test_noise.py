"""Noise of rewards: exact channels and densities, and sums drawn in law beside drawn ones."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from beam_ldp.accounting import shuffle_delta, shuffle_epsilon
from beam_ldp.accounting.schedule_prices import feldman_2021_epsilon
from beam_ldp.decisions.bandits.noise import RewardNoise, batch_epsilon, bit_randomizer


@pytest.mark.parametrize("kind", ["sum", "laplace"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_laplace_noise_of_the_text_costs_twice_its_epsilon(kind, epsilon):
    # The density of a report (or sum) at rewards of -1 and 1, everybody else's being equal.
    for sensitivity, cost in ((2.0, epsilon), (1.0, 2 * epsilon)):
        noise = RewardNoise(kind, epsilon, sensitivity)
        law = stats.laplace(scale=noise.laplace_scale)
        outputs = np.linspace(-9, 9, 1801)
        ratio = np.abs(law.logpdf(outputs - 1) - law.logpdf(outputs + 1)).max()
        assert ratio == pytest.approx(cost, rel=1e-9)
        assert noise.log_ratio_max() == pytest.approx(ratio)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 7.9])
def test_the_channel_of_a_bit_keeps_its_epsilon_exactly(epsilon):
    noise, channel = RewardNoise("bit", epsilon), bit_randomizer(epsilon).channel()
    worst = math.log((channel.max(axis=0) / channel.min(axis=0)).max())
    assert epsilon * (1 - 1e-8) <= worst <= epsilon * (1 + 1e-15)
    assert noise.log_ratio_max() == pytest.approx(worst, rel=1e-12)
    # Unbiased at -1 and 1 by the implemented channel; rounding in between is linear.
    assert noise.bound * channel @ [-1, 1] == pytest.approx([-1, 1], rel=1e-12)


@pytest.mark.parametrize("epsilon", np.geomspace(0.01, 8, 12))
def test_a_bit_is_less_noise_than_a_laplace_report(epsilon):
    bit, laplace = RewardNoise("bit", epsilon), RewardNoise("laplace", epsilon)
    assert bit.bound == pytest.approx(1 / math.tanh(epsilon / 2))
    assert bit.bound**2 < 1 + 2 * laplace.laplace_scale**2  # of a reward of -1 or 1


@pytest.mark.parametrize("kind", ["none", "sum", "laplace", "bit"])
def test_sums_in_law_are_those_of_single_people(kind):
    noise = RewardNoise(kind, None if kind == "none" else 0.8)
    rng, means, counts = np.random.default_rng(3), np.array([0.3, -0.8]), np.array([40, 25])
    slots = np.repeat([0, 1], counts)
    one_by_one = []
    for _ in range(1500):
        rewards = np.where(rng.random(65) < (1 + means[slots]) / 2, 1.0, -1.0)
        one_by_one.append(noise.sums(noise.reports(rewards, rng), slots, 2, rng))
    people = np.array(one_by_one).round(9)  # sums of bits differ in their last digit
    law = np.array([noise.sums_in_law(counts, means, rng) for _ in range(20_000)]).round(9)
    for action in range(2):
        error = law[:, action].std() * math.sqrt(1 / 1500 + 1 / 20_000)
        assert abs(people[:, action].mean() - law[:, action].mean()) < 4 * error
        assert abs(law[:, action].mean() - means[action] * counts[action]) < 4 * error
        assert people[:, action].var() == pytest.approx(law[:, action].var(), rel=0.17)
        assert stats.ks_2samp(people[:, action], law[:, action]).pvalue > 1e-3


def test_the_variance_in_law_is_the_exact_one():
    counts, means = np.array([5000]), np.array([0.5])
    exact = {
        "none": 0.75, "sum": 0.75 + 2 * 4**2 / 5000, "laplace": 0.75 + 2 * 4**2,
        "bit": 1 / math.tanh(0.25) ** 2 - 0.25,
    }  # fmt: skip
    for kind, variance in exact.items():
        noise, rng = RewardNoise(kind, None if kind == "none" else 0.5), np.random.default_rng(1)
        drawn = [noise.sums_in_law(counts, means, rng)[0] for _ in range(8000)]
        assert np.var(drawn) == pytest.approx(5000 * variance, rel=4 * math.sqrt(2 / 8000))


def test_rewards_are_clipped_before_noise():
    rng = np.random.default_rng(0)
    assert RewardNoise("sum", 1.0).reports([-7.0, 0.25, 3.0]).tolist() == [-1, 0.25, 1]
    noise = RewardNoise("laplace", 1.0)
    same = noise.reports([1.0], np.random.default_rng(0)), noise.reports([50.0], rng)
    assert same[0] == same[1]
    bits = RewardNoise("bit", 1.0).reports(np.full(100, 99.0))
    assert set(np.round(bits, 9)) <= {round(s / math.tanh(0.5), 9) for s in (-1, 1)}


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_rewards_that_are_no_numbers_are_refused(reward):
    with pytest.raises(ValueError, match="rewards must be finite numbers"):
        RewardNoise("bit", 1.0).reports([0.0, reward])


def test_refusals():
    with pytest.raises(ValueError, match="rng must be given: Laplace reports are simulations"):
        RewardNoise("laplace", 1.0).reports([0.0])
    with pytest.raises(ValueError, match="sensitivity of a release must be 2, got 1"):
        RewardNoise("sum", 1.0, 1.0).sums([0.0], [0], 1)
    with pytest.raises(ValueError, match="kind must be one of none, sum, laplace, bit"):
        RewardNoise("gauss", 1.0)
    with pytest.raises(ValueError, match="epsilon goes with every kind"):
        RewardNoise("none", 1.0)
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        RewardNoise("bit", 0.0)


# Which local epsilon a shuffled batch may use -----------------------------------------------------


DELTA = 1e-6


@pytest.mark.parametrize(
    ("people", "local", "central"),
    [
        (1000, 0.2, 0.104020), (10_000, 1.0, 0.214026), (10**5, 2.0, 0.186189),
        (650_000, 5.0, 0.383093),
    ],
)  # fmt: skip
def test_closed_form_of_the_specification(people, local, central):
    assert feldman_2021_epsilon(local, people, DELTA) == pytest.approx(central, abs=5e-7)


@pytest.mark.parametrize(
    ("epsilon", "people", "closed", "numeric"),
    [
        (0.1, 1000, 0.193, 0.651), (0.1, 10**5, 1.274, 3.118), (0.5, 1000, 0.887, 1.902),
        (0.5, 10**5, 3.842, 5.917), (1.0, 1000, 1.414, 2.724), (1.0, 10**5, 5.701, 7.070),
        (2.0, 1000, 2.000, 3.449), (1.0, 650_000, 7.561, 8.939),
    ],
)  # fmt: skip
def test_local_epsilons_of_the_specification(epsilon, people, closed, numeric):
    assert batch_epsilon(epsilon, DELTA, people, "closed-form") == pytest.approx(closed, abs=6e-4)
    assert batch_epsilon(epsilon, DELTA, people, "clones") == pytest.approx(numeric, abs=6e-4)
    bit = batch_epsilon(epsilon, DELTA, people, "bit")
    assert bit > numeric + 0.05
    assert shuffle_epsilon(bit_randomizer(bit), people, DELTA) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("people", "local", "epsilon", "delta"),
    [
        (100, 1.0, 0.4, 2.8403e-4), (100, 1.0, 0.6, 3.1246e-6), (1000, 3.0, 1.0, 2.0837e-5),
        (50, 2.0, 1.5, 1.11902e-2), (300, 1.8, 0.5, 7.2966e-4),
    ],
)  # fmt: skip
def test_deltas_of_the_specification_and_by_brute_force(people, local, epsilon, delta):
    found = float(shuffle_delta(local, people, epsilon))
    assert found == pytest.approx(delta, rel=3e-4)
    if people <= 300:
        assert found == pytest.approx(brute_force(people, local, epsilon), rel=1e-4)


def brute_force(people: int, local: float, epsilon: float) -> float:
    """The clone pair, summed over all numbers of clones and of ones among them."""
    own, total = 1 / (1 + math.exp(-local)), 0.0
    for clones in range(people):
        ones = np.arange(clones + 2)
        fair = stats.binom(clones, 0.5)
        without, more = fair.pmf(ones), fair.pmf(ones - 1)
        first, second = own * without + (1 - own) * more, (1 - own) * without + own * more
        chance = stats.binom.pmf(clones, people - 1, math.exp(-local))
        total += chance * np.maximum(first - math.exp(epsilon) * second, 0).sum()
    return total


@pytest.mark.parametrize("accountant", ["bit", "clones", "closed-form"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_no_batch_asks_for_less_than_its_central_epsilon(accountant, epsilon):
    found = [batch_epsilon(epsilon, DELTA, n, accountant) for n in (1, 30, 242, 1000)]
    assert epsilon <= found[0] <= epsilon * (1 + 1e-5)  # delta alone lets a little more pass
    assert found == sorted(found)
    if accountant == "closed-form":
        assert found[2] == epsilon  # nothing is amplified below 243 reports
        raw = math.log1p(math.tanh(0.23) * (8 * math.sqrt(math.exp(0.46) * math.log(4e6) / 30)
                                            + 8 * math.exp(0.46) / 30))  # fmt: skip
        assert raw == pytest.approx(1.0, abs=0.01)  # the text's inverse at 30 reports: 0.46 for 1


@pytest.mark.parametrize(("epsilon", "shown"), [(3.0, 0.17), (2.0, 2.4e-5)])
def test_the_inverse_of_the_text_leaves_its_theorems_range(epsilon, shown):
    def excess(local: float) -> float:
        crowd = 1000 / math.exp(local)
        step = 8 * math.sqrt(math.log(4 / DELTA) / crowd) + 8 / crowd
        return math.log1p(math.tanh(local / 2) * step) - epsilon

    printed = brentq(excess, 1.0, 9.0)  # at 1000 reports
    told = float(shuffle_delta(printed, 1000, epsilon))
    assert told == pytest.approx(shown, rel=0.03)
    assert told > 20 * DELTA
    assert batch_epsilon(epsilon, DELTA, 1000, "closed-form") == epsilon


def transcript(outcomes: np.ndarray, local: float, secret: bool) -> np.ndarray:
    """Law of (bit at each slot) for people's outcomes[person, slot] of -1 or 1, by enumeration."""
    people = len(outcomes)
    truthful = math.exp(local) / (1 + math.exp(local))
    assignments = list(itertools.permutations(range(people))) if secret else [range(people)]
    law = np.zeros(2**people)
    for assigned in assignments:
        for code, bits in enumerate(itertools.product((-1, 1), repeat=people)):
            agree = [outcomes[p, s] == bits[s] for s, p in enumerate(assigned)]
            law[code] += np.prod(np.where(agree, truthful, 1 - truthful)) / len(assignments)
    return law


@pytest.mark.parametrize("local", [0.7, 2.0])
def test_a_secret_assignment_hides_outcomes_among_different_actions(local):
    # Every pair of outcome functions of one person, and of the others: three people, three actions.
    people, worst = 3, 0.0
    functions = [np.array(f) for f in itertools.product((-1, 1), repeat=people)]
    epsilon = 0.6 * local
    promised = float(shuffle_delta(bit_randomizer(local), people, epsilon))
    for others in itertools.combinations_with_replacement(functions, people - 1):
        laws = [transcript(np.array([mine, *others]), local, True) for mine in functions]
        for first, second in itertools.permutations(laws, 2):
            worst = max(worst, np.maximum(first - math.exp(epsilon) * second, 0).sum())
    assert 0 < worst <= promised * (1 + 1e-9)


def test_public_assignments_hide_nobody_among_other_actions():
    local, epsilon = 2.0, 1.2
    others = np.array([[1, 1, -1], [-1, 1, 1]])
    first, second = (transcript(np.vstack([np.full(3, mine), others]), local, False)
                     for mine in (1, -1))  # fmt: skip
    told = np.maximum(first - math.exp(epsilon) * second, 0).sum()
    assert told > float(shuffle_delta(bit_randomizer(local), 3, epsilon)) * 1.2
    assert math.log((first / second).max()) == pytest.approx(local)


def test_refusals_of_amplification():
    with pytest.raises(ValueError, match="accountant must be one of bit, clones, closed-form"):
        batch_epsilon(1.0, DELTA, 100, "renyi")
    with pytest.raises(ValueError, match="people must be an integer >= 1"):
        batch_epsilon(1.0, DELTA, 0, "bit")
