"""Rows to vectors, and many vectors of a person to their mean, inside the trusted edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import ListCoder
from apache_beam.typehints import typehints

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.settings import People
from beam_ldp.transforms.device.bounding import HELD_ROWS, NUM_SHARDS, by_shard
from beam_ldp.transforms.device.encode import ColumnNames, EncodeBlocks, EncodeStage, checked_choice
from beam_ldp.transforms.device.number_columns import VectorEncoder
from beam_ldp.transforms.elements import block_coder
from beam_ldp.transforms.elements.blocks import ValueBlock
from beam_ldp.transforms.elements.columns import NOT_BINARY, SOUND, Codes, Column
from beam_ldp.transforms.elements.portable import BLOCK_BYTES, groups_of, rows_in
from beam_ldp.transforms.elements.stages import check_fires_once, check_windows, counter, expect

if TYPE_CHECKING:
    from beam_ldp.protocols import Space
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges


class EncodeVectors(EncodeStage):
    """Turns rows into `ValueBlock`s of vectors. Nothing is private yet.

    Numbers are integers, booleans, floats, decimals, or text that spells one of them (spaces
    around it allowed). A row that is no vector of finite numbers (missing column, null, NaN,
    infinite, wrong type, wrong number of coordinates, with `binary` anything but 0 and 1) goes to
    the attribute `bad_rows` of the result, a collection of `BadRowBlock`: where it stands and why,
    never what it holds.

    Vectors are not clipped here: the randomizer does that, on the device.

    In: `TableBlock`s, Arrow batches, mappings, `beam.Row`s, named tuples; two-dimensional arrays,
    each a block of vectors; one-dimensional arrays, lists and tuples, each one vector (where
    `dimension` is 1, an array is a block of numbers, and a number is a vector); `ValueBlock`s,
    which are checked; `(group, vector)` pairs where `groups` is given and the type is declared.
    Out: `ValueBlock`s whose values are `(n, dimension)` float64, or float32 where the input is.

    Args:
        columns: names of the columns of numbers, in the order of the coordinates; or the name of
            one column of lists (Arrow lists and fixed-size lists, sequences, text in brackets);
            None where elements are vectors, or where an Arrow batch holds nothing else.
        dimension: numbers per vector.
        people: as in `EncodeRows`.
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
        super().__init__()
        hide_bad = checked_choice(bad_rows, "zero")
        check_integer("dimension", dimension, 1)
        names = (columns,) if isinstance(columns, str) else columns
        names = None if names is None else tuple(names)
        if names is not None and len(names) not in (1, dimension):
            raise ValueError(
                f"columns must name one column of lists or {dimension} columns of numbers, got "
                f"{len(names)} names"
            )
        if names is not None and len(set(names)) < len(names):
            raise ValueError("columns must be distinct")
        if ranges is not None and len(ranges) not in (1, dimension):
            raise ValueError(f"ranges must hold one range or {dimension}, got {len(ranges)}")
        if binary and ranges is not None:
            raise ValueError("ranges must be None with binary: numbers are 0 or 1")
        self._doer = EncodeNumbers(
            names=ColumnNames.of(names, people),
            groups=groups_of(people),
            hide_bad=hide_bad,
            dimension=int(dimension),
            ranges=ranges,
            binary=binary,
        )

    def display_data(self) -> dict[str, int | str]:
        return {
            "dimension": self._doer.dimension,
            "bad_rows": "zero" if self._doer.hide_bad else "dead_letter",
        }


@dataclass(eq=False, kw_only=True)
class EncodeNumbers(EncodeBlocks):
    """What `EncodeVectors` runs. Attributes: as its arguments."""

    dimension: int
    ranges: CoordinateRanges | None
    binary: bool

    def setup(self) -> None:
        super().setup()
        self._encoder = VectorEncoder(self.dimension)
        self._rows_per_block = rows_in(BLOCK_BYTES, np.dtype(np.float32).itemsize * self.dimension)

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for start in range(0, batch.num_rows, self._rows_per_block):
            yield batch.slice(start, self._rows_per_block)

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        names = self.names.values
        if names is None and self.groups is not None:
            names = tuple(name for name in columns if name != self._group_name)
        absent = Column(None, num_rows)
        chosen = [columns.get(name, absent) for name in (columns if names is None else names)]
        return self._fitted(*self._encoder.encode(chosen, num_rows))

    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        if array.ndim == 0 or (array.ndim == 1 and self.dimension > 1):
            return None
        return self._fitted(*self._encoder.encode_array(array))

    def encode_block(self, block: ValueBlock) -> tuple[np.ndarray, Codes]:
        return self._fitted(*self._encoder.encode_array(block.values))

    def _fitted(self, vectors: np.ndarray, codes: Codes) -> tuple[np.ndarray, Codes]:
        """Scaled by the ranges, or checked to be binary."""
        if self.ranges is not None:
            vectors = self.ranges.encode(vectors)
            vectors[codes != SOUND] = 0.0
        if self.binary:
            neither = ~((vectors == 0) | (vectors == 1)).all(axis=1)
            if neither.any():
                codes[neither] = NOT_BINARY  # bad rows are zero here
                vectors = np.where(neither[:, None], vectors.dtype.type(0), vectors)
        return vectors, codes


# Many rows of a person to one: their mean ---------------------------------------------------
#
# Sums are of fixed-point numbers, hence exact: a person's mean does not depend on the order in
# which rows meet, so a retry gives the same mean, and memoized noise the same report.

_ONE = 2.0**32  # of the fixed-point numbers: rounding moves a mean by at most 2**-33 of its range
_MOST_ROWS = 1 << 30


@block_coder.travels
@dataclass(frozen=True, eq=False)
class PersonSums:
    """Sums of rows of persons, each person once. Not private yet.

    Attributes:
        user_ids: as in `ValueBlock`.
        sums: `(n, dimension)` int64, fixed point.
        counts: `(n,)` rows of each person.
    """

    user_ids: np.ndarray
    sums: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def textual(self) -> bool:
        return self.user_ids.dtype.kind == "O"


class MeanPerPerson(beam.PTransform):
    """The mean of each person's rows, in every window. Nothing is private yet.

    In: `ValueBlock`s of rows with user ids, as `EncodeVectors(ranges=space.ranges)` makes them.
    Out: `ValueBlock`s with every person once, of means of rows that the space has moved inside.

    Args:
        space: where rows lie.
        num_shards: parts of the exchange. A worker holds the persons of one at a time.

    Raises:
        ValueError: for unbounded data, and windows that fire more than once; at run time for blocks
            without user ids.
    """

    def __init__(self, space: Space, *, num_shards: int = NUM_SHARDS) -> None:
        super().__init__()
        if num_shards < 1:
            raise ValueError(f"num_shards must be an integer >= 1, got {num_shards}")
        self._space = space
        self._num_shards = num_shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("MeanPerPerson", pcoll, ValueBlock)
        check_windows("MeanPerPerson", pcoll)
        if not pcoll.is_bounded:
            raise ValueError(
                "MeanPerPerson takes bounded data: Beam's grouping, which it uses, drops late rows "
                "silently"
            )
        check_fires_once(
            "MeanPerPerson", pcoll, "a person with rows in two firings would report twice"
        )
        return (
            pcoll
            | "Sum rows"
            >> beam.ParDo(_SumRows(self._space, self._num_shards)).with_output_types(
                typehints.Tuple[int, PersonSums]
            )
            | "Bring persons together" >> beam.CombinePerKey(_AddSums())
            | "Divide" >> beam.ParDo(_Divide()).with_output_types(ValueBlock)
        )


@dataclass(eq=False)
class _SumRows(beam.DoFn):
    """Each person's sum within a block, sent to the person's shard."""

    space: Space
    num_shards: int

    def process(self, block: ValueBlock) -> Iterator[tuple[int, PersonSums]]:
        if not len(block):
            return
        if block.user_ids is None:
            raise ValueError("the mean of a person's rows needs user ids: name the user id column")
        for part in block.by_kind():
            yield from self._sums(part)

    def _sums(self, block: ValueBlock) -> Iterator[tuple[int, PersonSums]]:
        assert block.user_ids is not None
        rows = block.values if block.values.ndim > 1 else block.values[:, None]
        fixed = np.rint(self.space.inside(rows) * _ONE).astype(np.int64)
        whole = PersonSums(block.user_ids, fixed, np.ones(len(block), dtype=np.int64))
        sums = add_sums([whole])
        for shard, rows in by_shard(sums.user_ids, self.num_shards):
            yield shard, PersonSums(sums.user_ids[rows], sums.sums[rows], sums.counts[rows])


class _AddSums(beam.CombineFn):
    """All sums of one shard; blocks wait until adding them up is worth it."""

    def create_accumulator(self) -> list[PersonSums]:
        return []

    def add_input(self, accumulator: list[PersonSums], element: PersonSums) -> list[PersonSums]:
        accumulator.append(element)
        if len(accumulator) > 2 and sum(map(len, accumulator[1:])) > HELD_ROWS + len(
            accumulator[0]
        ):
            return self.compact(accumulator)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[PersonSums]]) -> list[PersonSums]:
        merged: list[PersonSums] = []
        for accumulator in accumulators:
            merged.extend(accumulator)
        return self.compact(merged)

    def compact(self, accumulator: list[PersonSums]) -> list[PersonSums]:
        kinds = ([s for s in accumulator if s.textual is kind] for kind in (False, True))
        return [add_sums(kind) for kind in kinds if kind]

    def extract_output(self, accumulator: list[PersonSums]) -> list[PersonSums]:
        return self.compact(accumulator)

    def get_accumulator_coder(self) -> beam.coders.Coder:
        return ListCoder(block_coder.BlockCoder(PersonSums))


class _Divide(beam.DoFn):
    """The persons of one shard with their means, in the order of their ids."""

    def setup(self) -> None:
        self._persons = counter("users")

    def process(self, element: tuple[int, list[PersonSums]]) -> Iterator[ValueBlock]:
        shard, kinds = element
        for sums in kinds:
            self._persons.inc(len(sums))
            yield ValueBlock(
                sums.sums / (_ONE * sums.counts[:, None]),
                sums.user_ids,
                source=f"persons {shard} {'text' if sums.textual else 'integer'}",
                positions=np.arange(len(sums)),
            )


def add_sums(blocks: list[PersonSums]) -> PersonSums:
    """The sums of each person in blocks of one kind of ids, in the order of the ids.

    Raises:
        ValueError: if a person has more rows than exact sums hold.
    """
    ids = np.concatenate([block.user_ids for block in blocks])
    distinct, codes = np.unique(ids, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(distinct)))
    counts = np.add.reduceat(np.concatenate([block.counts for block in blocks])[order], starts)
    if counts.max() > _MOST_ROWS:
        raise ValueError(f"a person may have at most {_MOST_ROWS} rows")
    sums = np.add.reduceat(np.concatenate([block.sums for block in blocks])[order], starts, axis=0)
    return PersonSums(distinct, sums, counts)
