"""`beam-ldp randomize`: what devices run, for a file of people's values.

The same program as `python -m beam_ldp.pipelines.randomize`.
"""

from __future__ import annotations

import math
import sys
from abc import ABC
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.markup import escape

from beam_ldp import log_events
from beam_ldp.pipelines import outputs, programs
from beam_ldp.pipelines.checks import Job, check_first, say_checks
from beam_ldp.pipelines.devices.questions import (
    DeviceListsQuestion,
    DeviceNumberQuestion,
    DeviceOutcomeQuestion,
    DeviceQuestion,
)
from beam_ldp.pipelines.devices.recovery import new_key, with_recover_key
from beam_ldp.pipelines.devices.release_file import RELEASE_FILE, Coordinates, ReleaseFile
from beam_ldp.pipelines.experiments.choice import OutcomeSettings, checked_outcomes
from beam_ldp.pipelines.experiments.run import Experiment
from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.frequencies.choice import checked_frequency, oracle_for
from beam_ldp.pipelines.frequencies.numbers import NumberTree
from beam_ldp.pipelines.frequencies.questions import FrequencySettings, SeveralLists
from beam_ldp.pipelines.frequency import Frequency
from beam_ldp.pipelines.inputs.sources import BAD_ROWS, ROWS
from beam_ldp.pipelines.jobs import job, results, watch
from beam_ldp.pipelines.mean import Mean
from beam_ldp.pipelines.means.choice import MeanSettings, check_mean
from beam_ldp.pipelines.planner import Choice
from beam_ldp.pipelines.programs import DONE
from beam_ldp.pipelines.question import Question
from beam_ldp.pipelines.records.gates import NothingReleasedError, gate_bad_rows
from beam_ldp.pipelines.records.wording import number
from beam_ldp.pipelines.settings import Settings, absolute, need, with_files
from beam_ldp.pipelines.usage.mean import MeanQuestion
from beam_ldp.pipelines.usage.randomize import USAGE
from beam_ldp.pipelines.views import terminal
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse
from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse, checked_levels
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON, odds
from beam_ldp.transforms import (
    DeviceSide,
    WriteMemoizedReports,
    WriteReports,
)
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity
from beam_ldp.transforms.device.keyed import NoiseSource, read_key
from beam_ldp.transforms.device.side import Reports
from beam_ldp.transforms.files import paths_matching
from beam_ldp.transforms.levels import RandomizeForLevels
from beam_ldp.transforms.wire import SUFFIX
from beam_ldp.transforms.word_levels import WordsOfLevel

_NAME = "randomize"
_REPORTS = "reports"  # folder beside the output, while the job runs
_COPY_BYTES = 1 << 22

_OF_NUMBERS = [
    field.name for field in fields(MeanQuestion) if field.name not in ("column", "bad_rows")
]
_OF_LISTS = ("domain", "bins", "quantiles", "between")


def check(given: Arguments) -> DeviceValues:
    """What to make reports of, with every rule checked. Raises UsageError."""
    if given["release"].get("release"):
        from beam_ldp.pipelines.devices.word_levels import WordValues

        return WordValues(given)
    if given["question"].get("experiment"):
        return OutcomeValues(given)
    if "look" in given["question"]:
        raise UsageError("--look needs --experiment, whose looks they are")
    need(USAGE, given, "source.paths", "release.dataset", "release.id", "output.folder")
    readers = Readers.of(given)
    given = _with_target(with_recover_key(given), readers)
    _check_new(given["output"]["folder"])
    reports = given["output"].get("reports_per_envelope", 1)
    numbers = [name for name in _OF_NUMBERS if name in given["question"]]
    if not numbers:
        recoverable = "recover_key_file" in given["release"]
        if recoverable and readers is not None:
            raise UsageError("--recover-key-file and --levels exclude each other")
        return ListValues(_check_list(given), reports, readers, recoverable)
    if readers is not None:
        raise UsageError("--levels is for values of a list, and for a number in bins")
    flag = USAGE.flag_of(f"question.{numbers[0]}")
    for home, names in (("question", _OF_LISTS), ("people", ("group_by", "groups"))):
        for name in names:
            if name in given[home]:
                raise UsageError(
                    f"{flag} is for numbers, {USAGE.flag_of(f'{home}.{name}')} for values of a list"
                )
    if "random_bits" in given["mechanism"]:
        raise UsageError("--random-bits is for values of a list")
    if given["question"].get("bad_rows") == "other":
        raise UsageError("--bad-rows of numbers must be dead-letter or zero")
    return NumberValues(check_mean(given, USAGE), reports)


def _check_new(folder: str) -> None:
    if is_there(folder):
        raise UsageError(
            f"--output {folder} exists: reports go into a new folder, for people whose "
            "values are randomized twice pay twice"
        )


def is_there(path: str) -> bool:
    """Whether there is a file or folder; an object store knows no folders, but what is in them."""
    if FileSystems.exists(path):
        return True
    try:
        return bool(paths_matching(f"{path.rstrip('/')}/*"))
    except BeamIOError:
        return False


def _with_target(given: Arguments, readers: Readers | None) -> Arguments:
    """A central target, or a local promise, which depends on nothing else."""
    if readers is not None:  # what is promised is the largest level
        told = Arguments({"privacy": {"local_epsilon": readers.levels[0]}}, [])
        given = told.over(given)
    privacy = given["privacy"]
    if ("epsilon" in privacy) == ("local_epsilon" in privacy):
        raise UsageError("give one of --epsilon (central target) and --local-epsilon")
    if "epsilon" in privacy:
        return given
    alone_too = (
        "local_epsilon", "max_local_epsilon", "trust_shuffler", "levels", "level_secret",
    )  # fmt: skip
    central = [f"privacy.{name}" for name in privacy if name not in alone_too]
    central += [f"shuffle.{name}" for name in given["shuffle"]]
    if central:
        raise UsageError(
            f"{USAGE.flag_of(central[0])} needs --epsilon: what a report promises by itself "
            "does not depend on it"
        )
    alone: dict[str, dict[str, Any]] = {
        "privacy": {"model": "local"},
        "shuffle": {"min_reports": 1},
    }
    return Arguments(alone, []).over(given)


def _check_list(given: Arguments) -> FrequencySettings:
    if given["question"].get("bad_rows") == "zero":
        raise UsageError("--bad-rows of a list must be dead-letter or other")
    if not {"domain", *_OF_LISTS} & set(given["question"]):
        raise UsageError(
            "give --domain or --bins for values of a list, or --radius, --range, --ranges or "
            "--norm for numbers"
        )
    return with_files(checked_frequency(given, USAGE))


def to_check(given: Arguments) -> Job:
    """What `beam-ldp check` looks at. Raises UsageError."""
    return _told(check(given), given.beam_flags)


def _told(device: DeviceValues, flags: Sequence[str]) -> Job:
    """What is checked first: nothing is charged here, it is where the reports are collected."""
    randomizer = device.release.terms.randomizer
    told = Job.of(device.program, Choice(randomizer, MANY, None, math.nan), flags)
    return replace(told, local_epsilon=randomizer.local_epsilon, ask=None, is_logged=False)


def execute(device: DeviceValues, beam_flags: Sequence[str], console: Console) -> dict[str, Any]:
    """Read, randomize, pack, write; what was done, for `--format json`.

    Raises:
        UsageError, OutputError: before anything is read.
        JobError: if the job fails.
        NothingReleasedError: if nothing was written.
    """
    folder = outputs.OutputFolder(device.settings.output.folder)
    check_first(_told(device, beam_flags), console)
    device.begin()
    with new_key(device):
        return _made(device, beam_flags, folder, console)


def _made(
    device: DeviceValues, beam_flags: Sequence[str], folder: outputs.OutputFolder, console: Console
) -> dict[str, Any]:
    """The reports of devices whose flags and key are in order."""
    settings, terms = device.settings, device.release.terms
    randomizer = terms.randomizer
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
        written = paths_matching(f"{staging}/{_REPORTS}/*{SUFFIX}")
        if not written:
            raise NothingReleasedError(
                f"nothing was written: {device.unwritten}{_most_often(reasons)}"
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
    settings, terms = device.settings, device.release.terms
    try:
        pipeline = beam.Pipeline(
            options=PipelineOptions(job.pipeline_flags(settings, list(beam_flags)))
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    table = device.program.read(pipeline)
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
    return watch.run(pipeline, console, what, device.settings.input_bytes)


def _reasons(staging: str) -> Counter[str]:
    """How many rows could not be used, by reason. Where they stand is nobody's business but this
    machine's, so nothing of them is written beside the reports."""
    return results.reasons_of(b"".join(results.bad_row_parts(staging)))


def _most_often(reasons: Counter[str]) -> str:
    return f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""


def _warnings(settings: Settings[Any], device: DeviceValues) -> list[str]:
    local = device.release.terms.randomizer.local_epsilon
    if device.readers is not None:
        local = device.readers.levels[0]
    found = []
    if settings.noise.seed is not None:
        found.append("simulated with a seed: no privacy guarantee")
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
    console.print(f"  reports-*{SUFFIX}  [dim]packed reports, which may leave this machine[/dim]")
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
    if device.settings.output.format == "json":
        print(terminal.printed_json(done))
    else:
        show(done, Console())


def run_given(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file. Raises as `check` and `execute` do."""
    device = check(given)
    if device.settings.only_plan:
        say_checks(_told(device, given.beam_flags), device.settings.output.format)
        return DONE
    report(device, execute(device, given.beam_flags, console), console)
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return programs.run_flags(USAGE, run_given, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.randomize import main as program

    sys.exit(program())


# What reports are made of: values of public lists, numbers in bins, or means ----------------------


MANY = 1_000_000  # people that a choice is made for where nobody says how many will report


class DeviceValues(ABC):
    """What a device holds, and what it promised to send of it.

    Attributes:
        settings: the flags, checked.
        release: what devices and collector agree upon.
        program: that asks the same question where raw data are read.
        readers: of several levels; None for one that everybody reads at.
        unwritten: why there may be no report.
    """

    settings: Settings[Any]
    release: ReleaseFile
    program: Question[Any]
    readers: Readers | None = None
    unwritten: str = "no row could be used"

    def begin(self) -> None:  # noqa: B027  (most keep nothing)
        """Keep what must be known before anything is drawn."""

    @property
    def identity(self) -> ReleaseIdentity:
        """Of the release; what its noise is drawn under, where that is memoized."""
        return self.release.terms.identity

    @property
    def noise(self) -> NoiseSource:
        """Where the noise of its reports comes from."""
        told = self.settings.noise
        return NoiseSource.told(told, self.identity)

    @property
    def side(self) -> DeviceSide | WordsOfLevel:
        """What runs on the device."""
        settings, terms = self.settings, self.release.terms
        return DeviceSide(
            self.program.query.encoder(terms.randomizer, settings.people),
            terms.randomizer,
            noise=self.noise,
            one_each=settings.people.id is not None,
        )


@dataclass(frozen=True)
class Readers:
    """Readers of several levels of the same public reports.

    Attributes:
        levels: their local epsilons, from the largest to that of everybody.
        secret: path of the secret that their keys are derived from.
    """

    levels: tuple[float, ...]
    secret: str

    @classmethod
    def of(cls, given: Arguments) -> Readers | None:
        """As the flags tell; None without. Raises UsageError."""
        told = given["privacy"]
        text, secret = told.get("levels"), told.get("level_secret")
        if (text is None) != (secret is None):
            raise UsageError("--levels and --level-secret belong together")
        if text is None or secret is None:
            return None
        for name in ("epsilon", "local_epsilon"):
            if name in told:
                raise UsageError(f"--levels stands in place of {USAGE.flag_of(f'privacy.{name}')}")
        try:
            levels = checked_levels([float(level) for level in text.split(",")])
        except ValueError:
            levels = ()
        if len(levels) < 2:
            raise UsageError(
                "--levels must be two or more numbers > 0 that decrease, separated by commas, got "
                f"{text}"
            )
        return cls(levels, absolute(secret))

    def check_alone(
        self, settings: FrequencySettings, several: bool, reports_per_envelope: int
    ) -> None:
        """A UsageError for what does not go with levels."""
        with_it = {
            "several questions or a tree of bins": several,
            "--group-by": settings.people.group_by is not None,
            "--reports-per-envelope": reports_per_envelope != 1,
            "--mechanism, for it has its own": settings.mechanism.name != "auto",
        }
        for what, given in with_it.items():
            if given:
                raise UsageError(f"--levels does not go with {what}")
        if settings.noise.key_file not in (None, self.secret):
            raise UsageError(
                "--memoize-key-file must be the file of --level-secret: one secret decides what "
                "a person's report and its envelope are"
            )


class ListValues(DeviceValues):
    """Values of a public list, or of several; a number in bins, or in a tree over them.

    Raises UsageError where no mechanism fits the flags.
    """

    def __init__(
        self,
        settings: FrequencySettings,
        reports_per_envelope: int = 1,
        readers: Readers | None = None,
        recoverable: bool = False,
    ) -> None:
        self.settings: FrequencySettings = settings
        self._recoverable = recoverable
        self.program: Frequency = Frequency(settings)
        self.readers = readers
        self._survey = self.program.survey
        if readers is not None:
            readers.check_alone(settings, self._survey is not None, reports_per_envelope)
        groups = self.program.groups
        self.release = ReleaseFile(
            terms_of(self.program, self._randomizer(), reports_per_envelope, readers),
            "fixed" if settings.people.id is None else "iid",
            None,
            settings.people.group_by,
            None if groups is None else groups.digest,
            self._asked(),
        )

    def _randomizer(self) -> LocalRandomizer:
        settings = self.settings
        if self._recoverable:
            assert settings.privacy.local_epsilon is not None  # --epsilon was refused
            return RecoverableResponse(self.program.domain.size, settings.privacy.local_epsilon)
        if self.readers is not None:
            return RefinableResponse.of_levels(self.program.domain.size, self.readers.levels)
        if self._survey is None:
            return oracle_for(settings, self.program.domain.size, settings.planned_reports)
        if settings.privacy.epsilon is None:  # many people or very many: the same design is best
            settings = replace(
                settings,
                privacy=replace(settings.privacy, expected_users=MANY),
                shuffle=replace(settings.shuffle, min_reports=MANY),
            )
        return self._survey.planned(settings, settings.question.design)

    def _asked(self) -> DeviceQuestion | None:
        """What the terms say beside the list; None where there is nothing to say."""
        survey, wanted = self._survey, self.settings.question.numbers
        if isinstance(survey, SeveralLists):
            digests = (domain.digest.hex() for domain in survey.domains.values())
            return DeviceListsQuestion(self.settings.question.columns, tuple(digests))
        if wanted is None:
            return None
        fan_out = survey.tree.fan_out if isinstance(survey, NumberTree) else None
        return DeviceNumberQuestion(self.settings.question.name, replace(wanted, fan_out=fan_out))


class NumberValues(DeviceValues):
    """A number or a vector of them. Raises UsageError where no mechanism fits the flags."""

    def __init__(self, settings: MeanSettings, reports_per_envelope: int = 1) -> None:
        self.settings: MeanSettings = settings
        self.program: Mean = Mean(settings)
        randomizer = self.program.choose().mechanism
        assert isinstance(randomizer, MeanRandomizer)
        coordinates = Coordinates(self.program.labels, self.program.ranges)
        self.release = ReleaseFile(
            terms_of(self.program, randomizer, reports_per_envelope),
            settings.sampling,
            coordinates,
        )


# What goes with `--experiment`: everything else is in the plan, or means nothing here.
_WITH_EXPERIMENT = {
    "source": {"paths", "format", "delimiter", "max_bad_rows"},
    "question": {"column", "experiment", "look"},
    "people": {"id", "one_row", "group_by"},
    "privacy": {"max_local_epsilon", "trust_shuffler"},
    "release": {"dataset", "key_file", "seed", "log", "log_key_file"},
    "output": {"folder", "format", "reports_per_envelope"},
    "": {"only_plan"},
}


class OutcomeValues(DeviceValues):
    """Outcomes of an experiment, as its plan asks for them. Raises UsageError."""

    def __init__(self, given: Arguments) -> None:
        for home, section in given.settings.items():
            for name in set(section) - _WITH_EXPERIMENT.get(home, set()):
                flag = USAGE.flag_of(f"{home}.{name}")
                raise UsageError(f"{flag} does not go with --experiment, whose plan says it")
        need(USAGE, given, "source.paths", "release.dataset", "output.folder")
        _check_new(given["output"]["folder"])
        asked = dict(given["question"])
        asked["design"] = asked.pop("experiment")
        told = Arguments({**given.settings, "question": asked}, given.beam_flags)
        settings, plan = checked_outcomes(told, USAGE)
        self.settings: OutcomeSettings = settings
        self.program: Experiment = Experiment(settings, plan, ())
        question, groups = settings.question, settings.people.groups
        self.release = ReleaseFile(
            terms_of(
                self.program, plan.randomizer(), given["output"].get("reports_per_envelope", 1)
            ),
            "fixed" if settings.people.id is None else "iid",
            None,
            settings.people.group_by,
            groups.digest if isinstance(groups, Domain) else None,
            DeviceOutcomeQuestion(question.column[0], plan.digest, question.look),
        )


def terms_of(
    program: Frequency | Mean | Experiment,
    randomizer: LocalRandomizer,
    reports_per_envelope: int,
    readers: Readers | None = None,
) -> ReleaseTerms:
    """The terms of a release, whose identity is that of `frequency` or `mean` with the same flags;
    with readers of several levels it is committed to their secret.

    Raises:
        UsageError: for names that are none.
    """
    settings = program.settings
    if reports_per_envelope != 1 and settings.noise.key_file is not None:
        raise UsageError(
            "--reports-per-envelope must be 1 with --memoize-key-file: every person has an "
            "envelope of their own, by which copies are recognized"
        )
    try:
        identity = release_identity(
            randomizer.config_digest(),
            columns=program.query.columns,
            values_digest=lambda: program.query.digest(randomizer),
            people=settings.people,
            noise=replace(settings.noise, dataset=settings.dataset),
            bounding=bounding_of(settings.people),
        )
        assert identity is not None  # it has its names
        randomizer, identity = of_release(
            randomizer, replace(identity, reports_per_envelope=reports_per_envelope)
        )
        assert identity is not None
        if readers is not None:
            identity = identity.committed(read_key(readers.secret, "--level-secret"))
        return ReleaseTerms(randomizer, identity, settings.noise.simulated)
    except ValueError as error:
        raise UsageError(str(error)) from None
