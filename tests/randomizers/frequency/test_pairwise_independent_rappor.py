"""Pairwise independent RAPPOR."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import PairwiseIndependentRappor, UnaryEncoding
from tests.randomizers.frequency import exact_checks as checks

ORACLES = [
    pytest.param(PairwiseIndependentRappor(k, eps, compact), id=f"{k}-{eps}-{compact}")
    for k in (2, 3, 5, 8, 12)
    for eps in (0.1, 1.0, 3.0)
    for compact in (False, True)
]


@pytest.mark.exact
@pytest.mark.parametrize("oracle", ORACLES)
def test_channel(oracle):
    checks.check_channel(oracle)


@pytest.mark.exact
@pytest.mark.parametrize("k", [2, 3, 5, 8, 12])
def test_privacy_of_the_channel_at_a_large_budget(k):
    """167,281 seeds: privacy and the support probabilities straight from the channel."""
    oracle = PairwiseIndependentRappor(k, 6.0)
    channel = oracle.channel()
    assert len(channel) == 409**2
    np.testing.assert_allclose(channel.sum(axis=0), 1.0, atol=1e-9)
    spent = math.log((channel.max(axis=1) / channel.min(axis=1)).max())
    assert oracle.local_epsilon - 1e-8 <= spent <= oracle.local_epsilon + 1e-12
    supports = channel > channel.min()
    p, q = oracle.support_probabilities
    expected = np.where(np.eye(k, dtype=bool), p, q)
    np.testing.assert_allclose(supports.T.astype(float) @ channel, expected, atol=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", [o for o in ORACLES if o.values[0].domain_size in (2, 3, 5, 8)])
def test_shuffle_pairs(oracle):
    oracle_seeds = len(oracle.channel())
    checks.check_blanket(oracle, np.full(oracle_seeds, 1 / oracle_seeds))
    if oracle.prime > 2:
        checks.check_witnesses(oracle)


@pytest.mark.exact
@pytest.mark.parametrize("eps", [math.log(2), 1, 2, 3, 4, 5])
def test_wide_noise_is_that_of_optimized_unary_encoding(eps):
    best = UnaryEncoding(1000, eps).variance(1, np.zeros(1000))[0]
    wide = PairwiseIndependentRappor(1000, eps).variance(1, np.zeros(1000))[0]
    assert best * (1 - 1e-12) <= wide < best * 1.0005


@pytest.mark.exact
@pytest.mark.parametrize(
    ("k", "eps", "prime", "length", "bits", "entropy"),
    [(1000, 1.0, 3, 7, 13, 12.502), (1000, 3.0, 23, 3, 19, None), (10**6, 2.0, 7, 8, 26, None)],
)
def test_compact_parameters(k, eps, prime, length, bits, entropy):
    oracle = PairwiseIndependentRappor(k, eps, compact=True)
    assert (oracle.prime, oracle.length, oracle.num_ones) == (prime, length, 1)
    assert oracle.bits_per_report == bits == math.ceil((length + 1) * math.log2(prime))
    if entropy is not None:
        p, q = oracle.support_probabilities
        seeds = prime ** (length + 1)
        seen = -p * math.log2(p / (q * seeds)) - (1 - p) * math.log2((1 - p) / ((1 - q) * seeds))
        assert seen == pytest.approx(entropy, abs=5e-4)


@pytest.mark.exact
@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0, 6.0, 12.0, 20.0])
def test_threshold_spends_the_budget_and_no_more(eps, compact):
    oracle = PairwiseIndependentRappor(1000, eps, compact)
    assert eps - 1e-8 <= oracle.log_ratio_max() <= eps


@pytest.mark.statistical
@pytest.mark.parametrize(("k", "eps", "compact"), [(5, 1.0, False), (8, 1.0, True), (4, 0.5, True)])
def test_sampling(k, eps, compact):
    """False alarm below 1e-5 per case."""
    checks.check_sampling(PairwiseIndependentRappor(k, eps, compact), 20_000, seed=k)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("k", "eps", "compact", "num_users"),
    [
        (1000, 1.0, False, 200_000),
        (1000, 5.0, False, 50_000),
        (1000, 1.0, True, 100_000),
        (1000, 5.0, True, 50_000),
    ],
    ids=["by slope", "listed", "equal seeds", "hyperplanes"],
)
def test_estimates(k, eps, compact, num_users):
    """Largest error: false alarm about 1e-6 per case.

    The errors of different values are uncorrelated but, spanned by one seed, not independent: over
    60 runs their root mean square spread by up to 0.065, of which the check allows six times.
    """
    oracle = PairwiseIndependentRappor(k, eps, compact)
    checks.check_estimates(oracle, num_users, seed=2, spread=0.4)


@pytest.mark.exact
@pytest.mark.parametrize(("k", "eps"), [(30, 0.7), (100, 1.6), (40, 2.9), (122, 2.3)])
def test_hyperplanes_by_definition(k, eps):
    """Every way of counting, all seeds at once and a few of them, against the inner product."""
    oracle = PairwiseIndependentRappor(k, eps, compact=True)
    prime, length = oracle.prime, oracle.length
    assert length > 1
    rng = np.random.default_rng(0)
    all_seeds = prime ** (length + 1)
    for seeds in (np.arange(all_seeds), rng.integers(0, all_seeds, all_seeds // 3)):
        slopes, image = np.divmod(seeds[:, None], prime)
        values = np.arange(k)
        for _ in range(length):
            image = (image + slopes % prime * (values % prime)) % prime
            slopes, values = slopes // prime, values // prime
        counts = oracle.accumulate(seeds.astype(oracle.report_dtype))
        np.testing.assert_array_equal(counts, (image == 0).sum(axis=0))


@pytest.mark.exact
@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize(("k", "eps"), [(2, 1.0), (1000, 1.0), (1000, 5.0)])
def test_the_rest_of_the_contract(k, eps, compact):
    checks.check_everything_but_the_channel(PairwiseIndependentRappor(k, eps, compact))


@pytest.mark.exact
def test_impossible_reports_are_refused():
    oracle = PairwiseIndependentRappor(5, 1.0)
    for read in (oracle.accumulate, oracle._check_reports):
        with pytest.raises(ValueError, match=r"reports must lie in \[0, 25\)"):
            read(np.array([25], dtype=np.uint8))


@pytest.mark.exact
def test_seed_words_that_would_make_seeds_uneven_are_replaced():
    """Both branches; the word zero leaves remainder zero, which is always uneven here."""
    oracle = PairwiseIndependentRappor(5, 1.0)
    assert oracle.num_ones == 1
    words = np.zeros((3, 2), dtype=np.uint64)
    words[1, 0] = 2**64 - 1
    words[2, 1] = (1 << 63) + 99
    asked = []

    def extra(rows, positions):
        asked.append((rows.tolist(), positions.tolist()))
        return np.full(len(rows), (1 << 62) + 99, dtype=np.uint64)

    reports = np.zeros(3, dtype=oracle.report_dtype)
    oracle._randomize_block(np.array([3, 3, 3]), words, extra, reports)
    assert asked == [([0, 1], [2, 2])]
    supports = [bool(oracle.accumulate(reports[i : i + 1])[3]) for i in range(3)]
    assert supports == [True, False, True]
    assert (reports // 5).tolist() == [1, 1, 2]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1.0), "domain_size"),
        ((4, 0.0), "local_epsilon must be a finite number > 0"),
        ((4, 1.0, 1), "compact must be True or False, got 1"),
        ((2**31, 1.0), "does not fit seeds of 64 bits"),
        ((4, 60.0), "beyond the resolution"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PairwiseIndependentRappor(*arguments)
