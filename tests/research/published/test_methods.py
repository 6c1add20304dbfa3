"""The registry of methods: complete, each within its range, the figures of the literature."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.schedule_prices import (
    CLONES,
    OWN,
    Method,
    OutOfRangeError,
    schedule_epsilon,
)
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import LInfMean, PrivUnit
from beam_ldp.research.published import methods as registry
from beam_ldp.research.published.closed_forms import compose_kov
from beam_ldp.research.published.methods import (
    compare,
    method,
    methods,
    price_of,
    register_method,
)
from tests.examples import examples

pytestmark = pytest.mark.exact

TRAINING = Schedule(2.0, 60_000, 2_000, 6_000)
LONG = Schedule(2.0, 10**6, 1_000, 10**5)
ONCE = Schedule(2.0, 10**4, 10**4, 1)
QUICK = (
    "clone pair, optimal composition",
    "clone pair, closed composition",
    "clone pair, strong composition",
    "clone pair, added up",
    "Feldman et al. 2021, Theorem 3.1",
    "Balle et al. 2019, Hoeffding",
    "Balle et al. 2019, Bennett",
    "Erlingsson et al. 2019",
    "Erlingsson et al. 2019, Rényi",
    "sampling without the shuffle",
    "thesis, Theorem 5.3.1",
    "thesis, Theorem 5.3.2",
    "thesis, Theorem 5.4.1",
    "thesis, 5.4.1, sharper constants",
)


# The headline -----------------------------------------------------------------------------


def test_thesis_training_run():
    bound = schedule_epsilon(TRAINING, 1e-5)
    assert price_of("thesis, Theorem 5.4.1", TRAINING, 1e-5) == pytest.approx(5.795, abs=1e-3)
    assert bound <= 0.89 and bound.method == CLONES.name and bound.proof_status == "proved"
    assert 0.60 <= bound.class_lower <= bound


def test_thesis_training_run_with_its_own_mechanism():
    mechanism = PrivUnit(13_706, 2.0)
    bound = schedule_epsilon(replace(TRAINING, randomizer=mechanism), 1e-5)
    assert bound == pytest.approx(0.557, abs=0.01)
    assert bound.method == "own pair, privacy losses"
    assert bound < bound.class_lower, "what is known of it proves more than its epsilon can"


def test_a_hundred_thousand_rounds():
    bound = schedule_epsilon(LONG, 1e-8)
    assert price_of("thesis, Theorem 5.4.1", LONG, 1e-8) == pytest.approx(1.040, abs=1e-3)
    assert bound <= 0.20
    assert bound.class_lower == pytest.approx(0.137, abs=1e-3)


# The tables --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "k", "budget", "delta", "rounds", "golden"),
    [
        (10**6, 10**3, 2.0, 1e-8, 10**5, (1.040, 0.698, 1.024, 2.53)),
        (60_000, 10**4, 1.5, 1e-5, 1200, (3.086, 2.06, 10.4, 3.81)),
        (60_000, 2000, 2.0, 1e-5, 6000, (5.795, 4.02, 6.06, 8.16)),
        (60_000, 10**4, 2.0, 1e-5, 480, (4.275, 3.32, 7.76, 3.73)),
    ],
)
def test_sampled_trainings_by_published_methods(n, k, budget, delta, rounds, golden):
    schedule = Schedule(budget, n, k, rounds)
    names = (
        "thesis, Theorem 5.4.1",
        "thesis, 5.4.1, sharper constants",
        "Wang et al. 2019 over 5.3.1",
        "clone pair, closed composition",
    )
    for name, expected in zip(names, golden, strict=True):
        assert price_of(name, schedule, delta) == pytest.approx(expected, rel=5e-3), name


@pytest.mark.parametrize(
    ("n", "k", "budget", "delta", "rounds", "golden"),
    [
        (10**6, 10**3, 2.0, 1e-8, 10**5, (0.196, 0.209, 0.146, 0.156)),
        (60_000, 2000, 2.0, 1e-5, 6000, (0.882, 0.968, 0.647, 0.709)),
    ],
)
def test_sampled_trainings_by_their_pairs(n, k, budget, delta, rounds, golden):
    schedule = Schedule(budget, n, k, rounds)
    names = (
        CLONES.name,
        "clone pair, Rényi orders",
        "strong clone pair, privacy losses",
        "strong clone pair, Rényi orders",
    )
    for name, expected in zip(names, golden, strict=True):
        assert price_of(name, schedule, delta) == pytest.approx(expected, rel=5e-3), name


@pytest.mark.parametrize(
    ("schedule", "delta", "closed"),
    [(LONG, 1e-8, 14.25), (replace(LONG, local_epsilon=1.0), 1e-8, 3.39), (TRAINING, 1e-5, 183.2)],
)
def test_fallback_that_a_published_comparison_was_made_with(schedule, delta, closed):
    """14 times the theorem's figure: the sampled local epsilon without any shuffle."""
    sampled = math.log1p(schedule.rate * math.expm1(schedule.local_epsilon))
    assert compose_kov(sampled, 0.0, schedule.rounds, delta)[0] == pytest.approx(closed, rel=2e-3)
    exact = price_of("sampling without the shuffle", schedule, delta)
    assert 0.85 * closed < exact < closed


@pytest.mark.parametrize(
    ("n", "budget", "delta", "upper", "reduction", "clones", "strong"),
    [
        (10**4, 0.5, 1e-6, 0.0410, 0.0232, (0.0226, 0.0204), (0.0201, 0.0181)),
        (10**4, 2.0, 1e-6, 0.526, 0.244, (0.170, 0.155), (0.125, 0.114)),
        (10**4, 4.0, 1e-6, 3.29, 1.49, (0.680, 0.601), (0.450, 0.411)),
        (10**6, 2.0, 1e-8, 0.0731, 0.0294, (0.0190, 0.01756), (0.0140, 0.01304)),
        (10**6, 4.0, 1e-6, 0.897, 0.205, (0.0545, 0.0493), (0.0378, 0.0343)),
    ],
)
def test_one_shuffle_by_every_pair(n, budget, delta, upper, reduction, clones, strong):
    schedule = Schedule(budget, n, n, 1)
    assert price_of("thesis, Theorem 5.3.1", schedule, delta) == pytest.approx(upper, rel=6e-3)
    for prefix, (orders, losses) in (("clone pair", clones), ("strong clone pair", strong)):
        found = price_of(f"{prefix}, privacy losses", schedule, delta)
        assert found == pytest.approx(losses, rel=5e-3)
        found = price_of(f"{prefix}, Rényi orders", schedule, delta)
        assert found == pytest.approx(orders, rel=1e-2)
    # Its hockey stick is below what its Rényi orders prove.
    evaluated = price_of("thesis, reduction evaluated", schedule, delta)
    assert clones[1] < evaluated < reduction * (1 + 5e-3)


@pytest.mark.parametrize(
    ("budget", "rounds", "upper", "reduction", "closed", "losses"),
    [
        (0.5, 100, 0.0618, None, 0.174, 0.0272),
        (0.5, 10**4, 0.512, None, 2.24, 0.303),
        (0.5, 10**5, 1.641, None, 8.25, 1.016),
        (2.0, 100, 0.917, 0.328, 1.32, 0.196),
        (2.0, 10**4, 6.42, 3.73, 18.6, 2.21),
    ],
)
def test_many_shuffles_of_a_million_reports(budget, rounds, upper, reduction, closed, losses):
    schedule = Schedule(budget, 10**6, 10**6, rounds)
    for name, golden in (
        ("thesis, Theorem 5.3.1", upper),
        ("clone pair, closed composition", closed),
        (CLONES.name, losses),
    ):
        assert price_of(name, schedule, 1e-8) == pytest.approx(golden, rel=6e-3), name
    if reduction is not None:
        evaluated = price_of("thesis, reduction evaluated", schedule, 1e-8)
        assert evaluated == pytest.approx(reduction, rel=1.5e-2)


# Ranges ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "schedule", "reason"),
    [
        ("thesis, Theorem 5.4.1", ONCE, "needs sampling, one point per person"),
        ("thesis, Theorem 5.3.1", TRAINING, "everybody's report in every round"),
        ("thesis, Corollary 5.3.1", Schedule(4.0, 1000, 1000, 1), "its range holds no order"),
        ("Feldman et al. 2021, Theorem 3.1", TRAINING, "more reports for this local epsilon"),
        ("Feldman et al. 2023, Corollary 4.3", Schedule(8.0, 1000, 1000, 1), "its range"),
        ("Erlingsson et al. 2019", ONCE, "local epsilon <= 0.5"),
        ("clone pair, generic sampling", ONCE, "needs sampling"),
        ("clone pair, closed composition", ONCE, "more than one round"),
        ("own pair, privacy losses", ONCE, "a mechanism at hand"),
        ("own messages", ONCE, "a mechanism of several messages"),
        ("own data sets", ONCE, "a mechanism at hand"),
        (
            "Wang et al. 2019 over 5.3.1",
            Schedule(1.0, 100, 10, 2, points_per_client=4),
            "people with one point each",
        ),
        (
            "clone pair, optimal composition",
            Schedule(1.0, 100, 10, 2, sampling="self"),
            "as many reports in every round",
        ),
        (
            "thesis, Theorem 5.4.1",
            Schedule(1.0, 100, 10, 2, points_per_client=4, points_sampled=2),
            "one point per person",
        ),
    ],
)
def test_outside_its_range_a_method_refuses_with_the_reason(name, schedule, reason):
    with pytest.raises(OutOfRangeError, match=reason):
        method(name).price(schedule, 1e-6)
    assert price_of(name, schedule, 1e-6) is None


def test_several_messages_have_a_price_of_their_own():
    mechanism = LInfMean(8, 4.0)
    schedule = Schedule(mechanism.local_epsilon, 10**5, 10**5, 3, randomizer=mechanism)
    assert price_of("own pair, privacy losses", schedule, 1e-6) is None
    own, any_price = price_of("own messages", schedule, 1e-6), price_of(CLONES.name, schedule, 1e-6)
    assert 0 < own < any_price
    sampled = replace(schedule, num_sampled=10**4)
    own, any_price = price_of("own messages", sampled, 1e-6), price_of(CLONES.name, sampled, 1e-6)
    assert 0 < own < any_price
    epochs = replace(sampled, sampling="shuffled_epochs")
    seen = price_of("own messages", epochs.seen, 1e-6)
    assert 0 < price_of("own messages", epochs, 1e-6) <= seen * (1 + 1e-3)


def test_strong_clones_are_proved_for_binary_response_alone():
    binary, ternary = KRandomizedResponse(2, 2.0), KRandomizedResponse(3, 2.0)
    entry = method("strong clone pair, privacy losses")
    own = method("own pair, privacy losses")
    schedule = replace(ONCE, randomizer=binary)
    assert entry.proved(schedule)
    assert own.price(schedule, 1e-6) < entry.price(schedule, 1e-6)  # as one bit, over all data sets
    for other in (ONCE, replace(ONCE, randomizer=ternary)):
        assert not entry.proved(other)
        names = {price.method for price in compare(other, 1e-6)}
        assert entry.name not in names, "priced only when asked for"


def test_sampling_by_coins_of_2019_is_never_called_proved():
    entry = method("Zhu and Wang 2019 over 5.3.1")
    assert not entry.proved(TRAINING)
    assert price_of(entry.name, LONG, 1e-8) == pytest.approx(0.625, rel=5e-3)


@given(
    budget=st.floats(0.05, 5.0),
    n=st.floats(2.0, 7.0).map(lambda x: int(10**x)),
    share=st.sampled_from([1.0, 0.3, 0.01]),
    rounds=st.sampled_from([1, 7, 500]),
)
@examples(12)
def test_no_proved_method_undercuts_the_floor(budget, n, share, rounds):
    schedule = Schedule(budget, n, max(1, int(share * n)), rounds)
    floor = max(
        price_of(name, schedule, 1e-6) or 0.0
        for name in ("binary randomized response", "ternary randomized response")
    )
    for name in QUICK:
        price = price_of(name, schedule, 1e-6)
        assert price is None or price >= floor * (1 - 1e-6), name


@given(
    budget=st.floats(0.1, 4.0),
    n=st.floats(2.0, 7.0).map(lambda x: int(10**x)),
    rounds=st.integers(1, 2000),
    more=st.floats(1.1, 5.0),
)
@settings(max_examples=10)
def test_published_methods_are_monotone(budget, n, rounds, more):
    here = Schedule(budget, n, n, rounds)
    crowd, rather = int(n * more), int(math.ceil(rounds * more))
    for name in QUICK:
        price = price_of(name, here, 1e-6)
        crowded = price_of(name, Schedule(budget, crowd, crowd, rounds), 1e-6)
        longer = price_of(name, replace(here, rounds=rather), 1e-6)
        dearer = price_of(name, replace(here, local_epsilon=budget * more), 1e-6)
        if price is None:
            continue
        assert crowded is None or crowded <= price * (1 + 1e-6), name
        assert longer is None or longer >= price * (1 - 1e-6), name
        assert dearer is None or dearer >= price * (1 - 1e-6), name


@given(
    budget=st.floats(0.2, 3.0),
    n=st.floats(2.5, 6.0).map(lambda x: int(10**x)),
    rounds=st.integers(2, 500),
)
@settings(max_examples=4)
def test_the_default_is_monotone(budget, n, rounds):
    schedule = Schedule(budget, n, max(1, n // 5), rounds)
    price = price_of(CLONES.name, schedule, 1e-6)
    longer = price_of(CLONES.name, replace(schedule, rounds=2 * rounds), 1e-6)
    crowded = price_of(CLONES.name, replace(schedule, num_users=2 * n), 1e-6)
    dearer = price_of(CLONES.name, replace(schedule, local_epsilon=1.3 * budget), 1e-6)
    assert crowded <= price <= min(longer, dearer)


@given(
    budget=st.floats(-6.0, math.log10(30.0)).map(lambda x: min(30.0, 10.0**x)),
    n=st.floats(0.0, 9.0).map(lambda x: int(10**x)),
    share=st.sampled_from([1.0, 0.3, 1e-4]),
    rounds=st.sampled_from([1, 10**3, 10**6]),
    delta=st.floats(-15.0, -0.5).map(lambda x: 10.0**x),
)
@examples(15)
def test_no_corner_gives_nonsense(budget, n, share, rounds, delta):
    schedule = Schedule(budget, n, max(1, int(share * n)), rounds)
    for name in (*QUICK, "clone pair, generic sampling", "Gaussian limit of the class"):
        price = price_of(name, schedule, delta)
        assert price is None or price >= 0.0, name


@pytest.mark.parametrize(
    ("schedule", "delta"),
    [
        (Schedule(1.0217, 867_790, 8_677, 2), 5.7e-14),
        (Schedule(1.0, 1_000_000, 300_000, 1), 1e-9),  # areas too small for a float
    ],
)
def test_orders_beyond_what_numbers_hold_prove_nothing(schedule, delta):
    generic = price_of("clone pair, generic sampling", schedule, delta)
    direct = price_of(CLONES.name, schedule, delta)
    assert direct < generic < 1.5 * direct


# The registry ------------------------------------------------------------------------------


def test_every_method_says_whose_it_is_and_what_it_is_proved_for():
    for entry in methods():
        assert entry.name and entry.source and entry.proved_for
        assert entry.kind in ("upper", "lower", "approximation")
        assert not entry.seen or method(entry.seen).kind == "upper"
        assert entry.kind != "approximation" or not entry.proved(ONCE)
    assert len({entry.name for entry in methods()}) == len(methods()) >= 34


def test_the_page_lists_every_method():
    page = (Path(__file__).parents[3] / "docs" / "accounting.md").read_text(encoding="utf-8")
    for entry in methods():
        assert f"| {entry.name} | {entry.source} | " in page
        assert f"{entry.proved_for} | {entry.condition or 'always'} |" in page


def test_a_method_of_ones_own_joins_the_comparison(monkeypatch):
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

    def half_of_everything(schedule: Schedule, delta: float) -> float:
        if schedule.sampled:
            raise OutOfRangeError("needs everybody")
        return schedule.rounds * schedule.local_epsilon / 2

    mine = Method("mine", "this test", half_of_everything, proved_for=OWN)
    register_method(mine)
    found = {price.method: price for price in compare(ONCE, 1e-6)}
    assert found["mine"].epsilon == 1.0 and found["mine"].proved_for == OWN
    with pytest.raises(ValueError, match="name must be new"):
        register_method(mine)
    with pytest.raises(ValueError, match="name must be one of"):
        method("nobody's")
