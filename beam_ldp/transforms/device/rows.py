"""Rows of any form to blocks of values, and bad rows to blocks of bad rows: what encoders share."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.domain import Bins
from beam_ldp.settings import People
from beam_ldp.transforms.elements.blocks import BadRowBlock, TableBlock, ValueBlock
from beam_ldp.transforms.elements.columns import (
    ABSENT,
    MAX_VALUE_BYTES,
    NO_GROUP,
    REASONS,
    SOUND,
    Codes,
    Column,
    Encoder,
)
from beam_ldp.transforms.elements.counters import (
    CROWD,
    ReasonCounters,
    Stopwatch,
    counter,
    distribution,
)
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.elements.stage_types import Element, StageError
from beam_ldp.transforms.elements.user_id_columns import user_ids

BATCH_ROWS = 1 << 15
THE_VALUE = "value"  # column names that stand for a value and its key
THE_GROUP = "group"


@dataclass(frozen=True)
class ColumnNames:
    """Which columns hold what.

    Attributes:
        values: columns of the value; None where elements are values.
        user_id, group: columns of the person's id and of the group, if any.
    """

    values: tuple[str, ...] | None = None
    user_id: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.values is None and (self.user_id is not None or self.group is not None):
            raise ValueError("column must name the column of the value where others are named")

    @classmethod
    def of(cls, values: tuple[str, ...] | None, people: People) -> ColumnNames:
        """Columns of the value and of whose it is.

        Where elements are no rows, whose they are stands in blocks, and `people.id` names it.
        """
        return cls(values, None if values is None else people.id, people.group_by)


@dataclass(frozen=True, eq=False)
class Place:
    """Where the rows of a block come from: as in `ValueBlock`."""

    source: str = ""
    positions: np.ndarray | None = None


class EncodeBlocks(beam.DoFn):
    """Elements of any form to `ValueBlock`s; `BadRowBlock`s go to the output "bad_rows".

    Args:
        names: which columns hold what.
        groups: the public list of groups, if any.
        hide_bad: bad rows with a known user become values like others.
        pairs: elements are `(group, value)`.
    """

    def __init__(
        self, names: ColumnNames, groups: PortableDomain | None, hide_bad: bool, pairs: bool = False
    ) -> None:
        self._names = names
        self._groups = groups
        self._hide_bad = hide_bad
        self._pairs = pairs

    # What a kind of value knows ----------------------------------------------------------------

    @abstractmethod
    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        """One value and one code per row; the value of a bad row is the one that hides it."""

    @abstractmethod
    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        """The same for an array of many values; None where it is a single value."""

    def encode_block(self, block: ValueBlock) -> tuple[np.ndarray, Codes]:
        """The same for values that were blocks before: by default they are what they should be."""
        return block.values, np.zeros(len(block), dtype=np.uint8)

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in parts that are encoded one by one."""
        yield batch

    # What all kinds share ----------------------------------------------------------------------

    def setup(self) -> None:
        self._group_encoder = None
        if self._groups is not None:
            groups = self._groups.load()
            if isinstance(groups, Bins):
                raise TypeError("groups must be a list of names, not bins")
            self._group_encoder = Encoder(groups, MAX_VALUE_BYTES)
        self._group_name = self._names.group or THE_GROUP
        wanted = [*(self._names.values or (THE_VALUE,)), self._names.user_id]
        if self._groups is not None:
            wanted.append(self._group_name)
        self._wanted = [name for name in wanted if name is not None]
        self._rows = counter("rows_read")
        self._bad = counter("bad_rows")
        self._reasons = ReasonCounters("bad_rows_by_reason")
        self._sizes = distribution("encode_block_rows")
        self._timed = Stopwatch("encode_microseconds", CROWD)

    def start_bundle(self) -> None:
        self._loose: dict[Any, list[Any]] = defaultdict(list)

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        if self._pairs:
            element = {THE_GROUP: element[0], THE_VALUE: element[1]}
        if isinstance(element, ValueBlock):
            yield from self._encode_block(element)
        elif isinstance(element, TableBlock):
            yield from self._encode_table(element.batch, element.source, element.first_position)
        elif isinstance(element, pa.RecordBatch):
            yield from self._encode_table(element, "", None)
        elif isinstance(element, pa.Table):
            for batch in element.to_batches():
                yield from self._encode_table(batch, "", None)
        else:
            encoded = self.encode_array(element) if isinstance(element, np.ndarray) else None
            if encoded is not None:
                self._count(len(element))
                yield from self._give(*encoded, {}, Place())
                return
            waiting = self._loose[window]
            waiting.append(element)
            if len(waiting) >= BATCH_ROWS:
                yield from self._encode_loose(waiting)
                waiting.clear()

    def finish_bundle(self) -> Iterator[Any]:
        for window, waiting in self._loose.items():
            for output in self._encode_loose(waiting):
                end = window.max_timestamp()
                if isinstance(output, TaggedOutput):
                    value = WindowedValue(output.value, end, [window])
                    yield TaggedOutput(output.tag, value)
                else:
                    yield WindowedValue(output, end, [window])
        self._loose.clear()

    def _encode_block(self, block: ValueBlock) -> Iterator[Any]:
        if (block.groups is not None) != (self._group_encoder is not None):
            raise ValueError("groups must be given exactly where ValueBlocks hold groups")
        self._count(len(block))
        with self._timed(len(block)):
            values, codes = self.encode_block(block)
        if self._hide_bad:
            codes[:] = SOUND
        yield from self._sort(replace(block, values=values), codes)

    def _encode_table(
        self, batch: pa.RecordBatch, source: str, first_position: int | None
    ) -> Iterator[Any]:
        for part in self.parts(batch):
            count = part.num_rows
            names = part.schema.names
            columns = {name: Column(part.column(i), count) for i, name in enumerate(names)}
            positions = None
            if first_position is not None:
                positions = np.arange(first_position, first_position + count, dtype=np.int64)
                first_position += count
            yield from self._encode(columns, count, Place(source, positions))

    def _encode_loose(self, rows: list[Any]) -> Iterator[Any]:
        if not rows:
            return
        if self._names.values is None and not self._pairs:
            columns = {THE_VALUE: Column(rows, len(rows))}
        else:
            columns = {
                name: Column([_field(row, name) for row in rows], len(rows))
                for name in self._wanted
            }
        yield from self._encode(columns, len(rows), Place())

    def _encode(self, columns: Mapping[str, Column], num_rows: int, place: Place) -> Iterator[Any]:
        self._count(num_rows)
        with self._timed(num_rows):
            values, codes = self.encode_values(columns, num_rows)
        yield from self._give(values, codes, columns, place)

    def _count(self, num_rows: int) -> None:
        self._rows.inc(num_rows)
        self._sizes.update(num_rows)

    def _give(
        self, values: np.ndarray, codes: Codes, columns: Mapping[str, Column], place: Place
    ) -> Iterator[Any]:
        absent = Column(None, len(values))
        groups = None
        if self._group_encoder is not None:
            groups, group_codes = self._group_encoder.encode(columns.get(self._group_name, absent))
            codes[(codes == SOUND) & (group_codes != SOUND)] = NO_GROUP
        if self._hide_bad:
            codes[:] = SOUND
        ids = None
        if self._names.user_id is not None:
            ids, user_codes = user_ids(columns.get(self._names.user_id, absent))
            codes = np.where(user_codes != SOUND, user_codes, codes)
        yield from self._sort(ValueBlock(values, ids, groups, place.source, place.positions), codes)

    def _sort(self, block: ValueBlock, codes: Codes) -> Iterator[Any]:
        """The bad rows as a block, and the sound ones as one."""
        sound = codes == SOUND
        if sound.all():
            yield block
            return
        yield TaggedOutput("bad_rows", self._bad_rows(codes, block))
        if sound.any():
            yield block.where(sound)

    def _bad_rows(self, codes: Codes, place: ValueBlock) -> BadRowBlock:
        bad = np.flatnonzero(codes)
        self._bad.inc(len(bad))
        positions = None if place.positions is None else place.positions[bad]
        reasons, index = np.unique(codes[bad], return_inverse=True)
        for reason, count in zip(reasons.tolist(), np.bincount(index.reshape(-1)).tolist()):
            self._reasons.inc(REASONS[reason], count)
        return BadRowBlock(
            place.source,
            positions,
            index.astype(np.uint8),
            tuple(REASONS[reason] for reason in reasons.tolist()),
        )


def check_rows(stage: str, element: Element) -> None:
    """Refuse elements that no encoder takes: keys belong inside blocks, as groups."""
    if element.keyed and element.kind in (ValueBlock, TableBlock):
        raise StageError(
            f"{stage} takes {element.kind.__name__} without keys; give groups and group_column"
        )


def encoded(pcoll: beam.PCollection, doer: EncodeBlocks) -> beam.PCollection:
    """The blocks of values, with the attribute `bad_rows`."""
    out = pcoll | "Encode" >> beam.ParDo(doer).with_outputs("bad_rows", main="values")
    out.values.element_type = ValueBlock
    out.bad_rows.element_type = BadRowBlock
    out.values.bad_rows = out.bad_rows
    return out.values


def _field(row: Any, name: str) -> Any:
    """The field of a row of any kind; ABSENT where there is none."""
    if isinstance(row, Mapping):
        return row.get(name, ABSENT)
    return getattr(row, name, ABSENT)
