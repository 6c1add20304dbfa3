"""Means of vectors of a Euclidean ball by bits of their rotated coordinates."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.base import accounting
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import allocation
from beam_ldp.randomizers.mean.base import Norm
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.special import brentq
from beam_ldp.randomizers.walsh_hadamard import (
    padded_size,
    public_signs,
    rotation_seed_of,
    truncation_bias,
)

_PRINTED_CONSTANT = 10.0
_PRINTED_FAILURE = 0.01
_BIAS_SHARE = 0.1
_MOST_BITS = 8  # per coordinate, in the shuffle model
_BY_BLOCKS = ("method", "levels", "messages", "preset")  # options of `BlockMean.for_shuffle`


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
    def for_shuffle(
        cls,
        dimension: int,
        epsilon: float,
        delta: float,
        num_users: int,
        **options: Any,
    ) -> L2Mean:
        """As `BlockMean.for_shuffle`, priced by the length of vectors where that is better.

        With one level, neighbours' bits differ by as little as vectors of bounded length can
        (`method="l2"`; `accounting.shuffle.mean_price`): far less noise than if all bits of a user
        could flip, but a bit is a coarse number. Several levels are fine ones, and all of their
        bits may flip. The default takes the better of the two within 8 bits per coordinate;
        `max_bits` and `max_messages` the one of least error within these.

        >>> few, more = (
        ...     L2Mean.for_shuffle(16, 1.0, 1e-6, 20_000, max_bits=bits) for bits in (64, 1024)
        ... )
        >>> few.messages, more.messages
        ((16, 16, 16, 16), (1024,))
        """
        build = partial(super().for_shuffle, dimension, epsilon, delta, num_users)
        method, levels, messages = (options.get(k) for k in ("method", "levels", "messages"))
        count = messages[0] if isinstance(messages, Sequence) and len(messages) == 1 else messages
        plain = levels in (None, 1) and not isinstance(count, Sequence)
        if options.get("preset") or method not in (None, "auto", "l2") or not plain:
            return build(**options)
        max_bits, max_messages = options.pop("max_bits", None), options.pop("max_messages", None)
        options = {k: v for k, v in options.items() if k not in _BY_BLOCKS}
        size = padded_size(dimension)
        most = None
        if max_bits is not None or max_messages is not None:
            if levels or count:
                raise ValueError(
                    "max_bits and max_messages choose levels and messages: give one or the other"
                )
            most = allocation.most_messages(size, max_bits, max_messages)
        mu = accounting("shuffle.multi_message").gaussian_mu(epsilon, delta)
        target = epsilon, delta, num_users, mu
        fixed = count or (most if most and most < size else None)
        if fixed and fixed % size:
            if fixed < size:
                return cls._of_blocks(build(messages=(fixed,), **options), fixed, *target)
            if method == "l2":
                raise ValueError(f"messages must be a multiple of {size} or fewer, got {fixed}")
            return build(levels=levels, messages=messages, **options)
        cutoff = options.pop("cutoff", None) or _cutoff_for_noise(2 / (num_users * mu))
        cutoff = min(cutoff, math.sqrt(size))
        rounding = cutoff**2 * num_users * mu**2 / (4 * size)  # over the privacy error
        each = min(_MOST_BITS, max(1, math.ceil(rounding)))
        if fixed or most:
            each = (fixed or most or 0) // size
        change = each * size / max(1.0, cutoff**2)
        budget = accounting("shuffle.mean_price").calibrate_l2_messages(
            each * size, change, *target
        )
        bits = cls(
            dimension,
            each * size * budget * (1 + 1e-14),
            messages=(each * size,),
            message_epsilons=(budget,),
            cutoff=cutoff,
            **cls._shuffle_options(num_users, options),
        )
        # What even exact numbers cost if all that tells them may flip.
        numbers = size * (2 * cutoff * bits.radius / (num_users * mu)) ** 2
        noise = bits.mean_squared_error(num_users)
        if method == "l2" or fixed or levels or noise <= numbers:
            return bits
        several = min(most // size if most else _MOST_BITS, allocation.shuffle_levels(
            size, num_users, mu
        ))  # fmt: skip
        return min(bits, build(levels=several, **options), key=lambda one: one._error(num_users))

    @classmethod
    def _of_blocks(
        cls, flipping: L2Mean, count: int, epsilon: float, delta: float, num_users: int, mu: float
    ) -> L2Mean:
        """Messages about one of several coordinates, with the larger of two proven budgets.

        Args:
            flipping: the same, with the budget of messages that all flip.
            count: messages, fewer than coordinates.
        """
        assert flipping.squared_change is not None and flipping.message_epsilons is not None
        budget = 0.0
        with contextlib.suppress(ValueError):  # no budget is large enough for the target
            budget = accounting("shuffle.mean_price").calibrate_l2_messages(
                count, flipping.squared_change, epsilon, delta, num_users, mu,
                places=flipping.places_per_message,
            )  # fmt: skip
        if budget <= flipping.message_epsilons[0]:
            return flipping
        total = count * budget * (1 + 1e-14)
        return replace(flipping, local_epsilon=total, message_epsilons=(budget,))

    def _error(self, num_users: int) -> float:
        return self.mean_squared_error(num_users) + self.shift_bound**2

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
        return coordinates / max(1.0, self.cutoff**2) / int(self.layout.blocks(0)[1].min())

    @property
    def places_per_message(self) -> int:
        """Coordinates of the largest block: each message speaks about one of so many, or one less.

        One says that each message is about a coordinate of its own.
        """
        return int(self.layout.blocks(0)[1].max())

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


def _cutoff_for_noise(noise: float, *, grows: bool = False) -> float:
    """The smallest cutoff that keeps the bias of a component below a tenth of the noise.

    `grows`: the noise is `noise` times the cutoff.
    """

    def excess(cutoff: float) -> float:
        bias = math.log(truncation_bias(cutoff)[1])
        return bias - math.log(_BIAS_SHARE * noise * (cutoff if grows else 1.0))

    return float(brentq(excess, 1e-6, 30.0)) if excess(30.0) < 0 < excess(1e-6) else 30.0
