"""Rows to blocks of vectors: where raw numbers meet their dimension, and bad rows part ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_ldp.settings import People
from beam_ldp.transforms.blocks import ValueBlock
from beam_ldp.transforms.columns import NOT_BINARY, SOUND, Codes, Column
from beam_ldp.transforms.mechanisms import BLOCK_BYTES, rows_in
from beam_ldp.transforms.number_columns import VectorEncoder
from beam_ldp.transforms.portable import PortableDomain, groups_of
from beam_ldp.transforms.rows import ColumnNames, EncodeBlocks, check_rows, encoded
from beam_ldp.transforms.stage_types import element_of

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges

BAD_ROWS = ("dead_letter", "zero")


class EncodeVectors(beam.PTransform):
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
        if bad_rows not in BAD_ROWS:
            raise ValueError(f'bad_rows must be "dead_letter" or "zero", got {bad_rows!r}')
        if isinstance(dimension, bool) or dimension != int(dimension) or dimension < 1:
            raise ValueError(f"dimension must be an integer >= 1, got {dimension}")
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
        self._names = ColumnNames.of(names, people)
        self._dimension = int(dimension)
        self._groups = groups_of(people)
        self._ranges = ranges
        self._binary = binary
        self._to_zero = bad_rows == "zero"

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = element_of(pcoll)
        check_rows("EncodeVectors", element)
        pairs = element.keyed and self._groups is not None and self._names.values is None
        return encoded(pcoll, self._doer(pairs))

    def _doer(self, pairs: bool) -> _Encode:
        arguments = (self._names, self._groups, self._to_zero, pairs)
        return _Encode(self._dimension, self._ranges, self._binary, *arguments)

    def display_data(self) -> dict[str, Any]:
        return {
            "dimension": self._dimension,
            "bad_rows": "zero" if self._to_zero else "dead_letter",
        }


class _Encode(EncodeBlocks):
    def __init__(
        self,
        dimension: int,
        ranges: CoordinateRanges | None,
        binary: bool,
        names: ColumnNames,
        groups: PortableDomain | None,
        to_zero: bool,
        pairs: bool,
    ) -> None:
        super().__init__(names, groups, to_zero, pairs)
        self._dimension = dimension
        self._ranges = ranges
        self._binary = binary

    def setup(self) -> None:
        super().setup()
        self._encoder = VectorEncoder(self._dimension)
        self._rows_per_block = rows_in(BLOCK_BYTES, np.dtype(np.float32).itemsize * self._dimension)

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for start in range(0, batch.num_rows, self._rows_per_block):
            yield batch.slice(start, self._rows_per_block)

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        names = self._names.values
        if names is None and self._groups is not None:
            names = tuple(name for name in columns if name != self._group_name)
        absent = Column(None, num_rows)
        chosen = [columns.get(name, absent) for name in (columns if names is None else names)]
        return self._fitted(*self._encoder.encode(chosen, num_rows))

    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        if array.ndim == 0 or (array.ndim == 1 and self._dimension > 1):
            return None
        return self._fitted(*self._encoder.encode_array(array))

    def encode_block(self, block: ValueBlock) -> tuple[np.ndarray, Codes]:
        return self._fitted(*self._encoder.encode_array(block.values))

    def _fitted(self, vectors: np.ndarray, codes: Codes) -> tuple[np.ndarray, Codes]:
        """Scaled by the ranges, or checked to be binary."""
        if self._ranges is not None:
            vectors = self._ranges.encode(vectors)
            vectors[codes != SOUND] = 0.0
        if self._binary:
            neither = ~((vectors == 0) | (vectors == 1)).all(axis=1)
            if neither.any():
                codes[neither] = NOT_BINARY  # bad rows are zero here
                vectors = np.where(neither[:, None], vectors.dtype.type(0), vectors)
        return vectors, codes
