"""`beam-ldp randomize`: what devices run, for a file of people's values.

The same program as `python -m beam_ldp.pipelines.randomize`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.markup import escape

from beam_ldp import log_events
from beam_ldp.pipelines.devices.recovery import new_key
from beam_ldp.pipelines.devices.values import DeviceValues, check
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import DONE, Program
from beam_ldp.pipelines.usage.randomize import USAGE
from beam_ldp.questions.means import PublishedShares
from beam_ldp.release import beam_job as job
from beam_ldp.release import job_monitor as watch
from beam_ldp.release import outputs, terminal
from beam_ldp.release import worker_results as results
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.checks import Preflight, check_first, say_checks
from beam_ldp.release.devices.release_file import RELEASE_FILE
from beam_ldp.release.gates import NothingReleasedError, gate_bad_rows, say_left_out
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON, odds
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms import (
    DeviceSide,
    WriteMemoizedReports,
    WriteReports,
)
from beam_ldp.transforms.device.side import Reports
from beam_ldp.transforms.files import paths_matching
from beam_ldp.transforms.levels import RandomizeForLevels
from beam_ldp.transforms.wire import SUFFIX
from beam_ldp.wording import number, promise

_NAME = "randomize"
_REPORTS = "reports"  # folder beside the output, while the job runs
_COPY_BYTES = 1 << 22


def _check(given: Arguments) -> Preflight:
    """What `beam-ldp check` looks at. Raises SettingError."""
    return _told(check(given), given.beam_flags)


def _told(device: DeviceValues, flags: Sequence[str]) -> Preflight:
    """What is checked first: nothing is charged here, it is where the reports are collected."""
    randomizer = device.release.terms.randomizer
    asked = device.release.asked
    promised = asked.epsilon if isinstance(asked, PublishedShares) else None
    told = Preflight.of(device.run, flags)
    told = replace(told, epsilon=promised, ask=None, is_logged=False)
    return replace(told, local_epsilon=randomizer.local_epsilon)


def execute(device: DeviceValues, beam_flags: Sequence[str], console: Console) -> dict[str, Any]:
    """Read, randomize, pack, write; what was done, for `--format json`.

    Raises:
        SettingError, OutputError: before anything is read.
        JobError: if the job fails.
        NothingReleasedError: if nothing was written.
    """
    folder = outputs.OutputFolder(device.job.output.folder)
    check_first(_told(device, beam_flags), console)
    device.begin()
    with new_key(device):
        return _made(device, beam_flags, folder, console)


def _made(
    device: DeviceValues, beam_flags: Sequence[str], folder: outputs.OutputFolder, console: Console
) -> dict[str, Any]:
    """The reports of devices whose flags and key are in order."""
    settings, terms = device.job, device.release.terms
    randomizer = terms.randomizer
    console.print(
        f"{type(randomizer).__name__}, local epsilon {promise(randomizer.local_epsilon)}, "
        f"{randomizer.bits_per_report} bits per report",
        style="dim", highlight=False,
    )  # fmt: skip
    log_events.say(
        log_events.STARTED,
        program=_NAME,
        mechanism=type(randomizer).__name__,
        local_epsilon=_promised(device),
        bits_per_report=randomizer.bits_per_report,
        num_files=settings.num_files,
    )
    with folder.staging() as staging:
        here = job.ends_with_launcher(settings, beam_flags)
        NoCharge("no: nothing is released").leave_note(staging, ends_with_launcher=here)
        result = _run(device, beam_flags, staging, console)
        left_out = gate_bad_rows(
            b"".join(results.bad_row_parts(staging)), watch.rows_read(result), settings
        )
        reasons = left_out.reasons
        written = paths_matching(f"{staging}/{_REPORTS}/*{SUFFIX}")
        if not written:
            raise NothingReleasedError(
                f"nothing was written: {device.unwritten}{left_out.most_often}"
            )
        with folder.writing() as writer:
            for path in written:
                _copy(path, writer)
            writer.put(RELEASE_FILE, outputs.as_json(device.release.to_json()))
    say_left_out(left_out, console)
    num_reports = watch.counter(result, "reports_written")
    log_events.say(
        log_events.REPORTS_WRITTEN,
        program=_NAME,
        num_reports=num_reports,
        num_files=len(written),
    )
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "output": folder.path,
        "release": device.release.to_json(),
        "local_epsilon": _promised(device),
        **({} if device.readers is None else {"levels": list(device.readers.levels)}),
        "num_reports": num_reports,
        "num_bad_rows": reasons.total() if settings.bad_rows_leave_a_trace else None,
        "bad_rows": dict(reasons) if settings.bad_rows_leave_a_trace else None,
        "files": len(written),
        **({"recover_key_file": settings.noise.key_file} if device.release.recoverable else {}),
        "warnings": _warnings(settings, device),
    }


def _run(device: DeviceValues, beam_flags: Sequence[str], staging: str, console: Console) -> Any:
    """The pipeline, to its end."""
    settings, terms = device.job, device.release.terms
    try:
        pipeline = beam.Pipeline(
            options=PipelineOptions(job.pipeline_flags(settings, list(beam_flags)))
        )
    except ValueError as error:
        raise SettingError(str(error)) from None
    table = pipeline | "Read" >> device.run.table
    place, rows = f"{staging}/{_REPORTS}", table[ROWS]
    if device.readers is not None:
        values = device.side.values(rows)
        hide = RandomizeForLevels(terms, device.readers.secret, noise=device.noise)
        values.values | "Device" >> hide | "WriteReports" >> WriteReports(place, terms)
        refused = values.bad_rows
    elif not device.noise.memoized:
        assert isinstance(device.side, DeviceSide)
        made: Reports = rows | "Device" >> device.side
        made.reports | "WriteReports" >> WriteReports(place, terms, groups=settings.people.groups)
        refused = made.bad_rows
    else:  # who sends an envelope says which it is, so it is written where the noise is drawn
        values = device.side.values(rows)
        write = WriteMemoizedReports(place, terms, device.noise, groups=settings.people.groups)
        values.values | "WriteReports" >> write
        refused = values.bad_rows
    bad_rows = (table[BAD_ROWS], refused) | "AllBadRows" >> beam.Flatten()
    bad_rows | "WriteBadRows" >> results.WriteBadRows(staging)
    files = f"{settings.num_files:,} file{'s' if settings.num_files != 1 else ''}"
    what = f"reading and randomizing {files}"
    return watch.run(pipeline, console, what, settings.input_bytes, settings.output.job_timeout)


def _promised(device: DeviceValues) -> float | None:
    """The local epsilon; None where there is none: in a simulation, and of shares."""
    terms = device.release.terms
    alone = terms.randomizer.protects_alone and not terms.simulated
    return terms.randomizer.local_epsilon if alone else None


def _warnings(settings: Job, device: DeviceValues) -> list[str]:
    local = device.release.terms.randomizer.local_epsilon
    if device.readers is not None:
        local = device.readers.levels[0]
    found = []
    if settings.noise.seed is not None:
        found.append("simulated with a seed: no privacy guarantee")
    elif isinstance(asked := device.release.asked, PublishedShares):
        found.append(
            "local epsilon is infinite: an envelope holds all shares of one person, and whoever "
            "sees it reads the vector almost exactly. Send it to a collector who is trusted, and "
            f"let nobody else read these files. People are promised {asked.promise}"
        )
    elif local > MAX_LOCAL_EPSILON:
        seen = "a report" if device.readers is None else "a report and has the key of that level"
        found.append(
            f"local epsilon is {number(local)}: whoever sees {seen} learns its value at odds of "
            f"{odds(local)}"
        )
    if settings.people.id is None:
        found.append(settings.persons_unknown)
    return found


def _copy(path: str, writer: outputs.FolderWriter) -> None:
    """One file from the workers' folder into the output."""
    name = path.rsplit("/", 1)[-1]
    source = FileSystems.open(path, "application/octet-stream", "uncompressed")
    with source, writer.open(name) as target:
        while piece := source.read(_COPY_BYTES):
            target.write(piece)


def show(done: dict[str, Any], console: Console) -> None:
    """What was done, for people."""
    terms = done["release"]
    reports = f"{done['num_reports']:,} reports" if done["num_reports"] else "reports"
    console.print(
        f"[bold]{reports}[/bold] of release {escape(terms['release_id'])}, "
        f"{terms['bits_per_report']} bits each"
    )
    for reason, count in (done["bad_rows"] or {}).items():
        console.print(f"  {count:,} rows could not be used: {reason}")
    console.print(f"[bold]Written to[/bold] {escape(done['output'])}", soft_wrap=True)
    leaving = "which may leave this machine"
    if "promised" in terms.get("questions", ""):
        leaving = "for the collector alone, who is trusted"
    console.print(f"  reports-*{SUFFIX}  [dim]packed reports, {leaving}[/dim]")
    console.print(f"  {RELEASE_FILE}   [dim]what the collector needs to know; public[/dim]")
    if "recover_key_file" in done:
        console.print(
            f"[bold]Key[/bold] {escape(done['recover_key_file'])}  [dim]reads every single value: "
            "keep it apart from the reports (`beam-ldp recover`), or delete it[/dim]",
            soft_wrap=True,
        )


def report(device: DeviceValues, done: dict[str, Any], console: Console) -> None:
    """Say what was written."""
    for warning in done["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    if device.job.output.format == "json":
        print(terminal.printed_json(done))
    else:
        show(done, Console())


def _as_told(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file. Raises as `check` and `execute` do."""
    device = check(given)
    if device.job.only_plan:
        say_checks(_told(device, given.beam_flags), device.job.output.format)
        return DONE
    report(device, execute(device, given.beam_flags, console), console)
    return DONE


PROGRAM = Program(USAGE, _as_told, _check)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
