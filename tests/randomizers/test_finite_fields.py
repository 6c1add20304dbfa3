"""Difference sets: every difference counted, on the small ones by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers.finite_fields import (
    DifferenceSet,
    is_difference_set,
    is_prime,
    num_points,
    paley,
    prime_factors,
    primes_up_to,
    singer,
)

pytestmark = pytest.mark.exact


def differences(design: DifferenceSet) -> set[int]:
    """How often the non-zero residues occur as differences."""
    e = design.elements
    counts = Counter(((e[:, None] - e[None, :]) % design.modulus).ravel().tolist())
    assert counts.pop(0) == design.size
    assert len(counts) == design.modulus - 1 or design.size == 1
    return set(counts.values())


@pytest.mark.parametrize(
    ("prime", "dimension"),
    [(2, 3), (2, 4), (2, 7), (2, 10), (3, 3), (3, 5), (5, 3), (5, 4), (7, 3), (7, 5), (23, 3)]
    + [(11, 4), (13, 3), (53, 3)],
)
def test_singer(prime, dimension):
    design = singer(prime, dimension)
    assert design.modulus == num_points(prime, dimension)
    assert design.size == num_points(prime, dimension - 1)
    assert design.overlap == num_points(prime, dimension - 2)
    assert differences(design) == {design.overlap}


@pytest.mark.parametrize("prime", [3, 7, 11, 19, 23, 103, 1019])
def test_paley(prime):
    design = paley(prime)
    assert (design.size, design.overlap) == ((prime - 1) // 2, (prime - 3) // 4)
    assert differences(design) == ({design.overlap} if prime > 3 else set())


def test_two_dimensions_are_single_points():
    assert singer(7, 2).elements.tolist() == [0]
    assert (singer(7, 2).modulus, singer(7, 2).overlap) == (8, 0)


@pytest.mark.parametrize(("prime", "dimension"), [(149, 3), (23, 4), (2, 17)])
def test_large_ones_by_autocorrelation(prime, dimension):
    design = singer(prime, dimension)
    assert is_difference_set(design.modulus, design.elements)
    spoiled = design.elements.copy()
    missing = np.setdiff1d(np.arange(design.modulus), spoiled)
    spoiled[5] = missing[0]
    assert not is_difference_set(design.modulus, spoiled)


def test_sets_never_change():
    """Devices and collectors must agree on them, whatever their versions: golden elements."""
    assert singer(2, 3).elements.tolist() == [1, 2, 4]
    assert singer(3, 3).elements.tolist() == [1, 2, 5, 7]
    assert singer(149, 3).elements[:6].tolist() == [1, 2, 342, 764, 796, 887]
    assert singer(23, 4).elements[:6].tolist() == [1, 2, 3, 15, 40, 61]
    assert singer(7, 5).elements[:6].tolist() == [1, 2, 3, 4, 6, 12]
    assert singer(2, 10).elements[[0, 100, 510]].tolist() == [1, 211, 1019]


@given(st.integers(0, 2**32 - 1))
def test_translate_counts(seed):
    rng = np.random.default_rng(seed)
    design = [singer(3, 4), singer(5, 3), paley(31), singer(13, 2)][seed % 4]
    counts = rng.integers(0, 10 ** int(rng.integers(1, 9)), design.modulus)
    slow = [counts[(x + design.elements) % design.modulus].sum() for x in range(design.modulus)]
    result = design.translate_counts(counts)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, slow)


def test_translate_counts_are_exact_for_concentrated_crowds():
    """All of 10**12 reports on one symbol: the worst case for rounding."""
    design = singer(149, 3)
    counts = np.zeros(design.modulus, dtype=np.int64)
    counts[17] = 10**12
    expected = np.zeros(design.modulus, dtype=np.int64)
    expected[(17 - design.elements) % design.modulus] = 10**12
    np.testing.assert_array_equal(design.translate_counts(counts), expected)


def test_refusals():
    with pytest.raises(ValueError, match="difference set modulo 7"):
        DifferenceSet(7, np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="residues modulo 7"):
        DifferenceSet(7, np.array([1, 2, 7]))
    with pytest.raises(ValueError, match="residues modulo 7"):
        DifferenceSet(7, np.array([], dtype=int))
    for prime in (4, 5, 15, 1 << 30):
        with pytest.raises(ValueError, match="leaves 3 modulo 4"):
            paley(prime)
    for arguments in ((4, 3), (5, 1), (1, 3)):
        with pytest.raises(ValueError, match="needs a prime and a dimension"):
            singer(*arguments)
    with pytest.raises(ValueError, match="more than"):
        singer(10_007, 4)
    with pytest.raises(ValueError, match="read-only"):
        paley(7).elements[0] = 3


def test_numbers():
    assert primes_up_to(1).tolist() == [] and primes_up_to(2).tolist() == [2]
    assert primes_up_to(1000).tolist() == [n for n in range(1001) if is_prime(n)]
    for number in (2, 12, 97, 22351, 2**20 - 1, 360_360):
        factors = prime_factors(number)
        assert all(is_prime(p) and number % p == 0 for p in factors)
        for p in factors:
            while number % p == 0:
                number //= p
        assert number == 1
