"""Local hashing, and the counting of affine hashes that it shares."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from beam_ldp.randomizers import finite_fields
from beam_ldp.randomizers.finite_fields import is_prime, next_prime
from beam_ldp.randomizers.frequency import LocalHashing
from tests.randomizers.frequency import exact_checks as checks

SMALL = [
    LocalHashing(k, eps, buckets, prime)
    for k, buckets, prime in ((2, 2, 3), (3, 3, 5), (5, 4, 7), (8, 2, 11), (12, 5, 13), (5, 7, 7))
    for eps in (0.1, 1.0, 3.0, 6.0)
]
ORACLES = [pytest.param(o, id=f"{o.domain_size}-{o.local_epsilon}-{o.num_buckets}") for o in SMALL]


@pytest.mark.exact
@pytest.mark.parametrize("oracle", ORACLES)
def test_channel_and_shuffle_pairs(oracle):
    checks.check_channel(oracle)
    num_reports = len(oracle.channel())
    checks.check_blanket(oracle, np.full(num_reports, 1 / num_reports))
    checks.check_witnesses(oracle)


@pytest.mark.exact
@pytest.mark.parametrize(("k", "eps"), [(2, 1.0), (5, 1.0), (12, 0.1)])
def test_channel_with_default_parameters(k, eps):
    checks.check_channel(LocalHashing(k, eps))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("eps", "buckets", "noise"),
    [
        (math.log(2), 3, 8.0),
        (1, 4, 3.6917),
        (2, 8, 0.72459),
        (3, 21, 0.22057),
        (4, 56, 0.076023),
        (5, 149, 0.027319),
    ],
)
def test_golden_noise(eps, buckets, noise):
    """n times the variance of a value that nobody holds, k = 1000."""
    oracle = LocalHashing(1000, eps)
    assert oracle.num_buckets == buckets
    assert oracle.variance(1, np.zeros(1000))[0] == pytest.approx(noise, rel=4e-5)


@pytest.mark.exact
@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0, 6.0, 12.0, 20.0])
def test_threshold_spends_the_budget_and_no_more(eps):
    oracle = LocalHashing(1000, eps)
    assert eps - 1e-8 <= oracle.log_ratio_max() <= eps


@pytest.mark.exact
@pytest.mark.parametrize(("k", "eps"), [(2, 0.1), (1000, 1.0), (1000, 5.0), (4_000_000, 3.0)])
def test_default_prime_balances_the_buckets(k, eps):
    oracle = LocalHashing(k, eps)
    assert is_prime(oracle.prime)
    assert oracle.prime >= k
    assert oracle.prime % oracle.num_buckets in (1, oracle.num_buckets - 1)
    assert oracle._collision * oracle.num_buckets - 1 < Fraction(1, 200 * oracle.num_buckets)
    assert oracle.bits_per_report <= 64


@pytest.mark.statistical
@pytest.mark.parametrize("oracle", [LocalHashing(3, 1.0, 3, 5), LocalHashing(5, 2.0, 2, 7)])
def test_sampling(oracle):
    """False alarm below 5e-6 per case."""
    checks.check_sampling(oracle, 30_000, seed=7)


@pytest.mark.statistical
@pytest.mark.parametrize(("k", "eps"), [(1000, 1.0), (1000, 5.0), (50, 3.0)])
def test_estimates(k, eps):
    """Largest error: false alarm about 1e-6 per case.

    The errors of different values are uncorrelated but not independent: over 60 runs their root
    mean square spread by up to 0.03, of which the check allows more than six times.
    """
    checks.check_estimates(LocalHashing(k, eps), 100_000, seed=k, spread=max(0.2, 4 / k**0.5))


@pytest.mark.exact
@pytest.mark.parametrize(("k", "eps"), [(2, 1.0), (1000, 1.0), (1000, 5.0), (100_000, 8.0)])
def test_the_rest_of_the_contract(k, eps):
    checks.check_everything_but_the_channel(LocalHashing(k, eps))


@pytest.mark.exact
def test_impossible_reports_are_refused():
    oracle = LocalHashing(5, 1.0, 3, 5)
    with pytest.raises(ValueError, match=r"reports must lie in \[0, 75\)"):
        oracle.accumulate(np.array([75], dtype=np.uint8))
    with pytest.raises(ValueError, match=r"reports must lie in \[0, 75\)"):
        oracle.unpack(b"\xfe", 1)


@pytest.mark.exact
def test_seed_words_that_would_make_seeds_uneven_are_replaced():
    """The word zero leaves remainder zero, below 2**64 mod 25: drawn again, twice here."""
    oracle = LocalHashing(5, 1.0, 3, 5)
    words = np.zeros((2, 2), dtype=np.uint64)
    words[0, 0] = 1 << 63
    answers = iter([0, (1 << 62) + 1])
    asked = []

    def extra(rows, positions):
        asked.append((rows.tolist(), positions.tolist()))
        return np.full(len(rows), next(answers), dtype=np.uint64)

    reports = np.zeros(2, dtype=oracle.report_dtype)
    oracle._randomize_block(np.array([4, 4]), words, extra, reports)
    assert asked == [([1], [2]), ([1], [3])]
    seeds = reports // 3
    assert seeds.tolist() == [25 // 2, 25 // 4]
    slope, shift = seeds // 5, seeds % 5
    hashed = (slope.astype(int) * 4 + shift) % 5 * 3 // 5
    assert (reports % 3).tolist() == hashed.tolist()  # the word zero keeps the true bucket


@pytest.mark.exact
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 1.0, 1), "num_buckets must be an integer from 2 to 65536, got 1"),
        ((4, 1.0, 2.5), "num_buckets must be an integer"),
        ((8, 1.0, 3, 7), "prime must be an integer from 8 to "),
        ((8, 1.0, 3, 9), "prime must be a prime number >= 8, got 9"),
        ((8, math.inf), "local_epsilon must be a finite number > 0"),
        ((2**31, 8.0), "does not fit reports of 64 bits"),
        ((4, 40.0), "beyond the resolution"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LocalHashing(*arguments)


# Affine hashes and primes ------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(("prime", "k"), [(3, 2), (3, 3), (13, 12), (101, 77), (1009, 1000)])
def test_both_counts_agree_with_the_definition(prime, k):
    rng = np.random.default_rng(prime)
    slopes, shifts = rng.integers(0, prime, (2, 3000))
    widths = rng.integers(1, prime, 3000)
    images = (slopes[:, None] * np.arange(k) + shifts[:, None]) % prime
    expected = (images < widths[:, None]).sum(axis=0)
    for count in (
        lambda counts: finite_fields._count_listed(
            slopes, shifts, widths, prime, finite_fields.inverses(prime), counts
        ),
        lambda counts: finite_fields._count_by_slope(slopes, shifts, widths, prime, counts),
    ):
        counts = np.zeros(k, dtype=np.int64)
        count(counts)
        np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(
        finite_fields.support_counts(slopes, shifts, widths, prime, k), expected
    )


@pytest.mark.exact
def test_the_faster_count_is_chosen(monkeypatch):
    used = []
    for name in ("_count_listed", "_count_by_slope"):
        monkeypatch.setattr(finite_fields, name, lambda *args, name=name: used.append(name))
    rng = np.random.default_rng(0)
    for num_reports, width in ((100, 271), (1_000_000, 271), (1_000_000, 7)):
        slopes, shifts = rng.integers(0, 1009, (2, num_reports))
        widths = np.full(num_reports, width)
        finite_fields.support_counts(slopes, shifts, widths, 1009, 1000)
    assert used == ["_count_listed", "_count_by_slope", "_count_listed"]


@pytest.mark.exact
@pytest.mark.parametrize("prime", [3, 5, 7, 13, 31])
def test_triple_overlap(prime):
    v, d = np.ogrid[:prime, :prime]
    for width in range(1, prime):
        inside = ((v < width) & ((v + d) % prime < width) & ((v + 2 * d) % prime < width)).sum()
        assert finite_fields.triple_overlap(prime, width) == pytest.approx(inside / prime**2)


@pytest.mark.exact
def test_inverses():
    for prime in (2, 3, 101, 65537):
        table = finite_fields.inverses(prime)
        assert table[0] == 0
        assert (table[1:] * np.arange(1, prime) % prime == 1).all()


@pytest.mark.exact
def test_primes():
    sieve = np.ones(5000, dtype=bool)
    sieve[:2] = False
    for n in range(2, 71):
        sieve[2 * n :: n] = False
    assert [is_prime(n) for n in range(5000)] == sieve.tolist()
    # The strong pseudoprimes to the first bases, Carmichael numbers, and primes next to powers.
    assert not any(map(is_prime, (2047, 1373653, 25326001, 3215031751, 561, 3825123056546413051)))
    assert all(map(is_prime, (2**31 - 1, 2**61 - 1, 2**64 - 59)))
    assert [next_prime(n) for n in (0, 2, 8, 1000, 2**31)] == [2, 2, 11, 1009, 2**31 + 11]
