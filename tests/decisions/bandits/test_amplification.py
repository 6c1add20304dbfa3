"""Local epsilons of shuffled batches: the specification's table, the floor, and tiny batches."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from beam_ldp.accounting import shuffle_delta, shuffle_epsilon
from beam_ldp.accounting.schedule_prices import feldman_2021_epsilon
from beam_ldp.decisions.bandits.amplification import batch_epsilon
from beam_ldp.decisions.bandits.noise import bit_randomizer

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


def test_refusals():
    with pytest.raises(ValueError, match="accountant must be one of bit, clones, closed-form"):
        batch_epsilon(1.0, DELTA, 100, "renyi")
    with pytest.raises(ValueError, match="people must be an integer >= 1"):
        batch_epsilon(1.0, DELTA, 0, "bit")
