"""What privacy adds to rewards: one bit a person, or Laplace noise on each reward or each sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from beam_ldp.accounting.schedule_prices import feldman_2021_epsilon
from beam_ldp.accounting.shuffle.one_release import check_delta, check_epsilon
from beam_ldp.accounting.shuffle.solving import local_epsilon_for
from beam_ldp.decisions.bandits.central import CentralSums
from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.mean import ScalarMean

Floats = NDArray[np.float64]
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
