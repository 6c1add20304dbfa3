"""Bit streams: unsigned integers of a fixed width, packed without gaps."""

from __future__ import annotations

import functools

import numpy as np

from beam_ldp.randomizers.words import kernel, short_kernel

_MAX_BITS = 64
_HALF = np.uint64(32)
_EIGHT = np.uint64(8)
_BYTE = np.uint64(0xFF)
_ONE = np.uint64(1)


def pack_uints(values: np.ndarray, bits: int) -> bytes:
    """Each value as `bits` bits, most significant first, without gaps; zero-padded to a byte.

    Raises:
        ValueError: if `values` is not a vector of non-negative integers of at most `bits` bits.
    """
    _check_bits(bits)
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iub":
        raise ValueError("values to pack must be a one-dimensional integer array")
    if values.size and (int(values.max()) >> bits or int(values.min()) < 0):
        raise ValueError(f"values to pack must lie in [0, 2**{bits})")
    stream = np.zeros(-(-bits * len(values) // 8), dtype=np.uint8)
    _pack(values, np.uint64(bits), stream)
    return stream.tobytes()


def unpack_uints(data: bytes, bits: int, count: int) -> np.ndarray:
    """Inverse of `pack_uints`: uint64 array of `count` values.

    Raises:
        ValueError: if `data` is not exactly as long as `count` values need, or if its padding is
            not zero.
    """
    _check_bits(bits)
    if count < 0 or len(data) != -(-bits * count // 8):
        raise ValueError(f"data must hold {count} values of {bits} bits, got {len(data)} bytes")
    stream = np.frombuffer(data, dtype=np.uint8)
    padding = -bits * count % 8
    if padding and int(stream[-1]) & ((1 << padding) - 1):
        raise ValueError("data must be padded with zero bits")
    values = np.empty(count, dtype=np.uint64)
    _unpack(stream, np.uint64(bits), values)
    return values


def join_rows(rows: np.ndarray, bits: int, *, little: bool = False) -> bytes:
    """Rows of `bits` bits, each in whole bytes, as one stream without gaps; zero-padded to a byte.

    Args:
        rows: uint8 `(n, ceil(bits / 8))`; what a row holds beyond its bits is left out.
        bits: bits of a row.
        little: the first bit of a byte is its least significant one, else its most significant.
    """
    if bits % 8 == 0:
        return rows.tobytes()
    stream = np.zeros(-(-bits * len(rows) // 8), dtype=np.uint8)
    _join(np.ascontiguousarray(rows), bits, little, stream)
    return stream.tobytes()


def split_rows(data: bytes, bits: int, count: int, *, little: bool = False) -> np.ndarray:
    """Inverse of `join_rows`: uint8 `(count, ceil(bits / 8))`, each row zero-padded.

    Raises:
        ValueError: if `data` is not exactly as long as `count` rows need, or if its padding is not
            zero.
    """
    if count < 0 or len(data) != -(-bits * count // 8):
        raise ValueError(f"data must hold {count} rows of {bits} bits, got {len(data)} bytes")
    stream = np.frombuffer(data, dtype=np.uint8)
    if bits % 8 == 0:
        return stream.reshape(count, bits // 8).copy()
    if not padding_is_zero(stream[None, :], bits * count, little=little).all():
        raise ValueError("data must be padded with zero bits")
    rows = np.empty((count, -(-bits // 8)), dtype=np.uint8)
    _split(stream, bits, little, rows)
    return rows


def padding_is_zero(rows: np.ndarray, bits: int, *, little: bool = False) -> np.ndarray:
    """Which rows of bytes hold nothing beyond their first `bits` bits: bool `(n,)`."""
    padding = -bits % 8
    if not padding or not rows.shape[1]:
        return np.ones(len(rows), dtype=np.bool_)
    beyond = (0xFF << (8 - padding)) & 0xFF if little else (1 << padding) - 1
    return np.asarray(rows[:, -1] & np.uint8(beyond) == 0)


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= _MAX_BITS:
        raise ValueError(f"bits must lie in [1, {_MAX_BITS}], got {bits}")


# Both kernels move at most 32 bits at a time, so that they and up to seven bits that wait for the
# rest of their byte fit a word.


@short_kernel
def _pack(values, bits, stream):  # type: ignore[no-untyped-def]
    low = bits if bits <= _HALF else _HALF
    high = bits - low
    pending = np.uint64(0)
    waiting = np.uint64(0)
    at = 0
    for i in range(values.size):
        value = np.uint64(values[i])
        for part in range(2):
            width = high if part == 0 else low
            piece = value >> low if part == 0 else value & ((_ONE << low) - _ONE)
            if width == 0:
                continue
            pending = pending << width | piece
            waiting += width
            while waiting >= _EIGHT:
                waiting -= _EIGHT
                stream[at] = pending >> waiting & _BYTE
                at += 1
    if waiting > 0:
        stream[at] = pending << (_EIGHT - waiting) & _BYTE


@short_kernel
def _unpack(stream, bits, values):  # type: ignore[no-untyped-def]
    low = bits if bits <= _HALF else _HALF
    high = bits - low
    pending = np.uint64(0)
    waiting = np.uint64(0)
    at = 0
    for i in range(values.size):
        value = np.uint64(0)
        for part in range(2):
            width = high if part == 0 else low
            while waiting < width:
                pending = pending << _EIGHT | np.uint64(stream[at])
                waiting += _EIGHT
                at += 1
            waiting -= width
            value = value << width | (pending >> waiting & ((_ONE << width) - _ONE))
        values[i] = value


@kernel
def _join(rows, bits, little, stream):  # type: ignore[no-untyped-def]
    width = rows.shape[1]
    unused = 8 * width - bits
    last = (0xFF >> unused) if little else (0xFF << unused) & 0xFF
    for i in range(rows.shape[0]):
        at, shift = (i * bits) >> 3, (i * bits) & 7
        for j in range(width):
            byte = np.int64(rows[i, j])
            if j == width - 1:
                byte &= last
            both = byte << shift if little else byte << (8 - shift)
            stream[at + j] |= np.uint8(both & 0xFF if little else both >> 8)
            if shift and at + j + 1 < stream.size:
                stream[at + j + 1] |= np.uint8(both >> 8 if little else both & 0xFF)


@kernel
def _split(stream, bits, little, rows):  # type: ignore[no-untyped-def]
    width = rows.shape[1]
    unused = 8 * width - bits
    last = (0xFF >> unused) if little else (0xFF << unused) & 0xFF
    for i in range(rows.shape[0]):
        at, shift = (i * bits) >> 3, (i * bits) & 7
        for j in range(width):
            first = np.int64(stream[at + j])
            second = np.int64(stream[at + j + 1]) if at + j + 1 < stream.size else 0
            if little:
                byte = (first | second << 8) >> shift & 0xFF
            else:
                byte = (first << 8 | second) >> (8 - shift) & 0xFF
            rows[i, j] = byte & last if j == width - 1 else byte


# CRC-32 of many pieces of memory at once: what `zlib.crc32` gives for each ----------------
#
# Eight bytes a step by eight tables (Kounavis and Berry 2005, "slicing by 8").


_POLYNOMIAL = 0xEDB88320
_STEP = 8
_BYTE32 = np.uint32(0xFF)
_ALL32 = np.uint32(0xFFFFFFFF)
_BITS_8, _BITS_16, _BITS_24 = np.uint32(8), np.uint32(16), np.uint32(24)


def crc32_at(data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """uint32 `(n,)`: the CRC-32 of `data[start:stop]` for each pair; `data` is uint8."""
    found = np.empty(len(starts), dtype=np.uint32)
    _crc32_at(data, starts, stops, _tables(), found)
    return found


def crc32_of_rows(rows: np.ndarray) -> np.ndarray:
    """uint32 `(n,)`: the CRC-32 of each row of a uint8 array `(n, length)`."""
    flat = np.ascontiguousarray(rows).reshape(-1)
    starts = np.arange(len(rows), dtype=np.int64) * rows.shape[1]
    return crc32_at(flat, starts, starts + rows.shape[1])


@functools.cache
def _tables() -> np.ndarray:
    """Row k: what a byte does to the sum k bytes later."""
    tables = np.zeros((_STEP, 256), dtype=np.uint32)
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(_POLYNOMIAL), row >> 1).astype(np.uint32)
    tables[0] = row
    for k in range(1, _STEP):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> 8)
    return tables


@kernel
def _crc32_at(data, starts, stops, tables, found):  # type: ignore[no-untyped-def]
    for i in range(starts.size):
        crc = _ALL32
        at, stop = starts[i], stops[i]
        while at + 8 <= stop:
            crc = (
                tables[7, data[at] ^ (crc & _BYTE32)]
                ^ tables[6, data[at + 1] ^ (crc >> _BITS_8 & _BYTE32)]
                ^ tables[5, data[at + 2] ^ (crc >> _BITS_16 & _BYTE32)]
                ^ tables[4, data[at + 3] ^ (crc >> _BITS_24)]
                ^ tables[3, data[at + 4]]
                ^ tables[2, data[at + 5]]
                ^ tables[1, data[at + 6]]
                ^ tables[0, data[at + 7]]
            )
            at += 8
        while at < stop:
            crc = tables[0, data[at] ^ (crc & _BYTE32)] ^ (crc >> _BITS_8)
            at += 1
        found[i] = crc ^ _ALL32
