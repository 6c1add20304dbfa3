"""Who takes part in a round. A sampler draws clients, says how, and what that makes of a price.

The credit for sampling holds only if nobody but the sampler knows who was drawn, so draws come
from the operating system's generator.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
)


class SamplingMismatchError(RuntimeError):
    """What took part in a round is not what was declared, so the round's price would be wrong."""


@dataclass(frozen=True)
class Cohort:
    """The clients of one round.

    Attributes:
        clients: their indices.
        sampler: who drew them.
    """

    clients: tuple[int, ...]
    sampler: Sampler


@dataclass(frozen=True)
class Sampler(ABC):
    """Draws the clients of each round.

    Attributes:
        num_clients: n, clients to draw from.
    """

    num_clients: int

    def __post_init__(self) -> None:
        if isinstance(self.num_clients, bool) or self.num_clients < 1:
            raise ValueError(f"num_clients must be an integer >= 1, got {self.num_clients}")

    @property
    @abstractmethod
    def clients_per_round(self) -> float:
        """Clients in a round; with coins, on average."""

    @abstractmethod
    def event(
        self,
        local: LocalRandomizerDpEvent,
        points_per_client: int = 1,
        points_sampled: int = 1,
    ) -> ShuffledDpEvent | SubsampledShuffledDpEvent:
        """What one round releases, against readers who cannot see who took part.

        Args:
            local: the event of one report (`beam_ldp.accounting.local_event`).
            points_per_client: m, data points that each client holds; one of them is protected.
            points_sampled: s of them, drawn anew, each reported on its own.
        """

    @abstractmethod
    def _draw(self, generator: np.random.Generator) -> np.ndarray:
        """Indices of the clients of one round."""

    @abstractmethod
    def _fits(self, count: int) -> bool:
        """Whether so many different clients can be one round's."""

    def sample(self, generator: np.random.Generator | None = None) -> Cohort:
        """The clients of one round.

        Args:
            generator: for simulations only: who can repeat the draws knows who took part.
        """
        if generator is None:
            generator = np.random.Generator(np.random.PCG64(secrets.randbits(256)))
        return Cohort(tuple(int(i) for i in self._draw(generator)), self)

    def check(self, clients: Sequence[int]) -> None:
        """Refuses a round that is not as declared: its price would be too low.

        Raises:
            SamplingMismatchError: on clients that are unknown, twice there, too few or too many.
        """
        known = all(0 <= client < self.num_clients for client in clients)
        if not known or len(set(clients)) < len(clients) or not self._fits(len(clients)):
            raise SamplingMismatchError(
                f"a round must be drawn by {type(self).__name__}({self.num_clients} clients, "
                f"{self.clients_per_round:g} in a round), which it was not"
            )


@dataclass(frozen=True)
class FixedSizeSampling(Sampler):
    """A uniformly random set of `cohort_size` clients, without replacement. The default.

    >>> sampler = FixedSizeSampling(60_000, 2_000)
    >>> sampler.event(LocalRandomizerDpEvent(2.0)).sampling
    'without_replacement'
    """

    cohort_size: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.cohort_size <= self.num_clients:
            raise ValueError(
                f"cohort_size must lie in [1, {self.num_clients}], got {self.cohort_size}"
            )

    @property
    def clients_per_round(self) -> float:
        return self.cohort_size

    def event(
        self,
        local: LocalRandomizerDpEvent,
        points_per_client: int = 1,
        points_sampled: int = 1,
    ) -> ShuffledDpEvent | SubsampledShuffledDpEvent:
        if self.cohort_size == self.num_clients and points_sampled == points_per_client:
            return ShuffledDpEvent(local, self.cohort_size * points_sampled)
        return SubsampledShuffledDpEvent(
            local, self.num_clients, self.cohort_size, points_per_client, points_sampled
        )

    def _draw(self, generator: np.random.Generator) -> np.ndarray:
        return generator.choice(self.num_clients, self.cohort_size, replace=False)

    def _fits(self, count: int) -> bool:
        return count == self.cohort_size


def full_participation(num_clients: int) -> FixedSizeSampling:
    """Everybody in every round."""
    return FixedSizeSampling(num_clients, num_clients)


@dataclass(frozen=True)
class SelfSampling(Sampler):
    """Every client joins by a coin of its own; how many do is random, and seen by everybody.

    Each reports one point. The price averages over how many join, so it needs no failure
    probability as Theorem 4.4.1 of the thesis does. On devices every client throws its coin
    itself; here they are thrown in one place. A round without anybody changes nothing, and is
    charged.

    >>> sampler = SelfSampling(1000, 0.1)
    >>> sampler.clients_per_round, sampler.event(LocalRandomizerDpEvent(1.0)).sampling
    (100.0, 'self')
    """

    join_probability: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.join_probability <= 1:
            raise ValueError(f"join_probability must lie in (0, 1], got {self.join_probability}")

    @property
    def clients_per_round(self) -> float:
        return self.num_clients * self.join_probability

    def event(
        self,
        local: LocalRandomizerDpEvent,
        points_per_client: int = 1,
        points_sampled: int = 1,
    ) -> SubsampledShuffledDpEvent:
        return SubsampledShuffledDpEvent(
            local,
            self.num_clients,
            self.clients_per_round,
            points_per_client,
            points_sampled,
            "self",
        )

    def _draw(self, generator: np.random.Generator) -> np.ndarray:
        return np.flatnonzero(generator.random(self.num_clients) < self.join_probability)

    def _fits(self, count: int) -> bool:
        """Counts that occur less than once in 1e12 rounds were not thrown by these coins."""
        from scipy import stats

        q, n = self.join_probability, self.num_clients
        least, most = stats.binom.ppf(1e-12, n, q), stats.binom.isf(1e-12, n, q)
        return bool(math.floor(least) <= count <= math.ceil(most))


def sampler_for(sampling: str, num_clients: int, clients_per_round: float) -> Sampler:
    """The sampler of a name: "fixed", "full" or "self".

    Raises:
        ValueError: on another name, or numbers that do not fit.
    """
    if sampling == "full":
        return full_participation(num_clients)
    if sampling == "self":
        return SelfSampling(num_clients, min(1.0, clients_per_round / num_clients))
    if sampling == "fixed":
        return FixedSizeSampling(num_clients, int(clients_per_round))
    raise ValueError(f'sampling must be "fixed", "full" or "self", got {sampling!r}')
