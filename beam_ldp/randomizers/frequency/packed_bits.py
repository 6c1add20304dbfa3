"""Reports that are rows of bits: exact noise on them, their column sums, their wire format.

A row of m bits is held in memory as ceil(m / 8) bytes; bit x is bit x % 8 (least significant
first) of byte x // 8. On the wire rows follow each other without gaps, bits in the same order.

The noise is *bit-sliced*: a bit is one when its own uniform 64-bit number lies below a threshold.
The first eight binary digits of 64 such numbers are eight random words, and comparing 64 numbers
with a threshold digit by digit is a handful of word operations. One number in 256 agrees with its
threshold in all eight digits; only those draw the remaining 56 digits, so every bit has exactly
the probability threshold / 2**64.
"""

from __future__ import annotations

import functools
import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.randomizers.bits import join_rows, padding_is_zero, split_rows
from beam_ldp.randomizers.report_format import ReportFormat
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.words import WORD_BITS, WORD_VALUES, kernel

if TYPE_CHECKING:
    from beam_ldp.randomizers.base import ExtraWords


DIGITS = 8  # binary digits of every number that are drawn at once
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ALL = np.uint64(WORD_VALUES - 1)
_CHUNK_ROWS = 1 << 14
# Isolated bit times this number has its position in the table as its top six digits.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_TOP_SIX = np.uint64(58)
_SIX = np.uint64(6)
_LOW_SIX = np.uint64(63)
_POSITION = np.zeros(64, dtype=np.int64)
_POSITION[[((1 << i) * int(_DE_BRUIJN)) % WORD_VALUES >> 58 for i in range(64)]] = np.arange(64)


def bytes_for(num_bits: int) -> int:
    """Bytes of a row in memory."""
    return -(-num_bits // 8)


def words_for(num_bits: int) -> int:
    """64-bit words of a row inside the kernels."""
    return -(-num_bits // WORD_BITS)


def random_words_for(num_bits: int) -> int:
    """Random words that `noisy_rows` takes per row."""
    return DIGITS * words_for(num_bits)


def one_hot_rows(positions: np.ndarray, num_bits: int) -> np.ndarray:
    """Rows of words with one bit set, at `positions`: uint64, (n, words)."""
    rows = np.zeros((len(positions), words_for(num_bits)), dtype=np.uint64)
    _set_bits(positions, rows)
    return rows


def noisy_rows(
    held: np.ndarray,
    num_bits: int,
    thresholds: tuple[int, int],
    words: np.ndarray,
    extra: ExtraWords,
    first_extra: int,
) -> np.ndarray:
    """Rows whose bits are independent: one with probability thresholds[held bit] / 2**64, exactly.

    Args:
        held: uint64 array (n, words): the bits that the noise depends on.
        num_bits: bits per row.
        thresholds: for a held zero, and for a held one; integers in [0, 2**64).
        words: uint64 array (n, random_words_for(num_bits)).
        extra: source of further words; `first_extra` is the first free position of a row.

    Returns:
        uint64 array like `held`; bits beyond `num_bits` are zero.
    """
    first, rest = _digits(thresholds)
    rows, undecided = np.empty_like(held), np.empty_like(held)
    last = np.uint64((1 << (num_bits - 1) % WORD_BITS + 1) - 1)
    _compare_digits(words, held, first[0], first[1], last, rows, undecided)
    capacity = int(row_sums(undecided).sum())
    users, positions = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    _list_bits(undecided, users, positions)
    _decide(users, positions, extra(users, positions + first_extra), held, rest, rows)
    return rows


@functools.cache
def _digits(thresholds: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The first binary digits as masks, (2, DIGITS), and the others as words, (2,)."""
    first = [[_ALL if t >> (63 - i) & 1 else _ZERO for i in range(DIGITS)] for t in thresholds]
    rest = [(t << DIGITS) % WORD_VALUES for t in thresholds]
    return np.array(first, dtype=np.uint64), np.array(rest, dtype=np.uint64)


def write_rows(rows: np.ndarray, out: np.ndarray) -> None:
    """Rows of words into rows of bytes, `out`: uint8, (n, bytes)."""
    as_bytes = rows.astype("<u8", copy=False).view(np.uint8)
    out[...] = as_bytes[:, : out.shape[1]]


def read_rows(reports: np.ndarray) -> np.ndarray:
    """Rows of bytes as rows of words, zero-padded."""
    num_bytes = reports.shape[1]
    if num_bytes % 8 == 0 and reports.flags.c_contiguous:
        return reports.view("<u8").astype(np.uint64, copy=False)
    padded = np.zeros((len(reports), 8 * words_for(8 * num_bytes)), dtype=np.uint8)
    padded[:, :num_bytes] = reports
    return padded.view("<u8").astype(np.uint64, copy=False)


def row_sums(rows: np.ndarray) -> np.ndarray:
    """How many bits each row of words has set: int64, (n,)."""
    sums = np.empty(len(rows), dtype=np.int64)
    _count_rows(rows, sums)
    return sums


def positions_of_bits(rows: np.ndarray) -> np.ndarray:
    """Positions of all set bits, row by row, in increasing order: int64."""
    count = int(row_sums(rows).sum())
    users, positions = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    _list_bits(rows, users, positions)
    return positions


def column_sums(reports: np.ndarray, num_bits: int) -> np.ndarray:
    """How many rows have each of the first `num_bits` bits set: int64, (num_bits,).

    O(rows) time, O(num_bits) memory.
    """
    counts = np.zeros(WORD_BITS * words_for(8 * reports.shape[1]), dtype=np.int64)
    for start in range(0, len(reports), _CHUNK_ROWS):
        _add_columns(read_rows(reports[start : start + _CHUNK_ROWS]), counts)
    return counts[:num_bits]


def pack_rows(reports: np.ndarray, num_bits: int) -> bytes:
    """The rows as one stream of `num_bits` bits each, zero-padded to a byte."""
    return join_rows(reports, num_bits, little=True)


def unpack_rows(data: bytes, num_bits: int, num_rows: int) -> np.ndarray:
    """Inverse of `pack_rows`: uint8, (num_rows, bytes).

    Raises:
        ValueError: if `data` is not exactly as long as the rows need, or if its padding is not
            zero.
    """
    return split_rows(data, num_bits, num_rows, little=True)


def whole_rows(reports: np.ndarray, num_bits: int) -> np.ndarray:
    """Which rows hold no one beyond their first `num_bits` bits: bool, (n,)."""
    return padding_is_zero(reports, num_bits, little=True)


def all_rows(num_bits: int) -> np.ndarray:
    """All rows of m <= 16 bits; row r holds the binary digits of r: uint8, (2**m, m)."""
    numbers = np.arange(1 << num_bits, dtype=np.uint32)[:, None]
    return (numbers >> np.arange(num_bits, dtype=np.uint32) & 1).astype(np.uint8)


class BitRows(ReportFormat):
    """Reports that are rows of `bits_per_report` bits."""

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (bytes_for(self.bits_per_report),)

    def channel_reports(self) -> np.ndarray:
        """The reports that the rows of `channel` stand for: row r has the bits of r."""
        return np.packbits(all_rows(self.bits_per_report), axis=1, bitorder="little")

    def pack(self, reports: np.ndarray) -> bytes:
        """The bits of a row in their order, without gaps, least significant of a byte first."""
        return pack_rows(reports, self.bits_per_report)

    @property
    def _low_bits_first(self) -> bool:
        return True

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        return unpack_rows(data, self.bits_per_report, num_reports)

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        return whole_rows(reports, self.bits_per_report)

    @property
    def _possible_reports(self) -> str:
        return f"have zero bits after their first {self.bits_per_report}"


@kernel
def _set_bits(positions, rows):  # type: ignore[no-untyped-def]
    for i in range(positions.size):
        position = np.uint64(positions[i])
        rows[i, position >> _SIX] |= _ONE << (position & _LOW_SIX)


@kernel
def _compare_digits(words, held, low, high, last, rows, undecided):  # type: ignore[no-untyped-def]
    n, width = held.shape
    for i in range(n):
        for w in range(width):
            bits, below, equal = held[i, w], _ZERO, _ALL
            for j in range(DIGITS):
                number = words[i, j * width + w]
                digit = low[j] ^ (bits & (low[j] ^ high[j]))
                below |= equal & digit & ~number
                equal &= ~(number ^ digit)
            rows[i, w] = below
            undecided[i, w] = equal
        rows[i, width - 1] &= last
        undecided[i, width - 1] &= last


@kernel
def _count_rows(rows, sums):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        count = 0
        for w in range(rows.shape[1]):
            left = rows[i, w]
            while left != _ZERO:
                left &= left - _ONE
                count += 1
        sums[i] = count


@kernel
def _list_bits(rows, users, positions):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(rows.shape[0]):
        for w in range(rows.shape[1]):
            left = rows[i, w]
            while left != _ZERO:
                lowest = left & (~left + _ONE)
                users[count] = i
                positions[count] = 64 * w + _POSITION[(lowest * _DE_BRUIJN) >> _TOP_SIX]
                left ^= lowest
                count += 1


@kernel
def _decide(users, positions, words, held, thresholds, rows):  # type: ignore[no-untyped-def]
    for t in range(users.size):
        i, w, shift = users[t], positions[t] >> 6, np.uint64(positions[t] & 63)
        if words[t] < thresholds[(held[i, w] >> shift) & _ONE]:
            rows[i, w] |= _ONE << shift


@kernel
def _add_columns(rows, counts):  # type: ignore[no-untyped-def]
    # Vertical counters: plane p holds binary digit p of all column sums at once. Seven full
    # adders take eight rows; the carry of weight eight ripples into the upper planes.
    n, width = rows.shape
    planes = np.zeros((16, width), dtype=np.uint64)
    padded = np.zeros((8, width), dtype=np.uint64)
    for start in range(0, n, 8):
        block = rows[start : start + 8]
        if n - start < 8:
            padded[: n - start] = rows[start:]
            block = padded
        for w in range(width):
            one, two, four = planes[0, w], planes[1, w], planes[2, w]
            a, b = block[0, w], block[1, w]
            half = one ^ a
            two_a = (one & a) | (half & b)
            one = half ^ b
            a, b = block[2, w], block[3, w]
            half = one ^ a
            two_b = (one & a) | (half & b)
            one = half ^ b
            half = two ^ two_a
            four_a = (two & two_a) | (half & two_b)
            two = half ^ two_b
            a, b = block[4, w], block[5, w]
            half = one ^ a
            two_a = (one & a) | (half & b)
            one = half ^ b
            a, b = block[6, w], block[7, w]
            half = one ^ a
            two_b = (one & a) | (half & b)
            one = half ^ b
            half = two ^ two_a
            four_b = (two & two_a) | (half & two_b)
            two = half ^ two_b
            half = four ^ four_a
            carry = (four & four_a) | (half & four_b)
            planes[0, w], planes[1, w], planes[2, w] = one, two, half ^ four_b
            for p in range(3, 16):
                plane = planes[p, w]
                planes[p, w] = plane ^ carry
                carry &= plane
    for p in range(16):
        for w in range(width):
            for bit in range(64):
                counts[64 * w + bit] += np.int64((planes[p, w] >> np.uint64(bit)) & _ONE) << p


# Shuffle pairs of mechanisms that answer every bit of a code word by independent coins ----
#
# A report is a row of independent bits: one with probability p where the code word of the value
# has a one, and q < p elsewhere. Let w be the law of all-q rows and r(1) = p/q, r(0) =
# (1-p)/(1-q) the ratios of one bit. For a code word with the set of ones B, R(y) = w(y) * prod
# over B of r(y_i).


def bit_dominating_pair(p: float, q: float, num_ones: int, source: str) -> ShufflePair:
    """The pair of two code words of `num_ones` ones each that share none.

    Blanket: every factor r(y_i) is at least r(0), so R >= r(0)**num_ones * w.

    It dominates pairs of code words that share bits. A shared bit gives both victims one common
    factor s, two bits apart give them independent factors s, s'. The hockey-stick divergence is an
    expectation of a convex function of su - E s'v; for two-valued s, exchanging s = s' for
    s != s' moves equal masses from r(1)(u - E v), r(0)(u - E v) to r(1)u - E r(0)v and
    r(0)u - E r(1)v, which have the same sum and lie outside: a mean-preserving spread.
    """
    r1, r0 = p / q, (1 - p) / (1 - q)
    counts = range(num_ones + 1)
    chance = [_binomial(i, num_ones, q) for i in counts]
    ratio = [r1**i * r0 ** (num_ones - i) for i in counts]
    cells = list(product(counts, counts))
    return ShufflePair(
        r0**num_ones,
        tuple((ratio[i], ratio[j]) for i, j in cells),
        tuple(chance[i] * chance[j] for i, j in cells),
        "proved",
        source,
    )


def bit_witness(p: float, q: float, num_own: int) -> ShufflePair:
    """Others hold x'; x and x' have `num_own` ones of their own each, which the other lacks."""
    r1, r0 = p / q, (1 - p) / (1 - q)
    counts = range(num_own + 1)
    cells = list(product(counts, counts))
    ratio = [r1**i * r0 ** (num_own - i) for i in counts]
    return ShufflePair(
        1.0,
        tuple((ratio[i] / ratio[j], 1.0) for i, j in cells),
        tuple(_binomial(i, num_own, q) * _binomial(j, num_own, p) for i, j in cells),
        "proved",
        "others hold one of the two values",
    )


def one_hot_witnesses(p: float, q: float, num_values: int) -> tuple[ShufflePair, ...]:
    """Witnesses of one-hot code words: others hold x', or a third value."""
    pair = bit_witness(p, q, 1)
    if num_values < 3:
        return (pair,)
    ratio = ((1 - p) / (1 - q), p / q)
    chance = ((1 - q, q), (1 - q, q), (1 - p, p))
    cells = list(product((0, 1), repeat=3))
    third = ShufflePair(
        1.0,
        tuple((ratio[a] / ratio[c], ratio[b] / ratio[c]) for a, b, c in cells),
        tuple(chance[0][a] * chance[1][b] * chance[2][c] for a, b, c in cells),
        "proved",
        "others hold a third value",
    )
    return pair, third


def _binomial(successes: int, trials: int, chance: float) -> float:
    """Probability of so many successes, for the few trials of one report."""
    return math.comb(trials, successes) * chance**successes * (1 - chance) ** (trials - successes)
