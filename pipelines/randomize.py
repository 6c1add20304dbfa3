"""`beam-ldp randomize`: what devices run, for a file of people's values.

The same program as `python -m beam_ldp.pipelines.randomize`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.markup import escape

from beam_ldp import log_events
from beam_ldp.pipelines import outputs, run
from beam_ldp.pipelines.devices.release_file import RELEASE_FILE
from beam_ldp.pipelines.devices.values import DeviceValues, ListValues, NumberValues
from beam_ldp.pipelines.flags import DATA
from beam_ldp.pipelines.frequency import FrequencySettings, asked_of, check_column
from beam_ldp.pipelines.jobs import job, results, watch
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.means.settings import check_mean
from beam_ldp.pipelines.options import (
    ReleaseOptions,
    UsageError,
    parse_flags,
)
from beam_ldp.pipelines.records.gates import NothingReleasedError, gate_bad_rows
from beam_ldp.pipelines.records.statement import WEAK_LOCAL_EPSILON, number
from beam_ldp.pipelines.run import DONE, FAILED, INTERRUPTED, MISUSED, NOTHING_RELEASED
from beam_ldp.pipelines.settings import Settings, check_common, need
from beam_ldp.pipelines.usage.randomize import FLAGS, MEAN_FLAGS, USAGE
from beam_ldp.pipelines.views import terminal
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms import (
    BoundContributions,
    Randomize,
    WriteMemoizedReports,
    WriteReports,
)
from beam_ldp.transforms.noise import Noise
from beam_ldp.transforms.report_files import SUFFIX

_NAME = "randomize"
_REPORTS = "reports"  # folder beside the output, while the job runs
_COPY_BYTES = 1 << 22

ReleaseOptions.learn(FLAGS)


# The flags of the other programs that mean nothing here: no price is stated, nothing is released.
_NOT_HERE: dict[str, Any] = {
    "strict": False, "shuffle_output": "statistic", "scope": "batch", "model": "shuffle",
    "ledger": None, "no_ledger": True, "privacy_unit": "user", "run_id": None, "quota": "",
    "overwrite": False, "only_plan": False, "mlflow_uri": None, "mlflow_experiment": "",
    "no_mlflow": True, "top": 1, "shape": None, "staged": None, "budget_windows": None,
    "people_store": None, "people_key_file": None, "bad_rows_file": None,
}  # fmt: skip
_OF_CENTRAL = ("max_local_epsilon", "delta", "expected_users", "min_reports")


def check(values: argparse.Namespace) -> DeviceValues:
    """What to make reports of, with every rule checked. Raises UsageError."""
    need(values, "input", "dataset", "release_id", "output")
    for name, value in _NOT_HERE.items():
        setattr(values, name, value)
    _check_target(values)
    if _is_there(values.output):
        raise UsageError(
            f"--output {values.output} exists: reports go into a new folder, for people whose "
            "values are randomized twice pay twice"
        )
    asked = [name for name in MEAN_FLAGS if getattr(values, _attribute(name)) != _default(name)]
    if not asked:
        return ListValues(_check_list(values), values.reports_per_envelope)
    for name in ("column", "domain", "bins", "quantiles", "between", "group_by", "groups"):
        if getattr(values, name) is not None:
            raise UsageError(
                f"{asked[0]} is about numbers, --{name.replace('_', '-')} about values of a list"
            )
    if values.bad_rows == "other":
        raise UsageError("--bad-rows of numbers must be dead-letter or zero")
    return NumberValues(check_mean(values), values.reports_per_envelope)


def _is_there(path: str) -> bool:
    """Whether there is a file or folder; an object store knows no folders, but what is in them."""
    if FileSystems.exists(path):
        return True
    try:
        return bool(_listed(f"{path.rstrip('/')}/*"))
    except BeamIOError:
        return False


def _attribute(flag: str) -> str:
    return flag[2:].replace("-", "_")


def _default(flag: str) -> Any:
    return FLAGS[DATA][flag].get("default")


def _check_target(values: argparse.Namespace) -> None:
    """A central target, or a local promise, which depends on nothing else."""
    if (values.epsilon is None) == (values.local_epsilon is None):
        raise UsageError("give one of --epsilon (central target) and --local-epsilon")
    if values.epsilon is not None:
        return
    given = [name for name in _OF_CENTRAL if getattr(values, name) is not None]
    given += ["honest_fraction"] if values.honest_fraction != 1 else []
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} needs --epsilon: what a report promises by itself "
            "does not depend on it"
        )
    values.min_reports, values.model = 1, "local"


def _check_list(values: argparse.Namespace) -> FrequencySettings:
    if values.bad_rows == "zero":
        raise UsageError("--bad-rows of a list must be dead-letter or other")
    own = asked_of(values)
    settings = check_common(values, FrequencySettings, shuffled=values.epsilon is not None, **own)
    check_column(values, settings.input_format)
    return settings


def execute(device: DeviceValues, beam_flags: Sequence[str], console: Console) -> dict[str, Any]:
    """Read, randomize, pack, write; what was done, for `--format json`.

    Raises:
        UsageError, OutputError: before anything is read.
        JobError: if the job fails.
        NothingReleasedError: if nothing was written.
    """
    settings, terms = device.settings, device.release.terms
    randomizer = terms.randomizer
    folder = outputs.OutputFolder(settings.output)
    console.print(
        f"{type(randomizer).__name__}, local epsilon {number(randomizer.local_epsilon)}, "
        f"{randomizer.bits_per_report} bits per report",
        style="dim", highlight=False,
    )  # fmt: skip
    log_events.say(
        log_events.STARTED,
        program=_NAME,
        mechanism=type(randomizer).__name__,
        local_epsilon=None if terms.simulated else randomizer.local_epsilon,
        bits_per_report=randomizer.bits_per_report,
        num_files=settings.num_files,
    )
    with folder.staging() as staging:
        result = _run(device, beam_flags, staging, console)
        reasons = _reasons(staging)
        gate_bad_rows(reasons.total(), settings)
        written = _listed(f"{staging}/{_REPORTS}/*{SUFFIX}")
        if not written:
            raise NothingReleasedError(
                f"nothing was written: no row could be used{_most_often(reasons)}"
            )
        with folder.writing() as writer:
            for path in written:
                _copy(path, writer)
            writer.put(RELEASE_FILE, outputs.as_json(device.release.to_json()))
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
        "local_epsilon": None if terms.simulated else randomizer.local_epsilon,
        "num_reports": num_reports,
        "num_bad_rows": reasons.total() if settings.bad_rows_leave_a_trace else None,
        "bad_rows": dict(reasons) if settings.bad_rows_leave_a_trace else None,
        "files": len(written),
        "warnings": _warnings(settings, randomizer),
    }


def _run(device: DeviceValues, beam_flags: Sequence[str], staging: str, console: Console) -> Any:
    """The pipeline, to its end."""
    settings, terms = device.settings, device.release.terms
    try:
        pipeline = beam.Pipeline(
            options=PipelineOptions(job.pipeline_flags(settings, list(beam_flags)))
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    values, bad_rows = device.encoded(pipeline)
    noise = Noise(device.identity, settings.memoize_key_file, settings.seed)
    if settings.user_id is not None:
        values = values | "Bound" >> BoundContributions(noise=noise)
    place = f"{staging}/{_REPORTS}"
    if settings.memoize_key_file is not None:
        values | "WriteReports" >> WriteMemoizedReports(place, terms, noise, groups=device.groups)
    else:
        reports = values | "Randomize" >> Randomize(terms.randomizer, noise=noise)
        reports | "WriteReports" >> WriteReports(place, terms, groups=device.groups)
    bad_rows | "AllBadRows" >> beam.Flatten() | "WriteBadRows" >> results.WriteBadRows(staging)
    files = f"{settings.num_files:,} file{'s' if settings.num_files != 1 else ''}"
    return watch.run(pipeline, console, f"reading and randomizing {files}")


def _reasons(staging: str) -> Counter[str]:
    """How many rows could not be used, by reason. Where they stand is nobody's business but this
    machine's, so nothing of them is written beside the reports."""
    return results.reasons_of(b"".join(results.bad_row_parts(staging)))


def _most_often(reasons: Counter[str]) -> str:
    return f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""


def _warnings(settings: Settings, randomizer: LocalRandomizer) -> list[str]:
    found = []
    if settings.seed is not None:
        found.append("simulated with a seed: no privacy guarantee")
    elif randomizer.local_epsilon > WEAK_LOCAL_EPSILON:
        found.append(
            f"local epsilon is {number(randomizer.local_epsilon)}: whoever sees a report learns "
            "its value almost surely"
        )
    if settings.user_id is None:
        found.append(settings.persons_unknown)
    return found


def _listed(pattern: str) -> list[str]:
    return sorted(file.path for file in FileSystems.match([pattern])[0].metadata_list)


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
    console.print(f"  reports-*{SUFFIX}  [dim]packed reports: they may leave this machine[/dim]")
    console.print(f"  {RELEASE_FILE}   [dim]what the collector needs to know; public[/dim]")


def report(device: DeviceValues, done: dict[str, Any], console: Console) -> None:
    """Say what was written."""
    for warning in done["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    if device.settings.format == "json":
        print(terminal.printed_json(done))
    else:
        show(done, Console())


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if (code := USAGE.print_help(argv)) is not None:
        return code
    console = Console(stderr=True)
    try:
        values, arguments = parse_flags(argv, FLAGS)
        device = check(values)
        done = execute(device, arguments, console)
        report(device, done, console)
    except (UsageError, outputs.OutputError) as error:
        log_events.say(log_events.REFUSED, program=_NAME)
        return run.failed(console, MISUSED, f"error: {error}")
    except NothingReleasedError as error:
        log_events.say(log_events.NOTHING_RELEASED, program=_NAME)
        return run.failed(console, NOTHING_RELEASED, str(error))
    except JobError as error:
        log_events.say(log_events.FAILED, program=_NAME)
        return run.failed(console, FAILED, f"error: {error}")
    except KeyboardInterrupt:
        return run.failed(console, INTERRUPTED, "interrupted")
    return DONE


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.randomize import main as program

    sys.exit(program())
