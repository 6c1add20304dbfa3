"""RAPPOR: both budgets, both designs, and permanent responses that are really kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers import LocalRandomizer, UserRandomness
from beam_ldp.randomizers.frequency import Rappor, UnaryEncoding, packed_bits
from beam_ldp.randomizers.frequency.rappor_parts import BloomCode
from beam_ldp.randomizers.shuffle_pair import witness_from_channel
from tests.identities import identity
from tests.randomizers.frequency import exact_checks as checks

BASIC = [
    pytest.param(Rappor(k, eps, total), id=f"{k}-{eps}-{total}")
    for k in (2, 3, 5, 8, 12)
    for eps, total in ((0.1, None), (1.0, None), (1.0, 1.3), (3.0, 4.0), (6.0, None))
]
BLOOM = [
    Rappor(3, 1.0, num_bits=4, num_cohorts=2),
    Rappor(5, 1.0, num_bits=6, num_cohorts=4),
    Rappor(8, 3.0, 5.0, num_hashes=2, num_bits=6, num_cohorts=4),
    Rappor(5, 6.0, num_hashes=3, num_bits=8, num_cohorts=2),
]


@pytest.mark.exact
@pytest.mark.parametrize("oracle", [*BASIC, *BLOOM])
def test_channel(oracle):
    if oracle.num_bits is None:
        checks.check_channel(oracle)
    else:
        check_bloom_channel(oracle)


def check_bloom_channel(oracle: Rappor) -> None:
    """As for the others, but pairs of values may share bits: the budget is an upper bound."""
    channel, k = oracle.channel(), oracle.domain_size
    np.testing.assert_allclose(channel.sum(axis=0), 1.0, atol=1e-12)
    spent = math.log((channel.max(axis=1) / channel.min(axis=1)).max())
    assert spent <= oracle.log_ratio_max() + 1e-12 <= oracle.local_epsilon + 1e-12
    assert oracle.local_epsilon - oracle.log_ratio_max() < 1e-8
    rows = checks.row_estimates(oracle)
    np.testing.assert_allclose(rows.T @ channel, np.eye(k), atol=1e-10)
    squares = (rows**2).T @ channel
    truth = np.arange(1.0, k + 1) / np.arange(1.0, k + 1).sum()
    fixed, iid = squares @ truth - truth, squares @ truth - truth**2
    np.testing.assert_allclose(oracle.variance(10, truth), fixed / 10, rtol=1e-9)
    np.testing.assert_allclose(oracle.variance(10, 0.9 * truth, "iid"), iid / 10, rtol=1e-9)
    np.testing.assert_allclose(oracle.variance(1), (squares - np.eye(k)).max(axis=1), rtol=1e-9)
    worst = oracle.variance(1, None, "iid")
    shares = np.linspace(0, 1, 2001)[:, None, None]
    mixed = shares * np.diagonal(squares)[:, None] + (1 - shares) * squares - shares**2
    mixed[:, np.arange(k), np.arange(k)] = 0
    np.testing.assert_allclose(mixed.max(axis=(0, 2)), worst, rtol=1e-6)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", [o for o in BASIC if o.values[0].domain_size <= 5])
def test_shuffle_pairs_of_the_basic_design(oracle):
    _, q = oracle.support_probabilities
    bits = packed_bits.all_rows(oracle.domain_size)
    checks.check_blanket(oracle, np.where(bits == 1, q, 1 - q).prod(axis=1))
    checks.check_witnesses(oracle)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", BLOOM)
def test_shuffle_pairs_of_bloom_filters(oracle):
    """The blanket lies below every value; the declared pair is at least as revealing as any."""
    _, zero = oracle._bit_law
    bits = packed_bits.all_rows(oracle.num_bits)
    one_cohort = np.where(bits == 1, zero, 1 - zero).prod(axis=1)
    blanket = np.tile(one_cohort, oracle.num_cohorts) / oracle.num_cohorts
    channel, pair = oracle.channel(), oracle.dominating_pair()
    assert (pair.blanket_mass * blanket <= channel.min(axis=1) * (1 + 1e-9)).all()
    ratios, chances = np.array(pair.ratios), np.array(pair.probabilities)
    for first in range(oracle.domain_size):
        for second in range(first + 1, oracle.domain_size):
            seen = channel[:, [first, second]] / blanket[:, None]
            for steps in (0.0, 0.3, 1.0, 2.0):
                for offset in (-2.0, -0.5, 0.0, 0.5, 2.0):  # what the crowd adds on one draw

                    def excess(table, weights, steps=steps, offset=offset):
                        gap = table[:, 0] - math.exp(steps) * table[:, 1] + offset
                        return (weights * np.maximum(gap, 0)).sum()

                    assert excess(seen, blanket) <= excess(ratios, chances) + 1e-9
    (witness,) = oracle.witness_pairs()
    assert checks.same_law(witness, witness_from_channel(channel, 0, 1, 1))


@pytest.mark.exact
def test_golden_budgets_of_the_original():
    oracle = Rappor.from_rates(100, 0.5, 0.5, 0.75, num_hashes=2, num_bits=64, num_cohorts=8)
    assert oracle.longitudinal_epsilon == pytest.approx(4.3944, abs=1e-4)
    assert oracle.local_epsilon == pytest.approx(1.0743, abs=1e-4)
    assert oracle.rates == (0.5, 0.75)
    assert oracle.log_ratio_max() == pytest.approx(oracle.local_epsilon, abs=1e-10)
    assert LocalRandomizer.from_config(oracle.to_config()) == oracle


@pytest.mark.exact
@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("factor", [1.001, 1.3, 2.0, 5.0])
def test_rates_are_the_best_within_both_budgets(eps, factor):
    """Against a scan of all rates: none that keeps the budget of a report is less noisy."""
    oracle = Rappor(10, eps, factor * eps)
    assert eps - 1e-8 <= oracle.log_ratio_max() <= eps
    total = oracle.longitudinal_log_ratio_max()
    assert factor * eps - 1e-8 <= total <= factor * eps
    flip = 1 / (1 + math.exp(total / 2))
    zero_rate, one_rate = np.meshgrid(np.linspace(0, 1, 801), np.linspace(0, 1, 801))
    one = flip * zero_rate + (1 - flip) * one_rate
    zero = (1 - flip) * zero_rate + flip * one_rate
    allowed = (one > zero) & (one * (1 - zero) <= math.exp(eps) * zero * (1 - one))
    noise = zero * (1 - zero) / np.where(one > zero, one - zero, np.inf) ** 2
    assert oracle.variance(1, np.zeros(10))[0] <= noise[allowed].min() * (1 + 1e-9)
    if factor >= 2:
        unary = UnaryEncoding(10, eps).variance(1, np.zeros(10))[0]
        assert oracle.variance(1, np.zeros(10))[0] == pytest.approx(unary, rel=1e-8)


@pytest.mark.exact
def test_longitudinal_budget_bounds_any_number_of_reports():
    """T reports about one value, exactly: a mixture over the permanent bit, for two bits."""
    oracle = Rappor(2, 1.0, 1.5)
    zero_rate, one_rate = oracle.rates
    flip = oracle._law.flip / 2**64
    for reports in (1, 2, 5, 50):
        ones = np.arange(reports + 1)
        shown_one = one_rate**ones * (1 - one_rate) ** (reports - ones)
        shown_zero = zero_rate**ones * (1 - zero_rate) ** (reports - ones)
        held = (1 - flip) * shown_one + flip * shown_zero
        not_held = flip * shown_one + (1 - flip) * shown_zero
        gaps = np.log(held / not_held)
        spent = gaps.max() - gaps.min()
        assert spent <= oracle.longitudinal_log_ratio_max() + 1e-12
        if reports == 1:
            assert spent == pytest.approx(oracle.log_ratio_max())
    assert spent > 1.4999


@pytest.mark.statistical
@pytest.mark.parametrize("oracle", [Rappor(4, 1.0), BLOOM[0]], ids=["basic", "bloom"])
def test_sampling(oracle):
    """False alarm below 4e-6 per case."""
    checks.check_sampling(oracle, 20_000, seed=1)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "oracle",
    [
        Rappor(100, 2.0),
        Rappor(1000, 1.0, 1.5),
        Rappor(100, 2.0, num_hashes=2, num_bits=64, num_cohorts=8),
    ],
    ids=["basic", "little permanent room", "bloom"],
)
def test_estimates(oracle):
    """False alarm about 1e-6 per case."""
    checks.check_estimates(oracle, 40_000, seed=6)


@pytest.mark.exact
@pytest.mark.parametrize(
    "oracle",
    [
        Rappor(2, 1.0),
        Rappor(100, 1.0),
        Rappor(9, 1.0, num_bits=64, num_cohorts=8),
        Rappor(9, 1.0, num_bits=62, num_cohorts=8, num_hashes=2),
        Rappor(4, 1.0, num_bits=40),
    ],
    ids=["2", "100", "64+3 bits", "62+3 bits", "40 bits"],
)
def test_the_rest_of_the_contract(oracle):
    checks.check_everything_but_the_channel(oracle)
    assert oracle.bits_per_report == oracle._code_bits + int(math.log2(oracle.num_cohorts))


def bits_of(oracle: Rappor, reports: np.ndarray) -> np.ndarray:
    return np.unpackbits(reports, axis=1, bitorder="little")[:, : oracle._code_bits]


@pytest.mark.statistical
def test_permanent_response_is_kept_over_releases_and_hides_the_value():
    """The average of many releases converges to the permanent response, not to the value.

    With the user's key 400 reports reveal each permanent bit; permanent bits differ from the
    true ones at the rate f/2 (5 sigma of 40,000 bits). Without the key they average to the truth.
    """
    oracle = Rappor(40, 2.0, 3.0)
    values = np.arange(1000) % 40
    flip, (zero_rate, one_rate) = oracle._law.flip / 2**64, oracle.rates
    middle = (zero_rate + one_rate) / 2

    def average(words):
        total = np.zeros((1000, 40))
        for release in range(400):
            total += bits_of(oracle, oracle.randomize(values, words(release)))
        return total / 400 > middle

    kept = average(
        lambda release: UserRandomness(b"s" * 32, np.arange(1000), identity(f"day {release}"))
    )
    truth = np.arange(40) == values[:, None]
    assert abs((kept != truth).mean() - flip) < 5 * math.sqrt(flip * (1 - flip) / 40_000)
    rng = np.random.default_rng(0)
    fresh = np.mean([bits_of(oracle, oracle.randomize(values, rng)) for _ in range(400)], axis=0)
    p, q = oracle.support_probabilities
    assert ((fresh > (p + q) / 2) != truth).mean() < 0.02


@pytest.mark.exact
def test_user_ids_may_be_an_iterator():
    oracle = Rappor(5, 1.0)
    listed = oracle.randomize(np.arange(5), UserRandomness(b"s" * 32, list("abcde"), identity("r")))
    once = oracle.randomize(np.arange(5), UserRandomness(b"s" * 32, iter("abcde"), identity("r")))
    np.testing.assert_array_equal(listed, once)


@pytest.mark.exact
def test_cohort_stays_with_the_permanent_response():
    oracle = Rappor(9, 1.0, num_bits=16, num_cohorts=8)
    cohorts = [
        oracle._cohorts(
            oracle.randomize(
                np.arange(200) % 9, UserRandomness(b"s" * 32, np.arange(200), identity(day))
            )
        )
        for day in ("monday", "tuesday")
    ]
    np.testing.assert_array_equal(*cohorts)
    assert set(cohorts[0]) == set(range(8))


# Bloom codes -----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("num_ones", [1, 2, 5])
def test_code_words(num_ones):
    code = BloomCode(200, 4, 16, num_ones)
    words = code.words()
    assert words.shape == (4, 200, num_ones)
    assert words.min() == 0 and words.max() == 15
    assert (np.diff(np.sort(words, axis=2), axis=2) > 0).all()
    ones = code.ones().reshape(200, 4, 16)
    assert (ones.sum(axis=2) == num_ones).all()
    assert ones[7, 3, words[3, 7]].all()
    # Public and fixed: reports of one version are read by the next.
    assert BloomCode(3, 2, 4, 1).words().tolist() == FIXED_WORDS


FIXED_WORDS = [[[3], [0], [0]], [[0], [3], [1]]]


@pytest.mark.exact
def test_bloom_estimates_refuse_what_the_others_refuse():
    oracle = BLOOM[0]
    with pytest.raises(ValueError, match="sampling must"):
        oracle.variance(5, sampling="other")
    with pytest.raises(ValueError, match="truth must"):
        oracle.variance(5, truth=np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="statistic must have shape"):
        oracle.estimate(np.zeros(3), 5)
    with pytest.raises(NotImplementedError, match="not a pure oracle"):
        oracle.support_probabilities  # noqa: B018


@pytest.mark.exact
def test_filters_that_cannot_tell_values_apart_are_refused():
    with pytest.raises(ValueError, match="no linear estimate is unbiased"):
        Rappor(100, 1.0, num_bits=16, num_cohorts=4)
    with pytest.raises(ValueError, match="other oracles decode larger domains"):
        Rappor(100_000, 1.0, num_bits=1024, num_cohorts=128)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"longitudinal_epsilon": 1.0}, r"longitudinal_epsilon must be a finite number > local_"),
        ({"longitudinal_epsilon": math.inf}, "longitudinal_epsilon must be a finite number"),
        ({"longitudinal_epsilon": 200.0}, "beyond the resolution"),
        ({"num_hashes": 2}, "num_bits must be given"),
        ({"num_cohorts": 2}, "num_bits must be given"),
        ({"num_hashes": 0}, "num_hashes must be an integer from 1 to 16777216, got 0"),
        ({"num_bits": "8"}, "num_bits must be an integer"),
        ({"num_cohorts": None}, "num_cohorts must be an integer"),
        ({"num_bits": 8, "num_hashes": 8}, "num_hashes must be < num_bits"),
        ({"num_bits": 8, "num_cohorts": 3}, "num_cohorts must be a power of two"),
        ({"report_probabilities": (0.8, 0.5)}, "two increasing numbers"),
        ({"report_probabilities": (0.0, 1.0)}, "the budget of these report_probabilities"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Rappor(4, 1.0, **arguments)


@pytest.mark.exact
@pytest.mark.parametrize("rates", [(0.0, 0.5, 0.75), (1.0, 0.5, 0.75), (0.5, 0.8, 0.75)])
def test_bad_rates(rates):
    with pytest.raises(ValueError, match="must lie in"):
        Rappor.from_rates(4, *rates)
