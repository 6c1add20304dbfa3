"""Random corners of a cube that agree with a given one in many places, to the last bit.

Every choice compares words with integers, so that all corners of a cap are exactly as likely as
each other. Subroutines take the position of the next word and return the one after; it exceeds
`words.size` if the words ran out.
"""

from __future__ import annotations

import numpy as np

from beam_ldp.randomizers.jit import multiply_high, subroutine

_ONE = np.uint64(1)
_LOW_SIX = np.uint64(63)


@subroutine
def below(bound, words, at):  # type: ignore[no-untyped-def]
    """An integer uniform in [0, bound), without any bias (Lemire 2019), and the next position."""
    while at < words.size:
        low = words[at] * bound
        at += 1
        if low >= bound or low >= (np.uint64(0) - bound) % bound:
            return np.int64(multiply_high(words[at - 1], bound)), at
    return np.int64(0), words.size + 1


@subroutine
def agreements_above(t, d, words, at):  # type: ignore[no-untyped-def]
    """Agreements of a uniform corner given that they are at least t >= (d - 1)/2; next position.

    Steps upwards are taken with the ratio C(d, k+1)/C(d, k) = (d-k)/(k+1): first as if it stayed
    what it is at t, then thinned; a step that is thinned out starts over.
    """
    while at < words.size:
        k = t
        while True:
            draw, at = below(np.uint64(t + 1), words, at)
            if draw >= d - t:
                return k, at
            draw, at = below(np.uint64((k + 1) * (d - t)), words, at)
            if draw >= (d - k) * (t + 1) or at > words.size:
                break
            k += 1
    return t, words.size + 1


@subroutine
def choose_places(count, d, words, at, row):  # type: ignore[no-untyped-def]
    """Set `count` of d bits of `row`, every choice as likely, and the next position."""
    row[:] = 0
    for j in range(d):
        draw, at = below(np.uint64(d - j), words, at)
        if draw < count:
            count -= 1
            row[j >> 6] |= _ONE << (np.uint64(j) & _LOW_SIX)
    return at


@subroutine
def ones_in(word):  # type: ignore[no-untyped-def]
    """Number of bits that are set."""
    word -= (word >> _ONE) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@subroutine
def draw_corner(t, inside, last, words, at, row):  # type: ignore[no-untyped-def]
    """Fair bits into `row` until at least t (or, off the cap, fewer) of them are set."""
    while at + row.size <= words.size:
        count = 0
        for w in range(row.size):
            row[w] = words[at + w]
        row[row.size - 1] &= last
        for w in range(row.size):
            count += ones_in(row[w])
        at += row.size
        if (count >= t) == inside:
            return at
    return words.size + 1
