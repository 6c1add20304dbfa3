"""The stages of a question: what `beam_ldp.questions` says without Beam, as transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from beam_ldp.questions.base import Asked
from beam_ldp.randomizers.base import Sampling
from beam_ldp.settings import People
from beam_ldp.transforms.collector.side import EstimateFrequencies, EstimateMean
from beam_ldp.transforms.device.encode import Encode
from beam_ldp.transforms.device.person_means import MeanPerPerson
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stages import expect
from beam_ldp.transforms.word_levels import EstimateLevel


def encode(asked: Asked, mechanism: Any, people: People) -> Encode:
    """Rows to `ValueBlock`s."""
    return Encode(
        asked.encoder(mechanism),
        people=people,
        bad_rows=asked.bad_rows,
        only_listed=asked.only_listed,
    )


def reduce(asked: Asked, plan: Any) -> beam.PTransform | None:
    """All rows of a person to one value; None where one row of each is drawn."""
    return MeanPerPerson(plan.space) if asked.reduces else None


def estimator(
    asked: Asked,
    mechanism: Any,
    min_reports: int,
    *,
    sampling: Sampling = "fixed",
    permanent: bool = False,
) -> beam.PTransform:
    """Sums to `Release`s."""
    if asked.estimates == "level":
        return beam.ParDo(EstimateLevel(*asked.level)).with_output_types(Release)
    kind: Any = EstimateMean if asked.estimates == "mean" else EstimateFrequencies
    own = {"ranges": asked.ranges} if asked.estimates == "mean" else {}
    made: beam.PTransform = kind(
        mechanism,
        min_reports=min_reports,
        sampling=sampling,
        question=asked.name,
        permanent=permanent,
        **own,
    )
    return made


def split(asked: Asked, mechanism: Any, releases: beam.PCollection) -> beam.PCollection:
    """One `Release` for each part of the question, where it has several."""
    if asked.split is None:
        return releases
    return releases | "Split questions" >> SplitReleases(mechanism, asked.names, asked.split)


@dataclass(eq=False, repr=False)
class SplitReleases(beam.PTransform):
    """One `Release` for each part of a release that is about several questions.

    In: `Release`s, with or without keys. Out: likewise.

    Args:
        mechanism: of all parts.
        names: of the parts.
        parted: a release by its parts.
    """

    mechanism: Any
    names: Sequence[str]
    parted: Callable[[Any, Release, Sequence[str]], Sequence[Release]]

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = expect("SplitReleases", pcoll, Release, task="frequency")
        carried = PortableRandomizer(self.mechanism)
        doer = _Split(carried, tuple(self.names), self.parted, element.keyed)
        return pcoll | "Split" >> beam.ParDo(doer).with_output_types(element.of(Release))


@dataclass(eq=False)
class _Split(beam.DoFn):
    carried: PortableRandomizer
    names: tuple[str, ...]
    parted: Callable[[Any, Release, Sequence[str]], Sequence[Release]]
    keyed: bool

    def process(self, element: Any) -> Iterator[Any]:
        key, release = element if self.keyed else (None, element)
        for part in self.parted(self.carried.randomizer, release, self.names):
            yield (key, part) if self.keyed else part
