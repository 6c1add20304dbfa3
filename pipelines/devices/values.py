"""What a device was told to make of its values, and what it promised to send of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beam_ldp.pipelines.devices.recovery import with_recover_key
from beam_ldp.pipelines.usage.randomize import USAGE
from beam_ldp.questions.base import Choice, Question
from beam_ldp.questions.frequency import FrequencyQuestion
from beam_ldp.questions.means import MeanQuestion, PublishedShares
from beam_ldp.questions.published import Published
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse
from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse, checked_levels
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.release.binding import run_of
from beam_ldp.release.commands import asked_on_devices, loaded
from beam_ldp.release.devices.release_file import Coordinates, ReleaseFile, load_release
from beam_ldp.release.job import absolute, declared, need
from beam_ldp.release.run import Run
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms import DeviceSide
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity
from beam_ldp.transforms.device.keyed import NoiseSource, read_key
from beam_ldp.transforms.files import paths_matching
from beam_ldp.transforms.queries import encode
from beam_ldp.transforms.word_levels import WordsOfLevel

_OF_NUMBERS = [
    field.name for field in fields(MeanQuestion) if field.name not in ("column", "bad_rows")
]
_OF_LISTS = ("domain", "bins", "quantiles", "between")


def check(given: Arguments) -> DeviceValues:
    """What to make reports of, with every rule checked. Raises SettingError."""
    if given["release"].get("release"):
        return _as_published(given)
    if (usage := asked_on_devices(USAGE, given["question"])) is not None:
        made: DeviceValues = loaded(usage.answered_by)(given)
        return made
    if "look" in given["question"]:
        raise SettingError("--look needs --experiment, whose looks they are")
    need(USAGE, given, "source.paths", "release.dataset", "release.id", "output.folder")
    readers = Readers.of(given)
    given = _with_target(with_recover_key(given), readers)
    check_new(given["output"]["folder"])
    reports = given["output"].get("reports_per_envelope", 1)
    numbers = [name for name in _OF_NUMBERS if name in given["question"]]
    if not numbers:
        _check_list(given)
        recoverable = "recover_key_file" in given["release"]
        if recoverable and readers is not None:
            raise SettingError("--recover-key-file and --levels exclude each other")
        return AskedValues(_run(given, FrequencyQuestion), reports, readers, recoverable)
    if readers is not None:
        raise SettingError("--levels is for values of a list, and for a number in bins")
    flag = USAGE.flag_of(f"question.{numbers[0]}")
    for home, names in (("question", _OF_LISTS), ("people", ("group_by", "groups"))):
        for name in names:
            if name in given[home]:
                raise SettingError(
                    f"{flag} is for numbers, {USAGE.flag_of(f'{home}.{name}')} for values of a list"
                )
    if "random_bits" in given["mechanism"]:
        raise SettingError("--random-bits is for values of a list")
    if given["question"].get("bad_rows") == "other":
        raise SettingError("--bad-rows of numbers must be dead-letter or zero")
    return AskedValues(_run(given, MeanQuestion), reports)


def _run(given: Arguments, kind: type[Question]) -> Run:
    """The release that `frequency` or `mean` would make of these flags. Raises SettingError."""
    need(USAGE, given, "source.paths", "output.folder", *kind.needed(given))
    return run_of(USAGE, given, declared(USAGE, given, kind))


def _as_published(given: Arguments) -> DeviceValues:
    """What answers a question that was published."""
    path = given["release"]["release"]
    release = load_release(path)
    made: DeviceValues = loaded((release.asked or Published).answered_by)(given, release)
    return made


def refuse_decided(given: Arguments, taken: Mapping[str, set[str]], published: str) -> None:
    """A SettingError for what a published question has decided, or its answers know nothing of."""
    for home, section in given.settings.items():
        for name in sorted(set(section) - taken.get(home, set())):
            raise SettingError(
                f"{USAGE.flag_of(f'{home}.{name}')}: --release says it, or it does not go with "
                f"{published}"
            )


def check_new(folder: str) -> None:
    """A SettingError where something is: people whose values are randomized twice pay twice."""
    if is_there(folder):
        raise SettingError(
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
        raise SettingError("give one of --epsilon (central target) and --local-epsilon")
    if "epsilon" in privacy:
        return given
    alone_too = (
        "local_epsilon", "max_local_epsilon", "trust_shuffler", "levels", "level_secret",
    )  # fmt: skip
    central = [f"privacy.{name}" for name in privacy if name not in alone_too]
    central += [f"shuffle.{name}" for name in given["shuffle"]]
    if central:
        raise SettingError(
            f"{USAGE.flag_of(central[0])} needs --epsilon: what a report promises by itself "
            "does not depend on it"
        )
    alone: dict[str, dict[str, Any]] = {
        "privacy": {"model": "local"},
        "shuffle": {"min_reports": 1},
    }
    return Arguments(alone, []).over(given)


def _check_list(given: Arguments) -> None:
    if given["question"].get("bad_rows") == "zero":
        raise SettingError("--bad-rows of a list must be dead-letter or other")
    if not {"domain", *_OF_LISTS} & set(given["question"]):
        raise SettingError(
            "give --domain or --bins for values of a list, or --radius, --range, --ranges or "
            "--norm for numbers"
        )


# What reports are made of: values of public lists, numbers in bins, or means ----------------------


MANY = 1_000_000  # people that a choice is made for where nobody says how many will report


class DeviceValues:
    """What a device holds, and what it promised to send of it.

    Attributes:
        run: the release that rows like these would make where they are read.
        release: what devices and collector agree upon.
        readers: of several levels; None for one that everybody reads at.
        unwritten: why there may be no report.
    """

    run: Run
    release: ReleaseFile
    readers: Readers | None = None
    unwritten: str = "no row could be used"

    @property
    def job(self) -> Job:
        """What was asked for, checked."""
        return self.run.job

    def begin(self) -> None:
        """Keep what must be known before anything is drawn."""

    @property
    def identity(self) -> ReleaseIdentity:
        """Of the release; what its noise is drawn under, where that is memoized."""
        return self.release.terms.identity

    @property
    def noise(self) -> NoiseSource:
        """Where the noise of its reports comes from."""
        return NoiseSource.told(self.job.noise, self.identity)

    @property
    def side(self) -> DeviceSide | WordsOfLevel:
        """What runs on the device."""
        people, mechanism = self.job.people, self.release.terms.randomizer
        return DeviceSide(
            encode(self.run.asked, mechanism, people),
            mechanism,
            noise=self.noise,
            one_each=people.id is not None,
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
        """As the flags tell; None without. Raises SettingError."""
        told = given["privacy"]
        text, secret = told.get("levels"), told.get("level_secret")
        if (text is None) != (secret is None):
            raise SettingError("--levels and --level-secret belong together")
        if text is None or secret is None:
            return None
        for name in ("epsilon", "local_epsilon"):
            if name in told:
                raise SettingError(
                    f"--levels stands in place of {USAGE.flag_of(f'privacy.{name}')}"
                )
        try:
            levels = checked_levels([float(level) for level in text.split(",")])
        except ValueError:
            levels = ()
        if len(levels) < 2:
            raise SettingError(
                "--levels must be two or more numbers > 0 that decrease, separated by commas, got "
                f"{text}"
            )
        return cls(levels, absolute(secret))

    def check_alone(self, job: Job, several: bool, reports_per_envelope: int) -> None:
        """A SettingError for what does not go with levels."""
        with_it = {
            "several questions or a tree of bins": several,
            "--group-by": job.people.group_by is not None,
            "--reports-per-envelope": reports_per_envelope != 1,
            "--mechanism, for it has its own": job.mechanism.name != "auto",
        }
        for what, given in with_it.items():
            if given:
                raise SettingError(f"--levels does not go with {what}")
        if job.noise.key_file not in (None, self.secret):
            raise SettingError(
                "--memoize-key-file must be the file of --level-secret: one secret decides what "
                "a person's report and its envelope are"
            )


class AskedValues(DeviceValues):
    """Values of a question that was asked by flags. Raises SettingError where no mechanism fits.

    Args:
        run: the release of such rows.
        reports_per_envelope: most reports of an envelope.
        readers: of several levels.
        recoverable: whether the holder of a key can read single values later.
    """

    def __init__(
        self,
        run: Run,
        reports_per_envelope: int = 1,
        readers: Readers | None = None,
        recoverable: bool = False,
    ) -> None:
        self.run, self.readers = run, readers
        if readers is not None:
            several = len(run.declared.names) > 1 or run.declared.split is not None
            readers.check_alone(run.job, several, reports_per_envelope)
        if readers is not None or recoverable:
            run.choice = Choice(self._read_later(recoverable), MANY, None, math.nan)
        else:
            plan = run.declared.best(_many(run.job) if run.declared.split else run.job)
            run.choice = Choice(plan.randomizer, MANY, None, math.nan, plan)
        self.release = release_of(run, reports_per_envelope, readers)

    def _read_later(self, recoverable: bool) -> LocalRandomizer:
        """A mechanism whose reports some read later, or better."""
        size = self.run.declared.domain.size  # type: ignore[attr-defined]
        if recoverable:
            assert self.job.privacy.local_epsilon is not None  # --epsilon was refused
            return RecoverableResponse(size, self.job.privacy.local_epsilon)
        assert self.readers is not None
        return RefinableResponse.of_levels(size, self.readers.levels)


def _many(job: Job) -> Job:
    """Of many people and very many the same design is best, where only devices promise."""
    if job.privacy.epsilon is not None:
        return job
    privacy = replace(job.privacy, expected_users=MANY)
    return replace(job, privacy=privacy, shuffle=replace(job.shuffle, min_reports=MANY))


def release_of(
    run: Run, reports_per_envelope: int = 1, readers: Readers | None = None
) -> ReleaseFile:
    """A release as devices and collector agree upon it. Raises SettingError."""
    job, mechanism = run.job, run.choice.mechanism
    wire = run.asked.on_devices(job, mechanism)
    if isinstance(wire, PublishedShares) and reports_per_envelope != 1:
        raise SettingError(
            "--reports-per-envelope must be 1 for shares: an envelope is all that one person "
            "sends, and counts whole or not"
        )
    terms = terms_of(run, mechanism, reports_per_envelope, readers, wire)
    labels = run.asked.labels if isinstance(mechanism, MeanRandomizer) else None
    groups = job.people.groups if isinstance(job.people.groups, Domain) else run.groups
    return ReleaseFile(
        terms,
        job.sampling,
        None if labels is None else Coordinates(labels, run.asked.ranges),
        job.people.group_by,
        groups.digest if isinstance(groups, Domain) else None,
        wire,
    )


def terms_of(
    run: Run,
    randomizer: LocalRandomizer,
    reports_per_envelope: int,
    readers: Readers | None = None,
    asked: Published | None = None,
) -> ReleaseTerms:
    """The terms of a release, whose identity is that of `frequency` or `mean` with the same flags;
    with readers of several levels it is committed to their secret, and where more is `asked` than
    those know, to that.

    Raises:
        SettingError: for names that are none.
    """
    job = run.job
    if reports_per_envelope != 1 and job.noise.key_file is not None:
        raise SettingError(
            "--reports-per-envelope must be 1 with --memoize-key-file: every person has an "
            "envelope of their own, by which copies are recognized"
        )
    try:
        identity = release_identity(
            randomizer.config_digest(),
            columns=run.asked.columns,
            values_digest=lambda: asked.values if asked else run.asked.digest(randomizer),
            people=job.people,
            noise=replace(job.noise, dataset=job.dataset),
            bounding=bounding_of(job.people),
        )
        assert identity is not None  # it has its names
        randomizer, identity = of_release(
            randomizer, replace(identity, reports_per_envelope=reports_per_envelope)
        )
        assert identity is not None
        if readers is not None:
            identity = identity.committed(read_key(readers.secret, "--level-secret"))
        return ReleaseTerms(randomizer, identity, job.noise.simulated)
    except ValueError as error:
        raise SettingError(str(error)) from None
