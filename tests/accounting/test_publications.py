"""Several publications of the same reports: the worst neighbours by enumeration, and the price."""

from __future__ import annotations

import itertools
import math

import attr
import numpy as np
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    event_epsilon,
    shuffle_delta,
    shuffle_epsilon,
)
from beam_ldp.accounting.publications import cells_of, publications_event, second_publication
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse
from beam_ldp.randomizers.mean import LInfMean
from tests.accounting.brute_force import response_rows

pytestmark = pytest.mark.exact

EPSILONS = (0.0, 0.3, 0.7, 1.0, 1.5, 1.9)
DELTA = 1e-8

# Who is in which of two publications: cells of 1, 2 and 3 people, nested and overlapping.
PARTITIONS = {
    "one exchanged": [(1, 0), (1, 1), (1, 1), (1, 1), (0, 1)],
    "two exchanged": [(1, 0), (1, 0), (1, 1), (1, 1), (0, 1), (0, 1)],
    "one more": [(1, 1), (1, 1), (0, 1)],
    "two more": [(1, 1), (1, 1), (0, 1), (0, 1)],
    "two groups and their total": [(1, 1), (1, 1), (0, 1), (0, 1), (0, 1)],
    "nobody twice": [(1, 0), (1, 0), (1, 0), (0, 1), (0, 1)],
    "the same people": [(1, 1)] * 4,
}


class JointView:
    """What a reader of two publications of one report each sees, by enumeration.

    The law of both histograms, for every data set and every exchange of one person's value.
    """

    def __init__(self, rows: np.ndarray, members: list[tuple[int, int]]) -> None:
        self.values, people = len(rows), len(members)
        reports = np.array(list(itertools.product(range(self.values), repeat=people)))
        shown = [
            tuple(
                tuple(np.bincount(each[[bool(m[p]) for m in members]], minlength=self.values))
                for p in (0, 1)
            )
            for each in reports
        ]
        views = {view: i for i, view in enumerate(sorted(set(shown)))}
        self._view = np.array([views[view] for view in shown])
        self._num_views = len(views)
        self._rows, self._reports, self._people = rows, reports, people

    def law(self, dataset: tuple[int, ...]) -> np.ndarray:
        mass = np.prod(self._rows[list(dataset), self._reports], axis=1)
        return np.bincount(self._view, weights=mass, minlength=self._num_views)

    def worst(self, epsilon: float) -> float:
        """The largest hockey-stick divergence between neighbours."""
        laws = {
            data: self.law(data)
            for data in itertools.product(range(self.values), repeat=self._people)
        }
        return max(
            float(np.maximum(law - math.exp(epsilon) * laws[other], 0).sum())
            for data, law in laws.items()
            for person in range(self._people)
            for value in range(self.values)
            if (other := (*data[:person], value, *data[person + 1 :])) != data
        )


def cells(members: list[tuple[int, int]]) -> list[int]:
    return [members.count(cell) for cell in sorted(set(members))]


@pytest.mark.parametrize("members", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("values", [2, 3])
def test_the_smallest_cell_prices_both_publications(members, values):
    if values == 3 and len(members) > 5:
        members = members[1:]  # 3^6 data sets take long; the cells stay different
    view = JointView(response_rows(values, 2.0), members)
    oracle = KRandomizedResponse(values, 2.0)
    for epsilon in EPSILONS:
        paid = shuffle_delta(oracle, min(cells(members)), epsilon)
        assert view.worst(epsilon) <= paid * (1 + 1e-6)


def test_the_price_of_one_shuffle_is_violated_where_people_are_exchanged():
    """As if the second publication were free, or each one shuffle at its own price."""
    members = PARTITIONS["one exchanged"]
    rows, oracle = response_rows(2, 2.0), KRandomizedResponse(2, 2.0)
    both = JointView(rows, members)
    assert both.worst(1.0) > shuffle_delta(oracle, 4, 1.0) * 1.2
    alone = JointView(rows, [(1, 0)])  # what the report itself shows
    assert both.worst(1.0) > 0.9 * alone.worst(1.0)


def test_composition_is_violated_where_people_are_exchanged():
    """2,999 of 3,000 people are in both: the counts differ by two reports, those who came and went.

    Composed as two shuffles with fresh noise this looks private; it shows two reports outright.
    """
    shared, epsilon0 = 2_999, 2.0
    lie = 1 / (1 + math.exp(epsilon0))
    oracle = KRandomizedResponse(2, epsilon0)
    composed = ShuffleAccountant().compose(ShuffledDpEvent(_local(oracle), shared + 1), 2)
    naive = composed.get_epsilon(1e-4)
    # Exact delta of the event "the first count is larger": he said 1, and who came after said 0.
    says_one = {1: 1 - lie, 0: lie}
    seen = {value: says_one[value] * (1 - lie) for value in (0, 1)}
    delta = seen[1] - math.exp(naive) * seen[0]
    assert naive < 1.0
    assert delta > 0.2 > 1e-4
    assert second_publication(oracle, [1, shared, 1], 1e-4) == pytest.approx(epsilon0, abs=1e-3)


def _local(oracle):
    event = publications_event(oracle, [None])
    assert isinstance(event, LocalRandomizerDpEvent)
    return event


def test_figures_of_a_hundred_thousand_people():
    any_randomizer = LocalRandomizerDpEvent(4.0)
    assert shuffle_epsilon(4.0, 100_000, DELTA) == pytest.approx(0.215, abs=5e-4)
    two_percent = second_publication(any_randomizer, [2_000, 98_000, 2_000], DELTA)
    assert two_percent == pytest.approx(2.78, abs=5e-3)
    one_percent = second_publication(any_randomizer, [1_000, 99_000, 1_000], DELTA)
    assert one_percent == pytest.approx(4.00, abs=5e-3)
    fresh = ShuffleAccountant().compose(ShuffledDpEvent(any_randomizer, 100_000), 2)
    assert fresh.get_epsilon(DELTA) == pytest.approx(0.308, abs=5e-4)
    assert fresh.local_epsilon == 8.0


def test_the_same_people_again_cost_nothing_more():
    oracle = KRandomizedResponse(16, 2.0)
    once = shuffle_epsilon(oracle, 5_000, DELTA)
    assert second_publication(oracle, [5_000], DELTA) == once < 0.5


@pytest.mark.parametrize("unknown", [[None], [500, None], [500, 0], [1, 500], []])
def test_what_is_not_known_costs_the_local_epsilon(unknown):
    oracle = KRandomizedResponse(16, 2.0)
    assert second_publication(oracle, unknown, DELTA) == pytest.approx(2.0, abs=1e-7)


def test_fakes_may_all_be_in_one_cell():
    oracle = KRandomizedResponse(16, 2.0)
    assert second_publication(oracle, [900, 5_000], DELTA, num_fakes=400) == shuffle_epsilon(
        oracle, 500, DELTA
    )
    assert second_publication(oracle, [900, 5_000], DELTA, num_fakes=900) == 2.0
    for fakes in (-1, 1.5, True):
        with pytest.raises(ValueError, match="num_fakes must be an integer >= 0"):
            second_publication(oracle, [900], DELTA, num_fakes=fakes)


def test_the_crowd_of_a_cell_is_the_mechanisms_own():
    """A public row splits each cell once more."""
    oracle = BinaryHadamard(1000, 4.0, row="public")
    assert second_publication(oracle, [100_000, 90_000], 1e-6) == shuffle_epsilon(
        oracle, 90_000, 1e-6
    )
    assert second_publication(oracle, [100_000, 90_000], 1e-6) > 3.9


def test_several_messages_are_priced_as_such():
    mechanism = LInfMean(4, 2.0)
    assert second_publication(mechanism, [3_000, 2_000], 1e-6) == shuffle_epsilon(
        mechanism, 2_000, 1e-6
    )
    assert event_epsilon(publications_event(mechanism, [2_000, 3_000]), 1e-6) == shuffle_epsilon(
        mechanism, 2_000, 1e-6
    )


def test_changed_values_have_no_price():
    oracle = KRandomizedResponse(16, 2.0)
    found = second_publication(oracle, [5_000], DELTA, same_values=False)
    assert math.isinf(found)
    assert "value" in found.method
    with pytest.raises(ValueError, match="same_values"):
        publications_event(oracle, [5_000], same_values=False)


def test_the_event_composes_as_the_dearest_cell():
    """At every order no cell costs more, so the ledger may add it up."""
    oracle, orders = KRandomizedResponse(16, 2.0), [1.5, 2.0, 8.0, 64.0]
    event = publications_event(oracle, [2_000, 98_000, 3_000])
    spent = ShuffleAccountant(orders).compose(event).divergences()
    for cell in (2_000, 3_000, 98_000):
        alone = ShuffledDpEvent(_local(oracle), cell)
        assert np.all(ShuffleAccountant(orders).compose(alone).divergences() <= spent * (1 + 1e-9))
    assert event_epsilon(event, DELTA) == second_publication(oracle, [2_000, 98_000], DELTA)
    assert event_epsilon(publications_event(oracle, [5, None]), DELTA) == pytest.approx(2.0)
    assert attr.evolve(event) == event


@pytest.mark.parametrize("bad", [[-1], [2.5], [True], ["10"]])
def test_cells_are_counts(bad):
    with pytest.raises(ValueError, match="cells must hold"):
        second_publication(KRandomizedResponse(4, 1.0), bad, DELTA)


# Counting cells ---------------------------------------------------------------------------------


def test_cells_are_the_sets_of_publications():
    first, second, third = {1, 2, 3, 4}, {3, 4, 5}, {4}
    tags = [np.array(sorted(people), dtype=np.uint64) for people in (first, second, third)]
    assert cells_of(tags) == {(0,): 2, (1,): 1, (0, 1): 1, (0, 1, 2): 1}


def test_cells_of_random_publications():
    rng = np.random.default_rng(5)
    tags = [
        np.unique(
            rng.integers(0, 2**64 - 1, 500, dtype=np.uint64) % np.uint64(700) << np.uint64(54)
        )
        for _ in range(4)
    ]
    found = cells_of(tags)
    sets = [set(each.tolist()) for each in tags]
    slow: dict[tuple[int, ...], int] = {}
    for tag in set.union(*sets):
        cell = tuple(i for i, people in enumerate(sets) if tag in people)
        slow[cell] = slow.get(cell, 0) + 1
    assert found == slow
    assert sum(found.values()) == len(set.union(*sets))


def test_shards_add_up():
    rng = np.random.default_rng(6)
    tags = [np.unique(rng.integers(0, 1000, 600, dtype=np.uint64)) for _ in range(2)]
    halves = [cells_of([each[each % 2 == half] for each in tags]) for half in (0, 1)]
    assert halves[0] + halves[1] == cells_of(tags)


def test_many_publications_and_none():
    """More than the bits of a machine word."""
    tags = [np.array([7] if i % 2 else [7, 9], dtype=np.uint64) for i in range(100)]
    assert cells_of(tags) == {tuple(range(100)): 1, tuple(range(0, 100, 2)): 1}
    assert cells_of([]) == {}
    assert cells_of([np.empty(0, np.uint64)]) == {}


@pytest.mark.parametrize(
    "bad", [np.array([2, 1], np.uint64), np.array([1, 1], np.uint64), np.array([1], np.int64),
            np.array([[1]], np.uint64)],
)  # fmt: skip
def test_tags_are_sorted_and_distinct(bad):
    with pytest.raises(ValueError, match="tag_sets must be sorted"):
        cells_of([bad])


def test_counts_of_cells_are_prices():
    oracle = KRandomizedResponse(16, 2.0)
    people = np.arange(10_000, dtype=np.uint64)
    found = cells_of([people[:9_000], people[1_000:]])
    assert second_publication(oracle, found, DELTA) == shuffle_epsilon(oracle, 1_000, DELTA)
