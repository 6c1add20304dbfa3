"""Plans: made, stored, identified, and what they decide at counts."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.decisions import ArmCounts, ExperimentPlan, decide, design_experiment
from beam_ldp.decisions.experiments.channel import NO_NOISE
from beam_ldp.decisions.experiments.plan import people_needed, with_people

pytestmark = pytest.mark.exact

ASKED = {"local_epsilon": 2.0, "null": 0.10, "effect": 0.05, "alpha": 0.05, "power": 0.8}


@pytest.fixture(scope="module")
def two_arms() -> ExperimentPlan:
    return design_experiment(**ASKED)


@pytest.fixture(scope="module")
def sample() -> ExperimentPlan:
    return design_experiment(**ASKED, arms=["everybody"])


def counts(plan: ExperimentPlan, *ones: int, people: int | None = None) -> dict[str, ArmCounts]:
    each = plan.arm_people()
    return {arm: ArmCounts(people or each[arm], one) for arm, one in zip(plan.arms, ones)}


def test_a_sample_of_a_known_rate(sample):
    assert sample.threshold is not None
    over = decide(sample, counts(sample, sample.threshold + 1))
    under = decide(sample, counts(sample, sample.threshold))
    assert (over.decision, under.decision) == ("effect", "no effect shown")
    assert over.comparisons[0].p_value <= 0.05 < under.comparisons[0].p_value
    assert over.comparisons[0].interval[0] > 0 > under.comparisons[0].interval[0]
    assert over.comparisons[0].power >= 0.8
    assert over.lower_bound_ratio == sample.people / over.least_people > 1


def test_two_arms_are_decided_by_the_noisy_counts(two_arms):
    each = two_arms.arm_people()["control"]
    null, seen = (round(each * two_arms.channel.rate(share)) for share in (0.10, 0.15))
    same, more = (
        decide(two_arms, counts(two_arms, null, null)),
        decide(two_arms, counts(two_arms, null, seen)),
    )
    assert (same.decision, more.decision) == ("no effect shown", "effect")
    assert more.comparisons[0].effect == pytest.approx(0.05, abs=0.001)
    low, high = more.comparisons[0].interval
    assert 0 < low < 0.05 < high
    assert more.interval_level == pytest.approx(0.9)
    less = decide(two_arms, counts(two_arms, seen, null))
    assert less.decision == "no effect shown"  # one-sided: a smaller rate is no success


def test_another_number_of_people_keeps_the_level_and_says_its_power(sample):
    """Section 10.1: the threshold is recomputed at the people who came."""
    people = sample.people // 2
    rate = sample.channel.rate(0.10)
    bound = int(stats.binom.isf(0.05, people, rate))
    at = {one: decide(sample, counts(sample, one, people=people)) for one in (bound, bound + 1)}
    assert [verdict.decision for verdict in at.values()] == ["no effect shown", "effect"]
    assert at[bound].comparisons[0].power < 0.6
    assert at[bound].planned == sample.people


def test_smaller_rates_and_both_sides():
    down = design_experiment(**{**ASKED, "null": 0.15, "effect": -0.05})
    up = design_experiment(**ASKED)
    assert down.people == pytest.approx(up.people, rel=0.01)
    each = down.arm_people()["control"]
    before, after = (round(each * down.channel.rate(share)) for share in (0.15, 0.10))
    verdict = decide(down, counts(down, before, after))
    assert verdict.decision == "effect" and verdict.comparisons[0].effect < 0
    assert decide(down, counts(down, after, before)).decision == "no effect shown"
    both = design_experiment(**ASKED, sided="two")
    assert both.people > up.people
    for ones in ((before, after), (after, before)):
        assert decide(both, counts(both, *ones)).decision == "effect"
    alone = design_experiment(**ASKED, sided="two", arms=["everybody"])
    assert alone.threshold is None and alone.people > ASKED["null"]
    nobody = decide(alone, counts(alone, round(alone.people * alone.channel.zero)))
    assert nobody.decision == "effect" and nobody.comparisons[0].effect == pytest.approx(
        -0.1, abs=0.002
    )


def test_arms_are_spelled_as_columns_are_read():
    assert design_experiment(**ASKED, arms=[False, True]).arms == ("false", "true")
    with pytest.raises(ValueError, match="^arms must hold text"):
        design_experiment(**ASKED, arms=[0.0, 1.0])


def test_several_arms_share_alpha_and_are_corrected():
    plan = design_experiment(**ASKED, arms=["now", "red", "green"])
    pair = design_experiment(**ASKED)
    assert plan.people > 1.5 * pair.people
    each = plan.arm_people()["now"]
    null, seen = (round(each * plan.channel.rate(share)) for share in (0.10, 0.15))
    verdict = decide(plan, counts(plan, null, seen, null))
    red, green = verdict.comparisons
    assert red.significant and not green.significant
    assert red.adjusted_p_value == pytest.approx(2 * red.p_value)
    assert verdict.decision == "effect"


@pytest.mark.parametrize("arms", [["everybody"], ["control", "variant"]])
def test_looks_decide_early_go_on_or_end(arms):
    plan = design_experiment(**ASKED, arms=arms, looks=3, spending="pocock")
    alone = design_experiment(**ASKED, arms=arms)
    assert 1.05 < plan.people / alone.people < 1.25
    assert plan.crowd() == min(plan.arm_people().values()) // 3
    each = plan.people // len(arms) // 3
    null, much = (round(each * plan.channel.rate(share)) for share in (0.10, 0.25))
    quiet = {arm: ArmCounts(each, null) for arm in plan.arms}
    loud = {**quiet, plan.arms[-1]: ArmCounts(each, much)}
    assert decide(plan, quiet).decision == "go on"
    assert decide(plan, loud).decision == "effect"
    assert decide(plan, loud, quiet, quiet).decision == "effect"  # decided is decided
    assert decide(plan, quiet, quiet, quiet).decision == "no effect shown"
    assert decide(plan, quiet).comparisons[0].p_value is None
    assert decide(plan, quiet, quiet, quiet).comparisons[0].power >= 0.78
    with pytest.raises(ValueError, match="1 to 3 looks, got 4: looks are decided in the design"):
        decide(plan, quiet, quiet, quiet, quiet)


def test_looking_twice_without_looks_is_refused(sample):
    with pytest.raises(ValueError, match="1 to 1 looks, got 2"):
        decide(sample, counts(sample, 5), counts(sample, 5))


def test_the_price_is_that_of_the_smallest_increment_of_the_smallest_arm():
    """Goldens of releases-and-participation, section 6."""
    plan = with_people(design_experiment(**ASKED, arms=["everybody"]), 100_000)
    assert round(plan.central_epsilon(), 3) == 0.044
    five = dataclasses.replace(plan, looks=5, threshold=None)
    assert round(five.central_epsilon(), 3) == 0.101
    for looked, price in ((plan, 0.059), (five, 0.137)):  # by clones: of any mechanism of 2.0
        assert round(shuffle_epsilon(2.0, looked.crowd(), 1e-8), 3) == price
    assert plan.central_epsilon(1) <= 2.0 and plan.central_epsilon(20_000) == five.central_epsilon()
    uneven = design_experiment(**ASKED, shares=(0.8, 0.2))
    assert uneven.crowd() == uneven.arm_people()["variant"]


def test_numeric_outcomes_are_bits_that_are_linear_in_them():
    """A mean within [0, 50]: the same test as of the share that it is of the range."""
    money = design_experiment(**{**ASKED, "null": 5.0, "effect": 2.5}, value_range=(0.0, 50.0))
    share = design_experiment(**ASKED)
    assert money.people == share.people
    each = money.arm_people()["control"]
    ones = [round(each * money.channel.rate(s)) for s in (0.10, 0.15)]
    found, plain = decide(money, counts(money, *ones)), decide(share, counts(share, *ones))
    assert found.comparisons[0].effect == pytest.approx(50 * plain.comparisons[0].effect)
    assert found.comparisons[0].interval[1] == pytest.approx(50 * plain.comparisons[0].interval[1])


def test_noise_costs_people_and_bounds_lie_below(two_arms):
    without = people_needed(two_arms, NO_NOISE)
    least = two_arms.least_people
    assert without < two_arms.people
    assert least.interactive < least.sequential < two_arms.people


def test_a_plan_is_its_file(two_arms, sample):
    for plan in (two_arms, sample):
        text = json.dumps({**plan.to_json(), "digest": plan.digest})
        again = ExperimentPlan.from_json(json.loads(text))
        assert again == plan and again.digest == plan.digest
    assert two_arms.digest != sample.digest
    assert two_arms.randomizer().local_epsilon == 2.0


def test_every_field_is_part_of_the_identity(two_arms):
    others = {
        "local_epsilon": 2.1, "delta": 1e-9, "alpha": 0.04, "power": 0.9, "null": 0.11,
        "effect": 0.06, "people": two_arms.people + 1, "sided": "two", "arms": ("a", "b"),
        "shares": (0.4, 0.6), "looks": 2, "spending": "pocock", "value_range": (0.0, 2.0),
        "memoized": False,
    }  # fmt: skip
    digests = {dataclasses.replace(two_arms, **{name: v}).digest for name, v in others.items()}
    assert len(digests | {two_arms.digest}) == len(others) + 1
    assert dataclasses.replace(two_arms, local_epsilon=2).digest == two_arms.digest


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"schema_version": 2}, "schema_version must be 1, got 2"),
        ({"people": 7}, "digest must be that of the plan"),
        ({"secret": 1}, "see \\['secret'\\]"),
        ({"null": "much"}, "could not convert|wrong type"),
    ],
)
def test_a_changed_file_is_refused(two_arms, changed, said):
    stored = {**two_arms.to_json(), "digest": two_arms.digest, **changed}
    with pytest.raises(ValueError, match=said):
        ExperimentPlan.from_json(stored)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"effect": 0.0}, "effect must be a finite number other than 0"),
        ({"effect": 0.95}, "null \\+ effect must lie from 0 to 1"),
        ({"alpha": 0.9}, "power must be above alpha"),
        ({"arms": ["a", "a"]}, "arms must be different names"),
        ({"shares": (0.5, 0.4)}, "shares must be one for each arm, and sum to 1"),
        ({"sided": "three"}, "sided must be one of one, two"),
        ({"looks": 0}, "looks must be an integer from 1 to 100"),
        ({"value_range": (1.0, 0.0)}, "value_range must be two rising numbers"),
        ({"threshold": 5}, "threshold is worked out"),
        ({"scores": (0.1, 0.9)}, "scores go with kind compound"),
    ],
)
def test_what_no_plan_can_be_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        design_experiment(**{**ASKED, **changed})


def test_counts_of_other_arms_are_refused(two_arms):
    with pytest.raises(ValueError, match="counts must be of the arms control, variant"):
        decide(two_arms, {"control": ArmCounts(5, 1)})


@pytest.mark.statistical
def test_false_alarms_and_power_of_a_whole_plan_with_looks():
    """500 experiments each way, through real reports' law: 4 sigma (6e-5)."""
    plan = design_experiment(**{**ASKED, "effect": 0.2}, looks=2, spending="pocock")
    rng, each = np.random.default_rng(3), plan.people // 4
    for effect, low, high in ((0.0, 0.0, 0.05), (0.2, 0.78, 0.9)):
        rates = plan.channel.rate(0.10), plan.channel.rate(0.10 + effect)
        drawn = rng.binomial(each, np.broadcast_to(rates, (500, 2, 2)))
        found = [
            decide(plan, *({a: ArmCounts(each, int(n)) for a, n in zip(plan.arms, look)}
                          for look in one)).decision == "effect"
            for one in drawn
        ]  # fmt: skip
        spread = 4 * np.sqrt(0.25 / 500) if effect else 4 * np.sqrt(0.05 * 0.95 / 500)
        assert low - spread <= np.mean(found) <= high + spread
