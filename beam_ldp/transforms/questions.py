"""Several questions to each person, in one transform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.questions import Questions
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.columns import MAX_VALUE_BYTES
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.encode_questions import ColumnQuestion, EncodeQuestions
from beam_ldp.transforms.estimate import EstimateFrequencies
from beam_ldp.transforms.portable import PortableRandomizer
from beam_ldp.transforms.stage_types import expect


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
        randomizer: the design, with one oracle per question.
        questions: what is asked, in the order of the oracles.
        others: as in `PrivateFrequencies`; `min_reports` counts people, not answers.

    Raises:
        TypeError: for a randomizer of another kind.
        BudgetExceededError, ValueError: as in `PrivateFrequencies`.

    >>> import apache_beam as beam
    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> from beam_ldp.randomizers.questions import OneQuestion
    >>> from beam_ldp.transforms.encode_questions import ListQuestion
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
        randomizer: Questions,
        questions: Sequence[ColumnQuestion],
        *,
        user_id_column: str | None = None,
        groups: Domain | str | Path | None = None,
        group_column: str | None = None,
        min_reports: int | None = None,
        expected_users: float | None = None,
        one_report_per: Literal["user", "row"] | None = None,
        output: Literal["reports", "statistic"] = "statistic",
        scope: Literal["batch", "global"] = "batch",
        bad_rows: Literal["dead_letter", "other"] = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        memoize_key_file: str | None = None,
        release_id: str | None = None,
        dataset: str = "",
        seed: int | None = None,
        privacy_unit: str = "user",
        budget: ChargeTo | None = None,
    ) -> None:
        if not isinstance(randomizer, Questions):
            raise TypeError(
                f"randomizer must be OneQuestion or EveryQuestion, got {type(randomizer).__name__}"
            )
        self._names = tuple(name for question in questions for name in question.names)
        super().__init__(
            randomizer,
            columns=[asked.column for asked in questions],
            values_digest=lambda: digest_of(*(asked.digest for asked in questions)),
            group_column=group_column,
            user_id_column=user_id_column,
            groups=groups,
            min_reports=min_reports,
            expected_users=expected_users,
            one_report_per=one_report_per,
            output=output,
            scope=scope,
            memoize_key_file=memoize_key_file,
            release_id=release_id,
            dataset=dataset,
            seed=seed,
            question=", ".join(self._names),
            privacy_unit=privacy_unit,
            budget=budget,
        )
        self._encoder = EncodeQuestions(
            questions,
            user_id_column=user_id_column,
            groups=groups,
            group_column=group_column,
            bad_rows=bad_rows,
            max_value_bytes=max_value_bytes,
            domain_sizes=randomizer.domain_sizes,
        )
        self._estimator = EstimateFrequencies(
            randomizer,
            min_reports=self._min_reports,
            sampling=self.sampling,
            question=self._question,
        )

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        together = super().expand(pcoll)
        assert isinstance(self._randomizer, Questions)
        apart = together | "Split questions" >> SplitQuestions(self._randomizer, self._names)
        for name in ("bad_rows", "withheld", "persons", "traces"):
            if hasattr(together, name):
                setattr(apart, name, getattr(together, name))
        return apart


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
