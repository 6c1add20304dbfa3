"""A public code for strings: any text as a few bits, and every prefix of the bits as text.

The entropy code is static: one canonical Huffman code for each preceding byte, over bytes, a few
phrases of addresses (the longest that fits is taken) and END, fitted once to public text and
shipped as a table (`string_code_1.bin`; `benchmarks/string_code.py` fits it). So it tells nothing about anybody, all devices share it, and English words of 8 bytes
take about 30 bits instead of 256. Every string of bytes has a code, and no code is the beginning
of another. Codes are filled up with zeros to one length: how long a string is, is hidden.

Integers only: the same bits on every machine. Versions are never changed, only added.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.words import WORD_BITS, kernel

VERSION = 1
END = 256  # the symbol after the last byte
START = 256  # what the first byte is preceded by
PHRASES = (
    b"https://www.", b"http://www.", b"https://", b"http://", b"github.com/", b"www.",
    b".com/", b".com", b".org/", b".org", b".net/", b".net", b".io/", b".io", b".html", b".php",
)  # fmt: skip  # symbols from 257 on; where one begins another, the longer stands first
NUM_CONTEXTS = 257
NUM_SYMBOLS = NUM_CONTEXTS + len(PHRASES)
MAX_CODE_BITS = 16  # of one symbol
MAX_BITS = 1 << 12
MAX_BYTES = 1 << 8


class Encoded(NamedTuple):
    """Strings as bits.

    Attributes:
        bits: `(n, num_words)` uint64; the first bit of a code is the highest of its first word, so
            that rows are in the order of the codes. All ones where there is no code.
        lengths: `(n,)` uint16: bits of the code, END included; 0 for a string that has none: one of
            more than `max_bytes` bytes, or whose code has more than `num_bits` bits.
    """

    bits: NDArray[np.uint64]
    lengths: NDArray[np.uint16]


class Decoded(NamedTuple):
    """What the first bits of a code say.

    Attributes:
        text: the bytes that are certain.
        complete: whether END was reached, and all bits behind it are zero.
        possible: whether any code of at most `max_bytes` bytes begins so.
    """

    text: bytes
    complete: bool
    possible: bool


@dataclass(frozen=True)
class StringCode:
    """The code of all strings whose code has at most `num_bits` bits.

    Args:
        num_bits: to which codes are filled up; from 1 to 4,096.
        max_bytes: the most bytes that a string may have; from 1 to 256.
        version: of the table.

    Raises:
        ValueError: if one is out of range, or no such version is known.

    >>> code = StringCode(num_bits=64)
    >>> bits, lengths = code.encode([b"the", b"heavy", b"hitters"])
    >>> lengths.tolist()
    [9, 24, 29]
    >>> [code.decode(row) for row in bits][2]
    Decoded(text=b'hitters', complete=True, possible=True)
    >>> code.decode(bits[2], 12).text
    b'hi'
    """

    num_bits: int = 64
    max_bytes: int = 32
    version: int = VERSION

    def __post_init__(self) -> None:
        check_integer("num_bits", self.num_bits, 1, MAX_BITS)
        check_integer("max_bytes", self.max_bytes, 1, MAX_BYTES)
        if self.version != VERSION:
            raise ValueError(f"version must be {VERSION}, got {self.version!r}")

    @property
    def num_words(self) -> int:
        """64-bit words of a filled up code."""
        return -(-self.num_bits // WORD_BITS)

    def to_config(self) -> dict[str, Any]:
        """Parameters as JSON-able values."""
        return {"version": self.version, "num_bits": self.num_bits, "max_bytes": self.max_bytes}

    def encode(self, words: Iterable[bytes]) -> Encoded:
        """The bits of strings of bytes. About 0.2 microseconds a string.

        Strings without a code are counted by `lengths == 0`.
        """
        listed = words if isinstance(words, Sequence) else list(words)
        starts = np.zeros(len(listed) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, listed), np.int64, len(listed)), out=starts[1:])
        return self.encode_buffer(np.frombuffer(b"".join(listed), dtype=np.uint8), starts)

    def encode_buffer(self, data: NDArray[np.uint8], starts: NDArray[np.int64]) -> Encoded:
        """The same for strings that stand end to end, as in an Arrow column.

        Args:
            data: the bytes of all.
            starts: `(n + 1,)` where each starts in `data`, and where the last one ends.
        """
        count = len(starts) - 1
        bits = np.zeros((count, self.num_words), dtype=np.uint64)
        lengths = np.zeros(count, dtype=np.uint16)
        if count:
            limits = np.array([self.num_bits, self.max_bytes], dtype=np.int64)
            starts = starts.astype(np.int64)
            _encode(data, starts, _table().entries, *_phrases(), limits, bits, lengths)
        return Encoded(bits, lengths)

    def decode(self, prefix: NDArray[np.uint64], num_bits: int | None = None) -> Decoded:
        """What the first bits of a code say. Only for the few that were found: it takes a while.

        Args:
            prefix: `(num_words,)` uint64; what stands behind its first `num_bits` is not looked at.
            num_bits: of the prefix; None for all.
        """
        total = self.num_bits if num_bits is None else num_bits
        whole = int.from_bytes(np.asarray(prefix, dtype=">u8").tobytes(), "big")
        left = whole >> (self.num_words * WORD_BITS - total)
        symbols, text, context = _table().symbols, bytearray(), START
        while True:
            found = _next(symbols[context], left, total)
            if found is None:
                room = self.num_bits - (0 if num_bits is None else num_bits) > 0
                return Decoded(bytes(text), False, room and len(text) <= self.max_bytes)
            symbol, size = found
            total -= size
            left &= (1 << total) - 1
            if symbol == END:
                return Decoded(bytes(text), left == 0, left == 0)
            text += PHRASES[symbol - END - 1] if symbol > END else bytes([symbol])
            context = text[-1]
            if len(text) > self.max_bytes:
                return Decoded(bytes(text), False, False)


def _next(
    symbols: dict[tuple[int, int], int], bits: int, total: int
) -> tuple[int, int] | None:
    """The first symbol of so many bits, and its size; None where they do not tell it."""
    for size in range(1, min(total, MAX_CODE_BITS) + 1):
        symbol = symbols.get((size, bits >> (total - size)))
        if symbol is not None:
            return symbol, size
    return None


class _Table(NamedTuple):
    """The codes, by the byte before: for the kernel, and to look symbols up."""

    entries: NDArray[np.uint64]  # code * 256 + its size: (contexts, symbols)
    symbols: list[dict[tuple[int, int], int]]


@cache
def _table() -> _Table:
    stored = resources.files("beam_ldp.protocols").joinpath(f"string_code_{VERSION}.bin")
    sizes = np.frombuffer(zlib.decompress(stored.read_bytes()), dtype=np.uint8)
    sizes = sizes.reshape(-1, NUM_SYMBOLS)
    entries = np.empty(sizes.shape, dtype=np.uint64)
    symbols = []
    for context, row in enumerate(sizes.tolist()):
        codes = canonical_codes(row)
        entries[context] = [code << 8 | size for code, size in zip(codes, row)]
        symbols.append({(size, code): s for s, (code, size) in enumerate(zip(codes, row))})
    return _Table(entries, symbols)


@cache
def _phrases() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The phrases end to end, and where each starts."""
    starts = np.cumsum([0, *map(len, PHRASES)])
    return np.frombuffer(b"".join(PHRASES), dtype=np.uint8), starts.astype(np.int64)


def canonical_codes(sizes: Sequence[int]) -> list[int]:
    """The canonical Huffman code of each symbol, from the sizes alone.

    >>> [f"{code:b}" for code in canonical_codes([2, 1, 3, 3])]
    ['10', '0', '110', '111']
    """
    codes, code, before = [0] * len(sizes), 0, 0
    for size, symbol in sorted((size, symbol) for symbol, size in enumerate(sizes)):
        code <<= size - before
        codes[symbol], before = code, size
        code += 1
    return codes


@kernel
def _encode(data, starts, entries, phrases, phrase_starts, limits, bits, lengths):  # type: ignore[no-untyped-def]
    one_word, ones = np.int64(64), np.uint64(0xFFFFFFFFFFFFFFFF)
    num_bits, max_bytes = limits[0], limits[1]
    for i in range(len(lengths)):
        begin, end = starts[i], starts[i + 1]
        if end - begin > max_bytes:
            for k in range(bits.shape[1]):
                bits[i, k] = ones
            continue
        context, position, j = np.int64(256), np.int64(0), begin
        while j <= end:
            symbol, taken = np.int64(256), np.int64(1)
            if j < end:
                symbol = np.int64(data[j])
                if symbol == 46 or symbol == 103 or symbol == 104 or symbol == 119:  # . g h w
                    for p in range(len(phrase_starts) - 1):
                        size = phrase_starts[p + 1] - phrase_starts[p]
                        same = np.int64(0)
                        if size <= end - j:
                            while same < size and (
                                data[j + same] == phrases[phrase_starts[p] + same]
                            ):
                                same += 1
                        if same == size:
                            symbol, taken = np.int64(257) + p, size
                            break
            entry = entries[context, symbol]
            size = np.int64(entry & np.uint64(255))
            code = entry >> np.uint64(8)
            if position + size > num_bits:
                position = np.int64(0)
                break
            word, room = position // one_word, one_word - position % one_word
            if size <= room:
                bits[i, word] |= code << np.uint64(room - size)
            else:
                bits[i, word] |= code >> np.uint64(size - room)
                bits[i, word + 1] |= code << np.uint64(one_word - (size - room))
            position += size
            j += taken
            if j <= end:
                context = np.int64(data[j - 1])
        free = position > 0  # a code of nothing but ones would be taken for none
        for k in range(bits.shape[1]):
            free = free and bits[i, k] == ones
        if position == 0 or free:
            position = np.int64(0)
            for k in range(bits.shape[1]):
                bits[i, k] = ones
        lengths[i] = position
