"""Pairwise independent hashing over a prime field, and the counting of what reports support.

A public seed (a, b), uniform over pairs of residues, sends the value x to a x + b modulo the prime
P. For two values the two images are independent and uniform, exactly. A report supports the values
whose image lies in one interval of residues; shifting b moves that interval to [0, width).
"""

from __future__ import annotations

import functools

import numpy as np

from beam_ldp.randomizers.jit import kernel

MAX_PRIME = 1 << 31  # products of two residues stay below 2**62
_CHUNK = 1 << 20
# Measured cost in nanoseconds: of a listed value; of a sorted report; of a residue or value that
# is swept for a slope.
_LISTED, _SORTED, _SWEPT = 1.2, 30.0, 0.7


@functools.lru_cache(maxsize=4)
def inverses(prime: int) -> np.ndarray:
    """Inverse of every residue (0 for 0): int64, (prime,). O(prime) time and memory."""
    table = np.zeros(prime, dtype=np.int64)
    _invert(prime, table)
    return table


def support_counts(
    slopes: np.ndarray, shifts: np.ndarray, widths: np.ndarray, prime: int, num_values: int
) -> np.ndarray:
    """Reports with (slope * x + shift) mod prime < width, for every x < num_values.

    Either lists the values that each report supports (time proportional to the widths), or sorts
    the reports by slope and counts those of one slope together (time per slope O(prime)),
    whichever is faster. Memory O(prime) plus that of a chunk of reports.

    Args:
        slopes, shifts, widths: int64, (n,); residues, and interval widths below `prime`.
        prime: the field.
        num_values: at most `prime`.

    Returns:
        int64, (num_values,).
    """
    counts = np.zeros(num_values, dtype=np.int64)
    for start in range(0, len(slopes), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        slope, shift, width = slopes[chunk], shifts[chunk], widths[chunk]
        num_reports = len(slope)
        listing = _LISTED * float(width.sum()) + float(prime)
        sweeping = _SORTED * num_reports + _SWEPT * min(prime, num_reports) * (prime + num_values)
        if listing <= sweeping:
            _count_listed(slope, shift, width, prime, inverses(prime), counts)
        else:
            _count_by_slope(slope, shift, width, prime, counts)
    return counts


def triple_overlap(prime: int, width: int) -> float:
    """Chance that the images of 0, 1 and 2 all lie in [0, width), for prime >= 3.

    The images are v, v + d, v + 2d with v, d uniform: the intersection of three cyclic intervals
    of one length, summed over the d at which the first two meet.
    """
    near = np.arange(min(width, prime), dtype=np.int64)
    step = np.unique(np.concatenate([near, (prime - near) % prime]))

    def pieces(shift: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """[-shift, width - shift) modulo the prime, as two intervals of [0, prime)."""
        return [
            (np.zeros_like(shift), np.maximum(width - shift, 0)),
            (prime - shift, np.minimum(prime, prime - shift + width)),
        ]

    total = 0
    for low, high in pieces(step):
        for other_low, other_high in pieces(2 * step % prime):
            top = np.minimum(np.minimum(high, other_high), width)
            total += int(np.maximum(top - np.maximum(low, other_low), 0).sum())
    return total / prime**2


@kernel
def _invert(prime, table):  # type: ignore[no-untyped-def]
    table[1] = 1
    for i in range(2, prime):
        table[i] = (prime - prime // i) * table[prime % i] % prime


@kernel
def _count_listed(slopes, shifts, widths, prime, inverse, counts):  # type: ignore[no-untyped-def]
    everything = 0
    for i in range(slopes.size):
        if slopes[i] == 0:
            everything += shifts[i] < widths[i]
            continue
        step = inverse[slopes[i]]
        value = (prime - shifts[i]) * step % prime
        for _ in range(widths[i]):
            if value < counts.size:
                counts[value] += 1
            value += step
            if value >= prime:
                value -= prime
    counts += everything


@kernel
def _count_by_slope(slopes, shifts, widths, prime, counts):  # type: ignore[no-untyped-def]
    first = np.zeros(prime + 1, dtype=np.int64)
    for i in range(slopes.size):
        first[slopes[i] + 1] += 1
    for slope in range(prime):
        first[slope + 1] += first[slope]
    order = np.empty(slopes.size, dtype=np.int64)
    place = first[:prime].copy()
    for i in range(slopes.size):
        order[place[slopes[i]]] = i
        place[slopes[i]] += 1
    supported = np.empty(prime + 1, dtype=np.int64)
    for slope in range(prime):
        if first[slope] == first[slope + 1]:
            continue
        supported[:] = 0
        for position in range(first[slope], first[slope + 1]):
            i = order[position]
            start = prime - shifts[i] if shifts[i] else 0
            stop = start + widths[i]
            supported[start] += 1
            if stop > prime:
                supported[0] += 1
                stop -= prime
            supported[stop] -= 1
        for residue in range(1, prime):
            supported[residue] += supported[residue - 1]
        image = 0
        for value in range(counts.size):
            counts[value] += supported[image]
            image += slope
            if image >= prime:
                image -= prime
