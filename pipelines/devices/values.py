"""What `randomize` makes reports of: values of public lists, numbers in bins, or means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import apache_beam as beam

from beam_ldp.pipelines.devices.questions import (
    DeviceListsQuestion,
    DeviceNumberQuestion,
    DeviceQuestion,
)
from beam_ldp.pipelines.devices.release_file import Coordinates, ReleaseFile
from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.frequencies.choice import oracle_for
from beam_ldp.pipelines.frequencies.groups import load_groups
from beam_ldp.pipelines.frequencies.numeric import NumberTree
from beam_ldp.pipelines.frequencies.questions import SeveralLists
from beam_ldp.pipelines.frequency import FrequencySettings, load_domain, survey_of
from beam_ldp.pipelines.inputs.sources import BAD_ROWS, ROWS, ReadTable
from beam_ldp.pipelines.mean import Mean
from beam_ldp.pipelines.means.settings import MeanSettings
from beam_ldp.pipelines.settings import Settings
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.bins import Bins
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import ReleaseIdentity, digest_of
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.questions import Questions
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms import EncodeRows, EncodeVectors
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity
from beam_ldp.transforms.encode_questions import EncodeQuestions
from beam_ldp.transforms.portable import PortableDomain

Encoded = tuple[beam.PCollection, tuple[beam.PCollection, ...]]  # values; bad rows
MANY = 1_000_000  # people that a choice is made for where nobody says how many will report


class DeviceValues(ABC):
    """What a device holds, and what it promised to send of it.

    Attributes:
        settings: the flags, checked.
        release: what devices and collector agree upon.
        groups: path of the public list of groups, if there are any.
    """

    settings: Settings[Any]
    release: ReleaseFile
    groups: str | None = None

    @property
    def identity(self) -> ReleaseIdentity:
        """Of the release; what its noise is drawn under, where that is memoized."""
        return self.release.terms.identity

    @abstractmethod
    def encoded(self, pipeline: beam.Pipeline) -> Encoded:
        """The rows as blocks of values, and those that cannot be used."""


class ListValues(DeviceValues):
    """Values of a public list, or of several; a number in bins, or in a tree over them.

    Raises UsageError where no mechanism fits the flags.
    """

    def __init__(self, settings: FrequencySettings, reports_per_envelope: int = 1) -> None:
        self.settings: FrequencySettings = settings
        self.groups = settings.groups
        lists = [load_domain(path, settings.question.other) for path in settings.question.domains]
        self._domain: Domain | Bins = (
            lists[0] if settings.question.numbers is None else settings.question.numbers.bins
        )
        self._survey = survey_of(settings, lists)
        randomizer = self._randomizer()
        asked = self._asked()
        listed = None if settings.groups is None else load_groups(settings.groups)
        if self._survey is None:
            columns, digest = settings.question.columns, self._domain.digest
        else:
            asking = self._survey.asked
            columns = tuple(question.column for question in asking)
            digest = digest_of(*(question.digest for question in asking))
        self.release = ReleaseFile(
            terms_of(settings, randomizer, columns, digest, reports_per_envelope),
            "fixed" if settings.people.id is None else "iid",
            None,
            settings.people.group_by,
            None if listed is None else listed.digest,
            asked,
        )

    def _randomizer(self) -> LocalRandomizer:
        settings = self.settings
        if self._survey is None:
            return oracle_for(settings, self._domain.size, settings.planned_reports)
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

    def encoded(self, pipeline: beam.Pipeline) -> Encoded:
        settings = self.settings
        bad_rows: Literal["dead_letter", "other"] = (
            "dead_letter" if settings.bad_rows_leave_a_trace else "other"
        )
        columns = (
            *settings.question.columns,
            *((settings.people.group_by,) if settings.people.group_by else ()),
        )
        table = pipeline | "Read" >> ReadTable(
            settings.source.paths,
            settings.source.format,  # type: ignore[arg-type]
            columns,
            settings.people.id,
            bad_rows=bad_rows,
            delimiter=settings.source.delimiter,
        )
        values = table[ROWS] | "Encode" >> self._encoder(
            user_id_column=settings.people.id,
            groups=settings.groups,
            group_column=settings.people.group_by,
            bad_rows=bad_rows,
        )
        return values, (table[BAD_ROWS], values.bad_rows)

    def _encoder(self, **how: Any) -> beam.PTransform:
        if self._survey is not None:
            randomizer = self.release.terms.randomizer
            assert isinstance(randomizer, Questions)
            return EncodeQuestions(self._survey.asked, domain_sizes=randomizer.domain_sizes, **how)
        settings, domain = self.settings, self._domain
        if isinstance(domain, Domain):  # which may be large
            return EncodeRows(
                PortableDomain(settings.question.domains[0], settings.question.other),
                settings.question.name,
                **how,
            )
        return EncodeRows(domain, settings.question.name, **how)


class NumberValues(DeviceValues):
    """A number or a vector of them. Raises UsageError where no mechanism fits the flags."""

    def __init__(self, settings: MeanSettings, reports_per_envelope: int = 1) -> None:
        self.settings: MeanSettings = settings
        self._mean = Mean(settings)
        randomizer = self._mean.choose().randomizer
        assert isinstance(randomizer, MeanRandomizer)
        self._binary = randomizer.norm == "binary"
        coordinates = Coordinates(self._mean.labels, self._mean.ranges)
        columns = self._mean.columns
        self.release = ReleaseFile(
            terms_of(settings, randomizer, columns, coordinates.values, reports_per_envelope),
            settings.sampling,
            coordinates,
        )

    def encoded(self, pipeline: beam.Pipeline) -> Encoded:
        table = self._mean.read(pipeline)
        values = table[ROWS] | "Encode" >> EncodeVectors(
            self._mean.columns,
            self._mean.dimension,
            user_id_column=self.settings.people.id,
            ranges=self._mean.ranges,
            binary=self._binary,
            bad_rows=self._mean.bad_rows,
        )
        return values, (table[BAD_ROWS], values.bad_rows)


def terms_of(
    settings: Settings[Any],
    randomizer: LocalRandomizer,
    columns: Sequence[str],
    digest: bytes,
    reports_per_envelope: int,
) -> ReleaseTerms:
    """The terms of a release, whose identity is that of `frequency` or `mean` with the same flags.

    Raises:
        UsageError: for names that are none.
    """
    groups = settings.groups
    if reports_per_envelope != 1 and settings.noise.key_file is not None:
        raise UsageError(
            "--reports-per-envelope must be 1 with --memoize-key-file: every person has an "
            "envelope of their own, by which copies are known"
        )
    try:
        identity = release_identity(
            randomizer.config_digest(),
            dataset=settings.dataset,
            release_id=settings.noise.id,
            budget=None,
            memoize_key_file=settings.noise.key_file,
            columns=columns,
            values_digest=lambda: digest,
            groups=None if groups is None else PortableDomain(groups),
            group_column=settings.people.group_by,
            bounding=bounding_of(
                settings.people.id is not None, settings.people.id, settings.people.one_row
            ),
        )
        assert identity is not None  # it has its names
        randomizer, identity = of_release(
            randomizer, replace(identity, reports_per_envelope=reports_per_envelope)
        )
        assert identity is not None
        return ReleaseTerms(randomizer, identity, settings.noise.seed is not None)
    except ValueError as error:
        raise UsageError(str(error)) from None
