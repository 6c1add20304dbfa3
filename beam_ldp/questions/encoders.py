"""How the rows that people have become values that a mechanism takes: one encoder a kind of value.

An encoder is a small frozen value that travels to whoever holds the rows. It reads lists, and
makes its tables, where it is used; nothing is private yet, and no message quotes a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from beam_ldp.questions.columns import (
    MAX_VALUE_BYTES,
    NOT_BINARY,
    SOUND,
    Codes,
    Column,
    IndexLookup,
    IntegerDomain,
    texts_of,
)
from beam_ldp.questions.number_columns import VectorReader
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.domain import Bins, Domain

if TYPE_CHECKING:  # mean mechanisms, and codes of words, take long to load
    from beam_ldp.protocols.string_code import StringCode
    from beam_ldp.randomizers.hierarchy import Hierarchy
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges

THE_VALUE = "value"  # the column's name where elements are values
Encoded = tuple[np.ndarray, Codes]  # one value and one code a row
DEAD_LETTER = "dead_letter"


@dataclass(frozen=True)
class RowEncoder(ABC):
    """Rows to one value each. Subclasses are frozen dataclasses, whose fields alone travel.

    Attributes:
        columns: that hold the value, in their order; None where elements are values.
        instead: what a row that cannot be used may become, so that it leaves no trace; None where
            no value can stand for it.
        row_bytes: about what the value of a row takes in memory, where rows are to be encoded in
            parts; 0 where they need not be.
    """

    columns: tuple[str, ...] | None
    instead: ClassVar[str | None] = None
    row_bytes: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for column in self.columns or ():
            if not isinstance(column, str):
                raise TypeError(f"column must be a name, got {type(column).__name__}")

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def prepare(self) -> None:
        """Load what is needed, before the first row. Raises ValueError for another list."""
        return

    @abstractmethod
    def encode(self, columns: Mapping[str, Column], num_rows: int) -> Encoded:
        """`(values, codes)`; the value of a bad row is the one that stands for it.

        Args:
            columns: by name; where `columns` is None, all that may hold the value.
            num_rows: rows of each.
        """

    def encode_array(self, array: np.ndarray) -> Encoded | None:
        """The same for an array of many values; None where it is a single value."""
        return None

    def check(self, values: np.ndarray) -> Encoded:
        """The same for values that are encoded: by default they are what they should be."""
        return values, np.zeros(len(values), dtype=np.uint8)

    def doubts(self, values: Sequence[np.ndarray]) -> Iterator[str]:
        """What is odd about values that it made of the first rows; quotes none of them."""
        return iter(())

    @property
    def shown(self) -> dict[str, Any]:
        """What is shown of it beside a stage."""
        return {}


class ColumnEncoder(RowEncoder):
    """One column to one value a row."""

    @abstractmethod
    def encode_column(self, column: Column) -> Encoded:
        """As `encode`."""

    def encode(self, columns: Mapping[str, Column], num_rows: int) -> Encoded:
        if self.columns is None and len(columns) == 1:
            (column,) = columns.values()
        else:
            (name,) = self.columns or (THE_VALUE,)
            column = columns.get(name, Column(None, num_rows))
        return self.encode_column(column)

    def encode_array(self, array: np.ndarray) -> Encoded | None:
        if array.ndim != 1:
            return None
        values = pa.array(array) if array.dtype.kind in "iuf" else array.tolist()
        return self.encode_column(Column(values, len(array)))


# Indices of a public list -------------------------------------------------------------------

LEAST_VALUE_BYTES = 20  # so that no 64-bit integer is over-long


class PublicList(Protocol):
    """A list of values, integers or bins, or where one is read."""

    def load(self) -> Domain | IntegerDomain | Bins:
        """The list."""

    def describe(self) -> str:
        """What is shown of it."""


@dataclass(frozen=True)
class ListEncoder(ColumnEncoder):
    """A column to indices of a public list, or of bins of numbers. All else becomes `other`.

    Attributes:
        listed: the list.
        max_value_bytes: a longer text is bad; at least 20.
        size: of the list, where another one is to be refused.
    """

    listed: PublicList
    max_value_bytes: int = MAX_VALUE_BYTES
    size: int | None = None
    instead = "other"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_value_bytes < LEAST_VALUE_BYTES:
            raise ValueError(
                f"max_value_bytes must be an integer >= {LEAST_VALUE_BYTES}, got "
                f"{self.max_value_bytes}"
            )

    def prepare(self) -> None:
        _ = self._loaded

    def encode_column(self, column: Column) -> Encoded:
        return self._loaded(column)

    @cached_property
    def _loaded(self) -> Callable[[Column], Encoded]:
        domain = loaded(self.listed)
        if self.size is not None:
            check_domain_size(domain.size, self.size)
        if isinstance(domain, Bins):
            return partial(_bins_of, domain)
        return IndexLookup(domain, self.max_value_bytes).encode

    @property
    def shown(self) -> dict[str, Any]:
        described = getattr(self.listed, "describe", None)
        return {"domain": described() if described else f"{loaded(self.listed).size} values"}


def loaded(listed: Any) -> Any:
    """A public list that is at hand, or is read where it is used."""
    return listed.load() if hasattr(listed, "load") else listed


def check_domain_size(size: int, expected: int) -> None:
    """Refuse a list that the randomizer was not made for."""
    if size != expected:
        raise ValueError(
            f"domain has {size} values with `other` and the randomizer's domain_size is "
            f"{expected}: they must be equal"
        )


def _numbers_of(column: Column) -> Encoded:
    """One number a row, those of bad rows 0."""
    numbers, codes = VectorReader(1).read([column], column.num_rows)
    return numbers[:, 0].astype(np.float64), codes


def _bins_of(bins: Bins, column: Column) -> Encoded:
    numbers, codes = _numbers_of(column)
    return np.where(codes != SOUND, bins.count, bins.encode(numbers)), codes


@dataclass(frozen=True)
class LevelsEncoder(ColumnEncoder):
    """A column of numbers to an index of each level of a tree over bins, coarsest first.

    Indices of bad rows are the last ones.
    """

    tree: Hierarchy

    def encode_column(self, column: Column) -> Encoded:
        numbers, codes = _numbers_of(column)
        last = np.array(self.tree.sizes) - 1
        return np.where((codes != SOUND)[:, None], last, self.tree.encode(numbers)), codes


@dataclass(frozen=True)
class SurveyEncoder(RowEncoder):
    """Several columns to an index for each question about them.

    A row of which one column cannot be used is bad. Attributes:
        parts: the encoder of each column, in the order of the questions.
        names: of the indices.
    """

    parts: tuple[ColumnEncoder, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[ColumnEncoder], names: Sequence[str]) -> SurveyEncoder:
        """Of questions about these columns, some of which may be about the same one."""
        columns = dict.fromkeys(name for part in parts for name in part.columns or ())
        return cls(tuple(columns), tuple(parts), tuple(names))

    @property
    def instead(self) -> str | None:  # type: ignore[override]
        """`other`, where all of them have one."""
        return "other" if all(part.instead == "other" for part in self.parts) else None

    def prepare(self) -> None:
        for part in self.parts:
            part.prepare()

    def encode(self, columns: Mapping[str, Column], num_rows: int) -> Encoded:
        indices, codes = [], np.zeros(num_rows, dtype=np.uint8)
        for part in self.parts:
            found, found_codes = part.encode(columns, num_rows)
            indices.append(found)
            np.copyto(codes, found_codes, where=codes == SOUND)
        return np.column_stack(indices).astype(np.int64, copy=False), codes

    @property
    def shown(self) -> dict[str, Any]:
        return {"questions": ", ".join(self.names)}


# Vectors of numbers -------------------------------------------------------------------------


@dataclass(frozen=True)
class VectorEncoder(RowEncoder):
    """Columns of numbers, or one column of lists of them, to vectors. Bad rows are zero.

    Attributes:
        dimension: numbers per vector.
        ranges: public ranges; vectors come out scaled to the cube [-1, 1]^dimension.
        binary: numbers are 0 or 1.
    """

    dimension: int
    ranges: CoordinateRanges | None = None
    binary: bool = False
    instead: ClassVar[str | None] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("dimension", self.dimension, 1)
        columns = self.columns
        if columns is not None and len(columns) not in (1, self.dimension):
            raise ValueError(
                f"columns must name one column of lists or {self.dimension} columns of numbers, "
                f"got {len(columns)} names"
            )
        if columns is not None and len(set(columns)) < len(columns):
            raise ValueError("columns must be distinct")
        if self.ranges is not None and len(self.ranges) not in (1, self.dimension):
            raise ValueError(
                f"ranges must hold one range or {self.dimension}, got {len(self.ranges)}"
            )
        if self.binary and self.ranges is not None:
            raise ValueError("ranges must be None with binary: numbers are 0 or 1")

    @classmethod
    def of(
        cls,
        columns: str | Sequence[str] | None,
        dimension: int,
        ranges: CoordinateRanges | None = None,
        binary: bool = False,
    ) -> VectorEncoder:
        """Of one column of lists, or of several columns of numbers."""
        names = (columns,) if isinstance(columns, str) else columns
        return cls(None if names is None else tuple(names), dimension, ranges, binary)

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        """Of narrow floats."""
        return np.dtype(np.float32).itemsize * self.dimension

    def encode(self, columns: Mapping[str, Column], num_rows: int) -> Encoded:
        absent = Column(None, num_rows)
        names = columns if self.columns is None else self.columns
        chosen = [columns.get(name, absent) for name in names]
        return self.fitted(*VectorReader(self.dimension).read(chosen, num_rows))

    def encode_array(self, array: np.ndarray) -> Encoded | None:
        if array.ndim == 0 or (array.ndim == 1 and self.dimension > 1):
            return None
        return self.check(array)

    def check(self, values: np.ndarray) -> Encoded:
        return self.fitted(*VectorReader(self.dimension).read_array(values))

    def fitted(self, vectors: np.ndarray, codes: Codes) -> Encoded:
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

    @property
    def shown(self) -> dict[str, Any]:
        return {"dimension": self.dimension}


# Words --------------------------------------------------------------------------------------

NO_CODE = np.uint64(2**64 - 1)  # in all places: a word that is no string's code
_FEW = 0.01  # of the first words without a code: nothing is said of fewer


@dataclass(frozen=True)
class WordEncoder(ColumnEncoder):
    """A column of words to rows of bits; one without a code becomes a word that nobody finds.

    Attributes:
        code: of words.
    """

    code: StringCode
    instead = "other"

    def encode_column(self, column: Column) -> Encoded:
        texts, codes = texts_of(column)
        words = texts.cast(pa.large_binary()).fill_null(b"")
        starts = np.frombuffer(words.buffers()[1], dtype=np.int64)[words.offset :]
        held = np.frombuffer(words.buffers()[2] or b"", dtype=np.uint8)
        bits, lengths = self.code.encode_buffer(held, starts[: column.num_rows + 1])
        bits[(lengths == 0) | (codes != SOUND)] = NO_CODE
        return bits, codes

    def doubts(self, values: Sequence[np.ndarray]) -> Iterator[str]:
        words = sum(map(len, values))
        none = sum(int((block == NO_CODE).all(axis=1).sum()) for block in values)
        if none > _FEW * words:
            yield (
                f"{none / words:.0%} of the first words have no code and are never found: they "
                f"are longer than {self.code.max_bytes} bytes (--max-bytes) or their code is "
                f"longer than {self.code.num_bits} bits (--code-bits). A byte takes 4 to 6 bits in "
                "Latin script and 6 to 11 in others; choose by the language, not by what people "
                "hold"
            )
