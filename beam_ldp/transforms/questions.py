"""Several questions to each person: lists of values, bins of numbers, levels of a tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam

from beam_ldp.questions.columns import MAX_VALUE_BYTES, IntegerDomain
from beam_ldp.questions.encoders import (
    LevelsEncoder,
    ListEncoder,
    SurveyEncoder,
    check_domain_size,
)
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.questions import Questions
from beam_ldp.settings import People, Privacy
from beam_ldp.transforms.composite import HowReleased, PrivateEstimate
from beam_ldp.transforms.device.encode import Encode
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.portable import PortableDomain, PortableRandomizer
from beam_ldp.transforms.elements.stages import expect
from beam_ldp.transforms.queries import BadLists, Query, target_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


# What a person is asked, and rows as indices of the answers ----------------------------------


class _AboutAList(ABC):
    """A question whose answer is an index of a public list, or of bins."""

    column: str
    question: str

    @property
    @abstractmethod
    def listed(self) -> PortableDomain:
        """The list."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each index that it gives."""
        return (self.question or self.column,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of each index, `other` included; the list is read for it."""
        return (self.listed.load().size,)

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the list, which is read for them."""
        return self.listed.digest

    def check(self, sizes: Sequence[int | None]) -> None:
        """A ValueError if a list that is at hand is not of the size that is expected."""
        listed, (size,) = self.listed, sizes
        if size is not None:
            listed.check_size(size)

    def encoder(self, max_bytes: int, sizes: Sequence[int | None]) -> ListEncoder:
        """Of the column."""
        return ListEncoder((self.column,), self.listed, max_bytes, *sizes)


@dataclass(frozen=True)
class ListQuestion(_AboutAList):
    """A question about a value of a public list.

    Attributes:
        column: with the value.
        domain: the list, as `EncodeRows` takes it.
        question: its public name; default: the column.
    """

    column: str
    domain: Domain | IntegerDomain | PortableDomain | str | Path
    question: str = ""

    @property
    def listed(self) -> PortableDomain:
        return PortableDomain.of(self.domain)


@dataclass(frozen=True)
class BinQuestion(_AboutAList):
    """A question about a number: in which public bin it lies, or in none (`other`)."""

    column: str
    bins: Bins
    question: str = ""

    @property
    def listed(self) -> PortableDomain:
        return PortableDomain(self.bins)


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
        return digest_of(b"tree", self.tree.bins.digest, b"%d" % self.tree.fan_out)

    def check(self, sizes: Sequence[int | None]) -> None:
        """A ValueError if levels are not of the sizes that are expected."""
        for own, size in zip(self.sizes, sizes):
            if size is not None:
                check_domain_size(own, size)

    def encoder(self, max_bytes: int, sizes: Sequence[int | None]) -> LevelsEncoder:
        """Of the column."""
        return LevelsEncoder((self.column,), self.tree)


ColumnQuestion = ListQuestion | BinQuestion | LevelsQuestion


class EncodeQuestions(Encode):
    """Turns rows into `ValueBlock`s with one index per question: `Encode` with several columns.

    As `EncodeRows`; a row of which one column cannot be used is bad,
    or with `bad_rows="other"` has `other` there. Levels of a tree have no `other`: they take
    "dead_letter" only.

    Args:
        questions: what each index is about, in the order of the randomizer's oracles.
        people, bad_rows, max_value_bytes: as in `EncodeRows`.
        domain_sizes: if given, what the randomizer expects.

    Raises:
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        questions: Sequence[ColumnQuestion],
        *,
        people: People = People(),
        bad_rows: Literal["dead_letter", "other"] = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        domain_sizes: Sequence[int] | None = None,
    ) -> None:
        encoder = encoder_of(questions, max_value_bytes, domain_sizes)
        super().__init__(encoder, people=people, bad_rows=bad_rows)


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


# One release about all of them ----------------------------------------------------------------


@dataclass(frozen=True)
class SurveyQuery(Query):
    """How often each answer to each of several questions occurs.

    Attributes:
        questions: what is asked, in the order of the oracles.
        bad_rows, max_value_bytes: as in `EncodeRows`.
    """

    questions: tuple[ColumnQuestion, ...]
    bad_rows: BadLists = "dead_letter"
    max_value_bytes: int = MAX_VALUE_BYTES

    @property
    def names(self) -> tuple[str, ...]:
        """The question of each oracle."""
        return tuple(name for question in self.questions for name in question.names)

    @property
    def name(self) -> str:  # type: ignore[override]
        """All of it."""
        return ", ".join(self.names)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(question.column for question in self.questions)

    def digest(self, randomizer: Any) -> bytes:
        return digest_of(*(question.digest for question in self.questions))

    def check(self, randomizer: Any) -> None:
        if not isinstance(randomizer, Questions):
            raise TypeError(
                f"randomizer must be OneQuestion or EveryQuestion, got {type(randomizer).__name__}"
            )

    def plan(self, privacy: Privacy) -> Questions:
        from beam_ldp.planning.questions import plan_questions

        sizes = [size for question in self.questions for size in question.sizes]
        best = plan_questions(
            int(privacy.expected_users or 0),
            sizes,
            max_local_epsilon=privacy.local_limit,
            **target_of(privacy),
        )[0]
        if best.randomizer is None or best.excluded:
            raise ValueError(f"no mechanism fits: {best.excluded}")
        return best.randomizer

    def encoder(self, randomizer: Any) -> SurveyEncoder:
        return encoder_of(self.questions, self.max_value_bytes, randomizer.domain_sizes)

    def split(self, randomizer: Any, releases: beam.PCollection) -> beam.PCollection:
        return releases | "Split questions" >> SplitQuestions(randomizer, self.names)


class PrivateQuestions(PrivateEstimate):
    """Frequencies of the answers to several questions, under local privacy.

    Each person answers one question, drawn at random (`OneQuestion`), or all of them with a split
    budget (`EveryQuestion`): `beam_ldp.planning.plan_questions` says which is better. Protects all
    of a person's answers together with the randomizer's local epsilon against everybody who sees
    what the person sends, and with the smaller epsilon of the releases' `event` against whoever
    sees only what this transform puts out.

    In: rows, as `EncodeQuestions` takes them. Out: one `Release` per question, window and group,
    with `question`; with `groups` as `(group, Release)`. **All questions of a group and window come
    from the same reports: each carries the event of the whole, which is to be charged once.**
    Frequencies are fractions of all people of the group, `answers` says how many answered this
    question. Attributes: as in `PrivateFrequencies`.

    Args:
        randomizer: the design, with one oracle per question; "auto" plans for it under `privacy`.
        questions: what is asked, in the order of the oracles.
        bad_rows, max_value_bytes: as in `EncodeRows`.
        how: as in `PrivateFrequencies`; `min_reports` counts people, not answers.

    Raises:
        TypeError: for a randomizer of another kind.
        BudgetExceededError, ValueError: as in `PrivateFrequencies`.

    >>> import apache_beam as beam
    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> from beam_ldp.randomizers.questions import OneQuestion
    >>> from beam_ldp.randomizers.domain import Domain
    >>> from beam_ldp.transforms.questions import ListQuestion
    >>> survey = OneQuestion((KRandomizedResponse(3, 2.0), KRandomizedResponse(4, 2.0)))
    >>> lists = {"hair": Domain(("red", "fair")), "eyes": Domain(("a", "b", "c"))}
    >>> questions = [ListQuestion(column, domain) for column, domain in lists.items()]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     releases = (
    ...         pipeline
    ...         | beam.Create([{"hair": "red", "eyes": "b"}] * 100)
    ...         | PrivateQuestions(survey, questions, min_reports=90)
    ...     )
    ...     _ = releases | beam.Map(lambda release: print(release.question, release.num_reports))
    hair 100
    eyes 100
    """

    def __init__(
        self,
        randomizer: Questions | Literal["auto"],
        questions: Sequence[ColumnQuestion],
        *,
        bad_rows: BadLists = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        **how: Unpack[HowReleased],
    ) -> None:
        asked = SurveyQuery(tuple(questions), bad_rows, max_value_bytes)
        super().__init__(randomizer, asked, **how)


@dataclass(eq=False, repr=False)
class SplitQuestions(beam.PTransform):
    """One `Release` per question of a release that is about several.

    In: `Release`s of `EstimateFrequencies(randomizer)`, with or without keys. Out: likewise.

    Args:
        randomizer: `OneQuestion` or `EveryQuestion`.
        names: of the questions.
    """

    randomizer: Questions
    names: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.randomizer.oracles):
            raise ValueError(f"names must hold one name for each of {len(self.randomizer.oracles)}")

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = expect("SplitQuestions", pcoll, Release, task="frequency")
        doer = _Split(PortableRandomizer(self.randomizer), tuple(self.names), element.keyed)
        return pcoll | "Split" >> beam.ParDo(doer).with_output_types(element.of(Release))


@dataclass(eq=False)
class _Split(beam.DoFn):
    carried: PortableRandomizer
    names: tuple[str, ...]
    keyed: bool

    def process(self, element: Any) -> Iterator[Any]:
        key, release = element if self.keyed else (None, element)
        randomizer = self.carried.randomizer
        assert isinstance(randomizer, Questions)
        for part in split_release(randomizer, release, self.names):
            yield (key, part) if self.keyed else part


def split_release(randomizer: Questions, release: Release, names: Sequence[str]) -> list[Release]:
    """The questions of one release; also for programs that hold it outside a pipeline."""
    estimates = randomizer.split(release.estimate)
    answers: list[tuple[int, ...]] = [(n,) for n in release.answers] or [()] * len(estimates)
    return [
        replace(release, question=name, estimate=estimate, answers=answered)
        for name, estimate, answered in zip(names, estimates, answers)
    ]
