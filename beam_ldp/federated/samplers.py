"""Who takes part in a round. A sampler draws clients, says how, and what that makes of a price.

The credit for sampling holds only if nobody but the sampler knows who was drawn, so draws come
from the operating system's generator.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.reports import SHUFFLED_EPOCHS
from beam_ldp.randomizers.checks import check_fraction, check_integer

_IMPLAUSIBLE = 1e-12


class SamplingMismatchError(RuntimeError):
    """What ran is not what was declared and charged."""


class TooFewCameError(SamplingMismatchError):
    """Fewer came to a round of a shuffled epoch than its price supposes of every round."""


@dataclass(frozen=True)
class DeclaredSampling:
    """How the clients of a round are drawn, for the credit that sampling gives.

    The credit holds against readers who do not see who takes part. A round that receives a number
    of clients that this sampling does not give fails before anything of it is released: who stays
    away may do so for a reason.

    Where drawn clients may stay away, `least_received` says how many come at least. The rate stays
    that of the sample that was drawn, and the crowd is those who came, which costs more than a
    sample of them would. A round of fewer is not released (`train`). That supposes the `condition`
    of `SubsampledShuffledDpEvent`: whether clients come depends neither on anybody's value nor on
    who else was drawn. Over-selection is this: draw more, and keep at random as many of those who
    came as are needed.

    A client of the sample that sends what no honest client can is priced so too: what it sent is
    left out of the sum, it is counted, and it hides nobody. With coins, clients that may do so, or
    never come, are declared as `num_fakes`.

    With "shuffled_epochs" the rounds are those of `ShuffledEpochs`: an epoch is charged at its
    first round, as one event, and its other rounds cost nothing more. What comes is known only
    later, so `least_received` is supposed of all of them; a round of fewer is charged as another
    epoch.

    Args:
        num_users: clients to draw from.
        num_drawn: clients drawn; with "self", how many come on average.
        points_per_client: data points that each client holds.
        sampling: "without_replacement", a uniformly random set of clients of that size; "self",
            every client joins by its own coin; or "shuffled_epochs", everybody in random order, so
            many in a round, and then anew.
        least_received: of those drawn, how many come at least; None: all. None with coins.
        num_fakes: of `num_users`, as many as may be fake, or never come, at most.
        most_received: of those who come, how many are used at most, at random; None: all.

    Raises:
        ValueError: if a parameter is out of range.

    >>> DeclaredSampling(1000, 50).allowed, DeclaredSampling(1000, 50, least_received=45).allowed
    ((50, 50), (45, 50))
    """

    num_users: int
    num_drawn: float
    points_per_client: int = 1
    sampling: str = "without_replacement"
    least_received: int | None = None
    num_fakes: int = 0
    most_received: int | None = None

    def __post_init__(self) -> None:
        if self.sampling not in ("without_replacement", "self", SHUFFLED_EPOCHS):
            raise ValueError(
                'sampling must be "without_replacement", "self" or "shuffled_epochs", got '
                f"{self.sampling!r}"
            )
        try:
            SubsampledShuffledDpEvent(
                LocalRandomizerDpEvent(1.0), self.num_users, self.num_drawn, self.least_received,
                self.num_fakes, self.points_per_client, sampling=self.sampling,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(str(error).replace("num_received", "least_received")) from None
        low = self.allowed[0]
        if self.most_received is not None and (
            self.sampling != "without_replacement"
            or not (low <= self.most_received <= self.num_drawn)
        ):
            raise ValueError(
                'most_received must be None, or of "without_replacement" lie between '
                f"least_received and num_drawn, got {self.most_received}"
            )

    def event(
        self, local: LocalRandomizerDpEvent, points: int, dropped: int = 0
    ) -> SubsampledShuffledDpEvent:
        """One round of this sampling, or an epoch, `points` of a client's data points each.

        Args:
            local: the event of one report.
            points: of a client's data points.
            dropped: drawn clients who did not come, or who hide nobody; fewer than were drawn, 0
                with coins.
        """
        if self.sampling == SHUFFLED_EPOCHS:  # the other rounds may be as small as is declared
            dropped = max(dropped, int(self.num_drawn) - self.allowed[0])
        return SubsampledShuffledDpEvent(
            local,
            self.num_users,
            self.num_drawn,
            num_received=int(self.num_drawn) - dropped if dropped else None,
            num_fakes=self.num_fakes,
            points_per_client=self.points_per_client,
            points_sampled=points,
            sampling=self.sampling,
        )

    def takes_everything(self, points: int) -> bool:
        """Whether every data point of every client is in every round: then there is no credit."""
        everybody = self.num_drawn == self.num_users and points == self.points_per_client
        return everybody and self.sampling == "without_replacement"

    @property
    def fixed_size(self) -> bool:
        """Whether so many are drawn, rather than by coins."""
        return self.sampling != "self"

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds that are one event; 1 but for shuffled epochs."""
        return self.num_users // int(self.num_drawn) if self.sampling == SHUFFLED_EPOCHS else 1

    @property
    def allowed(self) -> tuple[int, int]:
        """Smallest and largest number of clients that a round may receive.

        With coins: all but what happens in less than one round in 1e12.
        """
        if self.fixed_size:
            most = int(self.num_drawn) if self.most_received is None else self.most_received
            return (most if self.least_received is None else self.least_received), most
        rate = self.num_drawn / self.num_users
        coins = stats.binom(self.num_users, rate)
        return int(coins.ppf(_IMPLAUSIBLE / 2)), int(coins.isf(_IMPLAUSIBLE / 2))


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
        check_integer("num_clients", self.num_clients, 1)

    @abstractmethod
    def declared(
        self, points_per_client: int = 1, points_sampled: int = 1
    ) -> DeclaredSampling | None:
        """What aggregators and prices are told; None where everything is reported in every round.

        Args:
            points_per_client: m, data points that each client holds; one of them is protected.
            points_sampled: s of them, drawn anew, each reported on its own.
        """

    @abstractmethod
    def _draw(self, generator: np.random.Generator, number: int | None) -> np.ndarray:
        """Indices of the clients of one round; its number if it was given."""

    def event(
        self,
        local: LocalRandomizerDpEvent,
        points_per_client: int = 1,
        points_sampled: int = 1,
    ) -> ShuffledDpEvent | SubsampledShuffledDpEvent:
        """What one round releases, against readers who cannot see who took part.

        Args:
            local: the event of one report (`beam_ldp.accounting.local_event`).
            points_per_client, points_sampled: as for `declared`.
        """
        declared = self.declared(points_per_client, points_sampled)
        if declared is None:
            return ShuffledDpEvent(local, self.num_clients * points_sampled)
        return declared.event(local, points_sampled)

    def sample(
        self, generator: np.random.Generator | None = None, *, number: int | None = None
    ) -> Cohort:
        """The clients of one round.

        Args:
            generator: for simulations only: who can repeat the draws knows who took part.
            number: of the round, from 0; matters where rounds are parts of an epoch.

        Raises:
            SamplingMismatchError: on a number whose clients do not follow from those before it.
        """
        if generator is None:
            generator = np.random.Generator(np.random.PCG64(secrets.randbits(256)))
        return Cohort(tuple(int(i) for i in self._draw(generator, number)), self)

    def arrived(
        self, drawn: Sequence[int], dropout: float, generator: np.random.Generator | None = None
    ) -> tuple[int, ...]:
        """Those of a cohort who come, in a simulation: each stays away by a coin of its own.

        So whether somebody comes depends neither on a value nor on who else was drawn, which the
        price supposes.

        Args:
            drawn: the cohort.
            dropout: with what probability somebody stays away, in [0, 1).
            generator: for repeatable simulations only.

        >>> FixedSizeSampling(100, 10).arrived(range(10), 0.0)
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
        """
        check_fraction("dropout", dropout, "[)")
        if generator is None:
            generator = np.random.Generator(np.random.PCG64(secrets.randbits(256)))
        came = np.array(drawn)[generator.random(len(drawn)) >= dropout]
        return tuple(int(i) for i in self._kept(came, generator))

    def _kept(self, came: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Of those who came, whose reports are used."""
        return came

    def check(self, clients: Sequence[int]) -> None:
        """Refuses a round that is not as declared: its price would be too low.

        Raises:
            SamplingMismatchError: on clients that are unknown, twice there, too few or too many.
        """
        known = all(0 <= client < self.num_clients for client in clients)
        declared = self.declared()
        fewest, most = (self.num_clients,) * 2 if declared is None else declared.allowed
        different = len(set(clients)) == len(clients)
        if not (known and different and fewest <= len(clients) <= most):
            raise SamplingMismatchError(
                f"a round must be drawn as declared: {fewest} to {most} different ones of "
                f"{self.num_clients} clients, and it was not"
            )


@dataclass(frozen=True)
class FixedSizeSampling(Sampler):
    """A uniformly random set of `cohort_size` clients, without replacement. The default.

    Some may stay away: of those drawn `least_received` come, or the round is not released.
    Over-selection draws more than are needed, and keeps `most_received` of those who came, at
    random (the first who came would be those whose data is quickly read).

    Attributes:
        cohort_size: clients drawn.
        least_received: of them, how many come at least; None: all.
        most_received: of those who came, how many are used at most; None: all.

    >>> sampler = FixedSizeSampling(60_000, 2_000)
    >>> sampler.event(LocalRandomizerDpEvent(2.0)).sampling
    'without_replacement'
    >>> FixedSizeSampling(60_000, 2_200, 2_000, 2_000).declared().allowed
    (2000, 2000)
    """

    cohort_size: int = 1
    least_received: int | None = None
    most_received: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.cohort_size <= self.num_clients:
            raise ValueError(
                f"cohort_size must lie in [1, {self.num_clients}], got {self.cohort_size}"
            )
        _check_least(self.least_received, self.cohort_size)
        if self.most_received is not None and not (
            (self.least_received or self.cohort_size) <= self.most_received <= self.cohort_size
        ):
            raise ValueError(
                f"most_received must lie between least_received and cohort_size, got "
                f"{self.most_received}"
            )

    def _kept(self, came: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        most = len(came) if self.most_received is None else self.most_received
        return came if len(came) <= most else generator.choice(came, most, replace=False)

    def declared(
        self, points_per_client: int = 1, points_sampled: int = 1
    ) -> DeclaredSampling | None:
        everybody = self.cohort_size == self.num_clients and self.least_received is None
        if everybody and points_sampled == points_per_client:
            return None
        return DeclaredSampling(
            self.num_clients,
            self.cohort_size,
            points_per_client,
            least_received=self.least_received,
            most_received=self.most_received,
        )

    def _draw(self, generator: np.random.Generator, number: int | None) -> np.ndarray:
        return generator.choice(self.num_clients, self.cohort_size, replace=False)


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

    Attributes:
        mean_size: clients that join on average; each does with probability mean_size / num_clients.

    >>> sampler = SelfSampling(1000, 100)
    >>> sampler.join_probability, sampler.event(LocalRandomizerDpEvent(1.0)).sampling
    (0.1, 'self')
    """

    mean_size: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.mean_size <= self.num_clients:
            raise ValueError(f"mean_size must lie in [1, {self.num_clients}], got {self.mean_size}")

    @property
    def join_probability(self) -> float:
        return self.mean_size / self.num_clients

    def declared(self, points_per_client: int = 1, points_sampled: int = 1) -> DeclaredSampling:
        return DeclaredSampling(self.num_clients, self.mean_size, points_per_client, "self")

    def _draw(self, generator: np.random.Generator, number: int | None) -> np.ndarray:
        return np.flatnonzero(
            generator.integers(self.num_clients, size=self.num_clients) < self.mean_size
        )


@dataclass(frozen=True)
class ShuffledEpochs(Sampler):
    """Everybody in random order: the first `cohort_size` are one round, the next as many another.

    After an epoch everybody is put in order anew; who does not fill a round is left out of that
    epoch. So nobody is in more rounds than there are epochs, and the price of an epoch is that of
    one shuffle of everybody in it.

    It remembers the order of the epoch that is under way; after a restart another one begins.

    Attributes:
        cohort_size: clients in a round.
        least_received: of them, how many come at least; None: all.

    >>> sampler = ShuffledEpochs(1000, 100)
    >>> sorted(i for n in range(10) for i in sampler.sample(number=n).clients) == list(range(1000))
    True
    >>> sampler.event(LocalRandomizerDpEvent(2.0)).num_reports
    1000
    """

    cohort_size: int = 1
    least_received: int | None = None
    _left: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.cohort_size <= self.num_clients:
            raise ValueError(
                f"cohort_size must lie in [1, {self.num_clients}], got {self.cohort_size}"
            )
        _check_least(self.least_received, self.cohort_size)

    @property
    def rounds_per_epoch(self) -> int:
        return self.num_clients // self.cohort_size

    def declared(self, points_per_client: int = 1, points_sampled: int = 1) -> DeclaredSampling:
        return DeclaredSampling(
            self.num_clients,
            self.cohort_size,
            points_per_client,
            SHUFFLED_EPOCHS,
            least_received=self.least_received,
        )

    def _draw(self, generator: np.random.Generator, number: int | None) -> np.ndarray:
        size, due = self.cohort_size, len(self._left) // self.cohort_size
        if number is not None and number % self.rounds_per_epoch == 0:
            due = 0
        if number is not None and (number + due) % self.rounds_per_epoch:
            raise SamplingMismatchError(
                f"number must be that of the next round, or begin an epoch of "
                f"{self.rounds_per_epoch} rounds, got {number}: go on where an epoch ended"
            )
        if not due:
            self._left[:] = generator.permutation(self.num_clients).tolist()
        drawn, self._left[:] = self._left[:size], self._left[size:]
        return np.array(drawn)


def _check_least(least: int | None, drawn: int) -> None:
    if least is not None and not 1 <= least <= drawn:
        raise ValueError(f"least_received must lie in [1, {drawn}] or be None, got {least}")


def sampler_for(
    sampling: str, num_clients: int, clients_per_round: int, least_received: int | None = None
) -> Sampler:
    """The sampler of a name: "fixed", "full", "self" or "shuffled-epochs".

    Args:
        sampling: the name.
        num_clients: clients to draw from.
        clients_per_round: drawn in a round; with "self", on average.
        least_received: of them, how many come at least; None: all. None with "self".

    Raises:
        ValueError: on another name, or numbers that do not fit.
    """
    if sampling == "full":
        return FixedSizeSampling(num_clients, num_clients, least_received)
    if sampling == "self":
        if least_received is not None:
            raise ValueError(
                'least_received must be None with "self": how many join is random, and nobody '
                "knows who else would have; declare those who may never come as num_fakes"
            )
        return SelfSampling(num_clients, clients_per_round)
    if sampling == "fixed":
        return FixedSizeSampling(num_clients, clients_per_round, least_received)
    if sampling == "shuffled-epochs":
        return ShuffledEpochs(num_clients, clients_per_round, least_received)
    raise ValueError(
        f'sampling must be "fixed", "full", "self" or "shuffled-epochs", got {sampling!r}'
    )
