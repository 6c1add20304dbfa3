"""Means in shares on every runner: the law of the sum, the same decoding, and no attempt twice.

Shares are drawn anew in every attempt. An attempt that was thrown away has left nothing in a sum,
for an envelope is added up where it is made: a sum is of whole attempts, one of each block.
"""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_ldp.randomizers.wire_stream import read_part
from beam_ldp.transforms import Randomize, WriteReports
from beam_ldp.transforms.device.side import RandomizeBlocks
from beam_ldp.transforms.wire.write_reports import PackReports
from tests.engines import share_job
from tests.engines.fixtures import LOCAL_OPTIONS, run_within
from tests.engines.servers import Engine, running
from tests.engines.share_job import MECHANISM, ShareJob, expected_sum
from tests.randomizers.wire_terms import terms_of

SEED = 11


def assert_simulated(job: ShareJob) -> None:
    (found,) = job.sums
    assert found == (expected_sum(SEED) % MECHANISM.modulus).tolist()


@pytest.mark.pipeline
def test_on_the_local_runner(tmp_path: Path) -> None:
    for job in (ShareJob(tmp_path / "fresh"), ShareJob(tmp_path / "seeded", SEED)):
        run_within(job.build(LOCAL_OPTIONS), seconds=120)
        assert job.assert_one_attempt_each() == 0
        job.assert_law()
    assert_simulated(job)


@pytest.mark.engines
def test_on_an_engine(engine: Engine, tmp_path: Path) -> None:
    """Fresh noise has the law; noise with a seed gives the sum that is worked out without Beam."""
    for job in (ShareJob(tmp_path / "fresh"), ShareJob(tmp_path / "seeded", SEED)):
        run_within(job.build(engine.options), seconds=240)
        assert job.assert_one_attempt_each() == 0
        job.assert_law()
    assert_simulated(job)


@pytest.mark.pipeline
def test_bundles_that_run_twice_count_once(tmp_path: Path) -> None:
    """The local runner runs each bundle a second time: what the first time gave is thrown away."""
    job = ShareJob(tmp_path / "job")
    pipeline = job.build(LOCAL_OPTIONS)
    pipeline.runner = FnApiRunner(bundle_repeat=1)
    run_within(pipeline, seconds=120)
    assert job.assert_one_attempt_each() == share_job.BLOCKS
    job.assert_law()


@pytest.mark.pipeline
def test_a_bundle_that_fails_and_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails when the shares of its people are made; the retry makes others, and one set counts.

    Beam's older local runner tries a bundle four times.
    """
    made: list[str] = []
    emit = RandomizeBlocks._emit

    def failing(self, key, block, window):  # type: ignore[no-untyped-def]
        for report in emit(self, key, block, window):
            made.append(report.origin.hex())
            yield report
            if len(made) == 3:
                raise RuntimeError("this bundle fails once")

    monkeypatch.setattr(RandomizeBlocks, "_emit", failing)
    job = ShareJob(tmp_path / "job")
    pipeline = job.build(["--runner=BundleBasedDirectRunner"])
    assert isinstance(pipeline.runner, BundleBasedDirectRunner)
    pipeline.run().wait_until_finish()  # which takes no limit of time
    assert len(made) > len(set(made)) == share_job.BLOCKS, "the bundle was tried again"
    job.assert_one_attempt_each()
    job.assert_law()


@pytest.mark.pipeline
def test_an_edge_whose_bundle_is_retried_sends_one_envelope_of_each_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails when envelopes are packed, and packs them anew, under other ids."""
    packed = 0
    process = PackReports.process

    def failing(self, block):  # type: ignore[no-untyped-def]
        nonlocal packed
        for found in process(self, block):
            packed += 1
            yield found
            if packed == 3:
                raise RuntimeError("this bundle fails once")

    monkeypatch.setattr(PackReports, "process", failing)
    terms = terms_of(MECHANISM)
    with beam.Pipeline(runner=BundleBasedDirectRunner()) as pipeline:
        blocks = pipeline | beam.Create([share_job.block_of(n) for n in range(share_job.BLOCKS)])
        made = blocks | Randomize(MECHANISM)
        made | WriteReports(str(tmp_path / "out"), terms, num_files=1)
    assert packed > share_job.BLOCKS, "the bundle was tried again"
    (path,) = tmp_path.glob("out/*.ldp")
    found = read_part(terms, path.read_bytes())
    assert len(found) == len({row.tobytes() for row in found.ids}) == share_job.PEOPLE
    release = MECHANISM.estimate(MECHANISM.accumulate(found.reports), len(found))
    errors = (release.value - share_job.VECTOR) / release.standard_error
    assert abs(errors).max() < 6


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("name", ["spark-forking", "flink-forking"])
def test_a_worker_that_dies(name: str, tmp_path: Path) -> None:
    """`kill -9` of the process that has made the shares of some people, which are made again."""
    with running(name) as engine:
        job = ShareJob(tmp_path / "job", dies=True)
        run_within(job.build(engine.options), seconds=300)
    assert (tmp_path / "job" / "died").exists()
    assert job.assert_one_attempt_each() > 0
    job.assert_law()
