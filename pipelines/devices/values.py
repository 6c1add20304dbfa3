"""What `randomize` makes reports of: values of public lists, numbers in bins, or means."""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from typing import Any

from beam_ldp.pipelines.devices.release_file import (
    Coordinates,
    DeviceListsQuestion,
    DeviceNumberQuestion,
    DeviceQuestion,
    ReleaseFile,
)
from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.frequencies.choice import oracle_for
from beam_ldp.pipelines.frequencies.numbers import NumberTree
from beam_ldp.pipelines.frequencies.questions import FrequencySettings, SeveralLists
from beam_ldp.pipelines.frequency import Frequency
from beam_ldp.pipelines.mean import Mean
from beam_ldp.pipelines.means.settings import MeanSettings
from beam_ldp.pipelines.settings import Settings
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms import DeviceSide
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity
from beam_ldp.transforms.device.noise import NoiseSource

MANY = 1_000_000  # people that a choice is made for where nobody says how many will report


class DeviceValues(ABC):
    """What a device holds, and what it promised to send of it.

    Attributes:
        settings: the flags, checked.
        release: what devices and collector agree upon.
        program: that asks the same question where raw data are read.
    """

    settings: Settings[Any]
    release: ReleaseFile
    program: Frequency | Mean

    @property
    def identity(self) -> ReleaseIdentity:
        """Of the release; what its noise is drawn under, where that is memoized."""
        return self.release.terms.identity

    @property
    def noise(self) -> NoiseSource:
        """Where the noise of its reports comes from."""
        told = self.settings.noise
        return NoiseSource(self.identity, told.key_file, told.seed)

    @property
    def side(self) -> DeviceSide:
        """What runs on the device."""
        settings, terms = self.settings, self.release.terms
        return DeviceSide(
            self.program.query.encoder(terms.randomizer, settings.people),
            terms.randomizer,
            noise=self.noise,
            one_each=settings.people.id is not None,
        )


class ListValues(DeviceValues):
    """Values of a public list, or of several; a number in bins, or in a tree over them.

    Raises UsageError where no mechanism fits the flags.
    """

    def __init__(self, settings: FrequencySettings, reports_per_envelope: int = 1) -> None:
        self.settings: FrequencySettings = settings
        self.program: Frequency = Frequency(settings)
        self._survey = self.program.survey
        groups = self.program.groups
        self.release = ReleaseFile(
            terms_of(self.program, self._randomizer(), reports_per_envelope),
            "fixed" if settings.people.id is None else "iid",
            None,
            settings.people.group_by,
            None if groups is None else groups.digest,
            self._asked(),
        )

    def _randomizer(self) -> LocalRandomizer:
        settings = self.settings
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


def terms_of(
    program: Frequency | Mean, randomizer: LocalRandomizer, reports_per_envelope: int
) -> ReleaseTerms:
    """The terms of a release, whose identity is that of `frequency` or `mean` with the same flags.

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
        return ReleaseTerms(randomizer, identity, settings.noise.simulated)
    except ValueError as error:
        raise UsageError(str(error)) from None
