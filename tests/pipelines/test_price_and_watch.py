"""Prices of what arrived, results that come back through files, and what a failed job says."""

from __future__ import annotations

import io
import json
import logging
import signal
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from beam_ldp.accounting import shuffle_epsilon, shuffled_event
from beam_ldp.accounting.prices import expected_price, price_of
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release import job_monitor as watch
from beam_ldp.release import worker_results as results
from beam_ldp.release.beam_job import IN_PROCESS_RUNNER
from beam_ldp.release.inputs.sources import BYTES_READ, METRICS, InputFileError
from beam_ldp.release.job_monitor import JobError, explain
from beam_ldp.transforms.elements.blocks import BadRow, BadRowBlock, Release, WithheldRelease

ORACLE = KRandomizedResponse(5, 3.0)


def release(num_reports: int = 10_000, **more: object) -> Release:
    estimate = Estimate(np.full(5, 0.2), np.full(5, 0.01), num_reports)
    fields = {"ran": shuffled_event(ORACLE, num_reports), "smallest_batch": num_reports, **more}
    return Release(estimate, num_reports, **fields)  # type: ignore[arg-type]


def pipeline() -> beam.Pipeline:
    return beam.Pipeline(options=PipelineOptions([f"--runner={IN_PROCESS_RUNNER}"]))


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


# Prices -----------------------------------------------------------------------------------


@pytest.mark.exact
@given(st.integers(1, 10**12), st.integers(1, 1000))
def test_honest_reports_are_the_written_fraction_rounded_down(n: int, thousandths: int) -> None:
    written = Fraction(thousandths, 1000)
    assert hidden_users(n, thousandths / 1000) == max(
        1, (n * written.numerator) // written.denominator
    )


@pytest.mark.exact
def test_the_price_is_that_of_the_event_and_of_honest_reports_only() -> None:
    price = price_of(release(), 1e-6, 0.5)
    assert price.honest_reports == 5000
    assert price.bound == shuffle_epsilon(ORACLE, 5000, 1e-6)
    assert price.bound == expected_price(ORACLE, 10_000, 1e-6, 0.5).bound


@pytest.mark.exact
def test_the_smallest_batch_sets_the_price() -> None:
    batch = release(10_000, ran=shuffled_event(ORACLE, 2000), smallest_batch=2000)
    assert price_of(batch, 1e-6, 1.0).honest_reports == 2000
    assert price_of(batch, 1e-6, 1.0).bound > price_of(release(), 1e-6, 1.0).bound


def test_a_simulation_has_no_price() -> None:
    assert price_of(release(ran=None, simulated=True), 1e-6, 1.0).bound is None


# Results ------------------------------------------------------------------------------------


@pytest.mark.pipeline
def test_releases_come_back_through_files(tmp_path: Path) -> None:
    sent = [release(group=name, mechanism=ORACLE.to_config()) for name in ("b", "a")]
    kept = WithheldRelease(3, 5, "fewer reports than min_reports")
    with pipeline() as p:
        made = p | "Releases" >> beam.Create(sent).with_output_types(Release)
        made | "W" >> results.WriteResults(str(tmp_path), results.RELEASES, Release)
        held = p | "Withheld" >> beam.Create([kept]).with_output_types(WithheldRelease)
        held | "V" >> results.WriteResults(str(tmp_path), results.WITHHELD, WithheldRelease)
    releases, withheld = results.read_releases(str(tmp_path))
    assert [found.group for found in releases] == ["a", "b"]
    assert releases[0].estimate.value.tolist() == [0.2] * 5
    assert releases[0].event == sent[0].event
    assert withheld == [kept]


@pytest.mark.pipeline
def test_writing_the_same_results_again_changes_nothing(tmp_path: Path) -> None:
    """A worker that repeats the step leaves one file, not two."""
    for _ in range(2):
        with pipeline() as p:
            sent = release(mechanism=ORACLE.to_config())
            made = p | beam.Create([sent]).with_output_types(Release)
            made | results.WriteResults(str(tmp_path), results.RELEASES, Release)
    assert len(list((tmp_path / "releases").iterdir())) == 1


@pytest.mark.pipeline
def test_no_results_are_no_files_and_no_error(tmp_path: Path) -> None:
    with pipeline() as p:
        made = p | beam.Create([]).with_output_types(Release)
        made | results.WriteResults(str(tmp_path), results.RELEASES, Release)
    assert results.read_releases(str(tmp_path)) == ([], [])
    assert b"".join(results.bad_row_parts(str(tmp_path))) == b""


@pytest.mark.pipeline
def test_bad_rows_are_lines_of_json(tmp_path: Path) -> None:
    sent = [BadRowBlock.of("ü\n.csv", [(0, "null"), (1, "NaN")]), BadRow("ü\n.csv", 2, "null")]
    with pipeline() as p:
        p | beam.Create(sent) | results.WriteBadRows(str(tmp_path))
    lines = b"".join(results.bad_row_parts(str(tmp_path))).decode().splitlines()
    found = [json.loads(line) for line in lines]
    assert sorted(row["position"] for row in found) == [0, 1, 2]
    assert {row["source"] for row in found} == {"ü\n.csv"}
    assert {row["position"]: row["reason"] for row in found} == {0: "null", 1: "NaN", 2: "null"}


# Watching -----------------------------------------------------------------------------------


def _fail(_: int) -> int:
    raise KeyError("the-raw-value")


@pytest.mark.pipeline
def test_a_foreign_error_is_named_and_not_quoted() -> None:
    p = pipeline()
    p | beam.Create([1]) | beam.Map(_fail)
    with pytest.raises(JobError) as caught:
        watch.run(p, console(), "work")
    assert "the-raw-value" not in str(caught.value) and "\n" not in str(caught.value)


def _unreadable(_: int) -> int:
    raise InputFileError("a.csv: cannot be opened")


@pytest.mark.pipeline
@pytest.mark.parametrize(("step", "stacks"), [(_unreadable, 0), (_fail, 1)])
def test_only_faults_of_the_program_leave_a_stack(
    step: Callable[[int], int], stacks: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that cannot be read is said in one line; what else fails, the log says where."""
    p = pipeline()
    p | beam.Create([1]) | beam.Map(step)
    with pytest.raises(JobError):
        watch.run(p, console(), "work")
    assert sum(record.exc_info is not None for record in caplog.records) >= stacks
    assert stacks or not any(record.exc_info for record in caplog.records)
    assert not logging.getLogger("apache_beam.runners.common").filters


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.InputFileError: a.csv: cannot be opened (OSError) [while running 'Read']",
         "a.csv: cannot be opened (OSError)"),
        ("Traceback ...\nMismatchError: other mechanism\n\nmore", "other mechanism"),
        ("secret", "the job failed with RuntimeError; the runner's log says where"),
    ],
)  # fmt: skip
def test_explain(text: str, said: str) -> None:
    assert explain(RuntimeError(text)) == said


def _slow(_: int) -> int:
    time.sleep(0.6)
    return 1


@pytest.mark.pipeline
def test_what_takes_long_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SEEN_AFTER", 0.1)
    shown = console()
    p = pipeline()
    p | beam.Create([1]) | beam.Map(_slow)
    watch.run(p, shown, "counting")
    assert "counting: " in shown.file.getvalue()  # type: ignore[attr-defined]


def _count(element: int) -> int:
    Metrics.counter("beam_ldp", "rows_read").inc(1000)
    Metrics.counter(METRICS, BYTES_READ).inc(250_000)
    time.sleep(0.1)
    return element


@pytest.mark.pipeline
@pytest.mark.parametrize("workers", ["in_memory", "multi_processing"])
def test_a_local_job_tells_rows_and_bytes_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    """On a pipe: a line now and then, and one at the end with all of it; no bar."""
    for name in ("_SEEN_AFTER", "_ASK_EVERY", "_SAID_EVERY"):
        monkeypatch.setattr(watch, name, 0.05)
    shown = console()
    options = PipelineOptions([f"--runner={IN_PROCESS_RUNNER}", f"--direct_running_mode={workers}"])
    p = beam.Pipeline(options=options)
    p | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(_count)
    watch.run(p, shown, "counting", input_bytes=2_000_000)
    lines = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[-1].endswith("8,000 rows, 2.0 MB of 2.0 MB (100%)")
    rows = [int(line.split(" s, ")[1].split(" rows")[0].replace(",", "")) for line in lines
            if "rows" in line]  # fmt: skip
    assert 0 < rows[0] < 8000 and rows == sorted(rows)
    assert all(line.startswith("counting: ") for line in lines if line)  # old Rich ends with none


class _InMainThread(PipelineRunner):
    """As Beam's job servers do when they start: only the main thread may set a signal handler."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> PipelineResult:
        signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        return PipelineResult("DONE")


@pytest.mark.pipeline
def test_a_runner_may_set_signal_handlers() -> None:
    watch.run(beam.Pipeline(runner=_InMainThread()), console(), "work")


class _Interrupted(PipelineResult):
    cancelled = False

    def wait_until_finish(self, duration: int | None = None) -> str:
        raise KeyboardInterrupt

    def cancel(self) -> None:
        type(self).cancelled = True


@pytest.mark.exact
def test_an_interrupt_cancels_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    p = pipeline()
    monkeypatch.setattr(p, "run", lambda: _Interrupted("RUNNING"))
    with pytest.raises(KeyboardInterrupt):
        watch.run(p, console(), "work")
    assert _Interrupted.cancelled
