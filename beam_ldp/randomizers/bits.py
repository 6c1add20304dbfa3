"""Bit streams: unsigned integers of a fixed width, packed without gaps."""

from __future__ import annotations

import numpy as np

_MAX_BITS = 64


def smallest_uint(num_values: int) -> np.dtype:
    """The smallest unsigned dtype that holds 0 .. num_values - 1."""
    return np.min_scalar_type(max(0, num_values - 1))


def bits_for(num_values: int) -> int:
    """Bits that tell `num_values` possibilities apart."""
    return max(1, (num_values - 1).bit_length())


def pack_uints(values: np.ndarray, bits: int) -> bytes:
    """Each value as `bits` bits, most significant first, without gaps; zero-padded to a byte."""
    if not 1 <= bits <= _MAX_BITS:
        raise ValueError(f"bits must lie in [1, {_MAX_BITS}], got {bits}")
    big_endian = np.ascontiguousarray(values, dtype=">u8").reshape(-1, 1).view(np.uint8)
    used = -(-bits // 8)
    spread = np.unpackbits(big_endian[:, 8 - used :], axis=1)[:, 8 * used - bits :]
    return np.packbits(spread.ravel()).tobytes()


def unpack_uints(data: bytes, bits: int, count: int) -> np.ndarray:
    """Inverse of `pack_uints`: uint64 array of `count` values.

    Raises:
        ValueError: if `data` is not exactly as long as `count` values need, or if its padding is
            not zero.
    """
    if len(data) != -(-bits * count // 8):
        raise ValueError(f"data must hold {count} values of {bits} bits, got {len(data)} bytes")
    stream = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if stream[bits * count :].any():
        raise ValueError("data must be padded with zero bits")
    used = -(-bits // 8)
    spread = np.zeros((count, 8 * used), dtype=np.uint8)
    spread[:, 8 * used - bits :] = stream[: bits * count].reshape(count, bits)
    big_endian = np.zeros((count, 8), dtype=np.uint8)
    big_endian[:, 8 - used :] = np.packbits(spread, axis=1)
    return big_endian.view(">u8")[:, 0].astype(np.uint64)
