"""Rows to one index per question: lists of values, bins of numbers, levels of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np

from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.settings import People
from beam_ldp.transforms.device.encode import BAD_ROWS
from beam_ldp.transforms.device.number_columns import VectorEncoder
from beam_ldp.transforms.device.rows import ColumnNames, EncodeBlocks, check_rows, encoded
from beam_ldp.transforms.elements.columns import MAX_VALUE_BYTES, SOUND, Codes, Column, Encoder
from beam_ldp.transforms.elements.portable import (
    IntegerDomain,
    PortableDomain,
    check_domain_size,
    groups_of,
)
from beam_ldp.transforms.elements.stage_types import element_of


@dataclass(frozen=True)
class ListQuestion:
    """A question about a value of a public list.

    Attributes:
        column: with the value.
        domain: the list, as `EncodeRows` takes it.
        question: its public name; default: the column.
    """

    column: str
    domain: Domain | IntegerDomain | PortableDomain | str | Path
    question: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each index that it gives."""
        return (self.question or self.column,)

    @property
    def _listed(self) -> PortableDomain:
        domain = self.domain
        return domain if isinstance(domain, PortableDomain) else PortableDomain(domain)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of each index, `other` included; the list is read for it."""
        return (self._listed.load().size,)

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the list, which is read for them."""
        return self._listed.digest


@dataclass(frozen=True)
class BinQuestion:
    """A question about a number: in which public bin it lies, or in none (`other`)."""

    column: str
    bins: Bins
    question: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each index that it gives."""
        return (self.question or self.column,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bins, `other` included."""
        return (self.bins.count + 1,)

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the bins."""
        return self.bins.digest


@dataclass(frozen=True)
class LevelsQuestion:
    """A question about a number for each level of a tree over bins."""

    column: str
    tree: Hierarchy
    question: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each index that it gives, coarsest level first."""
        name = self.question or self.column
        return tuple(f"{name}, {size} parts" for size in self.tree.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Parts at each level."""
        return tuple(self.tree.sizes)

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the bins and the tree over them."""
        return digest_of(b"tree", self.tree.bins.digest, b"%d" % self.tree.fan_out)


ColumnQuestion = ListQuestion | BinQuestion | LevelsQuestion


class EncodeQuestions(beam.PTransform):
    """Turns rows into `ValueBlock`s with one index per question. Nothing is private yet.

    In, out and `bad_rows` as in `EncodeRows`; a row of which one column cannot be used is bad,
    or with `bad_rows="other"` has `other` there. Levels of a tree have no `other`: they take
    "dead_letter" only.

    Args:
        questions: what each index is about, in the order of the randomizer's oracles.
        people, bad_rows, max_value_bytes: as in `EncodeRows`.
        domain_sizes: if given, what the randomizer expects.

    Raises:
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        questions: Sequence[ColumnQuestion],
        *,
        people: People = People(),
        bad_rows: Literal["dead_letter", "other"] = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        domain_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if not questions:
            raise ValueError("questions must hold at least one question")
        if bad_rows not in BAD_ROWS:
            raise ValueError(f'bad_rows must be "dead_letter" or "other", got {bad_rows!r}')
        if bad_rows == "other" and any(isinstance(q, LevelsQuestion) for q in questions):
            raise ValueError('bad_rows must be "dead_letter" for levels: they have no `other`')
        names = [name for question in questions for name in question.names]
        if len(set(names)) < len(names):
            raise ValueError("questions must have different names")
        if domain_sizes is not None and len(domain_sizes) != len(names):
            raise ValueError(
                f"questions must give one index per oracle: {len(names)} for {len(domain_sizes)}"
            )
        sizes = [None] * len(names) if domain_sizes is None else list(domain_sizes)
        columns: list[_OneColumn] = []
        for question in questions:
            own = [sizes.pop(0) for _ in question.names]
            columns.append(_column_of(question, own, max_value_bytes))
        wanted = tuple(dict.fromkeys(question.column for question in questions))
        self._doer = _Encode(
            ColumnNames.of(wanted, people),
            groups_of(people),
            bad_rows == "other",
            tuple(columns),
        )
        self._names = tuple(names)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        check_rows("EncodeQuestions", element_of(pcoll))
        return encoded(pcoll, self._doer)

    def display_data(self) -> dict[str, Any]:
        return {"questions": ", ".join(self._names)}


class _OneColumn:
    """Encodes one column; made on the launcher, set up on the worker."""

    name: str

    def load(self) -> None:
        """On the worker."""

    def encode(self, column: Column) -> tuple[np.ndarray, Codes]:
        """`(n, indices)` and one code per row; indices of bad rows are the last ones."""
        raise NotImplementedError


class _ListColumn(_OneColumn):
    def __init__(self, question: ListQuestion, size: int | None, max_bytes: int) -> None:
        self.name, domain = question.column, question.domain
        self._domain = domain if isinstance(domain, PortableDomain) else PortableDomain(domain)
        self._size, self._max_bytes = size, max_bytes
        if size is not None:
            self._domain.check_size(size)

    def load(self) -> None:
        domain = self._domain.load()
        assert not isinstance(domain, Bins)
        if self._size is not None:
            check_domain_size(domain.size, self._size)
        self._encoder = Encoder(domain, self._max_bytes)

    def encode(self, column: Column) -> tuple[np.ndarray, Codes]:
        indices, codes = self._encoder.encode(column)
        return indices.astype(np.int64)[:, None], codes


class _NumberColumn(_OneColumn):
    """Bins, or the levels of a tree."""

    def __init__(self, question: BinQuestion | LevelsQuestion, sizes: Sequence[int | None]) -> None:
        self.name, self._question = question.column, question
        for size, own in zip(sizes, question.sizes):
            if size is not None:
                check_domain_size(own, size)
        self._last = np.array(question.sizes) - 1

    def load(self) -> None:
        self._encoder = VectorEncoder(1)

    def encode(self, column: Column) -> tuple[np.ndarray, Codes]:
        numbers, codes = self._encoder.encode([column], column.num_rows)
        values = numbers[:, 0].astype(np.float64)
        question = self._question
        if isinstance(question, BinQuestion):
            indices = question.bins.encode(values)[:, None]
        else:
            indices = question.tree.encode(values)
        return np.where((codes != SOUND)[:, None], self._last, indices), codes


def _column_of(question: ColumnQuestion, sizes: Sequence[int | None], max_bytes: int) -> _OneColumn:
    if isinstance(question, ListQuestion):
        return _ListColumn(question, sizes[0], max_bytes)
    return _NumberColumn(question, sizes)


class _Encode(EncodeBlocks):
    def __init__(
        self,
        names: ColumnNames,
        groups: PortableDomain | None,
        to_other: bool,
        columns: tuple[_OneColumn, ...],
    ) -> None:
        super().__init__(names, groups, to_other)
        self._columns = columns

    def setup(self) -> None:
        super().setup()
        for column in self._columns:
            column.load()

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        parts, codes = [], np.zeros(num_rows, dtype=np.uint8)
        for own in self._columns:
            indices, found = own.encode(columns.get(own.name, Column(None, num_rows)))
            parts.append(indices)
            np.copyto(codes, found, where=codes == SOUND)
        return np.concatenate(parts, axis=1), codes

    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        return None
