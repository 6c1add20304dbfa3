"""The mean of people's means in two rounds: find where they lie, then ask with less noise.

    device:     mean of the own rows ── round one: in which bin? ──────────────▶ collector
    collector:  the fullest bin ── an interval about it ───────────────────────▶ device
    device:     mean, clipped to the interval ── round two: any mean mechanism ─▶ collector

The unit of privacy is a person: all rows, and how many they are. Nothing of it depends on the
assumptions about where means lie; what depends on them is the error. `UserMean` is the plan,
public and made before any data are seen; `RoundOne` and `RoundTwo` are its states, each with what
devices run and what the collector does with the answers.

What is estimated is the mean over people of each person's mean, however many rows each has.

Source: thesis, Algorithms 3.7.1 to 3.7.4 and remark 3.7.4; see `range_search` for what is better.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from beam_ldp.accounting.reports import (
    ComposedReports,
    LocalReports,
    ShuffledReports,
    hidden_users,
)
from beam_ldp.accounting.shuffle.one_release import shuffled_reports
from beam_ldp.protocols.range_search import RangeSearch
from beam_ldp.protocols.rounds import NOBODY, History, Outcome, Received, Round, RoundsPlan
from beam_ldp.protocols.spaces import Concentration, Space
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.identity import AnyIds, ReleaseIdentity, UserIds, canonical_ids, digest_of
from beam_ldp.randomizers.mean.base import MeanEstimate, MeanRandomizer

if TYPE_CHECKING:
    import dp_accounting

# Which part of a protocol a person plays: a public function of the person's id ------------
#
# It need not be secret, since it does not depend on the data; it must be the same on every retry,
# so that nobody plays two parts. It hides nothing, and an id is no secret key.


_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # splitmix64


def public_words(user_ids: AnyIds, salt: str = "") -> np.ndarray:
    """One 64-bit word per id, spread evenly over ids that nobody chose for it: uint64, (n,).

    Args:
        user_ids: integers, or text or bytes.
        salt: public; another one spreads the ids anew.

    >>> public_words(np.array([7, 8])) == public_words(np.array([7, 8]))
    array([ True,  True])
    """
    ids = canonical_ids(user_ids)
    start = hashlib.blake2b(b"beam-ldp part " + salt.encode(), digest_size=16).digest()
    words = np.empty(len(ids), dtype=np.uint64)
    for rows, of_kind in ids.kinds():
        words[rows] = (
            _of_integers(of_kind, start) if of_kind.texts is None else _of_texts(of_kind, start)
        )
    return words


def _of_texts(ids: UserIds, start: bytes) -> np.ndarray:
    assert ids.texts is not None
    digests = (hashlib.blake2b(i, key=start, digest_size=8).digest() for i in ids.texts.tolist())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _of_integers(ids: UserIds, start: bytes) -> np.ndarray:
    words = ids.integers.astype(np.uint64) ^ np.frombuffer(start, dtype="<u8")[0]
    for _ in range(2):
        words = words + np.frombuffer(start, dtype="<u8")[1]
        for shift, factor in zip((30, 27), _MIX):
            words = (words ^ (words >> np.uint64(shift))) * factor
        words = words ^ (words >> np.uint64(31))
    return words


Model = Literal["local", "shuffle"]
Split = Literal["none", "budget", "users"]

_FEWER = 5.0  # standard deviations by which a random part of the people may be smaller


class Assignment(NamedTuple):
    """Who speaks in which round: public, a function of ids alone.

    Attributes:
        coordinate: `(n,)` the coordinate that each person reports a bin of; -1 for nobody's.
        in_round_two: `(n,)` whether the person takes part in round two.
    """

    coordinate: np.ndarray
    in_round_two: np.ndarray


@dataclass(frozen=True)
class UserMean(RoundsPlan):
    """The plan of a release: what both rounds will be, decided before any data are seen.

    Make it with `plan_user_mean`.

    Attributes:
        space: the public set of rows.
        concentration: the assumption about people's means.
        final: mechanism of round two, for vectors of [-1, 1]^coordinates.
        search: round one; None where it is skipped: the whole range is asked about.
        split: "budget" where everybody answers both rounds, "users" where each person answers one
            of them with the whole budget, "none" without round one.
        search_share: share of the people who answer round one, by a public hash of their ids.
        num_users: people expected.
        rows_per_user: rows that a person has at least, for the concentration.
        outliers: share of the people about whom nothing is assumed: those with fewer rows, too.
        model: "shuffle" where the reports of each round are shuffled.
        salt: of the public hash.
    """

    space: Space
    concentration: Concentration
    final: MeanRandomizer
    search: RangeSearch | None
    split: Split
    num_users: int
    rows_per_user: int
    search_share: float = 1.0
    outliers: float = 0.0
    model: Model = "shuffle"
    salt: str = ""
    secret = False

    def for_release(self, identity: ReleaseIdentity) -> UserMean:
        """The protocol of one release: public seeds that nobody gave follow from its name."""
        return replace(
            self, space=self.space.for_release(identity), final=self.final.for_release(identity)
        )

    # Who speaks when ---------------------------------------------------------------------

    @property
    def round_two_share(self) -> float:
        """Share of the people who answer round two."""
        return 1.0 - self.search_share if self.split == "users" else 1.0

    def assign(self, user_ids: np.ndarray) -> Assignment:
        """Who speaks in which round. The same on every device, and on every retry."""
        words = public_words(user_ids, self.salt)
        if self.search is None:
            return Assignment(np.full(len(words), -1), np.ones(len(words), dtype=bool))
        # Two independent halves of the word: which round, and which coordinate.
        searches = (words >> np.uint64(32)) < round(self.search_share * 2**32)
        low = (words & np.uint64(0xFFFFFFFF)) * np.uint64(self.space.num_coordinates)
        coordinate = np.where(searches, (low >> np.uint64(32)).astype(np.int64), -1)
        both = self.split == "budget"
        return Assignment(coordinate, np.ones(len(words), dtype=bool) if both else ~searches)

    @property
    def roles(self) -> tuple[tuple[int, ...], ...]:
        """Who answers a coordinate of round one, and who round two."""
        if self.search is None:
            return ((0,),)
        coordinates = range(self.space.num_coordinates)
        if self.split == "budget":
            return tuple((coordinate, 0) for coordinate in coordinates)
        return (*((coordinate, NOBODY) for coordinate in coordinates), (NOBODY, 0))

    def roles_of(self, words: np.ndarray | None, user_ids: AnyIds | None) -> np.ndarray:
        if user_ids is None:
            raise ValueError("who answers which round follows from user ids: name their column")
        coordinate = self.assign(np.asarray(user_ids)).coordinate
        last = 0 if self.search is None else self.space.num_coordinates
        return np.where(coordinate == NOBODY, last, coordinate)

    def min_reports(self, least: int) -> tuple[int, int]:
        """Gates of the two rounds, for at least so many people: per coordinate, and in all.

        Parts that a hash picks vary; each may be five standard deviations smaller than its share.
        """
        share = self.search_share / self.space.num_coordinates
        one = 0 if self.search is None else fewest(least, share)
        return one, fewest(least, self.round_two_share)

    def least(self, people: int) -> tuple[int, ...]:
        return self.min_reports(people)[-len(self.rounds) :]

    # The rounds ----------------------------------------------------------------------------

    @property
    def rounds(self) -> tuple[Round, ...]:
        first = self.round_one
        return (FinalRound(self),) if first is None else (first, FinalRound(self))

    def outcome(self, received: History) -> Outcome:
        crowds = [min(cell.smallest_batch for cell in cells) for cells in received]
        people = [sum(cell.num_reports for cell in cells) for cells in received]
        return Outcome(
            num_reports=sum(people) if self.split == "users" else people[-1],
            reports=self.reports(crowds[0], crowds[-1]),
            crowd=min(crowds),
            config=self.to_config() | {"crowds": crowds},
        )

    def worst(self, least: Sequence[int], honest_fraction: float = 1.0) -> Any:
        honest = [hidden_users(crowd, honest_fraction) for crowd in least]
        return self.reports(honest[0], honest[-1])

    @property
    def round_one(self) -> RoundOne | None:
        """The first state; None where round one is skipped."""
        return None if self.search is None else RoundOne(self, self.search)

    def round_two(self, found: Found | None = None) -> RoundTwo:
        """The second state: about what round one found, or about the whole range."""
        if (found is None) != (self.search is None):
            raise ValueError("found must be given exactly where there is a round one")
        size = self.space.num_coordinates
        everything = Found(
            (-1.0,) * size, (1.0,) * size, self.space.failure_probability(self.num_users), 0
        )
        return RoundTwo(self, found or everything)

    # What a person sends ------------------------------------------------------------------

    @property
    def messages_per_user(self) -> int:
        """Messages that one person sends, at most."""
        return self.final.messages_per_user + (self.split == "budget")

    @property
    def bits_per_report(self) -> int:
        """Bits of everything that one person sends, at most."""
        first = 0 if self.search is None else self.search.oracle.bits_per_report
        last = self.final.bits_per_report
        return max(first, last) if self.split == "users" else first + last

    @property
    def exactness(self) -> str:
        """Whether the implemented law keeps the budget, or that of ideal real numbers does."""
        return self.final.exactness

    # What it costs and how good it will be ------------------------------------------------

    @property
    def local_epsilon(self) -> float:  # type: ignore[override]
        """What one person sends, in all rounds, costs against whoever sees it unshuffled."""
        first = 0.0 if self.search is None else self.search.local_epsilon
        if self.split == "users":
            return max(first, self.final.local_epsilon)
        return first + self.final.local_epsilon

    def round_reports(self, search_crowd: int, final_reports: int) -> tuple[Any, Any]:
        """What runs in each round (`beam_ldp.accounting.reports`), for its price; None for none.

        Args:
            search_crowd: people among whom a report of round one hides: the fewest of any
                coordinate.
            final_reports: people who answered round two.
        """
        rounds: list[tuple[Any, int]] = [(self.final, final_reports)]
        if self.search is not None:
            rounds.insert(0, (self.search.oracle, search_crowd))
        if self.model == "local":
            reports = [LocalReports(one.local_epsilon) for one, _ in rounds]
        else:
            reports = [shuffled_reports(one, crowd) for one, crowd in rounds]
        return (None, reports[0]) if self.search is None else (reports[0], reports[1])

    def reports(self, search_crowd: int, final_reports: int) -> Any:
        """What the dearest person takes part in, in the whole release, for its price.

        Where everybody answers both rounds, both. Where each person answers one, the whole budget
        shuffled among the smaller crowd: an upper bound for either round.
        """
        first, second = self.round_reports(search_crowd, final_reports)
        if first is None:
            return second
        if self.split == "budget":
            return ComposedReports((first, second))
        local = LocalReports(self.local_epsilon)
        if self.model == "local":
            return local
        return ShuffledReports(local, min(search_crowd, final_reports))

    def event(self, search_crowd: int, final_reports: int) -> dp_accounting.DpEvent:
        """The same for accountants: the event of the whole release."""
        from beam_ldp.accounting.events import as_event  # loads dp_accounting

        event: dp_accounting.DpEvent = as_event(self.reports(search_crowd, final_reports))
        return event

    @property
    def failure_probability(self) -> float:
        """That the interval misses somebody or a wrong bin wins, with as many people as planned."""
        if self.search is None:
            return self.space.failure_probability(self.num_users)
        size = self.space.num_coordinates
        per_coordinate = [self.num_users * self.search_share / size] * size
        return self._failure(per_coordinate, self.num_users)

    def _failure(self, per_coordinate: Sequence[float], num_users: int) -> float:
        assert self.search is not None
        size = self.space.num_coordinates
        far = self.search.radii.far
        outside = self.concentration.failure_probability(far, num_users, size)
        wrong = sum(map(self.search.failure_probability, per_coordinate))
        return min(1.0, outside + wrong + self.space.failure_probability(num_users))

    @property
    def predicted(self) -> MeanEstimate:
        """The errors to expect, for an interval in the middle of the range: the value is void."""
        searched = round(self.num_users * self.search_share) if self.search else 0
        final = max(1, round(self.num_users * self.round_two_share))
        size = self.space.num_coordinates
        half = 1.0 if self.search is None else min(1.0, self.search.half_width)
        found = Found((-half,) * size, (half,) * size, self.failure_probability, searched)
        state = RoundTwo(self, found)
        return state.finish(
            MeanEstimate(np.zeros(size), np.sqrt(self.final.variance(final)), final)
        )

    def config_digest(self) -> bytes:
        """16 bytes that identify the plan and all its parameters."""
        return digest_of(json.dumps(self.to_config(), sort_keys=True).encode())

    def to_config(self) -> dict[str, Any]:
        """Both rounds as JSON-able values, for records."""
        config: dict[str, Any] = {
            "mechanism": "UserMean",
            "local_epsilon": self.local_epsilon,
            "split": self.split,
            "model": self.model,
            "rows_per_user": self.rows_per_user,
            "failure_probability": self.failure_probability,
            "round_two": self.final.to_config(),
        }
        if self.search is not None:
            radii = self.search.radii
            config["round_one"] = self.search.oracle.to_config()
            config["search_share"] = self.search_share
            config |= {"near": radii.near, "far": radii.far, "bins": self.search.bins.count}
        return config


def fewest(users: int, share: float) -> int:
    """People of a share that a hash picks, at least (but for one case in millions)."""
    expected = users * share
    if share == 1.0:
        return users
    return max(1, math.floor(expected - _FEWER * math.sqrt(expected * (1 - share))))


# The rounds, and what lies between them ---------------------------------------------------


class Found(NamedTuple):
    """What round one found, per coordinate, and how sure that is.

    Attributes:
        low, high: the interval, in coordinates.
        failure_probability: that it does not hold the means of all to whom the assumption applies.
        num_users: people who took part.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    failure_probability: float
    num_users: int


@dataclass(frozen=True)
class RoundOne(Round):
    """Before any answer: everybody who takes part reports the bin of one coordinate."""

    protocol: UserMean
    search: RangeSearch
    name = "round one"

    @property
    def cells(self) -> int:  # type: ignore[override]
        """One for each coordinate."""
        return self.protocol.space.num_coordinates

    @property
    def randomizer(self) -> FrequencyOracle:
        """What devices run on `encode`, with `search.local_epsilon`."""
        return self.search.oracle

    def encode(self, means: np.ndarray, coordinate: np.ndarray) -> np.ndarray:
        """On the device: the bin of each person's coordinate. Means are those of `space.unit`."""
        coordinates = self.protocol.space.coordinates(means)
        return self.search.bins.of(np.take_along_axis(coordinates, coordinate[:, None], 1)[:, 0])

    def identity(self, release: ReleaseIdentity) -> ReleaseIdentity:
        return release.of_round(0)

    def values(self, held: np.ndarray, cell: np.ndarray, state: Any) -> np.ndarray:
        return self.encode(held, cell)

    def advance(
        self, state: Any, sums: Sequence[np.ndarray], received: Sequence[Received], before: History
    ) -> Found:
        counted = zip(sums, received)
        return self.decide([self.randomizer.estimate(s, n.num_reports) for s, n in counted]).found

    def decide(self, estimates: Sequence[Estimate]) -> RoundTwo:
        """At the collector: the frequencies of bins, coordinate by coordinate, steer round two.

        Raises:
            ValueError: unless there is one estimate per coordinate, of at least one person.
        """
        if len(estimates) != self.protocol.space.num_coordinates:
            raise ValueError(
                f"estimates must be {self.protocol.space.num_coordinates}, one per coordinate, "
                f"got {len(estimates)}"
            )
        if not all(estimate.num_users for estimate in estimates):
            raise ValueError("estimates must be of at least one person each")
        users = [estimate.num_users for estimate in estimates]
        low, high = zip(*(self.search.interval(estimate.value) for estimate in estimates))
        everybody = round(sum(users) / self.protocol.search_share)
        failure = self.protocol._failure(users, everybody)
        return self.protocol.round_two(Found(low, high, failure, sum(users)))


@dataclass(frozen=True)
class FinalRound(Round):
    """The mean itself, asked about what round one found, or about the whole range."""

    protocol: UserMean
    name = "round two"

    @property
    def randomizer(self) -> MeanRandomizer:
        return self.protocol.final

    def identity(self, release: ReleaseIdentity) -> ReleaseIdentity:
        return release.of_round(1)

    def values(self, held: np.ndarray, cell: np.ndarray, state: Found | None) -> np.ndarray:
        return self.protocol.round_two(state).encode(held)

    def advance(
        self,
        state: Found | None,
        sums: Sequence[np.ndarray],
        received: Sequence[Received],
        before: History,
    ) -> MeanEstimate:
        estimate = self.randomizer.estimate(sums[0], received[0].num_reports)
        return self.protocol.round_two(state).finish(estimate)


@dataclass(frozen=True)
class RoundTwo:
    """After round one: everybody who takes part reports the mean, clipped to the interval."""

    protocol: UserMean
    found: Found

    @property
    def randomizer(self) -> MeanRandomizer:
        """What devices run on `encode`. It does not depend on what was found."""
        return self.protocol.final

    @property
    def _centre(self) -> np.ndarray:
        return (np.array(self.found.low) + np.array(self.found.high)) / 2

    @property
    def _half_width(self) -> np.ndarray:
        return (np.array(self.found.high) - np.array(self.found.low)) / 2

    def encode(self, means: np.ndarray) -> np.ndarray:
        """On the device: the mean's place in the interval, [-1, 1] in every coordinate."""
        place = (self.protocol.space.coordinates(means) - self._centre) / self._half_width
        return np.clip(place, -1.0, 1.0)

    def finish(self, estimate: MeanEstimate) -> MeanEstimate:
        """At the collector: the mean of people's means, in the unit of the data.

        The error is about the people of both rounds. Its interval includes what outliers can move
        by being clipped, and leaves out of its level the probability that round one failed.
        """
        half = self._half_width
        variance, num_users = (half * estimate.standard_error) ** 2, estimate.num_users
        if self.protocol.split == "users":  # those asked stand for those who were asked before
            others = self.found.num_users
            variance = variance + self._spread * others / (num_users * (num_users + others))
        centred = replace(
            estimate,
            value=self._centre + half * estimate.value,
            standard_error=np.sqrt(variance),
            mean_squared_error=float(variance.sum()),
            bias_bound=self._bias,
            failure_probability=self.found.failure_probability,
        )
        return self.protocol.space.restore(centred)

    @property
    def _spread(self) -> np.ndarray:
        """Variance of the clipped means: by the assumption, and never more than the interval's."""
        outliers = self.protocol.outliers
        assumed = self.protocol.concentration.variance + outliers * (2 * self._half_width) ** 2
        return np.minimum(assumed, self._half_width**2)

    @property
    def _bias(self) -> float:
        """What clipping outliers to the interval can move one coordinate's mean by, at most."""
        below = np.array(self.found.low) + 1
        above = 1 - np.array(self.found.high)
        return self.protocol.outliers * float(np.maximum(below, above).max())
