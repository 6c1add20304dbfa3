"""Samples and epochs of several messages about vectors of known length: enumerated, simulated."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from functools import cache, reduce

import attr
import dp_accounting
import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    event_epsilon,
    local_event,
    shuffled_event,
)
from beam_ldp.accounting.composition.loss_curves import _curve, renyi_divergences
from beam_ldp.accounting.composition.sampled_curves import (
    columns_divergences,
    messages_divergences,
)
from beam_ldp.accounting.divergences.loss_grid import composed_losses
from beam_ldp.accounting.divergences.moments import Atoms
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import SubsampledShuffledDpEvent as Sampled
from beam_ldp.accounting.lower import bit_atoms
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.schedule_prices import schedule_epsilon
from beam_ldp.federated.record import joint_event
from beam_ldp.federated.samplers import ShuffledEpochs
from beam_ldp.randomizers.mean import BinaryVectorMean, L2Mean, LInfMean
from beam_ldp.research.published.methods import compare
from beam_ldp.verifier import verify
from tests.accounting.brute_force import Pairs, crowd_law
from tests.accounting.loss_laws import heights_of

pytestmark = pytest.mark.exact

LOSSES = np.array([0.0, 0.005, 0.02, 0.05, 0.1])
ORDERS = np.array([2.0, 5.0, 30.0])
EPOCHS = {"sampling": "shuffled_epochs"}

# Vectors, enumerated --------------------------------------------------------------------------
#
# A value is a vector of two coordinates, a tenth of the range long at most; both columns send a bit
# about either coordinate, or each about its own. Flipping both bits would be ten times as much.

BUDGET, LENGTH = 0.5, 0.1
VECTORS = tuple((LENGTH * x, LENGTH * y) for x, y in ((1, 0), (-1, 0), (0, 1), (0.6, -0.8)))
APART = max(math.dist(one, two) ** 2 for one in VECTORS for two in VECTORS) / 4
EITHER = LocalRandomizerDpEvent(
    2 * BUDGET, messages=2, columns=((2, BUDGET),), squared_change=APART, places=2
)
OWN = attr.evolve(EITHER, places=1)
BOTH = pytest.mark.parametrize("local", [EITHER, OWN], ids=["either", "own"])


def rows_of(vector: tuple[float, float], places: int) -> list[np.ndarray]:
    """The law of what each column sends."""
    contrast = math.tanh(BUDGET / 2)
    bits = [np.array([1 + contrast * w, 1 - contrast * w]) / 2 for w in vector]
    return [np.concatenate(bits) / 2] * 2 if places == 2 else bits


@cache
def batch(held: tuple[tuple[float, float], ...], places: int) -> np.ndarray:
    """What is seen of both columns of one batch: how many there are of each message."""
    columns = zip(*(rows_of(vector, places) for vector in held))
    return reduce(np.kron, (crowd_law(np.array(column)) for column in columns), np.ones(1))


def neighbours(law, people: int) -> Pairs:
    """Every data set and exchange of the first vector, by its law."""
    pairs = []
    for others in itertools.combinations_with_replacement(VECTORS, people - 1):
        laws = [law((value, *others)) for value in VECTORS]
        pairs += itertools.permutations(laws, 2)
    return Pairs(*(np.array(side) for side in zip(*pairs, strict=True)))


def of_a_sample(drawn: int, places: int):
    def law(values):
        samples = itertools.combinations(values, drawn)
        return np.mean([batch(tuple(sorted(sample)), places) for sample in samples], axis=0)

    return law


def by_coins(join: float, places: int):
    """How many came is seen."""

    def law(values):
        chances = stats.binom(len(values), join).pmf(np.arange(len(values) + 1))
        return np.concatenate(
            [chance * of_a_sample(size, places)(values) for size, chance in enumerate(chances)]
        )

    return law


def of_an_epoch(size: int, places: int):
    """Two rounds of everybody."""

    def law(values):
        return np.mean(
            [
                np.kron(
                    *(batch(tuple(sorted(values[i] for i in part)), places) for part in (one, two))
                )
                for one in itertools.combinations(range(len(values)), size)
                for two in [tuple(i for i in range(len(values)) if i not in one)]
            ],
            axis=0,
        )

    return law


def of_points(places: int):
    """Of one of two clients, both of whose points are reported: the second holds the last two."""

    def law(values):
        clients = values[:2], values[2:]
        return np.mean([batch(tuple(sorted(held)), places) for held in clients], axis=0)

    return law


def in_bounds(truth: Pairs, event: Sampled, times: float) -> None:
    """Never underpriced, and for flips of both bits it would be so many times as much."""
    assert np.all(truth.sticks(LOSSES) <= heights_of(_curve(event), LOSSES) + 1e-12)
    found, told = renyi_divergences(event, ORDERS), columns_divergences(event, ORDERS)
    for bound in (found, told):
        assert np.all(truth.renyi(ORDERS) <= bound * (1 + 1e-9))
    local = attr.evolve(event.local_event, squared_change=None, places=1)
    flips = renyi_divergences(attr.evolve(event, local_event=local), ORDERS)
    assert np.all(flips[:2] > times * found[:2])


@BOTH
@pytest.mark.parametrize(("people", "drawn"), [(3, 2), (4, 2), (4, 3)])
def test_samples_are_never_underpriced(local, people, drawn):
    truth = neighbours(of_a_sample(drawn, local.places), people)
    in_bounds(truth, Sampled(local, people, drawn), 3.0)


@BOTH
def test_people_who_join_by_coins_are_never_underpriced(local):
    truth = neighbours(by_coins(0.6, local.places), 3)
    in_bounds(truth, Sampled(local, 3, 1.8, sampling="self"), 1.5)


@BOTH
@pytest.mark.parametrize("size", [1, 2])
def test_epochs_are_never_underpriced(local, size):
    if local is OWN or size == 1:
        truth = neighbours(of_an_epoch(size, local.places), 2 * size)
        in_bounds(truth, Sampled(local, 2 * size, size, **EPOCHS), 3.0)


@BOTH
def test_points_of_a_client_are_never_underpriced(local):
    """Whoever is not drawn takes two vectors along, whose changes add up."""
    truth = neighbours(of_points(local.places), 4)
    event = Sampled(local, 2, 1, points_per_client=2, points_sampled=2)
    in_bounds(truth, event, 1.5)


def test_changes_of_several_vectors_add_up():
    """All four vectors of somebody, each among those of its column: four times the divergence."""
    truth = neighbours(lambda values: batch(tuple(sorted(values)), 1), 3).renyi(ORDERS)
    assert np.all(4 * truth <= messages_divergences(OWN.in_columns(3, 4), ORDERS))
    assert np.any(4 * truth > messages_divergences(OWN.in_columns(3), ORDERS))


def test_a_change_a_quarter_as_large_would_be_too_cheap():
    """What the enumeration sees: the bound is within a factor of four of the truth."""
    less = attr.evolve(OWN, squared_change=APART / 4)
    truth = neighbours(of_a_sample(3, 1), 4).renyi(ORDERS)
    assert np.any(truth > columns_divergences(Sampled(less, 4, 3), ORDERS))


# Larger ones ----------------------------------------------------------------------------------

MECHANISM = L2Mean(13_722, 4.0)
LOCAL = local_event(MECHANISM)
FLIPS = LInfMean(50, 4.0, messages=(4,), message_epsilons=(1.0,))
USERS, DRAWN, DELTA = 60_000, 2_000, 1e-5


def price(event, count: int) -> float:
    return float(ShuffleAccountant().compose(event, count).get_epsilon(DELTA))


def test_an_epoch_costs_no_more_than_its_rounds_do_where_they_are_seen():
    """It was 3.50: as if all messages of a person could flip."""
    seen = price(shuffled_event(MECHANISM, DRAWN), 200)
    epochs = price(Sampled(LOCAL, USERS, DRAWN, **EPOCHS), 200)
    assert epochs <= seen * (1 + 1e-9) and epochs == pytest.approx(1.9006, abs=1e-3)
    alone = price(Sampled(LOCAL, USERS, DRAWN, **EPOCHS), 1)
    assert alone <= price(shuffled_event(MECHANISM, DRAWN), 1) * (1 + 1e-9)


@pytest.mark.parametrize("mechanism", [MECHANISM, FLIPS],
                         ids=["lengths", "flips"])  # fmt: skip
@pytest.mark.parametrize("less", [{}, {"num_received": 1_500}, {"num_fakes": 300},
                                  {"num_received": 1_500, "num_fakes": 300}])  # fmt: skip
def test_a_reader_who_sees_less_never_pays_more(mechanism, less):
    """By losses and at every order: who is in which round, which sample it was, all reports.

    Beside one another: rounds of those who came and are honest, seen; an epoch of them; and of
    samples, the rounds of which a person is in one on average.
    """
    local, rounds = local_event(mechanism), USERS // DRAWN
    honest = less.get("num_received", DRAWN) - less.get("num_fakes", 0)
    seen, epoch = (
        shuffled_event(mechanism, honest),
        Sampled(local, USERS, DRAWN, **EPOCHS, **less),
    )
    for count in (1, 50):
        assert price(epoch, count) <= price(seen, count) * (1 + 1e-3)  # of the grid
    orders = [2.0, 8.0, 64.0, 500.0]
    divergences = [
        ShuffleAccountant(orders).compose(event).divergences()
        for event in (seen, epoch, Sampled(local, USERS, DRAWN, **less))
    ]
    assert np.all(divergences[1] <= divergences[0] * (1 + 1e-9))
    if not less:  # else not all who could come do
        assert np.all(rounds * divergences[2] <= divergences[0] * (1 + 1e-9) * np.array(orders))
    assert np.all(divergences[2] <= divergences[1] * (1 + 1e-9))


def test_lengths_never_make_a_sample_dearer():
    flips = attr.evolve(LOCAL, squared_change=None, places=1)
    for how in ({}, {"sampling": "self"}, EPOCHS, {"points_per_client": 4, "points_sampled": 2}):
        known, unknown = (Sampled(local, USERS, DRAWN, **how) for local in (LOCAL, flips))
        assert price(known, 100) <= price(unknown, 100) * (1 + 1e-9)
        assert np.all(renyi_divergences(known, ORDERS) <= renyi_divergences(unknown, ORDERS))


def test_concrete_vectors_cost_little_less_in_a_sample():
    """Of one vector against its opposite, which all others hold, whether it is drawn or not."""
    found = price(Sampled(LOCAL, USERS, DRAWN), 600)
    columns = [(n, bit_atoms(p, q, DRAWN)) for n, p, q in MECHANISM.message_witness()]
    rate, lower = DRAWN / USERS, 0.0
    for sides in (columns, [(n, pair.swapped()) for n, pair in columns]):
        grid = composed_losses(sides)
        mass, ratios = np.maximum(grid.mass, 1e-300), np.exp(-grid.losses)
        told = rate + (1 - rate) * ratios
        for one, two in ((told, ratios), (ratios, told)):
            pair = composed_losses([(600, Atoms(np.log(mass), one, two))])
            lower = max(lower, pair.epsilon(DELTA))
    assert 0.3 * found < lower < found


def test_epochs_of_drawn_reports_are_within_the_price():
    """4,000 epochs of eight people, by sampler and mechanism; false alarm once in 1e5.

    The event, chosen by half of them: how far the largest estimate of a round points towards one
    vector, or its opposite, which all others hold. A price of a quarter would be seen.
    """
    mechanism = L2Mean(2, 4.0, messages=(4,), message_epsilons=(1.0,), cutoff=2**0.5)
    people, size, epochs = 8, 4, 4_000
    assert mechanism.squared_change == pytest.approx(mechanism.messages_per_user / 2)
    sampler, generator = ShuffledEpochs(people, size), np.random.default_rng(11)
    largest = []
    for sign in (1.0, -1.0):
        vectors = np.tile([-1.0, 0.0], (people, 1))
        vectors[0, 0] = sign
        drawn = [list(sampler.sample(generator).clients) for _ in range(2 * epochs)]
        reports = mechanism.randomize(vectors[np.concatenate(drawn)], generator)
        kinds, which = np.unique(reports, axis=0, return_inverse=True)
        each = [mechanism.estimate(mechanism.accumulate(r[None]), 1).value[0] for r in kinds]
        means = np.array(each)[which.ravel()].reshape(epochs, 2, size).mean(axis=2)
        largest.append(means.max(axis=1).reshape(2, -1))
    (first, p), (second, q) = largest
    bars = np.unique(first)
    bar = max(bars, key=lambda at: np.mean(first >= at) - np.mean(second >= at))
    found = np.mean(p >= bar) - np.mean(q >= bar)
    sigma = math.sqrt((np.var(p >= bar) + np.var(q >= bar)) / len(p))
    event = Sampled(local_event(mechanism), people, size, **EPOCHS)
    (most,) = heights_of(_curve(event), np.zeros(1))
    assert found - 4.5 * sigma < most
    assert found - 4.5 * sigma > most / 4


def test_the_command_line_s_schedules_know_their_messages():
    """`beam-ldp privacy --sampling shuffled_epochs`: it was 3.50, of the sum of all messages."""
    epochs = Schedule(4.0, USERS, DRAWN, 6_000, sampling="shuffled_epochs", randomizer=MECHANISM)
    found = schedule_epsilon(epochs, DELTA)
    assert found == pytest.approx(1.9006, abs=1e-3) and found.method == "own messages"
    assert found == pytest.approx(price(epochs.event(LOCAL), 200), rel=1e-12)
    lines = {line.method: line for line in compare(epochs, DELTA)}
    assert lines["own messages"].epsilon <= lines["own messages"].seen_epsilon * (1 + 1e-9)
    begun = replace(epochs, rounds=5_971)  # an epoch that began counts whole
    assert schedule_epsilon(begun, DELTA) == found


# The record -----------------------------------------------------------------------------------


def test_lengths_travel_with_the_event_and_others_have_the_bytes_they_had():
    told = event_to_json(LOCAL)["event"]
    assert told["squared_change"] == MECHANISM.squared_change and told["places"] == 8192
    event = Sampled(LOCAL, USERS, DRAWN)
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
    for other in (LocalRandomizerDpEvent(1.0), local_event(FLIPS)):
        kept = event_to_json(other)["event"]
        assert not {"squared_change", "places"} & {*kept}
        assert event_from_json(event_to_json(other)) == other


def test_records_from_before_lengths_were_known_cost_what_they_did():
    old = event_to_json(Sampled(LOCAL, USERS, DRAWN, **EPOCHS))
    for name in ("squared_change", "places"):
        del old["event"]["local_event"][name]
    event = event_from_json(old)
    assert event.local_event.squared_change is None and event.local_event.places == 1
    assert event_to_json(event) == old
    assert price(event, 200) == pytest.approx(3.499, abs=1e-3)
    assert event_epsilon(Sampled(LOCAL, USERS, DRAWN, **EPOCHS), DELTA) < event_epsilon(
        event, DELTA
    )


def test_certificates_read_both_forms():
    for local in (LOCAL, attr.evolve(LOCAL, squared_change=None, places=1)):
        event = event_to_json(local)
        statement = {"epsilon": 4.0, "delta": 1e-6, "event": event, "proof_status": "proved"}
        certificate = {"version": 1, "kind": "local", "slack": "1/2000", **statement}
        assert verify.verify({**statement, "certificate": certificate}).code == verify.CONFIRMED
        strange = {**event, "event": {**event["event"], "more": 1}}
        found = verify.verify({**statement, "event": strange, "certificate": certificate})
        assert found.code == verify.REFUTED


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"squared_change": 0.5}, "squared_change must be None where columns are not known"),
        ({"messages": 2, "columns": ((2, 0.5),), "squared_change": 0.0}, "squared_change"),
        ({"messages": 2, "columns": ((2, 0.5),), "places": 2}, "places must be 1 where"),
        ({"messages": 2, "columns": ((2, 0.5),), "squared_change": 1.0, "places": 0}, "places"),
    ],
)
def test_lengths_that_say_nothing_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        LocalReports(1.0, **fields)


def test_a_report_and_a_bit_about_its_norm_change_together():
    """The clip is adapted by one bit more, which may flip: no column of the rest has to."""
    bit = BinaryVectorMean(1, 0.4)
    both = joint_event([MECHANISM, bit])
    assert both.columns == ((2, pytest.approx(2.0)), (1, pytest.approx(0.4)))
    flip = (math.tanh(0.2) / math.tanh(1.0)) ** 2
    assert both.squared_change == pytest.approx(MECHANISM.squared_change + flip)
    louder = joint_event(
        [MECHANISM, BinaryVectorMean(1, 4.0, messages=(1,), message_epsilons=(4,))]
    )
    less = (math.tanh(1.0) / math.tanh(2.0)) ** 2
    assert louder.squared_change == pytest.approx(MECHANISM.squared_change * less + 1)
    assert both.places == MECHANISM.places_per_message > 1
    assert joint_event([FLIPS, bit]).squared_change is None
    assert joint_event([MECHANISM]) == LOCAL
    seen = [shuffled_event(one, DRAWN) for one in (MECHANISM, bit)]
    epochs = price(Sampled(both, USERS, DRAWN, **EPOCHS), 200)
    # Beside both shuffles, seen: the bit hides among fair bits of the louder messages alone.
    assert epochs <= price(dp_accounting.ComposedDpEvent(seen), 200) * 1.25
    alone = attr.evolve(both, squared_change=None, places=1)
    assert epochs < 0.7 * price(Sampled(alone, USERS, DRAWN, **EPOCHS), 200)
