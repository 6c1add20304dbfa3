"""What a device was told to make of its values, and what it promised to send of them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beam_ldp.pipelines.commands import asked_on_devices, loaded
from beam_ldp.pipelines.devices.recovery import with_recover_key
from beam_ldp.pipelines.frequencies.choice import checked_frequency, oracle_for
from beam_ldp.pipelines.frequencies.numbers import NumberTree
from beam_ldp.pipelines.frequencies.questions import SeveralLists
from beam_ldp.pipelines.frequency import Frequency
from beam_ldp.pipelines.mean import Mean
from beam_ldp.pipelines.means.choice import check_mean
from beam_ldp.pipelines.usage.mean import MeanQuestion
from beam_ldp.pipelines.usage.randomize import USAGE
from beam_ldp.questions.on_devices import (
    DeviceListsQuestion,
    DeviceNumberQuestion,
    DeviceQuestion,
    DeviceSharesQuestion,
)
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse
from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse, checked_levels
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.release.devices.release_file import Coordinates, ReleaseFile, load_release
from beam_ldp.release.job import absolute, need, with_files
from beam_ldp.release.question import Question
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms import DeviceSide
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity
from beam_ldp.transforms.device.keyed import NoiseSource, read_key
from beam_ldp.transforms.files import paths_matching
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
        recoverable = "recover_key_file" in given["release"]
        if recoverable and readers is not None:
            raise SettingError("--recover-key-file and --levels exclude each other")
        return ListValues(_check_list(given), reports, readers, recoverable)
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
    return NumberValues(check_mean(given, USAGE), reports)


def _as_published(given: Arguments) -> DeviceValues:
    """What answers a question that was published."""
    path = given["release"]["release"]
    release = load_release(path)
    made: DeviceValues = loaded((release.asked or DeviceQuestion).answered_by)(given, release)
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


def _check_list(given: Arguments) -> Job:
    if given["question"].get("bad_rows") == "zero":
        raise SettingError("--bad-rows of a list must be dead-letter or other")
    if not {"domain", *_OF_LISTS} & set(given["question"]):
        raise SettingError(
            "give --domain or --bins for values of a list, or --radius, --range, --ranges or "
            "--norm for numbers"
        )
    return with_files(checked_frequency(given, USAGE))


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

    settings: Job
    release: ReleaseFile
    program: Question
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
            self.program.query.encode(terms.randomizer, settings.people),
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

    def check_alone(self, settings: Job, several: bool, reports_per_envelope: int) -> None:
        """A SettingError for what does not go with levels."""
        with_it = {
            "several questions or a tree of bins": several,
            "--group-by": settings.people.group_by is not None,
            "--reports-per-envelope": reports_per_envelope != 1,
            "--mechanism, for it has its own": settings.mechanism.name != "auto",
        }
        for what, given in with_it.items():
            if given:
                raise SettingError(f"--levels does not go with {what}")
        if settings.noise.key_file not in (None, self.secret):
            raise SettingError(
                "--memoize-key-file must be the file of --level-secret: one secret decides what "
                "a person's report and its envelope are"
            )


class ListValues(DeviceValues):
    """Values of a public list, or of several; a number in bins, or in a tree over them.

    Raises SettingError where no mechanism fits the flags.
    """

    def __init__(
        self,
        settings: Job,
        reports_per_envelope: int = 1,
        readers: Readers | None = None,
        recoverable: bool = False,
    ) -> None:
        self.settings: Job = settings
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
    """A number or a vector of them. Raises SettingError where no mechanism fits the flags."""

    def __init__(self, settings: Job, reports_per_envelope: int = 1) -> None:
        self.settings: Job = settings
        self.program: Mean = Mean(settings)
        randomizer = self.program.choose().mechanism
        assert isinstance(randomizer, MeanRandomizer)
        self.release = release_of_mean(self.program, randomizer, reports_per_envelope)


def release_of_mean(
    program: Mean, randomizer: MeanRandomizer, reports_per_envelope: int = 1
) -> ReleaseFile:
    """A mean as devices and collector agree upon it. Raises SettingError."""
    coordinates, asked = Coordinates(program.labels, program.ranges), None
    if not randomizer.protects_alone:
        asked = _promised(program, reports_per_envelope)
    terms = terms_of(program, randomizer, reports_per_envelope, asked=asked)
    return ReleaseFile(terms, program.settings.sampling, coordinates, asked=asked)


def _promised(program: Mean, reports_per_envelope: int) -> DeviceSharesQuestion:
    """What people are told who send shares. Raises SettingError."""
    settings, privacy = program.settings, program.settings.privacy
    assert privacy.epsilon is not None  # else no mechanism of shares is offered
    if reports_per_envelope != 1:
        raise SettingError(
            "--reports-per-envelope must be 1 for shares: an envelope is all that one person "
            "sends, and counts whole or not"
        )
    return DeviceSharesQuestion(
        program.query.columns,
        privacy.epsilon,
        privacy.delta,
        settings.min_reports,
        privacy.honest_fraction,
    )


def terms_of(
    program: Question,
    randomizer: LocalRandomizer,
    reports_per_envelope: int,
    readers: Readers | None = None,
    asked: DeviceQuestion | None = None,
) -> ReleaseTerms:
    """The terms of a release, whose identity is that of `frequency` or `mean` with the same flags;
    with readers of several levels it is committed to their secret, and where more is `asked` than
    those know, to that.

    Raises:
        SettingError: for names that are none.
    """
    settings = program.settings
    if reports_per_envelope != 1 and settings.noise.key_file is not None:
        raise SettingError(
            "--reports-per-envelope must be 1 with --memoize-key-file: every person has an "
            "envelope of their own, by which copies are recognized"
        )
    try:
        identity = release_identity(
            randomizer.config_digest(),
            columns=program.query.columns,
            values_digest=lambda: asked.values if asked else program.query.digest(randomizer),
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
        raise SettingError(str(error)) from None
