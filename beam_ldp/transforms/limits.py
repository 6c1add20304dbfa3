"""At most so many releases over time, where no ledger counts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.userstate import SetStateSpec
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints

from beam_ldp.transforms.blocks import Release, WithheldRelease
from beam_ldp.transforms.budgeted import USED_UP
from beam_ldp.transforms.windows import RestoreWindows, keep_state_whole

_SEEN = beam.DoFn.StateParam(
    SetStateSpec("seen", TupleCoder((VarIntCoder(), VarIntCoder(), VarIntCoder())))
)


class FirstReleases(beam.PTransform):
    """Lets the first releases out and withholds all later ones; they are in `.withheld`.

    In, out: `Release`s of windows, without keys. What is withheld protects nobody less: it is as if
    its window had been too small.

    Args:
        count: windows that may be released; late reports of a window count once more.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        if count < 1:
            raise ValueError(f"count must be >= 1, got {count}")
        self._count = count

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        keep_state_whole(pcoll)
        place: Any = typehints.Tuple[int, int]
        out = (
            pcoll
            | "One place" >> beam.Map(_keyed).with_output_types(typehints.Tuple[str, Release])
            | "Outside of windows" >> beam.WindowInto(GlobalWindows())
            | "Count" >> beam.ParDo(_First(self._count)).with_outputs("withheld", main="released")
        )
        out.released.element_type = typehints.Tuple[place, Release]
        out.withheld.element_type = typehints.Tuple[place, WithheldRelease]
        windows = pcoll.windowing.windowfn
        released = out.released | "Released" >> RestoreWindows(windows, Release)
        released.withheld = out.withheld | "Withheld" >> RestoreWindows(windows, WithheldRelease)
        return released


def _keyed(release: Release) -> tuple[str, Release]:
    return "", release


class _First(beam.DoFn):
    def __init__(self, count: int) -> None:
        self._count = count

    def process(self, element: tuple[str, Release], seen: Any = _SEEN) -> Iterator[Any]:
        _, release = element
        assert release.window is not None
        known = set(seen.read())
        label = (*release.window, int(release.late))
        if label in known or len(known) < self._count:
            seen.add(label)
            yield release.window, release
            return
        said = WithheldRelease(
            release.num_reports, 0, USED_UP, release.question, release.group, release.window,
            release.late,
        )  # fmt: skip
        yield TaggedOutput("withheld", (release.window, said))
