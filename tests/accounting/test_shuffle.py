"""Prices of a shuffled release: golden, sound by enumeration, monotone, consistent, fast."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    local_epsilon_for,
    shuffle_delta,
    shuffle_epsilon,
    solve,
)
from beam_ldp.accounting.divergences.hockey_stick import (
    directions,
    epsilon_bound,
    hockey_stick,
)
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.accounting.shuffle import one_release
from beam_ldp.accounting.shuffle.one_release import price_target, upper_delta
from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses
from tests.accounting.brute_force import shuffled_law
from tests.examples import examples

pytestmark = pytest.mark.exact

ORACLES = sorted(frequency.__all__)


@dataclass(frozen=True)
class Stub:
    """Ternary randomized response with one thing changed at a time."""

    local_epsilon: float = 2.0
    pair: ShufflePair | None = None
    witnesses: tuple[ShufflePair, ...] = ()

    def dominating_pair(self) -> ShufflePair:
        own = ShufflePair.two_level(math.exp(self.local_epsilon), 1 / 3, 0.0, "own blanket")
        return own if self.pair is None else self.pair

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return self.witnesses


def third(epsilon: float) -> tuple[ShufflePair, ...]:
    return two_level_witnesses(math.exp(epsilon), 1 / 3, 0.0, (0.0,))


def test_golden_generic():
    bound = shuffle_epsilon(4.0, 100_000, 1e-6)
    assert bound == pytest.approx(0.16977, abs=5e-6)
    assert bound.method == "clones" and bound.proof_status == "proved"
    assert bound.class_lower == pytest.approx(0.11702, abs=1e-5)
    assert bound.lower == 0.0 and "no concrete pair" in bound.lower_method


def test_golden_own_blanket_lies_below_the_class():
    """k-RR with k = 1000: knowing the mechanism beats every analysis that knows only epsilon."""
    bound = shuffle_epsilon(frequency.KRandomizedResponse(1000, 4.0), 100_000, 1e-6)
    assert bound == pytest.approx(0.0243, abs=5e-5)
    assert bound.lower <= bound < 0.0847 < bound.class_lower
    assert bound.lower == pytest.approx(bound, rel=1e-3), "and it is tight"
    assert "own blanket" in bound.method


def test_strong_clones_are_only_given_when_asked_for():
    asked = shuffle_epsilon(4.0, 100_000, 1e-6, conjectured=True)
    assert asked == pytest.approx(0.11815, abs=5e-6)
    assert asked.proof_status == "conjectured" and asked.method == "strong clones"
    assert shuffle_epsilon(4.0, 100_000, 1e-6).proof_status == "proved"


def test_a_conjectured_own_pair_is_only_used_when_asked_for():
    hoped = ShufflePair.two_level(math.exp(2.0), 1 / 3, 0.0, "hoped", proof_status="conjectured")
    stub = Stub(pair=hoped)
    assert shuffle_epsilon(stub, 1000, 1e-6).method == "clones"
    asked = shuffle_epsilon(stub, 1000, 1e-6, conjectured=True)
    assert asked.proof_status == "conjectured"
    assert asked < shuffle_epsilon(stub, 1000, 1e-6)


def test_binary_response_is_proved_below_the_strong_price():
    oracle = frequency.KRandomizedResponse(2, 4.0)
    bound = shuffle_epsilon(oracle, 100_000, 1e-6)
    assert bound == pytest.approx(0.08473, abs=2e-5) and bound.proof_status == "proved"
    pair = LocalRandomizerDpEvent(4.0, oracle.dominating_pair())  # not said to be of a bit
    assert shuffle_epsilon(pair, 100_000, 1e-6) == pytest.approx(0.11815, abs=2e-5)


def test_shuffling_never_hurts_and_says_when_it_does_not_help():
    bound = shuffle_epsilon(3.0, 2, 1e-9)
    assert bound == 3.0 and "no amplification" in bound.method
    nothing = shuffle_epsilon(Stub(witnesses=third(2.0)), 10**6, 0.0)
    assert nothing == nothing.class_lower == 2.0
    assert nothing.lower == pytest.approx(2.0)
    assert shuffle_delta(3.0, 10, 3.0) == 0.0


def test_contradicting_tables_are_found_out():
    """A blanket that is too good, or a witness of another mechanism."""
    small = ShufflePair.two_level(math.exp(0.2), 1 / 3, 0.0, "of another budget")
    with pytest.raises(ArithmeticError, match="contradict"):
        shuffle_epsilon(Stub(pair=small, witnesses=third(2.0)), 10**4, 1e-6)
    assert shuffle_epsilon(Stub(witnesses=third(2.0)), 10**4, 1e-6).lower > 0


def test_contradicting_tables_are_found_out_at_the_least_of_deltas():
    """However small both are: nothing is taken for rounding, but at the largest ratio itself."""
    oracle, other = (frequency.KRandomizedResponse(2, budget) for budget in (1.0, 2.0))
    mixed = LocalReports(2.0, oracle.dominating_pair(), other.witness_pairs())
    sides = [side for pair in other.witness_pairs() for side in directions(pair)]
    lower = max(hockey_stick(side, 1000, 0.8).lower for side in sides)
    assert 0 < lower < 1e-16
    with pytest.raises(ArithmeticError, match="contradict"):
        shuffle_delta(mixed, 1000, 0.8)
    few = frequency.LimitedHadamard(3, 1.0)
    for epsilon in (few.local_epsilon, few.log_ratio_max()):
        assert shuffle_delta(few, 7, epsilon) >= 0


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("epsilon_0", [0.5, 2.0, 5.0])
def test_every_oracle_is_bracketed(name, epsilon_0):
    oracle = getattr(frequency, name)(20, epsilon_0)
    for n in (10, 1000, 10**6):
        bound = shuffle_epsilon(oracle, n, 1e-7)
        assert 0.0 < bound.lower <= bound <= epsilon_0
        assert bound <= shuffle_epsilon(oracle.local_epsilon, n, 1e-7) * (1 + 1e-12)
        assert bound.proof_status == "proved"
        delta = shuffle_delta(oracle, n, float(bound))
        assert delta <= 1e-7 * (1 + 1e-6) and delta.lower <= delta


@pytest.mark.parametrize("name", ORACLES)
def test_every_oracle_by_brute_force(name):
    """Every data set of three people over four values, from the channel that is implemented."""
    oracle = getattr(frequency, name)(4 if name != "LocalHashing" else 3, 1.0)
    try:
        channel = oracle.channel()
    except NotImplementedError:
        pytest.fail(f"{name} has no channel for so small a domain")
    levels, where = np.unique(np.round(channel, 13), axis=0, return_inverse=True)
    merged = np.zeros((len(levels), channel.shape[1]))
    np.add.at(merged, where.reshape(-1), channel)  # reports with equal rows tell the same
    n = 3 if len(merged) <= 16 else 2
    epsilon = 0.3
    bound = shuffle_delta(oracle, n, epsilon)
    worst = 0.0
    values = range(channel.shape[1])
    for rest in itertools.combinations_with_replacement(values, n - 1):
        laws = [shuffled_law(merged, (victim, *rest)) for victim in values]
        for p, q in itertools.permutations(laws, 2):
            worst = max(worst, sum(max(0.0, p[y] - math.exp(epsilon) * q[y]) for y in p))
    assert bound.lower <= worst + 1e-12
    assert worst <= bound + 1e-12


@given(
    epsilon_0=st.floats(0.01, 12.0),
    n=st.integers(2, 10**9),
    delta=st.floats(-15.0, -2.0).map(lambda x: 10.0**x),
    more=st.floats(1.02, 20.0),
)
@examples(30)
def test_monotone_in_reports_budget_and_delta(epsilon_0, n, delta, more):
    here = shuffle_epsilon(epsilon_0, n, delta)
    assert shuffle_epsilon(epsilon_0, min(10**12, math.ceil(n * more)), delta) <= here
    assert shuffle_epsilon(min(30.0, epsilon_0 * more), n, delta) >= here
    assert shuffle_epsilon(epsilon_0, n, min(0.9, delta * more)) <= here
    assert here.lower <= here.class_lower <= here <= epsilon_0


@given(
    epsilon_0=st.floats(-6.0, math.log10(30.0)).map(lambda x: min(30.0, 10.0**x)),
    n=st.floats(0.0, 9.0).map(lambda x: int(10.0**x)),
    delta=st.floats(-15.0, -0.1).map(lambda x: 10.0**x),
)
def test_no_corner_gives_nonsense(epsilon_0, n, delta):
    bound = shuffle_epsilon(epsilon_0, n, delta)
    assert 0.0 <= bound.class_lower <= bound <= epsilon_0
    back = shuffle_delta(epsilon_0, n, float(bound))
    assert 0.0 <= back <= delta * (1 + 1e-6)


@given(
    epsilon=st.floats(0.05, 4.0),
    n=st.integers(100, 10**8),
    delta=st.floats(-10.0, -4.0).map(lambda x: 10.0**x),
)
@examples(20)
def test_solving_there_and_back(epsilon, n, delta):
    """The largest local budget meets the target; a little more does not."""
    found = local_epsilon_for(epsilon, delta, n)
    assert found >= epsilon
    assert shuffle_epsilon(found, n, delta) <= epsilon * (1 + 1e-9)
    assume(found < 29.0)
    assert shuffle_epsilon(found * (1 + 1e-4), n, delta) > epsilon * (1 - 1e-6)


@pytest.mark.parametrize("name", ORACLES)
def test_solving_with_the_own_pair_buys_budget(name):
    generic = local_epsilon_for(0.5, 1e-6, 10**5)
    own = local_epsilon_for(0.5, 1e-6, 10**5, lambda budget: getattr(frequency, name)(64, budget))
    assert own >= generic * (1 - 1e-5)
    assert shuffle_epsilon(getattr(frequency, name)(64, own), 10**5, 1e-6) <= 0.5 * (1 + 1e-9)


def test_solve_for_each_of_the_four():
    epsilon = solve(local_epsilon=3.0, delta=1e-7, num_reports=10**5)
    assert solve(local_epsilon=3.0, epsilon=epsilon, num_reports=10**5) == pytest.approx(1e-7)
    assert solve(epsilon=epsilon, delta=1e-7, num_reports=10**5) == pytest.approx(3.0, rel=1e-5)
    least = solve(epsilon=epsilon, delta=1e-7, local_epsilon=3.0)
    assert abs(least - 10**5) <= 3 and isinstance(least, int)
    assert shuffle_epsilon(3.0, least, 1e-7) <= epsilon * (1 + 1e-9)


def test_solve_with_a_mechanism():
    def build(budget):
        return frequency.KRandomizedResponse(100, budget)

    epsilon = solve(local_epsilon=3.0, delta=1e-7, num_reports=10**5, randomizer=build)
    assert epsilon == shuffle_epsilon(build(3.0), 10**5, 1e-7)
    assert solve(epsilon=float(epsilon), delta=1e-7, num_reports=10**5, randomizer=build) == (
        pytest.approx(3.0, rel=1e-5)
    )


def test_solve_needs_exactly_one_unknown():
    for given_ in ({}, {"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(ValueError, match="exactly one"):
            solve(**given_)
    with pytest.raises(ValueError, match="exactly one"):
        solve(epsilon=1.0, local_epsilon=2.0, delta=1e-6, num_reports=10)


def test_what_cannot_be_reached_is_said():
    with pytest.raises(ValueError, match="no number of reports"):
        solve(epsilon=1e-9, local_epsilon=20.0, delta=1e-9)
    assert local_epsilon_for(31.0, 1e-6, 10) == 30.0
    assert local_epsilon_for(1.0, 0.0, 10**6) == 1.0


def test_a_mechanism_with_a_largest_budget_is_solved_within_it():
    def build(budget):
        if budget > 3.0:
            raise ValueError("local_epsilon must be at most 3")
        return Stub(budget)

    assert local_epsilon_for(1.0, 1e-6, 10**6, build) == pytest.approx(3.0, rel=1e-5)
    with pytest.raises(ValueError, match="at most 3"):
        local_epsilon_for(4.0, 1e-6, 10**6, build)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0.0, 10, 1e-6), "local_epsilon"),
        ((31.0, 10, 1e-6), "local_epsilon"),
        ((math.nan, 10, 1e-6), "local_epsilon"),
        ((1.0, 0, 1e-6), "num_reports"),
        ((1.0, 2.5, 1e-6), "num_reports"),
        ((1.0, 10, 1.0), "delta"),
        ((1.0, 10, -1e-9), "delta"),
        ((1.0, 10, math.nan), "delta"),
        ((LocalRandomizerDpEvent(40.0), 10, 1e-6), "local_epsilon"),
        ((ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10), 10, 1e-6), "local must be"),
    ],
)
def test_arguments_are_checked(arguments, named):
    with pytest.raises(ValueError, match=named):
        shuffle_epsilon(*arguments)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf])
def test_epsilon_is_checked(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        shuffle_delta(1.0, 10, epsilon)
    with pytest.raises(ValueError, match="epsilon"):
        local_epsilon_for(epsilon, 1e-6, 10)


@pytest.mark.parametrize("seconds", [1.0, pytest.param(0.1, marks=pytest.mark.bench)])
def test_a_hundred_million_reports_are_priced_in_a_tenth_of_a_second(seconds):
    """Processor time of the best of five, with all three values; each with another budget.

    Busy machines have ten times that: a walk over as many reports takes longer than a second.
    """
    taken = []
    for budget in (2.01, 2.02, 2.03, 2.04, 2.05):
        start = time.process_time()
        bound = shuffle_epsilon(budget, 10**8, 1e-8)
        taken.append(time.process_time() - start)
        assert 0 < bound.class_lower < bound
    assert min(taken) < seconds


def test_the_dearer_direction_of_an_uneven_pair_is_priced():
    """Exchanging a value for the other may be told apart better than the other way round."""
    channel = [[0.7, 0.2, 0.3], [0.2, 0.3, 0.3], [0.1, 0.5, 0.4]]
    pair = ShufflePair.from_channel(channel, 0, 1, "uneven")
    for own in (pair, pair.swapped()):
        stub = Stub(1.7, pair=own)
        assert shuffle_epsilon(stub, 20, 1e-4) == pytest.approx(1.2716574, rel=1e-6)
        assert shuffle_delta(stub, 20, 0.3) == pytest.approx(0.05464869, rel=1e-6)


def priced_to_the_end(local, n, delta):
    """The definition: of all pairs the least, of each the worse direction."""
    target, n = price_target(local, n)
    found = [(target.local_epsilon, 0, "local epsilon (no amplification)")]
    for place, pair in target.pairs(conjectured=False):
        sides = [epsilon_bound(side, n, delta, upper=True) for side in directions(pair)]
        found.append((max(sides), place, pair.source))
    return min(found)


LOPSIDED = ShufflePair(
    0.1, ((2.0, 0.5), (0.5, 1.25), (1.0, 1.0)), (0.25, 0.5, 0.25), source="lopsided"
)


@pytest.mark.parametrize("n", [3, 40, 10**4, 10**9])
@pytest.mark.parametrize(
    "local",
    [
        1.0,
        *(getattr(frequency, name)(20, 3.0) for name in ORACLES),
        Stub(pair=replace(ShufflePair.clones(2.0), blanket_mass=0.1, source="worse")),
        Stub(pair=replace(ShufflePair.clones(2.0), source="the clones by another name")),
        Stub(pair=LOPSIDED),
    ],
    ids=lambda local: getattr(local, "mechanism", None) or type(local).__name__,
)
def test_what_is_not_priced_to_the_end_could_not_have_won(local, n):
    delta = 1e-7
    value, _, method = priced_to_the_end(local, n, delta)
    bound = shuffle_epsilon(local, n, delta)
    assert (float(bound), bound.method) == (value, method)
    target, _ = price_target(local, n)
    at, known = 0.6 * value, [(1.0, 0, "trivial")]
    for place, pair in target.pairs(conjectured=False):
        deltas = [hockey_stick(side, n, at).upper for side in directions(pair)]
        known.append((max(deltas), place, pair.source))
    assert upper_delta(target, n, at, False)[:2] == (min(known)[0], min(known)[2])


def test_floors_are_found_when_they_are_read(monkeypatch):
    oracle, asked = frequency.KRandomizedResponse(50, 3.0), []

    def counted(pair, n, delta, upper):
        asked.append(upper)
        return epsilon_bound(pair, n, delta, upper)

    monkeypatch.setattr(one_release, "epsilon_bound", counted)
    bound = shuffle_epsilon(oracle, 10**4, 1e-6)
    assert bound > 0 and asked and all(asked)
    assert bound.lower > 0.99 * bound and not all(asked)
