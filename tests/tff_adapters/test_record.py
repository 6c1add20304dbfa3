"""The record in the state: events of what ran, exactly; and what is refused."""

from __future__ import annotations

import json
from collections import OrderedDict

import attr
import dp_accounting
import numpy as np
import pytest
import tensorflow_federated as tff

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
    local_event,
    shuffled_event,
)
from beam_ldp.accounting.shuffle.multi_message import messages_of
from beam_ldp.federated.record import last_event, rounds_charged, rounds_run
from beam_ldp.randomizers.mean import LInfMean, PrivUnit
from tests.federated.records import record
from tff_adapters import (
    AdaptiveClip,
    DeclaredSampling,
    LocallyPrivateMeanFactory,
    planned_event,
    privacy_event,
    privacy_events,
)

ONE_BIT = LInfMean(3, 2.0, messages=(1,), message_epsilons=(2.0,))
TWO_BITS = LInfMean(3, 4.0, messages=(2,), message_epsilons=(2.0,))
FLOATS3 = tff.TensorType(np.float32, (3,))
ZEROS = np.zeros(3, np.float32)


@pytest.mark.exact
def test_rounds_that_ran_are_in_the_state():
    process = LocallyPrivateMeanFactory(ONE_BIT).create(FLOATS3)
    state = process.initialize()
    assert privacy_events(state) == [] and rounds_run(state) == 0
    for count in (4, 4, 0, 7, 4):
        state = process.next(state, [ZEROS] * count).state
    assert state.privacy.rounds.tolist() == [[4, 2], [0, 1], [7, 1], [4, 1]]
    expected = [(shuffled_event(ONE_BIT, n), times) for n, times in [(4, 2), (7, 1), (4, 1)]]
    assert privacy_events(state) == expected
    assert isinstance(expected[0][0], ShuffledDpEvent)
    assert (rounds_run(state), rounds_charged(state)) == (5, 4)
    assert last_event(state) == planned_event(state, 4) == expected[-1][0]
    local = privacy_events(state, "local")
    assert [(e.local_epsilon, times) for e, times in local] == [(2.0, 2), (2.0, 1), (2.0, 1)]


@pytest.mark.exact
def test_a_learning_process_is_read_at_any_round():
    from tests.tff_adapters.test_aggregators import tiny_model
    from tff_adapters import no_client_metrics

    process = tff.learning.algorithms.build_unweighted_fed_avg(
        tiny_model,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        model_aggregator=LocallyPrivateMeanFactory(ONE_BIT),
        metrics_aggregator=no_client_metrics,
    )
    state = process.initialize()
    assert privacy_events(state) == []
    after = process.next(state, []).state
    assert rounds_run(after) == 1 and privacy_events(after) == []
    nested = OrderedDict(a=1.0, b=[state, (after,)])
    assert planned_event(nested, 9).events == [shuffled_event(ONE_BIT, 9)] * 2


@pytest.mark.exact
def test_events_by_what_was_sent():
    sampling = DeclaredSampling(1000, 50, 4)
    bit = AdaptiveClip(0.5).mechanism
    columns = tuple(messages for m in (ONE_BIT, bit) for messages in messages_of(m))
    one, both = local_event(ONE_BIT), LocalRandomizerDpEvent(2.5, messages=2, columns=columns)
    cases = [
        (record([ONE_BIT], [[50, 3]]), ShuffledDpEvent(one, 50)),
        (record([ONE_BIT], [[50, 3]], values=4), ShuffledDpEvent(one, 200)),
        (record([TWO_BITS], [[50, 3]]), shuffled_event(TWO_BITS, 50)),
        (
            record([ONE_BIT, bit], [[50, 3]]),
            dp_accounting.ComposedDpEvent([shuffled_event(ONE_BIT, 50), shuffled_event(bit, 50)]),
        ),
        (
            record([ONE_BIT], [[50, 3]], 2, sampling),
            SubsampledShuffledDpEvent(one, 1000, 50, points_per_client=4, points_sampled=2),
        ),
        # One sample for both: composing two sampled events would price two samples.
        (
            record([ONE_BIT, bit], [[50, 3]], 2, sampling),
            SubsampledShuffledDpEvent(both, 1000, 50, points_per_client=4, points_sampled=2),
        ),
        (
            record([TWO_BITS], [[50, 3]], 1, sampling),
            SubsampledShuffledDpEvent(TWO_BITS.dp_event(), 1000, 50, points_per_client=4),
        ),
        (
            record([ONE_BIT], [[52, 3]], 1, DeclaredSampling(1000, 50, 4, "self")),
            SubsampledShuffledDpEvent(one, 1000, 50, points_per_client=4, sampling="self"),
        ),
        (record([ONE_BIT], [[50, 3]], 1, DeclaredSampling(50, 50)), ShuffledDpEvent(one, 50)),
    ]
    for state, event in cases:
        assert privacy_events(state) == [(event, 3)]
        assert privacy_event(state) == dp_accounting.ComposedDpEvent(
            [dp_accounting.SelfComposedDpEvent(event, 3)]
        )
        ShuffleAccountant().compose(privacy_event(state))
    assert isinstance(cases[2][1], ShuffledMessagesDpEvent)


@pytest.mark.exact
def test_refusals():
    with pytest.raises(ValueError, match="num_drawn must be at most num_users"):
        DeclaredSampling(10, 11)
    with pytest.raises(ValueError, match='"self" or "shuffled_epochs", got .poisson'):
        DeclaredSampling(10, 5, sampling="poisson")
    with pytest.raises(ValueError, match="points_sampled must be at most points_per_client"):
        LocallyPrivateMeanFactory(ONE_BIT, values_per_client=2, sampling=DeclaredSampling(10, 5))
    with pytest.raises(ValueError, match="state must hold a privacy record"):
        privacy_events(OrderedDict(a=1, b=()))
    with pytest.raises(ValueError, match="reader must be"):
        privacy_events(record([ONE_BIT], [[5, 1]]), "everybody")
    with pytest.raises(ValueError, match="has run a round"):
        last_event(record([ONE_BIT], []))
    old = record([ONE_BIT], [])
    told = {**json.loads(old.config), "version": 2}
    with pytest.raises(ValueError, match="version of a privacy record must be 1"):
        planned_event(old._replace(config=json.dumps(told)), 5)


@pytest.mark.exact
def test_the_mechanism_in_the_record_is_the_one_that_ran():
    mechanism = PrivUnit(3, 2.0, radius=0.1)
    state = LocallyPrivateMeanFactory(mechanism).create(FLOATS3).initialize()
    event = planned_event(state, 100)
    assert event == shuffled_event(mechanism, 100)
    assert attr.evolve(event, num_reports=50) == planned_event(state, 50)
