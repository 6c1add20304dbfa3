"""Means: vectors of a ball, in the unit of the data. The mean's coordinate j is `estimate` of j."""
import hashlib
import math
from collections.abc import Callable
from fractions import Fraction

from spec.frequency import WORDS, Spec, Word, odd, pure, two_level_threshold, unary_thresholds

Floats = list[float]

def clip(x: Floats, norm: str, radius: float) -> Floats:
    """A vector onto the ball: coordinate by coordinate ("linf"), else shortened."""
    if norm == "linf":
        return [min(max(a, -radius), radius) for a in x]
    length = math.hypot(*x) if norm == "l2" else math.fsum(map(abs, x))
    return [a * (radius / length) for a in x] if length > radius else x

def ScalarMean(local_epsilon: float, radius: float, signed: bool, grid: str, cells: int,
               floor: float, ratio: float) -> Spec:
    """The first word rounds the number to a point of the grid, the second protects it."""
    if grid == "uniform":
        unit = [i * (1.0 / cells) for i in range(cells)] + [1.0]
    elif grid == "relative":  # steps that grow with the number
        above = math.ceil(math.log(1 / floor) / math.log(ratio) - 1e-12)
        unit = [0.0] + [floor * ratio**i for i in range(1, above + 1)]
    else:  # and are even below the floor
        width = floor ** (-2 / 3) * math.exp(-local_epsilon / 3)
        below, above = math.ceil(1 / width), math.ceil(math.log(1 / floor) / math.log1p(width))
        unit = [i * (floor / below) for i in range(below)]
        unit += [floor ** (1 - i / above) for i in range(above + 1)]
    points = [radius * (2 * u - 1) if signed else radius * u for u in unit]
    v, threshold = len(points), two_level_threshold(len(points), 1, local_epsilon)
    def randomize(x: Floats, word: Word) -> list[int]:
        high, low = divmod(word(1) * v, WORDS)
        cell = min(max(sum(point <= x[0] for point in points) - 1, 0), v - 2)
        coin = ((word(0) >> 12) + 0.5) * 2.0**-52
        up = coin * (points[cell + 1] - points[cell]) < x[0] - points[cell]
        return [cell + up if low < threshold else high]
    q = Fraction(WORDS - threshold, v) * sum(map(Fraction, points))
    return Spec(2, [v], randomize, lambda report, j: points[report[0]], *pure(threshold + q, q))

def two_response(size: int, messages: list[int], epsilons: Floats, half: float, middle: float,
                 entry: Callable[[int, int], float]) -> Spec:
    """Messages, twice a place in a block plus a noisy bit, about coordinates i of a turned vector:
    sums over j of entry(i, j) (x[j] - middle), in [-half, half]. Level k, a binary digit (the last:
    what is left), has messages[k] blocks, larger ones first, or several of every coordinate."""
    columns, digits = [], len(messages) - 1
    for level, (count, epsilon) in enumerate(zip(messages, epsilons)):
        small, larger = divmod(size, min(count, size))
        for i in [*range(min(count, size))] * max(1, count // size):
            start, width = i * small + min(i, larger), small + (i < larger)
            # Words, per width, for a one where 0 is held: those of unary encoding, rounded again.
            zero = unary_thresholds(epsilon, True)[1] + width
            weight = width * WORDS / (WORDS - 2 * zero) / max(1, count // size)
            columns.append((level, start, width, zero, weight / 2 ** min(level + 1, digits)))
    def randomize(x: Floats, word: Word) -> list[int]:
        report = []
        for i, (level, start, width, zero, _) in enumerate(columns):
            place, low = divmod(word(i) * width, WORDS)
            turned = math.fsum(entry(start + place, j) * (a - middle) for j, a in enumerate(x))
            scaled = min(max(0.5 + 0.5 / half * turned, 0.0), 1.0) * 2.0**digits
            whole = min(int(scaled), 2**digits - 1)
            share = scaled - whole if level == digits else float(whole >> digits - 1 - level & 1)
            span = WORDS - 2 * zero
            more = span if share == 1 else int(share * math.nextafter(float(span), 0.0))
            report.append(2 * place + (low < zero + more))
        return report
    def read(report: list[int], j: int) -> float:
        return math.fsum(weight * (2 * (message % 2) - 1) * entry(start + message // 2, j)
                         for message, (_, start, _, _, weight) in zip(report, columns))
    counts = [2 * width for _, _, width, _, _ in columns]
    return Spec(len(columns), counts, randomize, read, Fraction(half), Fraction(middle),
                histogram=False)

def BinaryVectorMean(dimension: int, messages: list[int], message_epsilons: Floats) -> Spec:
    return two_response(dimension, messages, message_epsilons, 0.5, 0.5, int.__eq__)

def LInfMean(dimension: int, messages: list[int], message_epsilons: Floats, radius: float) -> Spec:
    return two_response(dimension, messages, message_epsilons, radius, 0.0, int.__eq__)

def L2Mean(
    dimension: int, messages: list[int], message_epsilons: Floats, radius: float, cutoff: float,
    rotation_seed: int | None,
) -> Spec:
    """Turned by public signs and the Walsh-Hadamard matrix; rarely is a coordinate cut off."""
    size, seed = 1 << (dimension - 1).bit_length(), rotation_seed or 0  # below 0: no signs
    drawn = hashlib.shake_256(b"beam-ldp rotation signs %d" % seed).digest(size)
    def entry(i: int, j: int) -> float:
        sign = seed >= 0 and drawn[j // 8] >> (7 - j % 8) & 1
        return (-1 if odd(i & j) != sign else 1) / math.sqrt(size)
    half = cutoff * radius / math.sqrt(size)
    return two_response(size, messages, message_epsilons, half, 0.0, entry)

def L1Mean(dimension: int, messages: list[int], message_epsilons: Floats, radius: float) -> Spec:
    return L2Mean(dimension, messages, message_epsilons, radius, 1.0, -1)
