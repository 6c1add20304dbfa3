"""Frequency oracles. A report is a list of whole numbers; `read(report, value)` is what it says for
a value, and on average `gain * read + offset` is 1 for the value held and 0 for any other."""
import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from spec import laws
from spec.laws import WORDS

Words = list[int]
Extra = Callable[[int], int]  # one more word of this report, by its position

class Spec(NamedTuple):
    words: int  # of one report
    counts: list[int]  # of each number of a report how many possibilities it has
    randomize: Callable[[Any, Words, Extra], list[int]]
    read: Callable[[list[int], Any], Any]
    gain: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)
    as_bits: bool = False  # how numbers are packed: else as symbols
    histogram: bool = True  # what is summed: how often each symbol came, else what values read
    sound: Callable[[list[int]], bool] = lambda report: True  # which reports there are at all

def estimate(mechanism: Spec, reports: list[list[int]], value: Any) -> Fraction:
    """The unbiased share of people who hold a value."""
    total = sum(mechanism.read(report, value) for report in reports)
    return mechanism.gain * Fraction(total) / len(reports) + mechanism.offset

def statistic(mechanism: Spec, reports: list[list[int]], domain_size: int) -> list[int]:
    """What is summed; sums of disjoint reports add."""
    if mechanism.histogram:
        return [reports.count([symbol]) for symbol in range(mechanism.counts[0])]
    return [sum(mechanism.read(report, x) for report in reports) for x in range(domain_size)]

def odd(number: int) -> bool:
    return number.bit_count() % 2 == 1

def pure(p: Fraction, q: Fraction) -> tuple[Fraction, Fraction]:
    """Gain and offset where a report supports the value held with chance p, any other with q."""
    return 1 / (p - q), -q / (p - q)

def two_level(
    v: int, s: int, epsilon: float, favoured: Callable[[int, int, int], int],
    read: Callable[[int, int], int], overlap: int | None = None,
) -> Spec:
    """One symbol, drawn from one word. `favoured(value, high, number)` is one of the s symbols that
    a value favours: by its number, or by the high half of the product. Two values share `overlap`
    of them; None: `read` tells by a sign, or 0, and whatever is not favoured averages out."""
    threshold = laws.two_level_threshold(v, s, epsilon)
    def randomize(value: int, words: Words, extra: Extra) -> list[int]:
        high, low = divmod(words[0] * v, WORDS)
        return [favoured(value, high, low // (threshold // s)) if low < threshold else high]
    scale, other = (Fraction(WORDS, threshold), Fraction(0)), Fraction(WORDS - threshold, v * WORDS)
    if overlap is not None:
        own = other + Fraction(threshold // s, WORDS)
        scale = pure(s * own, overlap * own + (s - overlap) * other)
    return Spec(1, [v], randomize, lambda report, value: read(report[0], value), *scale)

def KRandomizedResponse(domain_size: int, local_epsilon: float) -> Spec:
    return two_level(domain_size, 1, local_epsilon, lambda value, high, number: value,
                     lambda symbol, value: symbol == value, 0)

def HadamardResponse(domain_size: int, local_epsilon: float, num_blocks: int) -> Spec:
    size = 1 << math.ceil(domain_size / num_blocks).bit_length()
    def favoured(value: int, high: int, number: int) -> int:
        row, column = high % size, value // num_blocks + 1
        row ^= column & -column if odd(row & column) else 0
        return value % num_blocks * size + row
    def read(symbol: int, value: int) -> int:
        sign = -1 if odd(symbol % size & value // num_blocks + 1) else 1
        return sign if symbol // size == value % num_blocks else 0
    return two_level(num_blocks * size, size // 2, local_epsilon, favoured, read)

def RecursiveHadamardResponse(domain_size: int, local_epsilon: float, message_bits: int) -> Spec:
    messages = 1 << message_bits
    rows = 2 * (1 << (domain_size - 1).bit_length()) // messages
    def message(row: int, value: int) -> int:
        return value // rows * 2 + odd(row & value % rows)
    def read(symbol: int, value: int) -> int:
        told, true = symbol % messages, message(symbol // messages, value)
        return 0 if told // 2 != true // 2 else 1 if told == true else -1
    def favoured(value: int, high: int, number: int) -> int:
        return high // messages * messages + message(high // messages, value)
    return two_level(rows * messages, rows, local_epsilon, favoured, read)

def BinaryHadamard(domain_size: int, local_epsilon: float, drop_trivial: bool) -> Spec:
    order = 1 << (domain_size - 1).bit_length()
    rows = order - drop_trivial
    truths = (WORDS + laws.two_level_threshold(2 * rows, rows, local_epsilon)) // 2
    def randomize(value: int, words: Words, extra: Extra) -> list[int]:
        high, low = divmod(words[0] * rows, WORDS)
        return [2 * high + (odd(high + drop_trivial & value) != (low >= truths))]
    def read(report: list[int], value: int) -> int:
        return odd(report[0] // 2 + drop_trivial & value) == report[0] % 2
    p, agree = Fraction(truths, WORDS), Fraction(order // 2 - drop_trivial, rows)
    scale = pure(p, p * agree + (1 - p) * (1 - agree))
    return Spec(1, [2 * rows], randomize, read, *scale)

def singer(prime: int, dimension: int, v: int) -> list[int]:
    """Which powers of x have no constant term, in the first field in which they are v points."""
    for attempt in range(10**6):
        drawn = hashlib.shake_256(b"%d %d %d" % (prime, dimension, attempt)).digest(8 * dimension)
        c = [int.from_bytes(drawn[8 * j :][:8], "little") % prime for j in range(dimension)]
        powers = [[1] + [0] * (dimension - 1)]
        while c[0] and len(powers) <= v and (any(powers[-1][1:]) or len(powers) == 1):
            *low, top = powers[-1]
            powers.append([(a + top * b) % prime for a, b in zip([0, *low], c)])
        if len(powers) == v + 1 and not any(powers[-1][1:]):
            return [i for i in range(v) if powers[i][0] == 0]
    raise ValueError("no such field")

def ProjectiveGeometryResponse(domain_size: int, local_epsilon: float, prime: int) -> Spec:
    """Value x favours the points of a hyperplane, moved by x; of two dimensions, one point."""
    dimension, v, s = 2, prime + 1, 1
    while v < domain_size:
        dimension, v, s = dimension + 1, v * prime + 1, v
    points = singer(prime, dimension, v) if dimension > 2 else [0]
    return two_level(v, s, local_epsilon, lambda value, high, number: (value + points[number]) % v,
                     lambda symbol, value: (symbol - value) % v in points, s * (s - 1) // (v - 1))

def noisy_bits(held: list[int], own: int, other: int, words: Words, extra: Extra) -> list[int]:
    """Bit x is one if a number of 64 binary digits is below a threshold. Its first 8 digits are bit
    x % 64 of 8 words; only if they are the threshold's too, the others are drawn: one more word."""
    width, found = -(-len(held) // 64), []
    for x, holds in enumerate(held):
        threshold, drawn = own if holds else other, words[x // 64 : 8 * width : width]
        first = sum((word >> x % 64 & 1) << 7 - digit for digit, word in enumerate(drawn))
        rest = extra(x) >> 8 if first == threshold >> 56 else 0
        found.append(int((first << 56 | rest) < threshold))
    return found

def bits_of(k: int, words: int, p: Any, q: Any, randomize: Any) -> Spec:
    """A bit for each of k values, which is one for so many of 2**64 words."""
    return Spec(words, [2] * k, randomize, lambda report, value: report[value],
                *pure(Fraction(p, WORDS), Fraction(q, WORDS)), as_bits=True, histogram=False)

def UnaryEncoding(domain_size: int, local_epsilon: float, optimized: bool) -> Spec:
    own, other = laws.unary_thresholds(local_epsilon, optimized)
    words = 8 * -(-domain_size // 64)
    def randomize(value: int, drawn: Words, extra: Extra) -> list[int]:
        held = [int(x == value) for x in range(domain_size)]
        return noisy_bits(held, own, other, drawn, lambda x: extra(words + x))
    return bits_of(domain_size, words, own, other, randomize)

def Rappor(domain_size: int, local_epsilon: float, longitudinal_epsilon: float) -> Spec:
    """The basic design. First come the words of the permanent response, and one for a cohort."""
    flip, zero, one = laws.permanent_thresholds(local_epsilon, longitudinal_epsilon)
    half, k = 8 * -(-domain_size // 64) + 1, domain_size
    def randomize(value: int, words: Words, extra: Extra) -> list[int]:
        held, last = [int(x == value) for x in range(k)], 2 * half - 1
        kept = noisy_bits(held, WORDS - flip, flip, words, lambda x: extra(last + x))
        return noisy_bits(kept, one, zero, words[half:], lambda x: extra(last + k + x))
    p, q = (zero + (one - zero) * Fraction(f, WORDS) for f in (WORDS - flip, flip))
    return bits_of(k, 2 * half - 1, p, q, randomize)

def SubsetSelection(domain_size: int, local_epsilon: float, subset_size: int) -> Spec:
    k, w = domain_size, subset_size
    heads = laws.coin_threshold(w, k - w, local_epsilon)
    as_bits = k <= w * max(1, (k - 1).bit_length())
    def randomize(value: int, words: Words, extra: Extra) -> list[int]:
        """Floyd's method among the other values; anew where a word would make a draw uneven."""
        again, uneven = w + 1, True
        while uneven:
            chosen, uneven = {value} if words[0] < heads else set(), False
            for j in range(w - len(chosen)):
                bound = k - w + (words[0] < heads) + j
                number, low = divmod(words[j + 1] * bound, WORDS)
                uneven |= low < WORDS % bound
                number += number >= value
                chosen.add(number if number not in chosen else bound - 1 + (bound - 1 >= value))
            words = [words[0], *(extra(again + i + 1) for i in range(w if uneven else 0))]
            again += w + 1
        return [int(x in chosen) for x in range(k)] if as_bits else sorted(chosen)
    scale = pure(Fraction(heads, WORDS), (w - Fraction(heads, WORDS)) / (k - 1))
    if as_bits:
        return Spec(w + 1, [2] * k, randomize, lambda report, value: report[value], *scale,
                    True, False, lambda report: sum(report) == w)
    return Spec(w + 1, [k] * w, randomize, lambda report, value: value in report, *scale,
                False, False, lambda report: sorted(set(report)) == report)

def LocalHashing(domain_size: int, local_epsilon: float, num_buckets: int, prime: int) -> Spec:
    g, seeds = num_buckets, prime**2
    threshold = laws.two_level_threshold(g, 1, local_epsilon)
    def bucket(seed: int, value: int) -> int:
        return (seed // prime * value + seed % prime) % prime * g // prime
    def randomize(value: int, words: Words, extra: Extra) -> list[int]:
        (seed, left), again = divmod(words[0] * seeds, WORDS), 2
        while left < WORDS % seeds:
            (seed, left), again = divmod(extra(again) * seeds, WORDS), again + 1
        high, low = divmod(words[1] * g, WORDS)
        return [seed * g + (bucket(seed, value) if low < threshold else high)]
    def read(report: list[int], value: int) -> int:
        return bucket(report[0] // g, value) == report[0] % g
    small, larger = divmod(prime, g)
    collide = Fraction((g - larger) * small**2 + larger * (small + 1) ** 2, seeds)
    own, other = Fraction(threshold, WORDS), Fraction(WORDS - threshold, g * WORDS)
    scale = pure(own + other, own * collide + other)
    return Spec(2, [seeds * g], randomize, read, *scale, histogram=False)
