"""Shuffled batches of a random sample of people, and epochs in which all take part in turn."""

from __future__ import annotations

import ast
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import attr

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.reports.packing import whole_number
from beam_ldp.accounting.reports.shuffled import LocalReports, of_one_person

WITHOUT_REPLACEMENT = "without_replacement"
SELF = "self"
POISSON = "poisson"
SHUFFLED_EPOCHS = "shuffled_epochs"
_SAMPLINGS = (WITHOUT_REPLACEMENT, SELF, POISSON, SHUFFLED_EPOCHS)
_RANDOM_ALLOCATION = "random_allocation"
_MORE_FAKES_CHANCE = 1e-12


def _as_text(value: Any) -> str:
    """A string, also where dp-accounting's named tuples made a list of its letters, in text."""
    while value.startswith("["):  # once on the way out and once on the way in
        value = "".join(ast.literal_eval(value))
    return str(value)


def _as_number(value: Any) -> float:
    """A positive number; an int where it is whole."""
    if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"num_drawn must be a finite number > 0, got {value!r}")
    return int(value) if value % 1 == 0 else float(value)


def _sampling(instance: Any, attribute: Any, value: str) -> None:
    if value == _RANDOM_ALLOCATION:
        raise ValueError(
            f'sampling must not be "{value}": of several rounds that each person chooses alone, no '
            f'price is proved where one value is replaced; "{SHUFFLED_EPOCHS}" has one for as many'
        )
    if value not in _SAMPLINGS:
        names = ", ".join(f'"{name}"' for name in _SAMPLINGS)
        raise ValueError(f"sampling must be one of {names}, got {value!r}")
    points, drawn = instance.points_per_client, instance.points_sampled
    most, name = instance.num_users, "num_users"
    if value == POISSON:
        most, name = most * points, "the number of data points"
    if instance.num_drawn > most:
        raise ValueError(f"num_drawn must be at most {name}, got {instance.num_drawn}")
    if instance.fixed_size:
        if instance.num_drawn % 1 != 0:
            raise ValueError(f"num_drawn must be an integer, got {instance.num_drawn!r}")
        check_reports(int(instance.num_drawn))
    if value != WITHOUT_REPLACEMENT and drawn != 1:
        raise ValueError(f'points_sampled must be 1 for sampling="{value}", got {drawn}')
    if drawn > points:
        raise ValueError(f"points_sampled must be at most points_per_client, got {drawn}")


def _one_crowd(instance: Any, attribute: Any, value: Any) -> None:
    """A sample of a crowd that splits has no price: the drawn of a group are no uniform sample."""
    of_one_person(instance, attribute, value)
    if value.public_groups != 1:
        raise ValueError(
            f"{attribute.name} must not split the crowd by something public where people are "
            "sampled: price ShuffledDpEvent(local_event, num_drawn), without credit for sampling"
        )
    if value.mixed:
        raise ValueError(
            f"{attribute.name} must not be that of a crowd of several budgets: which of them a "
            "sample holds is not the same for everybody. Price the crowd without sampling"
        )


def _received(instance: Any, attribute: Any, value: Any) -> None:
    if value is None or value == instance.num_drawn:
        return
    if not instance.fixed_size:
        raise ValueError(
            f'num_received must be None for sampling="{instance.sampling}", got {value!r}: the '
            "price is the average over how many come; who may never come counts in num_fakes"
        )
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole and 1 <= value <= instance.num_drawn):
        raise ValueError(
            f"num_received must be None or in [1, num_drawn = {instance.num_drawn}], got {value!r}"
        )


def _sampled_fakes(instance: Any, attribute: Any, value: Any) -> None:
    whole_number(0)(instance, attribute, value)
    if not value:
        return
    if value >= instance.num_users:
        raise ValueError(f"num_fakes must be below num_users ({instance.num_users}), got {value}")
    fits = instance.num_drawn <= instance.num_users  # else `_sampling` refuses it
    if instance.fixed_size and fits and instance.num_hiding < 1:
        raise ValueError(
            f"num_fakes must leave somebody among those received ({instance.came_in_all}), got "
            f"{value}: price the local epsilon"
        )


def _rounds(instance: Any, attribute: Any, value: Any) -> None:
    if value is None:
        return
    if instance.sampling != SHUFFLED_EPOCHS:
        raise ValueError(f'rounds must be None for sampling="{instance.sampling}", got {value!r}')
    whole, most = isinstance(value, int) and not isinstance(value, bool), instance.whole_epoch
    if not (whole and 1 <= value <= most):
        raise ValueError(f"rounds must be None or in [1, {most}], those of an epoch, got {value!r}")


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SampledReports:
    """A shuffle of the reports of a random sample.

    The credit for sampling holds against readers who see how many reports there are but not who
    took part. Against one who sees that, a round costs `ShuffledReports(local_event, reports)` to
    everybody who took part in it.

    Neighbouring data sets differ in the value of one data point (replace-one), for every sampling:
    the number of clients is public, and that somebody is a client is not hidden.

    * "without_replacement": a uniformly random set of `num_drawn` clients; each sends a report
      about each of `points_sampled` of its `points_per_client` data points, drawn likewise.
    * "self": every client joins by its own coin, of probability `num_drawn / num_users`, and
      reports one of its points, drawn evenly.
    * "poisson": every data point is reported by its own coin, `num_drawn` on average.
    * "shuffled_epochs": the event is one *epoch*, however its rounds depend on each other: all
      clients in random order, and the first `num_drawn` are the first round, the next as many the
      second, to the end of the epoch or to the round that is the last (`rounds`). A client is in
      one round at most. An epoch costs what one shuffle of everybody who was in a round does, and
      of fewer rounds what one sample of so many does; see docs/accounting.md for the proof.

    How likely somebody is drawn and how many hide them are two numbers. Where fewer come than were
    drawn, the price supposes `condition`: whether people come depends neither on anybody's value
    nor on who else was drawn, and `least_available` of them could have come. Those who come are
    then a uniform sample of those who could, so a person is among them with probability
    `num_received` over those who could, which is at most `num_drawn / num_users`. Silence that
    depends on the value has no finite cost: devices then send an answer such as `other` instead.

    Fakes obey neither coins nor dropouts, hide nobody, and know of each other who was drawn. With
    coins the honest people are a sample of their own. With a fixed size all of those received may
    be honest, or all but as many as there are likely fakes among the drawn (but with a chance of
    1e-12, which delta covers): the price is the rate of the one and the crowd of the other.

    Several messages of one person come from one sample. Where they are two-response messages
    (`LocalReports.columns`), columns are composed as shuffles among those drawn, and then sampled;
    in an epoch, as if it were seen who is in a round. Others count as one report of the sum of
    their local epsilons, and so do these where that is less.

    Attributes:
        local_event: How each report was randomized; not one whose crowd splits.
        num_users: Clients to draw from.
        num_drawn: Clients drawn (in each round); with coins, how many reports there are on average.
        num_received: Of those drawn, whose reports came, in the round of an epoch in which the
            fewest did; None: all. None with coins.
        num_fakes: Of the clients to draw from, as many as may be fake, or never come, at most.
        points_per_client: Data points that each client holds.
        points_sampled: Data points that a drawn client reports; 1 with coins.
        sampling: As above.
        rounds: Of an epoch, as many as ran; None: all that it has. None for other samplings.
    """

    local_event: LocalReports = attr.ib(validator=_one_crowd)
    num_users: int = attr.ib(converter=check_reports)
    num_drawn: float = attr.ib(converter=_as_number)
    num_received: int | None = attr.ib(default=None, validator=_received)
    num_fakes: int = attr.ib(default=0, validator=_sampled_fakes)
    points_per_client: int = attr.ib(default=1, converter=check_reports)
    points_sampled: int = attr.ib(default=1, converter=check_reports)
    sampling: str = attr.ib(default=WITHOUT_REPLACEMENT, converter=_as_text, validator=_sampling)
    rounds: int | None = attr.ib(default=None, validator=_rounds)

    @property
    def fixed_size(self) -> bool:
        """Whether so many are drawn, rather than by coins."""
        return self.sampling in (WITHOUT_REPLACEMENT, SHUFFLED_EPOCHS)

    @property
    def whole_epoch(self) -> int:
        """Rounds of an epoch, all of them; 1 for other samplings."""
        if self.sampling != SHUFFLED_EPOCHS:
            return 1
        return max(1, self.num_users // max(1, int(self.num_drawn)))

    @property
    def drawn_in_all(self) -> float:
        """Clients drawn, in all rounds of an epoch together."""
        return self.num_drawn * (self.whole_epoch if self.rounds is None else self.rounds)

    @property
    def came(self) -> float:
        """Clients whose reports came; with coins, on average; of an epoch, in each round."""
        return self.num_drawn if self.num_received is None else self.num_received

    @property
    def came_in_all(self) -> float:
        """Clients whose reports came, in all rounds of an epoch together, at least.

        Where not all came, of a whole epoch: no round is then known to be that of a sample.
        """
        if self._epoch_lost_people:
            return self.came * self.whole_epoch
        return self.came if self.sampling != SHUFFLED_EPOCHS else self.drawn_in_all

    @property
    def _epoch_lost_people(self) -> bool:
        return self.sampling == SHUFFLED_EPOCHS and self.came < self.num_drawn

    @property
    def num_honest(self) -> int:
        """Clients to draw from that are certainly not fake."""
        return self.num_users - self.num_fakes

    @property
    def num_hiding(self) -> float:
        """Honest clients whose reports came; with coins, on average."""
        if not self.fixed_size:
            return self.num_drawn * self.num_honest / self.num_users
        if self._epoch_lost_people:
            return self.came_in_all - self.num_fakes
        return self.came_in_all - _fakes_drawn(
            self.num_users, self.num_fakes, int(self.drawn_in_all)
        )

    @property
    def num_reports(self) -> int:
        """Honest reports in the shuffled batch; with coins, on average, rounded down."""
        return max(1, int(self.num_hiding * self.points_sampled))

    @property
    def drawn_rate(self) -> float:
        """How likely a given honest client is drawn, at most; of points with Poisson's coins."""
        if self._epoch_lost_people:
            return 1.0
        if self.fixed_size:  # of the honest ones who could have come
            honest = self.num_users * self.came_in_all - self.num_fakes * self.drawn_in_all
            received = self.came_in_all * self.drawn_in_all
            return received / honest if honest > received else 1.0
        points = self.points_per_client if self.sampling == POISSON else 1
        return self.num_drawn / (self.num_users * points)

    @property
    def rate(self) -> float:
        """How likely a given data point is reported."""
        if self.sampling == POISSON:
            return self.drawn_rate
        return self.drawn_rate * self.points_sampled / self.points_per_client

    @property
    def failure_probability(self) -> float:
        """That more fakes are drawn than hide nobody by the price: delta must cover it."""
        most = min(self.num_fakes, self.drawn_in_all)
        certain = not self.fixed_size or self.came_in_all - self.num_hiding >= most
        return 0.0 if certain else _MORE_FAKES_CHANCE

    @property
    def least_available(self) -> int:
        """How many of the clients must have been able to come, for the price to hold.

        Of an event of the fewest who may come: in a round in which so many did. Where more came it
        holds if the same share more of all could have.
        """
        share = Fraction(self.num_users) * Fraction(self.came) / Fraction(self.num_drawn)
        return math.ceil(share)

    @property
    def condition(self) -> str:
        """What the price supposes of those who did not come; empty where all came."""
        if self.came == self.num_drawn:
            return ""
        epoch = self.sampling == SHUFFLED_EPOCHS
        return (
            f"{self.came:,} of {self.num_drawn:,} came: supposes that whether people come depends "
            "neither on anybody's value nor on who else was drawn"
            f"{' nor on the round of an epoch' if epoch else ''}, and that at least "
            f"{self.least_available:,} of {self.num_users:,} could have come (where more came than "
            "that, as many times more)"
        )

    @property
    def local_epsilon(self) -> float:
        """What protects one data point against whoever sees the reports before the shuffle."""
        return self.local_event.local_epsilon


@lru_cache(maxsize=256)
def _fakes_drawn(num_users: int, num_fakes: int, num_drawn: int) -> int:
    """More fakes than that are in a uniform sample with a chance of at most 1e-12."""
    if not num_fakes:
        return 0
    from scipy import stats  # takes half a second to load, and only fakes in samples ask for it

    likely = stats.hypergeom(num_users, num_fakes, num_drawn).isf(_MORE_FAKES_CHANCE)
    return min(num_fakes, num_drawn, int(likely))
