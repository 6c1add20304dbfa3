"""CRC-32 of many pieces of memory at once: what `zlib.crc32` gives for each.

Eight bytes a step by eight tables (Kounavis and Berry 2005, "slicing by 8").
"""

from __future__ import annotations

import functools

import numpy as np

from beam_ldp.randomizers.jit import kernel

_POLYNOMIAL = 0xEDB88320
_STEP = 8
_BYTE = np.uint32(0xFF)
_ALL = np.uint32(0xFFFFFFFF)
_EIGHT, _SIXTEEN, _TWENTY_FOUR = np.uint32(8), np.uint32(16), np.uint32(24)


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
        crc = _ALL
        at, stop = starts[i], stops[i]
        while at + 8 <= stop:
            crc = (
                tables[7, data[at] ^ (crc & _BYTE)]
                ^ tables[6, data[at + 1] ^ (crc >> _EIGHT & _BYTE)]
                ^ tables[5, data[at + 2] ^ (crc >> _SIXTEEN & _BYTE)]
                ^ tables[4, data[at + 3] ^ (crc >> _TWENTY_FOUR)]
                ^ tables[3, data[at + 4]]
                ^ tables[2, data[at + 5]]
                ^ tables[1, data[at + 6]]
                ^ tables[0, data[at + 7]]
            )
            at += 8
        while at < stop:
            crc = tables[0, data[at] ^ (crc & _BYTE)] ^ (crc >> _EIGHT)
            at += 1
        found[i] = crc ^ _ALL
