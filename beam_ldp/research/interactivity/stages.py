"""Who was asked what, in a pipeline: the audit of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.research.interactivity.auditing import InteractivityReport, claim_of
from beam_ldp.research.interactivity.log_files import reason_of, records_of_rows
from beam_ldp.research.interactivity.records import (
    ROW,
    About,
    RecordBlock,
    records_of,
)
from beam_ldp.research.interactivity.tallies import Claim, LogTally, Tally, tally
from beam_ldp.transforms.elements.blocks import BadRow
from beam_ldp.transforms.elements.stages import (
    StageError,
    expect_unshuffled,
    typed_outputs,
)

_SHARDS = 64
_ABOUT = -1  # the key of what is known beside people
_WAITING = 10_000  # rows of a bundle that become records together


@dataclass(eq=False, repr=False)
class AuditInteractivity(beam.PTransform):
    """Who was asked what: sums per person against a promise, retries, waves, compositionality.

    In: records with the columns of a log (`beam_ldp.research.interactivity.records`), as
    dictionaries, `beam.Row`s or Arrow batches, in the global window. Out: one dictionary, that of
    `InteractivityReport.to_json` and `num_bad_rows`; people are in it as numbers alone. It is about
    the records that could be read; what is no record goes to the attribute `bad_rows` of the
    result, a collection of `BadRow`, and makes the report unclean.

    It needs to know who is who, so it belongs before the shuffle, where the ids of people are;
    what comes out of a shuffler is refused.

    Args:
        epsilon, delta: what everybody was promised.

    Raises:
        StageError: for what has gone through a `Shuffle`, and for windows.
        ValueError: for no epsilon or delta.

    >>> import apache_beam as beam
    >>> asked = {"randomizer": "rr", "epsilon": 0.5, "output": 1, "assign_seq": 0}
    >>> rows = [{"seq": i, "user": i % 2, "round": i // 2, **asked} for i in range(4)]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     report = pipeline | beam.Create(rows) | AuditInteractivity(epsilon=1)
    ...     _ = report | beam.Map(lambda told: print(told["clean"], told["k_hat"]))
    True 1.0
    """

    epsilon: float
    _: KW_ONLY
    delta: float = 0.0

    def __post_init__(self) -> None:
        self._claim = claim_of(self.epsilon, self.delta)

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        expect_unshuffled("AuditInteractivity", records)
        if not isinstance(records.windowing.windowfn, GlobalWindows):
            raise StageError("AuditInteractivity takes records in the global window")
        keyed, bad_rows = typed_outputs(
            records,
            "Read",
            beam.ParDo(_Read()),
            typehints.Tuple[int, typehints.Any],
            bad_rows=BadRow,
        )
        report = (
            keyed
            | "Bring people together" >> beam.GroupByKey()
            | "Add up" >> beam.Map(_add_up, self._claim).with_output_types(typehints.Any)
            | "Everybody" >> beam.CombineGlobally(_together)
            | "Report"
            >> beam.Map(_report, self.epsilon, self.delta).with_output_types(typehints.Any)
        )
        report.bad_rows = bad_rows
        return report

    def display_data(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta}


@dataclass(frozen=True, eq=False)
class _Sums:
    """Of some people."""

    people: Tally = field(default_factory=Tally)
    about: About = field(default_factory=About)
    bad_rows: int = 0

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.people + other.people, self.about + other.about, self.bad_rows + other.bad_rows
        )


class _Read(beam.DoFn):
    """Rows to records by a hash of the person; what is no record goes to the dead letters."""

    def start_bundle(self) -> None:
        self._rows: list[Any] = []

    def process(self, element: Any) -> Iterator[Any]:
        if isinstance(element, (pa.RecordBatch, pa.Table)):
            yield from self._batch(element)
            return
        self._rows.append(element.as_dict() if hasattr(element, "as_dict") else element)
        if len(self._rows) >= _WAITING:
            yield from self._loose()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for one in self._loose():
            yield WindowedValue(one, window.max_timestamp(), [window])

    def _batch(self, batch: pa.RecordBatch | pa.Table) -> Iterator[Any]:
        try:
            yield from _keyed(records_of(batch))
        except ValueError:
            self._rows += batch.to_pylist()
            yield from self._loose()

    def _loose(self) -> Iterator[Any]:
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            yield from _keyed(records_of_rows(rows))
        except ValueError:
            for row in rows:
                yield from self._one(row)

    def _one(self, row: Any) -> Iterator[Any]:
        try:
            yield from _keyed(records_of_rows([row]))
        except ValueError as error:
            yield _ABOUT, (About(), 1)
            yield beam.pvalue.TaggedOutput("bad_rows", BadRow("", -1, reason_of(error)))


def _keyed(block: RecordBlock) -> Iterator[tuple[int, Any]]:
    yield _ABOUT, (block.about, 0)
    shard = (block.rows["person"] % np.uint64(_SHARDS)).astype(np.int64)
    for number in np.unique(shard).tolist():
        yield number, block.rows[shard == number].tobytes()


def _add_up(element: tuple[int, Iterable[Any]], claim: Claim) -> _Sums:
    key, held = element
    if key == _ABOUT:
        return _together(_Sums(about=about, bad_rows=bad) for about, bad in held)
    return _Sums(tally(np.frombuffer(b"".join(held), dtype=ROW), claim))


def _together(parts: Iterable[_Sums]) -> _Sums:
    return sum(parts, _Sums())


def _report(sums: _Sums, epsilon: float, delta: float) -> dict[str, Any]:
    log = LogTally(sums.people, sums.about.declared, len(sums.about.runs))
    told = InteractivityReport(epsilon, delta, log, {}).to_json()
    return {**told, "clean": told["clean"] and not sums.bad_rows, "num_bad_rows": sums.bad_rows}
