"""Means whose reports name public randomness by a seed, and shares of sums, written down again.

Of the standard library and `spec` alone, as `tests/spec/beyond.py` is.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

from spec import prf
from spec.frequency import WORDS, Spec, Word, exp_lower, odd, two_level_threshold
from spec.means import Floats
from tests.spec.beyond import uniform
from tests.spec.beyond_directions import PrivUnit, cap, cap_law, direction_of, normals, spare

GOLDEN = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    """The output function of SplitMix64."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORDS
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORDS
    return word ^ word >> 31


def split_mix(state: int) -> Iterator[int]:
    while True:
        state = (state + GOLDEN) % WORDS
        yield mix(state)


def stream(seed: int) -> Iterator[int]:
    return split_mix(mix((seed + GOLDEN) % WORDS))


@functools.cache
def candidate(seed: int, index: int, d: int) -> Floats:
    """A unit vector, from as many words as do but once in 1e9."""
    first = mix((seed + GOLDEN) % WORDS) + index * GOLDEN
    drawn = normals(itertools.islice(split_mix(mix(first % WORDS)), spare(d)), d)
    return [a / math.hypot(*drawn) for a in drawn]


def dot(a: Floats, b: Floats) -> float:
    return math.fsum(x * y for x, y in zip(a, b))


def hadamard(x: Floats) -> Floats:
    """Sums against all rows, as they stand."""
    return [math.fsum(-a if odd(i & j) else a for j, a in enumerate(x)) for i in range(len(x))]


# A seed and the index of a direction ----------------------------------------------------------


def named(
    d: int, index_bits: int, seed_bits: int, words: int, gain: float, bits: int,
    choose: Callable[[Floats, Word], int], direction: Callable[[Floats, Word], Floats],
    candidates: Callable[[int, int, int], list[Floats]] = lambda seed, count, d: [
        candidate(seed, k, d) for k in range(count)
    ],
) -> Spec:  # fmt: skip
    """`choose` takes the heights of all candidates; they are read in fixed point."""
    largest = (1 << bits - 1) - 1

    def randomize(x: Floats, word: Word) -> list[int]:
        seed, u = word(0) >> 64 - seed_bits, direction(x, word)
        heights = [dot(one, u) for one in candidates(seed, 1 << index_bits, d)]
        return [seed << index_bits | choose(heights, word)]

    def read(report: list[int], j: int) -> int:
        seed, index = divmod(report[0], 1 << index_bits)
        return round(largest * candidates(seed, 1 << index_bits, d)[index][j])

    counts = [1 << seed_bits + index_bits]
    return Spec(words, counts, randomize, read, Fraction(gain / largest), histogram=False)


def top_sum(d: int, count: int, candidates: int) -> float:
    """Of so many uniform directions the expected sum of the largest `count` heights: over a height
    x = sin a, candidates times x where fewer than `count` of the others are higher. A sum over
    equal steps of a is exact to the last digits, as all that is summed ends smoothly."""
    steps, others = 800, candidates - 1
    constant = math.exp(math.lgamma(d / 2) - math.lgamma((d - 1) / 2)) / math.sqrt(math.pi)

    def term(angle: float) -> float:
        x = math.sin(angle)
        share = cap(d, x)[0] if x > 0 else 1 - cap(d, -x)[0] if x < 0 else 0.5
        few = math.fsum(
            math.comb(others, n) * share**n * (1 - share) ** (others - n) for n in range(count)
        )
        return x * math.cos(angle) ** (d - 2) * few

    inside = (term(math.pi * (i / steps - 0.5)) for i in range(1, steps))
    return candidates * constant * math.fsum(inside) * math.pi / steps


def RandomCodebookMean(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, inputs: str, coordinate_bits: int,
    index_bits: int, seed_bits: int, closest: int,
) -> Spec:  # fmt: skip
    """Each of the closest candidates is e**local_epsilon times as likely as each other one."""
    size = 1 << index_bits
    share, choose = one_of_the_closest(size, closest, local_epsilon)
    m = share * top_sum(dimension, closest, size)
    scale = 1 / radius if inputs == "ball" else math.inf
    return named(dimension, index_bits, seed_bits, 3, radius / m, coordinate_bits, choose,
                 lambda x, word: direction_of(x, scale, word(2)))  # fmt: skip


def one_of_the_closest(
    size: int, closest: int, local_epsilon: float
) -> tuple[float, Callable[[Floats, Word], int]]:
    """By how much each of them is likelier than each other one, and what is named."""
    threshold = two_level_threshold(size, closest, local_epsilon)
    share = threshold // closest

    def choose(heights: Floats, word: Word) -> int:
        high, low = divmod(word(1) * size, WORDS)
        which = high % closest if closest & closest - 1 == 0 else low // share
        nearest = sorted(range(size), key=lambda k: -heights[k])
        return nearest[which] if low < threshold else high

    return share / WORDS, choose


@functools.cache
def corners(seed: int, count: int, d: int) -> list[Floats]:
    """Of a simplex: directions made orthogonal one by one, less their mean, of length 1 again."""
    axes: list[Floats] = []
    for k in range(count):
        axis = candidate(seed, k, d)
        for before in axes:
            share = dot(before, axis)
            axis = [a - share * b for a, b in zip(axis, before)]
        axes.append([a / math.hypot(*axis) for a in axis])
    mean = [math.fsum(column) / count for column in zip(*axes)]
    stretch = math.sqrt(count / (count - 1))
    return [[stretch * (a - b) for a, b in zip(axis, mean)] for axis in axes]


def RotatedSimplexMean(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, inputs: str, coordinate_bits: int,
    index_bits: int, seed_bits: int, closest: int,
) -> Spec:  # fmt: skip
    """The same of corners: heights are order statistics of normals, over the length of d."""
    size, steps = 1 << index_bits, 1600
    share, choose = one_of_the_closest(size, closest, local_epsilon)

    def term(x: float) -> float:
        above = math.erfc(x / math.sqrt(2)) / 2
        few = math.fsum(
            math.comb(size - 1, n) * above**n * (1 - above) ** (size - 1 - n)
            for n in range(closest)
        )
        return x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * few

    top = size * math.fsum(term(20 * (i / steps - 0.5)) for i in range(1, steps)) * 20 / steps
    length = math.sqrt(2) * math.exp(math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2))
    m = share * math.sqrt(size / (size - 1)) * top / length
    scale = 1 / radius if inputs == "ball" else math.inf
    return named(dimension, index_bits, seed_bits, 3, radius / m, coordinate_bits, choose,
                 lambda x, word: direction_of(x, scale, word(2)), corners)  # fmt: skip


def MinimalRandomCoding(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, inputs: str, coordinate_bits: int,
    index_bits: int, seed_bits: int, g: float,
) -> Spec:  # fmt: skip
    """A cap of the threshold g. Of few candidates in it each has the most weight there may be, and
    the others share the rest; of many, each of the others has the least."""
    size = 1 << index_bits
    share, first = cap(dimension, g)
    epsilon = local_epsilon - 4e-12 * max(1.0, local_epsilon)
    most = 1 / (share + (1 - share) * math.exp(-epsilon))

    def outside(count: int) -> int:
        """Words that name a candidate off the cap, if so many are in it."""
        if count == 0:
            return WORDS
        if count / size < share:
            return WORDS - math.floor(count / size * most * WORDS)
        return math.ceil((1 - count / size) * most * math.exp(-epsilon) * WORDS)

    def choose(heights: Floats, word: Word) -> int:
        within = [height >= g for height in heights]
        inside = word(1) >= outside(sum(within))
        places = [k for k in range(size) if within[k] == inside]
        return places[word(2) * len(places) // WORDS]

    p = math.fsum(
        math.comb(size, n) * share**n * (1 - share) ** (size - n) * (1 - outside(n) / WORDS)
        for n in range(size + 1)
    )
    m = p * first / share - (1 - p) * first / (1 - share)
    scale = 1 / radius if inputs == "ball" else math.inf
    return named(dimension, index_bits, seed_bits, 4, radius / m, coordinate_bits, choose,
                 lambda x, word: direction_of(x, scale, word(3)))  # fmt: skip


# Rows of a transform --------------------------------------------------------------------------


def chosen_rows(seed: int, size: int, count: int) -> list[int]:
    """Distinct ones: Fisher and Yates."""
    order, drawn = [*range(size)], stream(seed)
    for j in range(count):
        other = j + next(drawn) * (size - j) // WORDS
        order[j], order[other] = order[other], order[j]
    return order[:count]


def ProjectedPrivUnit(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, inputs: str, coordinate_bits: int,
    projected: int, sign_seed: int | None, end: float | None = None,
) -> tuple[Spec, Callable[..., Floats]]:  # fmt: skip
    """ "shared": PrivUnit of some rows of the transform of the direction, under public signs. The
    seed of the rows goes first, its top bit the other way round. `end` as there."""
    size, k, half = 1 << max(1, (dimension - 1).bit_length()), projected, 1 << 31
    base, base_real = PrivUnit(k, local_epsilon, 1.0, coordinate_bits, "sphere", end)
    signs = [1 if word >> 63 else -1 for word in itertools.islice(stream(sign_seed or 0), size)]
    scale = 1 / radius if inputs == "ball" else math.inf

    def real(x: Floats, word: Word) -> Floats:
        u = direction_of(x, scale, word(0)) + [0.0] * (size - dimension)
        turned = hadamard([a * b for a, b in zip(signs, u)])
        rows = chosen_rows(word(1) >> 32, size, k)
        return base_real([turned[row] for row in rows], lambda at: word(2 + at))

    def randomize(x: Floats, word: Word) -> list[int]:
        offset = base.counts[0] // 2
        return [word(1) >> 32 ^ half, *(offset + round(a) for a in real(x, word))]

    def read(report: list[int], j: int) -> float:
        rows = chosen_rows(report[0] ^ half, size, k)
        back = (
            base.read(report[1:], i) * (-1 if odd(row & j) else 1) for i, row in enumerate(rows)
        )
        return signs[j] * math.fsum(back) / math.sqrt(size)

    # 1 / E|projection of a unit vector on k of `size` dimensions|
    longer = math.lgamma((size + 1) / 2) - math.lgamma(size / 2)
    shorter = math.lgamma((k + 1) / 2) - math.lgamma(k / 2)
    gain = base.gain * Fraction(radius * math.exp(longer - shorter))
    return Spec(base.words + 2, [1 << 32, *base.counts], randomize, read, gain), real


def frame(dimension: int, n: int) -> list[tuple[int, int]]:
    """Of each coordinate its column of the transform, and a sign."""
    draws = [mix((i + 1) * GOLDEN % WORDS) for i in range(n)]
    columns = sorted(range(n), key=draws.__getitem__)
    signs = [1 if word >> 63 else -1 for word in itertools.islice(stream(0), dimension)]
    return list(zip(columns, signs))


def even_representation(x: Floats, n: int) -> Floats:
    """Coefficients in the frame: what is above a bound is cut off, and the rest of the vector
    written again, under a lower bound."""
    own = frame(len(x), n)

    def analyze(x: Floats) -> Floats:
        spread = [0.0] * n
        for (column, sign), a in zip(own, x):
            spread[column] = sign * a / math.sqrt(n)
        return hadamard(spread)

    bound, rest, total = 0.6 * math.hypot(*x) / math.sqrt(n), x, [0.0] * n
    for _ in range(math.ceil(3 * math.log(n))):
        part = [min(max(a, -bound), bound) for a in analyze(rest)]
        back = hadamard(part)
        rest = [a - back[column] * sign / math.sqrt(n) for a, (column, sign) in zip(rest, own)]
        total, bound = [a + b for a, b in zip(total, part)], 0.6 * bound
    return [a + b for a, b in zip(total, analyze(rest))]


def KashinMean(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, bits: int, level: float, redundancy: int
) -> Spec:
    """Signs of some coefficients of an even representation, as one symbol behind a seed."""
    n, symbols = redundancy << (dimension - 1).bit_length(), 1 << bits
    own, threshold = frame(dimension, n), two_level_threshold(symbols, 1, local_epsilon)

    def asked(seed: int) -> list[int]:
        return [word % n for word in itertools.islice(stream(seed), bits)]

    def randomize(x: Floats, word: Word) -> list[int]:
        seed, (high, low) = word(0) >> 32, divmod(word(1) * symbols, WORDS)
        limit, even = level * radius / math.sqrt(n), even_representation(x, n)
        ups = [2 * uniform(word(2 + j)) - 1 < even[i] / limit for j, i in enumerate(asked(seed))]
        told = sum(up << j for j, up in enumerate(ups))
        return [seed << bits | (told if low < threshold else high)]

    def read(report: list[int], j: int) -> float:
        seed, (column, sign) = report[0] >> bits, own[j]
        back = ((2 * (report[0] >> b & 1) - 1) * (-1 if odd(i & column) else 1)
                for b, i in enumerate(asked(seed)))  # fmt: skip
        return sign * sum(back) / math.sqrt(n)

    gain = Fraction(level * radius * math.sqrt(n) / bits) * Fraction(WORDS, threshold)
    return Spec(2 + bits, [1 << 32 + bits], randomize, read, gain, histogram=False)


# Shares of a sum ------------------------------------------------------------------------------


def discrete_gaussian(deviation: float) -> tuple[int, list[int]]:
    """How far it reaches, and 2**128 times the chances of at most each of its numbers."""
    reach = math.ceil(deviation * math.sqrt(2 * math.log(2) * 102))
    with localcontext() as context:
        context.prec = 90
        rate = -1 / (2 * Decimal(deviation) ** 2)
        weights = [int((rate * x * x).exp() * 10**70) for x in range(-reach, reach + 1)]
    total = sum(weights)
    return reach, [(running << 128) // total for running in itertools.accumulate(weights)]


def SplitAndMixMean(  # noqa: N802
    dimension: int, radius: float, cells: int, noise_deviation: float, modulus_bits: int,
    shares: int, rotation_seed: int | None,
) -> Spec:  # fmt: skip
    """A turned vector, rounded at random to the grid, with noise, as numbers that add up to it."""
    size, modulus = 1 << (dimension - 1).bit_length(), 1 << modulus_bits
    label = b"beam-ldp rotation signs %d" % (rotation_seed or 0)
    drawn = hashlib.shake_256(label).digest(-(-dimension // 8))
    signs = [-1 if drawn[j // 8] >> 7 - j % 8 & 1 else 1 for j in range(dimension)]
    reach, chances = discrete_gaussian(noise_deviation)
    slack = math.sqrt(2 * 40 * math.log(2))
    longest = math.ceil(cells**2 + size / 4 + slack * (cells + math.sqrt(size) / 2))

    def rounded(x: Floats, word: Word) -> list[int]:
        padded = [a * b for a, b in zip(signs, x)] + [0.0] * (size - dimension)
        exact = [a / math.sqrt(size) / (radius / cells) for a in hadamard(padded)]
        found = [math.floor(a) + ((word(j) >> 11) * 2.0**-53 < a - math.floor(a))
                 for j, a in enumerate(exact)]  # fmt: skip
        return found if sum(a * a for a in found) <= longest else [math.trunc(a) for a in exact]

    def noise(j: int, word: Word) -> int:
        """By 128 bits, the last 64 of another word where the first leave it open."""
        first = word(size + j)
        fewest = sum(chance <= first << 64 for chance in chances)
        if fewest == sum(chance < first + 1 << 64 for chance in chances):
            return fewest - reach
        whole = first << 64 | word(size * (shares + 1) + j)
        return sum(chance <= whole for chance in chances) - reach

    def randomize(x: Floats, word: Word) -> list[int]:
        report, numbers = [], rounded(x, word)
        for j in range(size):
            split = [word(2 * size + j * (shares - 1) + i) % modulus for i in range(shares - 1)]
            report += [*split, (numbers[j] + noise(j, word) - sum(split)) % modulus]
        return report

    def read(report: list[int], j: int) -> float:
        """Of one person, or of all, if their reports are added up modulo the modulus."""
        sums = [sum(report[i * shares : (i + 1) * shares]) % modulus for i in range(size)]
        signed = [a - modulus if 2 * a >= modulus else a for a in sums]
        return signs[j] * hadamard([float(a) for a in signed])[j] / math.sqrt(size) * radius / cells

    return Spec(size * (shares + 1), [modulus] * (size * shares), randomize, read)


# A seed that was tried ------------------------------------------------------------------------


def aes128(key: bytes, block: bytes) -> bytes:
    """One block (FIPS 197), as the specification has it of longer keys."""
    words, constant = [list(key[i : i + 4]) for i in range(0, 16, 4)], 1
    for i in range(4, 44):
        last = words[-1]
        if i % 4 == 0:
            last = [prf.SBOX[b] for b in last[1:] + last[:1]]
            last[0], constant = last[0] ^ constant, prf.times(constant, 2)
        words.append([a ^ b for a, b in zip(words[-4], last)])
    keys = [sum(words[i : i + 4], []) for i in range(0, 44, 4)]
    state = [a ^ b for a, b in zip(block, keys[0])]
    for turn in range(1, 11):
        state = [prf.SBOX[state[5 * i % 16]] for i in range(16)]
        if turn < 10:
            down = [state[j : j + 4] * 2 for j in range(0, 16, 4)]
            state = [
                prf.times(c[i], 2) ^ prf.times(c[i + 1], 3) ^ c[i + 2] ^ c[i + 3]
                for c in down
                for i in range(4)
            ]
        state = [a ^ b for a, b in zip(state, keys[turn])]
    return bytes(state)


@functools.cache
def drawn_of(key: tuple[int, int], nonce: int, d: int) -> Floats:
    """The unit vector of a seed: normals from AES in counter mode."""

    def words() -> Iterator[int]:
        secret = b"".join(half.to_bytes(8, "little") for half in key)
        for number in itertools.count():
            counter = nonce.to_bytes(8, "little") + number.to_bytes(8, "big")
            block = aes128(secret, counter)
            yield from (int.from_bytes(block[i : i + 8], "little") for i in (0, 8))

    drawn = normals(itertools.islice(words(), spare(d)), d)
    return [a / math.hypot(*drawn) for a in drawn]


def SeedCompressedMean(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, inputs: str, coordinate_bits: int
) -> Spec:
    """Of "PrivUnit": the first seed whose direction is in the cap, or that a coin lets pass."""
    d, (g, _, _) = dimension, cap_law(dimension, local_epsilon)
    share, first = cap(d, g)
    lenient = math.ceil(WORDS / exp_lower(local_epsilon))
    trials = 1 / (share + (1 - share) * lenient / WORDS)
    most = math.ceil(math.log(1e-13) / math.log1p(-1 / trials))
    blind = (1 - 1 / trials) ** most  # the seed after the last that is tried
    p = ((1 - blind) * trials + blind) * share
    m = p * first / share - (1 - p) * first / (1 - share)
    nonce_bits = max(1, math.ceil(math.log2(trials)))
    scale, largest = 1 / radius if inputs == "ball" else math.inf, (1 << coordinate_bits - 1) - 1

    def randomize(x: Floats, word: Word) -> list[int]:
        u, report = direction_of(x, scale, word(0)), [0, 0, 0]
        for trial in range(most + 1):
            *key, nonce, coin = (word(1 + 4 * trial + i) for i in range(4))
            report = [*key, nonce >> 64 - nonce_bits]
            if dot(drawn_of((key[0], key[1]), report[2], d), u) >= g or coin < lenient:
                break
        return report

    def read(report: list[int], j: int) -> int:
        return round(largest * drawn_of((report[0], report[1]), report[2], d)[j])

    counts = [WORDS, WORDS, 1 << nonce_bits]
    return Spec(5, counts, randomize, read, Fraction(radius / m / largest))
