"""What a bandit chooses among, from a public file: actions, or policies over contexts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from beam_ldp.decisions.bandits.contexts import ContextLaw, ContextualActions
    from beam_ldp.decisions.bandits.elimination import Floats, LinearBandit

MOST_ACTIONS = 200_000
_NAME = "name"
_CONTEXT, _CHOICE, _CHANCE = "context", "action", "probability"


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a bandit chooses among.

    Attributes:
        names: distinct.
        rows: (K, d) their features.
        policies: that they are; None for plain actions.
    """

    names: tuple[str, ...]
    rows: Floats
    policies: Policies | None = None

    @property
    def row_error(self) -> float:
        """Distance at most of every row from what it should be."""
        return 0.0 if self.policies is None else self.policies.found.row_error

    @property
    def thetas(self) -> tuple[dict[str, float], ...]:
        """What people are told of each policy, by feature; nothing of plain actions."""
        if self.policies is None:
            return ()
        return tuple(self.policies.table().drop_columns(["policy"]).to_pylist())


def read_chosen(actions: str | None, contexts: str | None, horizon: int) -> Chosen:
    """What `--actions` or `--contexts` names. Raises ValueError where it does not fit."""
    if (actions is None) == (contexts is None):
        raise ValueError("give --actions, or --contexts")
    if contexts is None:
        return Chosen(*read_actions(Path(str(actions))))
    policies = read_policies(Path(contexts), horizon)
    return Chosen(policies.names, policies.rows, policies)


def read_actions(path: Path) -> tuple[tuple[str, ...], Floats]:
    """Names and features of the actions, a row each: the columns of numbers are features.

    Args:
        path: of a Parquet or CSV file. Its column `name` names the actions; without one they are
            numbered from 1.

    Raises:
        ValueError: if it cannot be read, or does not fit.
    """
    import numpy as np

    table = _read("--actions", path)
    numeric = [
        column.to_numpy()
        for field, column in zip(table.schema, table.columns)
        if field.name != _NAME and _is_number(field.type)
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


# Policies over contexts ---------------------------------------------------------------------------


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

    table = _read("--contexts", path)
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


def _read(flag: str, path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    gaps = csv.ConvertOptions(strings_can_be_null=True)
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path)
        return csv.read_csv(path, convert_options=gaps)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{flag} {path}: cannot be read ({type(error).__name__})") from None


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _law(table: pa.Table, features: tuple[str, ...]) -> ContextLaw:
    """The law that the rows say."""
    import numpy as np

    from beam_ldp.decisions.bandits.contexts import ContextLaw

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


# What people see of policies ----------------------------------------------------------------------


def policies_json(policies: Policies | None, bandit: LinearBandit) -> dict[str, Any]:
    """What is printed of them for programs, beside a plan or a simulation; nothing of none."""
    if policies is None:
        return {}
    found = policies.found
    contexts, choices, _ = found.law.features.shape
    told = {
        "law": found.law.kind, "contexts": contexts, "choices": choices,
        "features": list(policies.features), "policies": len(policies.rows),
        "net_gap": found.net_gap, "row_error": found.row_error,
        "net_price": bandit.horizon * found.net_gap,
        "row_price": _row_price(policies, bandit),
    }  # fmt: skip
    return {"contexts": told}


def show_policies(policies: Policies | None, bandit: LinearBandit) -> None:
    """The lines below a table; none of none."""
    if policies is None:
        return
    from rich.console import Console

    told = policies_json(policies, bandit)["contexts"]
    known = "all" if told["law"] == "finite" else "draws"
    console = Console()
    console.print(
        f"{told['policies']:,} policies over {told['contexts']:,} contexts ({known}); regret is "
        f"against the best of them, which loses {told['net_price']:,.0f} at most against the best "
        "of all"
    )
    if told["row_error"]:
        console.print(
            f"rows are known by draws, to {told['row_error']:.2g}: widths count it, and it costs "
            f"{told['row_price']:,.0f} at most; more draws make it less"
        )


def _row_price(policies: Policies, bandit: LinearBandit) -> float:
    """Regret at most by rows that are off, where no policy is dropped; 2 a person is the most.

    Survivors are within four widths of the best, of which the misfit is a part, and the best policy
    of all is measured with the same error as these.
    """
    from beam_ldp.decisions.bandits.designs import g_optimal

    design = g_optimal(bandit.actions)
    counts = design.counts(bandit.schedule.size(bandit.schedule.batches))
    lost = 2 * policies.found.row_error + 4 * bandit.misfit(design, counts)
    return bandit.horizon * min(2.0, lost)
