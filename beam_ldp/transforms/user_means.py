"""Rows of people in, the private mean of people's means out: two rounds in one transform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
import dp_accounting
from apache_beam.typehints import typehints

from beam_ldp.protocols import Found, RoundTwo, UserMean
from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import Noise, People, Privacy, Shuffling
from beam_ldp.transforms.budgeted import ChargeTo, charge
from beam_ldp.transforms.collector.side import CollectorSide, Releases, named
from beam_ldp.transforms.composite import check_protocol, paying, release_identity, with_least
from beam_ldp.transforms.device.encode import EncodeVectors
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.device.person_means import MeanPerPerson
from beam_ldp.transforms.device.side import DeviceSide, Reports
from beam_ldp.transforms.elements.blocks import Release, StatisticBlock, ValueBlock, WithheldRelease
from beam_ldp.transforms.elements.stages import counter, typed_outputs, window_bounds
from beam_ldp.transforms.queries import BadNumbers, MeanQuery

# What a mean in two rounds does between the stages that every release has -----------------


_ONLY = "0"  # name of the coordinate where there is one
_INCOMPLETE = "a coordinate without enough reports in round one"


class RoundOneResult(NamedTuple):
    """What round one gave.

    Attributes:
        found: the intervals.
        crowd: people among whom a report of round one hides: the fewest of any coordinate.
        simulated: drawn with a seed: protects nobody.
    """

    found: Found
    crowd: int
    simulated: bool


@dataclass(eq=False)
class EncodeBins(beam.DoFn):
    """Persons to the bin of the coordinate that each of them is asked about."""

    protocol: UserMean

    def process(self, block: ValueBlock) -> Iterator[ValueBlock]:
        assert block.user_ids is not None
        coordinate = self.protocol.assign(block.user_ids).coordinate
        asked = coordinate >= 0
        state = self.protocol.round_one
        if state is None or not asked.any():
            return
        bins = state.encode(block.values[asked], coordinate[asked])
        groups = coordinate[asked] if self.protocol.space.num_coordinates > 1 else None
        yield _part(block, "round one", bins, asked, groups)


@dataclass(eq=False)
class EncodeMeans(beam.DoFn):
    """Persons to the place of their means in the interval; nobody where round one failed."""

    protocol: UserMean

    def process(
        self, block: ValueBlock, answered: Iterable[RoundOneResult] | None = None
    ) -> Iterator[ValueBlock]:
        state = _round_two(self.protocol, answered)
        assert block.user_ids is not None
        asked = self.protocol.assign(block.user_ids).in_round_two
        if state is not None and asked.any():
            yield _part(block, "round two", state.encode(block.values[asked]), asked)


@dataclass(eq=False, repr=False)
class FindInterval(beam.PTransform):
    """Round one's sums to what it found: one `RoundOneResult`, or none where it failed, as the
    attribute `withheld` says.

    Args:
        protocol: the plan of both rounds.
        min_reports: that round one needed.
    """

    protocol: UserMean
    min_reports: int

    def expand(self, sums: beam.PCollection) -> beam.PCollection:
        together = (
            sums
            | "Bring coordinates together"
            >> beam.Map(_together).with_output_types(
                typehints.Tuple[int, typehints.Tuple[str, StatisticBlock]]
            )
            | "All coordinates" >> beam.GroupByKey()
        )
        decide = beam.ParDo(Decide(self.protocol, self.min_reports))
        answered, withheld = typed_outputs(
            together, "Decide", decide, typehints.Any, withheld=WithheldRelease
        )
        answered.withheld = withheld
        return answered


def _together(element: Any) -> tuple[int, tuple[str, StatisticBlock]]:
    return 0, element if isinstance(element, tuple) else (_ONLY, element)


@dataclass(eq=False)
class Decide(beam.DoFn):
    """The sums of all coordinates to what round one found, if none is missing."""

    protocol: UserMean
    min_reports: int

    def process(
        self,
        element: tuple[int, Iterable[tuple[str, StatisticBlock]]],
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        state = self.protocol.round_one
        assert state is not None
        sums = {int(name): total for name, total in element[1]}
        if len(sums) < self.protocol.space.num_coordinates:
            notice = WithheldRelease(0, self.min_reports, _INCOMPLETE, window=window_bounds(window))
            yield beam.pvalue.TaggedOutput("withheld", notice)
            return
        oracle = state.randomizer
        totals = [sums[coordinate] for coordinate in range(len(sums))]
        estimates = [oracle.estimate(total.statistic, total.num_reports) for total in totals]
        yield RoundOneResult(
            state.decide(estimates).found,
            min(total.smallest_batch for total in totals),
            any(total.simulated for total in totals),
        )


@dataclass(eq=False)
class Finish(beam.DoFn):
    """The sum of round two to a release with the event of both rounds."""

    protocol: UserMean
    question: str

    def setup(self) -> None:
        self._releases = counter("releases")

    def process(
        self,
        total: StatisticBlock,
        window: Any = beam.DoFn.WindowParam,
        answered: Iterable[RoundOneResult] | None = None,
    ) -> Iterator[Release]:
        state = _round_two(self.protocol, answered)
        if state is None:
            return
        first = RoundOneResult(state.found, 0, False) if answered is None else list(answered)[0]
        simulated = total.simulated or first.simulated
        crowds = [total.smallest_batch] + [first.crowd] * (answered is not None)
        event = self.protocol.event(first.crowd, total.smallest_batch)
        together = self.protocol.split != "users"
        self._releases.inc()
        yield Release(
            estimate=state.finish(self.protocol.final.estimate(total.statistic, total.num_reports)),
            num_reports=total.num_reports + (0 if together else first.found.num_users),
            # Wrapped, so that it travels whole.
            ran=None if simulated else dp_accounting.ComposedDpEvent([event]),
            question=self.question,
            window=window_bounds(window),
            mechanism=self.protocol.to_config()
            | {"crowds": [first.crowd, total.smallest_batch][-len(crowds) :]},
            smallest_batch=min(crowds),
            output=total.output,
            simulated=simulated,
        )


def _part(
    block: ValueBlock, question: str, values: Any, asked: Any, groups: Any = None
) -> ValueBlock:
    """Some of the persons with what they are asked; another source is another seed."""
    assert block.user_ids is not None and block.positions is not None
    source = f"{block.source}, {question}"
    return ValueBlock(values, block.user_ids[asked], groups, source, block.positions[asked])


def _round_two(protocol: UserMean, answered: Iterable[RoundOneResult] | None) -> RoundTwo | None:
    """The second state; None where round one failed."""
    if answered is None:
        return protocol.round_two()
    for one in answered:
        return protocol.round_two(one.found)
    return None


class PrivateUserMean(beam.PTransform):
    """The mean over people of each person's mean, each person protected with all rows.

    Rows become one mean per person inside the trusted edge; what leaves it are the reports of two
    rounds, of which the second asks about the interval that the first one found. Protects all
    rows of a person, and how many they are, with the protocol's local epsilon against everybody
    who sees the reports, and at the smaller price of the release's `event` against whoever sees
    only what this transform puts out. Which people have any row is not hidden.

    In: rows as `EncodeVectors` takes them, or `ValueBlock`s of vectors with user ids. Out: one
    `Release` per window, whose estimate is a `MeanEstimate` in the unit of the data, about these
    people. A round with too few reports releases nothing. Attributes of the result: `bad_rows`,
    and `withheld`, a collection of `WithheldRelease`.

    Args:
        protocol: the plan of both rounds, from `plan_user_mean`.
        columns: names of the columns of numbers (or of one column of lists).
        people: `id` names the column that says whose row it is. Groups are refused.
        shuffle: as in `PrivateEstimate`; least number of people: default 0.9 of those the protocol
            expects. Where a round asks a part of the people, its gate is that part less five
            standard deviations.
        min_reports: the same as in `shuffle`, for short.
        bad_rows: as in `EncodeVectors`.
        noise: as in `PrivateEstimate`, for both rounds.
        privacy: what a local epsilon above 8 needs, as in `PrivateEstimate`, for both together.
        question: name of what is asked, for the record.
        privacy_unit: what one person's contribution is called; that of the budget, if there is one.
        budget: whose budget this release is charged to; a simulation is never charged.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        ValueError: for arguments that do not fit together.

    >>> from beam_ldp.protocols import Box, plan_user_mean
    >>> from beam_ldp.randomizers.mean.ranges import CoordinateRanges
    >>> from beam_ldp.settings import People
    >>> minutes = Box(CoordinateRanges(0, 1440))
    >>> protocol = plan_user_mean(1000, 20, minutes, local_epsilon=4.0, sigma=30)
    >>> rows = [{"uid": i % 1000, "minutes": 60.0 + i % 7} for i in range(20_000)]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     releases = (
    ...         pipeline
    ...         | beam.Create(rows)
    ...         | PrivateUserMean(protocol, columns="minutes", people=People(id="uid"))
    ...     )
    ...     _ = releases | beam.Map(lambda release: print(release.num_reports))
    1000
    """

    def __init__(
        self,
        protocol: UserMean,
        *,
        columns: str | tuple[str, ...] | None = None,
        people: People = People(),
        shuffle: Shuffling = Shuffling(),
        noise: Noise = Noise(),
        privacy: Privacy | None = None,
        min_reports: int | None = None,
        bad_rows: BadNumbers = "dead_letter",
        question: str = "",
        privacy_unit: str = "user",
        budget: ChargeTo | None = None,
    ) -> None:
        super().__init__()
        check_protocol(protocol, UserMean, people, noise, privacy)
        self._budget = paying(budget, noise, privacy)
        if columns is not None and people.id is None:
            raise ValueError("people.id must name the column that says whose row it is")
        asked = MeanQuery(columns, protocol.space.ranges, question, bad_rows)
        self._gate = with_least(shuffle, min_reports, protocol.num_users)
        self._least = protocol.min_reports(self._gate.least(None))
        self.identity = release_identity(
            protocol.config_digest(),
            columns=asked.columns,
            values_digest=lambda: asked.digest(protocol),
            people=people,
            noise=noise,
            bounding=f"all rows of each {people.id or 'user id'}",
            privacy_unit=privacy_unit,
            budget=self._budget,
        )
        self._protocol = protocol if self.identity is None else protocol.for_release(self.identity)
        self._encode = EncodeVectors(
            columns,
            protocol.space.dimension,
            people=people,
            ranges=protocol.space.ranges,
            bad_rows=bad_rows,
        )
        self._noise = noise
        self._question = question

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        protocol = self._protocol
        encoded = rows | "Encode" >> self._encode
        begun = None if self._budget is None else self._budget.begin(rows, self.identity)
        persons = encoded | "Mean per person" >> MeanPerPerson(protocol.space)
        persons = persons if begun is None else begun.then(persons)
        answered: dict[str, Any] = {}
        rounds: list[tuple[Reports, Releases]] = []
        if protocol.search is not None:
            bins = beam.ParDo(EncodeBins(protocol)).with_output_types(ValueBlock)
            finding = FindInterval(protocol, self._least[0])
            rounds.append(self._round(0, persons, bins, protocol.search.oracle, finding))
            answered["answered"] = beam.pvalue.AsList(rounds[0][1].releases)
        means = beam.ParDo(EncodeMeans(protocol), **answered).with_output_types(ValueBlock)
        finish = beam.ParDo(Finish(protocol, self._question), **answered)
        finishing = finish.with_output_types(Release)
        rounds.append(self._round(1, persons, means, protocol.final, finishing))
        notices = [given.withheld for _, given in rounds]
        found = Releases(rounds[-1][1].releases, notices | "Withheld" >> beam.Flatten())
        if self._budget is not None and begun is not None:
            found = charge(
                begun,
                protocol.event(*(self._budget.honest(crowd) for crowd in self._least)),
                rows,
                found,
                persons,
                identity=self.identity,
                question=self._question,
            )
        releases = found.releases
        traces = [made.traces for made, _ in rounds if made.traces is not None]
        releases.traces = traces | "All traces" >> beam.Flatten() if traces else None
        releases.persons, releases.bad_rows = persons, encoded.bad_rows
        releases.withheld = named(found.withheld, self._question)
        return releases

    def _round(
        self,
        number: int,
        persons: beam.PCollection,
        encoder: beam.PTransform,
        randomizer: Any,
        estimator: beam.PTransform,
    ) -> tuple[Reports, Releases]:
        """One round: what leaves devices, and what is made of it."""
        coordinates = self._protocol.space.num_coordinates
        searched = self._protocol.search is not None
        grouped = number == 0 and coordinates > 1
        identity = None if self.identity is None else self.identity.of_round(number)
        device = DeviceSide(
            encoder,
            randomizer,
            noise=NoiseSource.told(self._noise, identity, number=number if searched else 0),
        )
        collector = CollectorSide(
            randomizer,
            estimator,
            shuffle=replace(self._gate, min_reports=self._least[number]),
            groups=Domain(tuple(map(str, range(coordinates)))) if grouped else None,
        )
        label = ("Round one", "Round two")[number]
        made: Reports = persons | f"{label}: device" >> device
        return made, made.reports | f"{label}: collector" >> collector

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": "UserMean",
            "local_epsilon": self._protocol.local_epsilon,
            "split": self._protocol.split,
            "min_reports_round_one": self._least[0],
            "min_reports_round_two": self._least[1],
            "question": self._question,
        }
