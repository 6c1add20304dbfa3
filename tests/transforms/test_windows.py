"""Windows of unbounded data, with every order of rows and watermarks that a stream may bring."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms import trigger
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.transforms import (
    PrivateFrequencies,
    Randomize,
    ReportBlock,
    Shuffle,
    SlidingSums,
    WindowRules,
)
from beam_ldp.transforms.gate import TOO_FEW
from beam_ldp.transforms.windows import LATE, TOO_LATE, Schedule

LOCAL = "--runner=apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
ORACLE = KRandomizedResponse(3, 25.0)  # a report is another value once in 10^10
COLOURS = Domain(("red", "green"))
_KEPT: dict[str, list[Any]] = {}


def rows(*times_of: tuple[float, int], colour: str = "red", person: str = "") -> list[Any]:
    """`(time, count)`s as stamped rows `person;colour`."""
    return [
        TimestampedValue(f"{person}{time}-{i};{colour}".encode(), time)
        for time, count in times_of
        for i in range(count)
    ]


def row(line: bytes) -> dict[str, str]:
    person, colour, *group = line.decode().split(";")
    return {"id": person, "colour": colour, "group": group[0] if group else ""}


def keep(element: Any, name: str) -> None:
    _KEPT.setdefault(name, []).append(element)


def stream(*steps: Any) -> TestStream:
    """Lists of rows arrive; numbers are where the watermark moves to. It ends at infinity."""
    found = TestStream(coder=BytesCoder())
    for step in steps:
        found = (
            found.add_elements(step) if isinstance(step, list) else found.advance_watermark_to(step)
        )
    return found.advance_watermark_to_infinity()


def released(
    source: TestStream,
    windowing: Any = None,
    *,
    options: list[str] | None = None,
    slide: tuple[float, float] | None = None,
    **how: Any,
) -> tuple[list[Any], list[Any]]:
    """What is released of a stream, and what is withheld, in the order in which it came."""
    how = {"column": "colour", "min_reports": 5, **how}
    _KEPT.clear()
    flags = PipelineOptions([LOCAL] if options is None else options, streaming=True)
    with beam.Pipeline(options=flags) as pipeline:
        windowed = pipeline | source | beam.Map(row) | (windowing or lateness(0))
        releases = windowed | PrivateFrequencies(ORACLE, domain=COLOURS, **how)
        if slide is not None:
            releases | SlidingSums(*slide) | "slid" >> beam.Map(keep, "slid")
        releases | "released" >> beam.Map(keep, "released")
        releases.withheld | "withheld" >> beam.Map(keep, "withheld")
    return _KEPT.get("released", []), _KEPT.get("withheld", [])


def lateness(seconds: float) -> beam.PTransform:
    return beam.WindowInto(FixedWindows(60), allowed_lateness=seconds)


def facts(releases: list[Any]) -> list[tuple[int, int, int, bool]]:
    """Window in seconds, reports, whether late."""
    plain = [r[1] if isinstance(r, tuple) else r for r in releases]
    return sorted(
        (r.window[0] // 10**6, r.window[1] // 10**6, r.num_reports, r.late) for r in plain
    )


def said(withheld: list[Any]) -> list[tuple[int, int, str, bool]]:
    return sorted((w.window[0] // 10**6, w.num_reports, w.reason, w.late) for w in withheld)


# --- windows ----------------------------------------------------------------------------------


@pytest.mark.pipeline
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_each_window_is_one_release_at_its_own_price(output):
    """On time, in any order, over many bundles; an empty window gives nothing."""
    source = stream(
        0, rows((10, 3), (70, 2)), 20, rows((5, 4)), rows((75, 6)), 61, rows((200, 5)), 400
    )
    releases, withheld = released(source, output=output)
    assert facts(releases) == [(0, 60, 7, False), (60, 120, 8, False), (180, 240, 5, False)]
    assert not withheld
    for release in releases:
        assert release.event.num_reports == release.num_reports == release.smallest_batch
        assert release.output == output
        np.testing.assert_allclose(release.estimate.value, [1, 0, 0], atol=1e-6)
