"""Rows in, private estimates out, as transforms of Beam YAML.

What comes out are rows with a schema of plain numbers and text, which every sink takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import apache_beam as beam
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_ldp.randomizers.domain import OTHER
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.transforms.collector.release_rows import FrequencyRow, MeanRow, fields_of, rows_of
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, WithheldRelease
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.queries import MeanQuery, Query
from beam_ldp.transforms.questions import LevelsQuestion, SurveyQuery
from beam_ldp.transforms.yaml.config import (
    How,
    check_columns,
    check_keys,
    frequency_query,
    how,
    labels_of,
    mean_query,
    size_of,
    strict,
    survey_query,
)

TEXT, MICROSECONDS = "text", "microseconds"
GOOD = "good"  # Beam YAML's own name of what is not bad
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BAD = [("msg", str), ("rows", int), ("source", str), ("position", int)]


def text_of(micros: int) -> str:
    """A time as ISO 8601 in UTC.

    >>> text_of(1_700_000_000_000_000), text_of(1_700_000_000_500_000)
    ('2023-11-14T22:13:20Z', '2023-11-14T22:13:20.500000Z')
    """
    return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


class ToRows(beam.PTransform):
    """Releases to rows.

    In: `Release`s, with or without keys. Out: a row for each value of the list, or each coordinate:
    the fields of `FrequencyRow` or `MeanRow`, with the window's bounds as text or as microseconds
    since 1970, and of the whole release `reports`, `mechanism`, `local_epsilon`, `epsilon` (None
    where no central cost is stated), `delta`, `simulated` and `late`.

    Args:
        labels: what an estimate is about, by question; "" for the only one.
        kind: `FrequencyRow` or `MeanRow`.
        delta: of the central epsilon; 0: none is stated.
        honest_fraction: share of the reports that hide a person.
        level: probability with which an interval covers the truth.
        times: "text" or "microseconds".
    """

    def __init__(
        self,
        labels: Mapping[str, PortableDomain | tuple[str, ...]],
        kind: type[FrequencyRow] | type[MeanRow],
        *,
        delta: float,
        honest_fraction: float,
        level: float,
        times: str,
    ) -> None:
        super().__init__()
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
            raise SettingError("level must lie in (0, 1)", level)
        if times not in (TEXT, MICROSECONDS):
            raise SettingError(f"times must be {TEXT} or {MICROSECONDS}", times)
        self._kind, self._times = kind, times
        self._doer = _Rows(labels, delta, honest_fraction, level, times)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return pcoll | beam.ParDo(self._doer).with_output_types(schema_of(self._kind, self._times))


def schema_of(kind: type[FrequencyRow] | type[MeanRow], times: str) -> Any:
    """The type of the rows."""
    plain = {"text": str, "number": float, "time": str if times == TEXT else int}
    fields = [(n, plain[s] | None if null else plain[s]) for n, s, null in fields_of(kind)]
    return RowTypeConstraint.from_fields(
        [
            *fields,
            ("reports", int),
            ("mechanism", str),
            ("local_epsilon", float),
            ("epsilon", float | None),
            ("delta", float | None),
            ("simulated", bool),
            ("late", bool),
        ]
    )


class _Rows(beam.DoFn):
    def __init__(
        self, labels: Mapping[str, Any], delta: float, honest: float, level: float, times: str
    ) -> None:
        self._labels, self._times = labels, times
        self._delta, self._honest, self._level = delta, honest, level

    def process(self, element: Any) -> Iterator[beam.Row]:
        release: Release = element[1] if isinstance(element, tuple) else element
        listed = self._labels.get(release.question, self._labels.get(""))
        labels = listed.load().labels if isinstance(listed, PortableDomain) else listed
        epsilon = self._epsilon(release)
        whole = {
            "reports": release.num_reports,
            "mechanism": str(release.mechanism.get("mechanism", "")),
            "local_epsilon": _local_epsilon(release),
            "epsilon": epsilon,
            "delta": None if epsilon is None else self._delta,
            "simulated": release.simulated,
            "late": release.late,
        }
        for row in rows_of(release, labels, self._level):
            told = row._asdict()
            for name in ("window_start", "window_end"):
                told[name] = bound_of(told[name], self._times)
            yield beam.Row(**told, **whole)

    def _epsilon(self, release: Release) -> float | None:
        if release.simulated or not self._delta:
            return None
        from beam_ldp.accounting.prices import event_epsilon  # loads SciPy
        from beam_ldp.transforms.budgeted import honest_event

        return float(event_epsilon(honest_event(release.ran, self._honest), self._delta))


def _local_epsilon(release: Release) -> float:
    from beam_ldp.randomizers.base import LocalRandomizer

    return float(LocalRandomizer.from_config(release.mechanism).local_epsilon)


def bound_of(time: Any, times: str) -> Any:
    """A bound of a window as rows have it; None for what has none."""
    if time is None:
        return None
    micros = int(getattr(time, "micros", time))
    return micros if times == MICROSECONDS else text_of(micros)


# Beside the rows: what is bad, and what is withheld ----------------------------------------


class BadToRows(beam.PTransform):
    """Bad rows as rows: `msg`, the reason, `rows`, how many, and where they stand, if that is
    known. Never what they hold, for a null in a column of diagnoses is an answer.

    In: `BadRowBlock`s.
    """

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        schema = RowTypeConstraint.from_fields(_BAD)
        return pcoll | beam.FlatMap(bad_rows_of).with_output_types(schema)


def bad_rows_of(block: BadRowBlock) -> Iterator[beam.Row]:
    """One row for each bad row that has a place; one for all of a reason that have none."""
    if block.positions is None:
        for code in sorted(set(block.codes.tolist())):
            count = int((block.codes == code).sum())
            yield beam.Row(msg=block.reasons[code], rows=count, source=block.source, position=-1)
        return
    for bad in block:
        yield beam.Row(msg=bad.reason, rows=1, source=bad.source, position=bad.position)


class WithheldToRows(beam.PTransform):
    """What is not released, as rows: `msg`, the reason, and how many reports there were.

    In: `WithheldRelease`s.

    Args:
        times: as in `ToRows`.
    """

    def __init__(self, times: str) -> None:
        super().__init__()
        self._times = times

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        time: Any = str if self._times == TEXT else int
        schema = RowTypeConstraint.from_fields(
            [
                ("msg", str),
                ("question", str),
                ("group", str | None),
                ("window_start", time | None),
                ("window_end", time | None),
                ("reports", int),
                ("min_reports", int),
                ("late", bool),
            ]
        )
        return pcoll | beam.Map(_withheld_row, self._times).with_output_types(schema)


def _withheld_row(notice: WithheldRelease, times: str) -> beam.Row:
    start, end = notice.window or (None, None)
    return beam.Row(
        msg=notice.reason,
        question=notice.question,
        group=notice.group,
        window_start=bound_of(start, times),
        window_end=bound_of(end, times),
        reports=notice.num_reports,
        min_reports=notice.min_reports,
        late=notice.late,
    )


class OutputNames:
    """Names of the collections that a transform gives beside its rows.

    Args:
        error_handling: `{output: NAME}`, as for all of Beam YAML.
        withheld: likewise, for what is not released.
        times: as in `ToRows`.

    Raises:
        SettingError: for anything else.
    """

    def __init__(self, error_handling: Any, withheld: Any = None, times: str = TEXT) -> None:
        self._bad = _output("error_handling", error_handling)
        self._withheld = _output("withheld", withheld)
        self._times = times
        names = [name for name in (GOOD, self._bad, self._withheld) if name is not None]
        if len(set(names)) < len(names):
            raise SettingError(f"outputs must have different names, and none of them {GOOD}")

    def of(
        self,
        rows: beam.PCollection,
        bad_rows: beam.PCollection | None,
        withheld: Iterable[beam.PCollection] = (),
    ) -> Any:
        """The rows; with the others, if they were asked for, by name."""
        found = {GOOD: rows}
        if self._bad is not None:
            assert bad_rows is not None
            found[self._bad] = bad_rows | "Bad rows" >> BadToRows()
        if self._withheld is not None:
            notices = tuple(withheld) | "Notices" >> beam.Flatten(pipeline=rows.pipeline)
            found[self._withheld] = notices | "Withheld" >> WithheldToRows(self._times)
        return rows if len(found) == 1 else found


def _output(home: str, given: Any) -> str | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not isinstance(given.get("output"), str):
        raise SettingError(f"{home} must name an output: output: NAME")
    check_keys(home, given, ("output",))
    return str(given["output"])


# The transforms ---------------------------------------------------------------------------


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
