"""Running a Beam pipeline whose results come back to the launcher; Beam's own flags."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from rich.console import Console

from beam_ldp.randomizers import registry
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import job_monitor as watch
from beam_ldp.release import worker_results as results
from beam_ldp.settings import Charge, Noise, Privacy, SettingError
from beam_ldp.settings.fields import SWITCH, TEXT, nearest, settings_of
from beam_ldp.settings.job import Job
from beam_ldp.transforms.device.keyed import DigestReports, LeaveHashes, LeaveReports, PeopleFolder
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease
from beam_ldp.transforms.servers import NoServerError


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


def pipeline_flags(settings: Job, flags: Sequence[str]) -> list[str]:
    """Beam's flags, with a runner that needs no download and uses the cores where it pays."""
    given = {flag.split("=", 1)[0] for flag in flags if flag.startswith("--")}
    found = [*flags]
    if runner_of(flags) in (None, "DirectRunner", "SwitchingDirectRunner", "FnApiRunner"):
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


def runner_of(flags: Sequence[str]) -> str | None:
    """The runner that Beam's flags name."""
    runner = None
    for i, flag in enumerate(flags):
        if flag.startswith("--runner="):
            runner = flag.split("=", 1)[1]
        elif flag == "--runner" and i + 1 < len(flags):
            runner = flags[i + 1]
    return runner


_HERE = ("DirectRunner", "SwitchingDirectRunner", "FnApiRunner", "PrismRunner")


def workers_elsewhere(flags: Sequence[str]) -> str | None:
    """The runner, where its workers may be other machines than this one; else None."""
    runner = (runner_of(flags) or "DirectRunner").rsplit(".", 1)[-1]
    options = PipelineOptions([*flags]).view_as(PortableOptions)
    if runner in _HERE or options.environment_type == "LOOPBACK":
        return None
    elsewhere = options.environment_type or options.job_endpoint or runner == "DataflowRunner"
    return runner if elsewhere else None


def ends_with_launcher(settings: Job, flags: Sequence[str]) -> bool:
    """Whether the whole job lives in the launcher's process and ends with it."""
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
        digest: of envelopes from devices, one set digest; None where it proves nothing.
        identity: of the release.
    """

    releases: beam.PCollection
    withheld: beam.PCollection
    bad_rows: tuple[beam.PCollection, ...]
    persons: beam.PCollection | None = None
    traces: beam.PCollection | None = None
    identity: ReleaseIdentity | None = None
    digest: beam.PCollection | None = None

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
        digest = self.digest
        if self.traces is not None and self.identity is not None:
            digest = self.traces | "DigestReports" >> DigestReports(self.identity)
        if digest is not None:
            digest | "WriteDigest" >> results.WriteResults(staging, results.DIGEST, bytes)
        if self.identity is not None:
            told = [self.identity.text.encode()]
            identity = self.releases.pipeline | "Identity" >> beam.Create(told)
            identity | "WriteIdentity" >> results.WriteResults(staging, results.IDENTITY, bytes)


def run_pipeline(
    build: Callable[[beam.Pipeline], Outputs],
    settings: Job,
    flags: Sequence[str],
    staging: str,
    console: Console,
) -> Any:
    """Build and run to the end; what comes out is in `staging`. Gives Beam's result.

    Raises:
        SettingError: if Beam refuses its flags.
        JobError: if the job fails.
    """
    try:
        pipeline = beam.Pipeline(options=JobOptions(pipeline_flags(settings, flags)))
    except ValueError as error:
        raise SettingError(str(error)) from None
    build(pipeline).write(staging)
    what = f"{settings.num_files:,} file{'s' if settings.num_files != 1 else ''}"
    return watch.run(
        pipeline, console, f"{settings.doing} {what}", settings.input_bytes,
        settings.output.job_timeout,
    )  # fmt: skip


# Beam's own flags ---------------------------------------------------------------------------------
#
# Read strictly: Beam drops a flag that it does not know with a warning.


IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


class _Parser(argparse.ArgumentParser):
    """Beam describes its flags to argparse. Raises instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise SettingError(message)

    def add_value_provider_argument(self, *names: str, **how: Any) -> None:
        how.pop("type", None)
        self.add_argument(*names, **how)


class BudgetOptions(PipelineOptions):
    """The flags about budgets, for Beam programs of one's own: see `charge_to`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        for section, names in _OF_BUDGETS:
            defaults = {field.name: field.default for field in fields(section)}
            for name, about in settings_of(section).items():
                if names is None or name in names:
                    how: dict[str, Any] = {"help": str(SettingError(about.help))}
                    if about.kind is SWITCH:
                        how |= {"action": "store_true", "default": False}
                    else:
                        how["default"] = defaults[name]
                        if about.kind is not TEXT:  # argparse reads defaults as well
                            how["type"] = about.kind.read
                    dest = about.flag.replace("-", "_")
                    parser.add_argument(f"--{about.flag}", f"--{dest}", dest=dest, **how)


_OF_BUDGETS: tuple[tuple[type, tuple[str, ...] | None], ...] = (
    (Charge, None),
    (Noise, ("dataset",)),
    (Privacy, ("honest_fraction",)),
)


def _subclasses(cls: type) -> list[type]:
    below: list[type] = cls.__subclasses__()
    return [c for sub in below for c in (sub, *_subclasses(sub))]


def _beam_parser() -> _Parser:
    """All flags that Beam knows, runners' own included."""
    parser = _Parser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    seen = {BudgetOptions.__qualname__}
    for cls in _subclasses(PipelineOptions):
        if "_add_argparse_args" in cls.__dict__ and cls.__qualname__ not in seen:
            seen.add(cls.__qualname__)
            cls._add_argparse_args(parser)  # type: ignore[attr-defined]
    return parser


def check_beam_flags(arguments: Sequence[str], ours: Sequence[str]) -> None:
    """A SettingError unless every argument is a flag of Beam's or a value of one.

    Args:
        arguments: what is no flag of the program.
        ours: the program's flags, of which one may have been meant.
    """
    parser = _beam_parser()
    given = [argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")]
    known = _names_of(parser)
    endpoint = watch.job_endpoint(arguments)
    if endpoint is not None and not set(known).issuperset(given):
        for name, how in _flags_of_server(endpoint).items():
            if name not in known:
                parser.add_argument(name, **how)
        known = _names_of(parser)
    for name in given:
        if name not in known:
            raise SettingError(f"unknown flag {name}{nearest(name, [*ours, *known])}")
    _, left_over = parser.parse_known_args(list(arguments))
    if left_over:
        raise SettingError(f"unexpected argument {left_over[0]!r}; every value belongs to a flag")


def _flags_of_server(endpoint: str) -> dict[str, dict[str, Any]]:
    try:
        return watch.flags_of(endpoint)
    except NoServerError as error:
        raise SettingError(str(error)) from None


def _names_of(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]
