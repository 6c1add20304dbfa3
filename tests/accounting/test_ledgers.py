"""Ledgers of several kinds: counts, order, state, and both sides of the truth."""

from __future__ import annotations

import itertools
import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    event_epsilon,
    local_event,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.composition import accountant as accountant_module
from beam_ldp.accounting.composition.ledger_bounds import ledger_losses, repeated_losses
from beam_ldp.accounting.divergences.loss_grid import lower_epsilon, pooled_losses
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.lower import class_lower_epsilon, witness_atoms
from beam_ldp.accounting.shuffle import report_curves
from beam_ldp.randomizers.frequency import KRandomizedResponse, SubsetSelection
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.randomizers.shuffle_pair import two_level_witnesses
from beam_ldp.research.published.closed_forms import gaussian_epsilon
from tests.accounting.brute_force import channel_pairs, response_rows

pytestmark = pytest.mark.exact

ORACLE = local_event(KRandomizedResponse(3, 1.0))
SHUFFLED = ShuffledDpEvent(ORACLE, 2000)
SAMPLED = SubsampledShuffledDpEvent(ORACLE, 6000, 400)
SELF = SubsampledShuffledDpEvent(ORACLE, 3000, 200, points_per_client=2, sampling="self")
POISSON = SubsampledShuffledDpEvent(ORACLE, 3000, 200, points_per_client=2, sampling="poisson")
MESSAGES = shuffled_event(LInfMean(4, 8.0, messages=(4,), message_epsilons=(0.5,)), 3000)
GAUSSIAN = dp_accounting.GaussianDpEvent(40.0)
CENTRAL = dp_accounting.SampledWithoutReplacementDpEvent(
    500, 20, dp_accounting.GaussianDpEvent(2.0)
)
OTHERS = (
    dp_accounting.LaplaceDpEvent(30.0),
    dp_accounting.RandomizedResponseDpEvent(0.9, 3),
    dp_accounting.ZCDpEvent(0.001),
    dp_event.DiscreteLaplaceDpEvent(0.02, 1),
    dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(3.0)),
)
OWN = (LocalRandomizerDpEvent(0.3), ORACLE, SHUFFLED, SAMPLED, SELF, POISSON, MESSAGES)
EVENTS = (*OWN, GAUSSIAN, CENTRAL, *OTHERS)


@settings(max_examples=15)
@given(st.sampled_from(EVENTS), st.integers(1, 60), st.sampled_from([1e-8, 1e-4]))
def test_a_count_is_as_many_releases(event, count, delta):
    """compose(e, n) is n times compose(e), for every kind."""
    at_once = ShuffleAccountant().compose(event, count).get_epsilon(delta)
    nested = dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent([event]), count)
    one_by_one = ShuffleAccountant()
    for _ in range(count):
        one_by_one.compose(event)
    for other in (ShuffleAccountant().compose(nested), one_by_one):
        found = other.get_epsilon(delta)
        assert (found, found.lower, found.class_lower) == (
            at_once,
            at_once.lower,
            at_once.class_lower,
        )


ledgers = st.dictionaries(st.sampled_from(EVENTS), st.integers(1, 30), min_size=1, max_size=4)


@settings(max_examples=12)
@given(ledgers, st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_lower_bounds_are_below_and_more_costs_more(ledger, delta):
    accountant = ShuffleAccountant()
    before = 0.0
    for event, count in ledger.items():
        accountant.compose(event, count)
        bound = accountant.get_epsilon(delta)
        assert 0 <= bound.lower <= bound
        assert bound >= before * (1 - 1e-4), "more releases cost more"
        before = float(bound)
    own = {e for e in ledger if e in OWN}
    if not own:
        assert bound.class_lower <= bound * (1 + 1e-9), "curators' mechanisms are what they are"
    assert accountant.get_delta(float(bound)) <= delta * (1 + 1e-6)


@settings(max_examples=6)
@given(st.permutations(EVENTS[:9]))
def test_the_order_of_composing_does_not_matter(events):
    accountant = ShuffleAccountant()
    for event in events:
        accountant.compose(event, 3)
    together = dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent(list(EVENTS[:9])), 3)
    bound = ShuffleAccountant().compose(together).get_epsilon(1e-6)
    assert accountant.get_epsilon(1e-6) == pytest.approx(bound, rel=1e-7)
    assert accountant.get_epsilon(1e-6).lower == pytest.approx(bound.lower, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-3, 0.03])
def test_both_sides_of_the_truth_by_enumeration(delta):
    """Two questions of different mechanisms about three people, all data sets and neighbours."""
    rows = response_rows(3, 1.0), response_rows(2, 0.7)
    pairs = [channel_pairs(each, 3) for each in rows]
    events = [
        ShuffledDpEvent(local_event(KRandomizedResponse(k, e)), 3) for k, e in ((3, 1), (2, 0.7))
    ]
    epsilons = np.linspace(0.0, 3.0, 601)
    worst = np.zeros(len(epsilons))
    for i, j in itertools.product(range(len(pairs[0].first)), range(len(pairs[1].first))):
        first = np.outer(pairs[0].first[i], pairs[1].first[j]).ravel()
        second = np.outer(pairs[0].second[i], pairs[1].second[j]).ravel()
        gaps = first[None, :] - np.exp(epsilons)[:, None] * second[None, :]
        worst = np.maximum(worst, np.maximum(gaps, 0.0).sum(axis=1))
    within = int(np.argmax(worst <= delta))
    below, above = epsilons[within - 1], epsilons[within]  # on either side of the exact value
    bound = ShuffleAccountant().compose(events[0]).compose(events[1]).get_epsilon(delta)
    assert bound.lower <= above and below <= bound
    assert bound.lower > 0.8 * above


@pytest.mark.parametrize("event", [SHUFFLED, SAMPLED, SELF, POISSON, MESSAGES], ids=range(5))
def test_lower_bounds_of_compositions_are_close(event):
    bound = ShuffleAccountant().compose(event, 200).get_epsilon(1e-6)
    assert 0.88 * bound < bound.lower <= bound
    assert bound.lower_method.startswith("concrete")


def test_mixed_ledgers_are_close_from_below_and_above():
    accountant = ShuffleAccountant()
    for event, count in ((SHUFFLED, 10), (SAMPLED, 300), (MESSAGES, 4), (GAUSSIAN, 9)):
        accountant.compose(event, count)
    bound = accountant.get_epsilon(1e-6)
    assert 0.93 * bound < bound.lower <= bound
    alone = ShuffleAccountant().compose(SAMPLED, 300).get_epsilon(1e-6)
    assert bound.lower > alone and bound.class_lower > alone.class_lower


def test_kinds_without_a_concrete_pair_are_left_out_of_lower_bounds():
    nothing = ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 2000)
    both = ShuffleAccountant().compose(SHUFFLED, 5).compose(nothing, 5).get_epsilon(1e-6)
    alone = ShuffleAccountant().compose(SHUFFLED, 5).get_epsilon(1e-6)
    assert both.lower == alone.lower and both > alone
    assert both.lower_method.endswith("1 kinds of release left out")


def test_the_class_of_a_mixed_ledger_is_a_ledger_of_randomized_responses():
    """The bound is attained: with ternary response itself it lies below that mechanism's price."""
    mixed = ShuffleAccountant()
    real = ShuffleAccountant()
    for budget, reports, count in ((1.5, 3000, 20), (2.5, 10_000, 40)):
        mixed.compose(ShuffledDpEvent(LocalRandomizerDpEvent(budget), reports), count)
        real.compose(ShuffledDpEvent(local_event(KRandomizedResponse(3, budget)), reports), count)
    generic, own = mixed.get_epsilon(1e-6), real.get_epsilon(1e-6)
    # The two lower bounds are the same law on two grids.
    assert own.lower <= generic.class_lower * (1 + 1e-5) <= own * (1 + 1e-5) <= generic
    assert generic.class_lower == own.class_lower


@pytest.mark.parametrize("count", [1, 50])
def test_one_kind_has_the_class_bound_of_its_own_function(count):
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2000)
    bound = ShuffleAccountant().compose(event, count).get_epsilon(1e-5)
    direct = class_lower_epsilon(2.0, 2000, 2000 / 60_000, count, 1e-5)
    assert bound.class_lower == pytest.approx(direct, rel=2e-3)


# Witnesses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.2])
@pytest.mark.parametrize("reports", [1, 3, 2000, 10**6])
def test_classes_of_reports_keep_laws_and_lose_little(reports, rate):
    for witness in two_level_witnesses(math.e, 1 / 3, 0.0, (0.0,)):
        atoms = witness_atoms(witness, reports, rate)
        mass = np.exp(atoms.log_mass)
        for law in (mass, mass * atoms.first, mass * atoms.second):
            assert law.sum() == pytest.approx(1.0, abs=1e-9)
        assert np.all(atoms.first > 0) and np.all(atoms.second > 0)


def test_witnesses_of_overlapping_sets_count_in_classes():
    event = ShuffledDpEvent(local_event(SubsetSelection(12, 1.5)), 10**6)
    bound = ShuffleAccountant().compose(event, 50).get_epsilon(1e-6)
    assert 0.75 * bound < bound.lower <= bound


def test_a_single_release_agrees_with_its_own_lower_bound():
    (witness, *_) = two_level_witnesses(math.e, 1 / 2, 0.0)
    atoms = witness_atoms(witness, 5000)
    event = LocalRandomizerDpEvent(1.0, None, (witness,))
    exact = shuffle_epsilon(event, 5000, 1e-6).lower
    pooled = lower_epsilon([(1, atoms)], 1e-6)
    assert 0.99 * exact < pooled <= exact * (1 + 1e-6)
    assert pooled_losses(atoms).mass.sum() <= 1 + 1e-12


# Grids --------------------------------------------------------------------------------------


def test_a_very_long_run_is_composed_in_steps_that_lose_nothing_visible():
    local = LocalRandomizerDpEvent(0.5)
    event = ShuffledDpEvent(local, 10**8)
    direct = repeated_losses(event, 1 << 18).epsilon(1e-6)
    stepwise = repeated_losses(event, (1 << 18) + 1).epsilon(1e-6)
    assert direct <= stepwise <= direct * 1.001
    assert math.isfinite(repeated_losses(event, 10**9).epsilon(1e-6))


def test_one_grid_for_kinds_of_very_different_spread():
    loud, quiet = ShuffledDpEvent(LocalRandomizerDpEvent(3.0), 300), SHUFFLED
    alone = ledger_losses({loud: 3}).epsilon(1e-6)
    both = ledger_losses({loud: 3, quiet: 1}).epsilon(1e-6)
    assert alone <= both <= alone * 1.01


def test_nothing_is_known_of_losses_of_some_kinds():
    assert ledger_losses({}) is None
    assert ledger_losses({dp_accounting.ZCDpEvent(0.1): 1, SHUFFLED: 1}) is None
    assert ledger_losses({LocalRandomizerDpEvent(500.0): 1}) is None
    huge = ShuffleAccountant().compose(LocalRandomizerDpEvent(500.0), 2)
    assert huge.get_epsilon(1e-6) <= 1000.0


@pytest.mark.parametrize("delta", [1e-15, 1e-12, 0.5])
@pytest.mark.parametrize("local", [1e-6, 1.0, 30.0])
@pytest.mark.parametrize("reports", [1, 10**9])
def test_no_corner_gives_nan(local, reports, delta):
    event = ShuffledDpEvent(LocalRandomizerDpEvent(local), reports)
    for count in (1, 1000):
        bound = ShuffleAccountant([2.0, 1e5]).compose(event, count).get_epsilon(delta)
        assert 0 <= bound.lower <= bound <= count * local * (1 + 1e-12)


# What is computed, and how often ------------------------------------------------------------


def test_many_kinds_are_each_integrated_once(monkeypatch):
    """Of 200 kinds all was done twice, and lower bounds and orders that nobody asked for: 54 s."""
    calls = []
    one_curve = report_curves.log_hockey_sticks

    def counted(pair, n, losses, *others, **how):
        calls.append(len(losses))
        return one_curve(pair, n, losses, *others, **how)

    def never(*_):
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(report_curves, "log_hockey_sticks", counted)
    monkeypatch.setattr(accountant_module, "event_divergences", never)
    monkeypatch.setattr(accountant_module, "lower_value", never)
    accountant = ShuffleAccountant()
    for kind in range(40):
        local = LocalRandomizerDpEvent(0.5 + 0.01 * kind)
        accountant.compose(ShuffledDpEvent(local, 10**7 + kind), 1 + kind % 3)
    bound = accountant.get_epsilon(1e-8)
    assert len(calls) == 40 and max(calls) < 200
    assert "distributions" in bound.method
    again = accountant.get_delta(float(bound))
    assert again <= 1e-8 * (1 + 1e-6) and len(calls) == 40


def test_many_kinds_together_are_as_exact_as_few():
    """Chords add to the spread of every kind: the grid gets finer, the more of them there are."""
    accountant = ShuffleAccountant()
    for kind in range(300):
        accountant.compose(dp_accounting.GaussianDpEvent(200.0 + 0.01 * kind))
    mu = math.sqrt(sum((2 / (200.0 + 0.01 * kind)) ** 2 for kind in range(300)))
    assert accountant.get_epsilon(1e-8) == pytest.approx(gaussian_epsilon(mu, 1e-8), rel=2e-3)


# Questions before a release -----------------------------------------------------------------


@pytest.mark.parametrize("adaptive", [False, True])
@settings(max_examples=6)
@given(event=st.sampled_from(EVENTS[:9]), count=st.integers(1, 200), share=st.floats(0.5, 1.5))
def test_would_exceed_is_the_price_after_the_fact(adaptive, event, count, share):
    accountant = ShuffleAccountant(adaptive=adaptive).compose(SAMPLED, 5)
    after = ShuffleAccountant(adaptive=adaptive).compose(SAMPLED, 5).compose(event, count)
    price = float(after.get_epsilon(1e-6))
    told = accountant.would_exceed(event, count, epsilon=share * price, delta=1e-6)
    assert told == (price > share * price)
    assert (
        accountant.get_epsilon(1e-6)
        == event_epsilon(dp_accounting.SelfComposedDpEvent(SAMPLED, 5), 1e-6)
        or adaptive
    ), "asking changes nothing"


def test_bad_questions_are_refused():
    for wrong in ({"epsilon": -1.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 1.0}):
        with pytest.raises(ValueError, match="epsilon must be"):
            ShuffleAccountant().would_exceed(SHUFFLED, **wrong)


# State --------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_every_kind_survives_json_and_named_tuples(event):
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(json.loads(text)) == event
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.NonPrivateDpEvent(),
        dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 3.0, math.inf),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
        dp_event.SingleEpochTreeAggregationDpEvent(1.0, [3, 4]),
        dp_accounting.ComposedDpEvent([SHUFFLED, dp_accounting.SelfComposedDpEvent(CENTRAL, 2)]),
    ],
    ids=lambda e: type(e).__name__,
)
def test_foreign_events_survive_json(event):
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(json.loads(text)) == event


@settings(max_examples=6)
@given(ledgers, st.booleans())
def test_state_is_lossless(ledger, adaptive):
    accountant = ShuffleAccountant(adaptive=adaptive)
    for event, count in ledger.items():
        accountant.compose(event, count)
    state = json.loads(json.dumps(accountant.state_dict()))
    again = ShuffleAccountant([2.0])
    again.compose(SHUFFLED)
    again.load_state_dict(state)
    assert again.state_dict() == accountant.state_dict()
    assert again.ledger == accountant.ledger
    np.testing.assert_array_equal(again.divergences(), accountant.divergences())


def test_a_state_that_is_not_known_changes_nothing():
    accountant = ShuffleAccountant().compose(SHUFFLED)
    before = accountant.state_dict()
    for wrong in ({**before, "version": 99}, {**before, "ledger": {"version": 5}}):
        with pytest.raises(ValueError, match="version must be"):
            accountant.load_state_dict(wrong)
    assert accountant.state_dict() == before
