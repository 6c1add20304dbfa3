"""Rows to blocks of values: where raw data meets the public lists, and bad rows part ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.settings import People
from beam_ldp.transforms.device.number_columns import BinEncoder, VectorEncoder
from beam_ldp.transforms.device.rows import (
    THE_VALUE,
    ColumnNames,
    EncodeBlocks,
    check_rows,
    encoded,
)
from beam_ldp.transforms.elements.blocks import ValueBlock
from beam_ldp.transforms.elements.columns import (
    MAX_VALUE_BYTES,
    NOT_BINARY,
    SOUND,
    Codes,
    Column,
    Encoder,
)
from beam_ldp.transforms.elements.portable import (
    BLOCK_BYTES,
    IntegerDomain,
    PortableDomain,
    check_domain_size,
    groups_of,
    rows_in,
)
from beam_ldp.transforms.elements.stage_types import element_of

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges


# Rows to blocks of indices: where raw data meets the public lists, and bad rows part ways.


BAD_ROWS = ("dead_letter", "other")
LEAST_VALUE_BYTES = 20  # so that no 64-bit integer is over-long


class EncodeRows(beam.PTransform):
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
        if bad_rows not in BAD_ROWS:
            raise ValueError(f'bad_rows must be "dead_letter" or "other", got {bad_rows!r}')
        if max_value_bytes < LEAST_VALUE_BYTES:
            raise ValueError(
                f"max_value_bytes must be an integer >= {LEAST_VALUE_BYTES}, got {max_value_bytes}"
            )
        self._domain = domain if isinstance(domain, PortableDomain) else PortableDomain(domain)
        self._groups = groups_of(people)
        if domain_size is not None:
            self._domain.check_size(domain_size)
        values = None if column is None else (column,)
        self._names = ColumnNames.of(values, people)
        self._to_other = bad_rows == "other"
        self._max_value_bytes = max_value_bytes
        self._domain_size = domain_size

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = element_of(pcoll)
        check_rows("EncodeRows", element)
        pairs = element.keyed and self._groups is not None and self._names.values is None
        doer = _Encode(
            self._domain,
            self._groups,
            self._names,
            self._to_other,
            self._max_value_bytes,
            self._domain_size,
            pairs,
        )
        return encoded(pcoll, doer)

    def display_data(self) -> dict[str, Any]:
        return {
            "domain": self._domain.describe(),
            "bad_rows": "other" if self._to_other else "dead_letter",
        }


class _Encode(EncodeBlocks):
    def __init__(
        self,
        domain: PortableDomain,
        groups: PortableDomain | None,
        names: ColumnNames,
        to_other: bool,
        max_value_bytes: int,
        domain_size: int | None,
        pairs: bool,
    ) -> None:
        super().__init__(names, groups, to_other, pairs)
        self._domain = domain
        self._max_value_bytes = max_value_bytes
        self._domain_size = domain_size

    def setup(self) -> None:
        super().setup()
        domain = self._domain.load()
        if self._domain_size is not None:
            check_domain_size(domain.size, self._domain_size)
        self._encoder: Encoder | BinEncoder = (
            BinEncoder(domain)
            if isinstance(domain, Bins)
            else Encoder(domain, self._max_value_bytes)
        )

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        if self._names.values is None and len(columns) == 1:
            (column,) = columns.values()
        else:
            (name,) = self._names.values or (THE_VALUE,)
            column = columns.get(name, Column(None, num_rows))
        return self._encoder.encode(column)

    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        if array.ndim != 1:
            return None
        values = pa.array(array) if array.dtype.kind in "iuf" else array.tolist()
        return self._encoder.encode(Column(values, len(array)))


# Rows to blocks of vectors: where raw numbers meet their dimension, and bad rows part ways.


BAD_NUMBERS = ("dead_letter", "zero")


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
        if bad_rows not in BAD_NUMBERS:
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

    def _doer(self, pairs: bool) -> _EncodeNumbers:
        arguments = (self._names, self._groups, self._to_zero, pairs)
        return _EncodeNumbers(self._dimension, self._ranges, self._binary, *arguments)

    def display_data(self) -> dict[str, Any]:
        return {
            "dimension": self._dimension,
            "bad_rows": "zero" if self._to_zero else "dead_letter",
        }


class _EncodeNumbers(EncodeBlocks):
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
