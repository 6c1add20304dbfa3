"""The actions of a bandit, from a file: their names and features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_ldp.decisions.bandits.elimination import Floats

MOST_ACTIONS = 200_000
_NAME = "name"


def read_actions(path: Path) -> tuple[tuple[str, ...], Floats]:
    """Names and features of the actions, a row each: the columns of numbers are features.

    Args:
        path: of a Parquet or CSV file. Its column `name` names the actions; without one they are
            numbered from 1.

    Raises:
        ValueError: if it cannot be read, or does not fit.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        table = parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"--actions {path}: cannot be read ({type(error).__name__})") from None
    numeric = [
        column.to_numpy()
        for name, column in zip(table.column_names, table.columns)
        if name != _NAME and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
    ]
    if not numeric or not 2 <= table.num_rows <= MOST_ACTIONS:
        raise ValueError(
            f"--actions {path}: needs columns of numbers and from 2 to {MOST_ACTIONS} rows"
        )
    names = tuple(str(number) for number in range(1, table.num_rows + 1))
    if _NAME in table.column_names:
        told = table.column(_NAME).to_pylist()
        names = tuple("" if name is None else str(name) for name in told)
        if "" in names or len(set(names)) < len(names):
            raise ValueError(f"--actions {path}: column name must name each action differently")
    return names, np.column_stack(numeric).astype(np.float64)
