"""Logs of records in Parquet or JSON lines: parts that are read at once, and what is wrong.

A file's name says nothing of what it holds. A line that was cut off by a killed program is no
record, and nothing is read of a log that has one. Files of envelopes are read as well, where it is
said of which release they are.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from beam_ldp.protocols.interaction import NANO, hash_texts, mixed
from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.randomizers.wire_stream import StreamPart, margin
from beam_ldp.randomizers.wire_stream import read_part as read_stream_part
from beam_ldp.research.interactivity.records import (
    NUMBERS,
    OPTIONAL,
    REQUIRED,
    ROW,
    UNKNOWN,
    About,
    BadRowError,
    Declared,
    RecordBlock,
    hash_answers,
    records_of,
)

BATCH_ROWS, CHUNK_BYTES = 1 << 18, 1 << 24
_LEAST_LINE = 60  # bytes: a file is taken to have more records than it has, never far fewer


class MalformedLogError(ValueError):
    """A log that cannot be read: which file, where in it, and why; never what it says."""


@dataclass(frozen=True)
class LogPart:
    """What is read at once: a row group of a Parquet file, whole lines, or bytes of envelopes."""

    path: Path
    start: int
    stop: int
    parquet: bool = False
    envelopes: ReleaseTerms | None = None


def parts_of(
    paths: Sequence[Path], releases: Mapping[Path, ReleaseTerms] | None = None
) -> tuple[list[LogPart], int]:
    """Parts of files, and about how many records they hold. A file's name says nothing of it.

    Args:
        paths: of files.
        releases: by path, what files of envelopes are of.

    Raises:
        MalformedLogError: if a Parquet file is damaged.
        OSError: if a file cannot be read.
    """
    parts, total = [], 0
    for path in paths:
        if releases and path in releases:
            size, terms = path.stat().st_size, releases[path]
            cuts = range(0, size, CHUNK_BYTES)
            parts += [LogPart(path, a, min(a + CHUNK_BYTES, size), False, terms) for a in cuts]
            total += size // terms.envelope_bytes(1) + 1
            continue
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        if parquet:
            try:
                metadata = pq.read_metadata(path)
            except (pa.ArrowException, OSError):
                raise MalformedLogError(f"{path}: is a damaged Parquet file") from None
            parts += [LogPart(path, i, i + 1, True) for i in range(metadata.num_row_groups)]
            total += metadata.num_rows
            continue
        lines = _cuts(path)
        parts += [LogPart(path, a, b) for a, b in zip(lines, lines[1:])]
        total += lines[-1] // _LEAST_LINE + 1
    return parts, total


def _cuts(path: Path) -> list[int]:
    """Where parts of a file of lines begin and end."""
    size, cuts = path.stat().st_size, [0]
    with path.open("rb") as file:
        while cuts[-1] + CHUNK_BYTES < size:
            file.seek(cuts[-1] + CHUNK_BYTES)
            file.readline()
            cuts.append(file.tell())
    return cuts if cuts[-1] == size else [*cuts, size]


def read_part(part: LogPart, *, planned: bool = False) -> Iterator[RecordBlock]:
    """The records of a part.

    Raises:
        MalformedLogError: for the first row or line that is no record.
    """
    if part.envelopes is not None:
        yield read_envelopes(part.envelopes, part.path, part.start, part.stop)
        return
    if not part.parquet:
        yield _read_lines(part, planned)
        return
    try:
        file = pq.ParquetFile(part.path)
        wanted = [n for n in (*REQUIRED, *OPTIONAL) if n in file.schema_arrow.names]
        before = sum(file.metadata.row_group(i).num_rows for i in range(part.start))
        batches = file.iter_batches(BATCH_ROWS, [part.start], wanted, use_threads=False)
        for batch in batches:
            try:
                yield records_of(batch, planned=planned)
            except ValueError as error:
                raise MalformedLogError(_in_file(part.path, before, error)) from None
            before += batch.num_rows
    except (pa.ArrowException, OSError):
        raise MalformedLogError(f"{part.path}: is a damaged Parquet file") from None


def _in_file(path: Path, before: int, error: ValueError) -> str:
    cause = error.__context__
    if isinstance(cause, BadRowError):
        return f"{path}: row {before + cause.row + 1}: {cause.reason}"
    return f"{path}: {error}"


_LINES = pj.ParseOptions(
    explicit_schema=pa.schema([*NUMBERS.items(), ("randomizer", pa.string())]),
    unexpected_field_behavior="infer",
)


def _read_lines(part: LogPart, planned: bool) -> RecordBlock:
    with part.path.open("rb") as file:
        file.seek(part.start)
        content = file.read(part.stop - part.start)
    reading = pj.ReadOptions(use_threads=False, block_size=len(content) + 1)
    try:
        table = pj.read_json(io.BytesIO(content), reading, _LINES)
        return records_of(_without_nothing(table), planned=planned)
    except (pa.ArrowException, ValueError):
        return _line_by_line(part, content, planned)


def _without_nothing(table: pa.Table) -> pa.Table:
    """Columns that no line has are missing, not null everywhere."""
    given = [n for n in table.schema.names if table.column(n).null_count < table.num_rows]
    return table.select(given)


def _line_by_line(part: LogPart, content: bytes, planned: bool) -> RecordBlock:
    """As it is where columns hold values of several kinds, or where something is wrong."""
    lines = [line for line in enumerate(content.split(b"\n")) if line[1].strip()]
    if not lines:
        return RecordBlock(np.empty(0, dtype=ROW), About())
    try:
        return _of_lines([line for _, line in lines], planned)
    except ValueError:
        for number, line in lines:
            try:
                _of_lines([line], planned)
            except ValueError as error:
                with part.path.open("rb") as file:
                    number += file.read(part.start).count(b"\n") + 1
                raise MalformedLogError(f"{part.path}: line {number}: {reason_of(error)}") from None
        raise


def _of_lines(lines: list[bytes], planned: bool) -> RecordBlock:
    """Raises ValueError if one is no record."""
    return records_of_rows([json.loads(line) for line in lines], planned=planned)


def records_of_rows(rows: Sequence[Mapping[str, Any]], *, planned: bool = False) -> RecordBlock:
    """Rows with the fields of a log as records; ids and answers may be of several types.

    Raises:
        ValueError: if one is no record.
    """
    found = []
    for told in rows:
        if not isinstance(told, Mapping):
            raise ValueError("is no JSON object")
        user = told.get("user", "")
        if isinstance(user, bool) or not isinstance(user, (Integral, str)):
            raise ValueError("user must be an integer or text")
        found.append({**told, "user": str(user)} if "user" in told else dict(told))
    names = {name for one in found for name in one if one[name] is not None}
    try:
        columns = {n: [one.get(n) for one in found] for n in (*REQUIRED, *OPTIONAL) if n in names}
        answers = hash_answers(columns.pop("output", [None] * len(found)))
        return records_of(pa.table(columns), planned=planned, answers=answers)
    except (pa.ArrowException, OverflowError, TypeError):
        raise ValueError("a field is not of its type") from None


def columns_of(path: Path, names: Sequence[str], most: int) -> pa.Table | None:
    """These columns of a log that was found sound, and its runs, ids as text.

    None where the log has not all of them, or more than `most` records.
    """
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            metadata = pq.read_metadata(path)
            known = metadata.schema.to_arrow_schema().names
            if not set(names) <= set(known) or metadata.num_rows > most:
                return None
            table = pq.read_table(path, columns=[n for n in (*names, "run") if n in known])
            users = [str(user) for user in table.column("user").to_pylist()]
            return table.set_column(table.schema.get_field_index("user"), "user", [users])
        file.seek(0)
        first = next((line for line in file if line.strip()), b"{}")
        if not set(names) <= set(json.loads(first)):
            return None
        file.seek(0)
        if sum(1 for _ in islice(file, most + 1)) > most:
            return None
        file.seek(0)
        found = [json.loads(line) for line in file if line.strip()]
    found = [{**one, "user": str(one["user"])} for one in found]
    try:
        return pa.table({name: [one.get(name) for one in found] for name in (*names, "run")})
    except pa.ArrowException:
        return None


def reason_of(error: ValueError) -> str:
    """Why a row is no record."""
    if isinstance(error, json.JSONDecodeError):
        return "is no JSON"
    cause = error.__context__
    return cause.reason if isinstance(cause, BadRowError) else str(error)


# Envelopes of devices: what was sent, from bytes that name nobody ------------------------


_ODD = np.uint64(0x9E3779B97F4A7C15)


def read_envelopes(terms: ReleaseTerms, path: Path, start: int, stop: int) -> RecordBlock:
    """The reports of the envelopes that begin in some bytes of a file, one record each.

    An envelope says the release, its reports, and an id that was drawn for it alone: by it a copy
    is told, and two different envelopes that claim to be one. Whose it is nobody can tell, nor
    whether two are one person's, nor what the question depended on.

    A person is the id of an envelope and a place in it; reports without an id are people of their
    own. The epsilon is that of whoever reads most of a report.
    """
    around = margin(terms)
    begin = max(0, start - around)
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(stop + around - begin)
    found = read_stream_part(terms, data, begin, start, stop)
    rows = np.empty(len(found.reports), dtype=ROW)
    rows["person"] = _senders(found, path)
    rows["question"] = hash_texts([terms.identity.digest])[0]
    packed = terms.randomizer.pack_each(found.reports)
    rows["answer"] = hash_texts([one.tobytes() for one in packed]) | np.uint64(1)
    nano = int(np.ceil(most_epsilon(terms) * NANO))
    rows["nano"], rows["femto"], rows["seq"], rows["assigned"] = nano, 0, 0, UNKNOWN
    refused = int((found.refused.stops - found.refused.starts).sum())
    return RecordBlock(rows, _about(terms, len(rows), nano, refused))


def most_epsilon(terms: ReleaseTerms) -> float:
    """The local epsilon of a report against the reader who reads most of it."""
    randomizer = terms.randomizer
    levels = randomizer.all_levels if isinstance(randomizer, RefinableResponse) else ()
    return float(max(levels, default=randomizer.local_epsilon))


def _about(terms: ReleaseTerms, records: int, nano: int, refused: int) -> About:
    randomizer, identity = terms.randomizer, terms.identity
    name = f"{type(randomizer).__name__} {randomizer.config_digest().hex()[:16]}"
    declared = {name: Declared(records, nano, nano)} if records else {}
    run = int(hash_texts([f"{identity.dataset}/{identity.release_id}".encode()])[0])
    return About(declared, frozenset([run]), refused)


def _senders(found: StreamPart, path: Path) -> np.ndarray:
    """A word for each report's sender."""
    halves = np.ascontiguousarray(found.ids).view("<u8").reshape(-1, 2)
    words = mixed(mixed(halves[:, 0]) * _ODD + halves[:, 1])
    without = ~found.ids.any(axis=1)
    place = mixed(found.offsets) + hash_texts([str(path).encode()])[0]
    words[without] = mixed(place[without] * _ODD)
    first = np.repeat(np.cumsum(found.counts) - found.counts, found.counts)
    inside = (np.arange(len(found.reports)) - first).astype(np.uint64)
    return mixed(np.repeat(words, found.counts) * _ODD + inside)
