"""Which levels find the rarest words: how many, how long, asked of whom, with which oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.protocols.heavy_hitters import SHARES, Assignment, HeavyHitters, Level
from beam_ldp.protocols.string_code import StringCode
from beam_ldp.randomizers import special
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.frequency import KRandomizedResponse, ProjectiveGeometryResponse
from beam_ldp.randomizers.frequency.projective_geometry_response import best_prime

MOST_SYMBOLS = 1 << 19  # of an oracle's reports: what devices build and collectors transform
_FALSE_PREFIXES = 100.0  # that may survive between: more find rarer words, and cost capacity
_ROUNDS = 4  # in which the number of candidates settles


def plan_heavy_hitters(
    num_users: int,
    local_epsilon: float,
    *,
    max_bytes: int = 32,
    num_bits: int = 64,
    code: StringCode | None = None,
    beta: float = 0.05,
    false_words: float = 10.0,
    most_symbols: int = MOST_SYMBOLS,
    assignment: Assignment = "secret",
) -> HeavyHitters:
    """The levels with the least threshold f* among all that are tried.

    Args:
        num_users: people expected.
        local_epsilon: of one person's report.
        max_bytes: of a word; longer ones answer `(none)`.
        num_bits: of a word's code, at most; longer ones answer `(none)`. 64 hold 99.6 % of the
            words of an English dictionary; addresses take 128 and more.
        code: in place of both.
        beta: probability that a word of frequency f* is missed, over all levels.
        false_words: found words that nobody holds, on average (K0).
        most_symbols: different reports of an oracle, at most: memory and time of devices and of
            the collector grow with them, and f* falls.
        assignment: whether the level of a person is secret (it travels inside the report) or may
            be seen; it changes the price alone.

    Raises:
        ValueError: if an argument is out of range, or nothing could be found.

    >>> plan = plan_heavy_hitters(1_000_000, 4.0)
    >>> len(plan.levels), f"{plan.threshold:.2%}", plan.bits_per_report
    (7, '0.43%', 22)
    """
    check_reports(num_users)
    check_positive("local_epsilon", local_epsilon)
    check_fraction("beta", beta)
    check_positive("false_words", false_words)
    check_integer("most_symbols", most_symbols, 8)
    code = code or StringCode(num_bits, max_bytes)
    survive = max(float(false_words), _FALSE_PREFIXES)
    tried = []
    for new_bits in _layouts(code.num_bits, most_symbols):
        between = [survive] * (len(new_bits) - 1)
        layout = Layout(new_bits, (*between, float(false_words), float(false_words)))
        tried.append((layout.bound(num_users, local_epsilon, beta), layout))
    best, least = None, 1.0
    for bound, layout in sorted(tried):
        if bound < least and layout.most_reports(least) <= most_symbols:
            found = _settled(layout, num_users, local_epsilon, beta, most_symbols)
            if found is not None and found[0] < least:
                least, best = found
    if best is None:
        raise ValueError(
            "num_users must be larger: not even a word that everybody holds would be found"
        )
    return HeavyHitters(
        best, code, num_users, float(local_epsilon), beta, float(false_words), assignment
    )


class Layout(NamedTuple):
    """Levels that are tried.

    Attributes:
        new_bits: of each level that extends.
        false_prefixes: expected false survivors of each level, the last one included.
    """

    new_bits: tuple[int, ...]
    false_prefixes: tuple[float, ...]

    def bound(self, num_users: int, local_epsilon: float, beta: float) -> float:
        """What f* is not below, whatever the oracles."""
        least = 1.0 / math.sinh(local_epsilon / 2) ** 2  # variance of one report
        levels = len(self.new_bits)
        children = [2.0**new for new in self.new_bits]
        return frequency_found(
            num_users, [least] * levels, children, self.false_prefixes[:-1], beta
        )[0]

    def candidates(self, threshold: float) -> list[int]:
        """Prefixes that each level is asked about: as many as may be frequent, and false ones."""
        return [1, *(_rounded(1 / threshold + false) for false in self.false_prefixes[:-1])]

    def most_reports(self, threshold: float) -> int:
        """Values of the largest oracle."""
        sizes = zip(self.candidates(threshold), self.new_bits)
        return max((candidates << new) + 1 for candidates, new in sizes)


def _rounded(count: float) -> int:
    """At most an eighth more: a plan has few different sizes, and tells little by them."""
    whole = math.ceil(count)
    step = 1 << max(0, whole.bit_length() - 4)
    return -(-whole // step) * step


def _layouts(num_bits: int, most_symbols: int) -> Iterator[tuple[int, ...]]:
    """Every length of the first level and number of the others, the rest cut evenly."""
    longest = min(num_bits, most_symbols.bit_length() - 1)
    for first in range(1, longest + 1):
        left = num_bits - first
        for count in range(-(-left // longest), left + 1):
            cuts = [left * i // max(1, count) for i in range(count + 1)]
            yield (first, *(b - a for a, b in zip(cuts, cuts[1:])))


def _settled(
    layout: Layout, num_users: int, local_epsilon: float, beta: float, most_symbols: int
) -> tuple[float, tuple[Level, ...]] | None:
    """f* and the levels of a layout; None where it finds nothing or is too large."""
    threshold, new_bits = 0.01, (*layout.new_bits, 0)
    for _ in range(_ROUNDS):
        if layout.most_reports(threshold) > most_symbols:
            return None
        candidates = layout.candidates(threshold)
        sizes = [(count << new) + 1 for count, new in zip(candidates, new_bits)]
        oracles = [best_oracle(size, local_epsilon, most_symbols) for size in sizes]
        variances = [rare_variance(oracle) for oracle in oracles]
        threshold, answers = frequency_found(
            num_users, variances, [size - 1 for size in sizes], layout.false_prefixes, beta
        )
        if not threshold < 1:
            return None
    weights = np.floor(np.array(answers) / sum(answers) * SHARES).astype(np.int64)
    weights[-1] += SHARES - weights.sum()
    parts = zip(np.cumsum(new_bits), new_bits, candidates, weights, layout.false_prefixes, oracles)
    levels = tuple(
        Level(int(bits), new, count, int(weight), false, oracle)
        for bits, new, count, weight, false, oracle in parts
    )
    return threshold, levels


def frequency_found(
    num_users: int,
    variances: Sequence[float],
    children: Sequence[float],
    false_prefixes: Sequence[float],
    miss: float,
) -> tuple[float, list[float]]:
    """f* by normal approximation, and how many people each level needs for it.

    f* = max over levels of z(false/children) sqrt(V/n_l) + z(miss/L) sqrt((V + f*(1 - f*))/n_l),
    with the n_l that make all of them equal.

    Args:
        num_users: of all levels.
        variances: V of each level: of one report, at frequency zero.
        children: of each level: prefixes that are tested.
        false_prefixes: of those, how many that nobody holds may survive, on average.
        miss: probability that a word of frequency f* is not found.

    Returns:
        f*, infinite where no frequency is found, and people of each level.

    >>> V = 0.076022
    >>> [f"{frequency_found(10**6, [V] * n, [200 << (256 // n)] * n, [10.0] * n, 0.05)[0]:.2%}"
    ...  for n in (32, 16)]
    ['1.04%', '0.85%']
    """
    odds = np.minimum(0.5, np.divide(false_prefixes, children))
    survive = -special.ndtri(odds)
    detect = -special.ndtri(miss / len(variances))
    noise = np.asarray(variances, dtype=float)

    def needed(frequency: float) -> np.ndarray:
        drawn = np.sqrt(noise + frequency * (1 - frequency))
        found: np.ndarray = ((survive * np.sqrt(noise) + detect * drawn) / frequency) ** 2
        return found

    if needed(1.0).sum() > num_users:
        return math.inf, needed(1.0).tolist()
    found = special.brentq(lambda f: math.log(needed(f).sum() / num_users), 1e-12, 1.0)
    return found, needed(found).tolist()


def rare_variance(oracle: FrequencyOracle) -> float:
    """Variance of one report about a value that nobody holds."""
    p, q = oracle.support_probabilities
    return q * (1 - q) / (p - q) ** 2


@lru_cache(maxsize=4096)
def best_oracle(domain_size: int, local_epsilon: float, most_symbols: int) -> FrequencyOracle:
    """The oracle with the least error about rare values, of those whose support is binomial and
    whose reports are one symbol: k-ary randomized response, or projective geometry response."""
    size = max(2, domain_size)
    direct = KRandomizedResponse(size, local_epsilon)
    prime = best_prime(size, local_epsilon, most_symbols)
    geometry = ProjectiveGeometryResponse(size, local_epsilon, prime)
    if geometry.num_symbols > most_symbols:
        return direct
    return min((direct, geometry), key=rare_variance)
