"""Several questions: the law of a report, its price by enumeration, its estimates, its bytes."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    shuffle_delta,
    shuffled_event,
)
from beam_ldp.accounting.reports import crowd_of, with_crowd
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    HadamardResponse,
    KRandomizedResponse,
    LocalHashing,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from beam_ldp.randomizers.randomness import UserRandomness
from tests.accounting.brute_force import channel_pairs, crowd_law
from tests.identities import identity

SURVEYS = {
    "alike": OneQuestion((KRandomizedResponse(2, 1.0), KRandomizedResponse(2, 1.0))),
    "sizes": OneQuestion((KRandomizedResponse(2, 1.0), KRandomizedResponse(3, 1.0))),
    "budgets": OneQuestion((KRandomizedResponse(2, 0.5), KRandomizedResponse(2, 2.0))),
    "families": OneQuestion((UnaryEncoding(2, 1.0), SubsetSelection(3, 1.5, 2))),
}
MIXED = (
    KRandomizedResponse(4, 2.0),
    SubsetSelection(60, 2.0),
    UnaryEncoding(12, 2.0),
    HadamardResponse(9, 2.0),
    LocalHashing(7, 2.0),
)
EPSILONS = (0.0, 0.1, 0.3, 0.7, 1.2)


# The law ------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("name", SURVEYS)
def test_the_channel_keeps_the_budget(name):
    survey = SURVEYS[name]
    table = survey.channel()
    np.testing.assert_allclose(table.sum(axis=0), 1.0, atol=1e-12)
    ratio = math.log((table.max(axis=1) / table.min(axis=1)).max())
    assert ratio <= survey.local_epsilon + 1e-12
    assert ratio == pytest.approx(survey.log_ratio_max(), abs=1e-9)
    assert len(survey.channel_reports()) == len(table)


@pytest.mark.statistical
def test_reports_follow_the_channel():
    """Chi-square of 200,000 reports of one value: a score above 5 has probability below 1e-6."""
    survey = SURVEYS["families"]
    values = survey.channel_values()
    column = 4
    reports = survey.randomize(np.tile(values[column], (200_000, 1)), np.random.default_rng(2))
    known = [row.tobytes() for row in survey.channel_reports()]
    seen = [row.tobytes() for row in reports]
    counts = np.array([seen.count(row) for row in known])
    expected = 200_000 * survey.channel()[:, column]
    assert counts.sum() == 200_000
    score = ((counts - expected) ** 2 / expected).sum()
    degrees = len(known) - 1
    assert (score - degrees) / math.sqrt(2 * degrees) < 5


@pytest.mark.exact
def test_a_price_is_named_after_what_it_rests_on():
    alone = KRandomizedResponse(4, 1.0)
    assert OneQuestion((alone,)).dominating_pair().source == "own blanket"
    two = OneQuestion((alone, KRandomizedResponse(5, 1.0))).dominating_pair().source
    assert two == "own blanket of 2 questions, one each"


@pytest.mark.exact
@pytest.mark.parametrize("people", [1, 2, 3])
@pytest.mark.parametrize("name", SURVEYS)
def test_no_data_set_costs_more_than_the_whole_as_one_mechanism(name, people):
    """Every data set of a few people, every change of one person's answers, one or all of them.

    The crowd is everybody, whatever they were asked: that is the claim that the price rests on.
    """
    survey = SURVEYS[name]
    pairs = channel_pairs(survey.channel().T, people)
    assert survey.dominating_pair().source.startswith("own blanket of 2 questions")
    for epsilon in EPSILONS:
        one = np.maximum(pairs.first - math.exp(epsilon) * pairs.second, 0).sum(axis=1)
        two = np.maximum(pairs.second - math.exp(epsilon) * pairs.first, 0).sum(axis=1)
        claimed = float(shuffle_delta(survey, people, epsilon))
        assert max(one.max(), two.max()) <= claimed + 1e-9, epsilon


@pytest.mark.exact
def test_the_crowd_of_one_question_alone_would_claim_more_than_is_lost():
    """The other analysis, by the answers to one question, is sound but far from tight: drawing the
    question hides which one a person answered."""
    survey = SURVEYS["alike"]
    oracle = survey.oracles[0]  # by its pair, as that of more than a bit
    alone = LocalRandomizerDpEvent(oracle.local_epsilon, oracle.dominating_pair())
    whole = float(shuffle_delta(survey, 1000, 0.1))
    by_question = float(shuffle_delta(alone, 500, 0.1))
    assert whole < by_question
    assert whole == pytest.approx(float(shuffle_delta(alone, 1000, 0.1)), rel=1e-6)


@pytest.mark.exact
def test_changing_one_answer_costs_less_than_changing_all():
    """What the proof of the pair says of questions whose answers stay."""
    survey, people = SURVEYS["sizes"], 3
    values = survey.channel_values()
    table = survey.channel()
    base = [table[:, 0]] * (people - 1)

    def lost(changed: int) -> float:
        first = crowd_law(np.array([*base, table[:, 0]]))
        second = crowd_law(np.array([*base, table[:, changed]]))
        return float(np.maximum(first - math.exp(0.2) * second, 0).sum())

    both = values.tolist().index([1, 1])
    assert lost(both) > lost(values.tolist().index([0, 1]))
    assert lost(both) > lost(values.tolist().index([1, 0]))


@pytest.mark.exact
def test_lower_bounds_stay_below_and_oracles_without_a_pair_fall_back():
    survey = OneQuestion(MIXED[:3])
    price = ShuffleAccountant().compose(shuffled_event(survey, 10_000)).get_epsilon(1e-6)
    assert 0 < price.lower <= float(price) < survey.local_epsilon
    assert OneQuestion(MIXED).dominating_pair().source == "clones"


@pytest.mark.exact
def test_every_question_is_the_composition_of_its_columns():
    survey = EveryQuestion((KRandomizedResponse(3, 1.0), KRandomizedResponse(5, 0.5)))
    event = shuffled_event(survey, 1000)
    assert crowd_of(event) == 1000 and crowd_of(with_crowd(event, 7)) == 7
    assert [part.local_epsilon for part in event.events] == [1.0, 0.5]
    assert survey.local_epsilon == 1.5 and survey.messages_per_user == 2
    whole = float(ShuffleAccountant().compose(event).get_epsilon(1e-6))
    parts = [float(ShuffleAccountant().compose(e).get_epsilon(5e-7)) for e in event.events]
    assert max(parts) < whole <= sum(parts) + 1e-6


# Estimates ----------------------------------------------------------------------------------


def people(count: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack(
        [rng.integers(0, max(1, oracle.domain_size // 2), count) for oracle in MIXED], axis=1
    )


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [OneQuestion, EveryQuestion])
def test_estimates_lie_about_the_truth_as_far_as_they_say(kind):
    """100,000 people; of 92 estimates none is 5.5 standard errors off (probability below 4e-6)."""
    survey, rng = kind(MIXED), np.random.default_rng(8)
    values = people(100_000, rng)
    statistic = survey.accumulate(survey.randomize(values, rng))
    for i, estimate in enumerate(survey.estimates(statistic, len(values))):
        truth = np.bincount(values[:, i], minlength=MIXED[i].domain_size) / len(values)
        score = (estimate.value - truth) / estimate.standard_error
        assert np.abs(score).max() < 5.5 and estimate.num_users == 100_000


@pytest.mark.statistical
def test_the_draw_of_people_is_in_the_error():
    """At a large budget nothing but the draw is left: 400 surveys, the ratio of variances within 5
    of its standard errors, for these people and for the population."""
    survey = OneQuestion((KRandomizedResponse(2, 12.0),) * 4)
    rng, found, said = np.random.default_rng(4), [], []
    values = np.tile(np.array([[0], [1]]), (250, 4))
    for _ in range(400):
        statistic = survey.accumulate(survey.randomize(values, rng))
        estimate = survey.estimates(statistic, 500)[0]
        found.append(estimate.value[0])
        said.append(estimate.standard_error[0])
    assert abs(np.var(found) / np.mean(np.square(said)) - 1) < 5 * math.sqrt(2 / 399)
    drawn = survey.estimates(statistic, 500, sampling="iid")[0].standard_error[0]
    assert drawn > said[-1]


@pytest.mark.exact
def test_answers_must_be_as_many_as_people():
    survey = SURVEYS["alike"]
    with pytest.raises(ValueError, match="one answer of each"):
        survey.estimates(np.array([3, 1, 2, 2, 1, 1]), 6)
    every = EveryQuestion(survey.oracles)
    with pytest.raises(ValueError, match="an answer of each"):
        every.estimates(np.array([3, 1, 2, 2, 1, 1]), 3)
    assert survey.answers(np.array([3, 1, 2, 2, 1, 1])) == (3, 2)
    assert every.answers(np.array([3, 1, 2, 3, 1, 2])) == ()
    nobody = survey.estimate(np.zeros(6, dtype=np.int64), 0)
    assert np.isnan(nobody.value).all() and np.isinf(nobody.standard_error).all()
    assert [part.value.shape for part in survey.split(nobody)] == [(2,), (2,)]


# How it travels -----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("kind", [OneQuestion, EveryQuestion])
def test_bytes_and_parameters_come_back(kind):
    survey, rng = kind(MIXED), np.random.default_rng(1)
    reports = survey.randomize(people(200, rng), rng)
    packed = survey.pack(reports)
    assert 8 * len(packed) == 200 * survey.bits_per_report
    assert np.array_equal(survey.unpack(packed, 200), reports)
    assert LocalRandomizer.from_config(survey.to_config()) == survey
    assert pickle.loads(pickle.dumps(survey)) == survey
    parts = [survey.accumulate(reports[:50]), survey.accumulate(reports[50:])]
    assert np.array_equal(sum(parts), survey.accumulate(reports))


@pytest.mark.exact
def test_impossible_reports_are_refused():
    survey = OneQuestion((KRandomizedResponse(3, 1.0), KRandomizedResponse(300, 1.0)))
    for bad in ([2, 0, 0], [0, 3, 0], [0, 1, 1], [1, 255, 255]):
        with pytest.raises(ValueError, match="reports"):
            survey.unpack(bytes(bad), 1)
    assert survey.unpack(bytes([1, 43, 1]), 1).tolist() == [[1, 43, 1]]
    with pytest.raises(ValueError, match="3 bytes"):
        survey.unpack(b"12", 1)


@pytest.mark.exact
def test_memoized_answers_repeat_and_depend_on_the_value():
    survey, rng = OneQuestion(MIXED), np.random.default_rng(3)
    values = people(500, rng)
    key = UserRandomness(b"k" * 32, np.arange(500), identity("week"))
    first = survey.randomize(values, key)
    assert np.array_equal(first, survey.randomize(values.astype(np.int32), key))
    assert not np.array_equal(first, survey.randomize((values + 1) % 4, key))
    assert set(first[:, 0].tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.exact
def test_what_cannot_be_a_survey():
    with pytest.raises(ValueError, match="1 to 256"):
        OneQuestion(())
    with pytest.raises(ValueError, match="must be frequency oracles"):
        OneQuestion((3,))
    with pytest.raises(ValueError, match="something public"):
        OneQuestion((BinaryHadamard(100, 1.0, row="public"),))
    with pytest.raises(ValueError, match="local_epsilon must be 0 or"):
        OneQuestion((KRandomizedResponse(3, 1.0),), 2.0)
    with pytest.raises(ValueError, match=r"shape \(n, 2\)"):
        SURVEYS["alike"].randomize(np.zeros(3, dtype=int))
    with pytest.raises(ValueError, match="values must lie in"):
        SURVEYS["alike"].randomize(np.array([[0, 2]]))
