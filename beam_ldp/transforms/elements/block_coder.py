"""One coder for all block classes: fields in a fixed order, raw array bytes, no pickle.

Layout: version byte, then each field. Integers of arrays travel in the smallest dtype that holds
them and come back in their own. Two equal blocks give equal bytes.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.intervals import NORMAL, IntervalRule, Joined, SupportRule

VERSION = 3
# What a `MeanEstimate` has besides; then 1 if its error bars are measured, its degrees of freedom
# and its skewness, of each component unless it is the same of all. Earlier versions did not say
# these: their error bars are those of the worst case, or of a thousand reports at least.
_OF_MEAN = ("mean_squared_error", "bias_bound", "failure_probability", "expected_bias")
# What `FoundWords` has besides its words.
_ARRAYS_OF_WORDS = ("frequency", "standard_error", "low", "high")
_OF_WORDS = ("tested", "num_users", "answers", "coverage", "threshold", "complete")
_SIZE = struct.Struct("<q")
_NONE = -1
B = TypeVar("B")


class BlockReader:
    """Reads the fields of one block, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        chunk = self._data[self._at : self._at + count]
        if count < 0 or len(chunk) != count:
            raise ValueError("encoded block is truncated")
        self._at += count
        return chunk

    def size(self) -> int:
        return int(_SIZE.unpack(self.take(_SIZE.size))[0])

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError("encoded block is followed by other bytes")


@dataclass(frozen=True)
class FieldType:
    """How one field is written and read."""

    write: Callable[[Any, list[bytes]], None]
    read: Callable[[BlockReader], Any]


def _write_bytes(value: bytes | None, out: list[bytes]) -> None:
    out.append(_SIZE.pack(_NONE if value is None else len(value)))
    out.append(value or b"")


def _read_bytes(reader: BlockReader) -> bytes | None:
    size = reader.size()
    return None if size == _NONE else reader.take(size)


def _write_text(value: str | None, out: list[bytes]) -> None:
    _write_bytes(None if value is None else value.encode("utf-8", "surrogatepass"), out)


def _read_text(reader: BlockReader) -> str | None:
    data = _read_bytes(reader)
    return None if data is None else data.decode("utf-8", "surrogatepass")


def _write_integer(value: int, out: list[bytes]) -> None:
    out.append(_SIZE.pack(value))


def _write_json(value: Any, out: list[bytes]) -> None:
    _write_text(json.dumps(value, sort_keys=True, separators=(",", ":")), out)


def _read_json(reader: BlockReader) -> Any:
    value = json.loads(_read_text(reader) or "null")
    return tuple(value) if isinstance(value, list) else value


def smallest_dtype(array: np.ndarray) -> np.dtype[Any]:
    """The smallest integer dtype that holds the array; its own dtype for anything else."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize == 1 or not array.size:
        return array.dtype
    low, high = int(array.min()), int(array.max())
    for width in (1, 2, 4):
        for kind in "ui":
            dtype = np.dtype(f"{kind}{width}")
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return dtype
    return array.dtype


def _write_array(array: np.ndarray | None, out: list[bytes]) -> None:
    if array is None:
        _write_bytes(None, out)
        return
    if array.dtype.hasobject:
        raise TypeError("arrays of Python objects cannot be encoded")
    travels = smallest_dtype(array).newbyteorder("<")
    _write_bytes(f"{array.dtype.newbyteorder('<').str} {travels.str}".encode(), out)
    out.append(bytes([array.ndim]))
    out.extend(_SIZE.pack(length) for length in array.shape)
    out.append(np.ascontiguousarray(array, dtype=travels).tobytes())


def _read_array(reader: BlockReader) -> np.ndarray | None:
    header = _read_bytes(reader)
    if header is None:
        return None
    own, travels = (np.dtype(name) for name in header.decode().split())
    shape = tuple(reader.size() for _ in range(reader.take(1)[0]))
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.frombuffer(reader.take(count * travels.itemsize), dtype=travels).reshape(shape)
    return raw.astype(own.newbyteorder("="))  # a copy: aligned and writable


def _write_ids(ids: np.ndarray | None, out: list[bytes]) -> None:
    if ids is None or ids.dtype.kind != "O":
        out.append(b"i")
        _write_array(ids, out)
        return
    listed = ids.tolist()
    out.append(b"b")
    _write_array(np.fromiter(map(len, listed), dtype=np.int64, count=len(listed)), out)
    out.extend(listed)


def _read_ids(reader: BlockReader) -> np.ndarray | None:
    if reader.take(1) == b"i":
        return _read_array(reader)
    lengths = _read_array(reader)
    assert lengths is not None
    ids = np.empty(len(lengths), dtype=object)
    for i, length in enumerate(lengths.tolist()):
        ids[i] = reader.take(length)
    return ids


def _write_positions(positions: np.ndarray | None, out: list[bytes]) -> None:
    """Consecutive positions travel as the first one and their number."""
    if positions is not None and len(positions) and np.all(np.diff(positions) == 1):
        out.append(b"c")
        out.extend((_SIZE.pack(int(positions[0])), _SIZE.pack(len(positions))))
        return
    out.append(b"a")
    _write_array(positions, out)


def _read_positions(reader: BlockReader) -> np.ndarray | None:
    if reader.take(1) == b"a":
        return _read_array(reader)
    first, count = reader.size(), reader.size()
    return np.arange(first, first + count, dtype=np.int64)


def _write_batch(batch: pa.RecordBatch, out: list[bytes]) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    _write_bytes(sink.getvalue().to_pybytes(), out)


def _read_batch(reader: BlockReader) -> pa.RecordBatch:
    return pa.ipc.open_stream(_read_bytes(reader)).read_next_batch()


def _write_estimate(estimate: Any, out: list[bytes]) -> None:
    if hasattr(estimate, "texts"):
        _write_found(estimate, out)
        return
    raw = estimate.raw
    for array in (estimate.value, estimate.standard_error):
        _write_array(array, out)
    _write_integer(estimate.num_users, out)
    rules = _told_of(raw.rule)
    steps = list(estimate.steps)
    _write_json({"steps": steps, "rules": [told for told, _ in rules]} if rules else steps, out)
    for raw_array in (raw.value, raw.standard_error):
        _write_array(raw_array if estimate.steps else None, out)
    of_mean = None
    if hasattr(estimate, "error_bars"):
        known = [getattr(estimate, name) for name in _OF_MEAN]
        known += [estimate.error_bars == "measured", estimate.degrees_of_freedom]
        of_mean = np.append(known, estimate.skewness)
    _write_array(of_mean, out)
    for _, on_block in rules:
        _write_array(on_block, out)


def _told_of(rule: IntervalRule) -> list[tuple[Any, np.ndarray | None]]:
    """What intervals follow from, part by part: as JSON, and an array. Empty of the normal rule,
    which is all that earlier versions knew."""
    if rule == NORMAL:
        return []
    found: list[tuple[Any, np.ndarray | None]] = []
    for size, one in rule.parts if isinstance(rule, Joined) else ((None, rule),):
        told, on_block = None, None
        if isinstance(one, SupportRule):
            told, on_block = [one.answers, one.people, one.own, one.others], one.on_block
        elif one != NORMAL:
            raise TypeError(f"estimates of {type(one).__name__} do not travel")
        found.append(([size, told], on_block))
    return found


def _rule_of(told: Sequence[Any], arrays: Iterable[np.ndarray | None]) -> IntervalRule:
    """Inverse of `_told_of`."""
    parts: list[tuple[Any, IntervalRule]] = []
    for (size, one), on_block in zip(told, arrays):
        rule: IntervalRule = NORMAL
        if one is not None:
            answers, people, own, others = one
            rule = SupportRule(answers, people, tuple(own), tuple(others), on_block)
        parts.append((size, rule))
    if not parts:
        return NORMAL
    return parts[0][1] if parts[0][0] is None else Joined(tuple(parts))


def _write_found(found: Any, out: list[bytes]) -> None:
    """Words that nobody listed; no array stands first, as it does in every other estimate."""
    _write_array(None, out)
    texts = np.empty(len(found.texts), dtype=object)
    texts[:] = found.texts
    _write_ids(texts, out)
    for name in _ARRAYS_OF_WORDS:
        _write_array(getattr(found, name), out)
    _write_json([list(found.rest), *(getattr(found, name) for name in _OF_WORDS)], out)


def _read_found(reader: BlockReader) -> Any:
    from beam_ldp.protocols.found_words import FoundWords, Share  # as below

    texts = _read_ids(reader)
    assert texts is not None
    arrays: dict[str, Any] = {name: _read_array(reader) for name in _ARRAYS_OF_WORDS}
    rest, *numbers = _read_json(reader)
    return FoundWords(
        texts=tuple(texts.tolist()), rest=Share(*rest), **arrays, **dict(zip(_OF_WORDS, numbers))
    )


def _read_estimate(reader: BlockReader) -> Any:
    value = _read_array(reader)
    if value is None:
        return _read_found(reader)
    error = _read_array(reader)
    assert error is not None
    num_users, told = reader.size(), _read_json(reader)
    known: Any = told if isinstance(told, dict) else {"steps": told, "rules": ()}
    steps, rules = tuple(known["steps"]), known["rules"]
    raw_value, raw_error = _read_array(reader), _read_array(reader)
    of_mean = _read_array(reader)
    kind: Callable[..., Estimate] = Estimate
    if of_mean is not None:
        # Here because mean mechanisms take long to import, and counting needs none.
        from beam_ldp.randomizers.mean.base import MEASURED, WORST_CASE, MeanEstimate

        more = of_mean.tolist()
        more += [0.0, math.inf, 0.0][max(0, len(more) - len(_OF_MEAN)) :]
        *numbers, measured, degrees = more[: len(_OF_MEAN) + 2]
        skewness = np.array(more[len(_OF_MEAN) + 2 :])
        kind = functools.partial(
            MeanEstimate, **dict(zip(_OF_MEAN, numbers)),
            error_bars=MEASURED if measured else WORST_CASE, degrees_of_freedom=degrees,
            skewness=skewness if skewness.size > 1 else float(skewness[0]),
        )  # fmt: skip
    rule = _rule_of(rules, [_read_array(reader) for _ in rules])
    raw = None
    if raw_value is not None and raw_error is not None:
        raw = kind(raw_value, raw_error, num_users, rule=rule)
    return kind(value, error, num_users, steps, raw, rule)


ARRAY = FieldType(_write_array, _read_array)
BYTES = FieldType(_write_bytes, _read_bytes)
TEXT = FieldType(_write_text, _read_text)
INTEGER = FieldType(_write_integer, BlockReader.size)
FLAG = FieldType(lambda value, out: out.append(bytes([bool(value)])), lambda r: r.take(1) == b"\1")
IDS = FieldType(_write_ids, _read_ids)
POSITIONS = FieldType(_write_positions, _read_positions)
JSON = FieldType(_write_json, _read_json)
BATCH = FieldType(_write_batch, _read_batch)
ESTIMATE = FieldType(_write_estimate, _read_estimate)


# How a field travels: by its name, or else by what it is declared to be.
_NAMED = {"user_ids": IDS, "positions": POSITIONS}
_DECLARED = {
    "np.ndarray": ARRAY,
    "np.ndarray | None": ARRAY,
    "bytes": BYTES,
    "str": TEXT,
    "str | None": TEXT,
    "int": INTEGER,
    "bool": FLAG,
    "tuple[str, ...]": JSON,
    "tuple[int, ...]": JSON,
    "tuple[int, int] | None": JSON,
    "dict[str, Any]": JSON,
    "pa.RecordBatch": BATCH,
    "Estimate": ESTIMATE,
}

_layouts: dict[type, dict[str, FieldType]] = {}
_builders: dict[type, Callable[..., Any]] = {}


class BlockCoder(beam.coders.Coder):
    """The coder of one block class."""

    def __init__(self, block_type: type) -> None:
        self._type = block_type

    def encode(self, value: Any) -> bytes:
        out = [bytes([VERSION])]
        for name, field_type in _layouts[self._type].items():
            field_type.write(getattr(value, name), out)
        return b"".join(out)

    def decode(self, encoded: bytes) -> Any:
        reader = BlockReader(encoded)
        version = reader.take(1)[0]
        if version != VERSION:
            raise ValueError(f"block format version must be {VERSION}, got {version}")
        values = {name: kind.read(reader) for name, kind in _layouts[self._type].items()}
        reader.end()
        return _builders[self._type](**values)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return self._type

    @classmethod
    def from_type_hint(cls, typehint: type, registry: Any) -> BlockCoder:
        return cls(typehint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockCoder) and self._type is other._type

    def __hash__(self) -> int:
        return hash((BlockCoder, self._type))


def register(
    block_type: type, build: Callable[..., Any] | None = None, /, **special: FieldType
) -> None:
    """Give a dataclass its coder: its fields travel in the order of their declaration.

    Args:
        block_type: the class.
        build: makes an object from the fields that were read; the class itself if None.
        **special: how fields travel that no other class has.
    """
    _layouts[block_type] = {
        field.name: special.get(field.name) or _NAMED.get(field.name) or _DECLARED[str(field.type)]
        for field in fields(block_type)
    }
    _builders[block_type] = build or block_type
    beam.coders.registry.register_coder(block_type, BlockCoder)


def travels(block_type: type[B]) -> type[B]:
    """The dataclass with its coder."""
    register(block_type)
    return block_type
