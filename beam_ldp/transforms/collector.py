"""The collector's half of a release: reports become an estimate, and nothing else is seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import apache_beam as beam

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import Shuffling
from beam_ldp.transforms.aggregate import Aggregate
from beam_ldp.transforms.blocks import Release, WithheldRelease
from beam_ldp.transforms.gate import TOO_FEW
from beam_ldp.transforms.portable import PortableDomain
from beam_ldp.transforms.shuffle import Shuffle, ShuffleInParts
from beam_ldp.transforms.stage_types import element_of, is_global
from beam_ldp.transforms.windows import DEFAULT_RULES, WindowRules


@dataclass(frozen=True)
class Releases:
    """What a collector lets out.

    Attributes:
        releases: `Release`s, or `(group, Release)`s; what the last stage makes of sums.
        withheld: `WithheldRelease`s: what is not released, and why.
    """

    releases: beam.PCollection
    withheld: beam.PCollection


class CollectorSide(beam.PTransform):
    """Shuffles reports, adds them up and estimates.

    Each report hides among all that are released with it, from whoever sees only what comes out;
    whoever sees inside the runner sees reports as they arrived.

    In: `ReportBlock`s. Out: `Releases`.

    Args:
        randomizer: the mechanism that made the reports.
        estimator: sums to releases, from a question.
        shuffle: what the shuffler does; it names `min_reports`.
        groups: the public list of groups, where blocks hold reports of many. A declared group of
            which nothing came is withheld too, and said to be.
        windows: for unbounded data: when windows close, and what becomes of late reports.
    """

    def __init__(
        self,
        randomizer: LocalRandomizer,
        estimator: beam.PTransform,
        *,
        shuffle: Shuffling,
        groups: Domain | str | Path | None = None,
        windows: WindowRules = DEFAULT_RULES,
    ) -> None:
        super().__init__()
        self._min_reports = shuffle.least(None)
        self._shuffle = Shuffle(
            randomizer,
            self._min_reports,
            shuffle.output,
            shuffle.scope,
            groups=groups,
            windows=windows,
        )
        self._randomizer = randomizer
        self._estimator = estimator
        self._groups = None if groups is None else PortableDomain(groups)

    def expand(self, reports: beam.PCollection) -> Releases:
        shuffled = reports | "Shuffle" >> ShuffleInParts(self._shuffle)
        sums = shuffled | "Aggregate" >> Aggregate(self._randomizer)
        releases = sums | "Estimate" >> self._estimator
        notices = [shuffled[0].withheld]
        if hasattr(releases, "withheld"):
            notices.append(releases.withheld)
        withheld = notices | "Withheld" >> beam.Flatten()
        of_groups = self._groups is not None and element_of(releases).keyed
        if of_groups and is_global(releases) and releases.is_bounded:
            assert self._groups is not None
            absent = self._absent(releases, withheld, self._groups)
            withheld = (withheld, absent) | "All groups withheld" >> beam.Flatten()
        return Releases(releases, withheld)

    def _absent(
        self, releases: beam.PCollection, withheld: beam.PCollection, groups: PortableDomain
    ) -> beam.PCollection:
        """A notice for every declared group that sent no report at all; `other` is none.

        Only for bounded data in one window: elsewhere nobody knows when a window has ended that no
        element was ever in.
        """
        seen = (
            releases | "Released groups" >> beam.Map(_group_of).with_output_types(str),
            withheld | "Withheld groups" >> beam.Map(_group_of).with_output_types(str),
        ) | "Groups seen" >> beam.Flatten()
        doer = beam.ParDo(_Absent(groups, self._min_reports), beam.pvalue.AsIter(seen))
        start = releases.pipeline | "Start groups" >> beam.Impulse()
        return start | "Absent groups" >> doer.with_output_types(WithheldRelease)


def _group_of(element: tuple[str, Release] | WithheldRelease) -> str:
    return (element.group or "") if isinstance(element, WithheldRelease) else element[0]


class _Absent(beam.DoFn):
    def __init__(self, groups: PortableDomain, min_reports: int) -> None:
        self._groups = groups
        self._min_reports = min_reports

    def process(self, element: bytes, seen: Iterable[str]) -> Iterator[WithheldRelease]:
        known = set(seen)
        for label in self._groups.load().labels[:-1]:
            if label not in known:
                yield WithheldRelease(0, self._min_reports, TOO_FEW, group=label)


def named(withheld: beam.PCollection, question: str) -> beam.PCollection:
    """Notices that say what was asked."""
    return withheld | "Name" >> beam.Map(_with_question, question).with_output_types(
        WithheldRelease
    )


def _with_question(withheld: WithheldRelease, question: str) -> WithheldRelease:
    return replace(withheld, question=question)
