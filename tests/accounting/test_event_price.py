"""One price for every kind of event, and the same by every road to it."""

from __future__ import annotations

import dp_accounting
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    event_epsilon,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.shuffle.one_release import mean_epsilon
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import L2Mean, LInfMean

pytestmark = pytest.mark.exact

SEVERAL = LInfMean(5, 8.0, messages=(5, 2), message_epsilons=(1.0, 0.5))
LENGTH = L2Mean.for_shuffle(16, 1.0, 1e-6, 2000, method="l2")


def test_one_message_is_a_shuffle():
    oracle = KRandomizedResponse(50, 4.0)
    price, direct = (
        event_epsilon(shuffled_event(oracle, 10**5), 1e-6),
        shuffle_epsilon(oracle, 10**5, 1e-6),
    )
    assert price == direct and price.lower == direct.lower and price.method == direct.method


@pytest.mark.parametrize("mechanism", [SEVERAL, LENGTH], ids=["columns", "length"])
def test_several_messages_by_every_road(mechanism):
    price = event_epsilon(shuffled_event(mechanism, 2000), 1e-6)
    assert price == shuffle_epsilon(mechanism, 2000, 1e-6) == mean_epsilon(mechanism, 2000, 1e-6)
    composed = ShuffleAccountant().compose(shuffled_event(mechanism, 2000)).get_epsilon(1e-6)
    assert composed == pytest.approx(price, rel=2e-3)


def test_without_delta_the_local_epsilon_holds():
    for mechanism in (SEVERAL, LENGTH, KRandomizedResponse(5, 1.0)):
        price = event_epsilon(shuffled_event(mechanism, 2000), 0.0)
        assert price == pytest.approx(mechanism.local_epsilon)


def test_known_length_composes_by_orders_where_that_is_less():
    event = shuffled_event(LENGTH, 2000)
    bound = ShuffleAccountant().compose(event, 10).get_epsilon(1e-6)
    assert bound.method.startswith("Rényi")
    columns = shuffled_event(LInfMean(16, 1000.0, messages=(16,), message_epsilons=(1.0,)), 2000)
    flat = ShuffleAccountant().compose(columns, 3).get_epsilon(1e-6)
    assert flat.method.startswith("privacy-loss")
    assert flat <= 3 * event_epsilon(columns, 1e-6 / 3)


def test_events_without_a_shuffle():
    assert event_epsilon(LocalRandomizerDpEvent(1.5), 0.0) == 1.5
    training = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2000)
    everybody = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 2000)
    assert event_epsilon(training, 1e-6) < event_epsilon(everybody, 1e-6)
    with pytest.raises(dp_accounting.UnsupportedEventError):
        event_epsilon(dp_accounting.UnsupportedDpEvent(), 1e-6)
