"""What ran, and the same as an event of dp-accounting: one price, one JSON, one set of checks."""

from __future__ import annotations

import dp_accounting
import pytest

from beam_ldp.accounting import event_epsilon, local_event, reports, shuffled_event
from beam_ldp.accounting.composition.ledger_bounds import (
    class_lower_value,
    ledger_losses,
    lower_value,
)
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import as_event
from beam_ldp.accounting.reports import crowd_of, with_crowd
from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.shuffle.one_release import local_reports, shuffled_reports
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse, LocalHashing
from beam_ldp.randomizers.mean import L2Mean, LInfMean

pytestmark = pytest.mark.exact

MECHANISMS = [
    KRandomizedResponse(9, 2.0),
    LocalHashing(100, 3.0),
    BinaryHadamard(30, 4.0, row="public"),
    LInfMean(9, 2.5, messages=(2,), message_epsilons=(1.25,)),
    L2Mean(8, 3.0),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_a_record_and_its_event_are_one(mechanism: object) -> None:
    ran = shuffled_reports(mechanism, 10_000)
    event = shuffled_event(mechanism, 10_000)
    assert not isinstance(ran, dp_accounting.DpEvent)
    assert isinstance(event, dp_accounting.DpEvent) and isinstance(event, type(ran))
    assert as_event(ran) == event and as_event(event) is event
    assert event_to_json(ran) == event_to_json(event)
    assert event_from_json(event_to_json(ran)) == event
    one, other = event_epsilon(ran, 1e-6), event_epsilon(event, 1e-6)
    assert repr(one) == repr(other) and one.lower_method == other.lower_method
    fewer = with_crowd(event, 77)
    assert type(fewer) is type(event) and as_event(with_crowd(ran, 77)) == fewer
    assert crowd_of(ran) == crowd_of(event)


def test_what_a_person_sends_is_one_too() -> None:
    for mechanism in MECHANISMS:
        ran, event = local_reports(mechanism), local_event(mechanism)
        assert isinstance(event, dp_accounting.DpEvent) and as_event(ran) == event
        assert event_to_json(ran) == event_to_json(event)
        assert isinstance(event_from_json(event_to_json(ran)), dp_accounting.DpEvent)


def test_schedules_keep_the_kind_that_they_are_given() -> None:
    mechanism = KRandomizedResponse(9, 2.0)
    for drawn in (1000, 50):
        schedule = Schedule(2.0, 1000, drawn, 5)
        ran = schedule.reports(local_reports(mechanism))
        event = schedule.event(local_event(mechanism))
        assert isinstance(event, dp_accounting.DpEvent) and as_event(ran) == event
        losses = ledger_losses({ran: 5}), ledger_losses({event: 5})
        assert losses[0].epsilon(1e-6) == losses[1].epsilon(1e-6)  # type: ignore[union-attr]
        assert lower_value({ran: 5}, 1e-6) == lower_value({event: 5}, 1e-6)
        assert class_lower_value({ran: 5}, 1e-6) == class_lower_value({event: 5}, 1e-6)


def test_both_refuse_the_same() -> None:
    for kind in (reports.LocalReports, type(local_event(MECHANISMS[0]))):
        with pytest.raises(ValueError, match="local_epsilon"):
            kind(-1.0)
        with pytest.raises(ValueError, match="num_reports"):
            kind(1.0).shuffled(0)
        with pytest.raises(ValueError, match="num_drawn"):
            reports.SampledReports(kind(1.0), 10, 11)
