"""Samples of which not all came, or in which some are fake: against enumeration of who that is."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict

import numpy as np
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    SubsampledShuffledDpEvent,
    event_epsilon,
    local_event,
)
from beam_ldp.accounting.composition.loss_curves import _curve, renyi_divergences
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.reports import failure_of
from beam_ldp.randomizers.frequency import KRandomizedResponse
from tests.accounting.brute_force import Pairs, crowd_law, response_rows
from tests.accounting.loss_laws import heights_of

pytestmark = pytest.mark.exact

LOSSES = np.array([0.0, 0.1, 0.3, 0.8])
ORDERS = (1.5, 3.0, 20.0)
RESPONSE = KRandomizedResponse(2, 1.0)
ROWS = response_rows(2, 1.0)
ANY = LocalRandomizerDpEvent(1.0)


def seen_laws(values: tuple[int, ...], fakes: int, able: int, drawn: int) -> dict:
    """What is seen of a round: histograms of honest reports, by what is public about who came.

    The first `able` people come if they are drawn; person 0 is one of them. Then there are those
    who do not, and `fakes` who know of each other who was drawn.
    """
    people = range(len(values) + fakes)
    found = defaultdict(list)
    for sample in itertools.combinations(people, drawn):
        came = [person for person in sample if person < able]
        public = (len(came), sum(person >= len(values) for person in sample))
        found[public].append(crowd_law(ROWS[[values[p] for p in came]]) if came else np.ones(1))
    return {public: np.mean(laws, axis=0) for public, laws in found.items()}


def neighbours(people: int, fakes: int, able: int, drawn: int) -> dict[tuple[int, int], Pairs]:
    """Every data set and exchange of the first value, by what is public."""
    found = defaultdict(list)
    for others in itertools.product((0, 1), repeat=people - 1):
        one, two = (seen_laws((value, *others), fakes, able, drawn) for value in (0, 1))
        for public in one:
            found[public] += [(one[public], two[public]), (two[public], one[public])]
    return {
        public: Pairs(*(np.array(side) for side in zip(*pairs))) for public, pairs in found.items()
    }


def priced(event: SubsampledShuffledDpEvent) -> np.ndarray:
    curve = _curve(event)
    return heights_of(curve, LOSSES)


@pytest.mark.parametrize(("clients", "drawn"), [(4, 2), (5, 3), (6, 3), (6, 5)])
@pytest.mark.parametrize("local", [ANY, local_event(RESPONSE)], ids=["any", "own"])
def test_dropouts_are_never_underpriced(clients, drawn, local):
    """Whoever could have come: the price holds where enough could, and fails where fewer could."""
    too_few_cost_more = False
    for able in range(1, clients + 1):
        for (received, _), truth in neighbours(clients, 0, able, drawn).items():
            if not received:
                continue
            event = SubsampledShuffledDpEvent(local, clients, drawn, received)
            price, cost = priced(event), truth.sticks(LOSSES)
            if able >= event.least_available:
                assert np.all(cost <= price + 1e-12)
                bound = renyi_divergences(event, np.array(ORDERS))
                assert np.all(truth.renyi(ORDERS) <= bound * (1 + 1e-9))
            else:
                too_few_cost_more |= bool(np.any(cost > price + 1e-9))
    assert too_few_cost_more


@pytest.mark.parametrize(("clients", "drawn"), [(4, 3), (5, 3), (6, 4)])
def test_the_price_of_the_fewest_holds_for_more_where_more_could_have_come(clients, drawn):
    """As trainings are charged beforehand. Where c came of those drawn it must be that share of all
    who could have: where it is but that of the fewest, a round of more costs more."""
    of_the_fewest_is_too_little = False
    for able in range(1, clients + 1):
        for (received, _), truth in neighbours(clients, 0, able, drawn).items():
            for fewest in range(1, received + 1):
                event = SubsampledShuffledDpEvent(local_event(RESPONSE), clients, drawn, fewest)
                within = np.all(truth.sticks(LOSSES) <= priced(event) + 1e-12)
                if able * drawn >= clients * received:
                    assert within
                elif able >= event.least_available:
                    of_the_fewest_is_too_little |= not within
    assert of_the_fewest_is_too_little


@pytest.mark.parametrize(("clients", "fakes", "drawn"), [(4, 1, 2), (6, 1, 4), (6, 2, 3)])
def test_fakes_who_know_of_each_other_are_never_underpriced(clients, fakes, drawn):
    """Whichever fakes were drawn, come or not: they may make up for honest people who did not."""
    honest = clients - fakes
    for able in range(1, honest + 1):
        for (came, fakes_drawn), truth in neighbours(honest, fakes, able, drawn).items():
            for received in range(came, came + fakes_drawn + 1):
                if not came or received <= fakes:
                    continue
                event = SubsampledShuffledDpEvent(
                    local_event(RESPONSE), clients, drawn, received, num_fakes=fakes
                )
                if able + fakes >= event.least_available:
                    assert np.all(truth.sticks(LOSSES) <= priced(event) + 1e-12)
    both = SubsampledShuffledDpEvent(local_event(RESPONSE), clients, drawn, num_fakes=fakes)
    assert event_epsilon(both, 0.01) > event_epsilon(
        SubsampledShuffledDpEvent(local_event(RESPONSE), clients, drawn), 0.01
    )


@pytest.mark.parametrize(
    ("clients", "drawn", "received"),
    [(4, 4, 2), (6, 3, 2), (6, 4, 2), (5, 5, 4), (5, 2, 1), (6, 5, 4)],
)
def test_lower_enumerated_and_upper_price(clients, drawn, received):
    """Where just as many could come as the price supposes: all three agree on the side they are."""
    event = SubsampledShuffledDpEvent(local_event(RESPONSE), clients, drawn, received)
    truth = neighbours(clients, 0, event.least_available, drawn)[received, 0]
    bound = ShuffleAccountant().compose(event).get_epsilon(0.02)
    at_upper, at_lower = truth.sticks([float(bound), bound.lower])
    assert at_upper <= 0.02 * (1 + 1e-9) and at_lower >= 0.02 * (1 - 1e-3)
    assert 0 < bound.lower <= bound


def test_fakes_throw_no_coins():
    """Honest people are a sample of their own: the same as fewer people at the same coin."""
    local = local_event(RESPONSE)
    for sampling in ("self", "poisson"):
        some = SubsampledShuffledDpEvent(local, 60, 20, num_fakes=15, sampling=sampling)
        fewer = SubsampledShuffledDpEvent(local, 45, 15, sampling=sampling)
        assert some.rate == fewer.rate and some.num_reports == fewer.num_reports
        bounds = [ShuffleAccountant().compose(e, 5).get_epsilon(1e-3) for e in (some, fewer)]
        assert bounds[0] == bounds[1] and bounds[0].lower == bounds[1].lower > 0


TRAINING = {
    "all came": (2_000, {}, 0.882),
    "1,800 of 2,000 came": (2_000, {"num_received": 1_800}, 0.9345),
    "2,200 drawn for 2,000": (2_200, {"num_received": 2_000}, 0.979),
    "a tenth fake, who all join": (2_000, {"num_fakes": 6_000, "sampling": "self"}, 0.9345),
}


@pytest.mark.parametrize("case", TRAINING)
def test_trainings_that_lose_people(case):
    """60,000 people, 6,000 rounds at 2 each: a sample of 1,800 would cost 0.833, which is less."""
    drawn, how, golden = TRAINING[case]
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, drawn, **how)
    bound = ShuffleAccountant().compose(event, 6_000).get_epsilon(1e-5)
    assert bound == pytest.approx(golden, abs=5e-4)
    assert bound.class_lower < bound < 1.5 * bound.class_lower
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_the_condition_is_told():
    event = SubsampledShuffledDpEvent(ANY, 60_000, 2_000, 1_800)
    assert event.least_available == 54_000 and event.came == event.num_reports == 1_800
    assert event.rate == pytest.approx(1 / 30, rel=1e-12)
    for part in ("1,800 of 2,000 came", "neither on anybody's value", "54,000 of 60,000"):
        assert part in event.condition
    assert SubsampledShuffledDpEvent(ANY, 60_000, 2_000).condition == ""
    assert SubsampledShuffledDpEvent(ANY, 60_000, 2_000, 2_000).condition == ""


def test_delta_covers_more_fakes_than_are_likely():
    few, many = (SubsampledShuffledDpEvent(ANY, 60_000, 2_000, num_fakes=f) for f in (3, 6_000))
    assert few.num_hiding == 1_997 and failure_of(few) == 0.0
    assert 1_650 < many.num_hiding < 1_750 and failure_of(many) == 1e-12
    assert many.rate == pytest.approx(2_000 / 54_000)
    assert math.isclose(ShuffleAccountant().compose(many, 5).failure_probability, 5e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_received": 101}, r"num_received must be None or in \[1, num_drawn = 100\]"),
        ({"num_received": 0}, "num_received must be None or in"),
        ({"num_received": 99.5}, "num_received must be None or in"),
        ({"num_received": 99, "sampling": "self"}, 'num_received must be None for sampling="self"'),
        ({"num_fakes": -1}, "num_fakes must be an integer >= 0"),
        ({"num_fakes": 1_000}, r"num_fakes must be below num_users \(1000\)"),
        ({"num_fakes": 999}, "num_fakes must leave somebody among those received"),
        ({"num_fakes": 50, "num_received": 2}, "num_fakes must leave somebody"),
    ],
)
def test_what_has_no_price_in_a_sample_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        SubsampledShuffledDpEvent(ANY, 1_000, 100, **fields)
