"""A stream as it was asked for: one job whose windows are released one by one into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, Sessions
from rich.console import Console
from rich.markup import escape

from beam_ldp.launcher import Launcher
from beam_ldp.release import outputs
from beam_ldp.release.beam_job import runner_of
from beam_ldp.release.binding import bound
from beam_ldp.release.checks import Preflight
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS, ReadTable
from beam_ldp.release.interrupted_runs import Note
from beam_ldp.release.job import section_from
from beam_ldp.release.reserving import ledger_url
from beam_ldp.release.run import Run, without_groups
from beam_ldp.release.streams.results import (
    MarkOpenWindows,
    WriteStreamBadRows,
    WriteWindows,
    WriteWithheldReleases,
    give_back_rest,
    run_that_goes_on,
)
from beam_ldp.release.streams.source import WatchTable
from beam_ldp.settings import SettingError
from beam_ldp.settings.streaming import Streaming
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms import ChargeTo, PrivateEstimate, SlidingSums, WindowRules
from beam_ldp.transforms.collector.panes import FirstReleases
from beam_ldp.transforms.device.keyed import read_key
from beam_ldp.transforms.elements.blocks import TableBlock

_NOT_STREAMED = {
    "question": ("staged",),
    "output": ("bad_rows_file", "job_timeout", "publish"),
    "release": ("people_store",),
}
_BOUNDED = ("direct", "switchingdirect", "fnapi")  # runners that wait for the end of the data


def check_stream(usage: Usage, given: Arguments) -> Streaming:
    """What a stream was told, with the rules checked that hold for streams.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    stream: Streaming = section_from(given, usage, "stream", Streaming)
    if stream.session_gap is not None and given["people"].get("id") is not None:
        raise SettingError("--session-gap and --user-id exclude each other: see docs/streaming.md")
    if (given["release"].get("windows") or 0) < 1:
        raise SettingError(
            "--budget-windows must be >= 1: the number of releases to reserve budget for"
        )
    if given["source"].get("format") == "text":
        raise SettingError("--stream needs a format with columns, which text has not")
    for home, names in _NOT_STREAMED.items():
        for name in names:
            if given[home].get(name):
                flag = usage.flag_of(f"{home}.{name}")
                raise SettingError(f"{flag} cannot be used with --stream")
    runner = (runner_of(given.beam_flags) or "").rsplit(".", 1)[-1]
    if runner.lower().removesuffix("runner") in _BOUNDED:
        raise SettingError(
            f"--runner {runner} cannot be used with --stream, for it waits for the end of the "
            "data: PrismRunner (where --runner is left out) and FlinkRunner stream; see "
            "docs/streaming.md"
        )
    return stream


def stream_of(usage: Usage, given: Arguments) -> Stream:
    """The stream that somebody asked for; reads what is public, and no data. Raises SettingError.

    There may be no file yet.
    """
    stream = check_stream(usage, given)
    run = bound(usage, given, stream=True)
    if not outputs.is_local(run.job.output.folder):
        raise SettingError("--output must be a local folder with --stream")
    return Stream(run, stream)


class Stream:
    """One job: its pipeline, its budget and its folder.

    Args:
        run: what is asked, as a window is released of it.
        stream: when windows open and close.
    """

    def __init__(self, run: Run, stream: Streaming) -> None:
        self.run, self.job, self.stream = run, run.job, stream
        self.windows = self.job.charge.windows or 0  # releases that may happen
        self.folder = Path(self.job.output.folder.removeprefix("file://")).absolute()
        try:
            self.identity = self._composite().identity
            if self.identity is not None and self.job.noise.key_file is not None:
                key = read_key(self.job.noise.key_file)
                self.identity = self.identity.committed(key)
        except ValueError as error:
            raise SettingError(str(error)) from None
        found = run_that_goes_on(self.folder, self.identity, self.job.charge.run_id)
        run.run_id = found or run.run_id
        self.budget = self._budget()
        self.attempt = ""  # of the charge, once it is reserved

    @property
    def run_id(self) -> str:
        """The name of the run, and of its charge."""
        return self.run.run_id

    def _composite(self) -> PrivateEstimate:
        """As the run's own; but a stream without a name has no identity."""
        told = self.run.how
        told["noise"] = self.job.noise
        told["budget"] = self._budget()
        told["windows"] = WindowRules(
            late="release" if self.stream.late == "release" else "dead_letter",
            delay=self.stream.watermark_delay,
            public_bounds=self.stream.public_bounds,
        )
        return PrivateEstimate(self.run.choice.mechanism, self.run.asked, **told)

    def _budget(self) -> ChargeTo | None:
        job = self.job
        url = ledger_url(job)
        if url is None or job.noise.simulated:
            return None
        return ChargeTo(
            job.dataset,
            job.charge.ledger,  # what the environment names, workers read there too
            run_id=self.run_id,
            quota=job.charge.quota,
            windows=self.windows,
            honest_fraction=job.privacy.honest_fraction,
            privacy_unit=job.charge.privacy_unit,
            untracked="--no-mlflow" if job.output.no_mlflow else "",
            trust_shuffler=job.privacy.trust_shuffler,
        )

    def build(self, pipeline: beam.Pipeline) -> None:
        """All stages. The budget is reserved here, or refused."""
        job, stream, asked = self.job, self.stream, self.run.asked
        group = () if job.people.group_by is None else (job.people.group_by,)
        files = ReadTable(
            job.source.paths,
            job.source.format,  # type: ignore[arg-type]
            (*asked.read_columns, *group, stream.time_column),
            job.people.id,
            delimiter=job.source.delimiter,
            dimension=asked.vector_size,
        ).of_paths()
        table = pipeline | "Read" >> WatchTable(
            job.source.paths, files, stream.time_column, stream.period, stream.poll
        )
        windows: Any = (
            FixedWindows(stream.period) if stream.period else Sessions(stream.session_gap)
        )
        rows = table[ROWS] | "Windows" >> beam.WindowInto(
            windows, allowed_lateness=stream.allowed_lateness
        )
        if stream.period is not None:
            mark = beam.ParDo(MarkOpenWindows(str(self.folder)))
            rows = rows | "Mark opened" >> mark.with_output_types(TableBlock)
        found = rows | "Estimate" >> self._composite()
        self.write(found, {"columns": table[BAD_ROWS], "values": found.bad_rows})

    def write(self, found: Any, bad_rows: dict[str, beam.PCollection]) -> None:
        """What a composite of such windows gives, into the folder."""
        stream, place = self.stream, str(self.folder)
        released, withheld = without_groups(found.whole), [found.withheld]
        if self.budget is None:  # no ledger counts
            released = released | "First" >> FirstReleases(self.windows)
            withheld.append(released.withheld)
        released | "Write windows" >> WriteWindows(place, self.run, self.identity)
        if stream.slide is not None and stream.window is not None:
            sums = released | "Slide" >> SlidingSums(stream.window, stream.slide)
            sums | "Write sums" >> WriteWindows(place, self.run, self.identity)
        said = withheld | "All withheld" >> beam.Flatten()
        said | "Write withheld" >> beam.ParDo(WriteWithheldReleases(place))
        for name, collection in bad_rows.items():
            collection | f"Write bad {name}" >> beam.ParDo(WriteStreamBadRows(place))

    def note_attempt(self) -> None:
        """Keep which start of the run this is: one that was overtaken gives nothing back."""
        from beam_ldp.ledger import BudgetLedger

        assert self.budget is not None
        self.attempt = BudgetLedger(self.budget.url).charge(str(self.budget.run_id)).attempt

    def note(self) -> Note:
        """What says whose the stream is, if this launcher is lost."""
        from beam_ldp.ledger import BudgetLedger

        if self.budget is None:
            return Note("", "", False, Launcher.this())
        ledger_id = BudgetLedger(self.budget.url).ledger_id
        return Note(str(self.budget.run_id), ledger_id, False, Launcher.this(), None, self.attempt)

    def give_back(self, console: Console) -> None:
        """What no window used goes back into the budget; open windows keep their local part."""
        if self.budget is None:
            return
        from beam_ldp.ledger import BudgetLedger

        try:
            give_back_rest(
                BudgetLedger(self.budget.url),
                str(self.budget.run_id),
                str(self.folder),
                self.attempt,
            )
        except Exception as error:
            console.print(
                "[yellow]warning:[/yellow] the ledger could not be written "
                f"({type(error).__name__}): the rest of run {escape(str(self.budget.run_id))} "
                "stays charged until `beam-ldp budget abandon`"
            )

    def preflight(self, flags: Sequence[str]) -> Preflight:
        """What is checked first, of files that are there; the output may be one that goes on."""
        found = Preflight.of(self.run, flags)
        time_column = {self.stream.time_column: self.run.usage.flag_of("stream.time_column")}
        return replace(found, wanted={**found.wanted, **time_column}, is_new=False)
