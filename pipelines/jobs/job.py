"""Running a Beam pipeline whose results come back to the launcher."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.jobs import results, watch
from beam_ldp.pipelines.options import IN_PROCESS_RUNNER
from beam_ldp.pipelines.settings import Settings
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.transforms.device.people import DigestReports, LeaveHashes, LeaveReports, PeopleFolder
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease


class JobOptions(PipelineOptions):
    """Beam's options, each view of which is made once.

    Beam asks for a view two or three times with every transform, and parses all flags for each.
    Views share their values, so one of a kind is as good as many.
    """

    def view_as(self, cls: type[PipelineOptions]) -> PipelineOptions:
        views: dict[type[PipelineOptions], PipelineOptions]
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        return {name: held for name, held in super().__getstate__().items() if name != "_views"}


BIG_INPUT = 256 << 20  # bytes from which several worker processes are worth their start


def pipeline_flags(settings: Settings[Any], flags: Sequence[str]) -> list[str]:
    """Beam's flags, with a runner that needs no download and uses the cores where it pays."""
    given = {flag.split("=", 1)[0] for flag in flags if flag.startswith("--")}
    found = [*flags]
    if _runner_of(flags) in (None, "DirectRunner", "SwitchingDirectRunner", "FnApiRunner"):
        found.append(f"--runner={IN_PROCESS_RUNNER}")
        several = not given & {"--direct_num_workers", "--direct_running_mode"}
        if several and settings.input_bytes > BIG_INPUT and (os.cpu_count() or 1) > 1:
            found += [
                f"--direct_num_workers={os.cpu_count()}",
                "--direct_running_mode=multi_processing",
            ]
    if not given & {"--save_main_session", "--no_save_main_session"}:
        found.append("--no_save_main_session")  # workers need nothing of the launcher's main module
    return found + plugin_flags()


def plugin_flags() -> list[str]:
    """What lets workers know the mechanisms from elsewhere that the command line named."""
    return [f"--beam_plugin={module}" for module in registry.loaded_modules()]


def _runner_of(flags: Sequence[str]) -> str | None:
    runner = None
    for i, flag in enumerate(flags):
        if flag.startswith("--runner="):
            runner = flag.split("=", 1)[1]
        elif flag == "--runner" and i + 1 < len(flags):
            runner = flags[i + 1]
    return runner


def ends_with_launcher(settings: Settings[Any], flags: Sequence[str]) -> bool:
    """Whether the whole job lives in the launcher's process and ends with it, for good.

    A memoized one may be started again under its name, and keeps its charge.
    """
    if settings.noise.key_file is not None:
        return False
    found = pipeline_flags(settings, flags)
    last = [flag for flag in found if flag.startswith("--runner")][-1]
    workers = any(flag.replace("_", "-").startswith("--direct-") for flag in found)
    return last == f"--runner={IN_PROCESS_RUNNER}" and not workers


@dataclass(frozen=True)
class Outputs:
    """What a pipeline gives: collections of `Release`, `WithheldRelease` and `BadRow`.

    Attributes:
        releases, withheld: what was released, and what was not.
        bad_rows: one collection or several.
        persons: blocks of values with every person once; None where each row is a person.
        traces: of memoized reports, who sent which, in hashes; None where noise is fresh.
        identity: of the release.
    """

    releases: beam.PCollection
    withheld: beam.PCollection
    bad_rows: tuple[beam.PCollection, ...]
    persons: beam.PCollection | None = None
    traces: beam.PCollection | None = None
    identity: ReleaseIdentity | None = None

    def leave_hashes(self, folder: PeopleFolder | None, publication: str = "") -> None:
        """The stages that leave keyed hashes of the people asked, where that is wanted.

        Args:
            folder: where.
            publication: name of the folder in it for hashes of their memoized reports.
        """
        if folder is None:
            return
        if self.persons is not None:
            self.persons | "LeaveHashes" >> LeaveHashes(folder)
        if self.traces is not None and publication:
            self.traces | "LeaveReports" >> LeaveReports(folder, publication)

    def write(self, staging: str) -> None:
        """The stages that write all of it to `staging`, for the launcher to read."""
        self.releases | "WriteReleases" >> results.WriteResults(staging, results.RELEASES, Release)
        self.withheld | "WriteWithheld" >> results.WriteResults(
            staging, results.WITHHELD, WithheldRelease
        )
        bad_rows = self.bad_rows | "AllBadRows" >> beam.Flatten()
        bad_rows | "WriteBadRows" >> results.WriteBadRows(staging)
        if self.traces is not None:
            digest = self.traces | "DigestReports" >> DigestReports()
            digest | "WriteDigest" >> results.WriteResults(staging, results.DIGEST, bytes)
        if self.identity is not None:
            told = [self.identity.text.encode()]
            identity = self.releases.pipeline | "Identity" >> beam.Create(told)
            identity | "WriteIdentity" >> results.WriteResults(staging, results.IDENTITY, bytes)


def run_pipeline(
    build: Callable[[beam.Pipeline], Outputs],
    settings: Settings[Any],
    flags: Sequence[str],
    staging: str,
    console: Console,
) -> None:
    """Build and run to the end; what comes out is in `staging`.

    Raises:
        UsageError: if Beam refuses its flags.
        JobError: if the job fails.
    """
    try:
        pipeline = beam.Pipeline(options=JobOptions(pipeline_flags(settings, flags)))
    except ValueError as error:
        raise UsageError(str(error)) from None
    build(pipeline).write(staging)
    what = f"{settings.num_files:,} file{'s' if settings.num_files != 1 else ''}"
    watch.run(pipeline, console, f"{settings.doing} {what}")
