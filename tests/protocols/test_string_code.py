"""The public code of strings."""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np
import pytest

from beam_ldp.protocols.string_code import PHRASES, StringCode, _table

DIGEST = "1900150163a19f2c9506d40873a1863c937e30652cbb8d57245ab3a3734c2450"

pytestmark = pytest.mark.exact


def some_strings() -> list[bytes]:
    rng = np.random.default_rng(5)
    random = [rng.bytes(int(size)) for size in rng.integers(0, 33, 200)]
    texts = ["", "the", "Grüße", "привет", "日本語", "https://www.example.com/a.html", "x.company"]
    return [*random, *(text.encode() for text in texts), *PHRASES, bytes(32)]


def test_every_string_of_bytes_comes_back() -> None:
    code = StringCode(num_bits=1024)
    listed = some_strings()
    bits, lengths = code.encode(listed)
    assert (lengths > 0).all()
    assert [code.decode(row).text for row in bits] == listed
    assert all(code.decode(row).complete for row in bits)
    assert len({row.tobytes() for row in bits}) == len(set(listed))


def test_codes_are_complete_prefix_codes() -> None:
    sizes = (_table().entries & np.uint64(255)).astype(float)
    assert (sizes >= 1).all() and (sizes <= 16).all()
    assert (np.exp2(-sizes).sum(axis=1) == 1).all()


def test_a_shipped_version_never_changes() -> None:
    stored = resources.files("beam_ldp.protocols").joinpath("string_code_1.bin").read_bytes()
    assert hashlib.sha256(stored).hexdigest() == DIGEST


def test_prefixes_decode_to_the_beginning() -> None:
    code = StringCode(num_bits=64)
    row = code.encode([b"heavy"]).bits[0]
    for size in range(65):
        told = code.decode(row, size)
        assert b"heavy".startswith(told.text) and told.possible


def test_what_has_no_code_is_all_ones_and_what_no_code_begins_with_is_impossible() -> None:
    code = StringCode(num_bits=64, max_bytes=4)
    bits, lengths = code.encode([b"fine", b"five5", bytes([7]) * 4])
    assert lengths.tolist()[1:] == [0, 0] or lengths[1] == 0
    assert (bits[lengths == 0] == np.uint64(2**64 - 1)).all()
    dirty = bits[0] | np.uint64(1)  # a one behind END
    assert not code.decode(dirty).possible and not code.decode(dirty).complete


@pytest.mark.parametrize("wrong", [{"num_bits": 0}, {"max_bytes": 257}, {"version": 2}])
def test_arguments_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        StringCode(**wrong)
