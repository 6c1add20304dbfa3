"""Rows to blocks of values: where raw data meets the public lists, and bad rows part ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.questions.columns import (
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
    IndexLookup,
    IntegerDomain,
    user_ids,
)
from beam_ldp.questions.encoders import (
    THE_VALUE,
    ListEncoder,
    RowEncoder,
    VectorEncoder,
    WordEncoder,
)
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.settings import People
from beam_ldp.transforms.elements.blocks import BadRowBlock, TableBlock, ValueBlock
from beam_ldp.transforms.elements.portable import BLOCK_BYTES, PortableDomain, groups_of, rows_in
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

if TYPE_CHECKING:
    from beam_ldp.protocols.heavy_hitters import HeavyHitters
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges

BATCH_ROWS = 1 << 15
THE_GROUP = "group"  # the column's name where elements are pairs


@dataclass(eq=False, kw_only=True)
class EncodeBlocks(beam.DoFn):
    """Elements of any form to `ValueBlock`s; `BadRowBlock`s go to the output "bad_rows".

    Args:
        encoder: of the values.
        user_id, group: columns of the person's id and of the group, if any.
        groups: the public list of groups, if any.
        hide_bad: bad rows with a known user become values like others.
        only_listed: rows of groups that are not listed are bad, instead of counting in `other`.
        pairs: elements are `(group, value)`.
    """

    encoder: RowEncoder
    user_id: str | None
    group: str
    groups: PortableDomain | None
    hide_bad: bool
    only_listed: bool = False
    pairs: bool = False

    def setup(self) -> None:
        self.encoder.prepare()
        self._group_lookup = None
        wanted = [*(self.encoder.columns or (THE_VALUE,)), self.user_id]
        if self.groups is not None:
            groups = self.groups.load()
            if isinstance(groups, Bins):
                raise TypeError("groups must be a list of names, not bins")
            self._group_lookup = IndexLookup(groups, MAX_VALUE_BYTES)
            self._unlisted = groups.size - 1
            wanted.append(self.group)
        self._wanted = [name for name in wanted if name is not None]
        row_bytes = self.encoder.row_bytes
        self._part_rows = rows_in(BLOCK_BYTES, row_bytes) if row_bytes else None
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
            array = isinstance(element, np.ndarray)
            encoded = self.encoder.encode_array(element) if array else None
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
        if (block.groups is not None) != (self._group_lookup is not None):
            raise ValueError("groups must be given exactly where ValueBlocks hold groups")
        self._count(len(block))
        with self._timed(len(block)):
            values, codes = self.encoder.check(block.values)
        if self.hide_bad:
            codes[:] = SOUND
        yield from self._sort(replace(block, values=values), codes)

    def _encode_table(
        self, batch: pa.RecordBatch, source: str, first_position: int | None
    ) -> Iterator[Any]:
        for start in range(0, batch.num_rows or 1, self._part_rows or batch.num_rows or 1):
            part = batch.slice(start, self._part_rows)
            count = part.num_rows
            columns = {n: Column(part.column(i), count) for i, n in enumerate(part.schema.names)}
            positions = None
            if first_position is not None:
                positions = np.arange(first_position, first_position + count, dtype=np.int64)
                first_position += count
            yield from self._encode(columns, count, source, positions)

    def _encode_loose(self, rows: list[Any]) -> Iterator[Any]:
        if not rows:
            return
        if self.encoder.columns is None and not self.pairs:
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
            held = columns
            if self.encoder.columns is None and self.groups is not None:
                held = {name: one for name, one in columns.items() if name != self.group}
            values, codes = self.encoder.encode(held, num_rows)
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
        if self._group_lookup is not None:
            groups, group_codes = self._group_lookup.encode(columns.get(self.group, absent))
            group_codes[np.isin(group_codes, (MISSING, NULL, NAN))] = NO_GROUP
            np.copyto(codes, group_codes, where=codes == SOUND)
            if self.only_listed:
                codes[(codes == SOUND) & (groups == self._unlisted)] = UNLISTED_GROUP
        if self.hide_bad:
            codes[:] = SOUND
        ids = None
        if self.user_id is not None:
            ids, user_codes = user_ids(columns.get(self.user_id, absent))
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


class Encode(beam.PTransform):
    """Turns rows into `ValueBlock`s of what an encoder makes of them. Nothing is private yet.

    A row that cannot be encoded goes to the attribute `bad_rows` of the result, a collection of
    `BadRowBlock`: where it stands and why, never what it holds.

    In: `TableBlock`s, Arrow batches, mappings, `beam.Row`s, named tuples, single values or arrays;
    also `ValueBlock`s, which the encoder checks, and `(group, value)` pairs where `groups` is given
    and the type is declared. Out: `ValueBlock`s.

    Args:
        encoder: of the values.
        people: the columns with a person's id and group; with a public list of `groups` (as
            `EncodeRows` takes it, without numbers) blocks hold many groups. Where elements are no
            rows, whose they are stands in blocks, and `people.id` names it.
        bad_rows: "dead_letter" as said; "other" or "zero", where the encoder has such a value,
            turns them into it and leaves no trace of them; rows without a user id are bad rows
            either way.
        only_listed: rows of groups that are not listed are bad, instead of counting in `other`.

    Raises:
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        encoder: RowEncoder,
        *,
        people: People = People(),
        bad_rows: str = "dead_letter",
        only_listed: bool = False,
    ) -> None:
        super().__init__()
        if bad_rows not in ("dead_letter", encoder.instead):
            other = (
                "for what has no `other`" if encoder.instead is None else f'or "{encoder.instead}"'
            )
            raise ValueError(f'bad_rows must be "dead_letter" {other}, got {bad_rows!r}')
        if encoder.columns is None and people.group_by is not None:
            raise ValueError("column must name the column of the value where others are named")
        if encoder.columns is not None and people.groups is not None and people.group_by is None:
            raise ValueError("group_by must name the column of the groups where columns are named")
        self._doer = EncodeBlocks(
            encoder=encoder,
            user_id=None if encoder.columns is None else people.id,
            group=people.group_by or THE_GROUP,
            groups=groups_of(people),
            hide_bad=bad_rows != "dead_letter",
            only_listed=only_listed,
        )

    @property
    def encoder(self) -> RowEncoder:
        """Of the values."""
        return self._doer.encoder

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element, doer = element_of(pcoll), self._doer
        if element.keyed and element.kind in (ValueBlock, TableBlock):
            raise StageError(
                f"{type(self).__name__} takes {element.kind.__name__} without keys; give groups "
                "and group_column"
            )
        pairs = element.keyed and doer.groups is not None and doer.encoder.columns is None
        values, bad_rows = typed_outputs(
            pcoll,
            "Encode",
            beam.ParDo(replace(doer, pairs=pairs)),
            ValueBlock,
            bad_rows=BadRowBlock,
        )
        values.bad_rows = bad_rows
        return values

    def in_hand(self, blocks: Iterable[TableBlock]) -> Iterator[ValueBlock | BadRowBlock]:
        """The same of a few rows that are here, without a pipeline and hiding none of the bad ones:
        a look at the input before anything runs."""
        doer = replace(self._doer, hide_bad=False)
        doer.setup()
        for block in blocks:
            for found in doer.process(block):
                yield found.value if isinstance(found, TaggedOutput) else found

    def display_data(self) -> dict[str, Any]:
        shown = self.encoder.shown
        if self.encoder.instead is not None:
            hidden = self._doer.hide_bad
            shown["bad_rows"] = self.encoder.instead if hidden else "dead_letter"
        return shown


def _field(row: Any, name: str) -> Any:
    """The field of a row of any kind; ABSENT where there is none."""
    if isinstance(row, Mapping):
        return row.get(name, ABSENT)
    return getattr(row, name, ABSENT)


class EncodeRows(Encode):
    """Turns rows into `ValueBlock`s of indices: `Encode` with a public list.

    A value outside the list becomes `other`. A row that cannot be encoded (missing column, wrong
    type, null, NaN, over-long, undecodable) is a bad row. `ValueBlock`s pass unchanged.

    Args:
        domain: the public list of values: a small `Domain`, the path of a file with one value per
            line, an `IntegerDomain` for columns of indices, or `Bins` for numbers; a
            `PortableDomain` where `other` needs another label.
        column: name of the column with the value; None where elements are values.
        people: as in `Encode`.
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
        encoder = list_encoder(domain, column, max_value_bytes, domain_size)
        super().__init__(encoder, people=people, bad_rows=bad_rows)


def list_encoder(
    domain: Domain | IntegerDomain | Bins | PortableDomain | str | Path,
    column: str | None,
    max_value_bytes: int,
    size: int | None,
) -> ListEncoder:
    """The encoder of `EncodeRows`. Raises ValueError for a list at hand of another size."""
    listed = PortableDomain.of(domain)
    if size is not None:
        listed.check_size(size)
    return ListEncoder(None if column is None else (column,), listed, max_value_bytes, size)


class EncodeVectors(Encode):
    """Turns rows into `ValueBlock`s of vectors: `Encode` with columns of numbers.

    Numbers are integers, booleans, floats, decimals, or text that spells one of them (spaces
    around it allowed). A row that is no vector of finite numbers (missing column, null, NaN,
    infinite, wrong type, wrong number of coordinates, with `binary` anything but 0 and 1) is a bad
    row. Vectors are not clipped here: the randomizer does that, on the device.

    In: as for `Encode`; two-dimensional arrays, each a block of vectors; one-dimensional arrays,
    lists and tuples, each one vector (where `dimension` is 1, an array is a block of numbers, and a
    number is a vector). Out: `ValueBlock`s whose values are `(n, dimension)` float64, or float32
    where the input is.

    Args:
        columns: names of the columns of numbers, in the order of the coordinates; or the name of
            one column of lists (Arrow lists and fixed-size lists, sequences, text in brackets);
            None where elements are vectors, or where an Arrow batch holds nothing else.
        dimension: numbers per vector.
        people: as in `Encode`.
        ranges: public ranges; vectors come out scaled to the cube [-1, 1]^dimension.
        binary: numbers are 0 or 1, for mechanisms of norm "binary".
        bad_rows: "dead_letter" as said; "zero" turns them into the zero vector (with `ranges` the
            middle of all ranges) and leaves no trace of them; rows without a user id are bad rows
            in both.

    Raises:
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        columns: str | Sequence[str] | None,
        dimension: int,
        *,
        people: People = People(),
        ranges: CoordinateRanges | None = None,
        binary: bool = False,
        bad_rows: Literal["dead_letter", "zero"] = "dead_letter",
    ) -> None:
        encoder = VectorEncoder.of(columns, dimension, ranges, binary)
        super().__init__(encoder, people=people, bad_rows=bad_rows)


class EncodeWords(Encode):
    """Turns rows into `ValueBlock`s of words, as rows of bits: `Encode` with a code.

    A word that is longer than the protocol finds becomes one that nobody finds. A row that is no
    word (missing column, null, wrong type, undecodable text, more than 4,096 bytes) is a bad row.
    Out: `ValueBlock`s of uint64 `(n, words of 64 bits of a code)`.

    Args:
        protocol: which says the code.
        column: name of the column with the word; None where elements are words.
        people: as in `EncodeRows`.
        bad_rows: "dead_letter" as said; "other" turns them into a word that nobody finds, and
            leaves no trace of them; rows without a user id are bad rows in both.
    """

    def __init__(
        self,
        protocol: HeavyHitters,
        column: str | None = None,
        *,
        people: People = People(),
        bad_rows: Literal["dead_letter", "other"] = "dead_letter",
    ) -> None:
        encoder = WordEncoder(None if column is None else (column,), protocol.code)
        super().__init__(encoder, people=people, bad_rows=bad_rows)
