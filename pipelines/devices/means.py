"""The mean of numbers that were randomized elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from beam_ldp.pipelines.devices.collecting import (
    CollectSettings,
    DeviceReports,
    check_collected,
    collected_words,
    count,
)
from beam_ldp.pipelines.devices.release_file import ReleaseFile
from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.jobs.job import Outputs
from beam_ldp.pipelines.mean import Mean
from beam_ldp.pipelines.means.choice import MeanChoice, chosen
from beam_ldp.pipelines.means.settings import shape_of
from beam_ldp.pipelines.planner import Choice, Rows
from beam_ldp.pipelines.records.record import MeanRecord
from beam_ldp.pipelines.records.statement import Words, words_of
from beam_ldp.pipelines.usage.collect import USAGE
from beam_ldp.pipelines.usage.mean import MeanQuestion
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

CollectMeanSettings = CollectSettings[MeanQuestion]


@dataclass(frozen=True)
class CollectMeanRecord(MeanRecord):
    """The record of numbers that came from elsewhere."""


class CollectMean(DeviceReports, Mean):
    """What is the mean, from reports that were randomized elsewhere?"""

    usage = USAGE
    settings: CollectMeanSettings

    def coordinates(self) -> tuple[Sequence[str], int]:
        """Those of `release.json`."""
        assert self.settings.agreed.coordinates is not None
        names = self.settings.agreed.coordinates.names
        return names, len(names)

    def public_ranges(self) -> CoordinateRanges | None:
        """Those of `release.json`."""
        assert self.settings.agreed.coordinates is not None
        return self.settings.agreed.coordinates.ranges

    @property
    def record_type(self) -> type[CollectMeanRecord]:
        return CollectMeanRecord

    @classmethod
    def check_agreed(cls, given: Arguments, agreed: ReleaseFile) -> CollectMeanSettings:
        """The settings, with every rule checked. Raises UsageError."""
        asked = given["question"]
        if "domain" in asked:
            raise UsageError("--domain is for lists of values; these reports are about numbers")
        if "quantiles" in asked or "between" in asked:
            raise UsageError("--quantiles and --between: these reports are about means")
        randomizer = agreed.terms.randomizer
        assert isinstance(randomizer, MeanRandomizer) and agreed.coordinates is not None
        shape_of(asked.get("shape"))
        question = MeanQuestion(
            column=(given["reports"].get("question") or agreed.terms.identity.release_id,),
            dimension=randomizer.dimension,
            norm=randomizer.norm,
            radius=randomizer.radius,
            ranges=None if agreed.coordinates.ranges is None else given["reports"]["release"],
            one_row_each=agreed.sampling == "fixed",
            outside=randomizer.clipping,
            shape=asked.get("shape"),
        )
        return check_collected(given, agreed, question)

    def choose(self) -> MeanChoice:
        randomizer = self.settings.agreed.terms.randomizer
        assert isinstance(randomizer, MeanRandomizer)
        return chosen(self.settings, randomizer, self.ranges, None)

    def inputs(self) -> Rows:
        return [("release", self.settings.agreed.terms.identity.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> Outputs:
        return count(pipeline, self.settings, self.query, self.staging)


@words_of.register
def _collected_mean(record: CollectMeanRecord) -> Words:
    words = words_of.dispatch(MeanRecord)(record)
    return collected_words(words, record.num_bad_rows or 0, record.sampling)
