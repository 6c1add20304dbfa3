"""Unary encoding, and the rows of bits it is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import UnaryEncoding, packed_bits
from beam_ldp.randomizers.words import WORD_VALUES
from tests.randomizers.frequency import exact_checks as checks

ORACLES = [
    pytest.param(UnaryEncoding(k, eps, optimized), id=f"{k}-{eps}-{optimized}")
    for k in (2, 3, 5, 8, 12)
    for eps in (0.1, 1.0, 3.0, 6.0)
    for optimized in (True, False)
]


def blanket(oracle: UnaryEncoding) -> np.ndarray:
    _, q = oracle.support_probabilities
    bits = packed_bits.all_rows(oracle.domain_size)
    return np.where(bits == 1, q, 1 - q).prod(axis=1)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", ORACLES)
def test_channel(oracle):
    checks.check_channel(oracle)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", [o for o in ORACLES if o.values[0].domain_size <= 5])
def test_shuffle_pairs(oracle):
    checks.check_blanket(oracle, blanket(oracle))
    checks.check_witnesses(oracle)


@pytest.mark.exact
@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize(
    ("eps", "symmetric", "best"),
    [
        (math.log(2), 8.2426, 8.0),
        (1, 3.9177, 3.6827),
        (2, 0.92067, 0.72406),
        (3, 0.36971, 0.22056),
        (4, 0.18102, 0.076022),
        (5, 0.097422, 0.027319),
    ],
)
def test_golden_noise(eps, symmetric, best, optimized):
    """n times the variance of a value that nobody holds, k = 1000."""
    oracle = UnaryEncoding(1000, eps, optimized)
    noise = oracle.variance(1, np.zeros(1000))[0]
    assert noise == pytest.approx(best if optimized else symmetric, rel=6e-5)


@pytest.mark.exact
@pytest.mark.parametrize("eps", [1e-3, 0.1, 1.0, 6.0, 12.0, 20.0])
@pytest.mark.parametrize("optimized", [True, False])
def test_thresholds_spend_the_budget_and_no_more(eps, optimized):
    oracle = UnaryEncoding(4, eps, optimized)
    assert eps - 1e-8 <= oracle.log_ratio_max() <= eps


@pytest.mark.statistical
@pytest.mark.parametrize("optimized", [True, False])
def test_sampling(optimized):
    """False alarm below 5e-6 in all."""
    checks.check_sampling(UnaryEncoding(5, 1.0, optimized), 20_000, seed=3)


@pytest.mark.statistical
@pytest.mark.parametrize("k", [64, 100, 1024])
def test_estimates(k):
    """False alarm about 1e-6 per case."""
    checks.check_estimates(UnaryEncoding(k, 3.0), 30_000, seed=k)


@pytest.mark.exact
@pytest.mark.parametrize("k", [2, 8, 13, 64, 100, 1024])
def test_the_rest_of_the_contract(k):
    oracle = UnaryEncoding(k, 1.5)
    checks.check_everything_but_the_channel(oracle)
    assert oracle.bits_per_report == k


@pytest.mark.exact
def test_padding_bits_are_never_sent_and_refused():
    oracle = UnaryEncoding(13, 1.0)
    assert not (oracle.randomize(np.zeros(999, dtype=int))[:, 1] >> 5).any()
    with pytest.raises(ValueError, match="zero bits after their first 13"):
        oracle._check_reports(np.array([[0, 0b100000]], dtype=np.uint8))
    with pytest.raises(ValueError, match="padded with zero bits"):
        oracle.unpack(b"\0\xff", 1)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1.0), "domain_size must be an integer from 2 to 2147483648, got 1"),
        ((4, 0.0), "local_epsilon must be a finite number > 0, got 0.0"),
        ((4, math.nan), "local_epsilon must be a finite number > 0, got nan"),
        ((4, 30.0), "beyond the resolution"),
        ((4, 700.0, False), "beyond the resolution"),
        ((4, 1.0, "yes"), "optimized must be True or False"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        UnaryEncoding(*arguments)


# Rows of bits ----------------------------------------------------------------------------


def sliced(numbers: np.ndarray) -> np.ndarray:
    """Words whose bit-sliced numbers have these top bytes: one row of 64 numbers per word."""
    digits = np.unpackbits(numbers.astype(np.uint8).reshape(-1, 1), axis=1)  # most significant
    columns = digits.reshape(1, -1, 64, 8).transpose(0, 3, 1, 2)  # (row, digit, word, bit)
    packed = np.packbits(columns, axis=3, bitorder="little")
    return packed.view("<u8").reshape(1, -1).astype(np.uint64)


@pytest.mark.exact
def test_first_digits_decide_all_but_the_ties_and_ties_draw_the_rest():
    """All 256 top bytes against a threshold: below it one, above it zero, equal asks further."""
    top, rest = 0x5A, 0x123456789ABCDE
    threshold = (top << 56) + rest
    words = sliced(np.arange(256))
    for further, tie in (((rest << 8) - 1, 1), (rest << 8, 0)):
        asked = []

        def extra(rows, positions, further=further, asked=asked):
            asked.append((rows.tolist(), positions.tolist()))
            return np.full(len(rows), further, dtype=np.uint64)

        held = np.zeros((1, 4), dtype=np.uint64)
        rows = packed_bits.noisy_rows(held, 256, (threshold, 0), words, extra, 1000)
        bits = np.unpackbits(rows.astype("<u8").view(np.uint8), bitorder="little")
        expected = (np.arange(256) < top).astype(int)
        expected[top] = tie
        np.testing.assert_array_equal(bits, expected)
        assert asked == [([0], [1000 + top])]


@pytest.mark.exact
def test_held_bits_choose_the_threshold():
    """Numbers whose top byte is their index, held bits alternating between two thresholds."""
    held = np.full((1, 4), 0xAAAAAAAAAAAAAAAA, dtype=np.uint64)
    low, high = 0x20 << 56, 0xC0 << 56

    def extra(rows, positions):
        return np.zeros(len(rows), dtype=np.uint64)

    rows = packed_bits.noisy_rows(held, 256, (low, high), sliced(np.arange(256)), extra, 0)
    bits = np.unpackbits(rows.astype("<u8").view(np.uint8), bitorder="little")
    expected = np.arange(256) < np.where(np.arange(256) % 2, 0xC0, 0x20)
    np.testing.assert_array_equal(bits, expected)


@pytest.mark.statistical
def test_bits_are_independent():
    """Correlation of neighbouring bits over 200,000 rows: below 5 sigma (false alarm 1e-5)."""
    oracle = UnaryEncoding(12, 1.0)
    reports = oracle.randomize(np.zeros(200_000, dtype=int), np.random.default_rng(0))
    bits = np.unpackbits(reports, axis=1, count=12, bitorder="little")
    correlations = np.corrcoef(bits.T.astype(float))[np.triu_indices(12, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(200_000)


@pytest.mark.exact
@pytest.mark.parametrize("num_bits", [1, 7, 8, 64, 65, 77, 1000])
@pytest.mark.parametrize("num_rows", [0, 1, 7, 8, 9, 300, 16_400])
def test_column_sums(num_bits, num_rows):
    rng = np.random.default_rng(num_bits)
    bits = rng.random((num_rows, num_bits)) < 0.9
    reports = np.packbits(bits, axis=1, bitorder="little")
    reports = reports.reshape(num_rows, packed_bits.bytes_for(num_bits))
    sums = packed_bits.column_sums(reports, num_bits)
    np.testing.assert_array_equal(sums, bits.sum(axis=0, dtype=np.int64))
    fewer = packed_bits.column_sums(reports, max(1, num_bits - 3))
    np.testing.assert_array_equal(fewer, sums[: max(1, num_bits - 3)])


@pytest.mark.exact
@pytest.mark.parametrize("num_bits", [3, 8, 13, 64])
def test_streams_of_many_chunks(num_bits):
    rng = np.random.default_rng(1)
    num_rows = (1 << 14) + 5
    bits = rng.random((num_rows, num_bits)) < 0.5
    reports = np.packbits(bits, axis=1, bitorder="little")
    data = packed_bits.pack_rows(reports, num_bits)
    assert data == np.packbits(bits.ravel(), bitorder="little").tobytes()
    np.testing.assert_array_equal(packed_bits.unpack_rows(data, num_bits, num_rows), reports)


@pytest.mark.exact
def test_words_and_positions():
    rows = packed_bits.one_hot_rows(np.array([0, 63, 64, 129]), 130)
    assert packed_bits.row_sums(rows).tolist() == [1, 1, 1, 1]
    assert packed_bits.positions_of_bits(rows).tolist() == [0, 63, 64, 129]
    every = packed_bits.one_hot_rows(np.arange(64), 64).sum(axis=0, dtype=np.uint64)[None]
    assert int(every[0, 0]) == WORD_VALUES - 1
    assert packed_bits.positions_of_bits(every).tolist() == list(range(64))
