"""Rounds that lose clients: who is drawn, comes and is kept; what is priced, charged, released."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffleAccountant, local_event
from beam_ldp.federated import (
    DeclaredSampling,
    EpsilonBudget,
    FixedSizeSampling,
    SamplingMismatchError,
    ShuffledEpochs,
    TooFewCameError,
    planned_event,
    privacy_events,
    train,
)
from beam_ldp.federated.record import least_clients, rounds_run, rounds_withheld
from beam_ldp.federated.samplers import SelfSampling, sampler_for
from tests.federated.records import record
from tests.federated.test_training import DELTA, MECHANISM, Output, Summing, price

LOCAL = local_event(MECHANISM)


def attending(counts):
    """Clients of each call, so many as come."""
    left = iter(counts)
    return lambda _number: [np.zeros(3)] * next(left)


# Prices ------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("drawn", "least", "most", "epsilon"),
    [(2_000, None, None, 0.8821), (2_000, 1_800, None, 0.9346), (2_200, 2_000, 2_000, 0.9793),
     (2_000, 1_300, None, 1.1174)],
)  # fmt: skip
def test_prices_of_rounds_that_lose_clients(drawn, least, most, epsilon):
    """n = 60,000, 6,000 rounds, local epsilon 2, delta = 1e-5: the rate is the share drawn, and the
    crowd is who came; over-selection among them, and 30 % dropouts."""
    sampler = FixedSizeSampling(60_000, drawn, least, most)
    lost = 0 if least is None else drawn - least
    event = sampler.declared().event(LocalRandomizerDpEvent(2.0), 1, lost)
    assert price(event, 6_000) == pytest.approx(epsilon, abs=1e-4)


@pytest.mark.exact
def test_a_smaller_crowd_never_costs_less_so_the_least_bounds_every_round():
    sampling = DeclaredSampling(1_000, 100, least_received=40)
    prices = [price(sampling.event(LOCAL, 1, 100 - came), 50) for came in range(100, 39, -10)]
    assert prices == sorted(prices) and prices[0] < prices[-1]


# Who comes, and who is kept ----------------------------------------------------------------------


@pytest.mark.statistical
def test_dropouts_are_coins_and_those_who_are_kept_are_a_uniform_sample():
    """4,000 rounds of 20 drawn, 30 % of whom stay away, at most 12 kept: everybody is kept equally
    often, by a chi-squared test, and counts are binomial. Seed fixed; false alarm 2e-6.
    """
    generator = np.random.default_rng(1)
    sampler = FixedSizeSampling(20, 20, 5, 12)
    kept = [sampler.arrived(range(20), 0.3, generator) for _ in range(4_000)]
    counts = np.bincount(np.concatenate(kept), minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert max(map(len, kept)) == 12 and all(len(set(one)) == len(one) for one in kept)
    everyone = [len(ShuffledEpochs(20, 20, 5).arrived(range(20), 0.3, generator))
                for _ in range(4_000)]  # fmt: skip
    off = np.mean(everyone) - 14
    assert abs(off) < 5 * math.sqrt(20 * 0.3 * 0.7 / 4_000)
    assert sampler.arrived(range(20), 0.0, generator) != ()


@pytest.mark.exact
def test_declarations_of_samplers():
    assert FixedSizeSampling(100, 10, 7).declared() == DeclaredSampling(100, 10, least_received=7)
    assert FixedSizeSampling(100, 100, 70).declared().allowed == (70, 100)
    assert FixedSizeSampling(100, 10, 7, 8).declared().allowed == (7, 8)
    assert ShuffledEpochs(100, 10, 7).declared().allowed == (7, 10)
    for name in ("fixed", "full", "shuffled-epochs"):
        drawn = 100 if name == "full" else 10
        assert sampler_for(name, 100, drawn, 7).declared().least_received == 7


@pytest.mark.exact
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeclaredSampling(99, 9, sampling="self", least_received=5), "least_received must"),
        (lambda: DeclaredSampling(99, 9, least_received=10), "least_received must be None or in"),
        (lambda: DeclaredSampling(99, 9, sampling="poisson"), "sampling must be"),
        (lambda: DeclaredSampling(99, 9, num_fakes=99), "num_fakes must be below"),
        (lambda: DeclaredSampling(99, 9, least_received=5, most_received=4), "most_received must"),
        (lambda: DeclaredSampling(99, 9, sampling="self", most_received=5), "most_received must"),
        (lambda: FixedSizeSampling(99, 9, 0), r"least_received must lie in \[1, 9\]"),
        (lambda: FixedSizeSampling(99, 9, 5, 10), "most_received must lie"),
        (lambda: FixedSizeSampling(99, 9, None, 5), "most_received must lie"),
        (lambda: ShuffledEpochs(99, 9, 10), "least_received must lie"),
        (lambda: sampler_for("self", 99, 9, 5), "declare those who may never come as num_fakes"),
        (lambda: FixedSizeSampling(99, 9).arrived([1], 1.0), "dropout must"),
    ],
)
def test_what_has_no_price_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.exact
def test_the_same_client_twice_is_no_cohort():
    sampler = FixedSizeSampling(100, 10, 7)
    sampler.check(range(8))
    for bad in ([1] * 8, range(6), [*range(7), 100]):
        with pytest.raises(SamplingMismatchError, match="7 to 10 different ones"):
            sampler.check(bad)


# What is charged, and what is released -----------------------------------------------------------


@pytest.mark.exact
def test_a_round_of_too_few_is_charged_and_not_released_and_another_takes_its_place():
    """40 drawn of 400, at least 30: rounds of 35, 29, 40 and 12 release two."""
    sampling = DeclaredSampling(400, 40, least_received=30)
    budget, shown, kept = EpsilonBudget(None, DELTA), [], []
    training = train(
        Summing(sampling), attending([35, 29, 40, 12]), 4, budget,
        on_round=shown.append, keep=kept.append,
    )  # fmt: skip
    assert (training.rounds, training.withheld, training.stopped_by) == (2, 2, "rounds")
    assert [done.number for done in shown] == [done.number for done in kept] == [0, 1]
    assert training.state.privacy.rounds.tolist() == [[35, 1], [40, 1]]
    whole = ShuffleAccountant()
    for lost, times in ((5, 1), (10, 2), (0, 1)):
        whole.compose(sampling.event(LOCAL, 1, lost), times)
    assert budget.spent.num_charges == 4
    assert budget.spent.epsilon == float(whole.get_epsilon(DELTA))
    assert budget.spent.local_epsilon == 4 * MECHANISM.local_epsilon  # its reports were sent


@pytest.mark.exact
def test_a_round_of_too_few_is_priced_before_anybody_is_asked():
    """The target has room for one round of at least 30 and for no second."""
    sampling = DeclaredSampling(400, 40, least_received=30)
    event = sampling.event(LOCAL, 1, 10)
    target = (price(event, 1) + price(event, 2)) / 2
    training = train(Summing(sampling), attending([3, 3, 3]), 3, EpsilonBudget(target, DELTA))
    assert (training.rounds, training.withheld, training.stopped_by) == (0, 1, "budget")
    assert not len(training.state.privacy.rounds)


@pytest.mark.exact
def test_a_training_that_goes_on_counts_released_rounds_and_keeps_what_was_charged():
    """Killed after a withheld round: the budget that held it goes on; one made anew of the state
    knows the rounds that readers of models saw, which are all that cost them anything."""
    sampling = DeclaredSampling(400, 40, least_received=30)
    budget = EpsilonBudget(None, DELTA)
    first = train(Summing(sampling), attending([20, 40]), 2, budget)
    more = train(Summing(sampling), attending([40, 20]), 3, budget, state=first.state)
    assert (first.rounds, more.rounds, more.withheld) == (1, 1, 1)
    assert budget.spent.num_charges == 4
    anew = EpsilonBudget(None, DELTA, state=more.state)
    assert anew.spent.num_charges == 2 == sum(times for _, times in privacy_events(more.state))


@pytest.mark.exact
def test_without_a_declared_least_all_must_come_and_an_epoch_ends_at_too_few():
    with pytest.raises(SamplingMismatchError, match="gives 40"):
        train(Summing(DeclaredSampling(400, 40)), attending([39]), 1, EpsilonBudget(None, DELTA))
    sampler = ShuffledEpochs(80, 40, 30)
    process = Summing(sampler.declared())
    assert least_clients(process.initialize()) == 30
    for came in ([40, 29], [29]):  # amid an epoch, and in its first round, whose reports came too
        budget, seen = EpsilonBudget(None, DELTA), []
        with pytest.raises(TooFewCameError, match="29 clients came .* the whole epoch stays"):
            train(process, attending(came), 2, budget, on_round=seen.append)
        assert len(seen) == len(came) - 1 and budget.spent.num_charges == 1
        assert budget.spent.epsilon == price(sampler.declared().event(LOCAL, 1, 10), 1)


@pytest.mark.exact
def test_a_liar_in_a_round_that_lost_clients_hides_nobody():
    """35 of 40 came, one of them sent nonsense: charged as 35, and once more as 34."""
    sampling = DeclaredSampling(400, 40, least_received=30)
    budget = EpsilonBudget(None, DELTA)
    state = train(Summing(sampling, lost=1), attending([35]), 1, budget).state
    assert state.privacy.rounds.tolist() == [[34, 1]]
    both = ShuffleAccountant()
    for lost in (5, 6):
        both.compose(sampling.event(LOCAL, 1, lost))
    assert budget.spent.epsilon == float(both.get_epsilon(DELTA))


class Checked(Summing):
    """A process whose check leaves so many reports of its rounds; fewer than 30 change nothing."""

    def __init__(self, sampling, left):
        self._start, self._left = record([MECHANISM], [], sampling=sampling, least_left=30), left

    def next(self, state, clients):
        left = self._left.pop(0)
        output = super().next(state, clients[:left]) if left else None
        told = np.array([[left, 1]])
        told = state.privacy._replace(rounds=np.concatenate([state.privacy.rounds, told]))
        if left < 30:
            return Output(state._replace(privacy=told), {})
        return output

    _lost = 0


@pytest.mark.exact
def test_a_round_of_which_too_few_are_left_costs_one_of_the_least_and_is_not_released():
    """40 came to each of four; 40, 29, none and 30 are left: two are released.

    Who is left depends on the reports: no such round may cost less than one of 30 who came, to the
    budget and to one made anew of the state.
    """
    sampling = DeclaredSampling(400, 40, least_received=30)
    budget, shown = EpsilonBudget(None, DELTA), []
    process = Checked(sampling, [40, 29, 0, 30])
    done = train(process, attending([40] * 4), 4, budget, on_round=shown.append)
    assert (done.rounds, done.withheld, done.stopped_by) == (2, 2, "rounds")
    assert [one.withheld for one in shown] == [False, True, True, False]
    assert (shown[0].state.total == shown[2].state.total).all()
    assert (rounds_run(done.state), rounds_withheld(done.state)) == (4, 2)
    whole, least = ShuffleAccountant(), sampling.event(LOCAL, 1, 10)
    whole.compose(sampling.event(LOCAL, 1, 0), 4).compose(least, 3)
    assert budget.spent.num_charges == 7
    assert budget.spent.epsilon == float(whole.get_epsilon(DELTA))
    assert [(e.came, n) for e, n in privacy_events(done.state)] == [
        (40, 1), (30, 1), (30, 1), (30, 1)
    ]  # fmt: skip
    local = privacy_events(done.state, "local")
    assert sum(times for _, times in local) == 4, "all of them were sent"


@pytest.mark.exact
def test_an_epoch_goes_on_after_a_round_of_which_too_few_are_left():
    """Its price supposes that 30 honest ones come to each round, and says what is made of them."""
    sampling, budget = ShuffledEpochs(80, 40, 30).declared(), EpsilonBudget(None, DELTA)
    done = train(Checked(sampling, [40, 3, 2, 40]), attending([40] * 4), 4, budget)
    assert (done.rounds, done.withheld, budget.spent.num_charges) == (2, 2, 2)
    assert budget.spent.epsilon == price(sampling.event(LOCAL, 1, 10), 2)
    assert EpsilonBudget(None, DELTA, state=done.state).spent.epsilon == budget.spent.epsilon


@pytest.mark.exact
def test_records_without_a_check_read_as_they_did():
    """A crowd that lost reports otherwise is priced as what is left of it, and its text is old."""
    sampling = DeclaredSampling(400, 40, least_received=30)
    state = train(Summing(sampling, lost=15), attending([40]), 1, EpsilonBudget(None, DELTA)).state
    ((event, _),) = privacy_events(state)
    assert event.came == 25 and rounds_withheld(state) == 0
    assert b"least_left" not in state.privacy.config


@pytest.mark.exact
def test_coins_are_planned_as_before():
    state = Summing(SelfSampling(400, 40).declared()).initialize()
    assert least_clients(state) == 0
    assert planned_event(state, 41).sampling == "self"
