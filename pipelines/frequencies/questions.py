"""What `frequency` asks beyond one value of one list: several questions, or a number.

A survey is a mechanism of several oracles, the columns that it reads, and the way its releases are
shown. `--column` repeats: one question per column. `--quantiles` and `--between`: one question per
level of a tree over the bins.

Everything here is said before the data, without Beam: answers load what they need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from beam_ldp.accounting.prices import expected_price
from beam_ldp.pipelines.usage.frequency import FrequencyQuestion
from beam_ldp.planning import Plan
from beam_ldp.planning.mechanisms import mechanism_of
from beam_ldp.planning.questions import (
    DESIGNS,
    Design,
    plan_questions,
    question_oracles,
    rare_errors,
)
from beam_ldp.randomizers.domain import OTHER, Domain
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.questions import EveryQuestion, Questions
from beam_ldp.release.job import Settings
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.pipelines.frequencies.answer import PartsAnswer
    from beam_ldp.pipelines.frequencies.parts import Parts
    from beam_ldp.transforms.questions import ColumnQuestion, ListQuestion

FrequencySettings = Settings[FrequencyQuestion]


@dataclass(frozen=True)
class ListSize:
    """A public list of which only the size is known.

    Attributes:
        size: of the list, `other` included.
        other: what everything else is called.
    """

    size: int
    other: str = OTHER


PublicList = Domain | ListSize
AnyList = TypeVar("AnyList", bound=Domain | ListSize)


@dataclass(frozen=True)
class SurveyChoice(Choice[Questions]):
    """A mechanism of several oracles.

    Attributes:
        errors: standard error of a rare value, question by question.
    """

    errors: tuple[float, ...] = ()


class Survey(ABC):
    """Several questions to each person.

    Attributes:
        about: public name of all of it.
    """

    about: str

    @property
    @abstractmethod
    def asked(self) -> tuple[ColumnQuestion, ...]:
        """What is read, in the order of the oracles."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return tuple(dict.fromkeys(question.column for question in self.asked))

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The question of each oracle."""

    @abstractmethod
    def plans(self, settings: Settings[Any], designs: Sequence[Design]) -> Sequence[Any]:
        """All mechanisms, the best first. Raises ValueError if there is none."""

    @abstractmethod
    def plan(self, settings: Settings[Any], designs: Sequence[Design]) -> Questions:
        """The mechanism. Raises ValueError if there is none."""

    def choose(self, settings: Settings[Any], design: str) -> SurveyChoice:
        """The mechanism with its expected price and errors. Raises SettingError."""
        return self.chosen(settings, self.planned(settings, design))

    def planned(self, settings: Settings[Any], design: str) -> Questions:
        """The mechanism alone. Raises SettingError."""
        try:
            return self.plan(settings, designs_of(design))
        except ValueError as error:
            raise SettingError(str(error)) from None

    def chosen(self, settings: Settings[Any], randomizer: Questions) -> SurveyChoice:
        """A mechanism with its expected price and errors."""
        n, price = settings.planned_reports, None
        if settings.noise.seed is None:
            price = expected_price(
                randomizer, n, settings.privacy.delta, settings.privacy.honest_fraction
            )
        errors = rare_errors(randomizer, n)
        return SurveyChoice(randomizer, n, price, max(errors), errors)

    @abstractmethod
    def inputs(self) -> Rows:
        """What a dry run says about the public inputs."""

    def expected(self, choice: SurveyChoice) -> Rows:
        """What a dry run says about who answers what, and the error of a rare value."""
        every = isinstance(choice.mechanism, EveryQuestion)
        who = "everybody answers all, with a split budget"
        rows = [("questions", who if every else "each person answers one, drawn at random")]
        for name, error in zip(self.names, choice.errors):
            people = error * choice.num_reports
            rows.append(
                (f"error, {name}", f"{readable(error)} of the people, that is {people:,.0f}")
            )
        return rows

    @abstractmethod
    def answer(self, parts: Parts, top: int) -> PartsAnswer:
        """The releases, ready to be shown."""


class SeveralLists(Survey, Generic[AnyList]):
    """One value of a public list per column.

    Args:
        columns: their names, which are those of the questions.
        domains: the lists.
        paths: of the lists.
        other: what everything else is called.
    """

    def __init__(
        self,
        columns: Sequence[str],
        domains: Sequence[AnyList],
        paths: Sequence[str],
        other: str,
    ) -> None:
        self.domains: dict[str, AnyList] = dict(zip(columns, domains))
        self._paths, self._other = tuple(paths), other
        self.about = ", ".join(columns)

    @property
    def asked(self) -> tuple[ListQuestion, ...]:
        """One question per column."""
        from beam_ldp.transforms.elements.portable import PortableDomain
        from beam_ldp.transforms.questions import ListQuestion

        return tuple(
            ListQuestion(column, PortableDomain(path, self._other))
            for column, path in zip(self.domains, self._paths)
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.domains)

    def plans(self, settings: Settings[Any], designs: Sequence[Design]) -> list[Plan]:
        sizes = [domain.size for domain in self.domains.values()]
        return plan_questions(
            settings.planned_reports,
            sizes,
            epsilon=settings.privacy.epsilon,
            local_epsilon=settings.privacy.local_epsilon,
            delta=settings.privacy.delta or None,
            honest_fraction=settings.hiding_share,
            designs=designs,
            oracles=oracles_of(settings),
            max_bits=settings.mechanism.max_bits,
            max_local_epsilon=settings.privacy.local_limit,
        )

    def plan(self, settings: Settings[Any], designs: Sequence[Design]) -> Questions:
        best = self.plans(settings, designs)[0]
        if best.randomizer is None or best.excluded:
            raise ValueError(f"no mechanism fits these flags: {best.excluded}")
        return best.randomizer

    def inputs(self) -> Rows:
        return [
            (f"list, {column}", f"{domain.size - 1:,} values and {domain.other!r}")
            for column, domain in self.domains.items()
        ]

    def answer(self, parts: Parts, top: int) -> PartsAnswer:
        from beam_ldp.pipelines.frequencies.answer import FrequencyAnswer, PartsAnswer

        labels = {
            column: domain.labels
            for column, domain in self.domains.items()
            if isinstance(domain, Domain)
        }
        answers = [
            FrequencyAnswer(part, labels[part.question], top, None) for part in parts.releases
        ]
        return PartsAnswer(parts, answers)


def designs_of(name: str) -> tuple[Design, ...]:
    """The designs that `--design` leaves."""
    return DESIGNS if name == "auto" else (name,)  # type: ignore[return-value]


def oracles_of(settings: Settings[Any]) -> tuple[type[Any], ...]:
    """The oracles that `--mechanism` leaves. Raises SettingError."""
    if settings.mechanism.name == "auto":
        return question_oracles()
    try:
        kind = mechanism_of(settings.mechanism.name, "frequency", auto=True)
    except ValueError as error:
        raise SettingError(str(error)) from None
    oracles = question_oracles()
    if kind not in oracles:
        names = ", ".join(oracle.__name__ for oracle in oracles)
        raise SettingError(
            f"--mechanism {settings.mechanism.name}: several questions take auto or one of {names}"
        )
    return (kind,)


def columns_of(question: FrequencyQuestion) -> tuple[str, ...]:
    """The columns of `--column`, each once. Raises SettingError."""
    columns = tuple(question.column)
    if len(set(columns)) < len(columns):
        raise SettingError("--column names a column twice")
    if not all(columns):
        raise SettingError("--column is missing: it is empty")
    return columns


def domains_of(question: FrequencyQuestion, columns: Sequence[str]) -> tuple[str, ...]:
    """The lists of the columns: one for each, or one for all. Raises SettingError."""
    paths = tuple(question.domain)
    if len(paths) == 1:
        return paths * max(1, len(columns))
    if len(paths) != max(1, len(columns)):
        raise SettingError(
            f"--domain must be given once, or once for each --column in their order: "
            f"{len(paths)} lists for {len(columns)} columns"
        )
    return paths
