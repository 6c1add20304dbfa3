"""The canaries attack randomizers directly; Beam's stages send the very same reports."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp import PrivateFrequencies
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import Randomize, ValueBlock
from beam_ldp.transforms.device.keyed import NoiseSource
from tests.canaries.test_several_releases import KEY, ORACLE, RELEASE

pytestmark = pytest.mark.pipeline

RUNNER = ["--runner=apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"]
IDS, VALUES = np.arange(500), np.arange(500) % 2
_KEPT: dict[str, list[Any]] = {}


def keep(element: Any, name: str) -> None:
    _KEPT.setdefault(name, []).append(element)


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    _KEPT.clear()
    return str(path)


class _WithStart(beam.DoFn):
    def process(self, block, window=beam.DoFn.WindowParam):
        yield int(window.start), block.reports


@pytest.mark.parametrize("permanent", [False, True])
def test_reports_of_windows(key_file, permanent):
    """Permanent ones are drawn under the release, whatever the window."""
    with beam.Pipeline(options=PipelineOptions(RUNNER)) as pipeline:
        (
            pipeline
            | beam.Create([10, 70])
            | beam.Map(lambda t: TimestampedValue(ValueBlock(VALUES, IDS), t)).with_output_types(
                ValueBlock
            )
            | beam.WindowInto(FixedWindows(60))
            | Randomize(ORACLE, noise=NoiseSource(RELEASE, key_file, permanent=permanent))
            | beam.ParDo(_WithStart())
            | beam.Map(keep, "reports")
        )
    assert len(_KEPT["reports"]) == 2
    for start, reports in _KEPT["reports"]:
        window = RELEASE.of_window(start * 10**6, (start + 60) * 10**6)
        drawn_under = RELEASE if permanent else window
        direct = ORACLE.randomize(VALUES, UserRandomness(KEY, IDS, drawn_under))
        assert np.array_equal(reports, direct)


def test_the_estimate_of_a_release(key_file):
    oracle, colours = KRandomizedResponse(3, 1.0), Domain(("red", "green"))
    people = [ValueBlock(VALUES, IDS, source="people", positions=IDS)]
    composite = PrivateFrequencies(
        oracle,
        domain=colours,
        column="colour",
        people=People(id="id"),
        min_reports=100,
        noise=Noise(dataset="people", id="week-1", key_file=key_file),
    )
    with beam.Pipeline(options=PipelineOptions(RUNNER)) as pipeline:
        blocks = pipeline | beam.Create(people).with_output_types(ValueBlock)
        blocks | composite | beam.Map(keep, "released")
    (release,) = _KEPT["released"]
    reports = oracle.randomize(VALUES, UserRandomness(KEY, IDS, composite.identity))
    direct = oracle.estimate(oracle.accumulate(reports), len(IDS))
    np.testing.assert_array_equal(release.estimate.value, direct.value)
