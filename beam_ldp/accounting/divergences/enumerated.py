"""A small batch of shuffled reports, listed configuration by configuration: exact up to rounding.

A configuration says how many reports of each kind there are. The law of a sum over reports (see
`hockey_stick`) is that of the configurations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting.divergences.moments import binomial_log_pmf
from beam_ldp.randomizers import special
from beam_ldp.randomizers.shuffle_pair import ShufflePair

_LISTED = 350_000  # configurations: 8 MB
_FEW = 8  # steps for which it does not pay to sort them
_NEGLIGIBLE = 45.0  # all terms below e^-45 of the largest are 1e-14 of it

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


class Law(NamedTuple):
    """Atoms of the pair of densities: of one report, or of all configurations of a batch."""

    difference: Array  # first - second, kept apart since it may be tiny
    first: Array
    second: Array
    probability: Array


@lru_cache(maxsize=4096)
def law_of_one(pair: ShufflePair) -> Law:
    """The law of `B * (first, second)` of one report that hides the victim's, likeliest first."""
    ratios = np.array(pair.ratios, dtype=np.float64)
    probability = np.array(pair.probabilities, dtype=np.float64)
    kept = probability > 0.0
    ratios, probability = ratios[kept], probability[kept] / probability[kept].sum()
    ratios = ratios / (probability @ ratios)  # means of exactly 1 up to the last bit
    first, second = ratios[:, 0], ratios[:, 1]
    if not pair.is_witness:
        first, second = np.append(first, 0.0), np.append(second, 0.0)
        probability = np.append(probability * pair.blanket_mass, 1.0 - pair.blanket_mass)
    order = np.argsort(-probability, kind="stable")
    return Law((first - second)[order], first[order], second[order], probability[order])


def listable(pair: ShufflePair, n: int) -> bool:
    """Whether all that a batch of `n` reports can look like is few enough to list."""
    kinds = len(law_of_one(pair).probability) - 1
    return math.comb(n + kinds, kinds) <= _LISTED


def listed_parts(pair: ShufflePair, n: int, absent: float, steps: Array) -> Array:
    """E[max(difference - step * (second + absent), 0)] at each step, of a batch that is listable.

    At few steps only what weighs is looked at; for many all is listed, once.
    """
    if len(steps) >= _FEW:
        return _ranked_parts(pair, n, absent, steps)
    return np.array([_heaviest_terms(pair, n, absent, step) for step in steps.tolist()])


def _heaviest_terms(pair: ShufflePair, n: int, absent: float, step: float) -> float:
    """The sum but for terms that are together below 1e-14 of it: those far from the peak.

    Once the rarer kinds have their counts, `m` reports are left of the first two, and those of the
    second are binomial. From its peak, or from the end of those that count, the logarithm of its
    law falls with a second difference of at most -4 / (m + 2): by 2 x (x - 1) / (m + 2) or more
    after x counts.
    """
    law, rarer = law_of_one(pair), _rarer_counts(len(law_of_one(pair).probability) - 2, n)
    values = law.difference - step * law.second
    rest = n - rarer.sum(axis=0)
    away = values[2:] @ rarer - step * absent
    base, slope = rest * values[0] + away, float(values[1] - values[0])
    low, high = np.zeros_like(rest), rest.copy()  # of the second kind, where the sum is positive
    if slope == 0.0:
        high[base <= 0.0] = -1
    else:
        ends = np.clip(-base / slope, -1.0, n + 1.0)
        if slope > 0.0:
            low = np.maximum(np.floor(ends).astype(np.int64), 0)
        else:
            high = np.minimum(np.ceil(ends).astype(np.int64), rest)

    def sums(counts: Array | Counts, row: Counts) -> Array:
        """Of kinds, not from the base: the last digits are all that is left at the largest step."""
        found: Array = (rest[row] - counts) * values[0] + counts * values[1] + away[row]
        return found

    best = np.where(slope > 0.0, high, low)
    rows = np.flatnonzero((low <= high) & (sums(best, np.arange(len(rest))) > 0.0))
    if not len(rows):
        return 0.0
    rest, away, low, high, best = (each[rows] for each in (rest, away, low, high, best))
    every = np.arange(len(rows))
    log_weights = _log_weights(pair, n)
    second, other = float(law.probability[1]), float(law.probability[0])
    peak = np.clip(np.floor((rest + 1) * (second / (second + other))).astype(np.int64), low, high)
    top = log_weights(rest - peak, peak, rows)
    most = np.log(sums(best, every))
    inside = np.clip(peak + int(np.sign(slope)), low, high)
    with np.errstate(divide="ignore"):
        largest = log_weights(rest - inside, inside, rows) + np.log(
            np.maximum(sums(inside, every), 0.0)
        )
    room = top + most - largest.max() + _NEGLIGIBLE
    reach = np.ceil(1.0 + np.sqrt(np.maximum(room, 0.0) * (rest + 2) / 2)).astype(np.int64)
    first, last = np.maximum(low, peak - reach), np.minimum(high, peak + reach)
    count = np.where(room >= 0.0, last - first + 1, 0)
    row = np.repeat(np.arange(len(count)), count)
    counted = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - first, count)
    logs = log_weights(rest[row] - counted, counted, rows[row])
    return float(np.exp(logs) @ np.maximum(sums(counted, row), 0.0))


@lru_cache(maxsize=16)
def _log_weights(pair: ShufflePair, n: int) -> Callable[[Counts, Counts, Counts], Array]:
    """Logarithm of the probability of so many reports of the first two kinds in some rows.

    A row has one count of every other kind: see `_rarer_counts`.
    """
    law = law_of_one(pair)
    rare = float(law.probability[1:].sum())  # 1 - probability[0] would lose digits
    if len(law.probability) <= 2:
        return lambda first, second, row: binomial_log_pmf(second, n, rare)
    counts, log_factorial = np.arange(n + 1.0), _log_factorials(n)
    logs = (math.log1p(-rare), *np.log(law.probability[1:]).tolist())
    terms = [counts * log - log_factorial for log in logs]
    of_rows = np.full(1, log_factorial[n])
    for term, count in zip(terms[2:], _rarer_counts(len(terms) - 2, n), strict=True):
        of_rows = of_rows + term[count]
    return lambda first, second, row: of_rows[row] + terms[1][second] + terms[0][first]


@lru_cache(maxsize=16)
def _rarer_counts(kinds: int, n: int) -> Counts:
    """All counts of so many kinds among `n` reports at most, of shape (kinds, rows)."""
    found, room = np.zeros((0, 1), dtype=np.int64), np.array([n])
    for _ in range(kinds):
        owner, taken = _choices(room)
        found, room = np.vstack([found[:, owner], taken]), room[owner] - taken
    return found


def _choices(room: Counts) -> tuple[Counts, Counts]:
    """Every count from zero to each room: whose room it is, and the count."""
    choices = room + 1
    owner = np.repeat(np.arange(len(room)), choices)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(choices) - choices, choices)


@lru_cache(maxsize=16)
def _log_factorials(n: int) -> Array:
    found: Array = special.gammaln(np.arange(n + 1.0) + 1.0)
    return found


def _ranked_parts(pair: ShufflePair, n: int, absent: float, steps: Array) -> Array:
    """The same at many steps: configurations that do not count are not looked at."""
    ends, difference, second, probability = _ranked(pair, n, absent)
    found = np.zeros(len(steps))
    for i, count in enumerate(np.searchsorted(ends, -steps, side="left").tolist()):
        sums = difference[:count] - steps[i] * second[:count]
        found[i] = np.sum(np.maximum(sums, 0.0) * probability[:count])
    return found


@lru_cache(maxsize=16)
def _ranked(pair: ShufflePair, n: int, absent: float) -> tuple[Array, Array, Array, Array]:
    """Configurations in the order of the step up to which they count, largest first.

    The steps, negated so that they ascend; differences; second densities, to which `absent` is
    added; probabilities.
    """
    listed = listed_configurations(pair, n)
    assert listed is not None
    second = listed.second + absent
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(listed.difference > 0.0, listed.difference / second, 0.0)
    order = np.argsort(-steps, kind="stable")[: np.count_nonzero(steps > 0.0)]
    return -steps[order], listed.difference[order], second[order], listed.probability[order]


@lru_cache(maxsize=16)
def listed_configurations(pair: ShufflePair, n: int) -> Law | None:
    """All that a batch of `n` reports can look like; None where that is too much to list.

    Rounding of a probability is at most 2e-11 of itself. Two kinds of reports: `binomial_log_pmf`.
    More kinds are listed up to 835 reports, where log n! is below 5000, and an exponent adds no
    more than a dozen terms that are no larger, each off by a few 1e-16 of that. Sums of `n` ratios
    lose n 1e-16 of a term, 4e-11. All of it is well within `hockey_stick.ROUNDING`.
    """
    law = law_of_one(pair)
    rare = float(law.probability[1:].sum())  # 1 - probability[0] would lose digits
    kinds = len(law.probability) - 1
    if not listable(pair, n):
        return None
    if kinds == 1:
        rarer = np.arange(n + 1)
        return Law(
            (n - rarer) * law.difference[0] + rarer * law.difference[1],
            (n - rarer) * law.first[0] + rarer * law.first[1],
            (n - rarer) * law.second[0] + rarer * law.second[1],
            np.exp(binomial_log_pmf(rarer, n, rare)),
        )
    counts = np.arange(n + 1.0)
    log_factorial = _log_factorials(n)
    sums = np.zeros((3, 1))
    of_kind = np.stack([law.difference, law.first, law.second])
    log_weight = np.full(1, log_factorial[n])
    room = np.array([n])
    for kind in range(1, kinds + 1):
        owner, taken = _choices(room)
        term = counts * math.log(law.probability[kind]) - log_factorial
        log_weight = log_weight[owner] + term[taken]
        sums = sums[:, owner] + of_kind[:, kind, None] * counts[taken]
        room = room[owner] - taken
    term = (counts * math.log1p(-rare) if kinds else 0.0) - log_factorial
    difference, first, second = sums + of_kind[:, 0, None] * room
    return Law(difference, first, second, np.exp(log_weight + term[room]))
