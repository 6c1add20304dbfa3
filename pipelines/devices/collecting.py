"""What `collect` does with reports about a list, and with reports about numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from rich.console import Console

from beam_ldp.accounting.prices import Price, expected_price
from beam_ldp.pipelines.devices.release_file import ReleaseFile
from beam_ldp.pipelines.mean import Mean
from beam_ldp.pipelines.means.choice import MeanChoice, chosen, shape_of
from beam_ldp.pipelines.usage.collect import USAGE
from beam_ldp.pipelines.usage.mean import MeanQuestion
from beam_ldp.randomizers.base import LocalRandomizer, Sampling
from beam_ldp.randomizers.identity import ROW, ReleaseIdentity
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.release import worker_results as results
from beam_ldp.release.beam_job import Outputs
from beam_ldp.release.job import Q, Settings, absolute, checked, settings_from
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.release.question import Question, without_groups
from beam_ldp.release.record import MeanRecord
from beam_ldp.release.reserving import ledger_url
from beam_ldp.settings import Mechanism, Noise, SettingError
from beam_ldp.settings.sections import MOST_PROMISED
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms import CollectorSide, ReadReports, Releases
from beam_ldp.transforms.elements.blocks import Release, shuffled_among
from beam_ldp.transforms.files import write_whole
from beam_ldp.transforms.levels import AtLevel, read_level_key, reader_levels, refinable
from beam_ldp.transforms.queries import Query
from beam_ldp.transforms.wire import FileTally, find_report_files
from beam_ldp.transforms.wire.write_reports import make_folder

# Where reports came from --------------------------------------------------------------------------
#
# One forged envelope, or one file of them, can hold more reports than all people together: the
# estimate is the forger's, and people hide among reports that hide nobody. How many come from where
# is no secret, so it is looked at before anything is said about the result.


LEAST_SENDERS = 5  # below, every one has a large share
LARGE_SHARE = 0.05  # of all reports
TIMES_THE_OTHERS = 10  # the mean of the others

_BINARY = "application/octet-stream"
_FILE = "received.json"


@dataclass(frozen=True)
class Receipts:
    """What was received, and of which file the most.

    Attributes:
        files, envelopes: with reports that count.
        reports: of all of them.
        largest_file: its path, "" without files.
        in_largest_file, in_largest_envelope: reports.
    """

    files: int = 0
    envelopes: int = 0
    reports: int = 0
    largest_file: str = ""
    in_largest_file: int = 0
    in_largest_envelope: int = 0

    @classmethod
    def of(cls, path: str, tally: FileTally) -> Receipts:
        """One file."""
        return cls(1, tally.envelopes, tally.reports, path, tally.reports, tally.largest)

    def __add__(self, other: Receipts) -> Receipts:
        """Both together; of equally large files the first by name counts as the largest."""
        larger = max(self, other, key=lambda one: one.in_largest_file)
        paths = [
            one.largest_file
            for one in (self, other)
            if one.files and one.in_largest_file == larger.in_largest_file
        ]
        return Receipts(
            self.files + other.files,
            self.envelopes + other.envelopes,
            self.reports + other.reports,
            min(paths, default=""),
            larger.in_largest_file,
            max(self.in_largest_envelope, other.in_largest_envelope),
        )


def outsized(received: Receipts) -> tuple[str, ...]:
    """Warnings, where a file or an envelope holds an outsized share of all reports.

    That is: there are five or more, it holds at least 5 % of all reports, and at least ten times
    as many as the others do on average.
    """
    found = []
    if _is_outsized(received.in_largest_file, received.reports, received.files):
        found.append(
            f"{received.largest_file} holds {received.in_largest_file:,} of {received.reports:,} "
            f"reports, and the other {received.files - 1:,} files "
            f"{_mean_of_others(received.in_largest_file, received.reports, received.files):,.0f} "
            "on average: its sender speaks for many people, or sent many reports"
        )
    if _is_outsized(received.in_largest_envelope, received.reports, received.envelopes):
        found.append(
            f"one envelope holds {received.in_largest_envelope:,} of {received.reports:,} reports: "
            "its sender speaks for many people, or sent many reports"
        )
    return tuple(found)


def _is_outsized(largest: int, reports: int, senders: int) -> bool:
    others = _mean_of_others(largest, reports, senders)
    return (
        senders >= LEAST_SENDERS
        and largest >= LARGE_SHARE * reports
        and largest >= TIMES_THE_OTHERS * others
    )


def _mean_of_others(largest: int, reports: int, senders: int) -> float:
    return (reports - largest) / max(1, senders - 1)


class WriteReceipts(beam.PTransform):
    """Adds up `(path, FileTally)`s, for the launcher to read in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, tallies: beam.PCollection) -> Any:
        return (
            tallies
            | "Add" >> beam.CombineGlobally(_Add())
            # A checkpoint: a repeated attempt writes the same.
            | "Fix" >> beam.Reshuffle()
            | "Write" >> beam.Map(_write, self._folder)
        )


class _Add(beam.CombineFn):
    def create_accumulator(self) -> Receipts:
        return Receipts()

    def add_input(self, accumulator: Receipts, element: tuple[str, FileTally]) -> Receipts:
        path, tally = element
        return accumulator + Receipts.of(path, FileTally(*tally))

    def merge_accumulators(self, accumulators: Iterable[Receipts]) -> Receipts:
        return sum(accumulators, Receipts())

    def extract_output(self, accumulator: Receipts) -> Receipts:
        return accumulator


def _write(received: Receipts, folder: str) -> str:
    make_folder(folder)
    path = f"{folder}/{_FILE}"
    write_whole(path, [json.dumps(asdict(received)).encode()])
    return path


def read_receipts(folder: str) -> Receipts:
    """What `WriteReceipts` wrote there; nothing where the pipeline ended before."""
    path = f"{folder}/{_FILE}"
    if not FileSystems.exists(path):
        return Receipts()
    with FileSystems.open(path, _BINARY, "uncompressed") as file:
        return Receipts(**json.loads(file.read()))


# What is collected --------------------------------------------------------------------------------


PERSONS_UNKNOWN = (
    "each report was counted as a person: whoever lets devices send must see to it that nobody "
    "sends two"
)

_IDS = "ids"  # folder in staging


@dataclass(frozen=True, kw_only=True)
class CollectSettings(Settings[Q]):
    """What `collect` was told, and what others chose, which stands in `release.json`.

    Attributes:
        release: path of `release.json`.
        agreed: what it holds.
        randomizer: of the reports that are counted: that of the devices, or of a level.
        level_key: path of the key of that level; None for what everybody reads.
    """

    release: str
    agreed: ReleaseFile
    randomizer: LocalRandomizer
    level_key: str | None = None

    @property
    def leveled(self) -> bool:
        """Whether readers with keys read the same reports at larger epsilons."""
        return len(reader_levels(self.agreed.terms)) > 1

    @property
    def digested(self) -> bool:
        """Whether the same envelopes are known again: each is one person's, of no group."""
        alone = self.agreed.terms.max_reports == 1 and self.people.groups is None
        return alone and (self.leveled or not self.agreed.terms.identity.key)

    @property
    def charged_for(self) -> LocalRandomizer:
        """What a budget is charged for: of several levels the largest, whoever reads."""
        randomizer = self.agreed.terms.randomizer
        if not self.leveled:
            return randomizer
        return refinable(self.agreed.terms).at_level(reader_levels(self.agreed.terms)[0])

    @property
    def doing(self) -> str:
        return "reading and counting"

    @property
    def one_report_per(self) -> str:
        return f"envelope, {self.agreed.terms.identity.bounding}"

    @property
    def persons_unknown(self) -> str:
        return PERSONS_UNKNOWN

    @property
    def sampling(self) -> Sampling:
        return self.agreed.sampling


def check_collected(
    given: Arguments, agreed: ReleaseFile, question: Q, usage: Usage = USAGE
) -> CollectSettings[Q]:
    """The settings, with every rule checked that holds for all reports from elsewhere.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    if given["privacy"].get("allow_over_target") and "epsilon" not in given["privacy"]:
        raise SettingError("--allow-over-target needs --epsilon, the target that may be exceeded")
    if given["release"].get("frozen_values") and not agreed.terms.identity.key:
        raise SettingError(
            "--frozen-values is for a second publication of the same reports, but the devices of "
            "this release draw new noise each time (unlike with `randomize --memoize-key-file`)"
        )
    _check_named(given, agreed)
    envelopes = given["reports"]
    try:
        files = find_report_files(envelopes["reports"])
    except ValueError as error:
        raise SettingError(f"--reports {error}") from None
    level_key = absolute(envelopes.get("level_key"))
    kind = partial(
        CollectSettings,
        release=envelopes["release"],
        agreed=agreed,
        randomizer=_read_as(agreed, level_key),
        level_key=level_key,
    )
    told: CollectSettings[Q] = settings_from(given, usage, question, kind)
    settings = _with_what_was_agreed(told, agreed)
    checked(settings)
    source = replace(told.source, paths=envelopes["reports"], format="envelopes")
    settings = replace(
        settings,
        source=source,
        privacy=replace(
            settings.privacy,
            epsilon=told.privacy.epsilon,
            allow_over_target=told.privacy.allow_over_target,
        ),
        noise=replace(settings.noise, frozen_values=told.noise.frozen_values),
        shuffle=replace(told.shuffle, min_reports=settings.min_reports),
        files=tuple(files),
    )
    _check_whose(settings, agreed)
    return settings


def _read_as(agreed: ReleaseFile, level_key: str | None) -> LocalRandomizer:
    """The mechanism of the reports as they are read, with a key or without. Raises SettingError."""
    terms = agreed.terms
    if level_key is None:
        return terms.randomizer
    if len(reader_levels(terms)) < 2:
        raise SettingError(
            f"--level-key {level_key}: these reports have one level, which everybody reads"
        )
    try:
        level = read_level_key(level_key, terms, "--level-key").level
    except ValueError as error:
        raise SettingError(str(error)) from None
    return refinable(terms).at_level(level)


def _with_what_was_agreed(settings: CollectSettings[Q], agreed: ReleaseFile) -> CollectSettings[Q]:
    """The settings with what was decided where the values are."""
    terms = agreed.terms
    local = settings.charged_for.local_epsilon  # whatever it is, devices have spent it
    privacy = replace(
        settings.privacy,
        local_epsilon=local,
        max_local_epsilon=local,
        trust_shuffler=local > MOST_PROMISED,
        epsilon=None,
        allow_over_target=False,
    )
    noise = Noise(
        dataset=terms.identity.dataset,
        id=terms.identity.release_id,
        seed=0 if terms.simulated else None,
    )
    return replace(
        settings,
        people=replace(settings.people, one_row=True),  # whoever lets devices send sees to it
        mechanism=Mechanism(name=type(terms.randomizer).__name__),
        privacy=privacy,
        noise=noise,
    )


def _check_whose(settings: Settings[Any], agreed: ReleaseFile) -> None:
    """Refuse to charge a budget of people for rows of which nobody said whose they are."""
    terms = agreed.terms
    charged = not terms.simulated and ledger_url(settings) is not None
    if charged and settings.charge.privacy_unit == "user" and terms.identity.bounding == ROW:
        raise SettingError(
            "a budget of people cannot be charged for this release: the number of rows per person "
            "was not bounded where its reports were made (bounding: row), so that a person with "
            "ten rows sent ten reports and would be charged for one. `randomize --user-id` draws "
            "one row of each person, and --one-row-per-person declares that nobody has two; "
            "reports that are already out can be counted with --no-ledger"
        )


def _check_named(given: Arguments, agreed: ReleaseFile) -> None:
    """What a flag names must be what `release.json` names."""
    identity, release = agreed.terms.identity, given["release"]
    for flag, named, found in (
        ("--dataset", release.get("dataset"), identity.dataset),
        ("--release-id", release.get("id"), identity.release_id),
        ("--privacy-unit", release.get("privacy_unit", "user"), identity.privacy_unit),
    ):
        if named and named != found:
            raise SettingError(f"{flag} {named}: {given['reports']['release']} is of {found!r}")


def count(
    pipeline: beam.Pipeline, settings: Any, query: Query, staging: str | None = None
) -> Outputs:
    """Read reports, and the collector's half; beside it, what was received of each file.

    Args:
        pipeline: to build into.
        settings: the flags, checked, with what `release.json` says.
        query: what was asked.
        staging: folder that all workers can read and write, gone afterwards.
    """
    terms, groups = settings.agreed.terms, settings.people.groups
    scratch = None if staging is None else f"{staging}/{_IDS}"
    read = ReadReports(
        settings.source.paths, terms, groups=groups, scratch=scratch, keep_ids=settings.leveled,
        digest=settings.digested,
    )  # fmt: skip
    reports = pipeline | "Read" >> read
    if staging is not None:
        reports.received | "Write received" >> WriteReceipts(staging)
    least, sampling = settings.min_reports, settings.agreed.sampling
    taken = reports
    if settings.leveled:
        taken = reports | "At level" >> AtLevel(terms, settings.level_key)
    randomizer = settings.randomizer
    collector = CollectorSide(
        randomizer,
        query.estimator(randomizer, least, sampling=sampling),
        shuffle=replace(settings.shuffle, min_reports=least),
        groups=groups,
    )
    found: Releases = taken | "Collect" >> collector
    releases = without_groups(query.split(randomizer, found.releases))
    digest = reports.digest if settings.digested else None
    return Outputs(releases, found.withheld, (reports.bad_rows,), digest=digest)


class DeviceReports(Question[Any]):
    """What questions have in common whose reports were randomized elsewhere. Mixed in first.

    Attributes:
        staging: where workers leave what they leave, while the pipeline is built and run.
        received: of each file.
    """

    staging: str | None = None
    received: Receipts = Receipts()

    @property
    def memoized(self) -> bool:
        """Devices drew their reports before: another collection is of the same ones."""
        return True

    def identity(self, choice: Choice[Any]) -> ReleaseIdentity:
        """What `release.json` says."""
        found: ReleaseIdentity = self.settings.agreed.terms.identity
        return found

    def collect(
        self, choice: Choice[Any], flags: Sequence[str], staging: str, console: Console
    ) -> results.WorkerResults:
        """Run the pipeline; what was received of each file is kept for the warnings."""
        self.staging = staging
        found: results.WorkerResults = super().collect(choice, flags, staging, console)
        self.received = read_receipts(staging)
        return found

    def exactness(self, choice: Choice[Any]) -> str:
        """Shifts of levels are pseudo-random functions of keys."""
        return "computational" if self.settings.leveled else super().exactness(choice)

    def price_among(self, choice: Choice[Any], num_reports: int) -> Price | None:
        """That of the largest level, whoever reads."""
        if not self.settings.leveled or choice.price is None:
            return super().price_among(choice, num_reports)
        privacy = self.settings.privacy
        return expected_price(
            self.settings.charged_for, num_reports, privacy.delta, privacy.honest_fraction
        )

    def price(self, release: Release) -> Price:
        """That of the largest level, whoever reads: the same reports are read at all."""
        if self.settings.leveled and release.ran is not None:
            ran = shuffled_among(self.settings.charged_for, release.smallest_batch)
            release = replace(release, ran=ran)
        found: Price = super().price(release)
        return found

    @property
    def wanted(self) -> dict[str, str]:
        """None: whoever made the reports read the columns."""
        return {}

    def warnings(self, release: Release) -> tuple[str, ...]:
        """Who sent an outsized share, and what no honest reports say."""
        return (*outsized(self.received), *super().warnings(release))


# Means of numbers ---------------------------------------------------------------------------------


CollectMeanSettings = CollectSettings[MeanQuestion]


@dataclass(frozen=True)
class CollectMeanRecord(MeanRecord):
    """The record of numbers that came from elsewhere."""

    collected = True


class CollectMean(DeviceReports, Mean):
    """What is the mean, from reports that were randomized elsewhere?"""

    usage = USAGE
    settings: CollectMeanSettings

    def coordinates(self) -> tuple[Sequence[str], int]:
        """Those of `release.json`."""
        assert self.settings.agreed.coordinates is not None
        names = self.settings.agreed.coordinates.names
        return names, len(names)

    def public_ranges(self) -> CoordinateRanges | None:
        """Those of `release.json`."""
        assert self.settings.agreed.coordinates is not None
        return self.settings.agreed.coordinates.ranges

    @property
    def record_type(self) -> type[CollectMeanRecord]:
        return CollectMeanRecord

    @classmethod
    def check_agreed(cls, given: Arguments, agreed: ReleaseFile) -> CollectMeanSettings:
        """The settings, with every rule checked. Raises SettingError."""
        asked = given["question"]
        if "domain" in asked:
            raise SettingError("--domain is for lists of values; these reports are about numbers")
        if "postprocess" in asked:
            raise SettingError("--postprocess is for frequencies; these reports are about numbers")
        if "quantiles" in asked or "between" in asked:
            raise SettingError("--quantiles and --between: these reports are about means")
        randomizer = agreed.terms.randomizer
        assert isinstance(randomizer, MeanRandomizer) and agreed.coordinates is not None
        shape_of(asked.get("shape"))
        question = MeanQuestion(
            column=(given["reports"].get("question") or agreed.terms.identity.release_id,),
            dimension=randomizer.dimension,
            norm=randomizer.norm,
            radius=randomizer.radius,
            ranges=None if agreed.coordinates.ranges is None else given["reports"]["release"],
            one_row_each=agreed.sampling == "fixed",
            outside=randomizer.clipping,
            shape=asked.get("shape"),
        )
        return check_collected(given, agreed, question)

    def choose(self) -> MeanChoice:
        randomizer = self.settings.randomizer
        assert isinstance(randomizer, MeanRandomizer)
        return chosen(self.settings, randomizer, self.ranges, None)

    def inputs(self) -> Rows:
        return [("release", self.settings.agreed.terms.identity.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> Outputs:
        return count(pipeline, self.settings, self.query, self.staging)
