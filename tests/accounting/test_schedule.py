"""What a schedule is, and for whom its price holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.accounting.events import ShuffledDpEvent, SubsampledShuffledDpEvent
from beam_ldp.accounting.schedule import UNLIKELY, Schedule
from beam_ldp.accounting.schedule_prices import schedule_epsilon
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.research.published.methods import price_of

pytestmark = pytest.mark.exact

WAYS = ("Rényi orders", "privacy losses")
TWO_BITS = LInfMean(3, 4.0, messages=(2,), message_epsilons=(2.0,))
TRAINING = Schedule(2.0, 60_000, 2_000, 6_000)


def test_event_of_a_round():
    assert isinstance(TRAINING.event(), SubsampledShuffledDpEvent)
    assert TRAINING.event().num_reports == 2_000
    assert Schedule(2.0, 100, 100, 7).event() == ShuffledDpEvent(TRAINING.any_event, 100)
    coins = Schedule(2.0, 100, 10, 7, sampling="poisson").event()
    assert isinstance(coins, SubsampledShuffledDpEvent) and coins.sampling == "poisson"


def test_points_count_for_the_rate():
    schedule = Schedule(1.0, 1000, 100, 5, points_per_client=20, points_sampled=4)
    assert schedule.num_reports == 400
    assert schedule.rate == pytest.approx(0.1 * 0.2)
    assert schedule.sampled and not Schedule(1.0, 1000, 1000, 5).sampled
    assert Schedule(1.0, 1000, 1000, 5, points_per_client=2).sampled


def test_who_sees_who_took_part_sees_full_shuffles_of_the_busiest():
    seen = TRAINING.seen
    assert (seen.num_users, seen.num_sampled, seen.sampled) == (2_000, 2_000, False)
    law = stats.binom(6_000, 1 / 30)
    assert 60_000 * law.sf(seen.rounds) <= UNLIKELY < 60_000 * law.sf(seen.rounds - 1)
    whole = Schedule(2.0, 100, 100, 7)
    assert whole.seen is whole
    assert TRAINING.reader != whole.reader


def test_shuffled_epochs_cost_full_shuffles_and_nobody_is_in_more_rounds_than_epochs():
    epochs = replace(TRAINING, sampling="shuffled_epochs")
    shuffles = epochs.in_shuffles()
    assert (shuffles.num_users, shuffles.rounds, shuffles.sampled) == (60_000, 200, False)
    found = schedule_epsilon(epochs, 1e-5)
    assert found == pytest.approx(0.8821, abs=2e-4)
    assert found == pytest.approx(schedule_epsilon(TRAINING, 1e-5), rel=1e-3)
    accountant = ShuffleAccountant().compose(epochs.event(), 200)
    assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)
    assert (epochs.seen.num_users, epochs.seen.rounds) == (
        2_000,
        200,
    ) and TRAINING.most_rounds == 6_000
    assert schedule_epsilon(epochs.seen, 1e-5) == pytest.approx(6.01, abs=2e-3)
    assert epochs.reader == TRAINING.reader and 0 < found.class_lower < found


def test_epochs_that_are_no_whole_ones_are_counted_so_from_above_only():
    some = Schedule(2.0, 1_050, 100, 25, sampling="shuffled_epochs")
    assert (some.in_shuffles().num_users, some.in_shuffles().rounds) == (1_000, 3)
    assert (
        some.in_shuffles("lower") is None and replace(some, rounds=5).in_shuffles("lower") is None
    )
    whole = replace(some, num_users=1_000)
    assert whole.in_shuffles("lower").rounds == 2
    points = replace(whole, points_per_client=4)
    assert points.seen.rounds <= points.most_rounds == 3
    assert points.in_shuffles().sampled  # of one point in four
    event = points.event()
    exact = ShuffleAccountant().compose(event, 2).compose(replace(points, rounds=5).event())
    assert float(exact.get_epsilon(1e-6)) <= schedule_epsilon(points, 1e-6) * (1 + 1e-9)
    bits = Schedule(4.0, 1_000, 100, 5, sampling="shuffled_epochs", randomizer=TWO_BITS)
    assert bits.in_shuffles().randomizer is None and bits.in_shuffles("lower") is None


@pytest.mark.parametrize("sampling", ["self", "poisson"])
def test_with_coins_the_smallest_batch_is_priced_where_it_is_seen(sampling):
    schedule = Schedule(2.0, 6_000, 600, 100, points_per_client=5, sampling=sampling)
    law = stats.binom(6_000 if sampling == "self" else 30_000, 600 / (
        6_000 if sampling == "self" else 30_000))  # fmt: skip
    fewest = schedule.seen.num_reports
    assert 100 * law.cdf(fewest - 1) <= UNLIKELY < 100 * law.cdf(fewest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"local_epsilon": 0.0}, "local_epsilon must lie in"),
        ({"local_epsilon": 31.0}, "local_epsilon must lie in"),
        ({"num_users": 0}, "num_reports must be"),
        ({"num_sampled": 70_000}, "num_sampled must be at most num_users"),
        ({"rounds": 0}, "rounds must lie in"),
        ({"points_sampled": 2}, "points_sampled must be at most points_per_client"),
        ({"sampling": "sorted"}, "sampling must be"),
        ({"sampling": "self", "points_per_client": 3, "points_sampled": 2}, "points_sampled must"),
        ({"randomizer": KRandomizedResponse(10, 1.0)}, "local_epsilon must be that of"),
    ],
)
def test_impossible_schedules_are_refused(change, message):
    fields = {"local_epsilon": 2.0, "num_users": 60_000, "num_sampled": 2_000, "rounds": 10}
    with pytest.raises(ValueError, match=message):
        Schedule(**{**fields, **change})


def test_a_crowd_that_is_split_in_public_is_refused():
    oracle = BinaryHadamard(1000, 2.0, row="public")
    with pytest.raises(ValueError, match="must not split the crowd by something public"):
        Schedule(2.0, 10**6, 10**6, 1, randomizer=oracle)


@pytest.mark.parametrize(
    ("rounds", "by_orders", "by_losses"),
    [(200, 6.526, 6.009), (262, 7.592, 7.055), (299, 8.228, 7.637)],
)
def test_price_of_the_rounds_that_somebody_was_seen_in(rounds, by_orders, by_losses):
    """200 is the mean of a person's count, 262 that of the largest of 60,000 counts."""
    everybody = Schedule(2.0, 2_000, 2_000, rounds)
    prices = [price_of(f"clone pair, {way}", everybody, 1e-5) for way in WAYS]
    assert prices == pytest.approx([by_orders, by_losses], abs=6e-4)


def test_which_count_a_price_against_those_who_see_is_for():
    counts = stats.binom(TRAINING.rounds, TRAINING.rate)
    assert counts.mean() == pytest.approx(200)
    largest = counts.cdf(np.arange(400)) ** TRAINING.num_users
    assert np.sum(1 - largest) == pytest.approx(262, abs=0.5)
    assert 1 - largest[TRAINING.seen.rounds] <= UNLIKELY and TRAINING.seen.rounds == 299
