"""A plan of several rounds over people's values, by group and window: one transform for all plans.

    persons, each with a role ──┬── round 0 ── sums of its cells
                                │                │ state, of each group and window
                                ├── round 1 ── sums of its cells
                                │                │
                                └── ...

What a round is asked depends on the state that the rounds before it came to, so rounds are a chain
of side inputs. A group and window without exactly one state asks nobody: what it would release is
withheld. What the rounds are is said by a `beam_ldp.protocols.rounds.RoundsPlan`, which knows no
Beam.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints

from beam_ldp.protocols.rounds import NOBODY, History, Received, Round, RoundsPlan
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.randomness import FreshWords, assignment_words
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.collector.side import CollectorSide, Releases, absent_groups
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.device.keyed import NoiseSource, Trace
from beam_ldp.transforms.device.side import RandomizeTraced, Reports, Waiting, origin_of
from beam_ldp.transforms.elements.blocks import (
    Release,
    ReportBlock,
    StatisticBlock,
    ValueBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.portable import PortableDomain, PortableRandomizer, groups_of
from beam_ldp.transforms.elements.stages import (
    NO_KEY,
    check_fires_once,
    check_windows,
    counter,
    is_global,
    is_streamed,
    typed_outputs,
    window_bounds,
)

_BETWEEN = "\x1f"  # a group and a cell, in the name of both
_INCOMPLETE = "a part of the people gave fewer reports than a round needs"
_TOO_FEW = "fewer people answered than a release needs"


class Answered(NamedTuple):
    """What the rounds so far came to, in a group and window.

    Attributes:
        group: its public name; `NO_KEY` where people are in none.
        state: what the next round is asked about.
        received: by every round.
        simulated: drawn with a seed: protects nobody.
    """

    group: str
    state: Any
    received: History
    simulated: bool


# Who answers what, and what they answer ----------------------------------------------------


@dataclass(eq=False)
class AssignRoles(beam.DoFn):
    """Persons with the role that each has drawn, in the place of their group.

    It is drawn by secret randomness, whatever the value: a pseudo-random function of key, person
    and release where noise is memoized, so that nobody answers for two roles.
    """

    plan: RoundsPlan
    noise: NoiseSource

    def setup(self) -> None:
        self._key = self.noise.key()
        self._roles = len(self.plan.roles)

    def process(
        self, block: ValueBlock, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[ValueBlock]:
        if len(block):
            roles = self.plan.roles_of(self._words(block, window), block.user_ids)
            yield replace(block, groups=_together(block.groups, roles, self._roles))

    def _words(self, block: ValueBlock, window: Any) -> np.ndarray:
        if self._key is not None:
            if block.user_ids is None:
                raise ValueError("memoized roles need user ids: name the user id column")
            return assignment_words(self._key, block.user_ids, self.noise.of(window))
        origin = origin_of(block, window, "level")
        if self.noise.seed is None or not origin:
            return FreshWords().words(0, len(block), 1)[:, 0]
        generator = np.random.default_rng(np.random.SeedSequence([self.noise.seed, *origin]))
        return generator.integers(0, 2**64, len(block), dtype=np.uint64)


def _together(groups: np.ndarray | None, parts: np.ndarray, size: int) -> np.ndarray:
    """One index for a group and one of `size` parts of it."""
    return parts if groups is None else groups.astype(np.int64) * size + parts


@dataclass(eq=False)
class PartRounds(beam.DoFn):
    """The people of each round by themselves, under its tag, with the cell that they answer."""

    plan: RoundsPlan
    grouped: bool

    def process(self, block: ValueBlock) -> Iterator[Any]:
        if not len(block):
            return
        groups = block.groups
        if not self.plan.secret:
            roles = self.plan.roles_of(None, block.user_ids)
        else:
            assert groups is not None
            groups, roles = np.divmod(groups, len(self.plan.roles))
        for number, asked in enumerate(self.plan.rounds):
            cells = self.plan.cells(roles, number)
            answering = cells != NOBODY
            if not answering.any():
                continue
            part, own = block.where(answering), cells[answering]
            there = groups[answering] if self.grouped and groups is not None else None
            both = _together(there, own, asked.cells) if asked.cells > 1 else there
            yield beam.pvalue.TaggedOutput(tag(number), replace(part, groups=both))


def tag(number: int) -> str:
    """The output of `PartRounds` that holds the people of a round."""
    return f"round {number}"


@dataclass(eq=False)
class AskRound(RandomizeTraced):
    """People of a round to their reports."""

    round: Round
    start: Any = None  # the state, where nothing was asked before
    groups: PortableDomain | None = None

    def setup(self) -> None:
        super().setup()
        self._labels = None if self.groups is None else self.groups.load().labels

    def process(
        self,
        block: ValueBlock,
        window: Any = beam.DoFn.WindowParam,
        before: Iterable[Answered] | None = None,
    ) -> Iterator[Any]:
        for part, state in self._under(block, before):
            cells = np.zeros(len(part), dtype=np.int64)
            if part.groups is not None and self.round.cells > 1:
                cells = part.groups % self.round.cells
            self._state = state
            values = self.round.values(part.values, cells, state)
            source = f"{part.source}, {self.round.name}" if self.round.name else part.source
            yield from self._emit(None, replace(part, values=values, source=source), window)

    def _under(
        self, block: ValueBlock, before: Iterable[Answered] | None
    ) -> Iterator[tuple[ValueBlock, Any]]:
        """The people of each group with the state that they are asked under."""
        if before is None:
            yield block, self.start
            return
        states = alone(before)
        if self._labels is None:
            if NO_KEY in states:
                yield block, states[NO_KEY].state
            return
        assert block.groups is not None
        groups = block.groups // self.round.cells
        for group in np.unique(groups).tolist():
            found = states.get(self._labels[group])
            if found is not None:
                yield block.where(groups == group), found.state

    def _drawn_under(self, window: Any) -> ReleaseIdentity:
        release = self.noise.of(window)
        return replace(release, part=f"{release.part} {self.round.part(self._state)}".strip())

    def _left_behind(self, block: ValueBlock, drawn: Any, window: Any) -> Iterator[Any]:
        if self._key is not None:
            yield from super()._left_behind(block, drawn, window)


def alone(before: Iterable[Answered]) -> dict[str, Answered]:
    """What every group came to that came to one thing; of two nobody knows which was asked."""
    states: dict[str, Answered] = {}
    twice: set[str] = set()
    for one in before:
        if one.group in states:
            twice.add(one.group)
        states[one.group] = one
    return {group: one for group, one in states.items() if group not in twice}


# What the collector makes of it -------------------------------------------------------------


@dataclass(frozen=True)
class _Names:
    """Names of groups and cells, in the place of a list."""

    labels: tuple[str, ...]


class CellsOf(PortableDomain):
    """The cells of a round as groups: of each public group, or of everybody."""

    def __init__(self, groups: PortableDomain | None, cells: int) -> None:
        self._groups, self._cells = groups, cells

    def load(self) -> Any:
        cells = tuple(map(str, range(self._cells)))
        if self._groups is None:
            return _Names(cells)
        groups = self._groups.load().labels
        return _Names(tuple(f"{group}{_BETWEEN}{cell}" for group in groups for cell in cells))


def _group_and_cell(name: str, grouped: bool) -> tuple[str, int]:
    group, _, cell = name.rpartition(_BETWEEN) if grouped else (NO_KEY, "", name)
    return group, int(cell)


@dataclass(eq=False)
class ReadRound(beam.DoFn):
    """The sums of a round, all cells of a group together, to what it came to; of the last round,
    to a release with the event of all of them.

    Args:
        plan: of all rounds.
        number: of this one.
        least: reports that a cell needed.
        people: who must have answered altogether, in all rounds.
        grouped: whether people are in public groups.
        question: name of what is asked, for the record.
    """

    plan: RoundsPlan
    number: int
    least: int
    people: int
    grouped: bool
    question: str

    def setup(self) -> None:
        self._releases = counter("releases")

    def process(
        self,
        element: tuple[str, Iterable[tuple[int, StatisticBlock]]],
        window: Any = beam.DoFn.WindowParam,
        before: Iterable[Answered] | None = None,
    ) -> Iterator[Any]:
        group, sums = element[0], dict(element[1])
        asked, start = (
            self.plan.rounds[self.number],
            Answered(element[0], self.plan.start, (), False),
        )
        earlier = start if before is None else alone(before).get(group)
        if earlier is None:
            return
        if len(sums) < asked.cells:
            yield self._withheld(group, 0, self.least, _INCOMPLETE, window)
            return
        cells = [sums[cell] for cell in range(asked.cells)]
        received = tuple(Received(cell.num_reports, cell.smallest_batch) for cell in cells)
        statistics = [cell.statistic for cell in cells]
        found = Answered(
            group,
            asked.advance(earlier.state, statistics, received, earlier.received),
            (*earlier.received, received),
            earlier.simulated or any(cell.simulated for cell in cells),
        )
        if self.number < len(self.plan.rounds) - 1:
            if found.state is not None:
                yield found
            return
        outcome = self.plan.outcome(found.received)
        if outcome.num_reports < self.people:
            yield self._withheld(group, outcome.num_reports, self.people, _TOO_FEW, window)
            return
        release = self._release(found, outcome, cells[0].output, window)
        yield (group, release) if self.grouped else release

    def _withheld(self, group: str, came: int, needed: int, reason: str, window: Any) -> Any:
        name = group if self.grouped else None
        notice = WithheldRelease(came, needed, reason, group=name, window=window_bounds(window))
        return beam.pvalue.TaggedOutput("withheld", notice)

    def _release(self, found: Answered, outcome: Any, output: str, window: Any) -> Release:
        self._releases.inc()
        ran = None if found.simulated else _whole(outcome.reports)
        return Release(
            estimate=found.state,
            num_reports=outcome.num_reports,
            ran=ran,
            question=self.question,
            group=found.group if self.grouped else None,
            window=window_bounds(window),
            mechanism=outcome.config,
            smallest_batch=outcome.crowd,
            output=output,
            simulated=found.simulated,
        )


def _whole(reports: Any) -> Any:
    """What ran, wrapped, so that it travels whole: of a single shuffle only the number would."""
    from beam_ldp.accounting.events import as_event  # loads dp_accounting, where a release is made
    from beam_ldp.accounting.reports import ComposedReports

    return as_event(ComposedReports((reports,)))


@dataclass(frozen=True, eq=False)
class AskRounds:
    """Both halves of a release in rounds. A round with too few reports releases nothing, of no
    round. The reports of all rounds are in no one collection.

    Args:
        plan: of all rounds.
        encode: rows to `ValueBlock`s of what people hold.
        reduce: `ValueBlock`s to one row of a block for each person; None draws one row of each.
        people, noise: as for the composites.
        shuffle: likewise, with the least number of people.
        identity: of the release; None where nobody named it.
        question: name of what is asked, for the record.
        wait: what the blocks of people go through before they are asked, if anything.

    """

    plan: RoundsPlan
    encode: beam.PTransform
    reduce: beam.PTransform | None
    _: KW_ONLY
    people: People
    noise: Noise
    shuffle: Shuffling
    identity: ReleaseIdentity | None
    question: str
    wait: Waiting | None = None

    @property
    def _groups(self) -> PortableDomain | None:
        return groups_of(self.people)

    @property
    def _least(self) -> tuple[int, ...]:
        return self.plan.least(self.shuffle.least(None))

    def worst(self, budget: ChargeTo) -> Any:
        """The event of the dearest release that can happen."""
        from beam_ldp.accounting.events import as_event  # loads dp_accounting

        return as_event(self.plan.worst(self._least, budget.honest_fraction))

    def ask(self, rows: beam.PCollection) -> tuple[Reports, Releases]:
        """What leaves devices, and what is made of it.

        Raises:
            ValueError: for unbounded data, and for windows that fire more than once.
        """
        check_windows("a plan of rounds", rows)
        check_fires_once("a plan of rounds", rows, "a round would be asked under two states")
        if is_streamed(rows):
            raise ValueError(
                "rounds need bounded data: a person who comes late would be asked under a state "
                "that others never saw. Run one job for each window"
            )
        encoded = rows | "Encode" >> self.encode
        persons = self._persons(encoded)
        persons = persons if self.wait is None else self.wait(persons)
        part = beam.ParDo(PartRounds(self.plan, self._groups is not None))
        parts = persons | "Part" >> part.with_outputs()
        before: beam.PCollection | None = None
        traces, notices = [], []
        for number in range(len(self.plan.rounds)):
            parts[tag(number)].element_type = ValueBlock
            left, given = self._round(number, parts[tag(number)], before)
            before = given.releases
            notices.append(given.withheld)
            traces += [left] if self.noise.memoized else []
        withheld = notices | "Withheld" >> beam.Flatten()
        if self._groups is not None and is_global(rows):
            withheld = absent_groups(before, withheld, self._groups, self._least[-1])
        return Reports(
            None,
            None if self.people.id is None and self.reduce is None else persons,
            encoded.bad_rows,
            traces=traces | "All traces" >> beam.Flatten() if traces else None,
        ), Releases(before, withheld)

    def _persons(self, encoded: beam.PCollection) -> beam.PCollection:
        """Every person once, with a role that is drawn by then: behind an exchange, for a second
        draw asks again."""
        if self.reduce is not None:
            encoded = encoded | "Reduce" >> self.reduce
        noise = NoiseSource.told(self.noise, self.identity)
        if self.plan.secret:
            assign = beam.ParDo(AssignRoles(self.plan, noise))
            encoded = encoded | "Assign roles" >> assign.with_output_types(ValueBlock)
        if self.reduce is None and self.people.id is not None:
            return encoded | "Bound" >> BoundContributions(noise=noise)
        if not self.plan.secret:
            return encoded
        return encoded | "Keep roles" >> beam.Reshuffle().with_output_types(ValueBlock)

    def _round(
        self, number: int, persons: beam.PCollection, before: beam.PCollection | None
    ) -> tuple[beam.PCollection, Releases]:
        """One round: traces of what leaves devices, and what is made of it."""
        plan, asked = self.plan, self.plan.rounds[number]
        side = {} if before is None else {"before": beam.pvalue.AsList(before)}
        identity = None if self.identity is None else asked.identity(self.identity)
        noise = NoiseSource.told(self.noise, identity, number=number)
        carried = PortableRandomizer(asked.randomizer)
        ask = AskRound(carried, noise, False, asked, plan.start, self._groups)
        reports, traces = typed_outputs(
            persons, f"Ask round {number}", beam.ParDo(ask, **side), ReportBlock, traces=Trace
        )
        least, people = self._least[number], self.shuffle.least(None)
        grouped = self._groups is not None
        collector = CollectorSide(
            asked.randomizer,
            _ReadSums(ReadRound(plan, number, least, people, grouped, self.question), side),
            shuffle=replace(self.shuffle, min_reports=least),
            groups=self._groups if asked.cells == 1 else CellsOf(self._groups, asked.cells),
            absent=False,
        )
        given: Releases = reports | f"Collect round {number}" >> collector
        if asked.cells > 1 and grouped:
            whole = beam.Map(_of_group).with_output_types(WithheldRelease)
            given = Releases(given.releases, given.withheld | f"Name groups {number}" >> whole)
        return traces, given


def _of_group(notice: WithheldRelease) -> WithheldRelease:
    """The same about the public group, whose cells are nobody's business."""
    return replace(notice, group=_group_and_cell(str(notice.group), True)[0])


@dataclass(eq=False, repr=False)
class _ReadSums(beam.PTransform):
    """Sums of a round, each of a group, a cell or both, to what `ReadRound` gives."""

    read: ReadRound
    side: dict[str, Any]

    def expand(self, sums: beam.PCollection) -> beam.PCollection:
        read = self.read
        asked, last = read.plan.rounds[read.number], read.number == len(read.plan.rounds) - 1
        pair: Any = typehints.Tuple[str, typehints.Iterable[typehints.Tuple[int, StatisticBlock]]]
        if asked.cells == 1:
            together = sums | "Alone" >> beam.Map(_alone, read.grouped).with_output_types(pair)
        else:
            apart: Any = typehints.Tuple[str, typehints.Tuple[int, StatisticBlock]]
            together = (
                sums
                | "Cells" >> beam.Map(_apart, read.grouped).with_output_types(apart)
                | "All cells" >> beam.GroupByKey()
            )
        kind: Any = typehints.Any
        if last:
            kind = typehints.Tuple[str, Release] if read.grouped else Release
        found, withheld = typed_outputs(
            together, "Read", beam.ParDo(read, **self.side), kind, withheld=WithheldRelease
        )
        found.withheld = withheld
        return found


def _alone(element: Any, grouped: bool) -> tuple[str, list[tuple[int, StatisticBlock]]]:
    group, total = element if grouped else (NO_KEY, element)
    return group, [(0, total)]


def _apart(element: tuple[str, StatisticBlock], grouped: bool) -> tuple[str, tuple[int, Any]]:
    group, cell = _group_and_cell(element[0], grouped)
    return group, (cell, element[1])
