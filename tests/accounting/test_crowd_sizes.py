"""Crowds of random sizes: public rows against every data set, and sizes against a binomial law."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import attr
import numpy as np
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    event_epsilon,
    shuffle_delta,
    shuffle_epsilon,
    shuffle_epsilons,
    shuffled_event,
)
from beam_ldp.accounting.divergences.bit_counts import (
    Bit,
    bit_epsilon,
    bit_log_deltas,
    sizes_that_matter,
)
from beam_ldp.accounting.divergences.crowd_sizes import CrowdSizes, mean_reciprocal, of_groups
from beam_ldp.accounting.divergences.hockey_stick import epsilon_bounds, hockey_stick
from beam_ldp.accounting.shuffle.one_release import local_event
from beam_ldp.randomizers.frequency import BinaryHadamard, LimitedHadamard
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from tests.accounting.brute_force import Pairs, public_pairs

pytestmark = pytest.mark.exact

ORDERS = (1.5, 2.0, 8.0, 40.0)
PEOPLE = [1, 2, 3, 4, 5, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 7, 8))]


def tables(oracle) -> np.ndarray:
    """Of each row, the law of its bit: `[row, value, bit]`."""
    channel = oracle.channel()[: 2 * oracle.num_rows].reshape(oracle.num_rows, 2, -1)
    return np.swapaxes(channel / channel.sum(axis=1, keepdims=True), 1, 2)


@pytest.mark.parametrize("people", PEOPLE)
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("budget", [0.5, 2.0, 4.0])
def test_public_rows_of_every_data_set(k, budget, people):
    """Twelve epsilons, four orders and two rounds; both directions are among the exchanges."""
    oracle = BinaryHadamard(k, budget, row="public")
    pairs, event = public_pairs(tables(oracle), people), shuffled_event(oracle, people)
    for epsilon in np.linspace(0.0, budget, 12):
        truth, found = pairs.sticks([epsilon])[0], shuffle_delta(oracle, people, epsilon)
        assert found.lower <= truth * (1 + 1e-9) + 1e-15
        assert truth <= found * (1 + 1e-9) + 1e-15
    accountant = ShuffleAccountant(orders=list(ORDERS)).compose(event)
    assert np.all(pairs.renyi(ORDERS) <= accountant.divergences() * (1 + 1e-9))
    if people > 3:
        return
    twice, both = ShuffleAccountant().compose(event, 2), pairs.times(pairs)
    for delta in (0.1, 1e-3):
        epsilon = twice.get_epsilon(delta)
        assert both.sticks([epsilon])[0] <= delta * (1 + 1e-9)
        assert both.sticks([epsilon.lower])[0] >= delta * (1 - 1e-9) or epsilon.lower == 0.0


def test_a_smaller_share_would_be_too_little():
    oracle, people, epsilon = BinaryHadamard(4, 2.0, row="public"), 2, 1.0
    truth = public_pairs(tables(oracle), people).sticks([epsilon])[0]
    crowd = of_groups(people, oracle.public_groups, oracle.telling_groups)
    pair = oracle.dominating_pair()
    assert truth == pytest.approx(hockey_stick(pair, crowd, epsilon).upper, rel=1e-6)
    less = crowd._replace(share=0.99 * crowd.share)
    assert hockey_stick(pair, less, epsilon).upper < truth


def test_the_judge_of_groups_counts_whole_assignments():
    """Three people in three groups: all 27 assignments, with the histograms of all groups."""
    rows = tables(BinaryHadamard(4, 1.0, row="public"))

    def law(data: tuple[int, ...]) -> np.ndarray:
        found = []
        for where in itertools.product(range(3), repeat=3):
            views = [np.ones(1)]
            for group in range(3):
                held = [x for x, at in zip(data, where, strict=True) if at == group]
                ones = np.ones(1)
                for value in held:
                    ones = np.convolve(ones, rows[group, value])
                views.append(ones)
            whole = views[0]
            for view in views[1:]:
                whole = np.outer(whole, view).ravel()
            found.append(whole / 27)
        return np.concatenate(found)

    for others in ((0, 0), (0, 3), (2, 1)):
        exact = Pairs(law((0, *others))[None], law((1, *others))[None])
        pairs = public_pairs(rows, 3)
        near = np.min(np.abs(pairs.first - pairs.second).sum(axis=1))
        assert near > 0
        sticks = np.sum(np.maximum(pairs.first - math.e**0.3 * pairs.second, 0), axis=1)
        assert np.min(np.abs(sticks - exact.sticks([0.3])[0])) < 1e-14


@pytest.mark.parametrize(
    ("k", "budget", "people", "delta", "was", "mixture", "exact"),
    [
        (16, 1.0, 10**4, 1e-6, 0.2180, 0.1856, 0.1533),
        (100, 2.0, 10**5, 1e-6, 0.5369, 0.4555, 0.3595),
        (1000, 1.0, 10**6, 1e-8, 0.2209, 0.1918, 0.1611),
        (1000, 3.0, 10**7, 1e-8, 0.3012, 0.2886, 0.2138),
    ],
)
def test_goldens_of_public_rows(k, budget, people, delta, was, mixture, exact):
    """The mean over sizes, and beside it what the smallest group cost; then the rows that tell, and
    the bit that a row is."""
    oracle = BinaryHadamard(k, budget, row="public")
    pair, groups = oracle.dominating_pair(), oracle.public_groups
    low, high = epsilon_bounds(pair, of_groups(people, groups), delta)
    assert high == pytest.approx(mixture, rel=8e-4) and 0.994 * high < low < high
    blanket = attr.evolve(local_event(oracle), outputs=0)
    price = shuffle_epsilon(blanket, people, delta)
    assert price < 0.975 * high and was / price > 1.07
    telling = Fraction(groups + 1, 2 * groups)
    inner = shuffle_delta(LocalRandomizerDpEvent(budget, pair, (), groups), people, float(price))
    assert float(telling * Fraction(inner)) == pytest.approx(delta, rel=1e-6)
    found = shuffle_epsilon(oracle, people, delta)  # in twice the blocks of the golden
    assert (
        found < exact < 1.005 * found < 1.01 * exact and found.lower < found < 1.006 * found.lower
    )
    assert found.method == "one bit, all data sets"
    assert shuffle_epsilons([oracle], people, delta)[0] == pytest.approx(found, rel=1e-12)
    assert shuffle_delta(oracle, people, float(found)) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("outputs", "golden", "above"), [(0, 1.2213, 1.4), (2, 0.93846, 1.04)])
def test_rounds_of_public_rows(outputs, golden, above):
    """Ten rounds cost less than ten of the smallest group did: 1.8188."""
    event = shuffled_event(BinaryHadamard(100, 2.0, row="public"), 10**5)
    event = attr.evolve(event, local_event=attr.evolve(event.local_event, outputs=outputs))
    found = ShuffleAccountant().compose(event, 10).get_epsilon(1e-6)
    assert found == pytest.approx(golden, rel=1e-3) and found / above < found.lower < found


def test_a_bit_of_any_size_is_no_cheaper_than_any_data_set_and_close():
    """Of two directions; sizes that hardly matter are left to the next below."""
    bit, crowd = Bit(0.7, 0.2), of_groups(400, 9)
    at = np.array([0.0, 0.1, 0.4, 0.8, 1.2])
    logs = bit_log_deltas(bit, crowd, at)
    each = np.array([bit_log_deltas(bit, size, at) for size in crowd.sizes])
    assert np.all(logs >= crowd.above(each) - 1e-12)
    assert np.all(logs <= crowd.above(each) + 5e-4)
    assert not sizes_that_matter(bit, crowd, at).all()
    assert bit_epsilon(bit, crowd, 0.1) == (0.0, 0.0)
    for delta in (0.05, 1e-3, 1e-8):
        lower, upper = bit_epsilon(bit, crowd, delta)
        assert lower == 0.0 and bit_log_deltas(bit, crowd, np.array([upper]))[0] <= math.log(delta)
        less = bit_log_deltas(bit, crowd, np.array([0.999 * upper]))[0]
        assert less > math.log(delta) or upper == pytest.approx(bit.directions[0].top, rel=1e-2)


def test_answers_of_limited_randomness_in_public_rows():
    """Only who answers is in a group, and half of the rows tell."""
    oracle = LimitedHadamard(16, 1.0, 0.4, "timeshare", row="public")
    event = shuffled_event(oracle, 10**5)
    price = event_epsilon(event, 1e-6)
    assert event.local_event.telling_groups < event.local_event.public_groups / 2
    whole = LocalRandomizerDpEvent(1.0, oracle.dominating_pair(), (), oracle.public_groups)
    assert price < event_epsilon(whole.shuffled(10**5), 1e-6) < 1.0


# Sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("people", "groups"), [(1, 3), (2, 3), (9, 2), (60, 4), (900, 5), (400, 40)]
)
@pytest.mark.parametrize("steps", [5, 60])
def test_sizes_are_a_binomials(people, groups, steps):
    """By whole numbers: no block is likelier than said, nor less by more than a rounding."""
    crowd = of_groups(people, groups, None, steps)
    ways = [math.comb(people - 1, j) * (groups - 1) ** (people - 1 - j) for j in range(people)]
    ends = [*crowd.sizes[1:], people + 1]
    assert crowd.sizes[0] == 1 and crowd.most == people
    for first, end, log in zip(crowd.sizes, ends, crowd.log_chances, strict=True):
        exact = math.log(sum(ways[first - 1 : end - 1])) - (people - 1) * math.log(groups)
        assert log >= exact - 1e-12
        assert log <= exact + (1e-7 if exact > -600 else 0.1 * abs(exact) + 9)


def test_sizes_of_many_people_hold_all_that_is_likely():
    for people, groups in ((10**6, 1023), (10**9, 7), (10**12, 3)):
        crowd = of_groups(people, groups)
        assert sum(map(math.exp, crowd.log_chances)) == pytest.approx(1.0, abs=1e-7)
        assert mean_reciprocal(crowd) == pytest.approx(groups / people, rel=0.01)
        assert len(crowd.sizes) < 80


def test_an_average_lies_between_those_at_both_ends():
    """Blocks of several sizes: from above at the least of each, from below at the next."""
    crowd = CrowdSizes((1, 4, 5), tuple(np.log([0.25, 0.5, 0.25])), 9, 0.5)
    log = crowd.averaged(lambda sizes: (-np.log(sizes), -np.log(sizes)))
    low, high = np.exp(log)
    assert high == pytest.approx(0.5 * (0.25 / 1 + 0.5 / 4 + 0.25 / 5))
    assert low == pytest.approx(0.5 * (0.25 / 4 + 0.5 / 4), rel=1e-6)


def test_no_sample_has_a_crowd_by_chance():
    with pytest.raises(ValueError, match="rate must be 1 where num_reports is a matter of chance"):
        hockey_stick(ShufflePair.clones(1.0), of_groups(100, 3), 0.1, rate=0.5)
