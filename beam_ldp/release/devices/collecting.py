"""A release of reports that were randomized elsewhere: what devices sent, counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from rich.console import Console

from beam_ldp.accounting.prices import Price, expected_price, price_as_json, price_of
from beam_ldp.questions.base import Choice, Question, Rows
from beam_ldp.questions.bins import NumberQuestion, PublishedNumber, check_number_question
from beam_ldp.questions.frequency import FrequencyQuestion, domains_of, levels_of, ranges_of
from beam_ldp.questions.means import MeanQuestion, Means, PublishedShares, shape_of
from beam_ldp.questions.published import Published, place
from beam_ldp.questions.surveys import PublishedLists, Survey
from beam_ldp.randomizers.base import LocalRandomizer, Sampling
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import ROW, ReleaseIdentity
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.release import worker_results as results
from beam_ldp.release.beam_job import Outputs
from beam_ldp.release.binding import FilesLook
from beam_ldp.release.devices.release_file import ReleaseFile, load_release
from beam_ldp.release.job import absolute, need, section_from, settings_from
from beam_ldp.release.parts import Parts
from beam_ldp.release.reserving import ledger_url
from beam_ldp.release.run import Run, without_groups
from beam_ldp.settings import Mechanism, Noise, SettingError
from beam_ldp.settings.job import Job, checked
from beam_ldp.settings.sections import MOST_PROMISED
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms import CollectorSide, ReadReports, Releases
from beam_ldp.transforms.elements.blocks import Release, shuffled_among
from beam_ldp.transforms.files import write_whole
from beam_ldp.transforms.levels import AtLevel, read_level_key, reader_levels, refinable
from beam_ldp.transforms.queries import estimator, split
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


# What was agreed upon -----------------------------------------------------------------------------

_IDS = "ids"  # folder in staging


@dataclass(frozen=True)
class Collected:
    """Reports from elsewhere, and what others chose, which stands in `release.json`.

    Attributes:
        agreed: what `release.json` holds.
        grouped: whether every report is of a public group.
        level_key: path of the key of a level; None for what everybody reads.
    """

    agreed: ReleaseFile
    grouped: bool = False
    level_key: str | None = None

    @property
    def identity(self) -> ReleaseIdentity:
        """Of the release."""
        return self.agreed.terms.identity

    @property
    def sampling(self) -> Sampling:
        """Whether a person's report is about one row that was drawn."""
        return self.agreed.sampling

    @property
    def leveled(self) -> bool:
        """Whether readers with keys read the same reports at larger epsilons."""
        return len(reader_levels(self.agreed.terms)) > 1

    @property
    def digested(self) -> bool:
        """Whether the same envelopes are known again: each is one person's, of no group."""
        alone = self.agreed.terms.max_reports == 1 and not self.grouped
        return alone and (self.leveled or not self.identity.key)

    @property
    def charged_for(self) -> LocalRandomizer:
        """What a budget is charged for: of several levels the largest, whoever reads."""
        if not self.leveled:
            return self.agreed.terms.randomizer
        return refinable(self.agreed.terms).at_level(reader_levels(self.agreed.terms)[0])

    @property
    def mechanism(self) -> LocalRandomizer:
        """Of the reports as they are read, with a key or without. Raises SettingError."""
        terms = self.agreed.terms
        if self.level_key is None:
            return terms.randomizer
        if not self.leveled:
            raise SettingError(
                f"--level-key {self.level_key}: these reports have one level, which everybody reads"
            )
        try:
            level = read_level_key(self.level_key, terms, "--level-key").level
        except ValueError as error:
            raise SettingError(str(error)) from None
        return refinable(terms).at_level(level)


def collected_job(usage: Usage, given: Arguments, agreed: ReleaseFile, question: Question) -> Job:
    """The job, with every rule checked that holds for all reports from elsewhere.

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
    collected = Collected(agreed, agreed.group_by is not None, absolute(envelopes.get("level_key")))
    _ = collected.mechanism
    told = replace(settings_from(given, usage, question, Job), collected=collected)
    job = _with_what_was_agreed(told, agreed)
    checked(job)
    job = replace(
        job,
        source=replace(told.source, paths=envelopes["reports"], format="envelopes"),
        privacy=replace(
            job.privacy,
            epsilon=told.privacy.epsilon,
            allow_over_target=told.privacy.allow_over_target,
        ),
        noise=replace(job.noise, frozen_values=told.noise.frozen_values),
        shuffle=replace(told.shuffle, min_reports=job.min_reports),
        files=tuple(files),
    )
    _check_whose(job, agreed)
    return job


def _with_what_was_agreed(job: Job, agreed: ReleaseFile) -> Job:
    """The job with what was decided where the values are."""
    terms = agreed.terms
    local = job.collected.charged_for.local_epsilon  # whatever it is, devices have spent it
    privacy = replace(
        job.privacy,
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
        job,
        people=replace(job.people, one_row=True),  # whoever lets devices send sees to it
        mechanism=Mechanism(name=type(terms.randomizer).__name__),
        privacy=privacy,
        noise=noise,
    )


def _check_whose(job: Job, agreed: ReleaseFile) -> None:
    """Refuse to charge a budget of people for rows of which nobody said whose they are."""
    terms = agreed.terms
    charged = not terms.simulated and ledger_url(job) is not None
    if charged and job.charge.privacy_unit == "user" and terms.identity.bounding == ROW:
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


# The release --------------------------------------------------------------------------------------


class CollectedRun(Run):
    """A release of reports that were randomized elsewhere; no raw value is ever seen.

    Attributes:
        received: of each file.
    """

    received: Receipts = Receipts()
    _staging: str | None = None

    @property
    def collected(self) -> Collected:
        """What was agreed upon."""
        found: Collected = self.job.collected
        return found

    @property
    def choice(self) -> Choice:
        """What devices ran."""
        return self.declared.chosen(self.job, self.collected.mechanism)

    @property
    def memoized(self) -> bool:
        """Devices drew their reports before: another collection is of the same ones."""
        return True

    @property
    def identity(self) -> ReleaseIdentity:
        """What `release.json` says."""
        return self.collected.identity

    @property
    def wanted(self) -> dict[str, str]:
        """None: whoever made the reports read the columns."""
        return {}

    def inputs(self) -> Rows:
        return [("release", self.identity.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline) -> Outputs:
        """Read reports, and the collector's half; beside it, what was received of each file."""
        job, terms, groups = self.job, self.collected.agreed.terms, self.job.people.groups
        scratch = None if self._staging is None else f"{self._staging}/{_IDS}"
        leveled, digested = self.collected.leveled, self.collected.digested
        read = ReadReports(
            job.source.paths, terms, groups=groups, scratch=scratch, keep_ids=leveled,
            digest=digested,
        )  # fmt: skip
        reports = pipeline | "Read" >> read
        if self._staging is not None:
            reports.received | "Write received" >> WriteReceipts(self._staging)
        taken = reports
        if leveled:
            taken = reports | "At level" >> AtLevel(terms, self.collected.level_key)
        mechanism, least = self.collected.mechanism, job.min_reports
        collector = CollectorSide(
            mechanism,
            estimator(self.asked, mechanism, least, sampling=job.sampling),
            shuffle=replace(job.shuffle, min_reports=least),
            groups=groups,
        )
        found: Releases = taken | "Collect" >> collector
        releases = without_groups(split(self.asked, mechanism, found.releases))
        digest = reports.digest if digested else None
        return Outputs(releases, found.withheld, (reports.bad_rows,), digest=digest)

    def collect(
        self, flags: Sequence[str], staging: str, console: Console
    ) -> results.WorkerResults:
        """Run the pipeline; what was received of each file is kept for the warnings."""
        self._staging = staging
        found = super().collect(flags, staging, console)
        self.received = read_receipts(staging)
        return found

    @property
    def exactness(self) -> str:
        """Shifts of levels are pseudo-random functions of keys."""
        return "computational" if self.collected.leveled else super().exactness

    def price_among(self, num_reports: int) -> Price | None:
        """That of the largest level, whoever reads."""
        if not self.collected.leveled or self.choice.price is None:
            return super().price_among(num_reports)
        privacy, charged = self.job.privacy, self.collected.charged_for
        return expected_price(charged, num_reports, privacy.delta, privacy.honest_fraction)

    def price(self, release: Release) -> Price:
        """That of the largest level, whoever reads: the same reports are read at all."""
        if self.collected.leveled and release.ran is not None:
            ran = shuffled_among(self.collected.charged_for, release.smallest_batch)
            release = replace(release, ran=ran)
        return super().price(release)

    def warnings(self, release: Release) -> tuple[str, ...]:
        """Who sent an outsized share, and what no honest reports say."""
        return (*outsized(self.received), *super().warnings(release))

    def facts(self, release: Release) -> dict[str, Any]:
        """With `sampling`: "iid" where errors allow for the draw of one row of each person; of
        reports of several levels `readers`, from the largest to everybody, their local epsilon and
        what the reports cost against them (`epsilon` and `event` are those of the largest,
        `local_epsilon` is that of who reads here), and `charged_local_epsilon`, which people are
        charged whoever reads."""
        told = super().facts(release)
        if self.asked.estimates == "level":
            return told
        told["sampling"] = self.collected.sampling
        if self.asked.estimates != "frequencies" or isinstance(release, Parts):
            return told
        leveled = self.collected.leveled
        readers = self._readers(release) if leveled else ()
        charged = self.collected.charged_for.local_epsilon if leveled else None
        charged = None if release.simulated else charged
        return {**told, "readers": readers, "charged_local_epsilon": charged}

    def _readers(self, release: Release) -> tuple[dict[str, Any], ...]:
        """What the reports that were received cost against the reader of each level."""
        terms, privacy = self.collected.agreed.terms, self.job.privacy
        found = []
        for level in reader_levels(terms):
            about: dict[str, Any] = {"local_epsilon": level, "epsilon": None}
            if not terms.simulated:
                ran = shuffled_among(refinable(terms).at_level(level), release.smallest_batch)
                price = price_of(replace(release, ran=ran), privacy.delta, privacy.honest_fraction)
                about = {"local_epsilon": level, **price_as_json(price)}
            found.append(about)
        return tuple(found)


def bound_reports(usage: Usage, given: Arguments) -> CollectedRun:
    """The release of reports that somebody asked for: `release.json` says what was asked.

    Raises:
        SettingError: if the flags do not fit that.
    """
    need(usage, given, "reports.reports", "reports.release", "output.folder")
    path, named = given["reports"]["release"], given["mechanism"].get("name")
    kind = None if named is None else _loaded(named)
    agreed = load_release(path)
    if kind not in (None, type(agreed.terms.randomizer)):
        raise SettingError(f"--mechanism {named} is not that of {path}")
    if agreed.asked is not None:
        made = place(agreed.asked.collected_by)
    else:
        made = collected_lists if agreed.coordinates is None else collected_mean
    found: CollectedRun = made(usage, given, agreed)
    return found


def _loaded(named: str) -> type[LocalRandomizer]:
    from beam_ldp.planning.mechanisms import mechanism_of

    try:
        return mechanism_of(named)
    except ValueError as error:
        raise SettingError(str(error)) from None


# Lists, and numbers in bins -----------------------------------------------------------------------


def collected_lists(usage: Usage, given: Arguments, agreed: ReleaseFile) -> CollectedRun:
    """How often does each value occur? Raises SettingError."""
    need(usage, given, "privacy.delta")
    if "shape" in given["question"]:
        raise SettingError("--shape is for means; these reports are about frequencies")
    asked = agreed.asked
    numbers = _number_question(given["question"], asked)
    if numbers is None:
        need(usage, given, "question.domain")
    columns = asked.columns if isinstance(asked, PublishedLists) else ()
    if ("groups" in given["people"]) != (agreed.group_by is not None):
        raise SettingError(
            "--groups is missing: the public list of groups that the devices used"
            if agreed.group_by is not None
            else "--groups cannot be used: these reports have no groups"
        )
    if agreed.group_by is not None:
        given = Arguments({"people": {"group_by": agreed.group_by}}, []).over(given)
    question = section_from(given, usage, "question", FrequencyQuestion)
    named = asked.column if isinstance(asked, PublishedNumber) else ", ".join(columns)
    question = replace(
        question,
        columns=columns,
        domains=() if numbers is not None else domains_of(question, columns),
        name=given["reports"].get("question") or named or agreed.terms.identity.release_id,
        numbers=numbers,
    )
    question.check_postprocess()
    job = collected_job(usage, given, agreed, question)
    if agreed.group_by is not None and "min_reports" not in given["shuffle"]:
        raise SettingError(
            "--min-reports is missing: the smallest number of reports in a group, which "
            "decides how much noise the smallest group needs"
        )
    run = CollectedRun(usage, job, question.bind(job, FilesLook(job)))
    _check_lists(run, question)
    return run


def _check_lists(run: CollectedRun, question: FrequencyQuestion) -> None:
    """A SettingError where a list is not the one that devices used."""
    agreed, bound = run.collected.agreed, run.declared
    expected = [agreed.terms.identity.values]
    if isinstance(agreed.asked, PublishedLists):
        expected = list(agreed.asked.lists)
    elif agreed.asked is not None:  # bins, which release.json holds
        expected = []
    listed = bound.at_hand if isinstance(bound, Survey) else (bound.at_hand,)  # type: ignore
    for path, found, digest in zip(question.domains, listed, expected):
        if found.digest.hex() != digest:
            raise SettingError(
                f"--domain {path}: this is not the list that the devices used (a value, the "
                "order or the --other-label differs)"
            )
    if isinstance(run.groups, Domain) and agreed.groups_digest != run.groups.digest:
        raise SettingError(
            f"--groups {run.job.groups}: this is not the list of groups that the devices used"
        )


def _number_question(told: Mapping[str, Any], asked: Published | None) -> NumberQuestion | None:
    """What is read off reports about a number; None for those about lists. Raises SettingError."""
    given = [name for name in ("quantiles", "between") if name in told]
    wanted = asked.wanted if isinstance(asked, PublishedNumber) else None
    if given and (wanted is None or not wanted.needs_tree):
        raise SettingError(
            f"--{given[0]}: these reports have no tree of bins; devices send one with `randomize "
            "--quantiles`"
        )
    if wanted is None:
        return None
    if "domain" in told:
        raise SettingError("--domain is for lists of values; these reports are about a number")
    if "quantiles" in given:
        wanted = replace(wanted, quantiles=levels_of(told["quantiles"]))
    if "between" in given:
        wanted = replace(wanted, ranges=ranges_of(told["between"]))
    check_number_question(wanted)
    return wanted


# Means --------------------------------------------------------------------------------------------


def collected_mean(usage: Usage, given: Arguments, agreed: ReleaseFile) -> CollectedRun:
    """What is the mean? Raises SettingError."""
    need(usage, given, "privacy.delta")
    asked = given["question"]
    if "domain" in asked:
        raise SettingError("--domain is for lists of values; these reports are about numbers")
    if "postprocess" in asked:
        raise SettingError("--postprocess is for frequencies; these reports are about numbers")
    if "quantiles" in asked or "between" in asked:
        raise SettingError("--quantiles and --between: these reports are about means")
    mechanism, coordinates = agreed.terms.randomizer, agreed.coordinates
    assert isinstance(mechanism, MeanRandomizer) and coordinates is not None
    shape_of(asked.get("shape"))
    name = given["reports"].get("question") or agreed.terms.identity.release_id
    question = MeanQuestion(
        column=(name,),
        dimension=mechanism.dimension,
        norm=mechanism.norm,
        radius=mechanism.radius,
        ranges=None if coordinates.ranges is None else given["reports"]["release"],
        one_row_each=agreed.sampling == "fixed",
        outside=mechanism.clipping,
        shape=asked.get("shape"),
    )
    job = collected_job(usage, given, agreed, question)
    names = coordinates.names
    means = Means(names, coordinates.ranges, name, declared=question, dimension=len(names))
    return CollectedRun(usage, job, means)


def collected_shares(usage: Usage, given: Arguments, agreed: ReleaseFile) -> CollectedRun:
    """The same of shares: the collector is the shuffler that their senders trust, and keeps what
    people were promised, or more. Raises SettingError."""
    asked = agreed.asked
    assert isinstance(asked, PublishedShares)
    privacy, path = given["privacy"], given["reports"]["release"]
    for name, value, promised, kept in (
        ("epsilon", privacy.get("epsilon"), asked.epsilon, "at most"),
        ("delta", privacy.get("delta"), asked.delta, "at most"),
        ("honest-fraction", privacy.get("honest_fraction"), asked.honest_fraction, "at most"),
        ("min-reports", given["shuffle"].get("min_reports"), asked.min_reports, "at least"),
    ):
        if value is None:
            continue
        if value < promised if kept == "at least" else value > promised:
            raise SettingError(f"--{name} must be {kept} {promised:,}, as {path} promises people")
    if privacy.get("allow_over_target"):
        raise SettingError(f"--allow-over-target: {path} promises people a privacy cost")
    if given["shuffle"].get("output", "statistic") != "statistic":
        raise SettingError(
            "--shuffle-output must be statistic: shares are added up, and none of them leaves"
        )
    told: dict[str, dict[str, Any]] = {
        "privacy": {
            "epsilon": asked.epsilon,
            "delta": asked.delta,
            "honest_fraction": asked.honest_fraction,
        },
        "shuffle": {"min_reports": asked.min_reports},
    }
    return collected_mean(usage, given.over(Arguments(told, [])), agreed)
