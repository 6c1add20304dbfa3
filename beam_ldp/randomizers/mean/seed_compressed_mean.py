"""PrivUnit as a seed: tries seeds until the vector that one stands for is accepted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from beam_ldp.randomizers.base import ExtraWords, below
from beam_ldp.randomizers.bits import join_rows, pack_uints, split_rows, unpack_uints
from beam_ldp.randomizers.mean.directions import (
    DirectionMean,
    add_coordinate,
    inner_product,
    signed_length,
    square_sum,
    unit_vectors,
)
from beam_ldp.randomizers.mean.priv_unit import PrivUnit, sphere_moments
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian, normal_moments
from beam_ldp.randomizers.normals import spare_words, standard_normals, uniform
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.words import WORD_BITS, Coin, exp_lower, kernel

# Long random vectors from short seeds: AES-128 in counter mode ----------------------------
#
# A seed of three words is a key (128 bits) and a public-size nonce (up to 64 bits). Nobody
# without the seed can tell its stream from random words: that is the usual assumption on AES, and
# what sending a seed instead of a vector rests on.


SECURITY_BITS = 128
SEED_WORDS = 3
_BLOCK_WORDS = 2


def stream_words(seeds: np.ndarray, count: int) -> np.ndarray:
    """The first `count` words of the stream of each seed; a longer stream starts the same.

    Args:
        seeds: uint64 `(n, 3)`: two words of key, one of nonce.

    Returns:
        uint64 `(n, count)`, the same on every platform.
    """
    zeros = bytes(8 * count)
    out = np.empty(len(seeds) * count + _BLOCK_WORDS, dtype="<u8")
    target = memoryview(out).cast("B")
    for i, seed in enumerate(seeds.astype("<u8").view("V24").ravel().tolist()):
        encryptor = Cipher(algorithms.AES(seed[:16]), modes.CTR(seed[16:] + bytes(8))).encryptor()
        encryptor.update_into(zeros, target[8 * i * count :])  # a block too long is overwritten
    return out[: len(seeds) * count].reshape(len(seeds), count).astype(np.uint64, copy=False)


def seed_normals(seeds: np.ndarray, count: int) -> np.ndarray:
    """Standard normals that seeds stand for: float64 `(n, count)`."""

    def further(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        longer = stream_words(seeds[np.unique(rows)], int(positions.max()) + 1)
        return longer[np.searchsorted(np.unique(rows), rows), positions]

    return standard_normals(stream_words(seeds, spare_words(count)), count, further)


Base = Literal["PrivUnit", "PrivUnitGaussian"]

_TRIAL_WORDS = SEED_WORDS + 1  # and a coin
_GIVEN_UP = 1e-13  # share of users who send a seed blindly after all
_MOST_TRIALS = 1 << 20
_KEY_BYTES = SECURITY_BITS // 8
_CHUNK_NORMALS = 1 << 19


@dataclass(frozen=True)
class SeedCompressedMean(DirectionMean):
    """Feldman-Talwar compression: the error of `PrivUnit` in about 128 bits.

    The device tries fresh random seeds. A seed stands for a random direction (of normals, for
    PrivUnitGaussian) that everybody can compute; it is accepted if that lies in the favoured cap
    of the own direction, and else with probability e**-local_epsilon. The accepted seed is sent.
    Given ideal randomness of what seeds stand for, a report reveals exactly what PrivUnit's does.
    Whoever has used up `most_trials` seeds, one user in 1e13, sends one more without looking at
    it: that mixes in a law that does not depend on the vector, costs no privacy, and the
    collector accounts for it.

    It protects the vector against everybody who sees the report *and cannot tell AES-128 in
    counter mode from random words* (`exactness="computational"`): the share of acceptable seeds
    then does not depend on the vector, and nor does the time that a device takes. No such
    assumption is needed by `RandomCodebookMean`, which is nearly as accurate in 60 bits for
    eps <= 8; compression is for more.

    Reports are `(n, 3)` uint64, the key in two words and a nonce; the statistic holds
    sums of what the seeds stand for and of their squares, in fixed point. Cost: `expected_trials`
    (3, 12, 300 at eps = 2, 4, 8) times 7 us + 4 ns per coordinate to randomize, one direction per
    report to read.

    Source: Feldman and Talwar 2021, rejection sampling; truncation and its exact law are our own.

    Args:
        dimension: at least 2.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: of the fixed point in which the collector sums.
        base: the mechanism whose density is sampled, "PrivUnit" or "PrivUnitGaussian".

    Raises:
        ValueError: if a parameter is out of range, or if a million trials per user would not do
            (local_epsilon above 17).

    >>> mechanism = SeedCompressedMean(dimension=50, local_epsilon=4.0)
    >>> mechanism.bits_per_report, mechanism.randomize(np.eye(50)[:3]).shape
    (132, (3, 3))
    """

    base: Base = "PrivUnit"

    also_known_as: ClassVar[str] = "Feldman-Talwar compression"
    decoding: ClassVar[str] = "O(d), but O(n d) random numbers to draw again"

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        return ({},)

    @property
    def numbers_per_report(self) -> float:
        return self.expected_trials * self.dimension

    exactness: ClassVar[str] = "computational"

    def __post_init__(self) -> None:
        if self.base not in ("PrivUnit", "PrivUnitGaussian"):
            raise ValueError(f'base must be "PrivUnit" or "PrivUnitGaussian", got {self.base!r}')
        super().__post_init__()

    # The law ---------------------------------------------------------------------------------

    @cached_property
    def _ideal(self) -> PrivUnit | PrivUnitGaussian:
        kind = PrivUnit if self.base == "PrivUnit" else PrivUnitGaussian
        return kind(self.dimension, self.local_epsilon, inputs="sphere")

    @cached_property
    def _favoured(self) -> Any:
        """The cap or the tail: its measure, threshold and moments."""
        return self._ideal.favoured

    @cached_property
    def _lenience(self) -> Coin:
        """Accepts a seed outside the favoured set: with e**-local_epsilon, rounded up."""
        return Coin.at_least(1 / exp_lower(min(self.local_epsilon, 700.0)))

    @property
    def expected_trials(self) -> float:
        """Seeds that a device tries on average, whatever its vector."""
        measure = self._favoured.measure
        return 1 / (measure + (1 - measure) * max(self._lenience.probability, 1e-300))

    @cached_property
    def most_trials(self) -> int:
        """J: seeds that a device tries at most."""
        return math.ceil(math.log(_GIVEN_UP) / math.log1p(-1 / self.expected_trials))

    @property
    def given_up(self) -> float:
        """Probability that all of them are refused."""
        return math.exp(self.most_trials * math.log1p(-1 / self.expected_trials))

    @cached_property
    def _levels(self) -> tuple[float, float]:
        """Probability of a favoured seed and of another one, over that of a blind draw."""
        if self.expected_trials > _MOST_TRIALS:
            raise ValueError(
                f"local_epsilon={self.local_epsilon:g} takes {self.expected_trials:.0e} trials per "
                f"user, more than {_MOST_TRIALS}; take PrivUnit or ProjectedPrivUnit"
            )
        accepted = (1 - self.given_up) * self.expected_trials
        return accepted + self.given_up, accepted * self._lenience.probability + self.given_up

    @property
    def _inside(self) -> float:
        """Probability that a report stands for a favoured vector."""
        return float(self._levels[0] * self._favoured.measure)

    @cached_property
    def marginal(self) -> float:
        """m: expected inner product of what a report stands for with the own direction."""
        if self.base == "PrivUnit":
            return float(self._favoured.expected_marginal(self._inside))
        return float(self._favoured.marginal(self._inside))

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        moments = sphere_moments if self.base == "PrivUnit" else normal_moments
        return moments(self._favoured, self.marginal)

    def log_ratio_max(self) -> float:
        high, low = self._levels
        return math.log(high / low)

    @property
    def two_levels(self) -> TwoLevels:
        """A blind draw of a seed; opposite directions are the worst pair."""
        ratio, share = math.exp(self.log_ratio_max()), self._favoured.measure
        return TwoLevels(ratio, share, 0.0, f"{self.base}'s own blanket")

    # What one user sends ---------------------------------------------------------------------

    @property
    def nonce_bits(self) -> int:
        """Bits of a seed beyond 128: so many that trying seeds weakens nothing."""
        return max(1, math.ceil(math.log2(self.expected_trials)))

    @property
    def bits_per_report(self) -> int:
        return SECURITY_BITS + self.nonce_bits

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint64)

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (SEED_WORDS,)

    @property
    def words_per_user(self) -> int:
        return 1 + _TRIAL_WORDS

    @property
    def _largest_coordinate(self) -> float:
        return self._ideal._largest_coordinate * self._ideal.marginal / self.marginal

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        raise NotImplementedError("trials are drawn by _randomize_block")

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        signs = np.empty(len(values))
        _draw_signs(values, words, self._flip_scale, signs)
        directions = unit_vectors(values) * signs[:, None]
        waiting, trial = np.arange(len(values)), words[:, 1:]
        for number in range(self.most_trials + 1):
            seeds = trial[:, :SEED_WORDS].copy()
            seeds[:, 2] >>= np.uint64(WORD_BITS - self.nonce_bits)
            reports[waiting] = seeds
            if number == self.most_trials:  # the last seed is sent blindly
                return
            favoured = self._heights(seeds, directions[waiting]) >= self._favoured.threshold
            lenient = trial[:, SEED_WORDS] < np.uint64(self._lenience.threshold)
            waiting = waiting[~(favoured | lenient)]
            if not waiting.size:
                return
            positions = np.arange(_TRIAL_WORDS) + 1 + _TRIAL_WORDS * (number + 1)
            further = extra(np.repeat(waiting, _TRIAL_WORDS), np.tile(positions, waiting.size))
            trial = further.reshape(waiting.size, _TRIAL_WORDS)

    def _heights(self, seeds: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Inner products of what seeds stand for with directions, row by row."""
        heights = np.empty(len(seeds))
        step = max(1, _CHUNK_NORMALS // self.dimension)
        for start in range(0, len(seeds), step):
            part = slice(start, start + step)
            normals = seed_normals(seeds[part], self.dimension)
            _measure(normals, directions[part], self.base == "PrivUnit", heights[part])
        return heights

    def pack(self, reports: np.ndarray) -> bytes:
        """Of each report the key, then the nonce."""
        reports = self._check_reports(np.asarray(reports))
        keys = np.ascontiguousarray(reports[:, :2]).astype(">u8").view(np.uint8)
        nonces = split_rows(
            pack_uints(np.ascontiguousarray(reports[:, 2]), self.nonce_bits),
            self.nonce_bits,
            len(reports),
        )
        return join_rows(np.concatenate([keys, nonces], axis=1), self.bits_per_report)

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        rows = split_rows(data, self.bits_per_report, num_reports)
        keys = np.frombuffer(rows[:, :_KEY_BYTES].tobytes(), dtype=">u8").astype(np.uint64)
        stream = join_rows(rows[:, _KEY_BYTES:], self.nonce_bits)
        nonces = unpack_uints(stream, self.nonce_bits, num_reports)
        return np.column_stack([keys.reshape(num_reports, 2), nonces])

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Every seed with a nonce of its length: some coin accepts it."""
        return below(reports[:, 2], 1 << self.nonce_bits)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = self._check_reports(np.asarray(reports))
        total = np.zeros(self.statistic_shape, dtype=np.int64)
        scale = 1 / (self.marginal * self._unit_step)
        step = max(1, _CHUNK_NORMALS // self.dimension)
        for start in range(0, len(reports), step):
            normals = seed_normals(reports[start : start + step], self.dimension)
            largest = float(self.fixed_point.largest)
            shift = self.fixed_point.square_shift
            _add_up(normals, self.base == "PrivUnit", scale, largest, shift, total)
        return total


@kernel
def _draw_signs(vectors, words, flip_scale, signs):  # type: ignore[no-untyped-def]
    for i in range(signs.size):
        _, signs[i] = signed_length(vectors[i], flip_scale, uniform(words[i, 0]))


@kernel
def _measure(normals, directions, on_sphere, heights):  # type: ignore[no-untyped-def]
    for i in range(heights.size):
        heights[i] = inner_product(normals[i], directions[i])
        if on_sphere:
            heights[i] /= np.sqrt(square_sum(normals[i], 1.0))


@kernel
def _add_up(normals, on_sphere, scale, largest, shift, total):  # type: ignore[no-untyped-def]
    for row in normals:
        factor = scale / np.sqrt(square_sum(row, 1.0)) if on_sphere else scale
        for j in range(row.size):
            x = np.int64(np.rint(min(max(factor * row[j], -largest), largest)))
            add_coordinate(x, j, shift, total)
