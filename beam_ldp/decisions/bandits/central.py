"""Sums that a trusted server may show: rewards on a grid of integers, and exact noise once each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.discrete_laplace import discrete_laplace
from beam_ldp.randomizers.identity import config_digest
from beam_ldp.randomizers.randomness import FreshWords

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class CentralSums:
    """Sums of rewards for each action, with discrete Laplace noise of exact law.

    Protects one person's reward, replaced by any other, against everybody who sees what is
    released, with epsilon and delta 0; the server that adds the noise sees it. A reward becomes an
    integer of [-cells, cells], so that a person moves one sum by at most 2 cells; each sum gets an
    integer z with probability proportional to e^(-epsilon |z| / (2 cells)). For a person of one sum
    of one release only: of two, the costs add up.

    Widths that count a Laplace variable of scale 2/epsilon hold: the rounded reward has the mean of
    the reward and lies in [-1, 1], and at every exponent u the noise z, of rate a, has the moment
    E e^(u z) = 1/(1 - (sinh(u/2)/sinh(a/2))^2) <= 1/(1 - (u/a)^2), the Laplace variable's, since
    sinh(x)/x grows with x.

    Every call of `release` draws new noise: whoever sees two releases of the same sums has paid
    twice. Write down what was released before it is shown, and show that from then on.

    Attributes:
        epsilon: of a release; exactly that of the float that is given.
        cells: of a reward of size 1.
        local_epsilon: infinite: the server is told rewards as they are.
        exactness, messages_per_user, bits_per_report: as of a `LocalRandomizer`.

    Source: specification of linear bandits, section 5.

    >>> sums = CentralSums(epsilon=2.0)
    >>> sums.integers([1.0, -1.0, 7.0]).tolist()
    [1048576, -1048576, 1048576]
    >>> bool(abs(sums.release([3 * sums.cells])[0] - 3) < 40)
    True
    """

    epsilon: float
    cells: int = 1 << 20

    local_epsilon: ClassVar[float] = math.inf
    exactness: ClassVar[str] = "exact"
    messages_per_user: ClassVar[int] = 1
    bits_per_report: ClassVar[int] = 64

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_integer("cells", self.cells, 1, 1 << 30)

    @property
    def rate(self) -> Fraction:
        """Of the noise: probabilities fall by a factor e^-rate for each cell."""
        return Fraction(self.epsilon) / self.largest_move

    @property
    def largest_move(self) -> int:
        """What replacing one reward changes of one sum at most, in cells."""
        return 2 * self.cells

    def integers(self, rewards: ArrayLike) -> Integers:
        """(n,) rewards in cells: clipped to [-1, 1], and rounded up or down without bias.

        The privacy does not depend on how they are rounded.

        Args:
            rewards: (n,) finite.
        """
        values = np.asarray(rewards, dtype=np.float64)
        if values.ndim != 1 or not np.isfinite(values).all():
            raise ValueError("rewards must be finite numbers, one a person")
        exact = np.clip(values, -1.0, 1.0) * self.cells
        lower = np.floor(exact)
        uniform = (FreshWords().words(0, len(exact), 1)[:, 0] >> np.uint64(11)) / 2**53
        return np.asarray(lower + (uniform < exact - lower), dtype=np.int64)

    def release(self, sums: ArrayLike) -> Floats:
        """(c,) noisy sums, in the unit of rewards; noise is drawn securely, anew at every call.

        Args:
            sums: (c,) integers: of `integers`, over the people of each action.
        """
        exact = np.asarray(sums)
        if exact.ndim != 1 or exact.dtype.kind not in "iu":
            raise ValueError("sums must be integers, one an action: add up what `integers` returns")
        noisy = [total + discrete_laplace(self.rate) for total in exact.tolist()]
        return np.array([total / self.cells for total in noisy], dtype=np.float64)

    def release_rewards(self, rewards: ArrayLike, slots: ArrayLike, num_actions: int) -> Floats:
        """The same from (n,) rewards and the (n,) indices of the actions that they are about."""
        places = np.asarray(slots)
        if len(places) and not 0 <= places.min() <= places.max() < num_actions:
            raise ValueError(f"slots must lie in [0, {num_actions})")
        sums = np.zeros(num_actions, dtype=np.int64)
        np.add.at(sums, places, self.integers(rewards))
        return self.release(sums)

    # What a release is, and how far it is off -----------------------------------------------------

    @property
    def event(self) -> Any:
        """What a release costs, as a `dp_accounting.DpEvent`: epsilon at delta 0, exactly.

        Its sensitivity is the size of one reward, in cells: replacing one moves a sum by twice as
        much.
        """
        from dp_accounting import dp_event  # takes a second to load

        return dp_event.DiscreteLaplaceDpEvent(float(self.rate), self.cells)

    def to_config(self) -> dict[str, Any]:
        """Parameters as JSON-able values, for records and ledgers."""
        told = {"mechanism": type(self).__name__, "version": 1}
        return {**told, "epsilon": self.epsilon, "cells": self.cells}

    def config_digest(self) -> bytes:
        """16 bytes that identify the mechanism and its parameters."""
        return config_digest(self.to_config())

    def standard_error(self, count: int) -> float:
        """Of the mean of `count` people's rewards, at most: of noise, and of which people came."""
        noise = 1 / (2 * math.sinh(float(self.rate) / 2) ** 2) / self.cells**2
        return math.sqrt(count + noise) / count

    def half_width(self, count: int, level: float) -> float:
        """Of an interval around the mean of `count` people's rewards that covers the mean of all.

        Rewards are counted as normal, of variance 1, the most there is; noise by its own law, whose
        tails are longer: 1.96 standard errors would cover 94 % where noise is all there is.
        """
        check_fraction("level", level)
        deviation, scale = math.sqrt(count), 2 / self.epsilon
        miss = 1 - level
        most = deviation * -special.ndtri(miss / 4) + scale * math.log(2 / miss)

        def excess(distance: float) -> float:
            return 2 * _tail(distance, deviation, scale) - miss

        return special.brentq(excess, 0.0, most) / count


def _tail(distance: float, deviation: float, scale: float) -> float:
    """How likely a normal and a Laplace variable sum to more than a distance >= 0."""
    near, ratio = distance / deviation, deviation / scale
    falling = ratio**2 / 2 - distance / scale + float(special.log_ndtr(near - ratio))
    rising = ratio**2 / 2 + distance / scale + float(special.log_ndtr(-near - ratio))
    return float(special.ndtr(-near)) + (math.exp(falling) - math.exp(rising)) / 2
