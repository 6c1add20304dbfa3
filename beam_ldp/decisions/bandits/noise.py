"""What privacy adds to rewards: one bit a person, or Laplace noise on each reward or each sum.

Sums that a trusted server may show: rewards on a grid of integers, and exact noise once each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from beam_ldp.accounting.schedule_prices import feldman_2021_epsilon
from beam_ldp.accounting.shuffle.one_release import check_delta, check_epsilon
from beam_ldp.accounting.shuffle.solving import local_epsilon_for
from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.discrete_noise import discrete_laplace
from beam_ldp.randomizers.identity import config_digest
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.randomizers.randomness import FreshWords

# Sums that a trusted server may show --------------------------------------------------------------


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


# Noise of rewards ---------------------------------------------------------------------------------


Counts = NDArray[np.int64]

Kind = Literal["none", "sum", "laplace", "bit"]


def bit_randomizer(local_epsilon: float) -> ScalarMean:
    """One bit of a reward of [-1, 1]: rounded to -1 or 1 without bias, then randomized response.

    Exact by integer thresholds. Its blanket is 2/(e^epsilon + 1), larger than that of all
    randomizers of this epsilon, e^-epsilon.

    >>> round(bit_randomizer(1.0).dominating_pair().blanket_mass, 6), round(2 / (math.e + 1), 6)
    (0.537883, 0.537883)
    """
    return ScalarMean(1, local_epsilon=local_epsilon, radius=1.0, signed=True, cells=1)


@dataclass(frozen=True)
class RewardNoise:
    """Noise of the rewards of one batch.

    Neighbours differ in one person's outcomes: what she would have returned for each action. A
    reward is of [-1, 1], so that replacing one moves a sum by up to 2.

    Attributes:
        kind: "none"; "sum", a server's noise once for each action; "laplace" or "bit" on each
            reward, before it is sent. Bits are exact, and so is the discrete noise of sums
            (`CentralSums`). Laplace noise on floats is for simulations: its privacy is that of
            real numbers.
        epsilon: of one person's reward, local unless the kind is "sum"; None for "none".
        sensitivity: what noise is made for: 2. The text's 1 makes a report cost twice its epsilon.

    Source: specification of linear bandits, sections 5 to 7 and 10.

    >>> noise = RewardNoise("laplace", 0.5)
    >>> noise.laplace_scale, noise.log_ratio_max()
    (4.0, 0.5)
    """

    kind: Kind
    epsilon: float | None = None
    sensitivity: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            allowed = ", ".join(get_args(Kind))
            raise ValueError(f"kind must be one of {allowed}, got {self.kind!r}")
        if (self.epsilon is None) != (self.kind == "none"):
            raise ValueError('epsilon goes with every kind but "none"')
        if self.epsilon is not None:
            check_positive("epsilon", self.epsilon)
        check_positive("sensitivity", self.sensitivity)

    @cached_property
    def _bit(self) -> ScalarMean:
        assert self.epsilon is not None
        return bit_randomizer(self.epsilon)

    @property
    def laplace_scale(self) -> float:
        """Of the Laplace noise; 0 where there is none."""
        if self.kind not in ("sum", "laplace"):
            return 0.0
        assert self.epsilon is not None
        return self.sensitivity / self.epsilon

    @property
    def bound(self) -> float:
        """Largest size of a report but for Laplace noise; it is sub-Gaussian of this scale."""
        return 1.0 / self._bit.response.gain if self.kind == "bit" else 1.0

    def laplace_terms(self, counts: Counts) -> Counts:
        """How many independent Laplace variables are in the sum of each action."""
        if self.kind == "laplace":
            return counts
        return np.full_like(counts, int(self.kind == "sum"))

    def log_ratio_max(self) -> float:
        """What one reward may tell of its person, in epsilon, whatever was asked for."""
        if self.kind == "none":
            return math.inf
        return self._bit.log_ratio_max() if self.kind == "bit" else 2.0 / self.laplace_scale

    def reports(self, rewards: ArrayLike, rng: np.random.Generator | None = None) -> Floats:
        """What people send, one number for each reward; rewards are clipped to [-1, 1] first.

        Args:
            rewards: (n,) finite.
            rng: of a simulation, which protects nobody. None draws bits securely, and refuses
                Laplace noise.
        """
        values = np.asarray(rewards, dtype=np.float64)
        if values.ndim != 1 or not np.isfinite(values).all():
            raise ValueError("rewards must be finite numbers, one a person")
        values = np.clip(values, -1.0, 1.0)
        if self.kind == "bit":
            return self.bound * (2.0 * self._bit.randomize(values[:, None], rng=rng) - 1.0)
        if self.kind == "laplace":
            return values + _simulated(rng).laplace(0.0, self.laplace_scale, len(values))
        return values

    def sums(
        self, reports: ArrayLike, slots: ArrayLike, num_actions: int,
        rng: np.random.Generator | None = None,
    ) -> Floats:  # fmt: skip
        """Sums of reports for each action, with the server's noise if it is the one who adds it.

        Args:
            reports: (n,) numbers.
            slots: (n,) indices of the actions of the batch that they are about.
            num_actions: of the batch.
            rng: of a simulation, with Laplace noise. None adds discrete noise, securely.
        """
        weights = np.asarray(reports, dtype=np.float64)
        if self.kind == "sum" and rng is None:
            if self.sensitivity != 2.0:
                raise ValueError(f"sensitivity of a release must be 2, got {self.sensitivity}")
            assert self.epsilon is not None
            return CentralSums(self.epsilon).release_rewards(weights, slots, num_actions)
        found = np.bincount(np.asarray(slots), weights, num_actions).astype(np.float64)
        if self.kind == "sum":
            found = found + _simulated(rng).laplace(0.0, self.laplace_scale, num_actions)
        return found

    def sums_in_law(self, counts: Counts, means: Floats, rng: np.random.Generator) -> Floats:
        """A simulation aid: sums with the law of `sums`, without anybody's reward being drawn.

        Rewards are -1 or 1 with the given means, independent; each sum costs O(1), whatever the
        number of people.

        Args:
            counts: (c,) people of each action.
            means: (c,) of their rewards, in [-1, 1].
            rng: of the simulation.
        """
        ones = rng.binomial(counts, np.clip((1 + means / self.bound) / 2, 0.0, 1.0))
        found = np.asarray(self.bound * (2.0 * ones - counts))
        if self.kind == "laplace":
            difference = rng.standard_gamma(counts) - rng.standard_gamma(counts)
            return found + self.laplace_scale * difference
        if self.kind == "sum":
            return found + rng.laplace(0.0, self.laplace_scale, len(counts))
        return found


def _simulated(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        raise ValueError('rng must be given: Laplace reports are simulations; kind "bit" is exact')
    return rng


# Which local epsilon a shuffled batch may use -----------------------------------------------------


Accountant = Literal["bit", "clones", "closed-form"]


@lru_cache(maxsize=4096)
def batch_epsilon(epsilon: float, delta: float, people: int, accountant: Accountant) -> float:
    """The largest local epsilon of reports of which `people` are shuffled; at least `epsilon`.

    Reports of a local epsilon cost no more than that once they are shuffled, so that small batches
    need no smaller one: the text's inverse alone asks for 0.46 where 1 does.

    People get their actions by a secret assignment, or have the same action. For bits, the pair of
    one bit holds over a batch of several actions too: given which reports are not of the blanket,
    the outcomes of one person at a uniform place change the density of the rest by a sum that is
    linear in them, with independent fair signs, so that the hockey-stick divergence is largest at
    outcomes of 1 against -1 whatever the signs. For other reports clones hold (each place may have
    a randomizer of its own).

    Args:
        epsilon: central target, > 0.
        delta: of it.
        people: reports that are shuffled with one another.
        accountant: "bit" for one-bit reports; "clones" for any; "closed-form" is the text's.

    Source: specification of linear bandits, sections 7.2 and 7.3.

    >>> [round(batch_epsilon(1.0, 1e-6, 1000, a), 3) for a in ("bit", "clones", "closed-form")]
    [3.271, 2.724, 1.414]
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_integer("people", people, 1)
    if accountant not in get_args(Accountant):
        allowed = ", ".join(get_args(Accountant))
        raise ValueError(f"accountant must be one of {allowed}, got {accountant!r}")
    if accountant == "closed-form":
        return _closed_form(epsilon, delta, people)
    return local_epsilon_for(
        epsilon, delta, people, bit_randomizer if accountant == "bit" else None
    )


def _closed_form(epsilon: float, delta: float, people: int) -> float:
    """Within the theorem's hypothesis, eps0 <= log(n / (16 log(4/delta))), which the text omits."""
    if delta == 0.0 or people <= 16 * math.log(4 / delta):
        return epsilon
    largest = math.log(people / (16 * math.log(4 / delta)))

    def excess(local_epsilon: float) -> float:
        return feldman_2021_epsilon(local_epsilon, people, delta) - epsilon

    if largest <= epsilon or excess(largest) <= 0:
        return max(epsilon, largest)
    return max(epsilon, float(brentq(excess, 1e-12, largest, xtol=1e-12)) * (1 - 1e-9))
