"""The collector's half of a release: reports become an estimate, and nothing else is seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import apache_beam as beam

from beam_ldp.randomizers.base import LocalRandomizer, Sampling, check_sampling
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.settings import Shuffling
from beam_ldp.transforms.elements.blocks import (
    Release,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.portable import (
    PortableDomain,
    PortableRandomizer,
    check_mean,
    check_min_reports,
    task_of,
)
from beam_ldp.transforms.elements.stages import (
    TOO_FEW,
    Stopwatch,
    Task,
    counter,
    element_of,
    expect,
    group_name,
    is_global,
    is_streamed,
    typed_outputs,
    window_bounds,
)
from beam_ldp.transforms.elements.windows import DEFAULT_RULES, WindowRules
from beam_ldp.transforms.shuffler.shuffle import Shuffle, ShuffleInParts
from beam_ldp.transforms.shuffler.sums import (
    Gate,
    RunningSum,
    SumReports,
    TakesReports,
    check_digest,
    combine_sums,
)

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.base import MeanRandomizer
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges


@dataclass(eq=False, repr=False)
class _EstimateStage(beam.PTransform):
    """What the estimates of all questions share."""

    task: ClassVar[Task]

    randomizer: LocalRandomizer
    _: KW_ONLY
    min_reports: int = 1
    sampling: Sampling = "fixed"
    question: str = ""
    permanent: bool = False

    def __post_init__(self) -> None:
        if self.task == "mean":
            check_mean(self.randomizer)
        carried = PortableRandomizer(self.randomizer)
        if self.task != task_of(self.randomizer):
            raise TypeError(
                f"randomizer must be a FrequencyOracle, got {type(self.randomizer).__name__}: use "
                "EstimateMean"
            )
        check_sampling(self.sampling)
        self.min_reports = check_min_reports(self.min_reports)
        self._doer = _Estimate(
            type(self).__name__, carried, self.min_reports, self.sampling, self.question,
            self.permanent,
        )  # fmt: skip

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = expect(self._doer.stage, pcoll, StatisticBlock, task=self.task)
        released, withheld = typed_outputs(
            pcoll,
            "Estimate",
            beam.ParDo(replace(self._doer, keyed=element.keyed)),
            element.of(Release),
            withheld=WithheldRelease,
        )
        released.withheld = withheld
        return released

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": type(self.randomizer).__name__,
            "min_reports": self.min_reports,
            "sampling": self.sampling,
            "question": self.question,
        }


@dataclass(eq=False, repr=False)
class EstimateFrequencies(_EstimateStage):
    """Unbiased frequencies with standard errors, and the event that prices them.

    In: `StatisticBlock`s, with or without keys. Out: `Release`s or `(key, Release)`s. Fewer than
    `min_reports` reports release nothing; the attribute `withheld` of the result says so.

    Args:
        randomizer: the mechanism that made the reports.
        min_reports: least number of reports for an estimate.
        sampling: "fixed" for errors about these users' own values; "iid" for errors about the
            population that they were drawn from, and wherever a person's row was drawn.
        question: name of what was asked, for the record.
        permanent: reports that stay the same from window to window are priced with the local
            epsilon alone: the batches of two windows differ by the people who came and went, and
            the difference of the two shows their reports one by one.

    Raises:
        StageError: if the input is not the output of `Aggregate`.
        TypeError: if the randomizer is one for means.
        MismatchError: at run time, for reports of another mechanism.
    """

    task = "frequency"


@dataclass(eq=False, repr=False)
class EstimateMean(_EstimateStage):
    """The unbiased mean vector with standard errors, and the event that prices it.

    In, out and attributes: as in `EstimateFrequencies`; the estimate of a `Release` is a
    `MeanEstimate`, in the unit of the data.

    Args:
        randomizer: the mean mechanism that made the reports.
        min_reports, sampling, question, permanent: as in `EstimateFrequencies`.
        ranges: the ranges that were given to `EncodeVectors`, if any.

    Raises:
        StageError: if the input is not the output of `Aggregate`.
        TypeError: if the randomizer is not one for means.
        ValueError: if ranges and randomizer do not fit; at run time for a statistic that does not
            hold every message of its users once.
        MismatchError: at run time, for reports of another mechanism.
    """

    task = "mean"

    randomizer: MeanRandomizer
    ranges: CoordinateRanges | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranges is not None:
            self.ranges.check_fits(self.randomizer)
        self._doer = replace(self._doer, ranges=self.ranges)


@dataclass(eq=False)
class _Estimate(beam.DoFn):
    stage: str
    carried: PortableRandomizer
    min_reports: int
    sampling: Sampling
    question: str
    permanent: bool
    ranges: CoordinateRanges | None = None
    keyed: bool = False

    def setup(self) -> None:
        self._randomizer = self.carried.randomizer
        self._digest = self._randomizer.config_digest()
        self._config = self._randomizer.to_config()
        self._releases = counter("releases")
        self._withheld = counter("estimates_withheld")
        self._timed = Stopwatch("estimate_microseconds")

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        key, total = element if self.keyed else (None, element)
        check_digest(self.stage, total.mechanism_digest, self._digest)
        group = None if key is None else group_name(key)
        bounds = window_bounds(window)
        if total.num_reports < self.min_reports:
            self._withheld.inc()
            yield beam.pvalue.TaggedOutput(
                "withheld",
                WithheldRelease(
                    total.num_reports, self.min_reports, TOO_FEW, self.question, group, bounds
                ),
            )
            return
        with self._timed():
            estimate = self._estimate(total)
        release = Release(
            estimate=estimate,
            num_reports=total.num_reports,
            ran=None if total.simulated else self._ran(total),
            question=self.question,
            group=group,
            window=bounds,
            mechanism=self._config,
            smallest_batch=total.smallest_batch,
            output=total.output,
            simulated=total.simulated,
            late=total.late,
            answers=self._answers(total),
        )
        self._releases.inc()
        yield (key, release) if self.keyed else release

    def _estimate(self, total: StatisticBlock) -> Estimate:
        found: Any = self._randomizer.estimate(
            total.statistic, total.num_reports, sampling=self.sampling
        )
        return found if self.ranges is None else self.ranges.decode(found)

    def _ran(self, total: StatisticBlock) -> Any:
        """What the release's event is made of."""
        from beam_ldp.accounting.shuffle.one_release import (  # loads SciPy
            local_reports,
            shuffled_reports,
        )

        if not self.permanent:
            return shuffled_reports(self._randomizer, total.smallest_batch)
        return local_reports(self._randomizer)

    def _answers(self, total: StatisticBlock) -> tuple[int, ...]:
        """People who answered each question, where they answer one of several."""
        counted = getattr(self._randomizer, "answers", None)
        return () if counted is None else counted(total.statistic)


# The collector's sum of what the shuffler released ----------------------------------------


@dataclass(eq=False, repr=False)
class Aggregate(beam.PTransform):
    """Adds up everything that the shuffler released: one sum per group and window.

    In: `ShuffledBlock`s or `ShuffledSum`s, with or without keys; or a tuple of such collections.
    Out: one `StatisticBlock` per key and window, with the key where there was one.

    Args:
        randomizer: the mechanism that made the reports; reports of another one stop the run.

    Raises:
        StageError: if the input did not go through `Shuffle`.
        MismatchError: at run time, for reports of another mechanism.
    """

    randomizer: LocalRandomizer

    def __post_init__(self) -> None:
        self._carried = PortableRandomizer(self.randomizer)

    def expand(self, pcoll: beam.PCollection | tuple[beam.PCollection, ...]) -> beam.PCollection:
        parts = pcoll if isinstance(pcoll, tuple) else (pcoll,)
        accepted, task = (ShuffledBlock, ShuffledSum), task_of(self.randomizer)
        elements = [expect("Aggregate", part, *accepted, task=task) for part in parts]
        element = elements[0]
        gate = Gate("Aggregate", self._carried, element)
        sums_of_key = gate.inside(StatisticBlock)
        output = "reports" if element.kind is ShuffledBlock else "statistic"
        if len(parts) == 1 and is_streamed(parts[0]):  # each block is the whole of its release
            summing = beam.ParDo(_AsStatistic(gate)).with_output_types(sums_of_key)
            added = parts[0] | "Sum" >> summing
        else:
            doer = SumReports(gate) if output == "reports" else _AsStatistic(gate)
            summing = beam.ParDo(doer).with_output_types(sums_of_key)
            sums = [part | f"Partial sums {i}" >> summing for i, part in enumerate(parts)]
            together = sums[0] if len(sums) == 1 else sums | "All sums" >> beam.Flatten()
            added = together | combine_sums(self._carried, "Add sums")
        naming = beam.Map(_finish, output=output, keyed=element.keyed)
        return added | "Name output" >> naming.with_output_types(element.of(StatisticBlock))

    def display_data(self) -> dict[str, Any]:
        return {"mechanism": type(self.randomizer).__name__}


class _AsStatistic(TakesReports):
    """A released sum as a statistic, or a whole release of reports: they left together."""

    def process(self, element: Any) -> Iterator[tuple[Any, StatisticBlock]]:
        key, released = self.accepted(element)
        count = released.num_reports
        with self.blocks.timed():
            if isinstance(released, ShuffledSum):
                statistic = released.statistic
            else:
                running = RunningSum(self.randomizer)
                running.add(released.reports, count, False)
                statistic = running.total().statistic
        total = StatisticBlock(
            statistic, count, count, self.digest, released.simulated, late=released.late
        )
        yield key, total


def _finish(element: tuple[Any, StatisticBlock], output: str, keyed: bool) -> Any:
    key, total = element
    total = replace(total, output=output)
    return (key, total) if keyed else total


@dataclass(frozen=True)
class Releases:
    """What a collector lets out.

    Attributes:
        releases: `Release`s, or `(group, Release)`s; what the last stage makes of sums.
        withheld: `WithheldRelease`s: what is not released, and why.
    """

    releases: beam.PCollection
    withheld: beam.PCollection


@dataclass(eq=False, repr=False)
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
        absent: whether that is said here; else whoever calls does it (`absent_groups`).
    """

    randomizer: LocalRandomizer
    estimator: beam.PTransform
    _: KW_ONLY
    shuffle: Shuffling
    groups: Domain | PortableDomain | str | Path | None = None
    windows: WindowRules = DEFAULT_RULES
    absent: bool = True

    def __post_init__(self) -> None:
        self._min_reports = self.shuffle.least(None)
        self._shuffle = Shuffle(
            self.randomizer,
            self._min_reports,
            self.shuffle.output,
            self.shuffle.scope,
            groups=self.groups,
            windows=self.windows,
        )
        named = self.groups if self.absent else None
        self._groups = None if named is None else PortableDomain.of(named)

    def expand(self, reports: beam.PCollection) -> Releases:
        shuffled = reports | "Shuffle" >> ShuffleInParts(self._shuffle)
        sums = shuffled | "Aggregate" >> Aggregate(self.randomizer)
        releases = sums | "Estimate" >> self.estimator
        notices = [shuffled[0].withheld]
        if hasattr(releases, "withheld"):
            notices.append(releases.withheld)
        withheld = notices | "Withheld" >> beam.Flatten()
        of_groups = self._groups is not None and element_of(releases).keyed
        if of_groups and is_global(releases) and releases.is_bounded:
            assert self._groups is not None
            withheld = absent_groups(releases, withheld, self._groups, self._min_reports)
        return Releases(releases, withheld)


def absent_groups(
    releases: beam.PCollection,
    withheld: beam.PCollection,
    groups: PortableDomain,
    min_reports: int,
) -> beam.PCollection:
    """The notices, with one for every declared group that nothing came of; `other` is none.

    Only for bounded data in one window: elsewhere nobody knows when a window has ended that no
    element was ever in.
    """
    seen = (
        releases | "Released groups" >> beam.Map(_group_of).with_output_types(str),
        withheld | "Withheld groups" >> beam.Map(_group_of).with_output_types(str),
    ) | "Groups seen" >> beam.Flatten()
    doer = beam.ParDo(_Absent(groups, min_reports), beam.pvalue.AsIter(seen))
    start = releases.pipeline | "Start groups" >> beam.Impulse()
    absent = start | "Absent groups" >> doer.with_output_types(WithheldRelease)
    return (withheld, absent) | "All groups withheld" >> beam.Flatten()


def _group_of(element: tuple[str, Release] | WithheldRelease) -> str:
    return (element.group or "") if isinstance(element, WithheldRelease) else element[0]


@dataclass(eq=False)
class _Absent(beam.DoFn):
    groups: PortableDomain
    min_reports: int

    def process(self, element: bytes, seen: Iterable[str]) -> Iterator[WithheldRelease]:
        known = set(seen)
        for label in self.groups.load().labels[:-1]:
            if label not in known:
                yield WithheldRelease(0, self.min_reports, TOO_FEW, group=label)


def named(withheld: beam.PCollection, question: str) -> beam.PCollection:
    """Notices that say what was asked."""
    return withheld | "Name" >> beam.Map(_with_question, question).with_output_types(
        WithheldRelease
    )


def _with_question(withheld: WithheldRelease, question: str) -> WithheldRelease:
    return replace(withheld, question=question)
