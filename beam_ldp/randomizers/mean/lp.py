"""Means of vectors of the balls of lp norms, and of bits: the presets of the block family."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.base import accounting
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean.base import Norm
from beam_ldp.randomizers.mean.block_mean import BlockMean, Preset
from beam_ldp.randomizers.special import brentq
from beam_ldp.randomizers.walsh_hadamard import (
    hadamard,
    hadamard_back,
    padded_size,
    public_signs,
    rotation_seed_of,
    truncation_bias,
)

# Means of vectors of a Euclidean ball, through a public rotation --------------------------

_PRINTED_CONSTANT = 10.0
_PRINTED_FAILURE = 0.01
_BIAS_SHARE = 0.1
_MOST_BITS = 8  # per coordinate, in the shuffle model
_LEVELS_COST = 1.6  # error of several levels over cutoff^2 times the Gaussian mechanism's


@dataclass(frozen=True)
class L2Mean(BlockMean):
    """Mean of vectors of Euclidean length at most `radius`.

    Random public signs and a Walsh-Hadamard transform spread every vector evenly, so that its
    `size` coordinates (the next power of two) rarely exceed `cutoff * radius/sqrt(size)`; what
    does is truncated there. The choice of the signs must not depend on the data; privacy holds
    for every choice.

    The default cutoff is the smallest one whose bias, in expectation over the signs, stays below
    a tenth of the standard error for up to `expected_users` users; `bias_bound` says what is
    left of it, on average over the signs. Confidence intervals cover with their level over noise
    and signs (`intervals`): by 1.1 times as wide for one component, more for many at once, which
    may be shifted together. `cutoff=math.inf` truncates nothing.

    Zero-padding costs no accuracy: the noise of the padding is dropped when the rotation is
    undone.

    Source: thesis, Algorithms 3.6.1 and 3.6.2, Theorems 3.6.1 and 3.6.2 (their cutoff, with the
    constant 10, is `preset="thesis"`).

    Args:
        dimension: coordinates per vector.
        local_epsilon: local budget.
        cutoff: truncation of rotated coordinates, in units of radius/sqrt(size).
        rotation_seed: public seed of the signs, the same for all users of one release. None: that
            of the release (`for_release`), so that no value can have been chosen for it; outside of
            a release with a name, 0.
        expected_users: up to how many users the default cutoff keeps the bias below the noise.

    >>> mechanism = L2Mean(dimension=784, local_epsilon=4.0)
    >>> mechanism.messages_per_user, mechanism.num_coordinates
    (2, 1024)
    """

    cutoff: float | None = None
    rotation_seed: int | None = None
    expected_users: int = 1_000_000

    norm: ClassVar[Norm] = "l2"
    decoding: ClassVar[str] = "O(d log d), Walsh-Hadamard"
    rotates: ClassVar[bool] = True
    bias_on_average: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("expected_users", self.expected_users, 1)
        seed = self.rotation_seed
        if seed is not None:
            check_integer("rotation_seed", seed, 0)
        cutoff = self.cutoff
        if cutoff is None:
            cutoff = self._default_cutoff()
        if not cutoff > 0:
            raise ValueError(f"cutoff must be a number > 0, got {cutoff}")
        # No rotated coordinate is longer than the vector.
        object.__setattr__(self, "cutoff", min(float(cutoff), math.sqrt(self.num_coordinates)))

    def for_release(self, identity: ReleaseIdentity) -> L2Mean:
        if self.rotation_seed is not None:
            return self
        return replace(self, rotation_seed=rotation_seed_of(identity))

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        return padded_size(dimension)

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
        method: str = "auto",
        preset: Preset | None = None,
        **options: Any,
    ) -> L2Mean:
        """As `BlockMean.for_shuffle`, priced by the length of vectors where that is better.

        With one level and whole numbers of bits per coordinate, neighbours' bits differ by as
        little as vectors of bounded length can (`method="l2"`; `accounting.shuffle.mean_price`):
        far less noise than if all bits of a user could flip. That is the default up to some
        million users, with up to 8 bits per coordinate.
        """
        general = super().for_shuffle
        shared: dict[str, Any] = {"levels": levels, "messages": messages, "preset": preset}
        plain = levels in (None, 1) and (messages is None or isinstance(messages, int))
        if preset or method not in ("auto", "l2") or not plain:
            return general(dimension, epsilon, delta, num_users, method=method, **shared, **options)
        size = padded_size(dimension)
        mu = accounting("shuffle.multi_message").gaussian_mu(epsilon, delta)
        cutoff = options.pop("cutoff", None) or _cutoff_for_noise(2 / (num_users * mu))
        cutoff = min(cutoff, math.sqrt(size))
        rounding = cutoff**2 * num_users * mu**2 / (4 * size)  # over the privacy error
        count = size * min(_MOST_BITS, max(1, math.ceil(rounding)))
        if messages is not None:
            count = int(messages)  # type: ignore[arg-type]
        repeats, rest = divmod(count, size)
        too_coarse = rest > 0 or (
            messages is None and 1 + rounding / repeats > _LEVELS_COST * cutoff**2
        )
        if method == "auto" and too_coarse and levels is None:
            return general(dimension, epsilon, delta, num_users, **shared, **options)
        if rest:
            raise ValueError(f'messages must be a multiple of {size} for method "l2", got {count}')
        change = count / max(1.0, cutoff**2)
        calibrate = accounting("shuffle.mean_price").calibrate_l2_messages
        budget = calibrate(count, change, epsilon, delta, num_users, mu)
        return cls(
            dimension,
            count * budget * (1 + 1e-14),
            messages=(count,),
            message_epsilons=(budget,),
            cutoff=cutoff,
            **cls._shuffle_options(num_users, options),
        )

    @property
    def squared_change(self) -> float | None:
        """How far two users' vectors can be apart, in units of messages that flip in full.

        The largest sum over messages of the mean of ((w - w')/(2 half_range))^2 over the places
        of their blocks. None where coordinates have several digits: nothing better is known then
        than that all bits flip.
        """
        if self.layout.num_levels > 1:
            return None
        assert self.cutoff is not None
        coordinates = self.num_coordinates * self.layout.repeats(0)
        return coordinates / max(1.0, self.cutoff**2) / self.places_per_message

    @property
    def places_per_message(self) -> int:
        """Coordinates of the smallest block: each message speaks about one of so many, or more."""
        return int(self.layout.blocks(0)[1].min())

    def message_witness(self) -> tuple[tuple[int, float, float], ...]:
        """As for the family, or vectors that reach the cutoff in few coordinates, if that is worse.

        The first half of the padded coordinates is data. A vector of it rotates into any vector
        whose halves are equal: all its length can sit at the cutoff, where bits flip in full and
        those of the others, who hold its opposite, vary least. Of a message about one of several
        places it is told apart whether it is a one at such a place.
        """
        even = super().message_witness()
        if not even or self.squared_change is None or self.num_coordinates == 1:
            return even
        assert self.cutoff is not None
        half = self.num_coordinates // 2
        reached = np.zeros(half, dtype=np.int64)
        reached[: int(half / max(1.0, self.cutoff**2))] = 1
        starts, sizes = self.layout.blocks(0)
        inside = np.add.reduceat(np.tile(reached, 2), starts)
        kinds: Counter[tuple[float, float]] = Counter()
        for flips, size in zip(inside.tolist(), sizes.tolist()):
            if flips:
                share, flip = flips / size, self.layout.law(0, size).flip_probability
                kinds[share * (1 - flip), share * flip] += self.layout.repeats(0)
        full = tuple((count, *both) for both, count in kinds.items())

        def telling(witness: tuple[tuple[int, float, float], ...]) -> float:
            return sum(n * (a - b) ** 2 / (b * (1 - b)) for n, a, b in witness)

        return max(even, full, key=telling)

    @classmethod
    def _shuffle_options(cls, num_users: int, options: dict[str, Any]) -> dict[str, Any]:
        return {"expected_users": num_users, **options}

    def _default_cutoff(self) -> float:
        if self.preset == "thesis":
            size = self.num_coordinates
            return _PRINTED_CONSTANT * math.sqrt(
                math.log(size * self.expected_users / _PRINTED_FAILURE)
            )
        # The noise scales with the cutoff: take it at cutoff one.
        object.__setattr__(self, "cutoff", 1.0)
        noise = math.sqrt(float(self.variance(self.expected_users).max())) / self.radius

        return _cutoff_for_noise(noise, grows=True)

    @property
    def _truncates(self) -> bool:
        assert self.cutoff is not None
        return self.cutoff < math.sqrt(self.num_coordinates)

    @property
    def bias_bound(self) -> float:
        """Expected absolute bias over the public signs, of the component that is shifted most.

        Every component's is at most the sum of what is cut off, over the root of the size; so is
        the largest of them, and on average that sum is bounded coordinate by coordinate.
        """
        assert self.cutoff is not None
        return truncation_bias(self.cutoff)[1] * self.radius if self._truncates else 0.0

    def bias_bound_at(self, failure_probability: float) -> float:
        """Absolute bias of all components that the signs exceed with at most this probability.

        Markov's inequality, for vectors that do not depend on the signs. Intervals use more: see
        `intervals`.
        """
        check_fraction("failure_probability", failure_probability, "(]")
        return self.bias_bound / failure_probability

    @property
    def bias_norm_bound(self) -> float:
        """Root mean square length of the bias vector over the public signs, at most."""
        assert self.cutoff is not None
        return truncation_bias(self.cutoff)[0] * self.radius if self._truncates else 0.0

    @property
    def shift_bound(self) -> float:
        return min(self.bias_norm_bound, self.dimension * self.bias_bound)

    @property
    def _half_range(self) -> float:
        assert self.cutoff is not None
        return self.cutoff * self.radius / math.sqrt(self.num_coordinates)

    @property
    def signs(self) -> np.ndarray:
        """Public signs of the rotation, +-1: float64, (dimension,)."""
        return public_signs(self.dimension, self.rotation_seed or 0)

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        return hadamard(vectors, self.signs)

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        return hadamard_back(2 * self._half_range * coordinates, self.dimension, self.signs)

    def _rotate_back(self, rows: np.ndarray) -> np.ndarray:
        return hadamard(rows)[:, : self.dimension] * self.signs


def _cutoff_for_noise(noise: float, *, grows: bool = False) -> float:
    """The smallest cutoff that keeps the bias of a component below a tenth of the noise.

    `grows`: the noise is `noise` times the cutoff.
    """

    def excess(cutoff: float) -> float:
        bias = math.log(truncation_bias(cutoff)[1])
        return bias - math.log(_BIAS_SHARE * noise * (cutoff if grows else 1.0))

    return float(brentq(excess, 1e-6, 30.0)) if excess(30.0) < 0 < excess(1e-6) else 30.0


# Means of vectors of an l1 ball: histograms, sparse updates, distributions ----------------


@dataclass(frozen=True)
class L1Mean(BlockMean):
    """Mean of vectors whose absolute entries add up to at most `radius`.

    A user sends noisy bits of Walsh-Hadamard coefficients, each of which is at most `radius` for
    every vector of the ball (an extreme point of the ball makes all of them equally large).

    Cost: one transform per user, O(size log size), `size` the next power of two; one transform
    to read back.

    Source: thesis, Algorithm 3.4.1, Theorems 3.4.1 and 3.4.2.

    >>> mechanism = L1Mean(dimension=1000, local_epsilon=1.0)
    >>> mechanism.messages_per_user, mechanism.bits_per_report
    (1, 11)
    """

    norm: ClassVar[Norm] = "l1"
    decoding: ClassVar[str] = "O(d log d), Walsh-Hadamard"
    rotates: ClassVar[bool] = True

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        return padded_size(dimension)

    @property
    def _half_range(self) -> float:
        return self.radius / math.sqrt(self.num_coordinates)

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        return hadamard(vectors)

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        return hadamard_back(2 * self._half_range * coordinates, self.dimension)

    def _rotate_back(self, rows: np.ndarray) -> np.ndarray:
        return hadamard(rows)[:, : self.dimension]


# Means of vectors whose coordinates lie in an interval ------------------------------------


@dataclass(frozen=True)
class LInfMean(BlockMean):
    """Mean of vectors with coordinates in [-radius, radius] (dimension 1: a scalar).

    Coordinates are written as binary numbers, the last digit rounded at random; every digit is
    one level of noisy bits. One level suffices until the budget reaches every coordinate.

    Cost: one word and a few nanoseconds per message; reading back is linear in the coordinates.

    Source: thesis, Algorithms 3.5.1 and 3.5.2, Theorems 3.5.1 and 3.5.2.

    >>> mechanism = LInfMean(dimension=3, local_epsilon=2.0)
    >>> reports = mechanism.randomize(np.array([[0.5, -1.0, 0.0]] * 1000))
    >>> estimate = mechanism.estimate(mechanism.accumulate(reports), 1000)
    >>> estimate.value.shape, mechanism.messages_per_user
    ((3,), 1)
    """

    norm: ClassVar[Norm] = "linf"
    decoding: ClassVar[str] = "O(d)"

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        return dimension

    @property
    def _half_range(self) -> float:
        return self.radius

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        return vectors

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        return 2 * self.radius * coordinates


def lp_mean(
    dimension: int, local_epsilon: float, p: float, radius: float = 1.0, **options: Any
) -> BlockMean:
    """The local mechanism with the least predicted error for the l_p ball of `radius`.

    The ball lies inside larger balls of the norms that mechanisms exist for: for p < 2 in the l2
    ball of the same radius and in the l1 ball of radius * d^(1 - 1/p); for p > 2 in the cube of
    the same radius and in the l2 ball of radius * d^(1/2 - 1/p). (Remark 3.4.1 of the thesis has
    the inclusion of the l_p balls in the l1 ball the wrong way round.)

    Args:
        dimension: coordinates per vector.
        local_epsilon: local budget.
        p: norm, from 1 to `math.inf`.
        radius: of the l_p ball. Vectors are clipped to the larger ball only.
        **options: passed on (clipping, preset).

    >>> type(lp_mean(100, 1.0, p=1.9)).__name__, type(lp_mean(100, 1.0, p=1.05)).__name__
    ('L2Mean', 'L1Mean')
    """
    candidates = _enclosing(dimension, p, radius)
    built = [cls(dimension, local_epsilon, outer, **options) for cls, outer in candidates]
    return min(built, key=lambda mechanism: mechanism.mean_squared_error(1))


def lp_mean_for_shuffle(
    dimension: int,
    epsilon: float,
    delta: float,
    num_users: int,
    p: float,
    radius: float = 1.0,
    **options: Any,
) -> BlockMean:
    """The same in the multi-message shuffle model, for a central (epsilon, delta)."""
    candidates = _enclosing(dimension, p, radius)
    built = [
        cls.for_shuffle(dimension, epsilon, delta, num_users, radius=outer, **options)
        for cls, outer in candidates
    ]
    return min(built, key=lambda mechanism: mechanism.mean_squared_error(num_users))


def _enclosing(dimension: int, p: float, radius: float) -> list[tuple[type[BlockMean], float]]:
    if not p >= 1:
        raise ValueError(f"p must be a number >= 1, got {p}")
    if p <= 2:
        return [(L2Mean, radius), (L1Mean, radius * dimension ** (1 - 1 / p))]
    inverse = 0.0 if p == math.inf else 1 / p
    return [(LInfMean, radius), (L2Mean, radius * dimension ** (0.5 - inverse))]


# Means of binary vectors: the share of users who hold each bit ----------------------------


@dataclass(frozen=True)
class BinaryVectorMean(BlockMean):
    """Mean of vectors of {0, 1}^dimension: any number of yes/no answers per user.

    Every message names one coordinate of its block and carries its bit through randomized
    response. `radius` has no meaning here and must stay 1.

    Source: thesis, Algorithms 3.3.1 and 3.3.2, Theorems 3.3.1 and 3.3.2.

    >>> mechanism = BinaryVectorMean(dimension=4, local_epsilon=1.7)
    >>> mechanism.messages_per_user, mechanism.bits_per_report
    (1, 3)
    """

    norm: ClassVar[Norm] = "binary"
    decoding: ClassVar[str] = "O(d)"
    max_levels: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius != 1.0:
            raise ValueError(f"radius must be 1 for binary vectors, got {self.radius}")

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        return dimension

    @property
    def _half_range(self) -> float:
        return 0.5

    @property
    def _affine(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        return vectors

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        return coordinates + 0.5

    def channel(self) -> np.ndarray:
        """P(report | value) of a small mechanism, by enumeration.

        Columns are the 2^dimension binary vectors, coordinate 0 the most significant digit; rows
        are the rows of messages in mixed radix, column 0 the most significant.
        """
        values = (np.arange(2**self.dimension)[:, None] >> np.arange(self.dimension)[::-1]) & 1
        table = np.ones((1, len(values)))
        for t, size in enumerate(self.layout.columns.size.tolist()):
            low = self.layout.columns.low[t] / 2.0**64
            start = int(self.layout.columns.start[t])
            held = np.zeros((size, len(values)), dtype=bool)
            known = values.T[start : start + size].astype(bool)
            held[: len(known)] = known
            one = np.where(held, 1 - low, low) / size
            rows = np.stack([1 / size - one, one], axis=1).reshape(2 * size, -1)
            table = (table[:, None, :] * rows[None]).reshape(-1, len(values))
        return table
