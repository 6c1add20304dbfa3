"""Several publications of the same reports: the worst neighbours by enumeration, and the price."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

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
from beam_ldp.accounting.prices import (
    cells_of,
    honest_cells,
    publications_event,
    second_publication,
    shown_cells,
)
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
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
    """What a reader of two publications or more of one report each sees, by enumeration.

    The law of all histograms, for every data set and every exchange of one person's value. A report
    is one number; `columns` of it are shown apart: its digits to that base.
    """

    def __init__(
        self, rows: np.ndarray, members: Sequence[tuple[int, ...]], columns: int = 1
    ) -> None:
        self.values, people = len(rows), len(members)
        base = round(self.values ** (1 / columns))
        reports = np.array(list(itertools.product(range(self.values), repeat=people)))
        digits = [reports // base**c % base for c in range(columns)]
        inside = [[bool(m[p]) for m in members] for p in range(len(members[0]))]
        shown = [
            tuple(
                tuple(np.bincount(column[i][chosen], minlength=base))
                for chosen in inside
                for column in digits
            )
            for i in range(len(reports))
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


# Several questions, and groups -------------------------------------------------------------------

FEW = {
    "one exchanged": [(1, 0), (1, 1), (0, 1)],
    "one more": [(1, 1), (1, 1), (0, 1)],
    "the same people": [(1, 1), (1, 1), (1, 1)],
    "two more": [(1, 1), (1, 1), (0, 1), (0, 1)],
}
TWO_QUESTIONS = (KRandomizedResponse(2, 1.2), KRandomizedResponse(2, 0.7))


def _both_answers() -> np.ndarray:
    """The channel of a person who answers both questions: value and report are two digits."""
    first, second = (response_rows(2, oracle.local_epsilon) for oracle in TWO_QUESTIONS)
    return np.kron(second, first)


@pytest.mark.parametrize("members", FEW.values(), ids=FEW)
def test_each_cell_costs_the_composition_of_its_questions(members):
    view = JointView(_both_answers(), members, columns=2)
    event = publications_event(EveryQuestion(TWO_QUESTIONS), cells(members))
    for delta in (0.0, 0.01, 0.1, 0.25):
        assert view.worst(float(event_epsilon(event, delta))) <= delta + 1e-9


def test_one_question_alone_does_not_price_both():
    """Whoever reads both columns knows more: their prices add up, in each cell."""
    members = FEW["two more"]
    view = JointView(_both_answers(), members, columns=2)
    dearest = second_publication(TWO_QUESTIONS[0], cells(members), 0.1)
    assert view.worst(float(dearest)) > 0.15
    assert view.worst(float(second_publication(EveryQuestion(TWO_QUESTIONS), [4], 0.1))) > 0.15


def test_people_who_answer_one_question_each_are_one_crowd():
    """The question travels in the report, drawn without the value: one shuffle of each cell."""
    survey = OneQuestion(TWO_QUESTIONS)
    channel, members = survey.channel().T, FEW["one more"]
    square = np.zeros((4, 4))  # four values, four reports: question and answer
    square[: channel.shape[0], : channel.shape[1]] = channel
    view = JointView(square, members)
    for epsilon in (0.0, 0.5, 1.0):
        assert view.worst(epsilon) <= shuffle_delta(survey, 1, epsilon) * (1 + 1e-6)
    for delta in (0.05, 0.2):
        paid = second_publication(survey, cells(members), delta)
        assert view.worst(float(paid)) <= delta + 1e-9


# Releases of two groups in two publications: (first of A, second of A, first of B, second of B).
GROUPED = [(1, 1, 0, 0), (1, 1, 0, 0), (0, 1, 0, 0), (0, 1, 0, 0), (0, 0, 1, 1), (0, 0, 1, 1)]


def test_groups_cost_the_smallest_cell_of_all_of_them():
    rows, oracle = response_rows(2, 2.0), KRandomizedResponse(2, 2.0)
    view = JointView(rows, GROUPED)
    for epsilon in EPSILONS:
        assert view.worst(epsilon) <= shuffle_delta(oracle, 2, epsilon) * (1 + 1e-6)
    lonely = JointView(rows, [*GROUPED[:4], GROUPED[4], (0, 0, 0, 1)])  # of B, one each
    assert lonely.worst(1.0) > shuffle_delta(oracle, 2, 1.0) * 1.05
    assert lonely.worst(1.0) == pytest.approx(JointView(rows, [(0, 1)]).worst(1.0))


def test_cells_of_the_whole_do_not_price_groups():
    """Half of B went, as many of A: in the partition without groups nobody is alone."""
    rows, oracle = response_rows(2, 2.0), KRandomizedResponse(2, 2.0)
    view = JointView(rows, [(1, 1, 0, 0), (1, 0, 0, 0), (0, 0, 1, 1), (0, 0, 1, 0)])
    assert view.worst(1.0) > shuffle_delta(oracle, 2, 1.0) * 1.05


# Who is shown, and who is honest -----------------------------------------------------------------


def test_groups_that_were_too_small_are_in_no_cell():
    assert shown_cells({(0, 1): 90, (0,): 10, (1,): 20}, [100, 100]) == {
        (0, 1): 90, (0,): 10, (1,): 20,
    }  # fmt: skip
    assert shown_cells({(0, 1): 90, (0,): 10, (1,): 20}, [101, 100]) == {(1,): 110}
    assert shown_cells({(0, 1): 90, (0,): 10, (1,): 20}, [100, 111]) == {(0,): 100}
    assert shown_cells({(0, 1): 90, (0,): 10, (1,): 20}, [101, 111]) == {}
    assert shown_cells({(0, 1): 5, (2,): 9, (0, 1, 2): 1}, [1, 7, 1]) == {
        (0,): 5, (2,): 9, (0, 2): 1,
    }  # fmt: skip


def test_what_one_publication_withheld_is_not_seen():
    """Two people of a group in both, one more in the second, which alone had enough."""
    rows, oracle = response_rows(2, 2.0), KRandomizedResponse(2, 2.0)
    view = JointView(rows, [(0, 1), (0, 1), (0, 1)])
    counted = shown_cells({(0, 1): 2, (1,): 1}, [3, 3])
    assert counted == {(1,): 3}
    assert view.worst(1.0) <= shuffle_delta(oracle, 3, 1.0) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("counted", "fraction", "honest"),
    [
        ({(0,): 10}, 1.0, {(0,): 10}),
        ({(0,): 100, (0, 1): 900}, 0.95, {(0,): 50, (0, 1): 855}),
        ({(0,): 100, (0, 1): 900}, 0.5, {(0,): 0, (0, 1): 450}),
        ({(0,): 600, (1,): 50, (0, 1): 400}, 0.9, {(0,): 500, (1,): 5, (0, 1): 355}),
        ({(): 4}, 0.5, {(): 4}),
    ],
)
def test_fakes_of_a_cell_are_in_all_its_publications(counted, fraction, honest):
    assert honest_cells(counted, fraction) == honest


def test_fakes_of_the_first_publication_are_not_those_of_the_second():
    """Half of the first one's crowd went away, and all fakes among them."""
    found = honest_cells({(0,): 9_600, (0, 1): 90_400}, 0.9)
    assert found[(0,)] == 0  # 10,000 fakes of the first; the second has 9,040
    oracle = KRandomizedResponse(16, 2.0)
    assert second_publication(oracle, found.values(), DELTA) == pytest.approx(2.0, abs=1e-7)


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
