"""A search for words that devices answer: one level of it at a time, as a question of its own.

    device:     word ─▶ is this level the person's own? ─▶ child of a candidate, or none ─▶ report
    collector:  reports of the level ─▶ sum ─▶ candidates of the next level, or the words

Every person answers the one level that is drawn on the device, whatever was found before: whoever
is asked at another level sends nothing. So whoever receives reports knows each sender's level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam
import numpy as np

from beam_ldp.settings import People
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.device.encode import EncodeWords
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.device.side import Values
from beam_ldp.transforms.elements.blocks import Release, StatisticBlock, ValueBlock
from beam_ldp.transforms.elements.stages import window_bounds
from beam_ldp.transforms.rounds import AssignRoles

if TYPE_CHECKING:
    from beam_ldp.protocols.heavy_hitters import HeavyHitters


@dataclass(frozen=True, eq=False)
class WordsOfLevel:
    """Rows to what the people of one level answer truthfully; nothing is private yet.

    Args:
        protocol: the plan of all levels.
        level: from 0.
        candidates: that the level asks about.
        column: with the word.
        people: whose rows these are; one of each person is drawn.
        noise: of the search, not of the level: a secret key, from which follow each person's level
            and row.
        bad_rows: as in `EncodeWords`.
    """

    protocol: HeavyHitters
    level: int
    candidates: np.ndarray
    _: KW_ONLY
    column: str | None
    people: People
    noise: NoiseSource
    bad_rows: Literal["dead_letter", "other"] = "dead_letter"

    def values(self, rows: beam.PCollection) -> Values:
        """As `DeviceSide.values`."""
        encoded = rows | "Encode" >> EncodeWords(
            self.protocol, self.column, people=self.people, bad_rows=self.bad_rows
        )
        assign = beam.ParDo(AssignRoles(self.protocol, self.noise))
        answer = beam.ParDo(_AnswersOfLevel(self.protocol, self.level, self.candidates))
        answers = (
            encoded
            | "Assign levels" >> assign.with_output_types(ValueBlock)
            | "Bound" >> BoundContributions(noise=self.noise)
            | "Own level" >> answer.with_output_types(ValueBlock)
        )
        return Values(answers, encoded.bad_rows)


@dataclass(eq=False)
class _AnswersOfLevel(beam.DoFn):
    """The people of the level alone, with the child of a candidate that each holds."""

    protocol: HeavyHitters
    level: int
    candidates: np.ndarray

    def process(self, block: ValueBlock) -> Iterator[ValueBlock]:
        assert block.groups is not None
        own = replace(block.where(block.groups == self.level), groups=None)
        if len(own):
            asked = self.protocol.encode(own.values, self.level, self.candidates)
            yield replace(own, values=asked)


@dataclass(eq=False)
class EstimateLevel(beam.DoFn):
    """The sum of a level to a release: of the children that it asked about, or of words.

    In: `StatisticBlock`s. Out: `Release`s, whose estimate is that of the level's oracle, from which
    the next candidates follow, or `FoundWords` of the last level.

    Args:
        protocol: the plan of all levels.
        before: reports of each level before.
        candidates: that the level asked about.
        question: name of what is asked, for the record.
    """

    protocol: HeavyHitters
    before: tuple[int, ...]
    candidates: np.ndarray
    question: str = ""

    def process(
        self, total: StatisticBlock, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Release]:
        protocol, level = self.protocol, len(self.before)
        received = (*self.before, total.num_reports)
        estimate = protocol.levels[level].oracle.estimate(total.statistic, total.num_reports)
        found: Any = estimate
        if level == len(protocol.levels) - 1:
            found = protocol.finish(estimate, self.candidates, sum(received))
        yield Release(
            estimate=found,
            num_reports=total.num_reports,
            ran=None,
            question=self.question,
            window=window_bounds(window),
            mechanism={
                "mechanism": "HeavyHitters",
                **protocol.to_config(),
                "received": list(received),
            },
            smallest_batch=total.num_reports,
            output=total.output,
            simulated=total.simulated,
        )
