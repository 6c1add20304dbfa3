"""Rows in, private estimates out, as transforms of Beam YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam

from beam_ldp.randomizers.domain import OTHER
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.transforms.collector.release_rows import FrequencyRow, MeanRow
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.queries import MeanQuery, Query
from beam_ldp.transforms.questions import LevelsQuestion, SurveyQuery
from beam_ldp.transforms.yaml.config import (
    How,
    check_columns,
    frequency_query,
    how,
    labels_of,
    mean_query,
    size_of,
    strict,
    survey_query,
)
from beam_ldp.transforms.yaml.rows import TEXT, OutputNames, ToRows


class EstimateToRows(beam.PTransform):
    """A private estimate of rows with a schema, as rows with a schema.

    In: rows. Out: rows as `ToRows` makes them; a dictionary of outputs where others are named.

    Args:
        query: what is asked.
        told: everything else.
        one_row_each: as in `PrivateEstimate`.
        level, times: as in `ToRows`.
        outputs: beside the rows.
    """

    def __init__(
        self,
        query: Query,
        told: How,
        outputs: OutputNames,
        *,
        level: float,
        times: str,
        one_row_each: bool = False,
    ) -> None:
        super().__init__()
        size = 0 if isinstance(query, SurveyQuery) else size_of(query)
        release = told.release(query, size)
        self._query, self._told, self._outputs = query, told, outputs
        self._estimate = PrivateEstimate(
            release.pop("randomizer"),
            query,
            budget=told.budget(),
            one_row_each=one_row_each,
            **release,
        )
        self._rows = rows_for(query, told, level, times)

    def expand(self, pcoll: beam.PCollection) -> Any:
        check_columns(pcoll, self._query, self._told.people)
        found = pcoll | "Private" >> self._estimate
        rows = found | "Rows" >> self._rows
        return self._outputs.of(rows, found.bad_rows, [found.withheld])


def rows_for(query: Query, told: How, level: float, times: str) -> ToRows:
    """What makes rows of a question's releases."""
    if isinstance(query, SurveyQuery):
        asked = [one for one in query.questions if not isinstance(one, LevelsQuestion)]
        labels: dict[str, Any] = {name: one.listed for one in asked for name in one.names}
    else:
        labels = {"": labels_of(query)}
    central = told.privacy.model == "shuffle"
    return ToRows(
        labels,
        MeanRow if isinstance(query, MeanQuery) else FrequencyRow,
        delta=told.privacy.delta if central else 0.0,
        honest_fraction=told.privacy.honest_fraction,
        level=level,
        times=times,
    )


@strict
def PrivateFrequencies(  # noqa: N802
    column: str,
    privacy: Mapping[str, Any],
    domain: Any = None,
    bins: Any = None,
    other: str = OTHER,
    people: Mapping[str, Any] | None = None,
    mechanism: Any = None,
    shuffle: Mapping[str, Any] | None = None,
    release: Mapping[str, Any] | None = None,
    windows: Mapping[str, Any] | None = None,
    bad_rows: str = DEAD_LETTER,
    level: float = 0.95,
    times: str = TEXT,
    error_handling: Mapping[str, Any] | None = None,
    withheld: Mapping[str, Any] | None = None,
) -> beam.PTransform:
    """How often each value of a public list occurs among people, under local privacy.

    Args:
        column: with the value.
        privacy: what it may cost: epsilon, delta, expected_users, local_epsilon, max_local_epsilon.
        domain: the public list of values, or a file with one per line.
        bins: for a column of numbers, in place of a list: edges, or LOW:HIGH:COUNT.
        other: name for all values that are not listed.
        people: whose rows they are: id, one_row, group_by, groups.
        mechanism: name of a mechanism; default: the most accurate one.
        shuffle: min_reports, output, scope.
        release: dataset, id, seed, ledger and what else belongs to a charge.
        windows: of streams: late, delay, public_bounds.
        bad_rows: dead-letter, or other: to report rows that cannot be used as `other`.
        level: probability with which an interval covers the truth.
        times: bounds of windows as text or microseconds.
        error_handling: where rows that cannot be used are listed: output.
        withheld: where it is said what is not released: output.
    """
    told = how(privacy, people, mechanism, shuffle, release, windows)
    query = frequency_query(column, domain, bins, other, bad_rows)
    outputs = OutputNames(error_handling, withheld, times)
    return EstimateToRows(query, told, outputs, level=level, times=times)


@strict
def PrivateMean(  # noqa: N802
    column: Any,
    ranges: Any,
    privacy: Mapping[str, Any],
    people: Mapping[str, Any] | None = None,
    mechanism: Any = None,
    shuffle: Mapping[str, Any] | None = None,
    release: Mapping[str, Any] | None = None,
    windows: Mapping[str, Any] | None = None,
    bad_rows: str = DEAD_LETTER,
    one_row_each: bool = False,
    level: float = 0.95,
    times: str = TEXT,
    error_handling: Mapping[str, Any] | None = None,
    withheld: Mapping[str, Any] | None = None,
) -> beam.PTransform:
    """The means of people's numbers, under local privacy.

    Args:
        column: of numbers; several are the coordinates of one vector, and cost once.
        ranges: public range of all, as [LOW, HIGH], or of each, as {COLUMN: [LOW, HIGH]}.
        privacy: as for PrivateFrequencies.
        people: as for PrivateFrequencies.
        mechanism: as for PrivateFrequencies.
        shuffle: as for PrivateFrequencies.
        release: as for PrivateFrequencies.
        windows: as for PrivateFrequencies.
        bad_rows: dead-letter, or zero: to report rows that cannot be used as the middle of ranges.
        one_row_each: declares that every id has one row, so that errors allow for no draw.
        level: as for PrivateFrequencies.
        times: as for PrivateFrequencies.
        error_handling: as for PrivateFrequencies.
        withheld: as for PrivateFrequencies.
    """
    told = how(privacy, people, mechanism, shuffle, release, windows)
    outputs = OutputNames(error_handling, withheld, times)
    query = mean_query(column, ranges, bad_rows)
    return EstimateToRows(query, told, outputs, level=level, times=times, one_row_each=one_row_each)


@strict
def PrivateQuestions(  # noqa: N802
    questions: Sequence[Any],
    privacy: Mapping[str, Any],
    people: Mapping[str, Any] | None = None,
    shuffle: Mapping[str, Any] | None = None,
    release: Mapping[str, Any] | None = None,
    windows: Mapping[str, Any] | None = None,
    bad_rows: str = DEAD_LETTER,
    level: float = 0.95,
    times: str = TEXT,
    error_handling: Mapping[str, Any] | None = None,
    withheld: Mapping[str, Any] | None = None,
) -> beam.PTransform:
    """How often each answer to each of several questions occurs, under local privacy.

    Args:
        questions: a list of questions, each with column, domain or bins, other and name.
        privacy: as for PrivateFrequencies, of all answers of a person together.
        people: as for PrivateFrequencies.
        shuffle: as for PrivateFrequencies.
        release: as for PrivateFrequencies.
        windows: as for PrivateFrequencies.
        bad_rows: as for PrivateFrequencies.
        level: as for PrivateFrequencies.
        times: as for PrivateFrequencies.
        error_handling: as for PrivateFrequencies.
        withheld: as for PrivateFrequencies.
    """
    told = how(privacy, people, None, shuffle, release, windows)
    outputs = OutputNames(error_handling, withheld, times)
    query = survey_query(questions, bad_rows)
    return EstimateToRows(query, told, outputs, level=level, times=times)
