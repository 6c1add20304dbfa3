"""Rows to blocks of indices: where raw data meets the public lists, and bad rows part ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_ldp.randomizers.bins import Bins
from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import People
from beam_ldp.transforms.columns import MAX_VALUE_BYTES, Codes, Column, Encoder
from beam_ldp.transforms.number_columns import BinEncoder
from beam_ldp.transforms.portable import (
    IntegerDomain,
    PortableDomain,
    check_domain_size,
    groups_of,
)
from beam_ldp.transforms.rows import THE_VALUE, ColumnNames, EncodeBlocks, check_rows, encoded
from beam_ldp.transforms.stage_types import element_of

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
