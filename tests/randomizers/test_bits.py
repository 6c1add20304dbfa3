"""Bit streams: exact length, round trip, refusal of anything else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers.bits import pack_uints, unpack_uints
from beam_ldp.randomizers.words import bits_for, smallest_uint

pytestmark = pytest.mark.exact


def reference(values: list[int], bits: int) -> bytes:
    """The stream as a string of digits."""
    digits = "".join(format(value, f"0{bits}b") for value in values)
    digits += "0" * (-len(digits) % 8)
    return int(digits or "0", 2).to_bytes(len(digits) // 8, "big")


@given(data=st.data(), bits=st.integers(1, 64), count=st.integers(0, 40))
def test_stream_is_the_digits_one_after_another(data, bits, count):
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count))
    packed = pack_uints(np.array(values, dtype=np.uint64), bits)
    assert packed == reference(values, bits)
    again = unpack_uints(packed, bits, count)
    assert again.dtype == np.uint64 and again.tolist() == values


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int64, np.uint64])
def test_any_integer_dtype_and_stride(dtype):
    values = np.arange(100, dtype=dtype)[::3]
    assert pack_uints(values, 7) == reference(values.tolist(), 7)


def test_values_that_do_not_fit_are_refused():
    for values in ([8], [-1], [1 << 40]):
        with pytest.raises(ValueError, match=r"must lie in \[0, 2\*\*3\)"):
            pack_uints(np.array(values), 3)
    for values in (np.zeros((2, 2), dtype=int), np.array([0.5])):
        with pytest.raises(ValueError, match="one-dimensional integer"):
            pack_uints(values, 3)
    for bits in (0, 65, -1):
        with pytest.raises(ValueError, match=r"bits must lie in \[1, 64\]"):
            pack_uints(np.array([0]), bits)
        with pytest.raises(ValueError, match=r"bits must lie in \[1, 64\]"):
            unpack_uints(b"", bits, 0)


@given(bits=st.integers(1, 64), count=st.integers(0, 20), extra=st.sampled_from([-1, 1]))
def test_wrong_lengths_are_refused(bits, count, extra):
    length = -(-bits * count // 8) + extra
    if length >= 0:
        with pytest.raises(ValueError, match="data must hold"):
            unpack_uints(bytes(length), bits, count)


def test_dirty_padding_and_negative_counts_are_refused():
    assert unpack_uints(b"\x80", 1, 1).tolist() == [1]
    for last in range(1, 8):
        with pytest.raises(ValueError, match="padded with zero bits"):
            unpack_uints(bytes([1 << (7 - last)]), 1, 1)
    with pytest.raises(ValueError, match="data must hold"):
        unpack_uints(b"", 3, -1)


def test_smallest_types_and_widths():
    sizes = [1, 2, 256, 257, 65536, 65537, 1 << 32, (1 << 32) + 1]
    assert [smallest_uint(n).itemsize for n in sizes] == [1, 1, 1, 2, 2, 4, 4, 8]
    assert [bits_for(n) for n in (1, 2, 3, 4, 5, 1024, 1025)] == [1, 1, 2, 2, 3, 10, 11]
