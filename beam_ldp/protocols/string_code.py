"""A public code for strings: any text as a few bits, and every prefix of the bits as text.

The entropy code is static: one canonical Huffman code for each preceding byte, over bytes, a few
phrases of addresses (the longest that fits is taken) and END, fitted once to public text and
shipped as a table (`string_code_1.bin`; `benchmarks/string_code.py` fits it). So it tells nothing
about anybody, all devices share it, and English words of 8 bytes take about 34 bits instead of 256.
Every string of bytes has a code, and no code is the beginning of another. Codes are filled up with
zeros to one length: how long a string is, is hidden.

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
from beam_ldp.randomizers.words import WORD_BITS, kernel, subroutine

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
    [10, 27, 28]
    >>> [code.decode(row) for row in bits][2]
    Decoded(text=b'hitters', complete=True, possible=True)
    >>> code.decode(bits[2], 12).text
    b'hit'
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


def _next(symbols: dict[tuple[int, int], int], bits: int, total: int) -> tuple[int, int] | None:
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


@subroutine
def _phrase_at(data, place, end, phrases, starts):  # type: ignore[no-untyped-def]
    """The first phrase that stands at a place; -1 where none does."""
    first = data[place]
    if first != 46 and first != 103 and first != 104 and first != 119:  # . g h w
        return -1
    for p in range(len(starts) - 1):
        size, same = starts[p + 1] - starts[p], 0
        if size <= end - place:
            while same < size and data[place + same] == phrases[starts[p] + same]:
                same += 1
            if same == size:
                return p
    return -1


@subroutine
def _put(row, position, code, size):  # type: ignore[no-untyped-def]
    """Write the bits of a symbol behind the first `position` ones."""
    word, room = position // 64, 64 - position % 64
    if size <= room:
        row[word] |= code << np.uint64(room - size)
    else:
        row[word] |= code >> np.uint64(size - room)
        row[word + 1] |= code << np.uint64(64 - (size - room))


@kernel
def _encode(  # type: ignore[no-untyped-def]
    data, starts, entries, phrases, phrase_starts, limits, bits, lengths
):
    ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    num_bits, max_bytes = limits[0], limits[1]
    for i in range(len(lengths)):
        place, end = starts[i], starts[i + 1]
        fits = end - place <= max_bytes
        context, position = np.int64(256), np.int64(0)
        while fits and place <= end:
            symbol, taken = np.int64(256), np.int64(1)
            if place < end:
                p = _phrase_at(data, place, end, phrases, phrase_starts)
                symbol = np.int64(data[place])
                if p >= 0:
                    symbol, taken = np.int64(257) + p, phrase_starts[p + 1] - phrase_starts[p]
            entry = entries[context, symbol]
            size = np.int64(entry & np.uint64(255))
            fits = position + size <= num_bits
            if fits:
                _put(bits[i], position, entry >> np.uint64(8), size)
                position = position + size
                place += taken
                context = np.int64(data[min(place, end) - 1]) if end > starts[i] else context
        if not fits or np.all(bits[i] == ones):  # a code of ones alone would be taken for none
            position = np.int64(0)
            bits[i] = ones
        lengths[i] = position


# Prefixes of codes: rows of words, the first bit the highest -------------------------------


def child_of(
    prefix: NDArray[np.uint64], before: int, new_bits: int, child: int
) -> NDArray[np.uint64]:
    """A prefix of `before` bits with new ones behind it."""
    total = len(prefix) * WORD_BITS
    whole = int.from_bytes(prefix.astype(">u8").tobytes(), "big")
    whole |= child << (total - before - new_bits)
    return np.frombuffer(whole.to_bytes(total // 8, "big"), dtype=">u8").astype(np.uint64)


def children_of(
    bits: NDArray[np.uint64], prefixes: NDArray[np.uint64], before: int, new_bits: int, none: int
) -> NDArray[np.int64]:
    """Of each code, which of the prefixes it begins with, and its next bits: one index.

    Args:
        bits: `(n, num_words)`; rows of ones are no codes.
        prefixes: `(c, num_words)` of `before` bits, in rising order.
        before, new_bits: bits of a prefix, and how many follow.
        none: what stands for codes that begin with none of them.

    Returns:
        `(n,)`: place of the prefix times 2**new_bits, plus the new bits.
    """
    found = np.empty(len(bits), dtype=np.int64)
    sizes = np.array([before, new_bits, none], dtype=np.int64)
    _children(np.ascontiguousarray(bits), np.ascontiguousarray(prefixes), sizes, found)
    return found


@subroutine
def _order(row, candidate, before):  # type: ignore[no-untyped-def]
    """Whether `before` bits are below (-1), equal (0) or above (1) the first ones of a code."""
    for k in range((before + 63) // 64):
        own, left = row[k], before - 64 * k
        if left < 64:
            own &= np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(64 - left)
        if candidate[k] != own:
            return -1 if candidate[k] < own else 1
    return 0


@kernel
def _children(bits, candidates, sizes, found):  # type: ignore[no-untyped-def]
    before, new_bits, none = sizes[0], sizes[1], sizes[2]
    for i in range(len(bits)):
        found[i] = none
        if np.all(bits[i] == np.uint64(0xFFFFFFFFFFFFFFFF)):
            continue
        low, high = 0, len(candidates)  # the first candidate that is not below the prefix
        while low < high:
            middle = (low + high) // 2
            if _order(bits[i], candidates[middle], before) < 0:
                low = middle + 1
            else:
                high = middle
        if low < len(candidates) and _order(bits[i], candidates[low], before) == 0:
            child = np.int64(0)
            for b in range(before, before + new_bits):
                bit = (bits[i, b // 64] >> np.uint64(63 - b % 64)) & np.uint64(1)
                child = 2 * child + np.int64(bit)
            found[i] = low * (1 << new_bits) + child
