"""Normal variates from secure words, inside compiled kernels.

The ziggurat of Marsaglia and Tsang (2000) with 256 layers on 64-bit words: eight bits choose the
layer, 53 the signed place in it, and 98.8 % of the draws need nothing else. On AES-CTR words
it costs 3 ns per normal, words included (measured beside others in benchmarks/mean_speed.py).
The law is that of ideal normals up to the resolution of 64-bit floats.

A kernel reads words one after the other and returns the position of the next one. How many it
needs is random; `spare_words` are enough but for one user in 1e9, and `run_rows` gives that user
more of its own words and starts that row again: a user's report depends on the user's words only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.words import kernel, subroutine

_LAYERS = 256
TAIL_START = 3.6541528853610088  # r of the 256-layer ziggurat
_PLACES = 2.0**52  # on each side
# Words beyond these are asked for only by a row that ran out: one in 1e9.
_FIXED_SPARE = 96


def _ziggurat_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Width of a layer per place, the place below which it is all accepted, density at its edge."""
    edges = np.empty(_LAYERS + 1)
    area = TAIL_START * math.exp(-0.5 * TAIL_START**2) + math.sqrt(math.pi / 2) * math.erfc(
        TAIL_START / math.sqrt(2)
    )
    edges[0] = area * math.exp(0.5 * TAIL_START**2)
    edges[1] = TAIL_START
    for i in range(1, _LAYERS - 1):
        density = math.exp(-0.5 * edges[i] ** 2) + area / edges[i]
        edges[i + 1] = math.sqrt(-2.0 * math.log(density))
    edges[_LAYERS] = 0.0
    widths = edges[:-1] / _PLACES
    inner = np.floor(edges[1:] / edges[:-1] * _PLACES).astype(np.int64)
    density = np.exp(-0.5 * edges**2)
    return widths, inner, density


WIDTHS, INNER, DENSITY = _ziggurat_tables()


def spare_words(num_normals: int) -> int:
    """Words that suffice for this many normals and a few dozen other draws, but once in 1e9."""
    return num_normals + num_normals // 40 + 2 * math.isqrt(num_normals) + _FIXED_SPARE


@subroutine
def uniform(word):  # type: ignore[no-untyped-def]
    """A number strictly between 0 and 1: the middle of one of 2**52 cells.

    Of 53 bits the middles of the upper half would be rounded, the last one to 1.
    """
    return ((word >> np.uint64(12)) + 0.5) * 2.220446049250313e-16


@subroutine
def place_of(word):  # type: ignore[no-untyped-def]
    """The signed place of a word in its layer, in (-2^52, 2^52), without its lowest half."""
    return np.int64(word) >> np.int64(11)


@subroutine
def repair(word, words, at):  # type: ignore[no-untyped-def]
    """The normal that `word` starts but does not finish, and the position of the next word.

    The position exceeds `words.size` if they ran out.
    """
    while True:
        layer = np.intp(word & np.uint64(255))
        place = place_of(word)
        x = (place + 0.5) * WIDTHS[layer]
        if place ^ (place >> np.int64(63)) < INNER[layer]:
            return x, at
        if layer == 0:
            while at + 2 <= words.size:
                beyond = -math.log(uniform(words[at])) / TAIL_START
                height = -math.log(uniform(words[at + 1]))
                at += 2
                if 2 * height > beyond * beyond:
                    return math.copysign(TAIL_START + beyond, x), at
            return 0.0, words.size + 1
        if at + 2 > words.size:
            return 0.0, words.size + 1
        low, high = DENSITY[layer], DENSITY[layer + 1]
        if low + uniform(words[at]) * (high - low) < math.exp(-0.5 * x * x):
            return x, at + 1
        word = words[at + 1]
        at += 2


@subroutine
def next_normal(words, at):  # type: ignore[no-untyped-def]
    """(normal, position of the next word); the position exceeds `words.size` if they ran out."""
    if at >= words.size:
        return 0.0, words.size + 1
    return repair(words[at], words, at + 1)


@subroutine
def fill_normals(words, at, out, unfinished):  # type: ignore[no-untyped-def]
    """Fill `out` (float64) with normals; the position of the next word.

    The first `out.size` words give one normal each; the few that they do not finish are listed in
    `unfinished` (scratch, int64, longer than `out`) and finished with the words that follow.
    """
    n = out.size
    if at + n > words.size:
        return words.size + 1
    left = 0
    for j in range(n):
        word = words[at + j]
        layer = np.intp(word & np.uint64(255))
        place = place_of(word)
        out[j] = (place + 0.5) * WIDTHS[layer]
        unfinished[left] = j
        left += place ^ (place >> np.int64(63)) >= INNER[layer]
    after = at + n
    for k in range(left):
        j = unfinished[k]
        out[j], after = repair(words[at + j], words, after)
        if after > words.size:
            break
    return after


@subroutine
def next_gamma(shape, words, at):  # type: ignore[no-untyped-def]
    """A gamma variate of unit scale (Marsaglia and Tsang 2000a) and the next position."""
    boost = 1.0
    if shape < 1.0:
        if at >= words.size:
            return 1.0, words.size + 1
        boost = uniform(words[at]) ** (1.0 / shape)
        at += 1
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while at < words.size:
        x, at = next_normal(words, at)
        if at >= words.size:
            break
        v = (1.0 + c * x) ** 3
        u = uniform(words[at])
        at += 1
        if v > 0 and math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v, at
    return 1.0, words.size + 1


def run_rows(
    kernel_rows: Callable[[np.ndarray, np.ndarray], np.ndarray],
    words: np.ndarray,
    extra: ExtraWords,
) -> None:
    """Run a kernel over rows of words; a row that ran out starts again with twice as many.

    Args:
        kernel_rows: takes the rows to do (indices) and their words `(k, per_row)`, and returns
            per row whether its words were enough.
        words: `(n, per_row)`.
        extra: further words of a row, by position.
    """
    rows = np.arange(len(words))
    enough = kernel_rows(rows, words)
    while not enough.all():
        rows, words = rows[~enough], words[~enough]
        have = words.shape[1]
        more = extra(np.repeat(rows, have), np.tile(np.arange(have, 2 * have), len(rows)))
        words = np.concatenate([words, more.reshape(len(rows), have)], axis=1)
        enough = kernel_rows(rows, words)


def standard_normals(words: np.ndarray, count: int, extra: ExtraWords) -> np.ndarray:
    """Independent standard normals, `(n, count)` float64, from `(n, spare_words(count))` words."""
    out = np.empty((len(words), count))
    run_rows(lambda rows, w: _fill_rows(rows, w, out), words, extra)
    return out


@kernel
def _fill_rows(rows, words, out):  # type: ignore[no-untyped-def]
    enough = np.ones(rows.size, dtype=np.bool_)
    unfinished = np.empty(out.shape[1] + 1, dtype=np.int64)
    for i in range(rows.size):
        enough[i] = fill_normals(words[i], 0, out[rows[i]], unfinished) <= words.shape[1]
    return enough
