"""What a frequency is before its data: which oracle runs, what it costs, how far it will be off."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.accounting.prices import expected_price
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.pipelines.frequencies.numbers import NumberTree, number_question_of
from beam_ldp.pipelines.frequencies.questions import (
    FrequencySettings,
    PublicList,
    SeveralLists,
    Survey,
    SurveyChoice,
    columns_of,
    domains_of,
)
from beam_ldp.pipelines.usage.frequency import FrequencyQuestion
from beam_ldp.planning import Plan, plan_frequencies
from beam_ldp.planning.frequencies import variants_of
from beam_ldp.planning.mechanisms import mechanism_of
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse
from beam_ldp.release.forging import forged_rows
from beam_ldp.release.inputs.public_lists import check_groups
from beam_ldp.release.job import Settings, checked, need, section_from, settings_from
from beam_ldp.release.planner import Choice, Planner, Rows
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import TEXT_COLUMN, Arguments, Usage


class FrequencyPlanner(Planner[FrequencySettings]):
    """How often does each value of a public list occur? Before the data.

    Args:
        settings: checked flags.
        lists: of each question; of numbers in bins there is none.
        groups: the public list of groups, if there are any.
    """

    def __init__(
        self,
        settings: FrequencySettings,
        lists: Sequence[PublicList],
        groups: PublicList | None = None,
    ) -> None:
        super().__init__(settings)
        wanted = settings.question.numbers
        self.domain: PublicList | Bins = lists[0] if wanted is None else wanted.bins
        self.survey = survey_of(settings, lists)
        if self.survey is None and settings.question.design != "auto":
            raise SettingError("--design is for several questions: name several columns")
        self.groups = groups

    def choose(self) -> Choice[Any]:
        if self.survey is not None:
            return self.survey.choose(self.settings, self.settings.question.design)
        return choose(self.settings, self.domain.size)

    def expectation(self, choice: Choice[Any]) -> str:
        people = choice.predicted_error * choice.num_reports
        return (
            f"a rare value's count will be off by about {people:,.0f} of "
            f"{choice.num_reports:,} people"
        )

    def inputs(self) -> Rows:
        label = "list" if self.settings.question.numbers is None else "bins"
        found = [(label, f"{self.domain.size - 1:,} values and {self.settings.question.other!r}")]
        if self.survey is not None:
            found = self.survey.inputs()
        if self.groups is not None:
            listed = f"{self.groups.size - 1:,} of a public list and {self.groups.other!r}"
            found.append(("groups", f"column {self.settings.people.group_by}: {listed}"))
        return found

    def expected(self, choice: Choice[Any]) -> Rows:
        if isinstance(choice, SurveyChoice) and self.survey is not None:
            return self.survey.expected(choice)
        error, n = choice.predicted_error, choice.num_reports
        said = f"{readable(error)} of the people, that is {error * n:,.0f} of {n:,}"
        return [("error of a rare value", said), *forged_rows(choice.mechanism, n)]

    def expected_as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        if isinstance(choice, SurveyChoice):
            return {"predicted_standard_errors": list(choice.errors)}
        return {"domain_size": self.domain.size}


def choose(settings: Settings[Any], domain_size: int) -> Choice[Any]:
    """The mechanism for these flags.

    Args:
        settings: checked flags.
        domain_size: values of the public list, `other` included.

    Raises:
        SettingError: if the mechanism's name is unknown, or none fits.
    """
    num_reports = settings.planned_reports
    randomizer = oracle_for(settings, domain_size, num_reports)
    price = None
    if settings.noise.seed is None:
        price = expected_price(
            randomizer, num_reports, settings.privacy.delta, settings.privacy.honest_fraction
        )
    return Choice(randomizer, num_reports, price, rare_error(randomizer, num_reports))


def rare_error(randomizer: FrequencyOracle, num_reports: int) -> float:
    """Standard error of the frequency of a value that hardly anybody holds, worst value."""
    truth = np.zeros(randomizer.domain_size)
    truth[-1] = 1.0
    return float(np.sqrt(randomizer.variance(num_reports, truth)[:-1].max()))


def oracle_for(settings: Settings[Any], domain_size: int, num_reports: int) -> FrequencyOracle:
    """The mechanism alone; a delta of zero asks for the local promise and nothing else."""
    if settings.mechanism.name != "auto":
        builds = _named(settings, domain_size)
        found = [_tuned(build, settings, num_reports) for build in builds]
        short = [
            one for one in found if one.bits_per_report <= (settings.mechanism.max_bits or math.inf)
        ]
        return _short_enough((short or found)[0], settings)
    plans = [plan for plan in plans_of(settings, domain_size) if not plan.excluded]
    if not plans:
        raise SettingError("no mechanism fits these flags (see `beam-ldp plan frequency`)")
    randomizer = plans[0].randomizer
    assert randomizer is not None
    return randomizer


def plans_of(settings: Settings[Any], domain_size: int) -> list[Plan]:
    """All mechanisms, the best first."""
    privacy = settings.privacy
    return plan_frequencies(
        settings.planned_reports,
        domain_size,
        privacy.epsilon,
        privacy.local_epsilon,
        privacy.delta or None,
        settings.mechanism.max_bits,
        settings.hiding_share,
        max_local_epsilon=privacy.local_limit,
        random_bits=settings.mechanism.random_bits,
    )


def _tuned(
    build: Callable[[float], FrequencyOracle], settings: Settings[Any], num_reports: int
) -> FrequencyOracle:
    """The mechanism with the local budget that the flags leave it."""
    local = settings.privacy.local_epsilon
    if local is None:
        assert settings.privacy.epsilon is not None
        hidden_among = hidden_users(num_reports, settings.hiding_share)
        local = local_epsilon_for(
            settings.privacy.epsilon, settings.privacy.delta, hidden_among, build
        )
    return build(min(local, settings.privacy.local_limit))


def _named(settings: Settings[Any], domain_size: int) -> list[Callable[[float], FrequencyOracle]]:
    """What makes the variants of the named mechanism. Raises SettingError."""
    name, random_bits = settings.mechanism.name, settings.mechanism.random_bits
    try:
        kind: type[FrequencyOracle] = mechanism_of(name, "frequency", auto=True)
    except ValueError as error:
        raise SettingError(str(error)) from None
    if issubclass(kind, RecoverableResponse):
        raise SettingError(f"--mechanism {name} belongs to `beam-ldp randomize --recover-key-file`")

    def build(local_epsilon: float, **options: Any) -> FrequencyOracle:
        try:
            return kind(domain_size, local_epsilon, **options)
        except (TypeError, ValueError) as error:
            raise SettingError(f"--mechanism {name}: {error}") from None

    variants = list(variants_of(kind, domain_size, random_bits))
    if not variants:
        raise SettingError(f"--mechanism {name} needs --random-bits")
    return [partial(build, **options) for options in variants]


def _short_enough(randomizer: FrequencyOracle, settings: Settings[Any]) -> FrequencyOracle:
    if (
        settings.mechanism.max_bits is not None
        and randomizer.bits_per_report > settings.mechanism.max_bits
    ):
        raise SettingError(
            f"--mechanism {settings.mechanism.name} sends {randomizer.bits_per_report} bits, "
            f"--max-bits is {settings.mechanism.max_bits}"
        )
    if settings.mechanism.random_bits is not None:
        lacks = randomizer.lacks_random_bits(settings.mechanism.random_bits)
        if lacks:
            raise SettingError(f"--mechanism {settings.mechanism.name}: {lacks}")
    return randomizer


def checked_frequency(given: Arguments, usage: Usage, *, stream: bool = False) -> FrequencySettings:
    """The settings, with every rule checked that needs no files. Raises SettingError."""
    settings = settings_from(given, usage, question_of(given, usage), FrequencySettings)
    check_groups(settings)
    several = len(settings.question.columns) > 1 or len(settings.question.domains) > 1
    numbers = settings.question.numbers
    if settings.mechanism.random_bits is not None and (several or numbers and numbers.needs_tree):
        raise SettingError("--random-bits is for a single question to each person")
    if settings.mechanism.random_bits is not None and settings.noise.memoized:
        raise SettingError(
            "--random-bits needs rows and coins that the value does not decide; those of "
            "--memoize-key-file follow from it: leave one of the two out"
        )
    return checked(settings, stream=stream)


def question_of(given: Arguments, usage: Usage) -> FrequencyQuestion:
    """What is asked: columns, lists, bins.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    question: FrequencyQuestion = section_from(given, usage, "question", FrequencyQuestion)
    numbers = number_question_of(question)
    if numbers is None:
        need(usage, given, "question.domain")
    columns = columns_of(question)
    if numbers is not None and len(columns) > 1:
        raise SettingError(
            "--bins takes a single --column; to combine lists and bins, write a pipeline of your "
            "own (PrivateQuestions, docs/questions.md)"
        )
    question = replace(
        question,
        columns=columns or (TEXT_COLUMN,),
        domains=() if numbers is not None else domains_of(question, columns),
        name=", ".join(columns) or TEXT_COLUMN,
        numbers=numbers,
    )
    check_postprocess(question)
    return question


def check_postprocess(question: FrequencyQuestion) -> None:
    """A SettingError where frequencies are made consistent in another way already."""
    if question.postprocess != "none" and question.numbers and question.numbers.needs_tree:
        raise SettingError(
            "--postprocess is for frequencies of a list or of bins; --quantiles and --between "
            "come from a tree, whose levels are made consistent with each other, and would not be "
            "any more"
        )


def survey_of(settings: FrequencySettings, lists: Sequence[PublicList]) -> Survey | None:
    """The questions, where there are several to each person: lists, or levels of a tree."""
    if settings.question.numbers is not None and settings.question.numbers.needs_tree:
        return NumberTree(settings.question.name, settings.question.numbers)
    if len(settings.question.columns) > 1:
        return SeveralLists[Any](
            settings.question.columns, lists, settings.question.domains, settings.question.other
        )
    return None
