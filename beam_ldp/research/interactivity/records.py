"""Who was asked what, as arrays of records.

A log of records has one row for each answer that was published:

    seq         place in the order of publication, from 0; answers published together share one
    user        whose answer: a number or text, best a keyed digest of the id
    randomizer  name of the randomizer that was asked for
    round       logical round of the protocol: a retry has the round of the first try
    epsilon     local epsilon of the randomizer
    delta       its delta (none: 0)
    output      the answer, or a digest of it, by which a retry is told from a second question
    assign_seq  how much was published when the question was fixed: it may depend on answers whose
                `seq` is smaller; 0 was fixed up front, none is not known
    depends_on  the `seq`s that the question read, where that is known exactly
    run         name of the protocol, where a log holds several

Delta, output, assign_seq, depends_on and run may be missing. People, questions and answers are kept
as 64-bit hashes: two of n people with textual ids share one with probability below n^2 / 2^65, and
then count as one person with both sums.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from beam_ldp.protocols.interaction import (
    MOST_EPSILON,
    NANO,
    hash_people,
    hash_text,
    hash_texts,
    mixed,
)

FEMTO = 10**15
UNKNOWN = -1  # provenance of a question
NOT_LOGGED = 0  # answer
MOST_RANDOMIZERS = 10_000  # that are told apart

REQUIRED = ("seq", "user", "randomizer", "round", "epsilon")
PLANNED = ("user", "randomizer", "round", "epsilon")
OPTIONAL = ("delta", "output", "assign_seq", "run")
NUMBERS = {
    "seq": pa.int64(),
    "round": pa.int64(),
    "epsilon": pa.float64(),
    "delta": pa.float64(),
    "assign_seq": pa.int64(),
}

ROW = np.dtype(
    [
        ("person", "<u8"),
        ("question", "<u8"),
        ("answer", "<u8"),
        ("nano", "<i8"),
        ("femto", "<i8"),
        ("seq", "<i8"),
        ("assigned", "<i8"),
    ]
)


class BadRowError(ValueError):
    """A row that is no record: its number, and why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row, self.reason = row, reason


@dataclass(frozen=True)
class Declared:
    """What a log declares of a randomizer.

    Attributes:
        records: answers of it.
        least, most: its epsilon, in units of 1e-9.
        femto: its least delta, in units of 1e-15.
    """

    records: int
    least: int
    most: int
    femto: int = 0

    def __add__(self, other: Declared) -> Declared:
        return Declared(
            self.records + other.records,
            min(self.least, other.least),
            max(self.most, other.most),
            min(self.femto, other.femto),
        )


@dataclass(frozen=True)
class About:
    """What is known of records beside who was asked; of several parts it adds.

    Attributes:
        declared: by name of the randomizer; None of more than 10,000.
        runs: hashes of the runs.
        refused: bytes that are in no envelope of a release.
    """

    declared: Mapping[str, Declared] | None = field(default_factory=dict)
    runs: frozenset[int] = frozenset()
    refused: int = 0

    def __add__(self, other: About) -> About:
        runs, refused = self.runs | other.runs, self.refused + other.refused
        if self.declared is None or other.declared is None:
            return About(None, runs, refused)
        found = dict(self.declared)
        for name, one in other.declared.items():
            found[name] = found[name] + one if name in found else one
        return About(found if len(found) <= MOST_RANDOMIZERS else None, runs, refused)


@dataclass(frozen=True, eq=False)
class RecordBlock:
    """Some records.

    Attributes:
        rows: `(n,)` of the type `ROW`. Person, question (run, randomizer and round) and answer are
            hashes; epsilon is in units of 1e-9 and delta in units of 1e-15, both rounded up.
        about: what else is known of them.
    """

    rows: np.ndarray
    about: About

    def __len__(self) -> int:
        return len(self.rows)


# Hashes -------------------------------------------------------------------------------------------


def hash_answers(answers: Sequence[Any]) -> np.ndarray:
    """A word for each answer, odd; `NOT_LOGGED` for None. `1` and `1.0` are the same answer."""
    return np.fromiter(map(_hash_answer, answers), np.uint64, len(answers))


def _hash_answer(answer: Any) -> int:
    if answer is None:
        return NOT_LOGGED
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    if isinstance(answer, (bool, int)) and -(2**63) <= answer < 2**63:
        return int(mixed(np.array([answer], dtype=np.int64))[0]) | 1
    return hash_text(answer if isinstance(answer, (str, bytes)) else json.dumps(answer)) | 1


def _by_value(column: pa.Array, hashed: Callable[[list[Any]], np.ndarray]) -> np.ndarray:
    """Each value hashed once; nulls as the hash of None."""
    encoded = column.dictionary_encode()
    words = hashed([*encoded.dictionary.to_pylist(), *([None] if column.null_count else [])])
    codes = encoded.indices.fill_null(len(encoded.dictionary))
    return words[codes.to_numpy(zero_copy_only=False)]


# Arrow tables to records --------------------------------------------------------------------------


def records_of(
    table: pa.Table | pa.RecordBatch, *, planned: bool = False, answers: np.ndarray | None = None
) -> RecordBlock:
    """The rows of a table as records.

    Args:
        table: with the columns of a log.
        planned: whether these are questions of a plan, which nobody has answered.
        answers: hashes of the answers, in place of the column.

    Raises:
        ValueError: for missing columns, or a row that is no record, of which it says the number.
    """
    missing = [n for n in (PLANNED if planned else REQUIRED) if n not in table.schema.names]
    if missing:
        raise ValueError(f"columns are missing: {', '.join(missing)}")
    try:
        return _assemble(
            {n: _column(table, n) for n in table.schema.names}, table.num_rows, answers
        )
    except BadRowError as bad:
        raise ValueError(f"row {bad.row}: {bad.reason}") from None


def _column(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _assemble(columns: dict[str, pa.Array], size: int, answers: np.ndarray | None) -> RecordBlock:
    rows = np.empty(size, dtype=ROW)
    epsilons = _number(columns, "epsilon", size)
    deltas = _number(columns, "delta", size, 0.0)
    _check(~((epsilons >= 0) & (epsilons <= MOST_EPSILON)), "epsilon must be in [0, 10000]")
    _check(~((deltas >= 0) & (deltas <= 1)), "delta must be in [0, 1]")
    rows["nano"] = np.ceil(epsilons * NANO).astype(np.int64)
    rows["femto"] = np.ceil(deltas * FEMTO).astype(np.int64)
    rows["seq"] = _number(columns, "seq", size, 0)
    rows["assigned"] = _number(columns, "assign_seq", size, UNKNOWN)
    _check(rows["seq"] < 0, "seq must be >= 0")
    _check(rows["assigned"] < UNKNOWN, "assign_seq must be >= 0")
    _check(rows["assigned"] > rows["seq"], "assign_seq must be at most seq")
    rows["person"] = _people(columns["user"])
    rows["answer"] = _answers(columns.get("output"), size) if answers is None else answers
    named, declared = _randomizers(columns["randomizer"], rows["nano"], rows["femto"])
    named ^= mixed(mixed(_number(columns, "round", size)))
    runs: frozenset[int] = frozenset()
    if "run" in columns:
        own = _by_value(columns["run"].cast(pa.string()).fill_null(""), hash_texts)
        runs = frozenset(np.unique(own).tolist())
        named ^= mixed(own)
    rows["question"] = named
    return RecordBlock(rows, About(declared, runs))


def _check(bad: np.ndarray, reason: str) -> None:
    if bad.any():
        raise BadRowError(int(np.argmax(bad)), reason)


def _number(
    columns: dict[str, pa.Array], name: str, size: int, default: float | None = None
) -> np.ndarray:
    column = columns.get(name)
    if column is None:
        assert default is not None
        return np.full(size, default)
    try:
        column = column.cast(NUMBERS[name])
    except pa.ArrowInvalid:
        raise BadRowError(0, f"{name} must be a number in all rows") from None
    if column.null_count:
        if default is None:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            raise BadRowError(int(np.argmax(missing)), f"{name} is missing")
        column = column.fill_null(default)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _people(column: pa.Array) -> np.ndarray:
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        raise BadRowError(int(np.argmax(missing)), "user is missing")
    kind = column.type
    try:
        if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
            return mixed(column.cast(pa.int64()).to_numpy())
        return _by_value(column, hash_people)
    except (TypeError, ValueError, pa.ArrowNotImplementedError):
        raise BadRowError(0, "user must be an integer or text in all rows") from None


def _answers(column: pa.Array | None, size: int) -> np.ndarray:
    if column is None or pa.types.is_null(column.type):
        return np.full(size, NOT_LOGGED, dtype=np.uint64)
    kind = column.type
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        words = mixed(column.fill_null(0).cast(pa.int64()).to_numpy()) | np.uint64(1)
        if column.null_count:
            words[column.is_null().to_numpy(zero_copy_only=False)] = NOT_LOGGED
        return words
    if pa.types.is_temporal(kind):  # how Arrow reads some texts of JSON, and not others
        raise BadRowError(0, "output must be a number, text, bytes or a list")
    if pa.types.is_nested(kind):
        return hash_answers(column.to_pylist())
    return _by_value(column, hash_answers)


def _randomizers(
    column: pa.Array, nano: np.ndarray, femto: np.ndarray
) -> tuple[np.ndarray, dict[str, Declared] | None]:
    """The hash of each row's randomizer, and what the rows declare of each."""
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        raise BadRowError(int(np.argmax(missing)), "randomizer is missing")
    if not len(column):
        return np.empty(0, dtype=np.uint64), {}
    encoded = column.dictionary_encode()
    names = encoded.dictionary.cast(pa.string()).to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    words = hash_texts(names)[codes]
    if len(names) > MOST_RANDOMIZERS:
        return words, None
    if len(names) == 1:
        costs = int(nano.min()), int(nano.max()), int(femto.min())
        return words, {names[0]: Declared(len(nano), *costs)}
    codes = codes.astype(np.uint16)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(names), dtype=np.uint16))
    least, most = (f.reduceat(nano[order], starts) for f in (np.minimum, np.maximum))
    deltas = np.zeros_like(starts)
    if femto.any():
        deltas = np.minimum.reduceat(femto[order], starts)
    counts = np.bincount(codes, minlength=len(names))
    told = zip(names, counts.tolist(), least.tolist(), most.tolist(), deltas.tolist())
    return words, {name: Declared(*one) for name, *one in told}
