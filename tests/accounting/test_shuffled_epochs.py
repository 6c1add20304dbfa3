"""Shuffled epochs: against enumeration of every order of the people and of rounds that adapt."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from functools import cache

import attr
import numpy as np
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    event_epsilon,
    local_event,
)
from beam_ldp.accounting.composition.loss_curves import _curve, renyi_divergences
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import local_epsilon_of
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from tests.accounting.brute_force import Pairs, crowd_law, extreme_rows, response_rows
from tests.accounting.loss_laws import heights_of
from tests.randomizers.test_possible import MECHANISMS

pytestmark = pytest.mark.exact

LOSSES = np.array([0.0, 0.1, 0.3, 0.6, 0.9])
ORDERS = (1.5, 3.0, 20.0)
ROWS = response_rows(2, 1.0)
ANY = LocalRandomizerDpEvent(1.0)
OWN = local_event(KRandomizedResponse(2, 1.0))  # of a yes or no about a value, whatever it is about
EPOCHS = {"sampling": "shuffled_epochs"}
VALUES = (0, 1, 2)

# A round asks everybody whether they hold one value; later ones about another, by what was seen.
Asked = tuple[int, ...]


def answers(asked: int, values: tuple[int, ...]) -> np.ndarray:
    """The law of how many say yes."""
    return crowd_law(ROWS[[int(value == asked) for value in values]]) if values else np.ones(1)


def epoch_laws(
    values: tuple[int, ...], fakes: int, able: int, size: int, rounds: int, asked: Asked
) -> dict[tuple, np.ndarray]:
    """What is seen of an epoch, by what is public: how many came, and where the fakes were.

    The first `able` people come whenever they are drawn; then there are those who never do, and
    `fakes` who know of each other which round they are in. What a round asks about follows from the
    answers in the one before it: `asked[0]` first, `asked[1 + yes]` after so many of them.
    """
    people = range(len(values) + fakes)
    cache_of = cache(answers)
    found = defaultdict(list)
    for order in arrangements(len(people), size, rounds):
        came = [tuple(p for p in part if p < able) for part in order]
        public = (
            tuple(map(len, came)),
            tuple(tuple(p for p in part if p >= len(values)) for part in order),
        )
        law = np.ones((1, 1))  # by everything before the last round, by its answers
        for number, part in enumerate(came):
            held = tuple(sorted(values[p] for p in part))
            rows = []
            for yes in range(law.shape[1]):
                about = asked[0] if number == 0 else asked[1 + yes % (len(asked) - 1)]
                rows.append(np.outer(law[:, yes], cache_of(about, held)))
            law = np.concatenate(rows)
        found[public].append(law.reshape(-1))
    return {public: np.mean(laws, axis=0) for public, laws in found.items()}


@cache
def arrangements(people: int, size: int, rounds: int) -> list[tuple[tuple[int, ...], ...]]:
    """Every way to deal people out into rounds of that size; some may be in none."""

    def deal(left: tuple[int, ...], more: int):
        if not more:
            yield ()
            return
        for part in itertools.combinations(left, size):
            rest = tuple(p for p in left if p not in part)
            for others in deal(rest, more - 1):
                yield (part, *others)

    return list(deal(tuple(range(people)), rounds))


def neighbours(
    people: int, size: int, rounds: int, *, fakes: int = 0, able: int = 99, plans: int = 9
) -> dict[tuple, Pairs]:
    """Every data set, every exchange of the first value, some adaptive plans; by what is public."""
    found = defaultdict(list)
    every = list(itertools.product(VALUES, repeat=size + 2))
    generator = np.random.default_rng(people * 100 + size * 10 + rounds)
    chosen = [(0,) * (size + 2), (0, *range(1, size + 2))]
    chosen = [tuple(v % 3 for v in plan) for plan in chosen]
    chosen += [every[i] for i in generator.choice(len(every), plans, replace=False)]
    some = itertools.combinations_with_replacement(VALUES, people - 1)
    if able < people:
        some = itertools.product(VALUES[:2], repeat=people - 1)
    for others in some:
        for asked in chosen:
            laws = [
                epoch_laws((value, *others), fakes, able, size, rounds, asked) for value in VALUES
            ]
            for one, two in itertools.permutations(laws, 2):
                for public in one:
                    found[public].append((one[public], two[public]))
    return {
        public: Pairs(*(np.array(side) for side in zip(*pairs, strict=True)))
        for public, pairs in found.items()
    }


def priced(event: SubsampledShuffledDpEvent) -> np.ndarray:
    curve = _curve(event)
    return heights_of(curve, LOSSES)


@pytest.mark.parametrize(
    ("people", "size", "rounds"), [(3, 1, 3), (4, 2, 2), (4, 2, 1), (5, 2, 2), (4, 1, 2)]
)
def test_an_epoch_costs_one_shuffle_whatever_later_rounds_ask(people, size, rounds):
    """A whole epoch, one that ends early, and one in which somebody is left out."""
    (truth,) = neighbours(people, size, rounds).values()
    costs = truth.sticks(LOSSES)
    for local in (ANY, OWN):
        event = SubsampledShuffledDpEvent(local, people, size, rounds=rounds, **EPOCHS)
        assert np.all(costs <= priced(event) + 1e-12)
        bound = renyi_divergences(event, np.array(ORDERS))
        assert np.all(truth.renyi(ORDERS) <= bound * (1 + 1e-9))
        fewer = SubsampledShuffledDpEvent(local, people + size, size, rounds=rounds, **EPOCHS)
        assert np.any(costs > priced(fewer) + 1e-9)  # so the price is not idle
    if rounds * size == people:
        # Not the price of a bit: later rounds may ask others by what was seen.
        whole = ShuffledDpEvent(attr.evolve(OWN, outputs=0), people)
        assert renyi_divergences(event, np.array(ORDERS)) == pytest.approx(
            renyi_divergences(whole, np.array(ORDERS)), rel=1e-12
        )


def test_no_randomizer_costs_more_in_an_epoch_than_the_clone_pair_says():
    """Everybody by laws of their own, at the edge of the budget; the second round's follow from
    what was seen in the first."""
    rng, closest = np.random.default_rng(4), 0.0
    for _ in range(25):
        budget = float(rng.choice([0.5, 1.0, 2.0]))
        tables = [extreme_rows(budget, 5, rng.normal(size=31)) for _ in range(4)]
        laws = []
        for victim in (0, 1):
            found = []
            for first in itertools.combinations(range(4), 2):
                # Row 0 or 1 is the victim's; the others are persons 1 to 3.
                rows = [[victim if p == 0 else p + 1 for p in part] for part in (
                    first, [p for p in range(4) if p not in first])]  # fmt: skip
                seen = crowd_law(tables[0][rows[0]])
                after = [crowd_law(table[rows[1]]) for table in tables[1:]]
                found.append(np.concatenate([mass * after[i % 3] for i, mass in enumerate(seen)]))
            laws.append(np.mean(found, axis=0))
        truth = Pairs(np.array(laws), np.array(laws[::-1]))
        event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(budget), 4, 2, **EPOCHS)
        losses = budget * np.array([0.0, 0.2, 0.5, 0.8])
        costs, price = truth.sticks(losses), heights_of(_curve(event), losses)
        assert np.all(costs <= price + 1e-12)
        closest = max(closest, float(np.max(costs / np.maximum(price, 1e-12))))
    assert closest > 0.6


OF_ONE_REPORT = (
    "k-ary", "unary", "hadamard", "binary", "limited", "limited timeshare", "recursive",
    "subset bits", "pairwise", "geometry", "rappor", "rappor bloom", "scalar",
)  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE_REPORT)
def test_a_mechanisms_own_pair_dominates_each_report_alone(name):
    """In convex order, at every threshold: so rounds may ask about different values each."""
    mechanism = MECHANISMS[name]
    channel = np.asarray(mechanism.channel())
    channel = channel / channel.sum(axis=0)
    own = mechanism.dominating_pair()

    def above(pair, odds, thresholds):
        values = np.append([first - odds * second for first, second in pair.ratios], 0.0)
        mass = np.append(np.array(pair.probabilities) * pair.blanket_mass, 1 - pair.blanket_mass)
        return np.maximum(values / pair.blanket_mass - thresholds[:, None], 0.0) @ mass

    pairs = list(itertools.permutations(range(channel.shape[1]), 2))
    for first, second in pairs[:: max(1, len(pairs) // 8)]:
        one = ShufflePair.from_channel(channel, first, second, "")
        for odds in (0.3, 0.9, 1.0, 1.4, 4.0):
            values = [(a - odds * b) / p.blanket_mass for p in (one, own) for a, b in p.ratios]
            thresholds = np.array([0.0, *values])
            assert np.all(above(one, odds, thresholds) <= above(own, odds, thresholds) + 1e-9)


@pytest.mark.parametrize(("people", "size", "rounds"), [(4, 2, 2), (5, 2, 2), (4, 2, 1)])
def test_epochs_that_lose_people_are_never_underpriced(people, size, rounds):
    """Whoever can come comes whenever drawn: priced by the round in which the fewest did."""
    for able in range(1, people):
        for (came, _), truth in neighbours(people, size, rounds, able=able, plans=3).items():
            if min(came) == 0:
                continue
            event = SubsampledShuffledDpEvent(OWN, people, size, min(came), rounds=rounds, **EPOCHS)
            if able >= event.least_available:
                assert np.all(truth.sticks(LOSSES) <= priced(event) + 1e-12)


def test_fakes_of_an_epoch_hide_nobody_and_are_in_it_for_certain():
    for came, truth in neighbours(3, 2, 2, fakes=1, able=3, plans=4).items():
        event = SubsampledShuffledDpEvent(OWN, 4, 2, num_fakes=1, **EPOCHS)
        assert np.all(truth.sticks(LOSSES) <= priced(event) + 1e-12), came
    assert event.num_hiding == 3 and event.rate == 1.0 and event.failure_probability == 0.0
    many = SubsampledShuffledDpEvent(ANY, 60_000, 2_000, num_fakes=6_000, **EPOCHS)
    assert many.num_hiding == 54_000 and many.failure_probability == 0.0
    early = SubsampledShuffledDpEvent(ANY, 60_000, 2_000, num_fakes=6_000, rounds=2, **EPOCHS)
    assert 3_400 < early.num_hiding < 3_600 and early.failure_probability == 1e-12


def test_a_round_that_each_person_chooses_alone_is_an_epoch():
    """Given how many chose which, all ways to deal people out are alike: one shuffle of them."""
    pairs = []
    for others in itertools.product((0, 1), repeat=2):
        seen = [defaultdict(float), defaultdict(float)]
        for value in (0, 1):
            for chosen in itertools.product((0, 1), repeat=3):
                held = [[v for v, c in zip((value, *others), chosen) if c == r] for r in (0, 1)]
                laws = [answers(1, tuple(sorted(h))) for h in held]
                for outcome in itertools.product(*map(range, map(len, laws))):
                    mass = math.prod(float(law[i]) for law, i in zip(laws, outcome)) / 8
                    seen[value][(len(laws[0]), outcome)] += mass
        keys = sorted(seen[0])
        one, two = (np.array([side[key] for key in keys]) for side in seen)
        pairs += [(one, two), (two, one)]
    truth = Pairs(*(np.array(side) for side in zip(*pairs, strict=True)))
    curve = _curve(ShuffledDpEvent(OWN, 3))
    assert np.all(truth.sticks(LOSSES) <= heights_of(curve, LOSSES) + 1e-12)


def test_the_training_of_the_text():
    """60,000 people, 2,000 in a round, 200 epochs at 2 each, at delta = 1e-5."""
    local = LocalRandomizerDpEvent(2.0)
    epoch = SubsampledShuffledDpEvent(local, 60_000, 2_000, **EPOCHS)
    assert epoch.whole_epoch == 30 and epoch.num_reports == 60_000 and epoch.rate == 1.0
    found = ShuffleAccountant().compose(epoch, 200).get_epsilon(1e-5)
    drawn = SubsampledShuffledDpEvent(local, 60_000, 2_000)
    independent = ShuffleAccountant().compose(drawn, 6_000).get_epsilon(1e-5)
    assert found == pytest.approx(0.8821, abs=2e-4)
    assert independent == pytest.approx(found, abs=2e-4)
    assert found.class_lower < found < 1.5 * found.class_lower
    seen = ShuffleAccountant().compose(ShuffledDpEvent(local, 2_000), 200).get_epsilon(1e-5)
    assert seen == pytest.approx(6.01, abs=2e-3)
    assert 200 * local_epsilon_of(epoch) == 400.0


def test_an_epoch_that_ends_early_costs_no_more_than_a_whole_one():
    costs = [
        event_epsilon(SubsampledShuffledDpEvent(ANY, 1_000, 100, rounds=r, **EPOCHS), 1e-6)
        for r in range(1, 11)
    ]
    assert costs == sorted(costs)
    whole = event_epsilon(ShuffledDpEvent(ANY, 1_000), 1e-6)
    assert costs[-1] == pytest.approx(whole, rel=1e-2) and costs[0] < 0.5 * whole
    one_round = event_epsilon(SubsampledShuffledDpEvent(ANY, 1_000, 100), 1e-6)
    assert costs[0] == pytest.approx(one_round, rel=1e-12)


def test_what_an_epoch_supposes_of_those_who_did_not_come():
    event = SubsampledShuffledDpEvent(ANY, 60_000, 2_000, 1_800, **EPOCHS)
    assert event.num_hiding == 54_000 and event.rate == 1.0
    assert "nor on the round of an epoch" in event.condition and "54,000" in event.condition
    early = SubsampledShuffledDpEvent(ANY, 60_000, 2_000, 1_800, rounds=3, **EPOCHS)
    assert (early.num_hiding, early.rate) == (event.num_hiding, event.rate)
    assert SubsampledShuffledDpEvent(ANY, 60_000, 2_000, **EPOCHS).condition == ""
    faked = SubsampledShuffledDpEvent(ANY, 60_000, 2_000, 1_800, num_fakes=100, **EPOCHS)
    assert (faked.num_hiding, faked.rate, faked.failure_probability) == (53_900, 1.0, 0.0)
    with pytest.raises(ValueError, match="somebody among those received"):
        SubsampledShuffledDpEvent(ANY, 60_000, 2_000, 2, num_fakes=60, **EPOCHS)
    odd = SubsampledShuffledDpEvent(ANY, 5_999, 2_000, 1_000, **EPOCHS)
    assert odd.whole_epoch == 2 and odd.came_in_all == 2_000 <= odd.least_available
    for one in (event, early):
        assert event_from_json(json.loads(json.dumps(event_to_json(one)))) == one


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rounds": 3}, 'rounds must be None for sampling="without_replacement"'),
        ({**EPOCHS, "rounds": 11}, r"rounds must be None or in \[1, 10\]"),
        ({**EPOCHS, "rounds": 0}, "rounds must be None or in"),
        ({**EPOCHS, "rounds": True}, "rounds must be None or in"),
        ({**EPOCHS, "points_per_client": 4, "points_sampled": 2}, "points_sampled must be 1"),
        ({**EPOCHS, "num_received": 101}, "num_received must be None or in"),
        ({**EPOCHS, "num_drawn": 0.5, "num_fakes": 1}, "num_drawn must be an integer"),
        ({**EPOCHS, "num_drawn": 1_001, "num_fakes": 1}, "num_drawn must be at most num_users"),
        ({"sampling": "random_allocation"}, "no price is proved where one value is replaced"),
        ({"sampling": "bernoulli"}, 'one of "without_replacement", "self", "poisson", "shuffled_e'),
    ],
)
def test_what_has_no_price_in_an_epoch_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        SubsampledShuffledDpEvent(ANY, 1_000, **({"num_drawn": 100} | fields))
