"""Plans: every oracle, at budgets that meet the target, ranked by error."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from beam_ldp.accounting import local_epsilon_for, shuffle_epsilon
from beam_ldp.planning import plan_frequencies, recommend
from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.base import LocalRandomizer

pytestmark = pytest.mark.exact

RAPPOR = "PairwiseIndependentRappor"
TARGET = {"num_users": 10**6, "domain_size": 1000, "epsilon": 1.0, "delta": 1e-8}


@pytest.fixture(scope="module")
def plans():
    return plan_frequencies(**TARGET)


def test_every_oracle_appears_once_and_says_what_decoding_takes(plans):
    assert sorted(plan.mechanism for plan in plans) == sorted(
        set(frequency.__all__) - {"LimitedHadamard"}  # which is for few random bits
    )
    assert all(plan.decoding for plan in plans)


def test_of_the_variants_of_a_mechanism_the_best_one_is_planned(monkeypatch):
    """The worse choice of every oracle that has one, first in its list or last."""
    kind = frequency.SubsetSelection
    choices = [{"subset_size": 1}, {}, {"subset_size": 9}]
    monkeypatch.setattr(kind, "variants", classmethod(lambda cls, size: choices))
    (plan,) = plan_frequencies(10**5, 40, local_epsilon=1.0, only=["SubsetSelection"])
    assert plan.config["subset_size"] == kind(40, 1.0).subset_size
    (short,) = plan_frequencies(10**5, 40, local_epsilon=1.0, max_bits=6, only=["SubsetSelection"])
    assert short.config["subset_size"] == 1 and not short.excluded


def test_a_bit_budget_brings_the_shorter_variant():
    long, short = (
        plan_frequencies(10**4, 1000, local_epsilon=1.0, max_bits=bits, only=[RAPPOR])[0]
        for bits in (32, 16)
    )
    assert (long.bits_per_report, long.config["compact"]) == (20, False)
    assert (short.bits_per_report, short.config["compact"], short.excluded) == (13, True, "")


def test_what_does_not_fit_says_why_whoever_it_is(monkeypatch):
    def refuse(cls, size):
        return ({"subset_size": size},)

    monkeypatch.setattr(frequency.SubsetSelection, "variants", classmethod(refuse))
    (plan,) = plan_frequencies(10**5, 40, local_epsilon=1.0, only=["SubsetSelection"])
    assert plan.randomizer is None and "subset_size" in plan.excluded and plan.decoding


def test_every_plan_meets_the_target_and_nearly_uses_it_up(plans):
    for plan in plans:
        assert plan.epsilon <= 1.0
        assert plan.epsilon >= 0.999, plan.mechanism
        again = shuffle_epsilon(LocalRandomizer.from_config(plan.config), 10**6, 1e-8)
        assert again == pytest.approx(plan.epsilon, rel=1e-9)
        assert plan.local_epsilon == plan.randomizer.local_epsilon


def test_own_blankets_buy_more_than_the_generic_price(plans):
    generic = local_epsilon_for(1.0, 1e-8, 10**6)
    assert all(plan.local_epsilon >= generic * (1 - 1e-5) for plan in plans)
    assert len({round(plan.local_epsilon, 2) for plan in plans}) >= 3, "each by its own"


def test_best_first(plans):
    errors = [plan.rms_error for plan in plans]
    for earlier, later in zip(errors, errors[1:], strict=False):
        assert later >= earlier / 1.01
    for one, two in zip(plans, plans[1:], strict=False):
        if two.rms_error < one.rms_error:
            assert two.bits_per_report >= one.bits_per_report


def test_errors_are_those_of_the_oracle(plans):
    for plan in plans:
        even = plan.randomizer.variance(10**6, np.full(1000, 1e-3))
        assert plan.rms_error == pytest.approx(math.sqrt(even.sum()))
        rare = np.full(1000, 1 / 999)
        rare[0] = 0
        assert plan.standard_error == pytest.approx(
            math.sqrt(plan.randomizer.variance(10**6, rare)[0])
        )
        assert plan.standard_error <= plan.worst_error * (1 + 1e-12)
        assert plan.bits_per_report == plan.randomizer.bits_per_report


def test_too_long_reports_are_left_out_with_the_reason():
    plans = plan_frequencies(10**5, 1000, local_epsilon=1.0, max_bits=32)
    out = [plan for plan in plans if plan.excluded]
    assert {"UnaryEncoding", "Rappor"} <= {plan.mechanism for plan in out}
    assert all("max_bits is 32" in plan.excluded and plan.bits_per_report > 32 for plan in out)
    assert [bool(plan.excluded) for plan in plans] == sorted(bool(plan.excluded) for plan in plans)
    assert not plans[0].excluded and plans[0].bits_per_report <= 32


def test_a_given_local_budget_is_kept():
    for plan in plan_frequencies(10**5, 16, local_epsilon=1.5, delta=1e-7):
        assert plan.local_epsilon == 1.5
        assert 0 < plan.epsilon.lower <= plan.epsilon < 1.5
    for plan in plan_frequencies(10**5, 16, local_epsilon=1.5):
        assert plan.epsilon == 1.5 and "no amplification" in plan.epsilon.method


def test_fake_reports_hide_nobody():
    half = recommend(10**5, 16, local_epsilon=2.0, delta=1e-7, honest_fraction=0.5)
    fewer = recommend(50_000, 16, local_epsilon=2.0, delta=1e-7)
    assert half.epsilon == fewer.epsilon
    assert half.rms_error < fewer.rms_error, "all reports enter the estimate"
    earned = recommend(10**5, 16, epsilon=0.5, delta=1e-7, honest_fraction=0.5)
    assert shuffle_epsilon(earned.randomizer, 50_000, 1e-7) <= 0.5
    assert shuffle_epsilon(earned.randomizer, 49_000, 1e-7) > 0.5


@pytest.mark.parametrize(
    ("domain_size", "local_epsilon", "good"),
    [
        (2, 1.0, {"KRandomizedResponse", "BinaryHadamard", "SubsetSelection"}),
        (1000, 9.0, {"KRandomizedResponse", "ProjectiveGeometryResponse", "SubsetSelection"}),
    ],
)
def test_textbook_choices(domain_size, local_epsilon, good):
    """Direct response for small domains and large budgets."""
    assert recommend(10**6, domain_size, local_epsilon=local_epsilon).mechanism in good


def test_direct_response_is_not_chosen_for_large_domains_and_small_budgets():
    plans = plan_frequencies(10**6, 1000, local_epsilon=1.0)
    assert plans[-1].mechanism == "KRandomizedResponse"
    assert plans[0].rms_error < 0.3 * plans[-1].rms_error


def test_nothing_fits_one_bit():
    with pytest.raises(ValueError, match="max_bits=1"):
        recommend(10**6, 1000, local_epsilon=1.0, max_bits=1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": None}, "exactly one"),
        ({"local_epsilon": 1.0}, "exactly one"),
        ({"delta": None}, "delta must be given"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"num_users": 0}, "num_reports"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
        ({"honest_fraction": 1.1}, "honest_fraction"),
        ({"max_bits": 0}, "max_bits"),
        ({"domain_size": 1}, "domain_size"),
    ],
)
def test_arguments_are_checked(change, named):
    with pytest.raises(ValueError, match=named):
        plan_frequencies(**{**TARGET, **change})


@pytest.mark.slow
def test_a_plan_takes_seconds():
    start = time.process_time()
    plan_frequencies(**{**TARGET, "num_users": 3 * 10**6})
    assert time.process_time() - start < 5.0


def test_plans_are_those_that_they_were():
    """What the search gave while it priced every pair to the end: local epsilon, price, floor."""
    golden = {
        "KRandomizedResponse": (9.755147283907766, 0.9999980367808149, 0.9999802644157846),
        "SubsetSelection": (9.755147283907766, 0.9999980367808144, 0.999980264415785),
        "HadamardResponse": (9.81577913922595, 0.9999979479473421, 0.9999810952483213),
        "LocalHashing": (10.601568065390676, 0.9999940181572105, 0.9999804617219461),
        "UnaryEncoding": (10.601573857326201, 0.9999982773142193, 0.9999790138603308),
        "BinaryHadamard": (10.163032084029549, 0.9999976924540424, 0.5883989226142946),
    }
    plans = plan_frequencies(10**6, 1001, epsilon=1.0, delta=1e-8, only=golden)
    assert len(plans) == len(golden)
    for plan in plans:
        numbers = (plan.local_epsilon, float(plan.epsilon), plan.epsilon.lower)
        assert numbers == pytest.approx(golden[plan.mechanism], rel=1e-12), plan.mechanism


@pytest.mark.exact
def test_few_random_bits_leave_what_makes_do_with_them():
    """Half a bit: time-sharing; all others say how many bits they take."""
    plans = plan_frequencies(10**6, 1000, local_epsilon=1.0, random_bits=0.5)
    best, *others = plans
    assert best.mechanism == "LimitedHadamard" and best.config["mode"] == "timeshare"
    assert best.random_bits == pytest.approx(0.5) and not best.excluded
    bits = {plan.mechanism: plan.random_bits for plan in others}
    assert set(bits) == set(frequency.__all__) - {"LimitedHadamard"}
    for plan in others:
        assert (
            plan.excluded
            == f"a report takes {plan.random_bits:.5g} random bits, random_bits is 0.5"
        )
    assert bits["KRandomizedResponse"] == pytest.approx(9.9643, abs=1e-3)
    many = plan_frequencies(10**6, 1000, local_epsilon=1.0, random_bits=12.0)
    assert not many[0].excluded and many[0].mechanism != "LimitedHadamard"
    with pytest.raises(ValueError, match="no mechanism meets max_bits=2, random_bits=0.5"):
        recommend(10**6, 1000, local_epsilon=1.0, max_bits=2, random_bits=0.5)
    with pytest.raises(ValueError, match="random_bits must"):
        plan_frequencies(10**6, 1000, local_epsilon=1.0, random_bits=0.0)


@pytest.mark.exact
def test_few_random_bits_under_a_central_target():
    """The row is public, so a shuffle hides a report among those of its row only."""
    (plan,) = plan_frequencies(
        10**6, 16, 0.5, delta=1e-8, random_bits=0.5, only=["LimitedHadamard"]
    )
    assert not plan.excluded and plan.epsilon is not None
    assert 0.45 < plan.epsilon <= 0.5 < plan.local_epsilon


@pytest.mark.exact
def test_a_mechanism_that_does_not_say_how_many_bits_it_takes_is_left_out():
    oracle = frequency.Rappor.from_rates(50, num_hashes=2, num_bits=64, num_cohorts=4)
    assert oracle.lacks_random_bits(1e6).startswith("does not say")
