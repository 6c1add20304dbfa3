"""The policies of a bandit whose people have contexts, from a public file of those."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from beam_ldp.decisions.bandits.contexts import ContextualActions
    from beam_ldp.decisions.bandits.laws import ContextLaw

_CONTEXT, _CHOICE, _CHANCE = "context", "action", "probability"


@dataclass(frozen=True, eq=False)
class Policies:
    """Policies over contexts, as the actions of a bandit.

    Attributes:
        found: rows, what each is off by, and what people are told.
        features: names of the columns of features, in the order of thetas and rows.
    """

    found: ContextualActions
    features: tuple[str, ...]

    @property
    def rows(self) -> NDArray[np.float64]:
        """(K, d) the actions of the bandit."""
        return self.found.rows

    @property
    def names(self) -> tuple[str, ...]:
        """Of the policies: numbers from 1."""
        return tuple(str(number) for number in range(1, len(self.rows) + 1))

    def table(self) -> pa.Table:
        """What people are told, a row for each policy: its name, and theta by feature. Public."""
        import pyarrow as pa

        columns: dict[str, Any] = {"policy": list(self.names)}
        columns |= dict(zip(self.features, self.found.thetas.T, strict=True))
        return pa.Table.from_pydict(columns)


def read_policies(path: Path, horizon: int, seed: int = 0) -> Policies:
    """Policies that lose 1/sqrt(horizon) and less, of contexts from a Parquet or CSV file.

    A row is an action that is open in a context: columns `context` and `action` name both, and
    columns of numbers are features of the two together. With a column `probability`, the same for
    all rows of a context, these are all contexts; without one, each context is one draw from their
    law, of public data. Of actions that are equally good, people take the one that stands first.

    Args:
        path: of the file.
        horizon: people in all.
        seed: of the policies.

    Raises:
        ValueError: if the file cannot be read, or does not fit.
    """
    from beam_ldp.decisions.bandits.contexts import ContextualActions

    table = _read(path)
    features = tuple(
        name for name in table.column_names
        if name not in (_CONTEXT, _CHOICE, _CHANCE) and _is_number(table.schema.field(name).type)
    )  # fmt: skip
    try:
        found = ContextualActions.of_law(
            _law(table, features), 0.5 * horizon**-0.5, failure=1 / horizon, seed=seed
        )
    except ValueError as error:
        raise ValueError(f"--contexts {path}: {error}") from None
    return Policies(found, features)


def _read(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    gaps = csv.ConvertOptions(strings_can_be_null=True)
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path)
        return csv.read_csv(path, convert_options=gaps)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"--contexts {path}: cannot be read ({type(error).__name__})") from None


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _law(table: pa.Table, features: tuple[str, ...]) -> ContextLaw:
    """The law that the rows say."""
    import numpy as np

    from beam_ldp.decisions.bandits.laws import ContextLaw

    context, choice = (_numbered(table, name) for name in (_CONTEXT, _CHOICE))
    if not features or not len(context):
        raise ValueError("needs rows, and columns of numbers beside context, action, probability")
    pairs = context * (choice.max() + 1) + choice
    if len(np.unique(pairs)) < len(pairs):
        raise ValueError("an action must stand once in a context")
    order = np.argsort(context, kind="stable")
    of, first = np.unique(context[order], return_index=True)
    place = np.arange(len(order)) - first[context[order]]  # among the actions of the context
    values = np.column_stack([table.column(name).to_numpy() for name in features])[order]
    cube = np.repeat(values[first][:, None, :], place.max() + 1, axis=1).astype(np.float64)
    cube[context[order], place] = values  # where actions lack, the first one stands again
    if _CHANCE not in table.column_names:
        return ContextLaw.sampled(cube)
    if not _is_number(table.schema.field(_CHANCE).type):
        raise ValueError("column probability must be numbers")
    chances = table.column(_CHANCE).to_numpy()[order].astype(np.float64)
    if not np.array_equal(chances, chances[first][context[order]]):
        raise ValueError("column probability must be the same in all rows of a context")
    return ContextLaw.finite(cube, chances[first])


def _numbered(table: pa.Table, name: str) -> NDArray[np.int64]:
    """The values of a column, numbered in the order in which they come."""
    import numpy as np

    if name not in table.column_names or table.column(name).null_count:
        raise ValueError(f"needs a column {name} without gaps")
    encoded = table.column(name).combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
