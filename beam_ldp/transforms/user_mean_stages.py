"""What a mean in two rounds does between the stages that every release has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import dp_accounting
from apache_beam.typehints import typehints

from beam_ldp.protocols import Found, RoundTwo, UserMean
from beam_ldp.transforms.blocks import Release, StatisticBlock, ValueBlock, WithheldRelease
from beam_ldp.transforms.counters import counter
from beam_ldp.transforms.gate import window_bounds

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


class EncodeBins(beam.DoFn):
    """Persons to the bin of the coordinate that each of them is asked about."""

    def __init__(self, protocol: UserMean) -> None:
        self._protocol = protocol

    def process(self, block: ValueBlock) -> Iterator[ValueBlock]:
        assert block.user_ids is not None
        coordinate = self._protocol.assign(block.user_ids).coordinate
        asked = coordinate >= 0
        state = self._protocol.round_one
        if state is None or not asked.any():
            return
        bins = state.encode(block.values[asked], coordinate[asked])
        groups = coordinate[asked] if self._protocol.space.num_coordinates > 1 else None
        yield _part(block, "round one", bins, asked, groups)


class EncodeMeans(beam.DoFn):
    """Persons to the place of their means in the interval; nobody where round one failed."""

    def __init__(self, protocol: UserMean) -> None:
        self._protocol = protocol

    def process(
        self, block: ValueBlock, answered: Iterable[RoundOneResult] | None = None
    ) -> Iterator[ValueBlock]:
        state = _round_two(self._protocol, answered)
        assert block.user_ids is not None
        asked = self._protocol.assign(block.user_ids).in_round_two
        if state is not None and asked.any():
            yield _part(block, "round two", state.encode(block.values[asked]), asked)


class FindInterval(beam.PTransform):
    """Round one's sums to what it found: one `Answered`, or none where it failed, as the attribute
    `withheld` says.

    Args:
        protocol: the plan of both rounds.
        min_reports: that round one needed.
    """

    def __init__(self, protocol: UserMean, min_reports: int) -> None:
        super().__init__()
        self._decide = Decide(protocol, min_reports)

    def expand(self, sums: beam.PCollection) -> beam.PCollection:
        out = (
            sums
            | "Bring coordinates together"
            >> beam.Map(_together).with_output_types(
                typehints.Tuple[int, typehints.Tuple[str, StatisticBlock]]
            )
            | "All coordinates" >> beam.GroupByKey()
            | "Decide" >> beam.ParDo(self._decide).with_outputs("withheld", main="answered")
        )
        out.withheld.element_type = WithheldRelease
        out.answered.withheld = out.withheld
        return out.answered


def _together(element: Any) -> tuple[int, tuple[str, StatisticBlock]]:
    return 0, element if isinstance(element, tuple) else (_ONLY, element)


class Decide(beam.DoFn):
    """The sums of all coordinates to what round one found, if none is missing."""

    def __init__(self, protocol: UserMean, min_reports: int) -> None:
        self._protocol = protocol
        self._min_reports = min_reports

    def process(
        self,
        element: tuple[int, Iterable[tuple[str, StatisticBlock]]],
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        state = self._protocol.round_one
        assert state is not None
        sums = {int(name): total for name, total in element[1]}
        if len(sums) < self._protocol.space.num_coordinates:
            notice = WithheldRelease(
                0, self._min_reports, _INCOMPLETE, window=window_bounds(window)
            )
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


class Finish(beam.DoFn):
    """The sum of round two to a release with the event of both rounds."""

    def __init__(self, protocol: UserMean, question: str) -> None:
        self._protocol = protocol
        self._question = question

    def setup(self) -> None:
        self._releases = counter("releases")

    def process(
        self,
        total: StatisticBlock,
        window: Any = beam.DoFn.WindowParam,
        answered: Iterable[RoundOneResult] | None = None,
    ) -> Iterator[Release]:
        state = _round_two(self._protocol, answered)
        if state is None:
            return
        first = RoundOneResult(state.found, 0, False) if answered is None else list(answered)[0]
        simulated = total.simulated or first.simulated
        crowds = [total.smallest_batch] + [first.crowd] * (answered is not None)
        event = self._protocol.event(first.crowd, total.smallest_batch)
        together = self._protocol.split != "users"
        self._releases.inc()
        yield Release(
            estimate=state.finish(
                self._protocol.final.estimate(total.statistic, total.num_reports)
            ),
            num_reports=total.num_reports + (0 if together else first.found.num_users),
            # Wrapped, so that it travels whole.
            ran=None if simulated else dp_accounting.ComposedDpEvent([event]),
            question=self._question,
            window=window_bounds(window),
            mechanism=self._protocol.to_config()
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
