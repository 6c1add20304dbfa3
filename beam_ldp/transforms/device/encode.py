"""Rows to blocks of values: where raw data meets the public lists, and bad rows part ways."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.settings import People
from beam_ldp.transforms.device.number_columns import BinEncoder
from beam_ldp.transforms.elements.blocks import BadRowBlock, TableBlock, ValueBlock
from beam_ldp.transforms.elements.columns import (
    ABSENT,
    MAX_VALUE_BYTES,
    MISSING,
    NAN,
    NO_GROUP,
    NULL,
    REASONS,
    SOUND,
    UNLISTED_GROUP,
    Codes,
    Column,
    Encoder,
    user_ids,
)
from beam_ldp.transforms.elements.portable import (
    IntegerDomain,
    PortableDomain,
    check_domain_size,
    groups_of,
)
from beam_ldp.transforms.elements.stages import (
    CROWD,
    ReasonCounters,
    StageError,
    Stopwatch,
    counter,
    distribution,
    element_of,
    typed_outputs,
)

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
        for column in self.values or ():
            if not isinstance(column, str):
                raise TypeError(f"column must be a name, got {type(column).__name__}")

    @classmethod
    def of(cls, values: tuple[str, ...] | None, people: People) -> ColumnNames:
        """Columns of the value and of whose it is.

        Where elements are no rows, whose they are stands in blocks, and `people.id` names it.
        """
        if values is not None and people.groups is not None and people.group_by is None:
            raise ValueError("group_by must name the column of the groups where columns are named")
        return cls(values, None if values is None else people.id, people.group_by)


@dataclass(eq=False, kw_only=True)
class EncodeBlocks(beam.DoFn):
    """Elements of any form to `ValueBlock`s; `BadRowBlock`s go to the output "bad_rows".

    Args:
        names: which columns hold what.
        groups: the public list of groups, if any.
        hide_bad: bad rows with a known user become values like others.
        only_listed: rows of groups that are not listed are bad, instead of counting in `other`.
        pairs: elements are `(group, value)`.
    """

    names: ColumnNames
    groups: PortableDomain | None
    hide_bad: bool
    only_listed: bool = False
    pairs: bool = False

    # What a kind of value knows ----------------------------------------------------------------

    @abstractmethod
    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        """One value and one code per row; the value of a bad row is the one that hides it."""

    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        """The same for an array of many values; None where it is a single value."""
        return None

    def encode_block(self, block: ValueBlock) -> tuple[np.ndarray, Codes]:
        """The same for values that were blocks before: by default they are what they should be."""
        return block.values, np.zeros(len(block), dtype=np.uint8)

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in parts that are encoded one by one."""
        yield batch

    # What all kinds share ----------------------------------------------------------------------

    def setup(self) -> None:
        self._group_encoder = None
        if self.groups is not None:
            groups = self.groups.load()
            if isinstance(groups, Bins):
                raise TypeError("groups must be a list of names, not bins")
            self._group_encoder = Encoder(groups, MAX_VALUE_BYTES)
            self._unlisted = groups.size - 1
        self._group_name = self.names.group or THE_GROUP
        wanted = [*(self.names.values or (THE_VALUE,)), self.names.user_id]
        if self.groups is not None:
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
        if self.pairs:
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
                yield from self._give(*encoded, {})
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
        if self.hide_bad:
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
            yield from self._encode(columns, count, source, positions)

    def _encode_loose(self, rows: list[Any]) -> Iterator[Any]:
        if not rows:
            return
        if self.names.values is None and not self.pairs:
            columns = {THE_VALUE: Column(rows, len(rows))}
        else:
            columns = {
                name: Column([_field(row, name) for row in rows], len(rows))
                for name in self._wanted
            }
        yield from self._encode(columns, len(rows))

    def _encode(self, columns: Mapping[str, Column], num_rows: int, *place: Any) -> Iterator[Any]:
        self._count(num_rows)
        with self._timed(num_rows):
            values, codes = self.encode_values(columns, num_rows)
        yield from self._give(values, codes, columns, *place)

    def _count(self, num_rows: int) -> None:
        self._rows.inc(num_rows)
        self._sizes.update(num_rows)

    def _give(
        self,
        values: np.ndarray,
        codes: Codes,
        columns: Mapping[str, Column],
        source: str = "",
        positions: np.ndarray | None = None,
    ) -> Iterator[Any]:
        absent = Column(None, len(values))
        groups = None
        if self._group_encoder is not None:
            groups, group_codes = self._group_encoder.encode(columns.get(self._group_name, absent))
            group_codes[np.isin(group_codes, (MISSING, NULL, NAN))] = NO_GROUP
            np.copyto(codes, group_codes, where=codes == SOUND)
            if self.only_listed:
                codes[(codes == SOUND) & (groups == self._unlisted)] = UNLISTED_GROUP
        if self.hide_bad:
            codes[:] = SOUND
        ids = None
        if self.names.user_id is not None:
            ids, user_codes = user_ids(columns.get(self.names.user_id, absent))
            codes = np.where(user_codes != SOUND, user_codes, codes)
        yield from self._sort(ValueBlock(values, ids, groups, source, positions), codes)

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


class EncodeStage(beam.PTransform):
    """What every stage does that turns rows into blocks of values: attribute `bad_rows`."""

    _doer: EncodeBlocks

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element, doer = element_of(pcoll), self._doer
        if element.keyed and element.kind in (ValueBlock, TableBlock):
            raise StageError(
                f"{type(self).__name__} takes {element.kind.__name__} without keys; give groups "
                "and group_column"
            )
        pairs = element.keyed and doer.groups is not None and doer.names.values is None
        values, bad_rows = typed_outputs(
            pcoll,
            "Encode",
            beam.ParDo(replace(doer, pairs=pairs)),
            ValueBlock,
            bad_rows=BadRowBlock,
        )
        values.bad_rows = bad_rows
        return values

    def doubts(self, values: Sequence[np.ndarray]) -> Iterator[str]:
        """What is odd about values that it made of the first rows; quotes none of them."""
        return iter(())

    def in_hand(self, blocks: Iterable[TableBlock]) -> Iterator[ValueBlock | BadRowBlock]:
        """The same of a few rows that are here, without a pipeline and hiding none of the bad ones:
        a look at the input before anything runs."""
        doer = replace(self._doer, hide_bad=False)
        doer.setup()
        for block in blocks:
            for found in doer.process(block):
                yield found.value if isinstance(found, TaggedOutput) else found


def checked_choice(bad_rows: str, hidden: str) -> bool:
    """Whether bad rows become values like others. A ValueError for anything else."""
    if bad_rows not in ("dead_letter", hidden):
        raise ValueError(f'bad_rows must be "dead_letter" or "{hidden}", got {bad_rows!r}')
    return bad_rows == hidden


def _field(row: Any, name: str) -> Any:
    """The field of a row of any kind; ABSENT where there is none."""
    if isinstance(row, Mapping):
        return row.get(name, ABSENT)
    return getattr(row, name, ABSENT)


# Indices of a public list -------------------------------------------------------------------

LEAST_VALUE_BYTES = 20  # so that no 64-bit integer is over-long


class EncodeRows(EncodeStage):
    """Turns rows into `ValueBlock`s of indices. Nothing is private yet.

    A value outside the public list becomes `other`. A row that cannot be encoded (missing column,
    wrong type, null, NaN, over-long, undecodable) goes to the attribute `bad_rows` of the result, a
    collection of `BadRowBlock`: where it stands and why, never what it holds.

    In: `TableBlock`s, Arrow batches, mappings, `beam.Row`s, named tuples, scalars or arrays; also
    `ValueBlock`s, which pass unchanged, and `(group, scalar)` pairs where `groups` is given and the
    type is declared. Out: `ValueBlock`s.

    Args:
        domain: the public list of values: a small `Domain`, the path of a file with one value per
            line, an `IntegerDomain` for columns of indices, or `Bins` for numbers; a
            `PortableDomain` where `other` needs another label.
        column: name of the column with the value; None where elements are values.
        people: the columns with a person's id and group; with a public list of `groups` (as for
            `domain`, without numbers) blocks hold many groups.
        bad_rows: "dead_letter" as said; "other" turns them into `other` and leaves no trace of
            them; rows without a user id are bad rows in both.
        max_value_bytes: a longer text is bad; at least 20.
        domain_size: if given, what the randomizer expects the size of the list to be.

    Raises:
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        domain: Domain | IntegerDomain | Bins | PortableDomain | str | Path,
        column: str | None = None,
        *,
        people: People = People(),
        bad_rows: Literal["dead_letter", "other"] = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        domain_size: int | None = None,
    ) -> None:
        super().__init__()
        hide_bad = checked_choice(bad_rows, "other")
        if max_value_bytes < LEAST_VALUE_BYTES:
            raise ValueError(
                f"max_value_bytes must be an integer >= {LEAST_VALUE_BYTES}, got {max_value_bytes}"
            )
        listed = PortableDomain.of(domain)
        groups = groups_of(people)
        if domain_size is not None:
            listed.check_size(domain_size)
        self._doer = _EncodeIndices(
            names=ColumnNames.of(None if column is None else (column,), people),
            groups=groups,
            hide_bad=hide_bad,
            domain=listed,
            max_value_bytes=max_value_bytes,
            domain_size=domain_size,
        )

    def display_data(self) -> dict[str, Any]:
        return {
            "domain": self._doer.domain.describe(),
            "bad_rows": "other" if self._doer.hide_bad else "dead_letter",
        }


@dataclass(eq=False, kw_only=True)
class _EncodeIndices(EncodeBlocks):
    domain: PortableDomain
    max_value_bytes: int
    domain_size: int | None

    def setup(self) -> None:
        super().setup()
        self._encoder = encoder_of(self.domain, self.max_value_bytes, self.domain_size)

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        if self.names.values is None and len(columns) == 1:
            (column,) = columns.values()
        else:
            (name,) = self.names.values or (THE_VALUE,)
            column = columns.get(name, Column(None, num_rows))
        return self._encoder.encode(column)

    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        if array.ndim != 1:
            return None
        values = pa.array(array) if array.dtype.kind in "iuf" else array.tolist()
        return self._encoder.encode(Column(values, len(array)))


def encoder_of(listed: PortableDomain, max_bytes: int, size: int | None) -> Encoder | BinEncoder:
    """Encodes a column as indices of a list, or of bins; on the worker, where lists are read.

    Raises:
        ValueError: if the list is not of the size that is expected, where one is.
    """
    domain = listed.load()
    if size is not None:
        check_domain_size(domain.size, size)
    return BinEncoder(domain) if isinstance(domain, Bins) else Encoder(domain, max_bytes)
