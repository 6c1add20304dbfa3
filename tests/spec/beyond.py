"""What 600 lines of specification do not hold, written down a second time all the same.

Of the standard library and `spec` alone, a function for each mechanism as there, called as its
class is. No vector comes from here: a witness of the product's reports, laws and estimates.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from spec import frequency
from spec.frequency import WORDS, Spec, Word, exp_lower, odd, pure
from spec.means import Floats

# Frequency oracles ----------------------------------------------------------------------------


def RefinableResponse(domain_size: int, levels: Floats, design: str) -> Spec:  # noqa: N802
    """The report of the first level, moved by a residue for each level below unless a coin keeps
    it. A coin's words are the most of which no report is likelier than its level allows."""
    known = frequency.RecoverableResponse(domain_size, levels[0], design)
    v = known.counts[0]
    points = [y for y in range(v) if known.read([y], 0)]
    first = frequency.translates(v, points, levels[0])
    threshold = frequency.two_level_threshold(v, len(points), levels[0])
    others = Fraction(WORDS - threshold, v)
    most, least = (threshold // len(points) + others + 1) / WORDS, (others - 1) / WORDS
    coins, kept = [], Fraction(1)
    for level in levels[1:]:  # kept * most + (1 - kept)/v = e**level (kept * least + (1 - kept)/v)
        more = exp_lower(level) - 1
        share = more / v / (most - least - more * least + more / v)
        coins.append(min(WORDS - 1, math.floor(share / kept * WORDS)))
        kept *= Fraction(coins[-1], WORDS)

    def randomize(value: int, word: Word) -> list[int]:
        report = first.randomize(value, word)[0]
        for step, coin in enumerate(coins):
            at, again = 2 + 2 * step, 1 + 2 * len(coins) + step
            while word(at) >= WORDS - WORDS % v:
                at, again = again, again + len(coins)
            report += 0 if word(1 + 2 * step) < coin else word(at)
        return [report % v]

    uniform = (1 - kept) * Fraction(len(points), v)
    gain, offset = first.gain / kept, first.offset - first.gain / kept * uniform
    return Spec(1 + 2 * len(coins), [v], randomize, first.read, gain, offset)


def entropy(chance: float) -> float:
    """Bits of a coin."""
    return math.fsum(-p * math.log2(p) for p in (chance, 1.0 - chance) if p > 0)


def largest(cost: Callable[[float], float], bits: float) -> float:
    """The largest float up to 1/2 that costs no more than so many bits."""
    low, high = 0.0, 0.5
    if cost(high) <= bits:
        return high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if cost(middle) <= bits else (low, middle)
    return low


def limited_law(epsilon: float, bits: float, mode: str) -> tuple[int, int, int, int]:
    """Words of the noise that claim "in the set" where it is so, and where not, and that say
    anything; words of the public coin that ask."""
    ratio = exp_lower(epsilon)
    truth, needed = ratio / (ratio + 1), entropy(1 / (math.exp(min(epsilon, 700.0)) + 1))
    full = math.floor(truth * WORDS)
    if mode == "uniform_key":
        lies = math.ceil((1 << int(bits)) / (ratio + 1)) << 64 - int(bits)
        return WORDS - lies, lies, WORDS, WORDS
    if bits >= needed:
        return full, WORDS - full, WORDS, WORDS
    if mode == "timeshare":
        return full, WORDS - full, WORDS, math.floor(bits / needed * WORDS)
    if mode == "binary":
        inside = math.floor(largest(entropy, bits) * WORDS)
        return inside, math.ceil(inside / ratio), WORDS, WORDS
    answers = math.floor(largest(lambda p: entropy(p) + p * needed, bits) * WORDS)
    inside = math.floor(truth * answers)
    return inside, answers - inside, answers, WORDS


def LimitedHadamard(  # noqa: N802
    domain_size: int, local_epsilon: float, random_bits: float, mode: str
) -> Spec:
    """Twice a set plus "not in it", or silence. A set is the half of a Hadamard row, and its
    complement another where both are answered with different noise."""
    inside, outside, answers, asked = limited_law(local_epsilon, random_bits, mode)
    order = 1 << (domain_size - 1).bit_length()
    sides = 1 if inside + outside == answers else 2
    sets = sides * (order - 1)

    def member(number: int, value: int) -> bool:
        return odd(number // sides + 1 & value) == number % sides

    def randomize(value: int, word: Word) -> list[int]:
        number, low = divmod(word(0) * sets, WORDS)
        noise, holds = word(1), member(number, value)
        if noise >= answers or low >= asked:
            return [2 * sets]
        if sides == 1:  # the words that lie are behind those that speak the truth
            return [2 * number + ((noise < inside) != holds)]
        return [2 * number + (noise >= (inside if holds else outside))]

    # "In the set" counts yes and "not in it" no, so that a set's answers average to 1 from who is
    # in it and to -1 from who is not: p yes + (answers - p) no for p of inside and outside.
    apart = Fraction(2 * WORDS, inside - outside)
    no = (WORDS - inside * apart) / answers
    yes = no + apart

    def read(report: list[int], value: int) -> Fraction:
        if report[0] == 2 * sets:
            return Fraction(0)
        told = no if report[0] % 2 else yes
        return (told if member(report[0] // 2, value) else -told) * WORDS / asked

    silent = answers < WORDS or asked < WORDS
    gain, offset = Fraction(order - 1, order), Fraction(1, order)
    return Spec(2, [2 * sets + silent], randomize, read, gain, offset)


def solve(matrix: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
    """Gauss and Jordan, exactly."""
    rows = [a + b for a, b in zip(matrix, right)]
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [a / rows[i][i] for a in rows[i]]
        for j in range(len(rows)):
            if j != i and rows[j][i]:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i])]
    return [row[len(rows) :] for row in rows]


def Rappor(  # noqa: N802
    domain_size: int, local_epsilon: float, longitudinal_epsilon: float, num_hashes: int,
    num_bits: int | None, num_cohorts: int, report_probabilities: Floats | None,
) -> Spec:  # fmt: skip
    """With Bloom filters, one for each cohort, whose number follows the bits; least squares."""
    k, h, cohorts, bits = domain_size, num_hashes, num_cohorts, num_bits or domain_size
    flip, zero, one = frequency.permanent_thresholds(local_epsilon / h, longitudinal_epsilon / h)
    if report_probabilities:
        low, high = map(Fraction, report_probabilities)
        zero, one = math.ceil(low * WORDS), min(math.floor(high * WORDS), WORDS - 1)
    codes = [[[int(x == i) for i in range(bits)] for x in range(k)]]
    for cohort in range(cohorts if num_bits else 0):
        label = b"beam-ldp bloom %d %d %d %d" % (cohort, k, bits, h)
        drawn = hashlib.shake_128(label).digest(8 * k * h)
        code = []
        for x in range(k):
            free = [*range(bits)]  # a place among those that are free
            for i in range(h):
                number = int.from_bytes(drawn[8 * (x * h + i) :][:8], "little")
                free.pop(number % len(free))
            code.append([int(i not in free) for i in range(bits)])
        codes[cohort:] = [code]
    stage, tail = 8 * -(-bits // 64), cohorts.bit_length() - 1

    def randomize(value: int, word: Word) -> list[int]:
        cohort = word(stage) >> 64 - tail
        held = codes[cohort][value]
        kept = frequency.noisy_bits(held, WORDS - flip, flip, word, 0, 2 * stage + 1)
        shown = frequency.noisy_bits(kept, one, zero, word, stage + 1, 2 * stage + 1 + bits)
        return shown + [cohort >> i & 1 for i in range(tail)]

    p, q = (zero + (one - zero) * Fraction(f, WORDS) for f in (WORDS - flip, flip))
    if num_bits is None:
        return Spec(2 * stage + 1, [2] * k, randomize, list.__getitem__, *pure(p, q), True, False)
    ones = [[Fraction(bit) for code in codes for bit in code[x]] for x in range(k)]
    squares = [[sum(map(Fraction.__mul__, a, b), Fraction(0)) for b in ones] for a in ones]
    decoder = [[cohorts * a for a in row] for row in solve(squares, ones)]

    def read(report: list[int], value: int) -> Fraction:
        cohort = sum(bit << i for i, bit in enumerate(report[bits:]))
        own = decoder[value][cohort * bits :]
        return sum((a * (bit - q / WORDS) for a, bit in zip(own, report[:bits])), Fraction(0))

    return Spec(2 * stage + 1, [2] * (bits + tail), randomize, read, WORDS / (p - q),
                as_bits=True, histogram=False)  # fmt: skip


# Corners of the cube --------------------------------------------------------------------------


def uniform(word: int) -> float:
    return ((word >> 12) + 0.5) * 2.0**-52


def spending(epsilon: float) -> int:
    """Words for heads of a coin with these log odds, its rarer side rounded up."""
    rarer = Fraction(1 / (1 + math.exp(max(0.0, epsilon))))
    return WORDS - min(max(1, math.ceil(rarer * WORDS)), WORDS // 2)


def corner_law(d: int, epsilon: float) -> tuple[int, int, int]:
    """PrivUnitInf: the agreements of the best cap, the corners in it, and words that choose it."""

    def inside(t: int) -> int:
        return sum(math.comb(d, k) for k in range(t, d + 1))

    def log_odds(t: int) -> float:
        return math.log(Fraction(2**d - inside(t), inside(t)))

    def gain(t: int) -> Fraction:  # of the mean in a report, up to a factor
        return t * math.comb(d, t) / (2**d / Fraction(math.expm1(epsilon)) + inside(t))

    best = max((t for t in range((d + 1) // 2, d + 1) if log_odds(t) <= epsilon), key=gain)
    rounding = 1e-15 * (d + 1) * math.log(d + 2) + 2e-15 * max(1.0, epsilon)
    return best, inside(best), spending(epsilon - log_odds(best) - rounding)


def below(bound: int, words: Iterator[int]) -> int:
    """A number below the bound, none likelier than another."""
    while (product := next(words) * bound) % WORDS < WORDS % bound:
        pass
    return product // WORDS


def PrivUnitInf(dimension: int, local_epsilon: float, radius: float) -> Spec:  # noqa: N802
    """A corner that agrees with the own one in t places or more, or else in fewer."""
    d, (t, size, heads) = dimension, corner_law(dimension, local_epsilon)
    blocks = -(-d // 64)

    def some_agreements(words: Iterator[int]) -> int:
        """At least t, from t on upwards; C(d, k+1)/C(d, k) = (d-k)/(k+1) is (d-t)/(t+1), thinned;
        all over again where a step is thinned out."""
        k = t
        while below(t + 1, words) < d - t:
            k = k + 1 if below((k + 1) * (d - t), words) < (d - k) * (t + 1) else t
        return k

    def agreeing(inside: bool, words: Iterator[int]) -> list[bool]:
        if inside and 8 * size < 2**d:
            left, found = some_agreements(words), []
            for j in range(d):
                found.append(below(d - j, words) < left)
                left -= found[-1]
            return found
        while True:
            drawn = [next(words) for _ in range(blocks)]
            found = [drawn[j // 64] >> j % 64 & 1 == 1 for j in range(d)]
            if (sum(found) >= t) == inside:
                return found

    def randomize(x: Floats, word: Word) -> list[int]:
        agrees = agreeing(word(0) < heads, map(word, itertools.count(d + 1)))
        own = [uniform(word(1 + j)) * 2 * radius < x[j] + radius for j in range(d)]
        return [int(a == b) for a, b in zip(agrees, own)]

    edge, p = math.comb(d - 1, t - 1), Fraction(heads, WORDS)
    m = p * edge / size - (1 - p) * edge / (2**d - size)
    choices = d + 8 * math.isqrt(d) if 8 * size < 2**d else 0
    words = 1 + d + 16 * blocks + choices + 64
    return Spec(words, [2] * d, randomize, lambda report, j: 2 * report[j] - 1,
                Fraction(radius) / m, as_bits=True)  # fmt: skip
