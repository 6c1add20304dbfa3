"""What all kernels share: ball, random words, messages as bytes, the interface to the aggregation.

Messages are integers of fixed widths without gaps, as `pack` of the NumPy mechanisms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from beam_ldp.randomizers.mean.base import MeanRandomizer, Norm

Runs = Sequence[tuple[int, int]]  # so many columns of so many bits each

_WHOLE_BYTES = (8, 16, 32)


def bytes_of(runs: Runs) -> int:
    """Bytes of one row: its bits, zero-padded to a byte."""
    return -(-sum(columns * bits for columns, bits in runs) // 8)


def runs_of(widths: np.ndarray) -> list[tuple[int, int]]:
    """Widths, column by column, as runs of equal ones."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(widths)) + 1))
    lengths = np.diff(np.concatenate((starts, [len(widths)])))
    return [(int(n), int(widths[at])) for at, n in zip(starts, lengths)]


def pack_rows(rows: Any, runs: Runs) -> Any:
    """Each row of unsigned integers `(n, columns)` as uint8 `(n, bytes_of(runs))`.

    Most significant bit first, without gaps between columns.
    """
    if _is_whole(runs):
        return _whole_bytes(rows, *runs[0])
    bits, at = [], 0
    for columns, width in runs:
        part = tf.cast(rows[:, at : at + columns], tf.uint32)
        shifts = tf.constant(np.arange(width - 1, -1, -1), tf.uint32)
        digits = tf.bitwise.bitwise_and(tf.bitwise.right_shift(part[:, :, None], shifts), 1)
        bits.append(tf.reshape(tf.cast(digits, tf.uint8), [-1, columns * width]))
        at += columns
    row = tf.concat(bits, axis=1)
    size = bytes_of(runs)
    padded = tf.pad(row, [[0, 0], [0, 8 * size - row.shape[1]]])
    octets = tf.reshape(padded, [-1, size, 8])
    return tf.reduce_sum(octets * tf.constant(2 ** np.arange(7, -1, -1), tf.uint8), axis=2)


def unpack_rows(packed: Any, runs: Runs) -> Any:
    """Inverse of `pack_rows`: uint32 `(n, columns)`."""
    if _is_whole(runs):
        return _from_whole_bytes(packed, *runs[0])
    shifts = tf.constant(np.arange(7, -1, -1), tf.uint8)
    row = tf.bitwise.bitwise_and(tf.bitwise.right_shift(packed[:, :, None], shifts), 1)
    row = tf.reshape(row, [-1, 8 * bytes_of(runs)])
    parts, at = [], 0
    for columns, width in runs:
        digits = tf.reshape(row[:, at : at + columns * width], [-1, columns, width])
        weights = tf.constant(2 ** np.arange(width - 1, -1, -1), tf.uint32)
        parts.append(tf.reduce_sum(tf.cast(digits, tf.uint32) * weights, axis=2))
        at += columns * width
    return tf.concat(parts, axis=1)


def _is_whole(runs: Runs) -> bool:
    """Whether every column takes one, two or four bytes: no bit has to be looked at."""
    return len(runs) == 1 and runs[0][1] in _WHOLE_BYTES


def _whole_bytes(rows: Any, columns: int, width: int) -> Any:
    octets = tf.bitcast(_swapped(tf.cast(rows, _WORDS[width]), width), tf.uint8)
    return tf.reshape(octets, [-1, columns * width // 8])


def _from_whole_bytes(packed: Any, columns: int, width: int) -> Any:
    size = width // 8
    words = (
        packed if size == 1 else tf.bitcast(tf.reshape(packed, [-1, columns, size]), _WORDS[width])
    )
    return tf.cast(_swapped(words, width), tf.uint32)


def _swapped(words: Any, width: int) -> Any:
    """Bytes of each word in the other order: words are little-endian in memory."""
    if width == 8:
        return words
    left, right, only = tf.bitwise.left_shift, tf.bitwise.right_shift, tf.bitwise.bitwise_and
    either = tf.bitwise.bitwise_or
    eight = tf.constant(8, words.dtype)
    if width == 16:
        return either(left(words, eight), right(words, eight))
    low = tf.constant(0x00FF00FF, words.dtype)
    pairs = either(left(only(words, low), eight), only(right(words, eight), low))
    sixteen = tf.constant(16, words.dtype)
    return either(left(pairs, sixteen), right(pairs, sixteen))


_WORDS = {8: tf.uint8, 16: tf.uint16, 32: tf.uint32}


class ClientKernel(ABC):
    """A mean mechanism as TensorFlow graphs: what a client sends, what sums, how sums are read.

    `randomize` and `accumulate` run on the client, `decode` where the sums are. It protects a
    vector against everybody who sees its report, as the mechanism says, as far as TensorFlow's
    generator (Philox, not cryptographic) can be taken for random.

    A client cannot refuse a vector without saying something about it. Hence vectors outside the
    ball are clipped, those with entries that are not finite count as zero, and mechanisms with
    `clipping="raise"` are refused.

    Attributes:
        mechanism: the NumPy class whose parameters and law these are.
        statistic_dtype: of sums.
    """

    statistic_dtype: ClassVar[Any]

    def __init__(self, mechanism: MeanRandomizer) -> None:
        if mechanism.clipping != "clip":
            raise ValueError(f'clipping must be "clip" on a client, got {mechanism.clipping!r}')
        self.mechanism: Any = mechanism

    def randomize(self, vectors: Any, generator: Any) -> Any:
        """Reports of `vectors` (n, dimension), floats of any kind: `(n,) + report_shape`."""
        vectors = tf.cast(vectors, tf.float64)
        if not vectors.shape.is_compatible_with([None, self.mechanism.dimension]):
            raise ValueError(
                f"vectors must have shape (n, {self.mechanism.dimension}), got {vectors.shape}"
            )
        inside = clip_to_ball(vectors, self.mechanism.norm, self.mechanism.radius)
        return self.respond(inside, generator)

    @abstractmethod
    def respond(self, vectors: Any, generator: Any) -> Any:
        """Reports of vectors of the ball, (n, dimension) float64."""

    @property
    @abstractmethod
    def statistic_shape(self) -> tuple[int, ...]:
        """Shape of a sum."""

    @property
    @abstractmethod
    def statistic_limit(self) -> int:
        """Largest magnitude of an entry of one report's statistic: what a secure sum must hold."""

    @abstractmethod
    def accumulate(self, reports: Any) -> Any:
        """The integer statistic of these reports; statistics of several clients add."""

    # The messages themselves -------------------------------------------------------------------

    @property
    @abstractmethod
    def message_bytes(self) -> int:
        """Bytes of one report on the wire: the mechanism's bits, padded to whole bytes."""

    @abstractmethod
    def pack(self, reports: Any) -> Any:
        """Reports as uint8 `(n, message_bytes)`, each row as the mechanism's own `pack`."""

    @abstractmethod
    def unpack(self, packed: Any) -> Any:
        """Inverse of `pack`; of rows that `pack` does not make, anything."""

    @abstractmethod
    def possible(self, reports: Any) -> Any:
        """Which reports a client that follows the mechanism can have sent: bool `(n,)`.

        The same as the mechanism's own `possible`.
        """

    def unpack_possible(self, packed: Any) -> tuple[Any, Any]:
        """`unpack`, and which rows a client that follows the mechanism can have sent, padding too.

        Whoever can send can send any of those; what is left out could move a mean further.
        """
        reports = self.unpack(packed)
        padding = 8 * self.message_bytes - self.mechanism.bits_per_report
        spare = tf.bitwise.bitwise_and(packed[:, -1], tf.constant((1 << padding) - 1, tf.uint8))
        return reports, self.possible(reports) & tf.equal(spare, 0)

    def permute(self, reports: Any, generator: Any) -> Any:
        """The reports in uniformly random order; message columns each in an order of its own.

        Nothing links the messages of a row afterwards. Ties among the random 64-bit words that are
        sorted for it have probability below n**2 / 2**64.
        """
        return tf.gather(reports, random_order(generator, [tf.shape(reports)[0]]))

    # Reading back ------------------------------------------------------------------------------

    @abstractmethod
    def decode(self, statistic: Any, num_reports: Any) -> Any:
        """The unbiased mean, (dimension,) float64, of a sum of statistics; zeros of no reports."""


def client_generator() -> Any:
    """A generator of this client and this round alone; to be called inside its computation."""
    return tf.random.Generator.from_non_deterministic_state()


def seeded_generator(seed: int, number: Any, vectors: Any) -> Any:
    """For simulation only: a generator that is a function of seed, round and values (float64)."""
    octets = tf.reshape(tf.bitcast(vectors, tf.uint8), [1, -1])
    digest = tf.bitcast(tf.raw_ops.Fingerprint(data=octets, method="farmhash64"), tf.int64)[0]
    key = tf.constant(seed, tf.int64)
    state = tf.stack([digest, tf.cast(number, tf.int64), key])
    return tf.random.Generator.from_state(state, alg="philox")


def clip_to_ball(vectors: Any, norm: Norm, radius: float) -> Any:
    """The vectors (n, d) float64, scaled onto the ball where outside; zero where not finite.

    Coordinate by coordinate for "linf"; entries of "binary" vectors count as 1 above 1/2.
    """
    if norm == "binary":
        return tf.cast(_finite(vectors) > 0.5, tf.float64)
    if norm == "linf":
        return tf.clip_by_value(_finite(vectors), -radius, radius)
    order = 1 if norm == "l1" else 2
    length = tf.norm(vectors, ord=order, axis=1, keepdims=True)
    # Nearly always; rows are long, and this takes a third of the passes over them.
    plain = tf.reduce_all((length > _PLAIN[0]) & (length < _PLAIN[1]))
    return tf.cond(
        plain,
        lambda: vectors * tf.minimum(radius / length, 1.0),
        lambda: _onto_ball(_finite(vectors), order, radius),
    )


_PLAIN = (1e-100, 1e100)  # lengths whose squares neither vanish nor overflow; none that is NaN


def _finite(vectors: Any) -> Any:
    """The vectors, zero where an entry is not finite."""
    finite = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
    return tf.where(finite, vectors, tf.zeros_like(vectors))


def _onto_ball(vectors: Any, order: int, radius: float) -> Any:
    """Relative to the largest entry, so that no square overflows or vanishes."""
    largest = tf.reduce_max(tf.abs(vectors), axis=1, keepdims=True)
    shape = vectors / tf.where(largest > 0, largest, tf.ones_like(largest))
    length = tf.norm(shape, ord=order, axis=1, keepdims=True)
    outside = length * largest > radius
    onto = shape * (radius / tf.where(length > 0, length, tf.ones_like(length)))
    return tf.where(outside, onto, vectors)


def random_words(generator: Any, shape: Any) -> Any:
    """Uniform 64-bit words, uint64."""
    return generator.uniform_full_int(shape, dtype=tf.uint64)


def random_order(generator: Any, shape: Any) -> Any:
    """Uniformly random permutations along the last axis, int32."""
    words = generator.uniform_full_int(shape, dtype=tf.int64)
    return tf.argsort(words, axis=-1, stable=True)


def heads(generator: Any, shape: Any, threshold: int) -> Any:
    """Coins, true for exactly `threshold` of the 2**64 words."""
    return random_words(generator, shape) < tf.constant(threshold, tf.uint64)


def uniform(generator: Any, shape: Any) -> Any:
    """Uniform in [0, 1), float64."""
    return generator.uniform(shape, dtype=tf.float64)


def normal(generator: Any, shape: Any) -> Any:
    """Standard normal, float64."""
    return generator.normal(shape, dtype=tf.float64)


def exponential(generator: Any, shape: Any) -> Any:
    """Standard exponential, float64."""
    return -tf.math.log1p(-uniform(generator, shape))


def first_accepted(propose: Callable[[], tuple[Any, Any]], count: Any) -> Any:
    """(count,) values, each the first that `propose() -> (values, accepted)` accepts there."""

    def again(values: Any, done: Any) -> tuple[Any, Any]:
        candidates, accepted = propose()
        return tf.where(done, values, candidates), done | accepted

    start = tf.zeros([count], tf.float64), tf.zeros([count], tf.bool)
    shapes = tf.TensorShape([None]), tf.TensorShape([None])
    return tf.while_loop(lambda _, done: ~tf.reduce_all(done), again, start, shapes)[0]
