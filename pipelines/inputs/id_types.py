"""What files declare about the column of ids, looked up before anything is charged.

Who is one person is decided id by id (`beam_ldp.randomizers.user_ids`), so files may differ in
their types. What no id can be made of is refused here rather than found row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.inputs.sources import InputFileError, opened
from beam_ldp.transforms.elements.user_id_columns import is_id_type

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
