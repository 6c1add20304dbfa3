"""The core of the family: encode, send two-response bits about blocks, debias, decode.

    device: vector --encode--> values in [0, 1] --digits, random rounding--> noisy bits by block
    server: bits per coordinate --debias, scale--> mean of the values --decode--> mean

`BinaryVectorMean`, `LInfMean`, `L1Mean` and `L2Mean` differ only in encode and decode.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, Sampling, accounting
from beam_ldp.randomizers.mean import allocation
from beam_ldp.randomizers.mean.base import MeanEstimate, MeanRandomizer
from beam_ldp.randomizers.mean.two_response import (
    MessageLayout,
    bit_means,
    count_bits,
    count_covering,
    message_pair,
    pack_columns,
    respond,
    respond_covering,
    unpack_columns,
)
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.walsh_hadamard import hadamard, hadamard_back, padded_size
from beam_ldp.randomizers.words import smallest_uint

if TYPE_CHECKING:
    from typing import Self

Preset = Literal["thesis"]

_HOPELESS = 100.0  # e**-100: nobody's row looks like another's
_CHUNK_COORDINATES = 1 << 15  # encoded vectors that stay in the second-level cache


@dataclass(frozen=True)
class BlockMean(MeanRandomizer):
    """A mean mechanism that sends two-response bits about blocks of coordinates.

    One user sends `messages_per_user` messages, one per column of a report. Each names a
    coordinate, uniform in the column's public block, and one noisy bit of it. `local_epsilon` is
    the sum of their budgets; in the multi-message shuffle model (`for_shuffle`) every column is
    permuted on its own, at the price of `beam_ldp.accounting.shuffle.mean_price`.

    Reports are `(n, messages)` unsigned integers, twice the place in the block plus the bit; the
    statistic counts zeros and ones, `(levels, coordinates, 2)`, int64.

    Attributes:
        messages: messages per level; by default what minimizes the worst error.
        message_epsilons: budget of one message per level; likewise.
        preset: "thesis" for the text's parameters, padded blocks and uncentred decoding.
    """

    messages: tuple[int, ...] | None = None
    message_epsilons: tuple[float, ...] | None = None
    preset: Preset | None = None

    # Spreads coordinates evenly (every entry of the transform is 1/sqrt(size) in size).
    rotates: ClassVar[bool] = False
    max_levels: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset not in (None, "thesis"):
            raise ValueError(f'preset must be None or "thesis", got {self.preset!r}')
        if (self.messages is None) != (self.message_epsilons is None):
            raise ValueError("messages and message_epsilons must be given together or not at all")
        messages, epsilons = self.messages, self.message_epsilons
        if messages is None or epsilons is None:
            if self.preset == "thesis":
                plan = allocation.printed_local(self.num_coordinates, self.local_epsilon)
            else:
                plan = allocation.best_local(
                    self.num_coordinates, self.local_epsilon, self.max_levels, rotated=self.rotates
                )
            messages, epsilons = plan
        object.__setattr__(self, "messages", tuple(int(s) for s in messages))
        object.__setattr__(self, "message_epsilons", tuple(float(e) for e in epsilons))
        if self.max_levels is not None and len(messages) > self.max_levels:
            raise ValueError(f"messages must have at most {self.max_levels} levels")
        if self.log_ratio_max() > self.local_epsilon * (1 + 1e-14):
            raise ValueError(
                f"message_epsilons must add up to at most local_epsilon={self.local_epsilon:g}, "
                f"got {self.log_ratio_max():g}"
            )

    @classmethod
    def for_shuffle(
        cls,
        dimension: int,
        epsilon: float,
        delta: float,
        num_users: int,
        *,
        levels: int | None = None,
        messages: int | Sequence[int] | None = None,
        max_bits: float | None = None,
        max_messages: float | None = None,
        method: str = "auto",
        preset: Preset | None = None,
        **options: Any,
    ) -> Self:
        """The mechanism whose shuffled messages cost (epsilon, delta) among `num_users` users.

        The target is central, replace-one, and holds against a reader who sees every column
        permuted on its own. `local_epsilon` of the result is the (large) sum that protects a user
        against whoever sees the messages before the shuffle.

        Args:
            dimension: coordinates per vector.
            epsilon: central target.
            delta: central target, in (0, 1).
            num_users: users whose messages are shuffled together; with fewer the price is higher.
            levels: binary digits; by default so many that rounding is below 5 % of the noise.
            messages: messages per level (one number or one per level); by default one per
                coordinate, which needs no sampling of coordinates.
            max_bits: most bits that a user may send: levels and messages of least error within
                them are chosen.
            max_messages: likewise, most messages.
            method: how the price is proved, see `accounting.multi_message`.
            preset: "thesis" for the text's level allocation and its (corrected) closed form.
            **options: radius, clipping and the mechanism's own parameters.

        Raises a ValueError if the target cannot be met.
        """
        accountant = accounting("shuffle.multi_message")
        size = cls._coordinates_for(dimension)
        most = None
        if max_bits is not None or max_messages is not None:
            if (levels, messages, preset) != (None, None, None):
                raise ValueError(
                    "max_bits and max_messages choose levels and messages: give one or the other"
                )
            most = allocation.most_messages(size, max_bits, max_messages)
            messages = (most,) if most < size else None
        if levels is None and messages is not None and not isinstance(messages, int):
            levels = len(messages)
        if levels is None:
            ideal = accountant.gaussian_mu(epsilon, delta)
            levels = 1 if preset else allocation.shuffle_levels(size, num_users, ideal)
            levels = min(levels, cls.max_levels or levels, most // size if most else levels)
        counts = size if messages is None else messages
        per_level = (counts,) * levels if isinstance(counts, int) else tuple(counts)
        if preset:
            shape = allocation.level_weights(levels) ** (2 / 3)
            method = "thesis"
        else:
            shape = allocation.shuffle_shape(levels)
        if method == "auto" and all(count % size == 0 for count in per_level):
            method = "bits"  # each message is about one coordinate
        found = accountant.calibrate_messages(
            per_level, shape, epsilon, delta, num_users, method=method
        )
        total = math.fsum(s * e for s, e in zip(per_level, found)) * (1 + 1e-14)
        return cls(
            dimension,
            total,
            messages=per_level,
            message_epsilons=tuple(found),
            preset=preset,
            **cls._shuffle_options(num_users, options),
        )

    @classmethod
    def _shuffle_options(cls, num_users: int, options: dict[str, Any]) -> dict[str, Any]:
        return options

    # Encode and decode: what the mechanisms differ in ---------------------------------------

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        """Coordinates after encoding a vector of this dimension."""
        return padded_size(dimension) if cls.rotates else dimension

    @property
    def signs(self) -> np.ndarray | None:
        """Public signs of the rotation, +-1: float64, (dimension,). None: no signs are changed."""
        return None

    @property
    def num_coordinates(self) -> int:
        return self._coordinates_for(self.dimension)

    @property
    @abstractmethod
    def _half_range(self) -> float:
        """The encoded coordinates lie in [-half, half] (binary: half the unit interval)."""

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        """The vectors in the coordinates that messages speak about: `(n, num_coordinates)`."""
        return hadamard(vectors, self.signs) if self.rotates else vectors

    @property
    def _affine(self) -> tuple[float, float]:
        """Offset and factor that bring coordinates into [0, 1]; what exceeds it is truncated."""
        return 0.5, 0.5 / self._half_range

    def _encode(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors of the ball as `(n, num_coordinates)` values in [0, 1]."""
        offset, factor = self._affine
        return np.clip(offset + factor * self._rotate(vectors), 0.0, 1.0)

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        """The mean from the mean of encoded coordinates less 1/2."""
        inside = 2 * self._half_range * coordinates
        return hadamard_back(inside, self.dimension, self.signs) if self.rotates else inside

    # What one user sends ---------------------------------------------------------------------

    @cached_property
    def layout(self) -> MessageLayout:
        """Blocks and laws of all message columns."""
        assert self.messages is not None and self.message_epsilons is not None
        sizes = self.num_coordinates, self.messages, self.message_epsilons
        return MessageLayout(*sizes, padded=self.preset == "thesis")

    @property
    def messages_per_user(self) -> int:  # type: ignore[override]
        """Messages that one user sends, one per column."""
        return self.layout.num_messages

    @property
    def bits_per_report(self) -> int:
        return int(self.layout.columns.widths.sum())

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return smallest_uint(2 * int(self.layout.columns.size.max()))

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (self.messages_per_user,)

    @property
    def words_per_user(self) -> int:
        return self.messages_per_user

    def log_ratio_max(self) -> float:
        return math.fsum(self.layout.columns.log_ratio_max)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        c = self.layout.columns
        step = max(1, _CHUNK_COORDINATES // self.num_coordinates)
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            rotated = self._rotate(values[part])
            if self.layout.covers:
                respond_covering(
                    rotated, *self._affine, words[part], c.low[0], c.span[0], c.scale[0],
                    reports[part],
                )  # fmt: skip
            else:
                respond(
                    rotated, *self._affine, words[part], c.level, c.start, c.size,
                    c.low, c.span, c.scale, self.layout.num_levels, reports[part],
                )  # fmt: skip

    def pack(self, reports: np.ndarray) -> bytes:
        return pack_columns(np.asarray(reports), self.layout.columns.widths)

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        reports = unpack_columns(data, self.layout.columns.widths, num_reports)
        return reports.astype(self.report_dtype)

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Messages about coordinates of their blocks; `influence` says how far one pulls."""
        last = (2 * self.layout.columns.size - 1).astype(self.report_dtype)
        return np.asarray((reports <= last).all(axis=1))

    @property
    def _possible_reports(self) -> str:
        return "name coordinates inside their blocks"

    # Reading back ----------------------------------------------------------------------------

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.layout.num_levels, self.num_coordinates, 2)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = np.asarray(reports)
        if reports.ndim != 2 or reports.shape[1] != self.messages_per_user:
            raise ValueError(f"reports must have shape (n, {self.messages_per_user})")
        if reports.dtype.kind != "u":
            raise ValueError(f"reports must be unsigned integers, got {reports.dtype}")
        c = self.layout.columns
        counts = np.zeros(self.statistic_shape, dtype=np.int64)
        if self.layout.covers:
            ones = np.zeros(self.messages_per_user, dtype=np.int64)
            impossible = count_covering(reports, ones) > 1
            repeated = ones.reshape(-1, self.num_coordinates)
            counts[0, :, 1] = repeated.sum(axis=0)
            counts[0, :, 0] = len(reports) * len(repeated) - counts[0, :, 1]
        else:
            blocks = (c.level, c.start, c.size)
            impossible = count_bits(reports, *blocks, self.num_coordinates, counts) > 0
        if impossible:
            raise ValueError("reports must name coordinates inside their blocks")
        return counts

    def estimate(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> MeanEstimate:
        """As for every mechanism; refuses a statistic that is not that of `num_users` users.

        Raises:
            ValueError: if a block has more or fewer messages than users times messages each.
        """
        found = super().estimate(statistic, num_users, sampling=sampling)
        if self.preset is None:  # padded blocks lose the messages about nothing
            for level in range(self.layout.num_levels):
                starts, _ = self.layout.blocks(level)
                received = np.add.reduceat(np.asarray(statistic)[level].sum(axis=1), starts)
                if (received != num_users * self.layout.repeats(level)).any():
                    raise ValueError("statistic must hold every message of num_users users, once")
        return found

    def influence(self, num_users: int) -> float:
        """How far one message, sent by a liar, can move the estimate (Euclidean, data's unit)."""
        moves = [
            weight * sizes[0] / (contrast[0] * self.layout.repeats(level))
            for level, weight in enumerate(allocation.level_weights(self.layout.num_levels))
            for sizes, contrast, _ in [self.layout.coordinate_laws(level)]
        ]
        return 2 * self._half_range * max(moves) / num_users

    @property
    def reach(self) -> float:
        """Of all messages of a person, each about the coordinate of its block that suits her.

        Exact for one level of an interval, an upper bound for several, and for rotated vectors
        (exact there where nothing is padded).
        """
        if not self._centred:
            return super().reach  # of the printed decoding, which nobody should plan with
        half, levels = self._half_range, []
        for level, weight in enumerate(allocation.level_weights(self.layout.num_levels)):
            starts, _ = self.layout.blocks(level)
            sizes, contrast, _ = self.layout.coordinate_laws(level)
            levels.append(half * weight * (sizes / contrast)[starts])
        if self.rotates or len(levels) > 1:
            longest = math.fsum(float(np.linalg.norm(pulls)) for pulls in levels)
            corner = self.radius if self.rotates else half * math.sqrt(self.dimension)
            return longest + corner
        told, silent = float(((levels[0] + half) ** 2).sum()), self.dimension - len(levels[0])
        return math.sqrt(told + silent * half**2)

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        return self._decode(self._centre(statistic, num_users))

    def _centre(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        """The mean of encoded coordinates less 1/2."""
        centred = np.full(self.num_coordinates, 0.0 if self._centred else -0.5)
        for level, weight in enumerate(allocation.level_weights(self.layout.num_levels)):
            sizes, contrast, _ = self.layout.coordinate_laws(level)
            zeros, ones = statistic[level, :, 0], statistic[level, :, 1]
            if self._centred:
                debiased = (ones - zeros) / (2 * contrast)
            else:
                flip = (1 - contrast) / 2
                debiased = (ones * (1 - flip) - zeros * flip) / contrast
            centred += weight * sizes * debiased / (num_users * self.layout.repeats(level))
        return centred

    @property
    def _centred(self) -> bool:
        """Debias to bit - 1/2: a quarter of the error from sampling coordinates."""
        return self.preset is None

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        unit = None if vectors is None else self._encode(vectors)
        total = np.zeros(self.dimension)
        for level, weight in enumerate(allocation.level_weights(self.layout.num_levels)):
            if unit is None:
                part = self._worst_level_variance(level)
            else:
                part = self._level_variance(level, bit_means(unit, level, self.layout.num_levels))
            total += weight**2 * part / self.layout.repeats(level)
        return total * (2 * self._half_range) ** 2

    def _measured_variance(
        self, statistic: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray | None:
        """The known mean square of messages less the square of their measured mean, by column.

        With several messages about a coordinate a sample varies by what people differ by, too,
        which messages that nobody links do not tell: at most as much as vectors of that mean can.
        """
        if not self._centred:
            return None
        total = np.zeros(self.dimension)
        for level, weight in enumerate(allocation.level_weights(self.layout.num_levels)):
            sizes, contrast, _ = self.layout.coordinate_laws(level)
            messages = num_users * self.layout.repeats(level)
            ones_less_zeros = statistic[level, :, 1] - statistic[level, :, 0]
            centre = sizes * ones_less_zeros / (2 * contrast * messages)
            second, told = sizes / (4 * contrast**2), np.minimum(centre**2, 0.25)
            if self.rotates and sizes.max() == 1:
                second, told = second.mean(), told.mean()
            elif self.rotates:  # what columns tell, squared and added up, is least where it is even
                back = np.minimum(self._rotate_back(centre[None])[0] ** 2, self._longest_square)
                second, told = second.mean(), back / len(self.layout.blocks(level)[0])
            total += weight**2 * (second - told) / self.layout.repeats(level)
        total *= (2 * self._half_range) ** 2 * num_users / (num_users - 1)
        columns = self.messages_per_user if self.rotates else self.layout.num_levels
        if sampling == "iid" and (columns > 1 or self.layout.repeats(0) > 1):
            total += self._spread_left(self._mean(statistic, num_users), total / num_users)
        return total

    @property
    def _longest_square(self) -> float:
        """Of a component that was rotated back, in the squared unit of encoded coordinates."""
        return (self.radius / (2 * self._half_range)) ** 2

    @property
    def _reading_step(self) -> np.ndarray | float:
        """A report about a coordinate or none; where all are about it, what signs tell at most."""
        if self.rotates:
            return 2 * self.radius
        steps = [
            weight * np.where(sizes == 1, 2.0, sizes / contrast) / self.layout.repeats(level)
            for level, weight in enumerate(allocation.level_weights(self.layout.num_levels))
            for sizes, contrast, _ in [self.layout.coordinate_laws(level)]
        ]
        return np.asarray(self._half_range * np.max(steps, axis=0))

    def _level_variance(self, level: int, means: np.ndarray) -> np.ndarray:
        sizes, contrast, variance = self.layout.coordinate_laws(level)
        if self._centred:
            centres, second = means - 0.5, sizes / (4 * contrast**2)
        else:
            centres, second = means, sizes * (variance + means.mean(axis=0))
        if not self.rotates:
            return second - (centres**2).mean(axis=0)
        spread = np.full(self.dimension, second.mean())
        if sizes.max() == 1:
            return spread - (centres**2).mean()
        starts, lengths = self.layout.blocks(level)
        for start, length in zip(starts, lengths):
            inside = np.zeros_like(centres)
            inside[:, start : start + length] = centres[:, start : start + length]
            spread -= (self._rotate_back(inside) ** 2).mean(axis=0)
        return spread

    def _worst_level_variance(self, level: int) -> np.ndarray:
        """The largest that any vector gives a component (attained without rotation)."""
        sizes, contrast, variance = self.layout.coordinate_laws(level)
        last = level == self.layout.num_levels - 1
        certain = not last or self.norm == "binary"  # the bit is a function of the vector
        if self._centred:
            second = sizes / (4 * contrast**2)
            fixed = 0.25 if certain and (not self.rotates or sizes.max() == 1) else 0.0
        elif self.rotates:
            second, fixed = sizes * (variance + 1), 0.0
        else:
            # a(V + q) - q^2 over q in [0, 1], or in {0, 1}
            q = np.ones_like(contrast) if certain else np.minimum(1.0, sizes / 2)
            second, fixed = sizes * variance + np.maximum(0.0, sizes * q - q**2), 0.0
        if not self.rotates:
            return second - fixed
        return np.full(self.dimension, second.mean() - fixed)

    def _rotate_back(self, rows: np.ndarray) -> np.ndarray:
        """The orthonormal inverse of the rotation, row by row."""
        back = hadamard(rows)[:, : self.dimension]
        return back if self.signs is None else back * self.signs

    # What it costs ---------------------------------------------------------------------------

    def message_pairs(self) -> tuple[tuple[int, ShufflePair], ...]:
        """How many columns there are of each kind, and what a shuffled message of it hides in.

        One bit hides in the uniform bits of the others (mass 2p); places in a block are drawn
        independently of the data and change nothing.
        """
        kinds = Counter(self.layout.columns.log_ratio_max.tolist())
        return tuple((count, message_pair(budget)) for budget, count in kinds.items())

    def message_witness(self) -> tuple[tuple[int, float, float], ...]:
        """A concrete pair of data sets, for lower bounds of the price of shuffled messages.

        One person holds a vector that reaches as far as the ball does in every encoded
        coordinate, or its opposite; everybody else holds the opposite. Taking the known signs of
        the coordinates off the bits leaves nothing to be seen but how many of them are one.

        Returns:
            `(count, first, second)` per kind of column: the probabilities that this person's bit
            is one; everybody else's is one with probability `second`.
        """
        if self.preset is not None:
            return ()  # padding: not all of a block's coordinates differ
        vectors = np.zeros((2, self.dimension))
        vectors[0, : 1 if self.rotates else None] = self.radius
        if self.norm != "binary":
            vectors[1] = -vectors[0]
        unit, columns = self._encode(vectors), self.layout.columns
        kinds: Counter[tuple[float, float]] = Counter()
        for level in range(self.layout.num_levels):
            mean, opposite = bit_means(unit, level, self.layout.num_levels)
            reach = float(np.abs(mean - 0.5).min())
            if not reach or not np.allclose(mean + opposite, 1.0, rtol=0.0, atol=1e-12):
                continue  # a digit that rounds to the same side; leaving it out is allowed
            lows, counts = np.unique(columns.low[columns.level == level], return_counts=True)
            for low, count in zip(lows.tolist(), counts.tolist()):
                shift = (1 - low / 2.0**63) * reach
                kinds[0.5 + shift, 0.5 - shift] += count
        return tuple((count, *both) for both, count in kinds.items())

    @property
    def sends_bits(self) -> bool:
        return bool(np.all(self.layout.columns.size == 1))

    def dominating_pair(self) -> ShufflePair:
        """The pair of one message; with several, what is known of a whole row: clones.

        Columns that are permuted on their own are priced by `message_pairs` instead.

        Raises:
            ValueError: if a row as a whole is so weakly protected that no crowd hides it.
        """
        (count, pair), *others = self.message_pairs()
        if count == 1 and not others:
            return pair
        if self.local_epsilon > _HOPELESS:
            raise ValueError(
                f"local_epsilon={self.local_epsilon:g} of a whole row hides in no crowd; permute "
                "every message column on its own and use message_pairs"
            )
        return super().dominating_pair()
