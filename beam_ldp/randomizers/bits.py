"""Bit streams: unsigned integers of a fixed width, packed without gaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_ldp.randomizers.jit import kernel

_MAX_BITS = 64
_HALF = np.uint64(32)
_EIGHT = np.uint64(8)
_BYTE = np.uint64(0xFF)
_ONE = np.uint64(1)


def smallest_uint(num_values: int) -> np.dtype[Any]:
    """The smallest unsigned dtype that holds 0 .. num_values - 1."""
    return np.min_scalar_type(max(0, num_values - 1))


def bits_for(num_values: int) -> int:
    """Bits that tell `num_values` possibilities apart."""
    return max(1, (num_values - 1).bit_length())


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


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= _MAX_BITS:
        raise ValueError(f"bits must lie in [1, {_MAX_BITS}], got {bits}")


# Both kernels move at most 32 bits at a time, so that they and up to seven bits that wait for the
# rest of their byte fit a word.


@kernel
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


@kernel
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
