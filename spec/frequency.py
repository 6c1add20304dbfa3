"""Frequency oracles. A report is a list of whole numbers; `read(report, value)` is what it says for
a value, and on average `gain * read + offset` is 1 for the value held and 0 for any other."""
import hashlib
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import count
from typing import Any, NamedTuple

WORDS = 1 << 64  # values of a word
Word = Callable[[int], int]  # the words of one report, by their positions

class Spec(NamedTuple):
    words: int  # of one report; those behind them are for what these leave open
    counts: list[int]  # of each number of a report how many possibilities it has
    randomize: Callable[[Any, Word], list[int]]
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

def exp_lower(epsilon: float) -> Fraction:
    """A rational just below e**epsilon, however a good `exp` rounds."""
    return Fraction(math.exp(epsilon)) * (1 - Fraction(1, 1 << 51))

def two_level_threshold(v: int, s: int, epsilon: float) -> int:
    """Words for which the report is one of the s favoured of v symbols."""
    r = exp_lower(epsilon)
    most = math.floor(s * (WORDS * (r - 1) - v * (r + 1)) / (v + s * (r - 1)))
    return most - most % (v if v & (v - 1) == 0 == s & (s - 1) else s * math.gcd(v, WORDS))

def coin_threshold(ones: int, zeros: int, epsilon: float) -> int:
    """Words for heads, where heads are e**epsilon times ones : zeros as likely as tails."""
    odds = ones * exp_lower(min(epsilon, 60.0))
    return math.floor(WORDS * odds / (odds + zeros))

def unary_thresholds(epsilon: float, optimized: bool) -> tuple[int, int]:
    """Words for which a bit is one: of the value held, and of any other."""
    if optimized:
        return WORDS // 2, math.ceil(WORDS / (1 + exp_lower(min(epsilon, 60.0))))
    own = coin_threshold(1, 1, min(epsilon, 60.0) / 2)
    return own, WORDS - own

def permanent_thresholds(epsilon: float, forever: float) -> tuple[int, int, int]:
    """RAPPOR: words that flip a permanent bit, and that show a permanent 0, and 1, as one."""
    flip = min(math.ceil(WORDS / (1 + exp_lower(min(forever / 2, 60.0)))), WORDS // 2 - 1)
    f = Fraction(flip, WORDS)
    odds = exp_lower(min(epsilon, 60.0)) * (1 - Fraction(1, 2**36))
    one, zero, keep = Fraction(1, 2), 1 / (1 + odds), (1 - f) / f  # optimized unary encoding
    if one > keep * zero:  # the permanent noise leaves no room for that: no false ones at all
        zero = (odds - keep) / (keep * (odds - 1))
        one = keep * zero
    low = max(((1 - f) * zero - f * one) / (1 - 2 * f), Fraction(0))
    high = min(((1 - f) * one - f * zero) / (1 - 2 * f), Fraction(1))
    return flip, math.ceil(low * WORDS), min(math.floor(high * WORDS), WORDS - 1)

def field(domain_size: int, epsilon: float, compact: bool) -> tuple[int, int, int]:
    """PI-RAPPOR: a prime, how many digits values have to it, and how many residues are a one."""
    odds = math.exp(min(epsilon, 30.0))
    near = min(1 << 16, round(odds) + 1)
    def noise(q: float) -> float:
        p = odds * q / (odds * q + 1 - q)
        return q * (1 - q) / (p - q) ** 2
    def prime(numbers: Iterable[int]) -> int:
        return next(n for n in numbers if all(n % d for d in range(2, math.isqrt(n) + 1)))
    size = prime(count(max(domain_size, near)))
    if compact and near < domain_size:
        size = min(prime(range(near, 1, -1)), prime(count(near)), key=lambda size: noise(1 / size))
    digits, few = next(n for n in count(1) if size**n >= domain_size), int(size / (1 + odds))
    best = min((max(1, few), few + 1), key=lambda ones: noise(ones / size))
    return size, digits, best if digits == 1 else 1

def odd(number: int) -> bool:
    return number.bit_count() % 2 == 1

def even_draw(bound: int, word: Word, first: int, more: int) -> int:
    """A number below the bound: of a word, or of others where some would be less likely."""
    while word(first) * bound % WORDS < WORDS % bound:
        first, more = more, more + 1
    return word(first) * bound // WORDS

def pure(p: Fraction | int, q: Fraction | int) -> tuple[Fraction, Fraction]:
    """Gain and offset where p of 2**64 words support the value held, and q any other."""
    return WORDS / Fraction(p - q), -q / Fraction(p - q)

def two_level(v: int, s: int, epsilon: float, favoured: Any, read: Any, shared: Any = None) -> Spec:
    """One symbol, drawn from one word. `favoured(value, high, number)` is one of the s symbols that
    a value favours: by its number, or by the high half of the product. Two values share so many of
    them; None: `read` tells by a sign, or 0, and whatever is not favoured averages out."""
    threshold = two_level_threshold(v, s, epsilon)
    def randomize(value: int, word: Word) -> list[int]:
        high, low = divmod(word(0) * v, WORDS)
        return [favoured(value, high, low // (threshold // s)) if low < threshold else high]
    own, other = Fraction(threshold // s), Fraction(WORDS - threshold, v)
    q = 0 if shared is None else shared * own + s * other
    scale = pure(threshold if shared is None else s * (own + other), q)
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
    truths = (WORDS + two_level_threshold(2 * rows, rows, local_epsilon)) // 2
    def randomize(value: int, word: Word) -> list[int]:
        high, low = divmod(word(0) * rows, WORDS)
        return [2 * high + (odd(high + drop_trivial & value) != (low >= truths))]
    def read(report: list[int], value: int) -> int:
        return odd(report[0] // 2 + drop_trivial & value) == report[0] % 2
    agree = Fraction(order // 2 - drop_trivial, rows)
    scale = pure(truths, truths * agree + (WORDS - truths) * (1 - agree))
    return Spec(1, [2 * rows], randomize, read, *scale)

def singer(prime: int, dimension: int) -> tuple[int, list[int]]:
    """Points, and of which powers of x have no constant term, in the first field of that many."""
    v = (prime**dimension - 1) // (prime - 1)
    for attempt in range(10**6 if dimension > 2 else 0):
        drawn = hashlib.shake_256(b"%d %d %d" % (prime, dimension, attempt)).digest(8 * dimension)
        c = [int.from_bytes(drawn[8 * j :][:8], "little") % prime for j in range(dimension)]
        powers = [[1] + [0] * (dimension - 1)]
        while c[0] and len(powers) <= v and (any(powers[-1][1:]) or len(powers) == 1):
            *low, top = powers[-1]
            powers.append([(a + top * b) % prime for a, b in zip([0, *low], c)])
        if len(powers) == v + 1 and not any(powers[-1][1:]):
            return v, [i for i in range(v) if powers[i][0] == 0]
    return v, [0]

def translates(v: int, points: list[int], epsilon: float) -> Spec:
    """Value x favours residues modulo v, moved by x; any two values share equally many."""
    s, shared = len(points), len(points) * (len(points) - 1) // (v - 1)
    return two_level(v, s, epsilon, lambda value, high, number: (value + points[number]) % v,
                     lambda symbol, value: (symbol - value) % v in points, shared)

def ProjectiveGeometryResponse(domain_size: int, local_epsilon: float, prime: int) -> Spec:
    dimension = next(t for t in count(2) if sum(prime**j for j in range(t)) >= domain_size)
    return translates(*singer(prime, dimension), local_epsilon)

def RecoverableResponse(domain_size: int, local_epsilon: float, design: str) -> Spec:
    """The report less the value is a key, drawn as a report of 0, whatever the value."""
    kind, _, numbers = design.partition(":")
    if kind == "singer":
        v, points = singer(*map(int, numbers.split(",")))
    else:
        v = int(numbers or domain_size)
        points = sorted({i * i % v for i in range(1, v)}) if kind == "paley" else [0]
    key = translates(v, points, local_epsilon)
    def randomize(value: int, word: Word) -> list[int]:
        return [(value + key.randomize(0, word)[0]) % v]
    return key._replace(randomize=randomize)

def PairwiseIndependentRappor(domain_size: int, local_epsilon: float, compact: bool) -> Spec:
    """A form, slopes and a shift, stands for a bit of each value: is it below `ones` there?"""
    prime, digits, ones = field(domain_size, local_epsilon, compact)
    heads, slopes = coin_threshold(ones, prime - ones, local_epsilon), prime**digits
    def slope_at(slope: int, value: int) -> int:
        return sum(slope // prime**j % prime * (value // prime**j % prime) for j in range(digits))
    def randomize(value: int, word: Word) -> list[int]:
        first, many = (0, ones) if word(0) < heads else (ones, prime - ones)
        slope, image = divmod(even_draw(slopes * many, word, 1, 2), many)
        return [slope * prime + (first + image - slope_at(slope, value)) % prime]
    def read(report: list[int], value: int) -> int:
        return (report[0] % prime + slope_at(report[0] // prime, value)) % prime < ones
    scale = pure(heads, Fraction(WORDS * ones, prime))
    return Spec(2, [slopes * prime], randomize, read, *scale, histogram=False)

def noisy_bits(held: list[int], own: int, other: int, word: Word, at: int, more: int) -> list[int]:
    """Bit x is one if 64 binary digits are a number below a threshold: the first 8 are bit x % 64
    of words from `at` on; the others are drawn only if these are the threshold's, too."""
    width, found = -(-len(held) // 64), []
    for x, holds in enumerate(held):
        threshold, drawn = own if holds else other, range(at + x // 64, at + 8 * width, width)
        first = sum((word(i) >> x % 64 & 1) << 7 - digit for digit, i in enumerate(drawn))
        rest = word(more + x) >> 8 if first == threshold >> 56 else 0
        found.append(int((first << 56 | rest) < threshold))
    return found

def UnaryEncoding(domain_size: int, local_epsilon: float, optimized: bool) -> Spec:
    own, other = unary_thresholds(local_epsilon, optimized)
    words, k = 8 * -(-domain_size // 64), domain_size
    def randomize(value: int, word: Word) -> list[int]:
        return noisy_bits([int(x == value) for x in range(k)], own, other, word, 0, words)
    return Spec(words, [2] * k, randomize, list.__getitem__, *pure(own, other), True, False)

def Rappor(domain_size: int, local_epsilon: float, longitudinal_epsilon: float) -> Spec:
    """The basic design. First come the words of the permanent response, and one for a cohort."""
    flip, zero, one = permanent_thresholds(local_epsilon, longitudinal_epsilon)
    k, stage = domain_size, 8 * -(-domain_size // 64)
    def randomize(value: int, word: Word) -> list[int]:
        held = [int(x == value) for x in range(k)]
        kept = noisy_bits(held, WORDS - flip, flip, word, 0, 2 * stage + 1)
        return noisy_bits(kept, one, zero, word, stage + 1, 2 * stage + 1 + k)
    p, q = (zero + (one - zero) * Fraction(f, WORDS) for f in (WORDS - flip, flip))
    return Spec(2 * stage + 1, [2] * k, randomize, list.__getitem__, *pure(p, q), True, False)

def SubsetSelection(domain_size: int, local_epsilon: float, subset_size: int) -> Spec:
    k, w = domain_size, subset_size
    heads = coin_threshold(w, k - w, local_epsilon)
    as_bits = k <= w * max(1, (k - 1).bit_length())
    def randomize(value: int, word: Word) -> list[int]:
        """Floyd's method among the other values; anew where a word would make a draw uneven."""
        own, at = word(0) < heads, 1
        bounds = range(k - w + own, k)
        while any(word(at + j) * b % WORDS < WORDS % b for j, b in enumerate(bounds)):
            at += w + 1
        chosen = {value} if own else set()
        for j, bound in enumerate(bounds):
            number = word(at + j) * bound // WORDS
            number += number >= value
            chosen.add(number if number not in chosen else bound - 1 + (bound - 1 >= value))
        return [int(x in chosen) for x in range(k)] if as_bits else sorted(chosen)
    def sound(report: list[int]) -> bool:
        return sum(report) == w if as_bits else sorted(set(report)) == report
    counts, read = ([2] * k, list.__getitem__) if as_bits else ([k] * w, list.__contains__)
    scale = pure(heads, Fraction(w * WORDS - heads, k - 1))
    return Spec(w + 1, counts, randomize, read, *scale, as_bits, False, sound)

def LocalHashing(domain_size: int, local_epsilon: float, num_buckets: int, prime: int) -> Spec:
    g, seeds = num_buckets, prime**2
    threshold = two_level_threshold(g, 1, local_epsilon)
    def bucket(seed: int, value: int) -> int:
        return (seed // prime * value + seed % prime) % prime * g // prime
    def randomize(value: int, word: Word) -> list[int]:
        seed, (high, low) = even_draw(seeds, word, 0, 2), divmod(word(1) * g, WORDS)
        return [seed * g + (bucket(seed, value) if low < threshold else high)]
    def read(report: list[int], value: int) -> int:
        return bucket(report[0] // g, value) == report[0] % g
    small, larger = divmod(prime, g)
    collide = Fraction((g - larger) * small**2 + larger * (small + 1) ** 2, seeds)
    other = Fraction(WORDS - threshold, g)
    scale = pure(threshold + other, threshold * collide + other)
    return Spec(2, [seeds * g], randomize, read, *scale, histogram=False)
