"""Events survive the trip through named tuples and JSON, and refuse what cannot have run."""

from __future__ import annotations

import json
import pickle

import attr
import dp_accounting
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    event_epsilon,
    local_event,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.shuffle.multi_message import messages_of
from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.mean import L2Mean, LInfMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses

pytestmark = pytest.mark.exact


class Stub:
    """The least that a randomizer must offer."""

    local_epsilon = 2.0

    def dominating_pair(self) -> ShufflePair:
        return ShufflePair.clones(2.0)


class Split(Stub):
    """Ten public rows."""

    def crowd_size(self, num_reports: int) -> int:
        return num_reports // 10

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return two_level_witnesses(7.0, 0.5, 0.0)


SEVERAL = LInfMean(5, 8.0, messages=(5, 2), message_epsilons=(1.0, 0.5))
LENGTH = L2Mean.for_shuffle(16, 1.0, 1e-6, 2000, method="l2")
EVENTS = [
    LocalRandomizerDpEvent(1.5),
    LocalRandomizerDpEvent(2.0, ShufflePair.clones(2.0, strong=True)),
    ShuffledDpEvent(LocalRandomizerDpEvent(0.1), 1),
    shuffled_event(Stub(), 10**9),
    shuffled_event(Split(), 1000),
    shuffled_event(frequency.KRandomizedResponse(50, 4.0), 10**6),
    shuffled_event(SEVERAL, 5000),
    shuffled_event(LENGTH, 2000),
    shuffled_event(frequency.UnaryEncoding(50, 1.0), 10**6),
]


@pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
def test_named_tuples_round_trip(event):
    again = dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple())
    assert again == event and hash(again) == hash(event) and type(again) is type(event)
    assert pickle.loads(pickle.dumps(event)) == event


def test_named_tuples_round_trip_inside_compositions():
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent(EVENTS), 3)
    again = dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple())
    assert list(again.event.events) == EVENTS


def test_lists_instead_of_tuples_are_the_same_event():
    """What comes back from JSON."""
    event = EVENTS[-1].local_event
    pair, witnesses = json.loads(json.dumps([event.pair, event.witnesses]))
    assert LocalRandomizerDpEvent(1.0, pair, witnesses) == event


def test_the_pair_returns_with_its_status_and_source():
    pair = ShufflePair.clones(2.0, strong=True)
    event = LocalRandomizerDpEvent(2.0, pair)
    assert event.dominating_pair() == pair
    assert LocalRandomizerDpEvent(2.0).dominating_pair() == ShufflePair.clones(2.0)
    assert local_event(Split()).witness_pairs() == two_level_witnesses(7.0, 0.5, 0.0)


def test_only_numbers_travel():
    """Version 0.6 of dp-accounting turns strings into lists of letters."""

    def leaves(value):
        if isinstance(value, tuple):
            for part in value:
                yield from leaves(part)
        else:
            yield value

    event = EVENTS[-1].local_event
    found = list(leaves((event.local_epsilon, event.pair, event.witnesses)))
    assert len(found) > 50 and all(type(leaf) in (int, float) for leaf in found)


def test_a_split_crowd_is_counted():
    assert shuffled_event(Split(), 1000).crowd == 100
    assert shuffled_event(Split(), 5).crowd == 1, "oneself"
    assert shuffled_event(Stub(), 1000).crowd == 1000


def test_an_event_costs_what_its_randomizer_costs():
    oracle = frequency.KRandomizedResponse(50, 4.0)
    event = shuffled_event(oracle, 10**5)
    direct = shuffle_epsilon(oracle, 10**5, 1e-6)
    again = shuffle_epsilon(event.local_event, event.num_reports, 1e-6)
    assert again == direct and again.lower == direct.lower and again.method == direct.method


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_local_epsilon_is_checked(wrong):
    with pytest.raises(ValueError, match="local_epsilon"):
        LocalRandomizerDpEvent(wrong)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, 10**13])
def test_num_reports_is_checked(wrong):
    with pytest.raises(ValueError, match="num_reports"):
        ShuffledDpEvent(LocalRandomizerDpEvent(1.0), wrong)


def test_only_local_events_are_shuffled():
    with pytest.raises(ValueError, match="local_event"):
        ShuffledDpEvent(dp_accounting.GaussianDpEvent(1.0), 10)


def test_several_messages_are_columns():
    event = shuffled_event(SEVERAL, 5000)
    assert isinstance(event, ShuffledMessagesDpEvent)
    assert event.messages == tuple(map(tuple, messages_of(SEVERAL)))
    assert event.num_reports == 5000 and event.squared_change is None
    assert event.local_epsilon == SEVERAL.local_epsilon
    assert shuffled_event(LENGTH, 2000).squared_change == LENGTH.squared_change


def test_several_messages_that_nobody_describes_are_refused():
    class Several(Stub):
        messages_per_user = 3

    with pytest.raises(ValueError, match="one message per user"):
        shuffled_event(Several(), 10)


@pytest.mark.parametrize("event", [EVENTS[5], shuffled_event(SEVERAL, 5000)], ids=["one", "many"])
def test_a_smaller_crowd_by_evolution(event):
    fewer = attr.evolve(event, num_reports=77)
    assert type(fewer) is type(event) and fewer.num_reports == 77
    assert fewer.local_epsilon == event.local_epsilon
    assert event_epsilon(fewer, 1e-6) > event_epsilon(event, 1e-6)
    with pytest.raises(ValueError, match="num_reports"):
        attr.evolve(event, num_reports=0)


def test_randomizers_give_their_event():
    oracle = frequency.KRandomizedResponse(50, 4.0)
    assert oracle.dp_event() == local_event(oracle)
    assert ShuffledDpEvent(oracle.dp_event(), num_reports=10**6) == EVENTS[5]
    several = LENGTH.dp_event()
    assert several.pair is None and several.messages == LENGTH.messages_per_user


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": ()}, "messages must hold"),
        ({"messages": ((0, 1.0),)}, "messages must hold"),
        ({"messages": ((1, -1.0),)}, "messages must hold"),
        ({"num_reports": 0}, "num_reports"),
        ({"squared_change": 0.0}, "squared_change"),
        ({"places": 0}, "places"),
        ({"local_epsilon": -2.0}, "local_epsilon"),
    ],
)
def test_impossible_messages_are_refused(fields, message):
    good = {"messages": ((3, 1.0),), "num_reports": 10, "squared_change": None}
    assert ShuffledMessagesDpEvent(**good).local_epsilon == 3.0
    with pytest.raises(ValueError, match=message):
        ShuffledMessagesDpEvent(**{**good, **fields})


def test_events_are_frozen():
    with pytest.raises(AttributeError):
        EVENTS[0].local_epsilon = 0.1
    with pytest.raises(AttributeError):
        EVENTS[2].num_reports = 10**6
