"""`beam-ldp collect`: count reports that were randomized elsewhere; no raw value is ever seen.

The same program as `python -m beam_ldp.pipelines.collect`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam

from beam_ldp.accounting.prices import expected_price, price_as_json, price_of
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.commands import start
from beam_ldp.pipelines.devices.collecting import (
    CollectMean,
    CollectSettings,
    DeviceReports,
    check_collected,
    count,
)
from beam_ldp.pipelines.devices.questions import (
    DeviceListsQuestion,
    DeviceNumberQuestion,
    DeviceQuestion,
    DeviceSharesQuestion,
    DeviceWordsQuestion,
)
from beam_ldp.pipelines.devices.release_file import ReleaseFile, load_release
from beam_ldp.pipelines.frequencies.choice import check_postprocess, rare_error
from beam_ldp.pipelines.frequencies.numbers import (
    NumberQuestion,
    check_number_question,
    levels_of,
    ranges_of,
)
from beam_ldp.pipelines.frequencies.parts import PartsRecord
from beam_ldp.pipelines.frequencies.questions import SeveralLists, domains_of
from beam_ldp.pipelines.frequency import Frequency
from beam_ldp.pipelines.usage.collect import USAGE
from beam_ldp.pipelines.usage.frequency import FrequencyQuestion
from beam_ldp.planning.mechanisms import mechanism_of
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.questions import Questions
from beam_ldp.release.beam_job import Outputs
from beam_ldp.release.job import need, section_from
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.release.question import Question
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.elements.blocks import Release, shuffled_among
from beam_ldp.transforms.levels import reader_levels, refinable


@dataclass(frozen=True)
class CollectRecord(PrivacyRecord):
    """The record of reports that came from elsewhere.

    Attributes:
        sampling: "iid" where errors allow for the draw of one row of each person, else "fixed".
        readers: of reports of several levels, from the largest to everybody: their local epsilon,
            and what the reports cost against them; empty for reports of one level. `epsilon` and
            `event` are those of the largest, `local_epsilon` is that of who reads here.
        charged_local_epsilon: what people are charged locally for reports of several levels: the
            largest level, whoever reads; None for reports of one level.
    """

    collected = True

    sampling: str = "fixed"
    readers: tuple[dict[str, Any], ...] = ()
    charged_local_epsilon: float | None = None


@dataclass(frozen=True)
class CollectPartsRecord(PartsRecord):
    """The same for groups. Attributes: as there."""

    collected = True

    sampling: str = "fixed"


class Collect(DeviceReports, Frequency):
    """How often does each value occur, from reports that were randomized elsewhere?"""

    usage = USAGE
    settings: CollectSettings[FrequencyQuestion]

    def __init__(self, settings: CollectSettings[FrequencyQuestion]) -> None:
        super().__init__(settings)
        agreed = settings.agreed
        for path, found, expected in self._lists():
            if found != expected:
                raise SettingError(
                    f"--domain {path}: this is not the list that the devices used (a value, the "
                    "order or the --other-label differs)"
                )
        if self.groups is not None and agreed.groups_digest != self.groups.digest:
            raise SettingError(
                f"--groups {settings.groups}: this is not the list of groups that the devices used"
            )

    @property
    def record_type(self) -> type[PrivacyRecord]:
        return CollectPartsRecord if self.in_parts else CollectRecord

    def _lists(self) -> list[tuple[str, str, str]]:
        """Of every list its path, its digest and the one that was agreed upon."""
        settings, agreed = self.settings, self.settings.agreed
        if isinstance(agreed.asked, DeviceListsQuestion):
            assert isinstance(self.survey, SeveralLists)
            digests = [domain.digest.hex() for domain in self.survey.domains.values()]
            return list(zip(settings.question.domains, digests, agreed.asked.lists))
        if agreed.asked is not None:  # bins, which release.json holds
            return []
        return [
            (settings.question.domains[0], self.domain.digest.hex(), agreed.terms.identity.values)
        ]

    @classmethod
    def of(cls, given: Arguments) -> Question[Any]:
        """The program as it was told: `release.json` says what was asked. Raises SettingError."""
        need(USAGE, given, "reports.reports", "reports.release", "output.folder")
        path, place = given["reports"]["release"], given["mechanism"].get("name")
        kind = None if place is None else _loaded(place)
        agreed = load_release(path)
        if kind not in (None, type(agreed.terms.randomizer)):
            raise SettingError(f"--mechanism {place} is not that of {path}")
        if isinstance(agreed.asked, DeviceSharesQuestion):
            from beam_ldp.pipelines.devices.collecting_shares import CollectShares

            return CollectShares(CollectShares.check_agreed(given, agreed))
        need(USAGE, given, "privacy.delta")
        if isinstance(agreed.asked, DeviceWordsQuestion):
            from beam_ldp.pipelines.devices.collecting_words import CollectWords

            return CollectWords(CollectWords.check_agreed(given, agreed))
        if agreed.coordinates is not None:
            return CollectMean(CollectMean.check_agreed(given, agreed))
        return cls(cls.check_agreed(given, agreed))

    @classmethod
    def check_agreed(
        cls, given: Arguments, agreed: ReleaseFile
    ) -> CollectSettings[FrequencyQuestion]:
        """The settings, with every rule checked. Raises SettingError."""
        if "shape" in given["question"]:
            raise SettingError("--shape is for means; these reports are about frequencies")
        asked = agreed.asked
        numbers = _number_question(given["question"], asked)
        if numbers is None:
            need(USAGE, given, "question.domain")
        columns = asked.columns if isinstance(asked, DeviceListsQuestion) else ()
        if ("groups" in given["people"]) != (agreed.group_by is not None):
            raise SettingError(
                "--groups is missing: the public list of groups that the devices used"
                if agreed.group_by is not None
                else "--groups cannot be used: these reports have no groups"
            )
        if agreed.group_by is not None:
            agreed_upon = Arguments({"people": {"group_by": agreed.group_by}}, [])
            given = agreed_upon.over(given)
        question = section_from(given, USAGE, "question", FrequencyQuestion)
        named = asked.column if isinstance(asked, DeviceNumberQuestion) else ", ".join(columns)
        question = replace(
            question,
            columns=columns,
            domains=() if numbers is not None else domains_of(question, columns),
            name=given["reports"].get("question") or named or agreed.terms.identity.release_id,
            numbers=numbers,
        )
        check_postprocess(question)
        settings = check_collected(given, agreed, question)
        if agreed.group_by is not None and "min_reports" not in given["shuffle"]:
            raise SettingError(
                "--min-reports is missing: the smallest number of reports in a group, which "
                "decides how much noise the smallest group needs"
            )
        return settings

    def choose(self) -> Choice[Any]:
        settings, n = self.settings, self.settings.planned_reports
        randomizer = settings.randomizer
        if self.survey is not None:
            assert isinstance(randomizer, Questions)
            return self.survey.chosen(settings, randomizer)
        assert isinstance(randomizer, FrequencyOracle)
        price = None
        if not settings.agreed.terms.simulated:
            price = expected_price(
                settings.charged_for, n, settings.privacy.delta, settings.privacy.honest_fraction
            )
        return Choice(randomizer, n, price, rare_error(randomizer, n))

    def inputs(self) -> Rows:
        return [("release", self.settings.agreed.terms.identity.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> Outputs:
        return count(pipeline, self.settings, self.query, self.staging)

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        told = {**super().facts(choice, release), "sampling": self.settings.agreed.sampling}
        if not self.settings.leveled:
            return told
        charged = None if release.simulated else self.settings.charged_for.local_epsilon
        return {**told, "readers": self._readers(release), "charged_local_epsilon": charged}

    def _readers(self, release: Release) -> tuple[dict[str, Any], ...]:
        """What the reports that were received cost against the reader of each level."""
        terms, privacy = self.settings.agreed.terms, self.settings.privacy
        found = []
        for level in reader_levels(terms):
            about: dict[str, Any] = {"local_epsilon": level, "epsilon": None}
            if not terms.simulated:
                ran = shuffled_among(refinable(terms).at_level(level), release.smallest_batch)
                price = price_of(replace(release, ran=ran), privacy.delta, privacy.honest_fraction)
                about = {"local_epsilon": level, **price_as_json(price)}
            found.append(about)
        return tuple(found)


def _loaded(place: str) -> type[LocalRandomizer]:
    try:
        return mechanism_of(place)
    except ValueError as error:
        raise SettingError(str(error)) from None


def _number_question(told: dict[str, Any], asked: DeviceQuestion | None) -> NumberQuestion | None:
    """What is read off reports about a number; None for those about lists. Raises SettingError."""
    given = [name for name in ("quantiles", "between") if name in told]
    wanted = asked.wanted if isinstance(asked, DeviceNumberQuestion) else None
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


PROGRAM = programs.program_of(Collect)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
