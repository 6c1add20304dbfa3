"""Rows to blocks of values: where raw data meets the public lists, and bad rows part ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.blocks import BadRow, TableBlock, ValueBlock
from beam_ldp.transforms.carried import NAMESPACE, CarriedDomain, IntegerDomain, check_domain_size
from beam_ldp.transforms.columns import (
    ABSENT,
    MAX_VALUE_BYTES,
    NO_GROUP,
    REASONS,
    SOUND,
    Column,
    Encoder,
    user_ids,
)
from beam_ldp.transforms.stage_types import element_of

BAD_ROWS = ("dead_letter", "other")
LEAST_VALUE_BYTES = 20  # so that no 64-bit integer is over-long
BATCH_ROWS = 1 << 15
UNKNOWN_POSITION = -1
_THE_VALUE = "value"  # column names that stand for a scalar and its key
_THE_GROUP = "group"


class EncodeRows(beam.PTransform):
    """Turns rows into `ValueBlock`s of indices. Nothing is private yet.

    A value outside the public list becomes `other`. A row that cannot be encoded (missing column,
    wrong type, null, NaN, over-long, undecodable) goes to the attribute `bad_rows` of the result, a
    collection of `BadRow`: where it stands and why, never what it holds.

    In: `TableBlock`s, Arrow batches, mappings, `beam.Row`s, named tuples, scalars or arrays; also
    `ValueBlock`s, which pass unchanged, and `(group, scalar)` pairs where `groups` is given and the
    type is declared. Out: `ValueBlock`s.

    Args:
        domain: the public list of values: a small `Domain`, the path of a file with one value per
            line, or an `IntegerDomain` for columns of indices; a `CarriedDomain` where `other`
            needs another label.
        column: name of the column with the value; None where elements are values.
        user_id_column: name of the column with the person's id; None where each row is a person.
        groups: the public list of groups, as for `domain`; blocks then hold many groups.
        group_column: name of the column with the group.
        bad_rows: "dead_letter" as said; "other" turns them into `other` and leaves no trace of
            them; rows without a user id are bad rows in both.
        max_value_bytes: a longer text is bad; at least 20.
        domain_size: if given, what the randomizer expects the size of the list to be.

    Raises:
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        domain: Domain | IntegerDomain | CarriedDomain | str | Path,
        column: str | None = None,
        *,
        user_id_column: str | None = None,
        groups: Domain | str | Path | None = None,
        group_column: str | None = None,
        bad_rows: Literal["dead_letter", "other"] = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        domain_size: int | None = None,
    ) -> None:
        super().__init__()
        if bad_rows not in BAD_ROWS:
            raise ValueError(f'bad_rows must be "dead_letter" or "other", got {bad_rows!r}')
        if max_value_bytes < LEAST_VALUE_BYTES:
            raise ValueError(
                f"max_value_bytes must be an integer >= {LEAST_VALUE_BYTES}, got {max_value_bytes}"
            )
        if group_column is not None and groups is None:
            raise ValueError("groups must be given with group_column: the list of groups is public")
        if column is None and (user_id_column is not None or group_column is not None):
            raise ValueError("column must name the column of the value where others are named")
        self._domain = domain if isinstance(domain, CarriedDomain) else CarriedDomain(domain)
        self._groups = None if groups is None else CarriedDomain(groups)
        if domain_size is not None:
            self._domain.check_size(domain_size)
        self._columns = (column, user_id_column, group_column)
        self._to_other = bad_rows == "other"
        self._max_value_bytes = max_value_bytes
        self._domain_size = domain_size

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = element_of(pcoll)
        pairs = element.keyed and self._groups is not None and self._columns[0] is None
        out = pcoll | "Encode" >> beam.ParDo(
            _Encode(
                self._domain,
                self._groups,
                self._columns,
                self._to_other,
                self._max_value_bytes,
                self._domain_size,
                pairs,
            )
        ).with_outputs("bad_rows", main="values")
        out.values.element_type = ValueBlock
        out.bad_rows.element_type = BadRow
        out.values.bad_rows = out.bad_rows
        return out.values

    def display_data(self) -> dict[str, Any]:
        return {
            "domain": self._domain.describe(),
            "bad_rows": "other" if self._to_other else "dead_letter",
        }


class _Encode(beam.DoFn):
    def __init__(
        self,
        domain: CarriedDomain,
        groups: CarriedDomain | None,
        columns: tuple[str | None, str | None, str | None],
        to_other: bool,
        max_value_bytes: int,
        domain_size: int | None,
        pairs: bool,
    ) -> None:
        self._domain = domain
        self._groups = groups
        self._columns = columns
        self._to_other = to_other
        self._max_value_bytes = max_value_bytes
        self._domain_size = domain_size
        self._pairs = pairs

    def setup(self) -> None:
        domain = self._domain.load()
        if self._domain_size is not None:
            check_domain_size(domain.size, self._domain_size)
        self._encoder = Encoder(domain, self._max_value_bytes)
        self._group_encoder = None
        if self._groups is not None:
            self._group_encoder = Encoder(self._groups.load(), self._max_value_bytes)
        column, user_column, group_column = self._columns
        self._value_name = column or _THE_VALUE
        self._user_name = user_column
        self._group_name = group_column or _THE_GROUP
        self._rows = Metrics.counter(NAMESPACE, "rows_read")
        self._bad = Metrics.counter(NAMESPACE, "bad_rows")

    def start_bundle(self) -> None:
        self._loose: dict[Any, list[Any]] = defaultdict(list)

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        if self._pairs and not isinstance(element[1], (ValueBlock, TableBlock, np.ndarray)):
            element = {_THE_GROUP: element[0], _THE_VALUE: element[1]}
        if isinstance(element, ValueBlock):
            self._check_block(element)
            self._rows.inc(len(element))
            yield element
        elif isinstance(element, TableBlock):
            yield from self._encode_table(element.batch, element.source, element.first_position)
        elif isinstance(element, (pa.RecordBatch, pa.Table)):
            for batch in (
                pa.Table.from_batches([element]).to_batches()
                if isinstance(element, pa.RecordBatch)
                else element.to_batches()
            ):
                yield from self._encode_table(batch, "", None)
        elif isinstance(element, np.ndarray) and element.ndim == 1:
            column = Column(element.tolist(), len(element))
            if element.dtype.kind in "iu":
                column = Column(pa.array(element), len(element))
            yield from self._encode({self._value_name: column}, len(element), "", None)
        else:
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

    def _check_block(self, block: ValueBlock) -> None:
        if (block.groups is not None) != (self._group_encoder is not None):
            raise ValueError("groups must be given exactly where ValueBlocks hold groups")

    def _encode_table(
        self, batch: pa.RecordBatch, source: str, first_position: int | None
    ) -> Iterator[Any]:
        names = batch.schema.names
        columns = {name: Column(batch.column(i), batch.num_rows) for i, name in enumerate(names)}
        if self._columns[0] is None and len(names) == 1:
            columns = {self._value_name: columns[names[0]]}
        yield from self._encode(columns, batch.num_rows, source, first_position)

    def _encode_loose(self, rows: list[Any]) -> Iterator[Any]:
        if not rows:
            return
        if self._columns[0] is None and not self._pairs:
            columns = {self._value_name: Column(rows, len(rows))}
        else:
            wanted = [self._value_name, self._user_name, self._group_name]
            columns = {
                name: Column([_field(row, name) for row in rows], len(rows))
                for name in wanted
                if name is not None
            }
        yield from self._encode(columns, len(rows), "", None)

    def _encode(
        self, columns: Mapping[str, Column], num_rows: int, source: str, first: int | None
    ) -> Iterator[Any]:
        absent = Column(None, num_rows)
        self._rows.inc(num_rows)
        values, codes = self._encoder.encode(columns.get(self._value_name, absent))
        groups = None
        if self._group_encoder is not None:
            groups, group_codes = self._group_encoder.encode(columns.get(self._group_name, absent))
            codes[(codes == SOUND) & (group_codes != SOUND)] = NO_GROUP
        if self._to_other:
            codes[:] = SOUND
        integers: np.ndarray | None = None
        texts: np.ndarray | None = None
        if self._user_name is not None:
            integers, user_codes, texts = user_ids(columns.get(self._user_name, absent))
            codes = np.where(user_codes != SOUND, user_codes, codes)
        positions = None if first is None else np.arange(first, first + num_rows, dtype=np.int64)
        if codes.any():
            yield from self._bad_rows(codes, source, positions)
        yield from _blocks(values, codes == SOUND, groups, integers, texts, source, positions)

    def _bad_rows(
        self, codes: np.ndarray, source: str, positions: np.ndarray | None
    ) -> Iterator[TaggedOutput]:
        bad = np.flatnonzero(codes)
        self._bad.inc(len(bad))
        for row in bad.tolist():
            position = UNKNOWN_POSITION if positions is None else int(positions[row])
            yield TaggedOutput("bad_rows", BadRow(source, position, REASONS[codes[row]]))


def _blocks(
    values: np.ndarray,
    sound: np.ndarray,
    groups: np.ndarray | None,
    integers: np.ndarray | None,
    texts: np.ndarray | None,
    source: str,
    positions: np.ndarray | None,
) -> Iterator[ValueBlock]:
    """The sound rows as blocks: one, or two where some ids are integers and others are text."""
    if integers is None:
        selections: list[tuple[np.ndarray, np.ndarray | None]] = [(sound, None)]
    elif texts is None:
        selections = [(sound, integers)]
    else:
        textual = np.array([text is not None for text in texts.tolist()], dtype=bool)
        selections = [(sound & ~textual, integers), (sound & textual, texts)]
    for rows, ids in selections:
        if rows.all():
            yield ValueBlock(values, ids, groups, source, positions)
        elif rows.any():
            yield ValueBlock(
                values[rows],
                None if ids is None else ids[rows],
                None if groups is None else groups[rows],
                source,
                None if positions is None else positions[rows],
            )


def _field(row: Any, name: str) -> Any:
    """The field of a row of any kind; ABSENT where there is none."""
    if isinstance(row, Mapping):
        return row.get(name, ABSENT)
    return getattr(row, name, ABSENT)
