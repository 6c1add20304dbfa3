"""Attackers who see several releases of the same people: what they prove stays below the charge.

Every attack is run twice. On the library as it is, the epsilon that it proves must not exceed what
was charged: a failure is a fault of noise or price, but for a chance of one in a million (`MISS`)
per comparison. And on a version that is broken on purpose, as it once was, the same attack must
prove more than was charged: else it would find nothing.

Trials are people: a memoized report is a function of key, user, value and identity, so thousands of
crowds with ids of their own, under one key, are thousands of independent trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from beam_ldp.accounting import ShuffleAccountant, local_event, shuffle_epsilon, shuffled_event
from beam_ldp.accounting.prices import second_publication
from beam_ldp.randomizers import randomness
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.randomness import UserRandomness
from tests.canaries.lower_bounds import Views, lower_epsilon

pytestmark = pytest.mark.statistical

KEY = bytes(range(32))
LOCAL = 1.0
ORACLE = KRandomizedResponse(2, LOCAL)
TRIALS = 40_000
CROWD = 30
DELTA = 1e-3
RELEASE = ReleaseIdentity("people", "week-1", ORACLE.config_digest().hex(), columns=("hiv",))

OneReport = Callable[[int], Views]  # value of the victim to their report, or their crowd's count


def memoized(
    release: ReleaseIdentity, people: int = 1, absent: bool = False, first: int = 0
) -> OneReport:
    """How many of each crowd's reports say 1; the victim comes first, all others hold 0.

    Args:
        release: its identity.
        people: of a crowd; 1: the victim alone, whose report is seen.
        absent: the victim does not take part.
        first: number of the first person of each crowd who takes part.
    """

    def counts(value: int) -> Views:
        persons = np.arange(first, people)
        ids = np.arange(TRIALS)[:, None] * 10_000 + persons
        values = np.zeros(ids.shape, dtype=np.int64)
        if not absent:
            values[:, 0] = value
        noise = UserRandomness(KEY, ids.ravel(), release)
        reports = ORACLE.randomize(values.ravel(), noise).reshape(ids.shape)
        return reports.sum(axis=1, dtype=np.int64)

    return counts


def fresh(people: int = 1, seed: int = 1) -> OneReport:
    """The same with noise that is drawn anew."""
    generator = np.random.default_rng(seed)

    def counts(value: int) -> Views:
        values = np.zeros((TRIALS, people), dtype=np.int64)
        values[:, 0] = value
        reports = ORACLE.randomize(values.ravel(), generator).reshape(values.shape)
        return reports.sum(axis=1, dtype=np.int64)

    return counts


def proved(
    one: OneReport,
    other: OneReport,
    *,
    worlds: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (0, 0)),
    delta: float = 0.0,
    views: Callable[[Views, Views], Views] = lambda a, b: 10_000 * a + b,
) -> float:
    """The epsilon that two releases prove; `worlds`: the victim's two values, in each of two."""
    seen = [views(one(first), other(second)) for first, second in worlds]
    return lower_epsilon(*seen, delta=delta)


def composed(count: int = 2, people: int = CROWD) -> float:
    """What so many shuffles with independent noise are charged."""
    return ShuffleAccountant().compose(shuffled_event(ORACLE, people), count).get_epsilon(DELTA)


TWO_RESPONSES = 2 * LOCAL  # what the same person's two reports are charged locally
CHANGED = ((0, 1), (0, 0))  # the second of two values differs


# One report of each person ----------------------------------------------------------------------


def test_the_attack_finds_the_whole_of_one_report():
    """Power: within a tenth of the local epsilon, from below."""
    seen = [memoized(RELEASE)(value) for value in (1, 0)]
    assert 0.9 * LOCAL < lower_epsilon(*seen) <= LOCAL


def test_the_same_release_twice_is_one_report():
    """A retry, a re-run, another spelling of the input: nothing to average."""
    again = memoized(ReleaseIdentity.from_json(RELEASE.to_json()))
    assert proved(memoized(RELEASE), again) <= LOCAL
    people = memoized(RELEASE, CROWD)
    assert proved(people, people, delta=DELTA) <= shuffle_epsilon(ORACLE, CROWD, DELTA)


def test_broken_the_name_of_the_data_was_the_spelling_of_a_path():
    """Two identities of one release: two reports, charged once."""
    spelled = replace(RELEASE, dataset="./people.csv")
    assert proved(memoized(RELEASE), memoized(spelled)) > LOCAL * 1.5


# Two questions under one key ----------------------------------------------------------------------

ANOTHER = [
    replace(RELEASE, columns=("hepc",)),
    replace(RELEASE, values="ab"),
    replace(RELEASE, release_id="week-2"),
    replace(RELEASE, bounding="one row of each uid"),
]


@pytest.mark.parametrize("other", ANOTHER, ids=["column", "list", "release", "rule"])
@pytest.mark.parametrize("worlds", [((1, 1), (0, 0)), CHANGED], ids=["values", "one changed"])
def test_two_questions_of_one_key_are_two_reports(other, worlds):
    assert proved(memoized(RELEASE), memoized(other), worlds=worlds) <= TWO_RESPONSES


def test_two_questions_behind_the_shuffle():
    one, other = memoized(RELEASE, CROWD), memoized(ANOTHER[0], CROWD)
    for worlds in (((1, 1), (0, 0)), CHANGED):
        assert proved(one, other, worlds=worlds, delta=DELTA) <= composed()


def test_broken_the_noise_knew_no_question(monkeypatch):
    """Reports that differ prove that the values do: no finite epsilon holds."""
    nameless = replace(RELEASE, columns=(), values="", bounding="row")
    monkeypatch.setattr(
        randomness, "drawn_under", lambda identity: replace(nameless, key=identity.key).digest
    )
    for people in (1, CROWD):
        one, other = memoized(RELEASE, people), memoized(ANOTHER[0], people)
        found = proved(one, other, worlds=CHANGED, delta=DELTA)
        assert found > 2 * TWO_RESPONSES > composed()


# A re-run after one value changed -----------------------------------------------------------------


def test_a_changed_value_has_no_price_and_the_attack_shows_why():
    """Why the ledger refuses it: composed as independent noise it would be charged far too low."""
    for people in (1, CROWD):
        release = memoized(RELEASE, people)
        found = proved(release, release, worlds=CHANGED, delta=DELTA, views=np.subtract)
        assert found > 2 * TWO_RESPONSES > composed()
    assert math.isinf(second_publication(ORACLE, [CROWD], DELTA, same_values=False))


# Two windows ------------------------------------------------------------------------------------

WINDOWS = [RELEASE.of_window(start, start + 60) for start in (0, 60)]


@pytest.mark.parametrize("worlds", [((1, 1), (0, 0)), CHANGED], ids=["values", "one changed"])
def test_two_windows_are_two_reports(worlds):
    assert proved(*map(memoized, WINDOWS), worlds=worlds) <= TWO_RESPONSES
    crowds = [memoized(window, CROWD) for window in WINDOWS]
    assert proved(*crowds, worlds=worlds, delta=DELTA) <= composed()


def test_two_windows_are_not_one_report():
    """Power: both reports together tell more than one is charged."""
    assert proved(*map(memoized, WINDOWS)) > 1.5 * LOCAL


def test_broken_every_window_had_the_same_noise(monkeypatch):
    whole = randomness.drawn_under
    monkeypatch.setattr(randomness, "drawn_under", lambda window: whole(replace(window, part="")))
    crowds = [memoized(window, CROWD) for window in WINDOWS]
    assert proved(*crowds, worlds=CHANGED, delta=DELTA) > 2 * composed()


# Memoized once and fresh once ---------------------------------------------------------------------


def test_memoized_and_fresh_are_two_reports():
    """And more than one, so charging the fresh one as a retry would be too little."""
    found = proved(memoized(RELEASE), fresh())
    assert 1.5 * LOCAL < found <= TWO_RESPONSES
    both = proved(memoized(RELEASE, CROWD), fresh(CROWD), delta=DELTA)
    assert both <= composed()


# A second publication with exchanged people -------------------------------------------------------

EXCHANGED = 1_000  # people in both publications, beside the victim and whoever takes their place


def exchanged() -> tuple[Callable[[int], Views], Callable[[int], Views]]:
    """Counts of two publications: the victim and all others, then all others and a stranger.

    Only the difference matters to the attacker, who knows both counts: those in both publications
    send the same reports, and cancel. They are drawn once, so that trials stay cheap.
    """
    stranger = memoized(RELEASE, 2, absent=True, first=1)
    return memoized(RELEASE), stranger


def test_exchanged_people_are_priced_by_their_cells():
    came, went = exchanged()
    found = proved(went, came, worlds=((0, 1), (0, 0)), delta=DELTA, views=np.subtract)
    charged = second_publication(ORACLE, [1, EXCHANGED, 1], DELTA)
    assert 0.8 * LOCAL < found <= charged <= LOCAL


def test_broken_a_second_publication_was_composed_as_fresh_noise():
    came, went = exchanged()
    found = proved(went, came, worlds=((0, 1), (0, 0)), delta=DELTA, views=np.subtract)
    assert found > 2 * composed(people=EXCHANGED + 1)


def test_those_in_both_publications_send_what_they_sent():
    """What the attack above takes for granted, and what the price forbids to count twice."""
    both = np.arange(5_000)
    values = both % 2
    one, two = (
        ORACLE.randomize(values[part], UserRandomness(KEY, both[part], RELEASE))
        for part in (slice(0, 4_000), slice(1_000, 5_000))
    )
    assert np.array_equal(one[1_000:], two[:3_000])


def test_cells_hide_a_person_as_a_shuffle_of_the_cell():
    """Ten exchanged people: the difference of the counts is a shuffle of twenty, priced as ten."""
    cell = 10
    came = memoized(RELEASE, cell)
    went = memoized(RELEASE, 2 * cell, absent=True, first=cell)
    found = proved(went, came, worlds=((0, 1), (0, 0)), delta=DELTA, views=np.subtract)
    assert found <= second_publication(ORACLE, [cell, EXCHANGED, cell], DELTA)


def test_what_is_charged_locally_is_one_report_for_all_publications():
    assert local_event(ORACLE).local_epsilon == LOCAL
    reports = memoized(RELEASE)
    assert proved(reports, reports) <= LOCAL
