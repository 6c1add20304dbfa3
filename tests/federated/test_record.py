"""The record in the state: events of what ran, exactly; and what is refused."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    SubsampledShuffledDpEvent,
    event_epsilon,
    local_event,
)
from beam_ldp.federated.record import (
    last_event,
    last_reports,
    planned_event,
    privacy_event,
    privacy_events,
    rounds_charged,
    rounds_run,
)
from beam_ldp.federated.samplers import DeclaredSampling, SamplingMismatchError
from beam_ldp.randomizers.mean import BinaryVectorMean, LInfMean
from tests.federated.records import record

ONE_BIT = LInfMean(3, 2.0, messages=(1,), message_epsilons=(2.0,))
TWO_BITS = LInfMean(3, 4.0, messages=(2,), message_epsilons=(2.0,))


@pytest.mark.exact
def test_price_of_one_sample_for_two_messages_is_not_that_of_two_samples():
    """A coin that tells who was drawn would make the second message unsampled."""
    sampling = DeclaredSampling(1000, 50)
    bit = BinaryVectorMean(1, 0.5)
    ((joint, _),) = privacy_events(record([ONE_BIT, bit], [[50, 1]], 1, sampling))
    apart = ShuffleAccountant()
    for mechanism in (ONE_BIT, bit):
        apart.compose(SubsampledShuffledDpEvent(local_event(mechanism), 1000, 50))
    together = ShuffleAccountant().compose(joint)
    assert together.get_epsilon(1e-5) > apart.get_epsilon(1e-5)
    assert joint.local_event.columns == ((1, pytest.approx(2.0)), (1, pytest.approx(0.5)))
    whole = DeclaredSampling(1000, 50).event(LocalRandomizerDpEvent(joint.local_epsilon), 1)
    assert event_epsilon(joint, 1e-5) <= event_epsilon(whole, 1e-5) * (1 + 1e-9)


EPOCHS = DeclaredSampling(200, 50, sampling="shuffled_epochs", least_received=45)


@pytest.mark.exact
def test_an_epoch_is_one_event_of_its_first_round():
    """Whoever was in it was once; the rounds after the first cost nothing more."""
    epoch, nothing = EPOCHS.event(local_event(ONE_BIT), 1), dp_accounting.NoOpDpEvent()
    assert epoch.num_received == 45 and epoch.whole_epoch == EPOCHS.rounds_per_epoch == 4
    for ran in range(10):
        state = record([ONE_BIT], [[50, 1]] * (ran // 2) + [[47, 1]] * (ran - ran // 2), 1, EPOCHS)
        begun = -(-ran // 4)
        assert sum(times for _, times in privacy_events(state)) == begun == rounds_charged(state)
        assert planned_event(state, 48) == (nothing if ran % 4 else epoch)
        if ran:
            assert last_event(state) == (epoch if ran % 4 == 1 else nothing)
        local = privacy_events(state, "local")
        assert sum(times for event, times in local if event == local_event(ONE_BIT)) == begun
    in_a_row = record([ONE_BIT], [[50, 6], [46, 3]], 1, EPOCHS)
    assert privacy_events(in_a_row) == [(epoch, 2), (epoch, 1)]


@pytest.mark.exact
def test_a_round_of_fewer_than_its_epoch_supposes_is_charged_as_an_epoch():
    """What was charged before cannot be taken back; without a crowd it is the local epsilon."""
    state = record([ONE_BIT], [[50, 1], [44, 1], [0, 1]], 1, EPOCHS)
    epoch = EPOCHS.event(local_event(ONE_BIT), 1)
    fewer = SubsampledShuffledDpEvent(local_event(ONE_BIT), 200, 50, 44, sampling="shuffled_epochs")
    assert privacy_events(state) == [(epoch, 1), (fewer, 1), (local_event(ONE_BIT), 1)]
    with pytest.raises(SamplingMismatchError, match="sampling gives 45 to 50"):
        planned_event(state, 44)
    with pytest.raises(ValueError, match="points_sampled must be 1"):
        EPOCHS.event(local_event(ONE_BIT), 2)


@pytest.mark.exact
@pytest.mark.parametrize(
    "sampling, reports",
    [
        (DeclaredSampling(1000, 50), 51),
        (DeclaredSampling(1000, 50, 1, "self"), 200),
        (DeclaredSampling(1000, 50, 1, "self"), 0),
    ],
)
def test_rounds_that_sampling_does_not_give_are_refused(sampling, reports):
    state = record([ONE_BIT], [[reports, 1]], 1, sampling)
    for ask in (privacy_events, privacy_event, last_event, lambda s: planned_event(s, reports)):
        with pytest.raises(
            SamplingMismatchError, match=f"a round of {reports} clients has no privacy cost"
        ):
            ask(state)


@pytest.mark.exact
@pytest.mark.parametrize("reports", [49, 0])
def test_a_sample_of_fewer_is_never_planned_and_is_the_rest_of_one(reports):
    """Who stays away ends the round; who came and sent nonsense is in it, and hides nobody."""
    sampling = DeclaredSampling(1000, 50)
    state = record([ONE_BIT], [[reports, 2]], 1, sampling)
    with pytest.raises(
        SamplingMismatchError, match=f"a round of {reports} clients has no privacy cost"
    ):
        planned_event(state, reports)
    found = privacy_events(state)
    if not reports:
        assert found == [] and last_event(state) == dp_accounting.NoOpDpEvent()
        return
    others = SubsampledShuffledDpEvent(local_event(ONE_BIT), 1000, 50, 49)
    assert found == [(others, 2)] and last_event(state) == others
    assert planned_event(state, 50) == sampling.event(local_event(ONE_BIT), 1)


@pytest.mark.exact
def test_a_round_may_lose_as_many_as_was_declared():
    """Of 50 drawn, 45 come at least: those who came are charged for, at the rate of 50."""
    sampling = DeclaredSampling(1000, 50, least_received=45)
    state = record([ONE_BIT], [[46, 1], [50, 2]], 1, sampling)
    drawn = [SubsampledShuffledDpEvent(local_event(ONE_BIT), 1000, 50, n) for n in (46, None)]
    assert privacy_events(state) == [(drawn[0], 1), (drawn[1], 2)]
    assert planned_event(state, 45).num_received == 45
    with pytest.raises(SamplingMismatchError, match="sampling gives 45 to 50"):
        planned_event(state, 44)
    fakes = DeclaredSampling(1000, 50, sampling="self", num_fakes=100)
    assert fakes.event(local_event(ONE_BIT), 1).num_honest == 900
    for wrong in ({"least_received": 51}, {"sampling": "self", "least_received": 45}):
        with pytest.raises(ValueError, match="least_received must be"):
            DeclaredSampling(1000, 50, **wrong)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("users", "drawn", "points", "sampled"), [(1000, 50, 1, 1), (60, 60, 5, 2), (997, 13, 3, 1)]
)
def test_the_rate_of_a_round_with_dropped_clients_is_no_smaller(users, drawn, points, sampled):
    sampling, last = DeclaredSampling(users, drawn, points), 0.0
    full = sampling.event(local_event(ONE_BIT), sampled)
    assert sampling.event(local_event(ONE_BIT), sampled, 0) == full
    for dropped in range(drawn):
        event = sampling.event(local_event(ONE_BIT), sampled, dropped)
        assert event.num_reports == (drawn - dropped) * sampled
        assert event.rate >= full.rate * (1 - 1e-12)
        price = float(ShuffleAccountant([2.0, 8.0]).compose(event).get_epsilon(1e-5))
        assert price >= last * (1 - 1e-9)
        last = price


@pytest.mark.exact
def test_the_price_of_a_smaller_crowd_at_the_same_rate():
    """2,000 of 60,000 drawn, 1,800 of them honest, 6,000 rounds: 0.934; as a sample of 1,800 of
    60,000 it would be 0.833, which is too small."""
    sampling, local = DeclaredSampling(60_000, 2_000), LocalRandomizerDpEvent(2.0)
    price = ShuffleAccountant().compose(sampling.event(local, 1, 200), 6_000).get_epsilon(1e-5)
    assert float(price) == pytest.approx(0.934, abs=0.001)


@pytest.mark.exact
@pytest.mark.parametrize("local", [0.5, 2.0, 4.0])
def test_no_sample_with_a_liar_in_it_costs_more(local):
    """Every sample of 4 of 6 people that holds the one who sends nonsense, whatever the others'
    values: what readers of the others' shuffled bits learn of one person is within the price."""
    event = DeclaredSampling(6, 4).event(LocalRandomizerDpEvent(local), 1, 1)
    flip = 1 / (1 + np.exp(local))

    def ones(values):
        """Law of the number of ones among the reports about these values."""
        law = np.ones(1)
        for value in values:
            p = 1 - flip if value else flip
            law = np.convolve(law, [1 - p, p])
        return law

    def seen(values):
        """3 of the 5 honest ones are in it."""
        return np.mean([ones(some) for some in combinations(values, 3)], axis=0)

    for others in combinations_with_replacement((0, 1), 4):
        laws = seen((0, *others)), seen((1, *others))
        for eps in np.linspace(0, local, 25):
            delta = max(np.maximum(a - np.exp(eps) * b, 0).sum() for a, b in (laws, laws[::-1]))
            if delta > 1e-15:
                assert float(event_epsilon(event, delta)) >= eps - 1e-9


@pytest.mark.exact
def test_what_coins_give():
    low, high = DeclaredSampling(1000, 50, 1, "self").allowed
    coins = stats.binom(1000, 0.05)
    assert 0 < low < 50 < high < 1000
    assert coins.cdf(low - 1) + coins.sf(high) < 1e-12
    assert coins.cdf(low) > 1e-13 and coins.sf(high - 1) > 1e-13


@pytest.mark.exact
def test_coins_that_nobody_won_cost_what_all_coins_cost():
    """The price of a coin counts that it may fail: charging only wins would count that twice."""
    coins = DeclaredSampling(12, 1, 1, "self")
    assert coins.allowed[0] == 0
    nobody, one = (record([ONE_BIT], [[n, 1]], 1, coins) for n in (0, 1))
    assert privacy_events(nobody) == privacy_events(one) != []
    sample = DeclaredSampling(12, 2)
    assert privacy_events(record([ONE_BIT], [[0, 1]], 1, sample)) == [], "no honest one was in it"


@pytest.mark.exact
def test_seeded_rounds_have_no_price():
    state = record([ONE_BIT], [[5, 1]], seeded=True)
    assert privacy_events(state) is privacy_event(state) is planned_event(state, 5) is None
    assert last_event(state) is None and rounds_charged(state) == 0 and rounds_run(state) == 1


@pytest.mark.exact
def test_the_most_reports_of_any_record_count_as_those_of_the_round():
    nested = {"mean": record([ONE_BIT], [[5, 2], [4, 1]]), "clip": record([ONE_BIT], [[3, 3]])}
    assert last_reports(nested) == 4 and rounds_run(nested) == 3
    assert last_reports(record([ONE_BIT], [[0, 1]])) == 0


@pytest.mark.exact
def test_a_state_without_a_record_has_run_nothing():
    assert rounds_run({"weights": np.zeros(3)}) == 0
    assert rounds_charged({"weights": np.zeros(3)}) == 0
