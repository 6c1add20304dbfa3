"""Sliding windows as sums of disjoint panes.

Overlapping windows that are estimated apart expose the difference of two of them. Panes that do not
overlap are released and priced once each; adding what was released costs nothing more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.userstate import BagStateSpec, SetStateSpec
from apache_beam.transforms.window import FixedWindows, GlobalWindows, SlidingWindows
from apache_beam.typehints import typehints

from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.intervals import pooled
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease
from beam_ldp.transforms.elements.stages import (
    USED_UP,
    expect,
    typed_outputs,
    window_bounds,
)
from beam_ldp.transforms.elements.windows import RestoreWindows, keep_state_whole

_MICROSECONDS = 10**6
_KEPT_SIZES = 3  # lengths of a sliding window for which panes wait for those that come late
_HELD = beam.DoFn.StateParam(BagStateSpec("panes", BlockCoder(Release)))


@dataclass(eq=False, repr=False)
class SlidingSums(beam.PTransform):
    """Adds the releases of consecutive panes to estimates for sliding windows.

    In: `Release`s, with or without keys, from `FixedWindows(period)`. Out: the same for
    `SlidingWindows(size, period)`, marked `derived`, without an event: the panes carry the price.
    Windows of which a pane is missing (withheld, or before the first one) give nothing. Releases of
    late reports are not added: they stand in the input, each with its own error.

    In unbounded data a sum leaves as soon as its last pane is there, in whatever order they come.

    Args:
        size: length of a sliding window in seconds, a multiple of `period`.
        period: length of a pane in seconds.

    Raises:
        ValueError: if `size` is no multiple of `period`, or the input has other windows.
    """

    size: float
    period: float

    def __post_init__(self) -> None:
        size, period = self.size, self.period
        if not 0 < period <= size or round(size * _MICROSECONDS) % round(period * _MICROSECONDS):
            raise ValueError(f"size must be a multiple of period > 0, got {size} and {period}")

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = expect("SlidingSums", pcoll, Release)
        windows = pcoll.windowing.windowfn
        if not isinstance(windows, FixedWindows) or windows.size != self.period:
            raise ValueError(f"SlidingSums takes releases of FixedWindows({self.period})")
        key = element.key or str
        panes = round(self.size * _MICROSECONDS) // round(self.period * _MICROSECONDS)
        keyed = pcoll | "Key" >> beam.ParDo(_Key(element.keyed)).with_output_types(
            typehints.Tuple[typehints.Tuple[key, str], Release]
        )
        if not pcoll.is_bounded:
            keep_state_whole(pcoll)
            doer = _AddAsTheyCome(round(self.size * _MICROSECONDS), panes, element.keyed)
            place: Any = typehints.Tuple[int, int]
            return (
                keyed
                | "Outside of windows" >> beam.WindowInto(GlobalWindows())
                | "Add"
                >> beam.ParDo(doer).with_output_types(typehints.Tuple[place, element.of(Release)])
                | "Back" >> RestoreWindows(None, element.of(Release))
            )
        sums = (
            keyed
            | "Slide"
            >> beam.WindowInto(
                SlidingWindows(self.size, self.period, windows.offset.micros / _MICROSECONDS)
            )
            | "Group" >> beam.GroupByKey()
            | "Add" >> beam.ParDo(_Add(panes, element.keyed)).with_output_types(element.of(Release))
        )
        return sums


@dataclass(eq=False)
class _Key(beam.DoFn):
    keyed: bool

    def process(self, element: Any) -> Iterator[Any]:
        key, release = element if self.keyed else ("", element)
        if not release.late:
            yield (key, release.question), release


@dataclass(eq=False)
class _Add(beam.DoFn):
    num_panes: int
    keyed: bool

    def process(
        self,
        element: tuple[tuple[Any, str], Iterable[Release]],
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        (key, _), grouped = element
        panes = sorted(grouped, key=lambda release: release.window or (0, 0))
        if len(panes) == self.num_panes:
            total = add_releases(panes, window_bounds(window))
            yield (key, total) if self.keyed else total


@dataclass(eq=False)
class _AddAsTheyCome(beam.DoFn):
    """Keeps the panes of the last windows and adds those of each window that is complete."""

    size: int
    num_panes: int
    keyed: bool

    def process(self, element: tuple[tuple[Any, str], Release], held: Any = _HELD) -> Iterator[Any]:
        (key, _), release = element
        panes = {_start(pane): pane for pane in held.read()}
        if _start(release) not in panes:
            panes[_start(release)] = release
            yield from self._sums_with(_start(release), panes, key)
        newest = max(panes)
        held.clear()
        for start, pane in panes.items():
            if start > newest - _KEPT_SIZES * self.size:
                held.add(pane)

    def _sums_with(self, new: int, panes: dict[int, Release], key: Any) -> Iterator[Any]:
        """Every window that the new pane completes."""
        period = self.size // self.num_panes
        for first in range(new - self.size + period, new + period, period):
            found = [panes.get(first + i * period) for i in range(self.num_panes)]
            there = [pane for pane in found if pane is not None]
            if len(there) == self.num_panes:
                bounds = (first, first + self.size)
                total = add_releases(there, bounds)
                yield bounds, ((key, total) if self.keyed else total)


def _start(release: Release) -> int:
    assert release.window is not None
    return release.window[0]


def add_releases(panes: list[Release], window: tuple[int, int] | None) -> Release:
    """One estimate about all users of disjoint releases: shares weighted by their users."""
    if len({json.dumps(pane.mechanism, sort_keys=True) for pane in panes}) != 1:
        raise ValueError("panes must be releases of one mechanism")
    first = panes[0]
    return Release(
        estimate=pool([pane.estimate.raw for pane in panes]),
        num_reports=sum(pane.num_reports for pane in panes),
        ran=None,
        question=first.question,
        group=first.group,
        window=window,
        mechanism=first.mechanism,
        smallest_batch=min(pane.smallest_batch for pane in panes),
        output=first.output,
        simulated=any(pane.simulated for pane in panes),
        derived=True,
        answers=tuple(map(sum, zip(*(pane.answers for pane in panes)))),
    )


def pool(parts: list[Estimate]) -> Estimate:
    """The estimate about the users of disjoint parts, each weighted by its users."""
    num_users = sum(part.num_users for part in parts)
    shares = [part.num_users / num_users for part in parts]
    weighted: list[tuple[float, Any]] = list(zip(shares, parts))
    errors = np.array([share * part.standard_error for share, part in weighted])
    error = np.sqrt((errors**2).sum(axis=0))
    fields: dict[str, Any] = {
        "value": sum(share * part.value for share, part in weighted),
        "standard_error": error,
        "num_users": num_users,
        "rule": pooled([part.rule for part in parts], [part.num_users for part in parts]),
    }
    if hasattr(parts[0], "bias_bound"):
        fields["mean_squared_error"] = sum(s**2 * part.mean_squared_error for s, part in weighted)
        for name in ("bias_bound", "expected_bias"):
            fields[name] = sum(share * getattr(part, name) for share, part in weighted)
        failures = sum(part.failure_probability for _, part in weighted)
        fields["failure_probability"] = min(1.0, failures)
        measured = all(part.error_bars == "measured" for _, part in weighted)
        fields["error_bars"] = "measured" if measured else "worst case"
        ratios = np.divide(errors, error, out=np.ones_like(errors), where=error > 0)
        each = [(ratio, part) for ratio, (_, part) in zip(ratios, weighted)]
        # Of a sum of measured variances: Welch and Satterthwaite; third moments add up.
        lost = float(np.max(sum(ratio**4 / part.degrees_of_freedom for ratio, part in each)))
        fields["degrees_of_freedom"] = 1 / lost if lost else math.inf
        skewness = sum(ratio**3 * part.skewness for ratio, part in each)
        fields["skewness"] = skewness if np.any(skewness) else 0.0
    return replace(parts[0], **fields)


# At most so many releases over time, where no ledger counts them --------------------------


_SEEN = beam.DoFn.StateParam(
    SetStateSpec("seen", TupleCoder((VarIntCoder(), VarIntCoder(), VarIntCoder())))
)


@dataclass(eq=False, repr=False)
class FirstReleases(beam.PTransform):
    """Lets the first releases out and withholds all later ones; they are in `.withheld`.

    In, out: `Release`s of windows, without keys. What is withheld protects nobody less: it is as if
    its window had been too small.

    Args:
        count: windows that may be released; late reports of a window count once more.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be >= 1, got {self.count}")

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        keep_state_whole(pcoll)
        place: Any = typehints.Tuple[int, int]
        together = (
            pcoll
            | "One place" >> beam.Map(_keyed).with_output_types(typehints.Tuple[str, Release])
            | "Outside of windows" >> beam.WindowInto(GlobalWindows())
        )
        first, rest = typed_outputs(
            together,
            "Count",
            beam.ParDo(_First(self.count)),
            typehints.Tuple[place, Release],
            withheld=typehints.Tuple[place, WithheldRelease],
        )
        windows = pcoll.windowing.windowfn
        released = first | "Released" >> RestoreWindows(windows, Release)
        released.withheld = rest | "Withheld" >> RestoreWindows(windows, WithheldRelease)
        return released


def _keyed(release: Release) -> tuple[str, Release]:
    return "", release


@dataclass(eq=False)
class _First(beam.DoFn):
    count: int

    def process(self, element: tuple[str, Release], seen: Any = _SEEN) -> Iterator[Any]:
        _, release = element
        assert release.window is not None
        known = set(seen.read())
        label = (*release.window, int(release.late))
        if label in known or len(known) < self.count:
            seen.add(label)
            yield release.window, release
            return
        said = WithheldRelease(
            release.num_reports, 0, USED_UP, release.question, release.group, release.window,
            release.late,
        )  # fmt: skip
        yield TaggedOutput("withheld", (release.window, said))
