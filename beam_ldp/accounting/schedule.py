"""What is to be priced: the same release several times, about the same people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.divergences.moments import binomial_isf, binomial_ppf
from beam_ldp.accounting.reports import (
    POISSON,
    SELF,
    SHUFFLED_EPOCHS,
    LocalReports,
    SampledReports,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.one_release import (
    MAX_LOCAL_EPSILON,
    crowd,
    local_reports,
    messages_per_user,
)

Sampling = Literal["without_replacement", "self", "poisson", "shuffled_epochs"]

# Chance that anybody takes part more often, or that fewer take part, than is priced.
UNLIKELY = 1e-6


@dataclass(frozen=True)
class Schedule:
    """The same shuffled release, `rounds` times, about the same people.

    Attributes:
        local_epsilon: eps0 of each report.
        num_users: People.
        num_sampled: People who report in each round, drawn anew; `num_users` if all do.
        rounds: Releases.
        points_per_client: Data points that each person holds; one of them is protected.
        points_sampled: Data points that a drawn person draws and reports.
        sampling: How they are drawn (see `SampledReports`): "without_replacement", or
            "self" or "poisson", by everybody's or every data point's own coin; then `num_sampled`
            is a mean; or "shuffled_epochs", everybody once in every `rounds_per_epoch` rounds.
        randomizer: The mechanism at hand, or None if only the local epsilon is known.

    >>> training = Schedule(2.0, num_users=60_000, num_sampled=2_000, rounds=6_000)
    >>> training.num_reports, round(training.rate, 4), training.seen.rounds
    (2000, 0.0333, 299)
    """

    local_epsilon: float
    num_users: int
    num_sampled: int
    rounds: int
    points_per_client: int = 1
    points_sampled: int = 1
    sampling: Sampling = "without_replacement"
    randomizer: Any = None

    def __post_init__(self) -> None:
        if not 0 < self.local_epsilon <= MAX_LOCAL_EPSILON:
            raise ValueError(
                f"local_epsilon must lie in (0, {MAX_LOCAL_EPSILON:g}], got {self.local_epsilon!r}"
            )
        for name in ("num_users", "num_sampled", "points_per_client", "points_sampled"):
            check_reports(getattr(self, name))
        if not 1 <= self.rounds <= 10**9:
            raise ValueError(f"rounds must lie in [1, 1e9], got {self.rounds!r}")
        if self.num_sampled > self.num_users:
            raise ValueError(
                f"num_sampled must be at most num_users ({self.num_users}), got {self.num_sampled}"
            )
        if self.points_sampled > self.points_per_client:
            raise ValueError(
                f"points_sampled must be at most points_per_client ({self.points_per_client}), "
                f"got {self.points_sampled}"
            )
        if self.sampled:
            self.reports(self.any_event)  # checks the sampling
        if self.randomizer is not None:
            self._check_randomizer()

    def _check_randomizer(self) -> None:
        if self.randomizer.local_epsilon != self.local_epsilon:
            raise ValueError(
                f"local_epsilon must be that of the randomizer "
                f"({self.randomizer.local_epsilon!r}), got {self.local_epsilon!r}"
            )
        if crowd(self.randomizer, self.num_reports) != self.num_reports:
            raise ValueError(
                "randomizer must not split the crowd by something public, which is priced without "
                "sampling (shuffled_event)"
            )

    @property
    def num_reports(self) -> int:
        """Reports in each shuffled batch; with coins, on average."""
        return self.num_sampled * self.points_sampled

    @property
    def rate(self) -> float:
        """How likely a data point is to be reported in a round."""
        return self.num_reports / (self.num_users * self.points_per_client)

    @property
    def fixed_size(self) -> bool:
        """Whether the number of reports is the same in every round."""
        return self.sampling not in (SELF, POISSON)

    @property
    def rounds_per_epoch(self) -> int:
        """Of shuffled epochs; 1 of other samplings."""
        in_epochs = self.sampling == SHUFFLED_EPOCHS
        return self.num_users // self.num_sampled if in_epochs else 1

    @property
    def most_rounds(self) -> int:
        """Rounds in which one person can be: one of each epoch that began."""
        return -(-self.rounds // self.rounds_per_epoch)

    @property
    def sampled(self) -> bool:
        return self.rate < 1

    @property
    def reader(self) -> str:
        """Against whom a price holds."""
        if self.sampled:
            return "readers who cannot see who took part"
        return "every reader of the shuffled reports"

    @property
    def own_event(self) -> LocalReports | None:
        """One report of the mechanism at hand, by what it tells of itself."""
        return None if self.randomizer is None else local_reports(self.randomizer)

    @property
    def any_event(self) -> LocalReports:
        """One report of which only the local epsilon is known."""
        return LocalReports(self.local_epsilon)

    @property
    def one_message(self) -> bool:
        """Whether every person's report is one message."""
        return self.randomizer is None or messages_per_user(self.randomizer) == 1

    def reports(self, local: LocalReports) -> ShuffledReports | SampledReports:
        """What runs in one round (or epoch), against `reader`, where people send such reports."""
        if not self.sampled:
            return local.shuffled(self.num_reports)
        return SampledReports(
            local,
            self.num_users,
            self.num_sampled,
            points_per_client=self.points_per_client,
            points_sampled=self.points_sampled,
            sampling=self.sampling,
        )

    def event(self, local: LocalReports | None = None) -> Any:
        """The event of one round; by default, that of any randomizer with this local epsilon."""
        from beam_ldp.accounting.events import as_event  # loads dp_accounting

        return as_event(self.reports(local or self.any_event))

    def in_shuffles(self, kind: str = "upper") -> Schedule | None:
        """What shuffled epochs cost at most: full shuffles of all in one; others as they are.

        Epochs of which some are left out cost less, and so do those that end early (which are
        counted whole): what is a "lower" price of the shuffles is none of theirs, so None. Several
        messages of a person tell together which round they are of: they are one report of the sum,
        of no mechanism in particular ("own messages" prices them as what they are).
        """
        if self.sampling != SHUFFLED_EPOCHS or not self.sampled:
            return self
        people, epochs = self.rounds_per_epoch * self.num_sampled, self.most_rounds
        if kind == "lower":
            epochs = self.rounds // self.rounds_per_epoch
            if people < self.num_users or not epochs or not self.one_message:
                return None
        return replace(
            self,
            num_users=people,
            num_sampled=people,
            rounds=epochs,
            sampling="without_replacement",
            randomizer=self.randomizer if self.one_message else None,
        )

    @property
    def seen(self) -> Schedule:
        """The same for a reader who sees whose data was used: full shuffles, the busiest person's.

        Nobody's data is used in more rounds, nor does any batch hold fewer reports, but with a
        chance of one in a million; people with one point each, in shuffled epochs, for certain.
        """
        if not self.sampled:
            return self
        points = self.num_users * self.points_per_client
        if self.sampling == SHUFFLED_EPOCHS:
            share = self.points_sampled / self.points_per_client
            most = self.most_rounds
            most = binomial_isf(UNLIKELY / points, most, share) if share < 1 else most
        else:
            most = binomial_isf(UNLIKELY / points, self.rounds, self.rate)
        reports = self.num_reports
        if not self.fixed_size:
            coins = points if self.sampling == POISSON else self.num_users
            fewest = binomial_ppf(UNLIKELY / self.rounds, coins, reports / coins)
            reports = max(1, fewest)
        return replace(
            self,
            num_users=reports,
            num_sampled=reports,
            rounds=max(1, most),
            points_per_client=1,
            points_sampled=1,
            sampling="without_replacement",
        )
