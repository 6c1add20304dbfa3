"""The table that a randomizer gives the accountant: built right, and refused when wrong."""

from __future__ import annotations

import math
import pickle
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers.shuffle_pair import (
    ShufflePair,
    two_level_witnesses,
    witness_from_channel,
)

pytestmark = pytest.mark.exact

HALVES = ((1.5, 0.5), (0.5, 1.5))


def subset_channel(size: int, chosen: int, ratio: float) -> np.ndarray:
    """Reports are the subsets with `chosen` members; a value favours those that contain it."""
    sets = list(combinations(range(size), chosen))
    table = np.array([[ratio if x in s else 1.0 for x in range(size)] for s in sets])
    return table / table.sum(axis=0)


def law(pair: ShufflePair) -> dict[tuple[float, float], float]:
    found: dict[tuple[float, float], float] = {}
    for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True):
        key = (round(first, 9), round(second, 9))
        found[key] = found.get(key, 0.0) + p
    return found


def assert_same(one: ShufflePair, two: ShufflePair) -> None:
    assert one.blanket_mass == pytest.approx(two.blanket_mass, rel=1e-12)
    assert law(one) == pytest.approx(law(two), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"blanket_mass": 0.0}, "blanket_mass"),
        ({"blanket_mass": 1.5}, "blanket_mass"),
        ({"blanket_mass": math.nan}, "blanket_mass"),
        ({"probabilities": (0.5, 0.6)}, "probabilities must sum"),
        ({"probabilities": (1.5, -0.5)}, "probabilities must be"),
        ({"probabilities": (1.0,)}, "equal length"),
        ({"probabilities": (math.nan, 0.5)}, "probabilities"),
        ({"ratios": ((1.5, 0.5), (0.5, 1.6))}, "mean 1"),
        ({"ratios": ((1.6, 0.5), (0.5, 1.5))}, "mean 1"),
        ({"ratios": ((math.inf, 0.5), (0.5, 1.5))}, "finite"),
        ({"ratios": ((-0.5, 0.5), (2.5, 1.5))}, "finite and >= 0"),
        ({"blanket_mass": 0.6}, "contains the blanket"),
        ({"proof_status": "hoped"}, "proof_status"),
    ],
)
def test_wrong_tables_are_refused(change, named):
    good = {"blanket_mass": 0.5, "ratios": HALVES, "probabilities": (0.5, 0.5)}
    ShufflePair(**good)
    with pytest.raises(ValueError, match=named):
        ShufflePair(**{**good, **change})


def test_a_witness_may_have_ratios_below_its_mass():
    assert ShufflePair(1.0, HALVES, (0.5, 0.5)).is_witness


def test_pairs_are_values():
    pair = ShufflePair.clones(2.0)
    assert pickle.loads(pickle.dumps(pair)) == pair
    assert hash(ShufflePair.clones(2.0)) == hash(pair)
    assert pair.swapped().swapped() == pair
    with pytest.raises(AttributeError):
        pair.blanket_mass = 0.5


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 6.0, 30.0])
def test_clones(epsilon):
    growth = math.exp(epsilon)
    weak, strong = ShufflePair.clones(epsilon), ShufflePair.clones(epsilon, strong=True)
    assert weak.blanket_mass == pytest.approx(1 / growth, rel=1e-14)
    assert strong.blanket_mass == pytest.approx(2 / (growth + 1), rel=1e-14)
    assert weak.ratios == strong.ratios
    assert weak.ratios[0] == pytest.approx((2 * growth / (growth + 1), 2 / (growth + 1)))
    assert (weak.proof_status, strong.proof_status) == ("proved", "conjectured")


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_clones_need_a_budget(epsilon):
    with pytest.raises(ValueError, match="local_epsilon"):
        ShufflePair.clones(epsilon)


def test_halves_without_overlap_are_the_strong_clones():
    assert_same(
        ShufflePair.two_level(math.exp(1.3), 0.5, 0.0, ""), ShufflePair.clones(1.3, strong=True)
    )


@pytest.mark.parametrize(("size", "chosen"), [(3, 1), (5, 1), (5, 2), (6, 3), (4, 2)])
def test_two_levels_equal_the_dense_channel(size, chosen):
    """Blanket, ratios and witnesses of subset selection, from counting and from the channel."""
    ratio = 7.0
    channel = subset_channel(size, chosen, ratio)
    total = channel.shape[0]
    support = math.comb(size - 1, chosen - 1) / total
    overlap = math.comb(size - 2, chosen - 2) / total if chosen > 1 else 0.0
    triple = math.comb(size - 3, chosen - 3) / total if chosen > 2 else 0.0
    counted = ShufflePair.two_level(ratio, support, overlap, "")
    assert_same(counted, ShufflePair.from_channel(channel, 0, 1, ""))
    one, other = two_level_witnesses(ratio, support, overlap, (triple,))
    assert_same(one, witness_from_channel(channel, 0, 1, 1))
    assert_same(other, witness_from_channel(channel, 0, 1, 2))
    assert one.is_witness and other.is_witness


@given(
    table=st.integers(2, 6).flatmap(
        lambda rows: st.lists(
            st.lists(st.floats(1.0, 8.0), min_size=rows, max_size=rows), min_size=3, max_size=3
        )
    )
)
def test_any_channel_gives_pairs_that_rebuild_it(table):
    """`blanket_mass * w <= R_z`, and w times a ratio has total mass 1: the table is two laws."""
    channel = np.array(table).T
    channel /= channel.sum(axis=0)
    pair = ShufflePair.from_channel(channel, 0, 2, "x")
    assert pair.blanket_mass == pytest.approx(channel.min(axis=1).sum())
    witness = witness_from_channel(channel, 0, 2, 1)
    for found in (pair, witness):
        distance = sum(
            p * abs(first - second)
            for (first, second), p in zip(found.ratios, found.probabilities, strict=True)
        )
        assert distance == pytest.approx(np.abs(channel[:, 0] - channel[:, 2]).sum(), abs=1e-10)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((1.0, 0.5, 0.0), "likelihood_ratio"),
        ((math.inf, 0.5, 0.0), "likelihood_ratio"),
        ((3.0, 0.0, 0.0), "support"),
        ((3.0, 0.5, 0.6), "overlap"),
        ((3.0, 0.8, 0.1), "overlap"),
    ],
)
def test_impossible_levels_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        ShufflePair.two_level(*arguments, "")
    with pytest.raises(ValueError, match=named):
        two_level_witnesses(*arguments)


def test_impossible_triples_and_channels_are_refused():
    with pytest.raises(ValueError, match="triple_overlaps"):
        two_level_witnesses(3.0, 0.5, 0.25, (0.3,))
    with pytest.raises(ValueError, match="shape"):
        ShufflePair.from_channel(np.ones(3), 0, 1, "")
    with pytest.raises(ValueError, match="sum to 1"):
        ShufflePair.from_channel(np.ones((2, 2)), 0, 1, "")
    with pytest.raises(ValueError, match="finite epsilon"):
        ShufflePair.from_channel(np.eye(2), 0, 1, "")
    with pytest.raises(ValueError, match="others"):
        witness_from_channel(np.eye(3), 0, 1, 2)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 8.0, 40.0])
def test_a_pair_knows_what_one_report_tells_and_refuses_a_smaller_budget(epsilon):
    pairs = [
        ShufflePair.clones(epsilon),
        ShufflePair.clones(epsilon, strong=True),
        ShufflePair.two_level(math.exp(epsilon), 0.25, 0.1, "two levels"),
    ]
    for pair in pairs:
        assert pair.log_ratio_max == pytest.approx(epsilon, rel=1e-9)
        pair.check_local_epsilon(epsilon)
        pair.check_local_epsilon(2 * epsilon)
        for less in (0.0, epsilon / 2, epsilon - 1e-6 * max(1.0, epsilon) / 2):
            with pytest.raises(ValueError, match="local_epsilon must be at least"):
                pair.check_local_epsilon(less)
        with pytest.raises(ValueError, match="local_epsilon must be at least"):
            pair.check_local_epsilon(math.nan)


def test_a_report_that_only_one_value_sends_has_no_finite_budget():
    telling = ShufflePair(0.5, ((2.0, 1.0), (0.5, 1.0), (0.5, 1.0)), (1 / 3, 1 / 3, 1 / 3))
    assert telling.log_ratio_max == pytest.approx(math.log(2))
    never = ShufflePair(1.0, ((0.0, 1.0), (2.0, 1.0)), (0.5, 0.5))
    assert never.log_ratio_max == math.inf
    with pytest.raises(ValueError, match="at least inf"):
        never.check_local_epsilon(1000.0)
    nobody = ShufflePair(1.0, ((0.0, 1.0), (1.0, 1.0)), (0.0, 1.0))  # no report has that ratio
    assert nobody.log_ratio_max == 0.0


def test_every_mechanism_keeps_its_own_pairs_within_its_budget():
    from tests.randomizers.test_possible import MECHANISMS

    for mechanism in MECHANISMS.values():
        mechanism.dominating_pair().check_local_epsilon(mechanism.local_epsilon)
        for witness in mechanism.witness_pairs():
            witness.check_local_epsilon(mechanism.local_epsilon)
