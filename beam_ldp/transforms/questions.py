"""Several questions to each person, in one transform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam

from beam_ldp.randomizers.base import Sampling
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.questions import Questions
from beam_ldp.settings import People, Privacy
from beam_ldp.transforms.collector.side import EstimateFrequencies
from beam_ldp.transforms.composite import HowReleased, PrivateEstimate
from beam_ldp.transforms.device.encode_questions import ColumnQuestion, EncodeQuestions
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.columns import MAX_VALUE_BYTES
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stage_types import expect
from beam_ldp.transforms.queries import BadLists, Query, target_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
            max_local_epsilon=privacy.max_local_epsilon,
            **target_of(privacy),
        )[0]
        if best.randomizer is None or best.excluded:
            raise ValueError(f"no mechanism fits: {best.excluded}")
        return best.randomizer

    def encoder(self, randomizer: Any, people: People) -> beam.PTransform:
        return EncodeQuestions(
            self.questions,
            people=people,
            bad_rows=self.bad_rows,
            max_value_bytes=self.max_value_bytes,
            domain_sizes=randomizer.domain_sizes,
        )

    def estimator(
        self,
        randomizer: Any,
        min_reports: int,
        *,
        sampling: Sampling = "fixed",
        permanent: bool = False,
    ) -> beam.PTransform:
        return EstimateFrequencies(
            randomizer,
            min_reports=min_reports,
            sampling=sampling,
            question=self.name,
            permanent=permanent,
        )

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
    >>> from beam_ldp.transforms.device.encode_questions import ListQuestion
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


class SplitQuestions(beam.PTransform):
    """One `Release` per question of a release that is about several.

    In: `Release`s of `EstimateFrequencies(randomizer)`, with or without keys. Out: likewise.

    Args:
        randomizer: `OneQuestion` or `EveryQuestion`.
        names: of the questions.
    """

    def __init__(self, randomizer: Questions, names: Sequence[str]) -> None:
        super().__init__()
        if len(names) != len(randomizer.oracles):
            raise ValueError(f"names must hold one name for each of {len(randomizer.oracles)}")
        self._carried = PortableRandomizer(randomizer)
        self._names = tuple(names)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = expect("SplitQuestions", pcoll, Release, task="frequency")
        doer = _Split(self._carried, self._names, element.keyed)
        return pcoll | "Split" >> beam.ParDo(doer).with_output_types(element.of(Release))


class _Split(beam.DoFn):
    def __init__(self, carried: PortableRandomizer, names: tuple[str, ...], keyed: bool) -> None:
        self._carried = carried
        self._names = names
        self._keyed = keyed

    def process(self, element: Any) -> Iterator[Any]:
        key, release = element if self._keyed else (None, element)
        randomizer = self._carried.randomizer
        assert isinstance(randomizer, Questions)
        for part in split_release(randomizer, release, self._names):
            yield (key, part) if self._keyed else part


def split_release(randomizer: Questions, release: Release, names: Sequence[str]) -> list[Release]:
    """The questions of one release; also for programs that hold it outside a pipeline."""
    estimates = randomizer.split(release.estimate)
    answers: list[tuple[int, ...]] = [(n,) for n in release.answers] or [()] * len(estimates)
    return [
        replace(release, question=name, estimate=estimate, answers=answered)
        for name, estimate, answered in zip(names, estimates, answers)
    ]
