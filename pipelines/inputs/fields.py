"""What the launcher reads before it runs: public lists, and of the input names and types alone.

A Parquet file tells both in its footer, a CSV file its names in the header. JSON lines tell
nothing; the names in the first object stand for those in all.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.inputs import csv_format, line_formats
from beam_ldp.pipelines.inputs.sources import InputFileError, opened
from beam_ldp.pipelines.usage import TEXT_COLUMN
from beam_ldp.settings.fields import nearest
from beam_ldp.transforms.elements.columns import is_id_type

_GLOB = frozenset("*?[")


@dataclass(frozen=True)
class Field:
    """A column of the input.

    Attributes:
        name: of the column.
        is_list: whether its entries are lists; False where that is not known.
        length: of each list, where all have one.
    """

    name: str
    is_list: bool = False
    length: int | None = None


def read_fields(path: str, input_format: str, delimiter: str) -> list[Field]:
    """The columns of a file.

    Raises:
        InputFileError: if the file cannot be read.
    """
    if input_format == "text":
        return [Field(TEXT_COLUMN)]
    with opened(path) as file:
        if input_format == "parquet":
            return [_parquet_field(field) for field in pq.ParquetFile(file).schema_arrow]
        if input_format == "csv":
            return [Field(name) for name in csv_format.csv_header(file, delimiter)]
        return _json_fields(file)


def _parquet_field(field: Any) -> Field:
    kind = field.type
    if pa.types.is_fixed_size_list(kind):
        return Field(field.name, True, kind.list_size)
    return Field(field.name, pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _json_fields(file: BinaryIO) -> list[Field]:
    for _, block in line_formats.blocks_of_lines(file):
        for line in (block or b"").split(b"\n"):
            found = line_formats.json_object(line)
            if found is not None:
                return [Field(name, isinstance(value, list)) for name, value in found.items()]
    return []


def choose_fields(
    wanted: Sequence[str], fields: Sequence[Field], leave_out: str | None
) -> tuple[Field, ...]:
    """The columns that `--column` means, in the order of the flag and, within a glob, of the file.

    Args:
        wanted: names and globs, each of which may hold several, separated by commas.
        fields: what the file has.
        leave_out: a column that no glob means: the user id.

    Raises:
        UsageError: for no name, one that the file does not have, or one that is meant twice.
    """
    by_name = {field.name: field for field in fields}
    found: list[Field] = []
    for pattern in (part.strip() for text in wanted for part in _parts(text, by_name)):
        if pattern in by_name:
            found.append(by_name[pattern])
            continue
        matching = [
            field for name, field in by_name.items()
            if _GLOB & set(pattern) and name != leave_out and fnmatch.fnmatchcase(name, pattern)
        ]  # fmt: skip
        if not matching:
            raise UsageError(
                f"--column {pattern}: no such column{nearest(pattern, list(by_name))}; the first "
                f"input has {_listed(list(by_name))}"
            )
        found += matching
    if not found:
        raise UsageError("--column must name a column")
    names = [field.name for field in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--column names {twice[0]} twice")
    if leave_out in names:
        raise UsageError(f"--column names {leave_out}, which is the --user-id")
    return tuple(found)


def _parts(text: str, by_name: dict[str, Field]) -> list[str]:
    return [text] if text in by_name else [part for part in text.split(",") if part.strip()]


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, … ({len(names)} in all)" if len(names) > 8 else shown or "no columns"


def dimension_of(fields: Sequence[Field], stated: int | None) -> int:
    """Numbers per vector.

    Args:
        fields: the chosen columns.
        stated: `--dimension`.

    Raises:
        UsageError: if the file does not tell, or tells something else than was stated.
    """
    if len(fields) > 1:
        lists = [field.name for field in fields if field.is_list]
        if lists:
            raise UsageError(
                f"--column: {lists[0]} holds lists; such a column must be the only one"
            )
        known: int | None = len(fields)
    elif fields[0].is_list:
        known = fields[0].length
    else:  # one number, unless text spells a list
        return stated or 1
    if known is None and stated is None:
        raise UsageError(
            f"--dimension is missing: the number of entries in the lists of column {fields[0].name}"
        )
    if known is not None and stated not in (None, known):
        raise UsageError(f"--dimension is {stated}, but the input has {known} numbers per person")
    return known or int(stated or 0)


# The column of ids, looked up before anything is charged ------------------------------------------
#
# Who is one person is decided id by id (`beam_ldp.randomizers.identity`), so files may differ in
# their types. What no id can be made of is refused here rather than found row by row.


_AT_ONCE = 16  # footers that are read at the same time: most of the time is waiting


def check_id_types(paths: Sequence[str], user_id: str) -> None:
    """A UsageError if a Parquet file declares a column of ids that cannot hold any.

    Reads every footer, and no row. Files that cannot be read, or that lack the column, are left to
    the run.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [*zip(paths, pool.map(lambda path: _declared(path, user_id), paths))]
    for path, kind in found:
        if kind is None or is_id_type(kind):
            continue
        others = [f"{p} {k}" for p, k in found if k is not None and k != kind]
        beside = f"; {others[0]} beside it" if others else ""
        raise UsageError(
            f"--user-id {user_id}: {path} declares {kind}, which cannot hold ids{beside}. Ids are "
            "integers, decimals of scale 0, floats without a fraction, text or bytes"
        )


def _declared(path: str, column: str) -> pa.DataType | None:
    try:
        with opened(path) as file:
            schema = pq.ParquetFile(file).schema_arrow
            index = schema.get_field_index(column)
            return schema.field(index).type if index >= 0 else None
    except InputFileError:
        return None


# Public lists of values and of groups: one per line -----------------------------------------------
