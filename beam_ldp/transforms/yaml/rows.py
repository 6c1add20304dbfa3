"""Rows in, private estimates out, as transforms of Beam YAML.

What comes out are rows with a schema of plain numbers and text, which every sink takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import apache_beam as beam
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_ldp.questions.base import Asked
from beam_ldp.questions.means import Means
from beam_ldp.questions.surveys import LevelsQuestion, Survey
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.transforms.collector.release_rows import FrequencyRow, MeanRow, fields_of, rows_of
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, WithheldRelease
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.yaml.config import (
    ANY_QUESTION,
    NEEDED,
    SECTIONS,
    AskedBy,
    Group,
    How,
    Key,
    Section,
    check_columns,
    check_keys,
    labels_of,
    strict,
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


@dataclass(eq=False)
class _Rows(beam.DoFn):
    """Releases to rows: one for each value of the list, or each coordinate.

    They have the fields of `FrequencyRow` or `MeanRow`, with the window's bounds as text or as
    microseconds since 1970, and of the whole release `reports`, `mechanism`, `local_epsilon`,
    `epsilon` (None where no central cost is stated), `delta`, `simulated` and `late`.

    Args:
        labels: what an estimate is about, by question; "" for the only one.
        delta: of the central epsilon; 0: none is stated.
        honest: share of the reports that hide a person.
        level, times: as in `RowOutputs`.
    """

    labels: Mapping[str, PortableDomain | tuple[str, ...]]
    delta: float
    honest: float
    level: float
    times: str

    def process(self, element: Any) -> Iterator[beam.Row]:
        release: Release = element[1] if isinstance(element, tuple) else element
        listed = self.labels.get(release.question, self.labels.get(""))
        labels = listed.load().labels if isinstance(listed, PortableDomain) else listed
        epsilon = self._epsilon(release)
        whole = {
            "reports": release.num_reports,
            "mechanism": str(release.mechanism.get("mechanism", "")),
            "local_epsilon": _local_epsilon(release),
            "epsilon": epsilon,
            "delta": None if epsilon is None else self.delta,
            "simulated": release.simulated,
            "late": release.late,
        }
        for row in rows_of(release, labels, self.level):
            told = row._asdict()
            for name in ("window_start", "window_end"):
                told[name] = bound_of(told[name], self.times)
            yield beam.Row(**told, **whole)

    def _epsilon(self, release: Release) -> float | None:
        if release.simulated or not self.delta:
            return None
        from beam_ldp.accounting.prices import event_epsilon  # loads SciPy
        from beam_ldp.transforms.budgeted import honest_event

        return float(event_epsilon(honest_event(release.ran, self.honest), self.delta))


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


def bad_rows_of(block: BadRowBlock) -> Iterator[beam.Row]:
    """Bad rows as rows: `msg`, the reason, `rows`, how many, and where they stand; one for all of a
    reason that have no place. Never what they hold: a null in a column of diagnoses is an answer.
    """
    if block.positions is None:
        for code in sorted(set(block.codes.tolist())):
            count = int((block.codes == code).sum())
            yield beam.Row(msg=block.reasons[code], rows=count, source=block.source, position=-1)
        return
    for bad in block:
        yield beam.Row(msg=bad.reason, rows=1, source=bad.source, position=bad.position)


def _withheld_schema(times: str) -> Any:
    time: Any = str if times == TEXT else int
    return RowTypeConstraint.from_fields(
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


def _withheld_row(notice: WithheldRelease, times: str) -> beam.Row:
    """What is not released: `msg`, the reason, and how many reports there were."""
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


class RowOutputs:
    """How estimates are written, and names of the collections beside them.

    Args:
        level: probability with which an interval covers the truth.
        times: bounds of windows as "text" or "microseconds".
        error_handling: `{output: NAME}`, as for all of Beam YAML.
        withheld: likewise, for what is not released.

    Raises:
        SettingError: for anything else.
    """

    def __init__(
        self,
        level: float = 0.95,
        times: str = TEXT,
        error_handling: Any = None,
        withheld: Any = None,
    ) -> None:
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
            raise SettingError("level must lie in (0, 1)", level)
        if times not in (TEXT, MICROSECONDS):
            raise SettingError(f"times must be {TEXT} or {MICROSECONDS}", times)
        self.level, self.times = level, times
        self._bad = _output("error_handling", error_handling)
        self._withheld = _output("withheld", withheld)
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
            listing = beam.FlatMap(bad_rows_of)
            schema = RowTypeConstraint.from_fields(_BAD)
            found[self._bad] = bad_rows | "Bad rows" >> listing.with_output_types(schema)
        if self._withheld is not None:
            notices = tuple(withheld) | "Notices" >> beam.Flatten(pipeline=rows.pipeline)
            listing = beam.Map(_withheld_row, self.times)
            schema = _withheld_schema(self.times)
            found[self._withheld] = notices | "Withheld" >> listing.with_output_types(schema)
        return rows if len(found) == 1 else found


def _output(home: str, given: Any) -> str | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not isinstance(given.get("output"), str):
        raise SettingError(f"{home} must name an output: output: NAME")
    check_keys(home, given, ("output",))
    return str(given["output"])


OUTPUTS = Group(
    {
        "level": Key(float, "probability with which an interval covers the truth.", 0.95),
        "times": Key(str, "bounds of windows as text or microseconds.", TEXT),
        "error_handling": Key(Section | None, "where rows that cannot be used are listed: output."),
        "withheld": Key(Section | None, "where it is said what is not released: output."),
    },
    RowOutputs,
)


# The transforms ---------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class AskedRelease(beam.PTransform):
    """What a question is asked by, as one release.

    Args:
        query: what is asked.
        told: everything else.
        outputs: how estimates are written, and what stands beside the rows.
    """

    query: Asked
    told: How
    outputs: RowOutputs

    def estimate(self, **how: Any) -> PrivateEstimate:
        """The release in one piece, which says its mechanism and identity."""
        release = self.told.release(self.query) | how
        return PrivateEstimate(release.pop("randomizer"), self.query, **release)

    def rows(self) -> beam.PTransform:
        """`Release`s, with or without keys, to rows."""
        query, told, outputs = self.query, self.told, self.outputs
        if isinstance(query, Survey):
            asked = [one for one in query.questions if not isinstance(one, LevelsQuestion)]
            labels: dict[str, Any] = {name: one.listed for one in asked for name in one.names}
        else:
            labels = {"": labels_of(query)}
        delta = told.privacy.delta if told.privacy.model == "shuffle" else 0.0
        doer = _Rows(labels, delta, told.privacy.honest_fraction, outputs.level, outputs.times)
        kind = MeanRow if isinstance(query, Means) else FrequencyRow
        return beam.ParDo(doer).with_output_types(schema_of(kind, outputs.times))


@dataclass(eq=False, repr=False)
class EstimateToRows(AskedRelease):
    """A private estimate of rows with a schema, as rows with a schema.

    In: rows. Out: rows as `_Rows` makes them; a dictionary of outputs where others are named.

    Args:
        one_row_each: as in `PrivateEstimate`.
    """

    one_row_each: bool = False

    def __post_init__(self) -> None:
        budget = self.told.budget()
        self._estimate = self.estimate(budget=budget, one_row_each=self.one_row_each)

    def expand(self, pcoll: beam.PCollection) -> Any:
        check_columns(pcoll, self.query, self.told.people)
        found = pcoll | "Private" >> self._estimate
        rows = found | "Rows" >> self.rows()
        return self.outputs.of(rows, found.bad_rows, [found.withheld])


_COLUMN = Key(str, "with the value.", NEEDED)
_COORDINATES = Key(
    Any, "of numbers; several are the coordinates of one vector, and cost once.", NEEDED
)
_RANGES = Key(
    Any, "public range of all, as [LOW, HIGH], or of each, as {COLUMN: [LOW, HIGH]}.", NEEDED
)
_QUESTIONS = Key(
    Sequence[Any], "a list of questions, each with column, domain or bins, other and name.", NEEDED
)
_LISTED: dict[str, None] = dict.fromkeys(("domain", "bins", "other"))


@strict(
    asked=ANY_QUESTION.but(column=_COLUMN, ranges=None, questions=None),
    told=SECTIONS,
    outputs=OUTPUTS,
)
def PrivateFrequencies(  # noqa: N802
    *, asked: AskedBy, told: How, bad_rows: str = DEAD_LETTER, outputs: RowOutputs
) -> beam.PTransform:
    """How often each value of a public list occurs among people, under local privacy.

    Args:
        bad_rows: dead-letter, or other: to report rows that cannot be used as `other`.
    """
    return EstimateToRows(asked(bad_rows), told, outputs)


@strict(
    asked=ANY_QUESTION.but(column=_COORDINATES, ranges=_RANGES, questions=None, **_LISTED),
    told=SECTIONS,
    outputs=OUTPUTS,
)
def PrivateMean(  # noqa: N802
    *,
    asked: AskedBy,
    told: How,
    bad_rows: str = DEAD_LETTER,
    one_row_each: bool = False,
    outputs: RowOutputs,
) -> beam.PTransform:
    """The means of people's numbers, under local privacy.

    Args:
        bad_rows: dead-letter, or zero: to report rows that cannot be used as the middle of ranges.
        one_row_each: declares that every id has one row, so that errors allow for no draw.
    """
    return EstimateToRows(asked(bad_rows), told, outputs, one_row_each)


@strict(
    asked=ANY_QUESTION.but(column=None, ranges=None, questions=_QUESTIONS, **_LISTED),
    told=SECTIONS.but(mechanism=None),
    outputs=OUTPUTS,
)
def PrivateQuestions(  # noqa: N802
    *, asked: AskedBy, told: How, bad_rows: str = DEAD_LETTER, outputs: RowOutputs
) -> beam.PTransform:
    """How often each answer to each of several questions occurs, under local privacy.

    Args:
        bad_rows: dead-letter, or other: to report rows that cannot be used as `other`.
    """
    return EstimateToRows(asked(bad_rows), told, outputs)
