"""Recoverable response: a report, and a key that turns it back into the value.

A mechanism is *recoverable* if a key that does not depend on the value turns its report back into
it: somebody with consent reads single values, everybody else sees reports of a local epsilon. The
price is storage: no such key has less than `least_key_entropy` bits, about as many as the value.

Source: thesis, section 7.5 (Theorems 7.5.1 and 7.6.1), with its faults corrected: docs/errata.md.
Entropies are in bits, epsilons in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, Rng
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.frequency.designs import DESIGN_FORMS, Design, OfDesign, designs
from beam_ldp.randomizers.frequency.symbol_oracle import CyclicOracle
from beam_ldp.randomizers.identity import canonical_ids
from beam_ldp.randomizers.randomness import UserRandomness, word_source
from beam_ldp.randomizers.words import multiply_high, short_kernel, smallest_uint

# What a key must hold -------------------------------------------------------------------

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


# The mechanism --------------------------------------------------------------------------

_STEP = 1 << 16  # keys drawn at a time
_MOST_NOISE = 1.5  # times the least, that a key of less entropy may cost


@dataclass(frozen=True)
class RecoverableResponse(OfDesign, CyclicOracle):
    """A report y = x + u modulo v of a value x, and its key u: y - u is the value again.

    The report protects the value against everybody who sees it and not the key, as that of any
    other oracle does; whoever holds the key reads it exactly. The key's law favours a difference
    set, is the same for every value, and is drawn without looking at it. **A key serves one value
    only**: two reports under one key tell the difference of their values, and no epsilon holds.

    Reports are `(n,)` unsigned integers below v >= k, the statistic is their histogram. One fast
    Fourier transform decodes them. Designs: `single` (k-ary response), `paley:P` (squares modulo a
    prime P) and `singer:Q,T` (a hyperplane over Q elements; Q = 2 is Hadamard response without its
    row of ones, with which no key could recover it).

    Source: thesis, section 7.5, for the additive form; the difference sets are our own choice, for
    any other place of the likely keys costs accuracy, or all of it.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        design: which difference set; None for the one with the least error. `with_least_key` takes
            the one whose key has the least entropy.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = RecoverableResponse(domain_size=100, local_epsilon=3.0)
    >>> oracle.design, round(oracle.key_entropy_bits, 3)
    ('singer:19,3', 7.295)
    >>> values = np.array([0, 7, 99])
    >>> keys = oracle.draw_keys(3)
    >>> oracle.recover(oracle.encode(values, keys), keys).tolist()
    [0, 7, 99]
    """

    also_known_as: ClassVar[str] = "LDP-Rec"

    design: str | None = None

    def _choose_parameters(self) -> None:
        chosen = self.design
        if chosen is None:
            chosen = min(designs(self.domain_size, self.local_epsilon), key=_by_noise)[1].text
        elif not isinstance(chosen, str):
            raise ValueError(f"design must be {DESIGN_FORMS}, got {chosen!r}")
        object.__setattr__(self, "design", chosen)
        self._check_residues()

    @classmethod
    def with_least_key(cls, domain_size: int, local_epsilon: float) -> RecoverableResponse:
        """The one whose keys take the least storage, at up to 1.5 times the least variance.

        >>> oracle = RecoverableResponse.with_least_key(100, 3.0)
        >>> oracle.design, round(oracle.key_entropy_bits, 3)
        ('singer:11,3', 5.618)
        """
        plain = cls(domain_size, local_epsilon)
        found = list(designs(plain.domain_size, plain.local_epsilon))
        least = min(found, key=_by_noise)[0]

        def bits(one: tuple[float, Design]) -> float:
            return key_entropy(one[1].modulus, one[1].size, plain.local_epsilon)

        good = [one for one in found if one[0] <= _MOST_NOISE * least]
        return cls(domain_size, local_epsilon, min(good, key=bits)[1].text)

    # Keys ---------------------------------------------------------------------------------

    def draw_keys(self, count: int, rng: Rng = None) -> np.ndarray:
        """A key for each of `count` values, none of which is looked at: unsigned, `(count,)`.

        Args:
            count: how many.
            rng: None draws fresh ones, to be stored: then nothing but the keys recovers a value.
                `UserRandomness` makes them a function of a secret key, the person and the release:
                the secret alone recovers all, and the promise holds against readers who cannot
                break AES. A NumPy generator simulates.

        Raises:
            ValueError: if one person is asked for twice: two values under one key.
        """
        if isinstance(rng, UserRandomness):
            _check_distinct(rng)
        words = word_source(rng, self.config_digest(), np.zeros(count, dtype=np.int64))
        keys = np.empty(count, dtype=smallest_uint(self.num_symbols))
        for start in range(0, count, _STEP):
            stop = min(start + _STEP, count)
            keys[start:stop] = self._keys_of(words.words(start, stop, 1)[:, 0])
        return keys

    def encode(self, values: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The report of each value under its key."""
        values = self._check_values(np.asarray(values)).astype(np.int64)
        reports = (values + self._check_keys(keys, len(values))) % self.num_symbols
        return reports.astype(self.report_dtype)

    def recover(self, reports: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The value of each report under its key: int64 `(n,)`.

        Raises:
            ValueError: if a report was not made under its key.
        """
        reports = self._check_reports(np.asarray(reports)).astype(np.int64)
        values = (reports - self._check_keys(keys, len(reports))) % self.num_symbols
        if values.size and values.max() >= self.domain_size:
            raise ValueError("keys must be those that the reports were made under")
        return values

    def key_law(self) -> np.ndarray:
        """The probability of each key: `(num_symbols,)`."""
        law = np.full(self.num_symbols, self._law.other_probability)
        law[self.difference_set.elements] = self._law.favoured_probability
        return law

    @property
    def key_entropy_bits(self) -> float:
        """Bits of a key: what its storage takes after entropy coding."""
        ratio = self._law.favoured_probability / self._law.other_probability
        return key_entropy(self.num_symbols, self.num_favoured, math.log(ratio))

    def randomize(self, values: np.ndarray, rng: Rng = None) -> np.ndarray:
        values = self._check_values(np.asarray(values))
        return self.encode(values, self.draw_keys(len(values), rng))

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        reports[:] = self.encode(values, self._keys_of(words[:, 0]))

    def _keys_of(self, words: np.ndarray) -> np.ndarray:
        keys = np.empty(len(words), dtype=smallest_uint(self.num_symbols))
        _key_of_each(
            words,
            self.difference_set.elements.view(np.uint64),
            np.uint64(self.num_symbols),
            np.uint64(self._law.threshold),
            np.uint64(self._law.share),
            keys,
        )
        return keys

    def _check_keys(self, keys: np.ndarray, count: int) -> np.ndarray:
        keys = np.asarray(keys)
        if keys.shape != (count,) or keys.dtype.kind not in "iu":
            raise ValueError(f"keys must be {count} integers, one for each value or report")
        if keys.size and (keys.min() < 0 or keys.max() >= self.num_symbols):
            raise ValueError(f"keys must lie in [0, {self.num_symbols})")
        return keys.astype(np.int64)


def _check_distinct(rng: UserRandomness) -> None:
    ids = canonical_ids(rng.user_ids)
    distinct = len(np.unique(ids.integers)) if ids.texts is None else len(set(ids))
    if distinct < len(ids):
        raise ValueError(
            "user_ids must be distinct: two values under one key tell their difference"
        )


@short_kernel
def _key_of_each(words, elements, num_symbols, threshold, share, keys):  # type: ignore[no-untyped-def]
    for i in range(words.size):
        low = words[i] * num_symbols
        key = multiply_high(words[i], num_symbols)
        if low < threshold:
            key = elements[low // share]
        keys[i] = key


def _by_noise(one: tuple[float, Design]) -> float:
    return one[0]
