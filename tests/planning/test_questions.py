"""Designs for several questions, and trees for ranges: targets are met, the better one is first."""

from __future__ import annotations

import math

import pytest

from beam_ldp.accounting import shuffled_event
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.planning.questions import plan_questions, price_if_known, rare_errors
from beam_ldp.planning.ranges import plan_ranges, range_errors
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion

pytestmark = pytest.mark.exact
SIZES = (10, 20, 5)


def test_drawing_one_wins_under_a_local_budget():
    plans = plan_questions(100_000, SIZES, local_epsilon=1.0)
    assert len(plans) == 6 and plans[0].mechanism == "OneQuestion"
    assert [plan.rms_error for plan in plans] == sorted(plan.rms_error for plan in plans)
    assert all(plan.local_epsilon == pytest.approx(1.0) for plan in plans)
    assert all(plan.epsilon is None for plan in plans)
    # The square of the error is that of the sum of all variances, for people spread evenly.
    best = plans[0]
    assert len(best.standard_errors) == 3 and best.rms_error > max(best.standard_errors)


def test_a_central_target_is_met_and_neither_price_is_worse():
    plans = plan_questions(100_000, SIZES, epsilon=0.5, delta=1e-6)
    best = plans[0]
    assert 0.49 < float(best.epsilon) <= 0.5 or best.mechanism == "EveryQuestion"
    assert best.epsilon_if_known >= best.epsilon
    for oracle in ("KRandomizedResponse", "UnaryEncoding"):
        one, every = (
            next(p for p in plans if (p.mechanism, p.oracle) == (kind, oracle))
            for kind in ("OneQuestion", "EveryQuestion")
        )
        assert every.local_epsilon <= one.local_epsilon * (1 + 1e-12)
        price = event_epsilon(shuffled_event(every.randomizer, 100_000), 1e-6)
        assert float(price) <= 0.5


def test_all_without_a_limit_spends_the_whole_central_budget():
    (best,) = plan_questions(
        100_000, (8, 8), epsilon=0.5, delta=1e-6, designs=("all",), oracles=(KRandomizedResponse,)
    )
    assert 0.49 < float(best.epsilon) <= 0.5 and best.local_epsilon > 8
    (capped,) = plan_questions(
        100_000, (8, 8), epsilon=0.5, delta=1e-6, designs=("all",),
        oracles=(KRandomizedResponse,), max_local_epsilon=4.0,
    )  # fmt: skip
    assert capped.local_epsilon == 4.0 and float(capped.epsilon) < 0.5


def test_what_does_not_fit_is_said():
    plans = plan_questions(1000, SIZES, local_epsilon=1.0, max_bits=16)
    assert all(plan.bits_per_report <= 16 for plan in plans if not plan.excluded)
    assert any("bits per person" in plan.excluded for plan in plans)
    with pytest.raises(ValueError, match="at least one question"):
        plan_questions(1000, (), local_epsilon=1.0)
    with pytest.raises(ValueError, match="exactly one of epsilon"):
        plan_questions(1000, SIZES)


def test_a_reader_who_knows_the_question_pays_attention_to_its_answers_only():
    one = OneQuestion((KRandomizedResponse(4, 2.0), KRandomizedResponse(4, 2.0)))
    alone = event_epsilon(shuffled_event(one.oracles[0], 300), 1e-6)
    assert float(price_if_known(one, 1000, 1e-6, (700, 300))) == pytest.approx(float(alone))
    every = EveryQuestion(one.oracles)
    whole = event_epsilon(shuffled_event(every, 1000), 1e-6)
    assert float(price_if_known(every, 1000, 1e-6)) == float(whole)
    errors = rare_errors(one, 1000)
    assert (
        errors[0]
        == errors[1]
        == pytest.approx(math.sqrt(one.oracles[0].variance(500, [0, 0, 0, 1])[0]))
    )


def test_trees_where_noise_is_large_and_a_flat_histogram_where_it_is_not():
    bins = Bins.parse("0:100:62")
    noisy = plan_ranges(100_000, bins, local_epsilon=1.0)
    assert noisy[0].tree.fan_out == 4 and len(noisy[0].tree.sizes) == 3
    central = plan_ranges(100_000, bins, epsilon=1.0, delta=1e-8)
    assert len(central[0].tree.sizes) == 1 and 0.99 < float(central[0].epsilon) <= 1.0
    chosen = plan_ranges(100_000, bins, local_epsilon=1.0, fan_outs=(8,))
    assert {plan.tree.fan_out for plan in chosen} == {8}
    assert chosen[0].rms_error >= noisy[0].rms_error


def test_a_flat_histogram_has_the_error_that_can_be_written_down():
    """One level of k cells with variance v each and the total known: a prefix of j cells has
    variance v j (k - j) / k, and a range of r cells likewise."""
    bins = Bins.parse("0:1:8")
    tree = Hierarchy(bins, 10)
    survey = OneQuestion((KRandomizedResponse(10, 1.0),))
    rms, worst = range_errors(tree, survey, 1000)
    v = KRandomizedResponse(10, 1.0).variance(1000, [0.0] * 9 + [1.0])[0]
    assert worst == pytest.approx(math.sqrt(v * 5 * 5 / 10))
    pairs = [v * (j - i) * (10 - (j - i)) / 10 for i in range(1, 10) for j in range(1, 10) if j > i]
    assert rms == pytest.approx(math.sqrt(sum(pairs) / len(pairs)))
