"""Two-response bits: the one noisy bit per message that the whole family is made of.

A message names a coordinate, drawn uniformly from a block of `size` coordinates, and carries one
bit that is 1 with probability p + (1 - 2p) q, where q in [0, 1] is what the coordinate holds and
p = 1/(1 + e**epsilon). Both come from one 64-bit word: the high half of `word * size` is the
coordinate, the low half is compared with an integer threshold between `low` (q = 0) and
`2**64 - low` (q = 1). Whatever the threshold, the law stays between those two: privacy rests on
integers alone, and rounding q costs at most 2**-52 of bias. Rounding a value to a random bit and
flipping that bit is thereby one and the same comparison.

Source: thesis, Algorithms 2.2.1 and 3.3.1; the integer law is our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.words import (
    MAX_WASTE,
    WORD_VALUES,
    bits_for,
    exp_lower,
    kernel,
    multiply_high,
)


@dataclass(frozen=True)
class BitLaw:
    """One message about a block of `size` coordinates, worth at most `message_epsilon`.

    Raises:
        ValueError: if 64-bit words cannot spend `message_epsilon` to within 1e-8 (above 40, and
            below 1e-12 or so).
    """

    size: int
    message_epsilon: float

    def __post_init__(self) -> None:
        too_fine = self.message_epsilon > 40 or self.low >= WORD_VALUES // 2
        if too_fine or self.message_epsilon - self.log_ratio_max > MAX_WASTE:
            raise ValueError(
                f"a message of epsilon {self.message_epsilon:g} about {self.size} coordinates is "
                "beyond the resolution of 64-bit words; choose another local_epsilon or more "
                "messages"
            )

    @cached_property
    def low(self) -> int:
        """Least threshold: the number of words, per `size`, that give a one although q = 0.

        The words that name one coordinate and fall below a threshold t number t/size, give or take
        one, which the ratio (2**64 - low + size)/(low - size) allows for.
        """
        ratio = exp_lower(self.message_epsilon)
        return math.ceil((WORD_VALUES + self.size * (1 + ratio)) / (1 + ratio))

    @property
    def log_ratio_max(self) -> float:
        """Log of the largest ratio that the words can show."""
        excess = WORD_VALUES - 2 * self.low + 2 * self.size
        return math.log1p(excess / (self.low - self.size))

    @property
    def flip_probability(self) -> float:
        """The probability p, as implemented."""
        return self.low / WORD_VALUES

    @property
    def contrast(self) -> float:
        """1 - 2p as implemented: what a bit's mean moves by when q goes from 0 to 1."""
        return (WORD_VALUES - 2 * self.low) / WORD_VALUES

    @property
    def bit_variance(self) -> float:
        """Variance p(1-p)/(1-2p)^2 of a debiased bit with q in {0, 1}."""
        p = self.flip_probability
        return p * (1 - p) / self.contrast**2


def message_pair(message_epsilon: float) -> ShufflePair:
    """What a shuffled two-response message hides in, whatever the size of its block."""
    source = "blanket of two-response bits"
    return ShufflePair.two_level(math.exp(message_epsilon), 0.5, 0.0, source)


@dataclass(frozen=True)
class MessageLayout:
    """Which coordinates, of which level, each message column speaks about.

    Level k (0-based) sends `messages[k]` messages about all `num_coordinates`: at most one per
    coordinate, on blocks whose sizes differ by at most one, or a whole number per coordinate.
    `padded` blocks all have the size ceil(num_coordinates/messages) instead, as in the text, and
    the coordinates past the end hold zero.
    """

    num_coordinates: int
    messages: tuple[int, ...]
    message_epsilons: tuple[float, ...]
    padded: bool = False

    def __post_init__(self) -> None:
        if len(self.messages) != len(self.message_epsilons) or not self.messages:
            raise ValueError("messages and message_epsilons must hold one entry per level")
        if not all(math.isfinite(e) and e > 0 for e in self.message_epsilons):
            raise ValueError("message_epsilons must be finite numbers > 0")
        for count in self.messages:
            if count < 1 or (count > self.num_coordinates and count % self.num_coordinates):
                raise ValueError(
                    f"messages per level must lie in [1, {self.num_coordinates}] or be a multiple "
                    f"of {self.num_coordinates}, got {count}"
                )

    @property
    def num_levels(self) -> int:
        return len(self.messages)

    @property
    def num_messages(self) -> int:
        return sum(self.messages)

    @property
    def covers(self) -> bool:
        """One level, and every message is about a coordinate of its own: nothing is sampled."""
        return self.num_levels == 1 and self.messages[0] % self.num_coordinates == 0

    def repeats(self, level: int) -> int:
        """Messages per coordinate where there is more than one."""
        return max(1, self.messages[level] // self.num_coordinates)

    def blocks(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """First coordinate and size of every block of the level, once: int64 each."""
        count = min(self.messages[level], self.num_coordinates)
        small, larger = divmod(self.num_coordinates, count)
        if self.padded:
            sizes = np.full(count, small + (larger > 0))
        else:
            sizes = np.where(np.arange(count) < larger, small + 1, small)
        return np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes

    def law(self, level: int, size: int) -> BitLaw:
        return BitLaw(size, self.message_epsilons[level])

    def coordinate_laws(self, level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per coordinate: block size, contrast, variance of a debiased bit."""
        _, sizes = self.blocks(level)
        per_coordinate = np.repeat(sizes, sizes)[: self.num_coordinates]
        kinds, which = np.unique(per_coordinate, return_inverse=True)
        laws = [self.law(level, int(size)) for size in kinds]
        contrast = np.array([law.contrast for law in laws])[which]
        variance = np.array([law.bit_variance for law in laws])[which]
        return per_coordinate, contrast, variance

    @cached_property
    def columns(self) -> Columns:
        parts = []
        for k in range(self.num_levels):
            first, sizes = self.blocks(k)
            once = np.stack([np.full(len(first), k), first, sizes])
            parts.append(np.tile(once, self.repeats(k)))
        level, start, size = np.concatenate(parts, axis=1).astype(np.int64)
        # A handful of kinds among up to millions of columns.
        widest = int(size.max()) + 1
        kinds, which = np.unique(level * widest + size, return_inverse=True)
        laws = [self.law(*divmod(kind, widest)) for kind in kinds.tolist()]
        low = np.array([law.low for law in laws], np.uint64)
        span = np.array([WORD_VALUES - 2 * law.low for law in laws], np.uint64)
        budgets = np.array([law.log_ratio_max for law in laws])
        scale = np.nextafter(span.astype(np.float64), 0.0)
        return Columns(
            level, start, size.astype(np.uint64), low[which], span[which], scale[which],
            budgets[which],
        )  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """The layout as arrays, one entry per message column."""

    level: np.ndarray
    start: np.ndarray
    size: np.ndarray
    low: np.ndarray
    span: np.ndarray
    scale: np.ndarray
    log_ratio_max: np.ndarray

    @cached_property
    def widths(self) -> np.ndarray:
        """Bits of each column's messages: the place in the block and the bit."""
        sizes, which = np.unique(self.size, return_inverse=True)
        bits = np.array([bits_for(int(size)) if size > 1 else 0 for size in sizes])
        return bits[which] + 1


def bit_means(unit: np.ndarray, level: int, num_levels: int) -> np.ndarray:
    """Probability that the unflipped bit of this level is one, for values in [0, 1]."""
    digits = num_levels - 1
    scaled = unit * 2.0**digits
    whole = np.minimum(np.floor(scaled), 2.0**digits - 1)
    if level == digits:
        return scaled - whole
    return (whole.astype(np.int64) >> (digits - 1 - level) & 1).astype(float)


def pack_columns(reports: np.ndarray, widths: np.ndarray) -> bytes:
    """Rows of messages as one bit stream, column t in `widths[t]` bits; zero-padded to a byte."""
    rows = np.empty((len(reports), int(widths.sum())), dtype=np.uint8)
    for column, bits, place in _same_width(widths):
        values = np.ascontiguousarray(reports[:, column], dtype=">u4")[:, :, None].view(np.uint8)
        spread = np.unpackbits(values, axis=2)[:, :, 32 - bits :]
        rows[:, place] = spread.reshape(rows[:, place].shape)
    return np.packbits(rows.ravel()).tobytes()


def unpack_columns(data: bytes, widths: np.ndarray, count: int) -> np.ndarray:
    """Inverse of `pack_columns`: uint32, `(count, columns)`.

    Raises:
        ValueError: if `data` is not exactly as long as `count` rows need, or its padding not zero.
    """
    total = int(widths.sum())
    if len(data) != -(-total * count // 8):
        raise ValueError(f"data must hold {count} rows of {total} bits, got {len(data)} bytes")
    stream = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if stream[total * count :].any():
        raise ValueError("data must be padded with zero bits")
    rows = stream[: total * count].reshape(count, total)
    reports = np.empty((count, len(widths)), dtype=np.uint32)
    for column, bits, place in _same_width(widths):
        spread = np.zeros((count, column.stop - column.start, 32), dtype=np.uint8)
        spread[:, :, 32 - bits :] = rows[:, place].reshape(*spread.shape[:2], bits)
        reports[:, column] = np.packbits(spread, axis=2).view(">u4")[:, :, 0]
    return reports


def _same_width(widths: np.ndarray) -> list[tuple[slice, int, slice]]:
    """Runs of columns of one width: the columns, their width, their place in the row of bits."""
    edges = np.flatnonzero(np.diff(widths)) + 1
    ends = np.concatenate(([0], np.cumsum(widths)))
    runs = zip([0, *edges.tolist()], [*edges.tolist(), len(widths)])
    return [(slice(a, b), int(widths[a]), slice(int(ends[a]), int(ends[b]))) for a, b in runs]


@kernel
def respond(
    vectors: Any,
    offset: Any,
    factor: Any,
    words: Any,
    level: Any,
    start: Any,
    size: Any,
    low: Any,
    span: Any,
    scale: Any,
    num_levels: Any,
    reports: Any,
) -> None:
    """Fill `reports` (n, columns): twice the place in the block, plus the noisy bit.

    `offset + factor * vectors`, (n, coordinates), truncated to [0, 1], is what messages speak
    about: level k < num_levels - 1 about its binary digit k + 1, the last level about what is
    left, rounded at random.
    """
    digits = num_levels - 1
    top = 2.0**digits
    coordinates = vectors.shape[1]
    for i in range(vectors.shape[0]):
        for t in range(level.size):
            word = words[i, t]
            place = multiply_high(word, size[t])
            coordinate = start[t] + np.int64(place)
            threshold = low[t]
            if coordinate < coordinates:
                unit = offset + factor * vectors[i, coordinate]
                scaled = min(max(unit, 0.0), 1.0) * top
                whole = min(np.floor(scaled), top - 1.0)
                if level[t] < digits:
                    if (np.int64(whole) >> (digits - 1 - level[t])) & 1:
                        threshold += span[t]
                else:
                    rest = scaled - whole
                    if rest >= 1.0:
                        threshold += span[t]
                    elif rest > 0.0:
                        threshold += np.uint64(rest * scale[t])
            bit = word * size[t] < threshold
            reports[i, t] = (place << np.uint64(1)) | np.uint64(bit)


@kernel
def respond_covering(
    vectors: Any,
    offset: Any,
    factor: Any,
    words: Any,
    low: Any,
    span: Any,
    scale: Any,
    reports: Any,
) -> None:
    """`respond` for a layout that covers: the same bits from the same words, ten times as fast."""
    coordinates = vectors.shape[1]
    thresholds = np.empty(coordinates, dtype=np.uint64)
    for i in range(vectors.shape[0]):
        for j in range(coordinates):
            rest = min(max(offset + factor * vectors[i, j], 0.0), 1.0)
            thresholds[j] = low + (span if rest >= 1.0 else np.uint64(rest * scale))
        for first in range(0, words.shape[1], coordinates):
            for j in range(coordinates):
                reports[i, first + j] = words[i, first + j] < thresholds[j]


@kernel
def count_covering(reports: Any, ones: Any) -> int:
    """Add the columns of reports that cover to `ones`; anything above 1 if a message is no bit."""
    worst = reports.dtype.type(0)
    for i in range(reports.shape[0]):
        for t in range(reports.shape[1]):
            worst |= reports[i, t]
            ones[t] += reports[i, t]
    return int(worst)


@kernel
def count_bits(
    reports: Any, level: Any, start: Any, size: Any, coordinates: Any, counts: Any
) -> int:
    """Add messages to `counts` (levels, coordinates, 2); the number of impossible messages."""
    bad = 0
    for i in range(reports.shape[0]):
        for t in range(level.size):
            place = np.uint64(reports[i, t]) >> np.uint64(1)
            if place >= size[t]:
                bad += 1
                continue
            coordinate = start[t] + np.int64(place)
            if coordinate < coordinates:
                counts[level[t], coordinate, np.int64(reports[i, t]) & 1] += 1
    return bad
