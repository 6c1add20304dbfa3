"""dp-accounting's suite, for every constructor of ours, and its laws for every kind of event."""

from __future__ import annotations

import json
import math

import dp_accounting
import pytest
from dp_accounting import dp_event, privacy_accountant, privacy_accountant_test

from beam_ldp.accounting import (
    CommittedDpEvent,
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    ShuffledSharesDpEvent,
    SubsampledShuffledDpEvent,
    local_event,
    mixed_shuffled_event,
    shuffled_event,
)
from beam_ldp.accounting import event_json as formats
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import L2Mean

pytestmark = pytest.mark.exact

LOCAL = LocalRandomizerDpEvent(1.0)
SHUFFLED = ShuffledDpEvent(LOCAL, 10_000)
NOISE = dp_accounting.GaussianDpEvent(5.0)
DELTA = 1e-6
ACCOUNTANTS = {
    "plain": ShuffleAccountant,
    "orders": lambda: ShuffleAccountant([2.0, 8.0, 64.0]),
    "adaptive": lambda: ShuffleAccountant(adaptive=True),
    "order": lambda: ShuffleAccountant(adaptive=True, order=16.0),
    "chances": lambda: ShuffleAccountant(adaptive=True, chances=0.1),
}
OWN = {
    "LocalRandomizerDpEvent": LOCAL,
    "local_event": local_event(KRandomizedResponse(10, 1.0)),
    "local_event of several messages": local_event(L2Mean(20, 4.0)),
    "ShuffledDpEvent": SHUFFLED,
    "ShuffledDpEvent with fakes": ShuffledDpEvent(LOCAL, 9000, num_fakes=1000),
    "shuffled_event": shuffled_event(KRandomizedResponse(10, 1.0), 10_000),
    "ShuffledMessagesDpEvent": ShuffledMessagesDpEvent([(1, 0.5), (2, 0.3)], 10_000),
    "shuffled_event of several messages": shuffled_event(L2Mean(20, 2.0), 10_000),
    "mixed_shuffled_event": mixed_shuffled_event(
        [(KRandomizedResponse(10, 1.0), 6000), (KRandomizedResponse(10, 2.0), 4000)]
    ),
    "SubsampledShuffledDpEvent": SubsampledShuffledDpEvent(LOCAL, 60_000, 2000),
    "SubsampledShuffledDpEvent with losses": SubsampledShuffledDpEvent(
        LOCAL, 60_000, num_drawn=2000, num_received=1800, num_fakes=100
    ),
    "SubsampledShuffledDpEvent of one epoch": SubsampledShuffledDpEvent(
        LOCAL, 60_000, 2000, sampling="shuffled_epochs", rounds=30
    ),
    "SubsampledShuffledDpEvent of several messages": SubsampledShuffledDpEvent(
        local_event(L2Mean(20, 4.0)), 60_000, 2000
    ),
    "ShuffledSharesDpEvent": ShuffledSharesDpEvent(16, 1000, 3.0, 24, 9, 10_000),
    "CommittedDpEvent": CommittedDpEvent(
        dp_accounting.ComposedDpEvent([SHUFFLED, NOISE]), DELTA / 20
    ),
}
THEIRS = {
    "RandomizedResponseDpEvent": dp_event.RandomizedResponseDpEvent(0.5, 4),
    "GaussianDpEvent": NOISE,
    "LaplaceDpEvent": dp_event.LaplaceDpEvent(20.0),
    "DiscreteLaplaceDpEvent": dp_event.DiscreteLaplaceDpEvent(0.1, 1),
    "SelfComposedDpEvent": dp_event.SelfComposedDpEvent(SHUFFLED, 2),
    "ComposedDpEvent": dp_event.ComposedDpEvent([SHUFFLED, NOISE]),
    "PoissonSampledDpEvent": dp_event.PoissonSampledDpEvent(0.01, NOISE),
    "SampledWithoutReplacementDpEvent": dp_event.SampledWithoutReplacementDpEvent(1000, 10, NOISE),
    "RepeatAndSelectDpEvent": dp_event.RepeatAndSelectDpEvent(NOISE, 2.0, 1.0),
    "ZCDpEvent": dp_event.ZCDpEvent(0.01),
    "TruncatedSubsampledGaussianDpEvent": dp_event.TruncatedSubsampledGaussianDpEvent(
        1000, 0.01, 30, 5.0
    ),
}
REFUSED = {
    "SampledWithReplacementDpEvent": dp_event.SampledWithReplacementDpEvent(1000, 10, NOISE),
    "SingleEpochTreeAggregationDpEvent": dp_event.SingleEpochTreeAggregationDpEvent(5.0, 8),
    "MixtureOfGaussiansDpEvent": dp_event.MixtureOfGaussiansDpEvent(5.0, (1.0,), (1.0,)),
    "PoissonSampledDpEvent of Laplace noise": dp_event.PoissonSampledDpEvent(
        0.01, dp_event.LaplaceDpEvent(20.0)
    ),
    "SampledWithoutReplacementDpEvent of reports": dp_event.SampledWithoutReplacementDpEvent(
        1000, 10, LOCAL
    ),
}
EVENTS = OWN | THEIRS
_OF_CHANCES = ("CommittedDpEvent", "ShuffledSharesDpEvent")
UNPRICED = {  # by filters over orders: no order is known, or chances were set aside for none
    *(("TruncatedSubsampledGaussianDpEvent", kind) for kind in ("adaptive", "order", "chances")),
    *((name, kind) for name in _OF_CHANCES for kind in ("adaptive", "order")),
}
NEITHER = {"NoOpDpEvent", "NonPrivateDpEvent"}  # the suite has them


def test_no_constructor_is_left_out():
    """A kind of event that dp-accounting or we add must be entered here."""
    named = {name.partition(" ")[0] for name in (*EVENTS, *REFUSED)}
    assert set(formats._theirs()) <= named | NEITHER
    assert set(formats._own()) <= named
    assert {"local_event", "shuffled_event", "mixed_shuffled_event"} <= named


class SuiteOfDpAccountingTest(privacy_accountant_test.PrivacyAccountantTest):
    def _make_test_accountants(self):
        made = [make() for make in ACCOUNTANTS.values()]
        return [*made, *(ShuffleAccountant.from_state_dict(one.state_dict()) for one in made)]


@pytest.mark.parametrize("kind", ACCOUNTANTS)
@pytest.mark.parametrize("name", EVENTS)
def test_laws_of_the_suite_hold_beside_every_event(name, kind):
    """What the suite asks of an empty accountant, of one that has composed something."""
    event = EVENTS[name]
    accountant = ACCOUNTANTS[kind]().compose(event)
    assert accountant.supports(event) and accountant.neighboring_relation.name == "REPLACE_ONE"
    price = accountant.get_epsilon(DELTA)
    if (name, kind) in UNPRICED:
        assert price == math.inf and accountant.get_delta(9.0) == 1
    else:
        assert 0 < price < math.inf and accountant.get_epsilon(1) == 0
        assert accountant.get_delta(float(price)) <= DELTA * (1 + 1e-9)
        assert accountant.get_delta(math.inf) <= DELTA
    state = accountant.state_dict()
    for unsupported in (dp_event.UnsupportedDpEvent(), *REFUSED.values()):
        beside = dp_event.ComposedDpEvent([event, unsupported])
        assert not accountant.supports(beside)
        with pytest.raises(privacy_accountant.UnsupportedEventError, match="caused by subevent"):
            accountant.compose(beside)
    accountant.compose(dp_event.NoOpDpEvent())
    assert accountant.state_dict() == state, "what was refused, or is nothing, must cost nothing"
    again = ShuffleAccountant.from_state_dict(json.loads(json.dumps(state)))
    assert again.get_epsilon(DELTA) == price
    accountant.compose(dp_event.NonPrivateDpEvent())
    assert accountant.get_epsilon(0.99) == math.inf and accountant.get_delta(100) == 1


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_three_of_an_event_cost_the_same_however_they_are_written(event):
    at_once = ShuffleAccountant().compose(event, 3)
    nested = ShuffleAccountant().compose(dp_event.SelfComposedDpEvent(event, 3))
    listed = ShuffleAccountant().compose(dp_event.ComposedDpEvent([event, event, event]))
    prices = [float(one.get_epsilon(DELTA)) for one in (at_once, nested, listed)]
    assert prices == pytest.approx([prices[0]] * 3, rel=1e-9)
    assert prices[0] >= ShuffleAccountant().compose(event).get_epsilon(DELTA)
    text = json.dumps(formats.event_to_json(event))
    assert formats.event_from_json(json.loads(text)) == event
