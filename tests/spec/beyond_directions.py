"""Real vectors, written down a second time: what 600 lines of specification do not hold.

Of the standard library and `spec` alone, as `tests/spec/beyond.py` is. Each function gives what
reports are packed and read by, and the coordinates in steps before they are rounded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from spec import means
from spec.frequency import WORDS, Spec, Word
from spec.means import Floats
from tests.spec.beyond import spending, uniform

TAIL = 3.6541528853610088  # where the tail of a ziggurat of 256 layers of one area begins
AREA = TAIL * math.exp(-(TAIL**2) / 2) + math.sqrt(math.pi / 2) * math.erfc(TAIL / math.sqrt(2))
EDGES = [AREA * math.exp(TAIL**2 / 2), TAIL]
while len(EDGES) < 256:
    EDGES.append(math.sqrt(-2 * math.log(math.exp(-(EDGES[-1] ** 2) / 2) + AREA / EDGES[-1])))
EDGES.append(0.0)


def normal(words: Iterator[int], word: int) -> float:
    """A standard normal (Marsaglia and Tsang 2000): from one word mostly, else from others too."""
    while True:
        edge, inner = EDGES[word % 256], EDGES[word % 256 + 1]
        place = (word >> 11) - (word >> 63 << 53)
        x = (place + 0.5) * (edge / 2**52)
        if max(place, -1 - place) < math.floor(inner / edge * 2**52):
            return x
        while word % 256 == 0:
            beyond = -math.log(uniform(next(words))) / TAIL
            if -2 * math.log(uniform(next(words))) > beyond * beyond:
                return math.copysign(TAIL + beyond, x)
        low, high = math.exp(-(edge**2) / 2), math.exp(-(inner**2) / 2)
        if low + uniform(next(words)) * (high - low) < math.exp(-x * x / 2):
            return x
        word = next(words)


def normals(words: Iterator[int], count: int) -> Floats:
    """From one word each, and then from others those that these leave open."""
    first = [next(words) for _ in range(count)]
    return [normal(words, word) for word in first]


def gamma(shape: float, words: Iterator[int]) -> float:
    """A gamma variate of unit scale (Marsaglia and Tsang 2000a)."""
    if shape < 1:
        return uniform(next(words)) ** (1 / shape) * gamma(shape + 1, words)
    d = shape - 1 / 3
    while True:
        x = normal(words, next(words))
        v, u = (1 + x / math.sqrt(9 * d)) ** 3, uniform(next(words))
        if v > 0 and math.log(u) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v


def height(d: int, g: float, inside: bool, words: Iterator[int]) -> tuple[float, float]:
    """Of a uniform direction in the cap or off it: along the axis, and away from it."""
    while inside and g * g * d >= 1:
        w = -2 * math.log(uniform(next(words))) / (d - 1)
        t = math.sqrt(g * g - (1 - g) * (1 + g) * math.expm1(-w))
        if uniform(next(words)) * t < g:
            return min(t, 1.0), math.sqrt((1 - g) * (1 + g)) * math.exp(-w / 2)
    while True:
        along, rest = normal(words, next(words)), 2 * gamma((d - 1) / 2, words)
        t = along / math.hypot(along, math.sqrt(rest))
        if (t >= g) == inside:
            return t, math.sqrt(rest) / math.hypot(along, math.sqrt(rest))


def cap(d: int, g: float) -> tuple[float, float]:
    """The share of directions that have at least g of an axis, and their mean times that share.

    By parts, the share in d dimensions is that in d + 2 and g times the first moment; near one
    half, where that takes long, it is what Simpson's rule leaves of the half."""
    density = math.exp(math.lgamma(d / 2) - math.lgamma((d - 1) / 2)) / math.sqrt(math.pi)
    square = (1 - g) * (1 + g)  # of the distance from the axis
    first = square ** ((d - 1) / 2) * density / (d - 1)
    if g * g * d < 2 and d > 2:
        steps = 400
        weights = [1, *[4, 2] * (steps // 2 - 1), 4, 1]
        at = ((1 - (g * i / steps) ** 2) ** ((d - 3) / 2) for i in range(steps + 1))
        inner = math.fsum(w * a for w, a in zip(weights, at)) * g / steps / 3
        return 0.5 - density * inner, first
    terms, term = [], g * first
    while term > max(1e-20 * g * first, 1e-300):
        terms.append(term)
        term, d = term * square * d / (d + 1), d + 2
    return math.fsum(terms), first


def cap_law(d: int, epsilon: float) -> tuple[float, int, float]:
    """PrivUnit: the cap of least error, where its height is the mean height m of reports; words
    that choose it; and m. A hair of the budget is left for rounding."""
    spent = epsilon - 2e-15 * max(1.0, epsilon) - 1e-16 * d
    low, high = 0.0, min(1.0, (2 * math.sqrt(epsilon) + 3) / math.sqrt(d))
    while low < (g := (low + high) / 2) < high:
        share, first = cap(d, g)
        low, high = (g, high) if g * (1 / math.expm1(spent) + share) < first else (low, g)
    share, first = cap(d, g)
    heads = spending(spent - math.log((1 - share) / share))
    p = heads / WORDS
    return g, heads, p * first / share - (1 - p) * first / (1 - share)


def direction_of(x: Floats, scale: float, word: int) -> Floats:
    """A vector of the ball stands for its direction or the opposite, so that the mean is right."""
    length = math.hypot(*x)
    kept = 0.5 + 0.5 * min(1.0, length * scale) if length else 0.5
    sign = 1 if uniform(word) < kept else -1
    return [sign * a / length for a in x] if length else [float(sign), *[0.0] * (len(x) - 1)]


def across(u: Floats, words: Iterator[int]) -> Floats:
    """Normals without what they have along u."""
    drawn = normals(words, len(u))
    along = math.fsum(a * b for a, b in zip(u, drawn))
    return [b - along * a for a, b in zip(u, drawn)]


def spare(count: int) -> int:
    return count + count // 40 + 2 * math.isqrt(count) + 96


def fixed_point(d: int, bits: int, words: int, step: float, real: Callable[..., Floats]) -> Spec:
    """Real coordinates, in steps, as signed integers: the least of `bits` bits is all zeros."""
    half = 1 << bits - 1

    def randomize(x: Floats, word: Word) -> list[int]:
        return [half + round(a) for a in real(x, word)]

    return Spec(words, [2 * half] * d, randomize, lambda report, j: report[j] - half,
                Fraction(step))  # fmt: skip


def coins(words: Iterator[int], count: int) -> Floats:
    """Numbers in (-1/2, 1/2): half a word each, the lower half first."""
    halves = (half for word in words for half in (word % 2**32, word >> 32))
    return [(half + 0.5) / 2**32 - 0.5 for half in itertools.islice(halves, count)]


def PrivUnit(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, coordinate_bits: int, inputs: str,
    end: float | None = None,
) -> tuple[Spec, Callable[..., Floats]]:  # fmt: skip
    """A direction of the cap, or else of the rest, of length 1/m: its coordinates, in steps.

    With the end of a grid, in radii, rounded at random: with a coin, from the words that follow.
    """
    g, heads, m = cap_law(dimension, local_epsilon)
    largest = (1 << coordinate_bits - 1) - 1
    scale = 1 / radius if inputs == "ball" else math.inf

    def real(x: Floats, word: Word) -> Floats:
        u, words = direction_of(x, scale, word(0)), map(word, itertools.count(2))
        t, s = height(dimension, g, word(1) < heads, words)
        v = across(u, words)
        thrown = coins(words, dimension) if end else [0.0] * dimension
        return [
            length * (t * a + s * b / math.hypot(*v)) + c for a, b, c in zip(u, v, thrown)
        ]  # fmt: skip

    length = largest / m / end if end else largest
    step, more = radius / m / length, (dimension + 1) // 2 if end else 0
    return fixed_point(dimension, coordinate_bits, spare(dimension) + more, step, real), real


def in_tail(t: float, inside: bool, words: Iterator[int]) -> float:
    """A normal from t on, or else one below it."""
    while inside and t >= 0.5:
        x = math.sqrt(t * t - 2 * math.log(uniform(next(words))))
        if uniform(next(words)) * x < t:
            return x
    while ((x := normal(words, next(words))) >= t) != inside:
        pass
    return x


def PrivUnitGaussian(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, coordinate_bits: int, inputs: str,
    threshold: float,
) -> tuple[Spec, Callable[..., Floats]]:  # fmt: skip
    """(X u + W)/m, W normal across u, X in the tail from the threshold on or else below it."""
    share = math.erfc(threshold / math.sqrt(2)) / 2
    first = math.exp(-(threshold**2) / 2) / math.sqrt(2 * math.pi)
    spent = local_epsilon - 2e-15 * max(1.0, local_epsilon)
    heads = spending(spent - math.log((1 - share) / share))
    p = heads / WORDS
    m = p * first / share - (1 - p) * first / (1 - share)
    largest = (1 << coordinate_bits - 1) - 1
    step = (threshold + 24) / m * radius / largest
    scale = 1 / radius if inputs == "ball" else math.inf

    def real(x: Floats, word: Word) -> Floats:
        u, words = direction_of(x, scale, word(0)), map(word, itertools.count(2))
        t = in_tail(threshold, word(1) < heads, words)
        return [radius / m / step * (t * a + b) for a, b in zip(u, across(u, words))]

    return fixed_point(dimension, coordinate_bits, spare(dimension), step, real), real


def SeparatedMean(  # noqa: N802
    dimension: int, local_epsilon: float, radius: float, coordinate_bits: int,
    magnitude_epsilon: float, magnitude_cells: int, end: float | None = None,
) -> tuple[Spec, Callable[..., Floats]]:  # fmt: skip
    """ "product": a direction of the rest of the budget, times what a grid point is read as.

    With the end of a grid, in radii, rounded at random: with the two coins of a word each.
    """
    d, rest = dimension, local_epsilon - magnitude_epsilon
    own, _ = PrivUnit(d, rest, 1.0, 32, "sphere")
    scalar = means.ScalarMean(magnitude_epsilon, radius, False, "uniform", magnitude_cells, 0.5, 2)
    lengths = [float(scalar.gain * Fraction(scalar.read([i], 0)) + scalar.offset)
               for i in range(scalar.counts[0])]  # fmt: skip
    longest, largest = max(map(abs, lengths)), (1 << coordinate_bits - 1) - 1
    one, thrown = float(own.gain), d if end else 0
    step = end * radius / largest if end else longest * one * ((1 << 31) - 1) / largest

    def real(x: Floats, word: Word) -> Floats:
        length = lengths[scalar.randomize([min(math.hypot(*x), radius)], word)[0]]
        drawn = own.randomize(x, lambda at: word(2 + thrown + at))
        halves = coins(map(word, itertools.count(2)), 2 * thrown) or [0.0] * 2 * d
        pairs = map(sum, zip(halves[::2], halves[1::2]))
        return [(a - (1 << 31)) * one * length / step + c for a, c in zip(drawn, pairs)]

    return fixed_point(d, coordinate_bits, spare(d + 1) + 2 + thrown, step, real), real
