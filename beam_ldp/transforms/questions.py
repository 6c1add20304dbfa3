"""Several questions to each person: rows to answers, and one release about all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from beam_ldp.questions.columns import MAX_VALUE_BYTES
from beam_ldp.questions.surveys import (
    BinQuestion,
    ColumnQuestion,
    LevelsQuestion,
    ListQuestion,
    Survey,
    encoder_of,
)
from beam_ldp.randomizers.questions import Questions
from beam_ldp.settings import People
from beam_ldp.transforms.composite import BadLists, HowReleased, PrivateEstimate
from beam_ldp.transforms.device.encode import Encode
from beam_ldp.transforms.elements.portable import PortableDomain

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "BinQuestion", "EncodeQuestions", "LevelsQuestion", "ListQuestion", "PrivateQuestions"
]  # fmt: skip


def carried(question: ColumnQuestion) -> ColumnQuestion:
    """A question whose list travels to workers."""
    if isinstance(question, ListQuestion):
        return replace(question, domain=PortableDomain.of(question.domain))
    return question


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
        encoder = encoder_of([*map(carried, questions)], max_value_bytes, domain_sizes)
        super().__init__(encoder, people=people, bad_rows=bad_rows)


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
        asked = Survey(tuple(map(carried, questions)), bad_rows, max_value_bytes)
        super().__init__(randomizer, asked, **how)
