"""Prices of several shuffled messages, between concrete data sets and proved bounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.accounting import event_epsilon, shuffle_epsilon, shuffled_event
from beam_ldp.accounting.events import ShuffledMessagesDpEvent
from beam_ldp.accounting.shuffle.mean_price import messages_epsilon
from beam_ldp.accounting.shuffle.multi_message import multi_message_epsilon, witness_epsilon
from beam_ldp.accounting.shuffle.one_release import mean_epsilon
from beam_ldp.randomizers.mean import BinaryVectorMean, L1Mean, L2Mean, LInfMean
from beam_ldp.randomizers.mean.two_response import bit_means

pytestmark = pytest.mark.exact

DELTAS = (1e-2, 1e-4, 1e-7)


def counts_of_ones(chances):
    """Law of the number of ones among independent bits."""
    law = np.ones(1)
    for chance in chances:
        law = np.append(law, 0) * (1 - chance) + np.append(0, law) * chance
    return law


def product(laws):
    """Joint law of independent columns, flattened."""
    joint = np.ones(1)
    for law in laws:
        joint = np.outer(joint, law).reshape(-1)
    return joint


def exact_epsilon(first, second, delta):
    """The least epsilon at delta of two listed laws, either way round."""

    def enough(epsilon):
        sticks = [
            np.maximum(p - math.exp(epsilon) * q, 0).sum()
            for p, q in ((first, second), (second, first))
        ]
        return max(sticks) <= delta

    low, high = 0.0, 60.0
    if enough(0.0):
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def chances_of(mechanism, vectors):
    """Probability of a one per user and column, for mechanisms that sample no coordinates."""
    unit, layout = mechanism._encode(np.atleast_2d(vectors)), mechanism.layout
    parts = []
    for level in range(layout.num_levels):
        law = layout.law(level, 1)
        means = bit_means(unit, level, layout.num_levels)
        bits = law.flip_probability + law.contrast * means
        parts.append(np.tile(bits, layout.repeats(level)))
    return np.concatenate(parts, axis=1)


def laws_of(mechanism, victims, others):
    """What the reader sees, for each value of the victim: joint law of the columns' counts."""
    rest = chances_of(mechanism, others) if len(others) else None
    found = []
    for bits in chances_of(mechanism, victims):
        columns = np.vstack([bits, rest]) if rest is not None else bits[None]
        found.append(product([counts_of_ones(column) for column in columns.T]))
    return found


SMALL = [
    (LInfMean(2, 2.0, messages=(2,), message_epsilons=(1.0,)), 2.0),
    (LInfMean(1, 3.0, messages=(1, 1), message_epsilons=(2.0, 1.0)), 3.0),
    (BinaryVectorMean(3, 2.4, messages=(3,), message_epsilons=(0.8,)), 2.4),
    (L1Mean(2, 3.0, messages=(2,), message_epsilons=(1.5,)), 3.0),
    (L2Mean(2, 3.0, messages=(2,), message_epsilons=(1.5,), cutoff=1.2), 3.0),
    (L2Mean(1, 2.5, messages=(2,), message_epsilons=(1.25,), cutoff=1.0), 2.5),
]


def corners(mechanism):
    """Vectors on the border of the ball, and within."""
    d = mechanism.dimension
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    if mechanism.norm == "binary":
        return (signs + 1) / 2
    if mechanism.norm == "linf":
        return np.vstack([signs, np.zeros(d)])
    angles = np.linspace(0, 2 * math.pi, 9)[:-1]
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :d]
    if mechanism.norm == "l1":
        around = np.vstack([np.eye(d), -np.eye(d)])
    return np.vstack([around, np.zeros(d)])


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(("mechanism", "budget"), SMALL)
def test_the_truth_lies_between_the_bounds(mechanism, budget, n):
    """Every data set of the others from a list, every pair of the victim's vectors: enumerated."""
    values = corners(mechanism)
    worst = {delta: 0.0 for delta in DELTAS}
    for chosen in itertools.combinations_with_replacement(range(len(values)), min(n - 1, 1)):
        # The others all alike, or half of them each way.
        for mix in ((1, 1), (1, -1)):
            others = [values[chosen[0]] * mix[i % 2] for i in range(n - 1)] if chosen else []
            if mechanism.norm == "binary" and mix[1] < 0:
                continue
            laws = laws_of(mechanism, values, np.array(others))
            for first, second in itertools.combinations(laws, 2):
                for delta in DELTAS:
                    worst[delta] = max(worst[delta], exact_epsilon(first, second, delta))
    for delta in DELTAS:
        price = mean_epsilon(mechanism, n, delta)
        assert price.lower <= worst[delta] * (1 + 1e-9) + 1e-12
        assert worst[delta] <= price * (1 + 1e-9)
        assert price <= budget
        if n > 1 and delta == 1e-4:
            assert price.lower > 0.6 * worst[delta], "the witness is nearly the worst"


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize(
    "witness", [((2, 0.7, 0.3),), ((1, 0.8, 0.2), (2, 0.65, 0.35)), ((3, 0.9, 0.4),)]
)
def test_the_lower_bound_is_below_its_own_pair_and_close(witness, n):
    def joint(victim):
        return product(
            [
                counts_of_ones([chances[victim], *[chances[1]] * (n - 1)])
                for count, *chances in witness
                for _ in range(count)
            ]
        )

    for delta in DELTAS:
        truth = exact_epsilon(joint(0), joint(1), delta)
        found = witness_epsilon(witness, n, delta)
        assert 0.93 * truth <= found <= truth * (1 + 1e-9)


@pytest.mark.parametrize(
    ("cls", "levels"),
    [(BinaryVectorMean, 1), *itertools.product((L1Mean, L2Mean, LInfMean), (1, 3))],
)
def test_the_witness_is_what_the_mechanism_does(cls, levels):
    """Bits of the two vectors, sign by sign, against the probabilities that are named."""
    mechanism = cls(5, 9.0, messages=(4,) * levels, message_epsilons=(0.7,) * levels)
    first, second = np.zeros((2, 5))
    first[: 1 if mechanism.rotates else None] = 1.0
    second = np.zeros(5) if cls is BinaryVectorMean else -first
    unit = mechanism._encode(np.stack([first, second]))
    named = mechanism.message_witness()
    assert sum(count for count, *_ in named) <= mechanism.messages_per_user
    for level in range(levels):
        law = mechanism.layout.law(level, 1)
        one, other = bit_means(unit, level, levels)
        up = law.flip_probability + law.contrast * np.maximum(one, other)
        down = law.flip_probability + law.contrast * np.minimum(one, other)
        assert np.ptp(up) < 1e-12 and up[0] + down[0] == pytest.approx(1.0)
        assert any(a == pytest.approx(up[0]) and b == pytest.approx(down[0]) for _, a, b in named)


def test_l2_names_vectors_that_exist():
    """All length where bits flip in full: the vector is built, and lies in the ball."""
    mechanism = L2Mean.for_shuffle(784, 1.0, 1e-8, 100_000)
    ((columns, first, second),) = mechanism.message_witness()
    law = mechanism.layout.law(0, 1)
    assert second == law.flip_probability and first == 1 - second
    coordinates = columns // mechanism.layout.repeats(0)
    rotated = np.zeros(1024)
    rotated[: coordinates // 2] = rotated[512 : 512 + coordinates // 2] = mechanism._half_range
    vector = mechanism._rotate_back(rotated[None])[0]
    assert np.linalg.norm(vector) <= 1.0
    unit = mechanism._encode(np.stack([vector, -vector]))
    assert np.allclose(unit[0, rotated > 0], 1.0) and np.allclose(unit[1, rotated > 0], 0.0)
    assert np.allclose(unit[:, rotated == 0], 0.5)
    squared = ((unit[0] - unit[1]) ** 2).sum() * mechanism.layout.repeats(0)
    assert squared <= mechanism.squared_change
    price = mean_epsilon(mechanism, 100_000, 1e-8)
    assert 0.65 < price.lower < price <= 1.0
    assert price.lower_method == "one vector against its opposite, which all others hold"


def test_padded_blocks_name_nothing():
    text = LInfMean(10, 4.0, preset="thesis")
    assert text.message_witness() == ()
    price = mean_epsilon(text, 1000, 1e-6)
    assert price.lower == 0.0 and price.lower_method.startswith("none")


def test_every_way_to_ask_gives_the_same_price():
    mechanism = LInfMean.for_shuffle(8, 1.0, 1e-6, 3000)
    event = shuffled_event(mechanism, 3000)
    price = mean_epsilon(mechanism, 3000, 1e-6)
    for same in (
        shuffle_epsilon(mechanism, 3000, 1e-6),
        event_epsilon(event, 1e-6),
        messages_epsilon(event, 1e-6),
    ):
        assert same == price and same.lower == price.lower > 0.75
    assert price == multi_message_epsilon(event.messages, 3000, 1e-6, "bits")
    assert mean_epsilon(mechanism, 3000, 0.0) == mechanism.local_epsilon


def test_the_general_price_stays_a_choice_where_length_says_little():
    """Half of the bits may flip or more: both prices are computed and the smaller one is taken."""
    mechanism = L2Mean(16, 8.0, messages=(16,), message_epsilons=(0.5,), cutoff=1.1)
    price = mean_epsilon(mechanism, 3000, 1e-6)
    ways = [mean_epsilon(mechanism, 3000, 1e-6, method) for method in ("l2", "bits")]
    assert price == min(ways) and price.lower <= min(ways)


def test_a_witness_that_contradicts_its_messages_is_an_error_and_no_price():
    event = ShuffledMessagesDpEvent(((3, 0.5),), 1000, witness=((300, 0.9, 0.1),))
    with pytest.raises(ArithmeticError, match="contradict"):
        messages_epsilon(event, 1e-6)


def test_events_without_a_witness_and_wrong_ones():
    event = ShuffledMessagesDpEvent(((3, 0.5),), 1000)
    assert messages_epsilon(event, 1e-6).lower == 0.0
    for wrong in (((0, 0.6, 0.4),), ((1, 1.0, 0.4),), ((1, 0.6, 0.0),)):
        with pytest.raises(ValueError, match="witness"):
            ShuffledMessagesDpEvent(((3, 0.5),), 1000, witness=wrong)
