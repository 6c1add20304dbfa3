"""Rows of people in, the words that many of them hold out: all levels in one transform.

    rows ── one word of each person, and the level that the person answers ──┬── level 0 ── sum
                                                                            │        │ candidates
                                                                            ├── level 1 ── sum
                                                                            │        │ candidates
                                                                            └── ...

A level is asked about the candidates that the one before it found, so levels are a chain of side
inputs. A person answers one of them, whether or not the own word is among its candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints

from beam_ldp.accounting.events import as_event
from beam_ldp.accounting.reports import ComposedReports
from beam_ldp.protocols.heavy_hitters import HeavyHitters
from beam_ldp.questions.encoders import WordEncoder
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.identity import ReleaseIdentity, digest_of
from beam_ldp.randomizers.randomness import FreshWords, assignment_words
from beam_ldp.settings import Noise, People, Privacy, Shuffling
from beam_ldp.transforms.budgeted import ChargeTo, charge
from beam_ldp.transforms.collector.side import CollectorSide, Releases, named
from beam_ldp.transforms.composite import (
    bounding_of,
    check_protocol,
    paying,
    release_identity,
    unit_of,
    with_least,
)
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.device.encode import Encode
from beam_ldp.transforms.device.keyed import NoiseSource, Trace
from beam_ldp.transforms.device.side import RandomizeTraced, origin_of
from beam_ldp.transforms.elements.blocks import Release, ReportBlock, StatisticBlock, ValueBlock
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stages import counter, typed_outputs, window_bounds
from beam_ldp.transforms.queries import BadLists


class EncodeWords(Encode):
    """Turns rows into `ValueBlock`s of words, as rows of bits: `Encode` with a code.

    A word that is longer than the protocol finds becomes one that nobody finds. A row that is no
    word (missing column, null, wrong type, undecodable text, more than 4,096 bytes) is a bad row.
    Out: `ValueBlock`s of uint64 `(n, words of 64 bits of a code)`.

    Args:
        protocol: which says the code.
        column: name of the column with the word; None where elements are words.
        people: the column with a person's id.
        bad_rows: "dead_letter" as said; "other" turns them into a word that nobody finds, and
            leaves no trace of them; rows without a user id are bad rows in both.
    """

    def __init__(
        self,
        protocol: HeavyHitters,
        column: str | None = None,
        *,
        people: People = People(),
        bad_rows: BadLists = "dead_letter",
    ) -> None:
        encoder = WordEncoder(None if column is None else (column,), protocol.code)
        super().__init__(encoder, people=people, bad_rows=bad_rows)


@dataclass(eq=False)
class AssignLevels(beam.DoFn):
    """Rows with the level that each person answers, as their group.

    It is drawn by secret randomness, whatever the value: a pseudo-random function of key, person
    and release where noise is memoized, so that nobody is asked at two levels.
    """

    protocol: HeavyHitters
    noise: NoiseSource

    def setup(self) -> None:
        self._key = self.noise.key()

    def process(
        self, block: ValueBlock, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[ValueBlock]:
        if len(block):
            yield replace(block, groups=self.protocol.assign(self._draws(block, window)))

    def _draws(self, block: ValueBlock, window: Any) -> np.ndarray:
        if self._key is not None:
            if block.user_ids is None:
                raise ValueError("memoized levels need user ids: name the user id column")
            return assignment_words(self._key, block.user_ids, self.noise.of(window))
        origin = origin_of(block, window, "level")
        if self.noise.seed is None or not origin:
            return FreshWords().words(0, len(block), 1)[:, 0]
        generator = np.random.default_rng(np.random.SeedSequence([self.noise.seed, *origin]))
        return generator.integers(0, 2**64, len(block), dtype=np.uint64)


class _PartLevels(beam.DoFn):
    """The persons of each level by themselves, under its tag."""

    def process(self, block: ValueBlock) -> Iterator[Any]:
        assert block.groups is not None
        for level in np.unique(block.groups).tolist():
            part = replace(block.where(block.groups == level), groups=None)
            yield beam.pvalue.TaggedOutput(_tag(level), part)


def _tag(level: int) -> str:
    return f"level {level}"


class Found(NamedTuple):
    """What the levels so far came to.

    Attributes:
        candidates: beginnings of words that the next level is asked about.
        received: people who answered each level.
        simulated: drawn with a seed: protects nobody.
    """

    candidates: Any
    received: tuple[int, ...]
    simulated: bool


@dataclass(eq=False)
class AnswerLevel(RandomizeTraced):
    """Persons of a level to reports of which candidate their word begins with.

    Memoized noise is a function of the candidates too: asked about others, a person draws noise
    that is independent.
    """

    protocol: HeavyHitters
    level: int

    def process(
        self,
        block: ValueBlock,
        window: Any = beam.DoFn.WindowParam,
        before: Iterable[Found] = (),
    ) -> Iterator[Any]:
        for found in before:
            self._asked = _digest(found.candidates)
            asked = self.protocol.encode(block.values, self.level, found.candidates)
            yield from self._emit(None, replace(block, values=asked), window)

    def _drawn_under(self, window: Any) -> ReleaseIdentity:
        release = self.noise.of(window)
        return replace(release, part=f"{release.part} level {self.level} of {self._asked}".strip())

    def _left_behind(self, block: ValueBlock, drawn: Any, window: Any) -> Iterator[Any]:
        if self._key is not None:
            yield from super()._left_behind(block, drawn, window)


def _digest(candidates: Any) -> str:
    """Of candidates, public once they are found."""
    return digest_of(candidates.tobytes()).hex()


@dataclass(eq=False)
class Extend(beam.DoFn):
    """The sum of a level to the candidates of the next one."""

    protocol: HeavyHitters
    level: int

    def process(self, total: StatisticBlock, before: Iterable[Found] = ()) -> Iterator[Found]:
        for found in before:
            estimate = _estimate(self.protocol, self.level, total)
            yield Found(
                self.protocol.extend(self.level, estimate, found.candidates),
                (*found.received, total.num_reports),
                found.simulated or total.simulated,
            )


def _estimate(protocol: HeavyHitters, level: int, total: StatisticBlock) -> Estimate:
    return protocol.levels[level].oracle.estimate(total.statistic, total.num_reports)


@dataclass(eq=False)
class Finish(beam.DoFn):
    """The sum of the last level to a release with the event of all of them."""

    protocol: HeavyHitters
    question: str

    def setup(self) -> None:
        self._releases = counter("releases")

    def process(
        self,
        total: StatisticBlock,
        window: Any = beam.DoFn.WindowParam,
        before: Iterable[Found] = (),
    ) -> Iterator[Release]:
        for found in before:
            received = (*found.received, total.num_reports)
            simulated = found.simulated or total.simulated
            estimate = _estimate(self.protocol, -1, total)
            words: Any = self.protocol.finish(estimate, found.candidates, sum(received))
            ran = None if simulated else self.protocol.reports(received)
            self._releases.inc()
            yield Release(
                estimate=words,
                num_reports=sum(received),
                ran=None if ran is None else as_event(ComposedReports((ran,))),  # travels whole
                question=self.question,
                window=window_bounds(window),
                mechanism=config_of(self.protocol) | {"received": list(received)},
                smallest_batch=self.protocol.crowd(received),
                output=total.output,
                simulated=simulated,
            )


def config_of(protocol: HeavyHitters) -> dict[str, Any]:
    """The plan as a release names its mechanism."""
    return {"mechanism": "HeavyHitters", **protocol.to_config()}


class PrivateHeavyHitters(beam.PTransform):
    """The words that many people hold, of all that have a code, under local privacy.

    Each person answers one level, drawn in secret, with one report about the beginning of the own
    word; one row of each person is drawn before. Protects the word with the protocol's local
    epsilon against everybody who sees the report, and at the smaller price of the release's
    `event` against whoever sees only what this transform puts out.

    In: rows as `EncodeWords` takes them. Out: one `Release` per window, whose estimate names the
    words found. A level with too few reports releases nothing, of no level. Attributes of the
    result: `bad_rows`, `persons`, `traces`, and `withheld`, a collection of `WithheldRelease`.

    Args:
        protocol: the plan of all levels, from `plan_heavy_hitters`. It says how long the code of a
            word may be: words of scripts other than Latin need 6 to 11 bits a byte.
        column: name of the column with the word; None where elements are words.
        people: `id` names the column that says whose row it is; without it each row is a person.
            Groups are refused.
        shuffle: as in `PrivateEstimate`, sums only; least number of people: default 0.9 of those
            the protocol expects. The gate of a level is its share of them, less five standard
            deviations.
        min_reports: the same as in `shuffle`, for short.
        bad_rows: as in `EncodeWords`.
        noise: as in `PrivateEstimate`, for the draw of levels and for all reports.
        privacy: what a local epsilon above 8 needs, as in `PrivateEstimate`.
        question: name of what is asked, for the record.
        privacy_unit: what one person's contribution is called; that of the budget, if there is one.
        budget: whose budget this release is charged to; a simulation is never charged.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        protocol: HeavyHitters,
        *,
        column: str | None = None,
        people: People = People(),
        shuffle: Shuffling = Shuffling(),
        noise: Noise = Noise(),
        privacy: Privacy | None = None,
        min_reports: int | None = None,
        bad_rows: BadLists = "dead_letter",
        question: str = "",
        privacy_unit: str = "user",
        budget: ChargeTo | None = None,
    ) -> None:
        super().__init__()
        check_protocol(protocol, HeavyHitters, people, noise, privacy)
        if shuffle.output != "statistic":
            raise ValueError('shuffle.output must be "statistic": only sums of a level leave')
        self._budget = paying(budget, noise, privacy)
        self._gate = with_least(shuffle, min_reports, protocol.num_users)
        self._least = protocol.min_reports(self._gate.least(None))
        unit = unit_of(privacy_unit, self._budget)
        self.identity = release_identity(
            protocol.config_digest(),
            columns=(column or question,) if column or question else (),
            values_digest=lambda: b"",
            people=people,
            noise=noise,
            bounding=bounding_of(people, unit),
            privacy_unit=unit,
            budget=self._budget,
        )
        self._protocol = protocol
        self._people, self._question = people, question
        self._told = noise
        self._noise = NoiseSource.told(noise, self.identity)
        self._encode = EncodeWords(protocol, column, people=people, bad_rows=bad_rows)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        protocol = self._protocol
        encoded = rows | "Encode" >> self._encode
        begun = None if self._budget is None else self._budget.begin(rows, self.identity)
        persons = self._persons(encoded)
        persons = persons if begun is None else begun.then(persons)
        parts = persons | "Part" >> beam.ParDo(_PartLevels()).with_outputs()
        start = Found(protocol.root, (), False)
        before = rows.pipeline | "Start" >> beam.Create([start])
        traces, notices = [], []
        for level in range(len(protocol.levels)):
            answered, given = self._level(level, parts[_tag(level)], before)
            before = given.releases
            notices.append(given.withheld)
            traces += [answered.traces] if self._noise.memoized else []
        found = Releases(before, notices | "Withheld" >> beam.Flatten())
        drawn = None if self._people.id is None else persons
        if self._budget is not None and begun is not None:
            worst = protocol.reports(self._least, self._budget.honest_fraction)
            found = charge(
                begun,
                as_event(worst),
                rows,
                found,
                drawn,
                identity=self.identity,
                question=self._question,
            )
        releases = found.releases
        releases.traces = traces | "All traces" >> beam.Flatten() if traces else None
        releases.persons, releases.bad_rows = drawn, encoded.bad_rows
        releases.withheld = named(found.withheld, self._question)
        return releases

    def _persons(self, encoded: beam.PCollection) -> beam.PCollection:
        """Every person once, with a level: behind an exchange, for a second draw asks again."""
        assign = beam.ParDo(AssignLevels(self._protocol, self._noise))
        assigned = encoded | "Assign levels" >> assign.with_output_types(ValueBlock)
        if self._people.id is None:
            return assigned | "Keep levels" >> beam.Reshuffle().with_output_types(ValueBlock)
        return assigned | "Bound" >> BoundContributions(noise=self._noise)

    def _level(
        self, level: int, persons: beam.PCollection, before: beam.PCollection
    ) -> tuple[beam.PCollection, Releases]:
        """One level: what leaves devices, and what is made of it."""
        protocol, question = self._protocol, self._question
        oracle, last = protocol.levels[level].oracle, level == len(protocol.levels) - 1
        side: dict[str, Any] = {"before": beam.pvalue.AsList(before)}
        persons.element_type = ValueBlock
        noise = NoiseSource.told(self._told, self.identity, number=level)
        answer = AnswerLevel(PortableRandomizer(oracle), noise, False, protocol, level)
        reports, traces = typed_outputs(
            persons, f"Answer level {level}", beam.ParDo(answer, **side), ReportBlock, traces=Trace
        )
        reports.traces = traces
        doer: beam.DoFn = Finish(protocol, question) if last else Extend(protocol, level)
        reading = beam.ParDo(doer, **side).with_output_types(Release if last else typehints.Any)
        collector = CollectorSide(
            oracle, reading, shuffle=replace(self._gate, min_reports=self._least[level])
        )
        return reports, reports | f"Collect level {level}" >> collector

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": "HeavyHitters",
            "local_epsilon": self._protocol.local_epsilon,
            "levels": len(self._protocol.levels),
            "min_reports": min(self._least),
            "question": self._question,
        }
