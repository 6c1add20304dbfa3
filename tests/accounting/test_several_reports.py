"""Several reports of one person in one sample, columns or points: against enumeration."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from functools import cache, reduce

import attr
import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    local_event,
)
from beam_ldp.accounting.composition.loss_curves import _curve, loss_grid, renyi_divergences
from beam_ldp.accounting.composition.sampled_curves import _sizes, points_curve
from beam_ldp.accounting.divergences.hockey_stick import hockey_sticks
from beam_ldp.accounting.divergences.loss_grid import composed_losses, together
from beam_ldp.accounting.divergences.moments import Atoms
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import SubsampledShuffledDpEvent as Sampled
from beam_ldp.accounting.lower import bit_atoms
from beam_ldp.accounting.shuffle.report_curves import one_report
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import L2Mean
from beam_ldp.randomizers.mean.two_response import message_pair
from beam_ldp.randomizers.shuffle_pair import witness_from_channel
from tests.accounting.brute_force import Pairs, crowd_law, response_rows, two_level_pairs
from tests.accounting.loss_laws import heights_of

pytestmark = pytest.mark.exact

LOSSES = np.array([0.0, 0.05, 0.2, 0.5, 0.8, 1.2, 1.6])
ORDERS = (1.5, 3.0, 20.0)

# Columns ------------------------------------------------------------------------------------
#
# A value is two bits; each column reports one of them.

BUDGETS = (1.0, 0.6)
VALUES = tuple(itertools.product((0, 1), repeat=2))
TWO = LocalRandomizerDpEvent(1.6, messages=2, columns=((1, 1.0), (1, 0.6)))


@cache
def batch(held: tuple[tuple[int, int], ...]) -> np.ndarray:
    """What is seen of the columns of one batch: its ones in each."""
    if not held:
        return np.ones(1)
    laws = [
        crowd_law(response_rows(2, budget)[[value[column] for value in held]])
        for column, budget in enumerate(BUDGETS)
    ]
    return np.outer(*laws).reshape(-1)


def collected(law, people: int) -> Pairs:
    """Every data set and exchange of the first value, by its law."""
    pairs = []
    for others in itertools.combinations_with_replacement(VALUES, people - 1):
        laws = [law((value, *others)) for value in VALUES]
        pairs += itertools.permutations(laws, 2)
    return Pairs(*(np.array(side) for side in zip(*pairs, strict=True)))


def sampled_columns(people: int, drawn: int) -> Pairs:
    """One sample for both columns."""

    def law(values):
        samples = itertools.combinations(values, drawn)
        return np.mean([batch(tuple(sorted(sample))) for sample in samples], axis=0)

    return collected(law, people)


def coin_columns(people: int, join: float) -> Pairs:
    """Everybody joins by one coin for both columns; how many did is seen."""

    def law(values):
        sizes = []
        for drawn in range(people + 1):
            samples = itertools.combinations(values, drawn)
            laws = [batch(tuple(sorted(sample))) for sample in samples]
            sizes.append(stats.binom.pmf(drawn, people, join) * np.mean(laws, axis=0))
        return np.concatenate(sizes)

    return collected(law, people)


def epoch_columns(people: int, size: int, fakes: int = 0) -> Pairs:
    """Rounds of everybody, dealt out once for both columns; fakes show which round they are in."""

    def law(values):
        dealt: Counter[tuple[tuple[tuple[int, int], ...], ...]] = Counter()
        for order in itertools.permutations((*values, *[None] * fakes)):
            rounds = [order[start : start + size] for start in range(0, people, size)]
            dealt[tuple(tuple(sorted(filter(None, part))) for part in rounds)] += 1
        seen: dict[tuple[int, ...], np.ndarray | float] = {}
        for held, times in dealt.items():
            public = tuple(map(len, held))
            seen[public] = seen.get(public, 0.0) + times * reduce(np.kron, map(batch, held))
        laws = np.concatenate([seen[public] for public in sorted(seen)])
        return laws / laws.sum()

    return collected(law, people - fakes)


def not_underpriced(truth: Pairs, event: Sampled) -> None:
    assert np.all(truth.sticks(LOSSES) <= heights_of(_curve(event), LOSSES) + 1e-12)
    bound = renyi_divergences(event, np.array(ORDERS))
    assert np.all(truth.renyi(ORDERS) <= bound * (1 + 1e-9))


@pytest.mark.parametrize(("people", "drawn"), [(2, 1), (3, 1), (4, 2), (5, 3), (5, 1)])
def test_columns_of_one_sample_are_never_underpriced(people, drawn):
    event = Sampled(TWO, people, drawn)
    truth, curve = sampled_columns(people, drawn), _curve(event)
    not_underpriced(truth, event)
    composed = heights_of(curve._replace(other=None), LOSSES)
    assert np.all(truth.sticks(LOSSES) <= composed + 1e-12)
    assert composed[0] < 0.8 * heights_of(one_report(event), LOSSES)[0]


@pytest.mark.parametrize(("people", "join"), [(3, 0.5), (5, 0.4)])
def test_columns_of_people_who_join_by_coins_are_never_underpriced(people, join):
    event = Sampled(TWO, people, people * join, sampling="self")
    truth = coin_columns(people, join)
    not_underpriced(truth, event)
    composed = heights_of(_curve(event)._replace(other=None), LOSSES)
    assert np.all(truth.sticks(LOSSES) <= composed + 1e-12)
    points = Sampled(TWO, people, people * join, sampling="poisson")
    assert heights_of(_curve(points), LOSSES) == pytest.approx(heights_of(_curve(event), LOSSES))


def test_sizes_of_samples_by_coins_are_in_blocks_that_cost_no_less():
    """Each at its largest rate and smallest crowd, and as likely as what it stands for."""
    sizes = _sizes(Sampled(TWO, 60_000, 2_000, sampling="self"))
    law, last = stats.binom(60_000, 1 / 30), 0
    for chance, rate, fewest, at_least in sizes:
        most = round(rate * 60_000)
        assert last < fewest <= most and at_least <= fewest
        alike = law.pmf(np.arange(fewest, most + 1)).sum()
        assert chance == pytest.approx(alike, rel=1e-7, abs=1e-60)
        last = most
    assert last == 60_000 and sum(chance for chance, *_ in sizes) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("people", "size"), [(3, 1), (4, 2)])
def test_columns_of_an_epoch_are_never_underpriced(people, size):
    event = Sampled(TWO, people, size, sampling="shuffled_epochs")
    truth = epoch_columns(people, size)
    not_underpriced(truth, event)
    composed = heights_of(_curve(event)._replace(other=None), LOSSES)
    assert np.all(truth.sticks(LOSSES) <= composed + 1e-12)


@pytest.mark.parametrize(("people", "size", "fakes"), [(4, 2, 1), (6, 3, 1), (4, 2, 2)])
def test_fakes_of_an_epoch_may_all_be_in_one_round(people, size, fakes):
    """The crowd of a round is what they leave; where they may fill it there is none."""
    event = Sampled(TWO, people, size, num_fakes=fakes, sampling="shuffled_epochs")
    truth = epoch_columns(people, size, fakes)
    not_underpriced(truth, event)
    composed = heights_of(_curve(event)._replace(other=None), LOSSES)
    assert np.all(truth.sticks(LOSSES) <= composed + 1e-12)
    (sample,) = _curve(event).samples
    (fewer,) = _sizes(event)
    assert sample.rate == 1.0 and fewer[2:] == (max(1, size - fakes),) * 2


def test_columns_of_an_epoch_cost_more_than_a_shuffle_of_each():
    """Rounds of one person show their messages together: concrete data sets cost more."""
    budget, people, losses = 3.0, 1_000, np.array([0.2, 0.5])
    channel = np.kron(response_rows(2, budget), response_rows(2, budget))
    witness = witness_from_channel(channel, 0, 3, others=0)
    known = hockey_sticks(witness, people, losses)[0]
    column = loss_grid(LocalRandomizerDpEvent(budget, message_pair(budget)).shuffled(people))
    assert np.all(known > 2 * column.repeated(2).deltas(losses))
    local = LocalRandomizerDpEvent(2 * budget, messages=2, columns=((2, budget),))
    epoch = Sampled(local, people, 1, sampling="shuffled_epochs")
    assert np.all(known <= heights_of(_curve(epoch), losses))


def test_columns_that_were_each_sampled_alone_would_be_too_cheap():
    """The product of one-message pairs supposes that each column has a sample of its own."""
    truth = sampled_columns(4, 1)
    each = [
        loss_grid(Sampled(LocalRandomizerDpEvent(b, message_pair(b)), 4, 1)).on(0.01)
        for b in BUDGETS
    ]
    product = together([(one, 1) for one in each]).deltas(LOSSES)
    costs = truth.sticks(LOSSES)
    assert np.any(costs > product + 0.02) and costs[3] > 4 * product[3]


def test_a_training_of_several_messages():
    """60,000 people, 600 rounds of 2,000, three messages of 2 each; as one report it was 3.04."""
    local = local_event(L2Mean(13_722, 6.0))
    assert local.columns == ((3, pytest.approx(2.0)),)
    known = ShuffleAccountant().compose(Sampled(local, 60_000, 2_000), 600).get_epsilon(1e-5)
    assert known == pytest.approx(0.1529, abs=5e-4)  # of vectors whose length is known
    local = attr.evolve(local, squared_change=None, places=1)
    event = Sampled(local, 60_000, 2_000)
    found = ShuffleAccountant().compose(event, 600).get_epsilon(1e-5)
    assert found == pytest.approx(0.3545, abs=5e-4)
    # Everybody else holds the second value, so it makes no difference whether that was drawn.
    budget = local.columns[0][1]
    truth = np.exp(budget) / (1 + np.exp(budget))
    column = bit_atoms(truth, 1 - truth, 2_000)
    for one in (column, column.swapped()):
        grid = composed_losses([(3, one)])
        mass, ratios = np.maximum(grid.mass, 1e-300), np.exp(-grid.losses)
        told = event.rate + (1 - event.rate) * ratios
        pairs = [(mass, told, ratios), (mass, ratios, told)]
        lower = max(
            composed_losses([(600, Atoms(np.log(m), p, q))]).epsilon(1e-5) for m, p, q in pairs
        )
        assert 0.6 * found < lower < found
    whole = Sampled(LocalRandomizerDpEvent(6.0), 60_000, 2_000)
    assert ShuffleAccountant().compose(whole, 600).get_epsilon(1e-5) == pytest.approx(
        3.04, abs=0.01
    )
    coins = Sampled(local, 60_000, 2_000, sampling="self")
    assert ShuffleAccountant().compose(coins, 600).get_epsilon(1e-5) < 1.01 * found


def test_columns_travel_with_the_event():
    event = Sampled(TWO, 100, 10)
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
    with pytest.raises(ValueError, match=r"columns must be as many as messages \(2\)"):
        LocalRandomizerDpEvent(1.6, messages=2, columns=((3, 0.5),))
    with pytest.raises(ValueError, match="columns must hold counts >= 1"):
        LocalRandomizerDpEvent(1.6, messages=2, columns=((2, 0.0),))


def test_messages_of_somebody_who_is_known_have_a_price():
    """Each is randomized alone: without a crowd they compose, whether or not they are described."""
    described = LocalRandomizerDpEvent(2.0, messages=20, columns=((20, 0.1),))
    prices = [
        float(ShuffleAccountant().compose(event, 3).get_epsilon(1e-5))
        for event in (described, LocalRandomizerDpEvent(2.0, messages=20))
    ]
    one = ShuffleAccountant().compose(LocalRandomizerDpEvent(0.1), 60).get_epsilon(1e-5)
    assert (
        prices == [pytest.approx(one, rel=1e-9), pytest.approx(6.0, rel=1e-5)] and prices[0] < 4.0
    )


def test_many_messages_of_little_each_have_a_price():
    """Local epsilons beyond a hundred, of messages that tell next to nothing."""
    local = LocalRandomizerDpEvent(120.0, messages=1_200, columns=((1_200, 0.1),))
    event = Sampled(local, 60_000, 2_000)
    found = ShuffleAccountant().compose(event, 10).get_epsilon(1e-6)
    assert 0.01 < found < 0.1
    large = LocalRandomizerDpEvent(50.0, messages=2, columns=((1, 45.0), (1, 5.0)))
    whole = LocalRandomizerDpEvent(50.0)
    prices = [
        ShuffleAccountant().compose(Sampled(each, 600, 20)).get_epsilon(1e-6)
        for each in (large, whole)
    ]
    assert prices[0] == prices[1] < 50.0


# Points -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clients", "points", "drawn", "sent"),
    [(3, 2, 1, 2), (3, 2, 2, 2), (4, 2, 2, 2), (2, 3, 1, 2), (3, 3, 1, 2), (3, 3, 2, 3)],
)
def test_points_of_drawn_clients_are_never_underpriced(clients, points, drawn, sent):
    """The inequality alone, not the smaller of it and what it replaced."""
    for values, local in ((2, local_event(KRandomizedResponse(2, 1.0))), (2, None), (3, None)):
        if values == 3 and clients * points > 6:
            continue
        truth = two_level_pairs(response_rows(values, 1.0), clients, points, drawn, sent)
        event = Sampled(
            local or LocalRandomizerDpEvent(1.0),
            clients,
            drawn,
            points_per_client=points,
            points_sampled=sent,
        )
        curve = points_curve(event)._replace(other=None)
        assert np.all(truth.sticks(LOSSES) <= heights_of(curve, LOSSES) + 1e-12)
        not_underpriced(truth, event)


def test_a_client_who_is_not_drawn_takes_all_its_messages_along():
    """With one message exchanged for one, as if they were nobody's, it would be too low."""
    truth = two_level_pairs(response_rows(2, 1.0), 3, 2, 1, 2)
    event = Sampled(
        local_event(KRandomizedResponse(2, 1.0)), 3, 1, points_per_client=2, points_sampled=2
    )
    (sample,) = points_curve(event).samples
    too_low = heights_of(sample._replace(all_of_one=sample.one), LOSSES)
    assert np.any(truth.sticks(LOSSES) > too_low + 1e-3)


def test_columns_of_several_points_are_never_underpriced():
    """Clients with two points of two bits, all of whose four messages come from one sample."""

    def law(clients):
        return np.mean([batch(tuple(sorted(held))) for held in clients], axis=0)

    pairs = []
    for other in itertools.combinations_with_replacement(VALUES, 2):
        for point in VALUES:
            laws = [law((((value, point)), other)) for value in VALUES]
            pairs += itertools.permutations(laws, 2)
    truth = Pairs(*(np.array(side) for side in zip(*pairs, strict=True)))
    event = Sampled(TWO, 2, 1, points_per_client=2, points_sampled=2)
    not_underpriced(truth, event)
    composed = heights_of(_curve(event)._replace(other=None), LOSSES)
    assert np.all(truth.sticks(LOSSES) <= composed + 1e-12)


@pytest.mark.parametrize(("sent", "golden"), [(2, 6.57e-4), (5, 1.69e-3), (10, 4.65e-3)])
def test_drawing_clients_is_worth_what_it_is(sent, golden):
    """60,000 clients of 100 points, 2,000 of them drawn: up to seven times less than without."""
    event = Sampled(
        LocalRandomizerDpEvent(1.0), 60_000, 2_000, points_per_client=100, points_sampled=sent
    )
    found = ShuffleAccountant().compose(event, 600).get_epsilon(1e-5)
    assert found == pytest.approx(golden, rel=0.01) and found.class_lower < found
    before = one_report(event)
    losses = np.array([golden / 10])
    assert heights_of(_curve(event), losses) < 0.5 * heights_of(before, losses)
