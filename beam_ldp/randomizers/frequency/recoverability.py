"""What it takes that a report and a key tell the value, and the report alone keeps its promise.

A mechanism is *recoverable* if a key that does not depend on the value turns its report back into
it: somebody with consent reads single values, everybody else sees reports of a local epsilon. The
price is storage: no such key has less than `least_key_entropy` bits, about as many as the value.

Source: thesis, section 7.5 (Theorems 7.5.1 and 7.6.1), with its faults corrected: docs/errata.md.
Entropies are in bits, epsilons in nats.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from beam_ldp.randomizers.checks import check_integer, check_positive

_BITS = math.log2(math.e)
_SMALL = 1e-3  # below, the stationary point is taken from its series
_LARGEST = 700.0  # of a finite exponential


class LeastKey(NamedTuple):
    """The least entropy of a key, and how many of its values are the likelier ones."""

    bits: float
    num_heavy: int


def key_entropy(num_keys: int, num_heavy: int, local_epsilon: float) -> float:
    """Bits of a key of which `num_heavy` values are e**local_epsilon times as likely as the others.

    >>> round(key_entropy(103, 51, 1.0), 3), round(key_entropy(121, 40, 1.0), 3)
    (6.525, 6.741)
    """
    num_keys = check_integer("num_keys", num_keys, 1)
    num_heavy = check_integer("num_heavy", num_heavy, 0, num_keys)
    others = (num_keys - num_heavy) * math.exp(-local_epsilon)
    weight = num_heavy + others
    if not weight:
        raise ValueError("num_heavy must be positive where local_epsilon is beyond all resolution")
    return math.log2(weight) + local_epsilon * _BITS * others / weight


def least_key_entropy(domain_size: int, local_epsilon: float) -> LeastKey:
    """The least entropy of a key that recovers values of a local mechanism: H_min(k, eps).

    For some key of this entropy there is such a mechanism; a given key of more may still be
    unusable (`key_ratio`). One heavy value is best from a local epsilon of log2(k) on, not from
    ln(k).

    Args:
        domain_size: number of values k, at least 2.
        local_epsilon: at least 0, where the key has log2 k bits.

    >>> least_key_entropy(100, 1.0)  # doctest: +ELLIPSIS
    LeastKey(bits=6.4659..., num_heavy=34)
    """
    domain_size = check_integer("domain_size", domain_size, 2)
    if local_epsilon < 0:
        raise ValueError(f"local_epsilon must be >= 0, got {local_epsilon!r}")
    place = math.floor(_stationary(domain_size, min(local_epsilon, _LARGEST)))
    tried = {min(max(place + step, 1), domain_size - 1) for step in (0, 1)}
    return min(LeastKey(key_entropy(domain_size, s, local_epsilon), s) for s in sorted(tried))


def _stationary(domain_size: int, epsilon: float) -> float:
    """Where the entropy of a key is least, if the number of heavy values need not be whole."""
    if epsilon < _SMALL:  # the numerator's leading terms cancel
        square = 0.5 - epsilon / 6 + epsilon**2 / 24
        shrunk = -math.expm1(-epsilon) / epsilon if epsilon else 1.0
        return domain_size * square * math.exp(-epsilon) / shrunk**2
    fall = math.expm1(-epsilon)
    return domain_size * (epsilon + fall) * math.exp(-epsilon) / fall**2


def least_key_entropy_bound(domain_size: int, local_epsilon: float) -> float:
    """A closed form just below `least_key_entropy`: its stationary point need not be whole.

    >>> round(least_key_entropy_bound(100, 1.0), 3)
    6.466
    """
    if local_epsilon < _SMALL:
        return math.log2(domain_size) - local_epsilon**2 / 8 * _BITS
    w = local_epsilon / -math.expm1(-local_epsilon)
    return math.log2(domain_size) - (w - 1 - math.log(w)) * _BITS


def storage_gain(domain_size: int, local_epsilon: float) -> float:
    """The share of log2 k bits a person that is saved by keeping the best key, not the value.

    >>> [round(100 * storage_gain(k, 5.0), 1) for k in (2, 4, 10)]
    [94.2, 91.4, 85.0]
    """
    bits = math.log2(domain_size)
    return (bits - least_key_entropy(domain_size, local_epsilon).bits) / bits


def most_senders(channel: np.ndarray) -> float:
    """The largest sum of one report's chances over all values; at most 1 where keys can recover.

    For one key different values make different reports, so the keys that lead to a report are
    others for every value, and their chances add up to at most one. Hadamard response fails this
    by its row of ones; without that row, it is a difference set's.

    Args:
        channel: P(report | value), rows are reports, as `channel()` gives it.
    """
    return float(np.asarray(channel).sum(axis=1).max())


def key_ratio(key_law: np.ndarray) -> float:
    """What a mechanism with as many keys as values and reports reveals at least, in nats.

    Every value reaches every report by one key, so this is the log-ratio of the likeliest key to
    the least likely one: a key may have entropy enough and still be unusable.
    """
    law = np.asarray(key_law, dtype=float)
    if law.ndim != 1 or not (law >= 0).all() or not math.isclose(law.sum(), 1, rel_tol=1e-9):
        raise ValueError("key_law must be a vector of probabilities that sum to one")
    return math.inf if law.min() == 0 else math.log(law.max() / law.min())


def recovers(table: np.ndarray) -> bool:
    """Whether reports and keys tell values, and every value reaches every report.

    Args:
        table: the report of each value (rows) under each key (columns): integers. With as many keys
            as values and reports, this is the condition of a Latin square.
    """
    table = np.asarray(table)
    if table.ndim != 2 or table.dtype.kind not in "iu":
        raise ValueError("table must hold the report of each value (rows) under each key (columns)")
    injective = all(len(np.unique(column)) == len(column) for column in table.T)
    reports = np.unique(table)
    return injective and all(np.array_equal(np.unique(row), reports) for row in table)


def most_leaked(num_keys: int, num_heavy: int, local_epsilon: float) -> float:
    """Bits that a report of a difference-set mechanism tells of a value at most, on average.

    It is log2 v less the entropy of the key: the more random the key, the less is said.
    """
    check_positive("local_epsilon", local_epsilon)
    return math.log2(num_keys) - key_entropy(num_keys, num_heavy, local_epsilon)
