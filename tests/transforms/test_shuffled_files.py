"""Permuted reports in files: all of them, once, or none; and nothing else."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest

from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.transforms import (
    MismatchError,
    ReportBlock,
    Shuffle,
    StageError,
    WriteShuffledReports,
    read_shuffled_reports,
)
from beam_ldp.transforms.shuffler.shuffle import ShuffleInParts

pytestmark = pytest.mark.pipeline
ORACLE = KRandomizedResponse(266, 4.0)
DIGEST = ORACLE.config_digest()


def blocks(count, size=500):
    reports = np.random.default_rng(1).integers(0, 266, count).astype(np.uint16)
    return [
        ReportBlock(reports[i : i + size], DIGEST, origin=b"block %d" % i)
        for i in range(0, count, size)
    ], reports


def write(folder, given, min_reports=1000, scope="batch", oracle=ORACLE):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        typed = pipeline | beam.Create(given).with_output_types(ReportBlock)
        shuffled = typed | ShuffleInParts(Shuffle(ORACLE, min_reports, "reports", scope))
        shuffled | WriteShuffledReports(str(folder), oracle)


@pytest.mark.parametrize("scope", ["batch", "global"])
def test_every_report_is_written_once_and_packed(tmp_path, scope):
    given, reports = blocks(10_000)
    write(tmp_path / "out", given, scope=scope)
    files = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in files] == [f"shuffled-{i:05d}.parquet" for i in range(len(files))]
    found = [b for path in files for b in read_shuffled_reports(str(path), ORACLE)]
    together = np.concatenate(found)
    assert together.dtype == np.uint16
    assert np.array_equal(np.sort(together), np.sort(reports))
    assert not np.array_equal(together, reports)
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert all(len(row["reports"]) == -(-9 * row["num_reports"] // 8) for row in rows)
    assert min(row["batch_size"] for row in rows) >= 1000
    assert set(rows[0]) == {"num_reports", "batch_size", "reports"}


def test_too_few_reports_write_nothing(tmp_path):
    write(tmp_path / "out", blocks(999)[0])
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_failed_job_leaves_no_file_with_a_name(tmp_path):
    other = ReportBlock(np.zeros(5, dtype=np.uint16), KRandomizedResponse(9, 1.0).config_digest())
    with pytest.raises(Exception, match="another mechanism"):
        write(tmp_path / "out", [*blocks(5000)[0], other])
    assert not list((tmp_path / "out").glob("shuffled*"))


def test_a_folder_is_not_written_twice(tmp_path):
    given, reports = blocks(2000)
    write(tmp_path / "out", given)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    with pytest.raises(Exception, match="already"):
        write(tmp_path / "out", given)
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    assert before == after


def test_only_what_the_shuffler_released_is_taken(tmp_path):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    reports = pipeline | beam.Create(blocks(10)[0]).with_output_types(ReportBlock)
    with pytest.raises(StageError, match="Shuffle"):
        reports | WriteShuffledReports(str(tmp_path), ORACLE)
    keyed = beam.typehints.Tuple[str, ReportBlock]
    grouped = pipeline | "g" >> beam.Create([]).with_output_types(keyed) | Shuffle(ORACLE, 1)
    with pytest.raises(StageError, match="keys"):
        grouped | "w" >> WriteShuffledReports(str(tmp_path), ORACLE)


def test_reading_with_another_mechanism_is_refused(tmp_path):
    write(tmp_path / "out", blocks(2000)[0])
    path = str(next((tmp_path / "out").iterdir()))
    with pytest.raises(ValueError, match="another mechanism"):
        next(read_shuffled_reports(path, KRandomizedResponse(266, 3.9)))
    assert issubclass(MismatchError, ValueError)
