"""The last stage: a sum becomes an estimate with its error bar and its price."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import apache_beam as beam

from beam_ldp.randomizers.base import LocalRandomizer, Sampling, check_sampling
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.transforms.elements.blocks import (
    Release,
    StatisticBlock,
    WithheldRelease,
    shuffled_among,
)
from beam_ldp.transforms.elements.counters import Stopwatch, counter
from beam_ldp.transforms.elements.portable import (
    PortableRandomizer,
    check_mean,
    check_min_reports,
    is_mean,
)
from beam_ldp.transforms.elements.stage_types import (
    TOO_FEW,
    Task,
    expect,
    group_name,
    window_bounds,
)
from beam_ldp.transforms.shuffler.sums import check_digest

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.base import MeanRandomizer
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges


class _EstimateStage(beam.PTransform):
    """What the estimates of all questions share."""

    task: ClassVar[Task]

    def __init__(
        self,
        randomizer: LocalRandomizer,
        min_reports: int,
        sampling: Sampling,
        question: str,
        permanent: bool,
    ) -> None:
        super().__init__()
        self._carried = PortableRandomizer(randomizer)
        self._min_reports = check_min_reports(min_reports)
        check_sampling(sampling)
        self._sampling = sampling
        self._question = question
        self._permanent = permanent

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        stage = type(self).__name__
        element = expect(stage, pcoll, StatisticBlock, task=self.task)
        out = pcoll | "Estimate" >> beam.ParDo(self._doer(stage, element.keyed)).with_outputs(
            "withheld", main="released"
        )
        out.released.element_type = element.of(Release)
        out.withheld.element_type = WithheldRelease
        out.released.withheld = out.withheld
        return out.released

    def _doer(self, stage: str, keyed: bool) -> _Estimate:
        doer = _Estimate(
            stage, self._carried, self._min_reports, self._sampling, self._question, keyed
        )
        doer.permanent = self._permanent
        return doer

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": type(self._carried.randomizer).__name__,
            "min_reports": self._min_reports,
            "sampling": self._sampling,
            "question": self._question,
        }


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

    def __init__(
        self,
        randomizer: LocalRandomizer,
        *,
        min_reports: int = 1,
        sampling: Sampling = "fixed",
        question: str = "",
        permanent: bool = False,
    ) -> None:
        super().__init__(randomizer, min_reports, sampling, question, permanent)
        if is_mean(randomizer):
            raise TypeError(
                f"randomizer must be a FrequencyOracle, got {type(randomizer).__name__}: use "
                "EstimateMean"
            )


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

    def __init__(
        self,
        randomizer: MeanRandomizer,
        *,
        min_reports: int = 1,
        sampling: Sampling = "fixed",
        question: str = "",
        permanent: bool = False,
        ranges: CoordinateRanges | None = None,
    ) -> None:
        check_mean(randomizer)
        super().__init__(randomizer, min_reports, sampling, question, permanent)
        if ranges is not None:
            ranges.check_fits(randomizer)
        self._ranges = ranges

    def _doer(self, stage: str, keyed: bool) -> _Estimate:
        doer = super()._doer(stage, keyed)
        doer.ranges = self._ranges
        return doer


class _Estimate(beam.DoFn):
    ranges: CoordinateRanges | None = None
    permanent = False

    def __init__(
        self,
        stage: str,
        carried: PortableRandomizer,
        min_reports: int,
        sampling: Sampling,
        question: str,
        keyed: bool,
    ) -> None:
        self._stage = stage
        self._carried = carried
        self._min_reports = min_reports
        self._sampling = sampling
        self._question = question
        self._keyed = keyed

    def setup(self) -> None:
        self._randomizer = self._carried.randomizer
        self._digest = self._randomizer.config_digest()
        self._config = self._randomizer.to_config()
        self._releases = counter("releases")
        self._withheld = counter("estimates_withheld")
        self._timed = Stopwatch("estimate_microseconds")

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        key, total = element if self._keyed else (None, element)
        check_digest(self._stage, total.mechanism_digest, self._digest)
        group = None if key is None else group_name(key)
        bounds = window_bounds(window)
        if total.num_reports < self._min_reports:
            self._withheld.inc()
            yield beam.pvalue.TaggedOutput(
                "withheld",
                WithheldRelease(
                    total.num_reports, self._min_reports, TOO_FEW, self._question, group, bounds
                ),
            )
            return
        with self._timed():
            estimate = self._estimate(total)
        release = Release(
            estimate=estimate,
            num_reports=total.num_reports,
            ran=None if total.simulated else self._ran(total),
            question=self._question,
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
        yield (key, release) if self._keyed else release

    def _estimate(self, total: StatisticBlock) -> Estimate:
        found: Any = self._randomizer.estimate(
            total.statistic, total.num_reports, sampling=self._sampling
        )
        return found if self.ranges is None else self.ranges.decode(found)

    def _ran(self, total: StatisticBlock) -> Any:
        """What the release's event is made of."""
        if not self.permanent:
            return shuffled_among(self._randomizer, self._crowd(total))
        from beam_ldp.accounting.shuffle.one_release import local_reports  # loads SciPy

        return local_reports(self._randomizer)

    def _answers(self, total: StatisticBlock) -> tuple[int, ...]:
        """People who answered each question, where they answer one of several."""
        counted = getattr(self._randomizer, "answers", None)
        return () if counted is None else counted(total.statistic)

    def _crowd(self, total: StatisticBlock) -> int:
        """Reports among which one hides: of its batch, and of those that share its public part."""
        whole = total.smallest_batch == total.num_reports
        return self._randomizer.crowd_size(total.smallest_batch, total.statistic if whole else None)
