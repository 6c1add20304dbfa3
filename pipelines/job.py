"""The Beam pipeline of `beam-ldp frequency`: read, randomize, shuffle, aggregate, estimate."""

from __future__ import annotations

import os
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console

from beam_ldp.pipelines import results, watch
from beam_ldp.pipelines.options import IN_PROCESS_RUNNER, UsageError
from beam_ldp.pipelines.settings import FrequencySettings
from beam_ldp.pipelines.sources import BAD_ROWS, ROWS, BadRows, ReadTable
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.transforms import PrivateFrequencies
from beam_ldp.transforms.blocks import Release, Withheld
from beam_ldp.transforms.carried import CarriedDomain

BIG_INPUT = 256 << 20  # bytes from which several worker processes are worth their start


def pipeline_flags(settings: FrequencySettings, flags: Sequence[str]) -> list[str]:
    """Beam's flags, with a runner that needs no download and uses the cores where it pays."""
    given = {flag.split("=", 1)[0] for flag in flags if flag.startswith("--")}
    found = [*flags]
    runner = None
    for i, flag in enumerate(flags):
        if flag.startswith("--runner="):
            runner = flag.split("=", 1)[1]
        elif flag == "--runner" and i + 1 < len(flags):
            runner = flags[i + 1]
    if runner in (None, "DirectRunner", "SwitchingDirectRunner", "FnApiRunner"):
        found.append(f"--runner={IN_PROCESS_RUNNER}")
        several = not given & {"--direct_num_workers", "--direct_running_mode"}
        if several and settings.input_bytes > BIG_INPUT and (os.cpu_count() or 1) > 1:
            found += [
                f"--direct_num_workers={os.cpu_count()}",
                "--direct_running_mode=multi_processing",
            ]
    return found


def build(
    pipeline: beam.Pipeline, settings: FrequencySettings, randomizer: FrequencyOracle, staging: str
) -> None:
    """The stages: read, randomize, shuffle, aggregate, estimate; results go to `staging`."""
    bad_rows: BadRows = "other" if settings.bad_rows == "other" else "dead_letter"
    table = pipeline | "Read" >> ReadTable(
        settings.input,
        settings.input_format,  # type: ignore[arg-type]
        settings.column,
        settings.user_id,
        bad_rows=bad_rows,
        delimiter=settings.csv_delimiter,
    )
    released = table[ROWS] | "PrivateFrequencies" >> PrivateFrequencies(
        randomizer,
        domain=CarriedDomain(settings.domain, settings.other_label),
        column=settings.column,
        user_id_column=settings.user_id,
        min_reports=settings.min_reports,
        output=settings.shuffle_output,  # type: ignore[arg-type]
        scope=settings.scope,  # type: ignore[arg-type]
        bad_rows=bad_rows,
        question=settings.question,
        memoize_key_file=settings.memoize_key_file,
        release_id=settings.release_id,
        dataset=settings.dataset,
        seed=settings.seed,
    )
    released | "WriteReleases" >> results.WriteResults(staging, results.RELEASES, Release)
    released.withheld | "WriteWithheld" >> results.WriteResults(staging, results.WITHHELD, Withheld)
    (
        (table[BAD_ROWS], released.bad_rows)
        | "AllBadRows" >> beam.Flatten()
        | "WriteBadRows" >> results.WriteBadRows(staging)
    )


def run_pipeline(
    settings: FrequencySettings,
    flags: Sequence[str],
    randomizer: FrequencyOracle,
    staging: str,
    console: Console,
) -> None:
    """Build and run to the end.

    Raises:
        UsageError: if Beam refuses its flags.
        JobError: if the job fails.
    """
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(pipeline_flags(settings, flags)))
    except ValueError as error:
        raise UsageError(str(error)) from None
    build(pipeline, settings, randomizer, staging)
    what = f"{settings.num_files:,} file{'s' if settings.num_files != 1 else ''}"
    watch.run(pipeline, console, f"reading, randomizing and counting {what}")
