"""Fit the public code of strings, and measure it: bits per string, beside other codes.

    python -m benchmarks.string_code fit      # writes beam_ldp/protocols/string_code_1.bin
    python -m benchmarks.string_code measure

Public text alone: the English words of symspellpy with their counts (the package's word list), the
addresses that installed Python packages name as their pages, and how UTF-8 is built. A version that
was shipped is never fitted again: a new fit gets a new number.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from beam_ldp.pipelines.demos.corpus import load_corpus
from beam_ldp.protocols.string_code import (
    END,
    MAX_CODE_BITS,
    NUM_CONTEXTS,
    NUM_SYMBOLS,
    PHRASES,
    START,
    StringCode,
)

TABLE = Path("beam_ldp/protocols/string_code_1.bin")
SHARES = {"text": 0.5, "list": 0.35, "addresses": 0.15}  # of the symbols
SMOOTHING = 3e-3  # weight of what is known of every context, beside the counts of it


def addresses() -> list[bytes]:
    """Addresses of pages that installed packages name, sorted, each once."""
    found = set()
    for package in metadata.distributions():
        told = package.metadata.get_all("Project-URL") or []
        found |= {line.rsplit(", ", 1)[-1].strip() for line in told}
        found.add((package.metadata.get("Home-page") or "").strip())
    return sorted(url.encode() for url in found if url.startswith("http"))


def symbols_of(word: bytes) -> list[int]:
    """The symbols that stand for a string, END included."""
    symbols, place = [], 0
    while place < len(word):
        fits = [i for i, phrase in enumerate(PHRASES) if word.startswith(phrase, place)]
        symbols.append(END + 1 + fits[0] if fits else word[place])
        place += len(PHRASES[fits[0]]) if fits else 1
    return [*symbols, END]


def counts(words: Sequence[bytes], weights: np.ndarray) -> np.ndarray:
    """How often each symbol follows each byte: `(contexts, symbols)`, all together 1."""
    table = np.zeros((NUM_CONTEXTS, NUM_SYMBOLS))
    for word, weight in zip(words, weights.tolist()):
        context = START
        for symbol in symbols_of(word):
            table[context, symbol] += weight
            context = PHRASES[symbol - END - 1][-1] if symbol > END else symbol
    return table / table.sum()


def prior(order_zero: np.ndarray) -> np.ndarray:
    """What may follow a byte at all, by how UTF-8 is built: `(contexts, symbols)`, rows sum to 1.

    Args:
        order_zero: how often each symbol occurs.
    """
    continuation = np.zeros(NUM_SYMBOLS)
    continuation[0x80:0xC0] = 1 / 64
    printable, lead = np.zeros(NUM_SYMBOLS), np.zeros(NUM_SYMBOLS)
    printable[0x20:0x7F] = 1 / 95
    lead[0xC2:0xF5] = 1 / 51
    anything = np.full(NUM_SYMBOLS, 1 / NUM_SYMBOLS)
    end = np.zeros(NUM_SYMBOLS)
    end[END] = 1.0
    usual = 0.55 * order_zero / order_zero.sum() + 0.3 * printable + 0.1 * lead + 0.05 * anything
    rows = np.tile(usual, (NUM_CONTEXTS, 1))
    same_script = np.zeros(NUM_SYMBOLS)
    same_script[[0xC3, 0xD0, 0xD1, 0xD7, 0xD8, 0xD9, 0xE0, 0xE3, 0xE4, 0xE5, 0xE6, 0xF0]] = 1 / 12
    rows[0x80:0xC0] = 0.4 * continuation + 0.3 * same_script + 0.1 * end + 0.2 * usual
    rows[0xC2:0xF5] = 0.97 * continuation + 0.03 * anything
    return rows


def code_lengths(weights: np.ndarray, limit: int = MAX_CODE_BITS) -> np.ndarray:
    """Sizes of the best prefix code of at most `limit` bits: Larmore and Hirschberg."""
    size = len(weights)
    singles = np.eye(size, dtype=np.int64)
    uses, values = singles, weights
    for _ in range(limit - 1):
        pairs = len(values) // 2 * 2
        order = np.argsort(values, kind="stable")[:pairs]
        packages = uses[order[0::2]] + uses[order[1::2]]
        values = np.concatenate([weights, values[order[0::2]] + values[order[1::2]]])
        uses = np.concatenate([singles, packages])
    order = np.argsort(values, kind="stable")[: 2 * size - 2]
    return uses[order].sum(axis=0).astype(np.uint8)


def fitted() -> np.ndarray:
    """Counts of the public text, each part with its share."""
    corpus = load_corpus()
    words = [word.encode() for word in corpus.words]
    urls = addresses()
    parts = {
        "text": counts(words, corpus.shares),
        "list": counts(words, np.full(len(words), 1 / len(words))),
        "addresses": counts(urls, np.full(len(urls), 1 / len(urls))),
    }
    return np.asarray(sum(share * parts[name] for name, share in SHARES.items()))


def fit() -> None:
    """Write the table."""
    table = fitted()
    weights = table + SMOOTHING * prior(table.sum(axis=0)) * np.maximum(
        table.sum(axis=1, keepdims=True), 1e-3
    )
    sizes = np.stack([code_lengths(row) for row in weights])
    TABLE.write_bytes(zlib.compress(sizes.tobytes(), 9))
    print(f"{TABLE}: {TABLE.stat().st_size:,} bytes")


def measure() -> None:
    """Bits of words and addresses, and the time that they take."""
    corpus = load_corpus()
    words = [word.encode() for word in corpus.words]
    samples = {
        "words, by their share of text": (words, corpus.shares),
        "words, each once": (words, np.full(len(words), 1 / len(words))),
        "addresses": (urls := addresses(), np.full(len(urls), 1 / len(urls))),
        "Russian": (["привет".encode(), "неделя".encode()], np.full(2, 0.5)),
    }
    code = StringCode(num_bits=1024, max_bytes=256)
    for name, (listed, weights) in samples.items():
        lengths = code.encode(listed).lengths
        shares = counts(listed, weights).sum(axis=0)
        symbols = sum(len(symbols_of(word)) * w for word, w in zip(listed, weights.tolist()))
        entropy = -(shares[shares > 0] * np.log2(shares[shares > 0])).sum() * symbols
        fits = [weights[(lengths > 0) & (lengths <= most)].sum() for most in (48, 64, 96, 128)]
        size = (np.array([len(word) for word in listed]) * weights).sum()
        print(
            f"{name}: {len(listed):,}, mean {size:.1f} bytes, {(lengths * weights).sum():.1f} bits "
            f"(order 0, fitted to itself: {entropy:.1f}); of 48, 64, 96, 128 bits: "
            + ", ".join(f"{share:.2%}" for share in fits)
        )
    drawn = np.random.default_rng(0).choice(len(words), 1_000_000, p=corpus.shares)
    people = [words[i] for i in drawn]
    begin = time.perf_counter()
    StringCode().encode(people)
    print(f"encode: {(time.perf_counter() - begin) * 1e3:.0f} ns a word")


if __name__ == "__main__":
    {"fit": fit, "measure": measure}[sys.argv[1]]()
