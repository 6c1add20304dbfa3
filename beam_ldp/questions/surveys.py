"""Several questions to each person: lists of values, bins of numbers, levels of a tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.accounting.prices import expected_price
from beam_ldp.planning import Plan
from beam_ldp.planning.mechanisms import mechanism_of
from beam_ldp.planning.questions import (
    DESIGNS,
    Design,
    plan_questions,
    question_oracles,
    rare_errors,
)
from beam_ldp.questions.base import Asked, Choice, Part, Rows
from beam_ldp.questions.bins import tree_digest
from beam_ldp.questions.columns import MAX_VALUE_BYTES
from beam_ldp.questions.encoders import (
    LevelsEncoder,
    ListEncoder,
    SurveyEncoder,
    check_domain_size,
    loaded,
)
from beam_ldp.questions.frequencies import postprocessed, target_of
from beam_ldp.questions.frequency_view import FrequencyView
from beam_ldp.questions.published import Published, names_in
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.questions import EveryQuestion, Questions
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.settings import Privacy
    from beam_ldp.settings.job import Job


# What a person is asked, and rows as indices of the answers ----------------------------------


class _AboutAList(ABC):
    """A question whose answer is an index of a public list, or of bins."""

    column: str
    question: str

    @property
    @abstractmethod
    def listed(self) -> Any:
        """The list."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each index that it gives."""
        return (self.question or self.column,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of each index, `other` included; the list is read for it."""
        return (loaded(self.listed).size,)

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the list, which is read for them."""
        return self.listed.digest

    def check(self, sizes: Sequence[int | None]) -> None:
        """A ValueError if a list that is at hand is not of the size that is expected."""
        listed, (size,) = self.listed, sizes
        if size is not None and hasattr(listed, "check_size"):
            listed.check_size(size)

    def encoder(self, max_bytes: int, sizes: Sequence[int | None]) -> ListEncoder:
        """Of the column."""
        return ListEncoder((self.column,), self.listed, max_bytes, *sizes)


@dataclass(frozen=True)
class ListQuestion(_AboutAList):
    """A question about a value of a public list.

    Attributes:
        column: with the value.
        domain: the list, as `EncodeRows` takes it; stages read it through the file systems of Beam.
        question: its public name; default: the column.
    """

    column: str
    domain: Any
    question: str = ""

    @property
    def listed(self) -> Any:
        return self.domain


@dataclass(frozen=True)
class BinQuestion(_AboutAList):
    """A question about a number: in which public bin it lies, or in none (`other`)."""

    column: str
    bins: Bins
    question: str = ""

    @property
    def listed(self) -> Bins:
        return self.bins


@dataclass(frozen=True)
class LevelsQuestion:
    """A question about a number for each level of a tree over bins."""

    column: str
    tree: Hierarchy
    question: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each index that it gives, coarsest level first."""
        name = self.question or self.column
        return tuple(f"{name}, {size} parts" for size in self.tree.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Parts at each level."""
        return tuple(self.tree.sizes)

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the bins and the tree over them."""
        return tree_digest(self.tree)

    def check(self, sizes: Sequence[int | None]) -> None:
        """A ValueError if levels are not of the sizes that are expected."""
        for own, size in zip(self.sizes, sizes):
            if size is not None:
                check_domain_size(own, size)

    def encoder(self, max_bytes: int, sizes: Sequence[int | None]) -> LevelsEncoder:
        """Of the column."""
        return LevelsEncoder((self.column,), self.tree)


ColumnQuestion = ListQuestion | BinQuestion | LevelsQuestion


def encoder_of(
    questions: Sequence[ColumnQuestion],
    max_value_bytes: int,
    domain_sizes: Sequence[int] | None,
) -> SurveyEncoder:
    """The encoder of `EncodeQuestions`. Raises ValueError."""
    if not questions:
        raise ValueError("questions must hold at least one question")
    names = [name for question in questions for name in question.names]
    if len(set(names)) < len(names):
        raise ValueError("questions must have different names")
    if domain_sizes is not None and len(domain_sizes) != len(names):
        raise ValueError(
            f"questions must give one index per oracle: {len(names)} for {len(domain_sizes)}"
        )
    sizes, parts = iter(domain_sizes or ()), []
    for question in questions:
        own = [next(sizes, None) for _ in question.names]
        question.check(own)
        parts.append(question.encoder(max_value_bytes, own))
    return SurveyEncoder.of(parts, names)


def split_release(mechanism: Questions, release: Any, names: Sequence[str]) -> list[Any]:
    """The questions of one release; also for programs that hold it outside a pipeline."""
    estimates = mechanism.split(release.estimate)
    answers: list[tuple[int, ...]] = [(n,) for n in release.answers] or [()] * len(estimates)
    return [
        replace(release, question=name, estimate=estimate, answers=answered)
        for name, estimate, answered in zip(names, estimates, answers)
    ]


@dataclass(frozen=True)
class PublishedLists(Published):
    """A value of a public list for each question.

    Attributes:
        columns: names of the questions.
        lists: digest of each list, in hexadecimal.
    """

    columns: tuple[str, ...]
    lists: tuple[str, ...]

    def __post_init__(self) -> None:
        distinct = len(set(self.columns)) == len(self.columns) == len(self.lists)
        if not distinct or len(self.columns) < 2:
            raise ValueError("questions must be two or more, with distinct names, each with a list")

    def to_json(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "lists": list(self.lists)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> PublishedLists:
        return cls(names_in(found["columns"]), names_in(found["lists"]))

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def values(self) -> bytes:
        return digest_of(*map(bytes.fromhex, self.lists))

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        if not isinstance(randomizer, Questions) or len(randomizer.oracles) != len(self.columns):
            raise ValueError("release terms contradict themselves: number of questions")


# All of them, of one report a person ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Survey(Asked):
    """How often each answer to each of several questions occurs.

    Attributes:
        questions: what is asked, in the order of the oracles.
        bad_rows, max_value_bytes: as in `EncodeRows`.
        at_hand: the list of each question, or its size, where it was looked at already.
        design: "one", "all", or "auto": who answers what.
        postprocess: what is done to shown frequencies that noise made negative.
    """

    questions: tuple[ColumnQuestion, ...]
    bad_rows: str = "dead_letter"
    max_value_bytes: int = MAX_VALUE_BYTES
    at_hand: tuple[Any, ...] = ()
    design: str = "auto"
    postprocess: str = "none"
    split = staticmethod(split_release)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for question in self.questions for name in question.names)

    @property
    def name(self) -> str:  # type: ignore[override]
        """All of it."""
        return ", ".join(self.names)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(question.column for question in self.questions)

    @property
    def portable(self) -> Survey:
        return replace(self, at_hand=())

    def digest(self, mechanism: Any) -> bytes:
        return digest_of(*(question.digest for question in self.questions))

    def check(self, mechanism: Any) -> None:
        if not isinstance(mechanism, Questions):
            raise TypeError(
                f"randomizer must be OneQuestion or EveryQuestion, got {type(mechanism).__name__}"
            )

    def mechanism(self, privacy: Privacy) -> Questions:
        sizes = [size for question in self.questions for size in question.sizes]
        best = plan_questions(
            int(privacy.expected_users or 0),
            sizes,
            max_local_epsilon=privacy.local_limit,
            **target_of(privacy),
        )[0]
        if best.randomizer is None or best.excluded:
            raise ValueError(f"no mechanism fits: {best.excluded}")
        found: Questions = best.randomizer
        return found

    def encoder(self, mechanism: Any) -> SurveyEncoder:
        return encoder_of(self.questions, self.max_value_bytes, mechanism.domain_sizes)

    def unlisted(self, values: np.ndarray) -> tuple[str, ...]:
        return tuple(
            question.column
            for i, (question, listed) in enumerate(zip(self.questions, self.at_hand))
            if (values[:, i] == listed.size - 1).all()
        )

    def on_devices(self, job: Job, mechanism: Any) -> Published:
        return PublishedLists(self.columns, tuple(q.digest.hex() for q in self.questions))

    # Before the data --------------------------------------------------------------------------

    def plans(self, job: Job) -> Sequence[Plan]:
        """All mechanisms, the best first. Raises ValueError if there is none."""
        return plan_questions(
            job.planned_reports,
            [listed.size for listed in self.at_hand],
            epsilon=job.privacy.epsilon,
            local_epsilon=job.privacy.local_epsilon,
            delta=job.privacy.delta or None,
            honest_fraction=job.hiding_share,
            designs=self.designs,
            oracles=oracles_of(job),
            max_bits=job.mechanism.max_bits,
            max_local_epsilon=job.privacy.local_limit,
        )

    @property
    def designs(self) -> tuple[Design, ...]:
        """Those that `design` leaves."""
        return DESIGNS if self.design == "auto" else (self.design,)  # type: ignore[return-value]

    def best(self, job: Job) -> Plan:
        try:
            best = self.plans(job)[0]
        except ValueError as error:
            raise SettingError(str(error)) from None
        if best.randomizer is None or best.excluded:
            raise SettingError(f"no mechanism fits these flags: {best.excluded}")
        return best

    def chosen(self, job: Job, mechanism: Questions) -> Choice:
        n, price = job.planned_reports, None
        if not job.noise.simulated:
            price = expected_price(mechanism, n, job.privacy.delta, job.privacy.honest_fraction)
        return Choice(mechanism, n, price, max(rare_errors(mechanism, n)))

    def expectation(self, job: Job, choice: Choice) -> str:
        people = choice.predicted_error * choice.num_reports
        return (
            f"a rare value's count will be off by about {people:,.0f} of "
            f"{choice.num_reports:,} people"
        )

    def inputs(self, job: Job) -> Rows:
        return [
            (f"list, {question.column}", f"{listed.size - 1:,} values and {listed.other!r}")
            for question, listed in zip(self.questions, self.at_hand)
        ]

    def expected(self, job: Job, choice: Choice) -> Rows:
        every = isinstance(choice.mechanism, EveryQuestion)
        who = "everybody answers all, with a split budget"
        rows = [("questions", who if every else "each person answers one, drawn at random")]
        for name, error in zip(self.names, rare_errors(choice.mechanism, choice.num_reports)):
            people = error * choice.num_reports
            rows.append(
                (f"error, {name}", f"{readable(error)} of the people, that is {people:,.0f}")
            )
        return rows

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        errors = rare_errors(choice.mechanism, choice.num_reports)
        return {"predicted_standard_errors": list(errors)}

    # After the data ---------------------------------------------------------------------------

    @property
    def plausible(self) -> tuple[Any, Any]:
        return 0.0, 1.0

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        return {"postprocess": self.postprocess}

    @cached_property
    def _labels(self) -> dict[str, Any]:
        asked: Sequence[Any] = self.questions  # each of a list or bins, as they are shown
        at_hand = self.at_hand or [loaded(question.listed) for question in asked]
        return {q.names[0]: listed.labels for q, listed in zip(asked, at_hand)}

    def view(self, job: Job, choice: Choice, release: Part, truth: Any = None) -> FrequencyView:
        shown = postprocessed(release, self.postprocess)
        return FrequencyView(shown, self._labels[release.question], job.output.top, truth)


def oracles_of(job: Job) -> tuple[type[Any], ...]:
    """The oracles that `--mechanism` leaves. Raises SettingError."""
    if job.mechanism.name == "auto":
        return question_oracles()
    try:
        kind = mechanism_of(job.mechanism.name, "frequency", auto=True)
    except ValueError as error:
        raise SettingError(str(error)) from None
    oracles = question_oracles()
    if kind not in oracles:
        names = ", ".join(oracle.__name__ for oracle in oracles)
        raise SettingError(
            f"--mechanism {job.mechanism.name}: several questions take auto or one of {names}"
        )
    return (kind,)
