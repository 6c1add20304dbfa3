"""Shuffle pairs of mechanisms that answer every bit of a code word by independent coins.

A report is a row of independent bits: one with probability p where the code word of the value has
a one, and q < p elsewhere. Let w be the law of all-q rows and r(1) = p/q, r(0) = (1-p)/(1-q) the
ratios of one bit. For a code word with the set of ones B, R(y) = w(y) * prod over B of r(y_i).
"""

from __future__ import annotations

import math
from itertools import product

from beam_ldp.randomizers.shuffle_pair import ShufflePair


def bit_dominating_pair(p: float, q: float, num_ones: int, source: str) -> ShufflePair:
    """The pair of two code words of `num_ones` ones each that share none.

    Blanket: every factor r(y_i) is at least r(0), so R >= r(0)**num_ones * w.

    It dominates pairs of code words that share bits. A shared bit gives both victims one common
    factor s, two bits apart give them independent factors s, s'. The hockey-stick divergence is an
    expectation of a convex function of su - E s'v; for two-valued s, exchanging s = s' for
    s != s' moves equal masses from r(1)(u - E v), r(0)(u - E v) to r(1)u - E r(0)v and
    r(0)u - E r(1)v, which have the same sum and lie outside: a mean-preserving spread.
    """
    r1, r0 = p / q, (1 - p) / (1 - q)
    counts = range(num_ones + 1)
    chance = [_binomial(i, num_ones, q) for i in counts]
    ratio = [r1**i * r0 ** (num_ones - i) for i in counts]
    cells = list(product(counts, counts))
    return ShufflePair(
        r0**num_ones,
        tuple((ratio[i], ratio[j]) for i, j in cells),
        tuple(chance[i] * chance[j] for i, j in cells),
        "proved",
        source,
    )


def bit_witness(p: float, q: float, num_own: int) -> ShufflePair:
    """Others hold x'; x and x' have `num_own` ones of their own each, which the other lacks."""
    r1, r0 = p / q, (1 - p) / (1 - q)
    counts = range(num_own + 1)
    cells = list(product(counts, counts))
    ratio = [r1**i * r0 ** (num_own - i) for i in counts]
    return ShufflePair(
        1.0,
        tuple((ratio[i] / ratio[j], 1.0) for i, j in cells),
        tuple(_binomial(i, num_own, q) * _binomial(j, num_own, p) for i, j in cells),
        "proved",
        "others hold one of the two values",
    )


def one_hot_witnesses(p: float, q: float, num_values: int) -> tuple[ShufflePair, ...]:
    """Witnesses of one-hot code words: others hold x', or a third value."""
    pair = bit_witness(p, q, 1)
    if num_values < 3:
        return (pair,)
    ratio = ((1 - p) / (1 - q), p / q)
    chance = ((1 - q, q), (1 - q, q), (1 - p, p))
    cells = list(product((0, 1), repeat=3))
    third = ShufflePair(
        1.0,
        tuple((ratio[a] / ratio[c], ratio[b] / ratio[c]) for a, b, c in cells),
        tuple(chance[0][a] * chance[1][b] * chance[2][c] for a, b, c in cells),
        "proved",
        "others hold a third value",
    )
    return pair, third


def _binomial(successes: int, trials: int, chance: float) -> float:
    """Probability of so many successes, for the few trials of one report."""
    return math.comb(trials, successes) * chance**successes * (1 - chance) ** (trials - successes)
