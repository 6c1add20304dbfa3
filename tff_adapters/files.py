"""Clients of one's own: one file each, or one file with a column that says whose a row is.

Nothing here quotes a value: a bad row is counted by its reason, and listed by its place.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import tensorflow as tf

from tff_adapters.data import Clients

__all__ = ["BadRowsError", "load_files"]

_PARQUET, _CSV, _TFRECORD = (".parquet", ".pq"), (".csv",), (".tfrecord", ".tfrecords")


class BadRowsError(ValueError):
    """Rows that cannot be used, where that was to stop the program."""


@dataclass(frozen=True)
class Rows:
    """What was read of one file.

    Attributes:
        features: (n, width) float64; NaN where a field spells no number.
        labels: (n,) float64, likewise.
        clients: whose each row is; None where the file is one client's.
    """

    features: np.ndarray
    labels: np.ndarray
    clients: np.ndarray | None


def load_files(
    path: str | Path,
    *,
    features: Sequence[str],
    label: str,
    num_classes: int,
    client_id: str | None = None,
    shape: Sequence[int] | None = None,
    scale: float = 1.0,
    points_per_client: int = 1,
    bad_rows: Literal["raise", "drop"] = "raise",
    name: str | None = None,
) -> Clients:
    """Labelled examples from files.

    A folder holds one file per client: Parquet (`.parquet`, `.pq`) or TFRecord (`.tfrecord`,
    `.tfrecords`) of `tf.train.Example`. A file holds all clients, in Parquet or CSV, with
    `client_id` the column that says whose a row is.

    Clients are in the order of their names, whatever the order of the rows.

    A row is bad if it has no client, if a feature is missing, no number or not finite, or if its
    label is no whole number in [0, num_classes). Clients with fewer good rows than
    `points_per_client` are left out, and counted: the price supposes that many.

    Args:
        path: file or folder.
        features: columns, or globs for them; or one column of lists. In TFRecords: one float or
            int64 feature.
        label: column of the label.
        num_classes: labels are 0 to num_classes - 1, public.
        client_id: column; None for a folder.
        shape: of one example; by default flat.
        scale: features are divided by it; public.
        points_per_client: examples that every client must have.
        bad_rows: "raise" stops at the first file with some; "drop" leaves them out. Either way
            `left_out` counts them by their reason.
        name: of the data; by default the name of the path.

    Raises:
        BadRowsError: if there are bad rows and they are not to be dropped.
        ValueError: if files or columns are not as described.
    """
    path = Path(path)
    if num_classes < 2:
        raise ValueError(f"num_classes must be >= 2, got {num_classes}")
    left_out: Counter[str] = Counter()
    found: dict[Any, tuple[list[np.ndarray], list[np.ndarray]]] = {}
    for file in _files(path, client_id):
        rows = _read(file, features, label, client_id)
        reasons = _reasons(rows, num_classes)
        _refuse(file, reasons, bad_rows)
        left_out.update(Counter(reasons[reasons != ""].tolist()))
        good = reasons == ""
        for key, x, y in _by_client(rows, good, file.name):
            kept = found.setdefault(key, ([], []))
            kept[0].append(x / scale)
            kept[1].append(y)
    return _clients(found, name or path.name, num_classes, shape, points_per_client, left_out)


def _by_client(
    rows: Rows, good: np.ndarray, file: str
) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """The good rows of each client: its name, features and labels, in the order of the file."""
    keys = np.full(len(good), file) if rows.clients is None else rows.clients
    order = np.argsort(keys[good], kind="stable")
    names, starts = np.unique(keys[good][order], return_index=True)
    x, y = rows.features[good][order], rows.labels[good][order]
    yield from zip(names, np.split(x, starts[1:]), np.split(y, starts[1:]))


def _clients(
    found: dict[Any, tuple[list[np.ndarray], list[np.ndarray]]],
    name: str,
    num_classes: int,
    shape: Sequence[int] | None,
    points_per_client: int,
    left_out: Counter[str],
) -> Clients:
    features, labels, names = [], [], []
    for key, (part_x, part_y) in found.items():
        x, y = np.concatenate(part_x), np.concatenate(part_y)
        if len(y) < points_per_client:
            left_out["client with too few rows"] += 1
            continue
        width = int(np.prod(shape)) if shape is not None else x.shape[1]
        if x.shape[1] != width:
            raise ValueError(f"shape must have {x.shape[1]} entries per example, got {shape}")
        features.append(x.reshape(-1, *(shape or (width,))).astype(np.float32))
        labels.append(y.astype(np.int32))
        names.append(str(key))
    if not labels:
        raise ValueError(f"{name}: no client has {points_per_client} good rows")
    if len({x.shape[1:] for x in features}) > 1:
        raise ValueError(f"{name}: examples of different clients have different lengths")
    return Clients(name, features, labels, num_classes, left_out=left_out, names=names)


def _files(path: Path, client_id: str | None) -> list[Path]:
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if path.is_file():
        if client_id is None:
            raise ValueError(f"{path} is one file: client_id must name the column of the client")
        if path.suffix not in (*_PARQUET, *_CSV):
            raise ValueError(f"{path}: a file of all clients must be Parquet or CSV")
        return [path]
    if client_id is not None:
        raise ValueError(f"{path} is a folder of one file per client: client_id must be None")
    files = sorted(f for f in path.iterdir() if f.suffix in (*_PARQUET, *_TFRECORD))
    if not files:
        raise ValueError(f"{path} holds no Parquet and no TFRecord file")
    return files


def _read(file: Path, features: Sequence[str], label: str, client_id: str | None) -> Rows:
    if file.suffix in _TFRECORD:
        return _read_tfrecord(file, features, label)
    try:
        if file.suffix in _CSV:
            table = pyarrow.csv.read_csv(file, convert_options=_as_text(file))
        else:
            table = pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{file}: cannot be read ({type(error).__name__})") from None
    columns = _columns(file, table.column_names, features, {label, client_id})
    for needed in (label, client_id):
        if needed is not None and needed not in table.column_names:
            raise ValueError(f"{file}: no column {needed!r}")
    clients = None
    if client_id is not None:
        names = pc.cast(table[client_id], pa.string()).to_pylist()
        clients = np.array([name or "" for name in names], dtype=str)
    return Rows(_matrix(file, table, columns), _numbers(table[label]), clients)


def _as_text(file: Path) -> Any:
    """Every CSV column as text, so that one bad field does not change the type of a column."""
    with pyarrow.csv.open_csv(file) as reader:
        names = reader.schema.names
    return pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True
    )


def _columns(
    file: Path, known: Sequence[str], wanted: Sequence[str], leave_out: set[str | None]
) -> list[str]:
    found: list[str] = []
    for pattern in wanted:
        matching = [n for n in known if fnmatch.fnmatchcase(n, pattern) and n not in leave_out]
        if not matching:
            raise ValueError(f"{file}: no column {pattern!r}")
        found += [n for n in matching if n not in found]
    return found


def _matrix(file: Path, table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    if len(columns) > 1 or not _is_list(table[columns[0]].type):
        return np.stack([_numbers(table[name]) for name in columns], axis=1)
    lists = table[columns[0]].combine_chunks()
    lengths = pc.list_value_length(lists).to_pandas().to_numpy()
    known = lengths[~np.isnan(lengths.astype(float))]
    width = int(np.bincount(known.astype(int)).argmax()) if len(known) else 0
    out = np.full((len(lists), max(width, 1)), np.nan)
    right = lengths == width
    flat = lists.filter(pa.array(right)).flatten()
    out[right] = _numbers(flat).reshape(-1, width)
    return out


def _is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in lists)


def _numbers(column: Any) -> np.ndarray:
    """float64; NaN where there is nothing, or text that spells no number."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array([_number(text) for text in column.to_pylist()])
    try:
        return np.asarray(pc.cast(column, pa.float64()).to_pandas(), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return np.full(len(column), np.nan)


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else np.nan
    except ValueError:
        return np.nan


def _read_tfrecord(file: Path, features: Sequence[str], label: str) -> Rows:
    if len(features) != 1:
        raise ValueError(f"{file}: features must name one feature of the TFRecord")
    vectors, labels = [], []
    try:
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            example = tf.train.Example.FromString(record).features.feature
            vectors.append(_feature(example, features[0]))
            one = _feature(example, label)
            labels.append(one[0] if len(one) == 1 else np.nan)
    except Exception as error:
        raise ValueError(f"{file}: cannot be read ({type(error).__name__})") from None
    lengths = np.array([len(v) for v in vectors], dtype=int)
    width = int(np.bincount(lengths).argmax()) if len(lengths) else 0
    out = np.full((len(vectors), max(width, 1)), np.nan)
    for i, vector in enumerate(vectors):
        if len(vector) == width and width:
            out[i] = vector
    return Rows(out, np.array(labels, dtype=np.float64), None)


def _feature(example: Any, name: str) -> np.ndarray:
    if name not in example:
        return np.empty(0)
    one = example[name]
    values = one.float_list.value or one.int64_list.value
    return np.array(values, dtype=np.float64)


def _reasons(rows: Rows, num_classes: int) -> np.ndarray:
    """Why each row cannot be used; empty where it can."""
    reasons = np.full(len(rows.labels), "", dtype=object)
    reasons[~np.isfinite(rows.features).all(axis=1)] = "feature missing, no number or not finite"
    with np.errstate(invalid="ignore"):
        fits = (rows.labels >= 0) & (rows.labels < num_classes) & (rows.labels % 1 == 0)
    reasons[~fits] = "label is no class"
    if rows.clients is not None:
        reasons[rows.clients == ""] = "no client"
    return reasons


def _refuse(file: Path, reasons: np.ndarray, bad_rows: str) -> None:
    if bad_rows not in ("raise", "drop"):
        raise ValueError(f'bad_rows must be "raise" or "drop", got {bad_rows!r}')
    places = np.flatnonzero(reasons != "")
    if bad_rows == "raise" and len(places):
        shown = "; ".join(_places(reasons, places))
        raise BadRowsError(
            f"{file}: {len(places)} of {len(reasons)} rows cannot be used ({shown}); "
            'bad_rows="drop" leaves them out'
        )


def _places(reasons: np.ndarray, places: np.ndarray) -> Iterator[str]:
    for reason in sorted(set(reasons[places])):
        where = [str(i) for i in places if reasons[i] == reason]
        yield f"{reason}: row {', '.join(where[:5])}{', …' if len(where) > 5 else ''}"
