"""Recoverable response: a report, and a key that turns it back into the value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, Rng
from beam_ldp.randomizers.frequency.designs import DESIGN_FORMS, Design, OfDesign, designs
from beam_ldp.randomizers.frequency.recoverability import key_entropy
from beam_ldp.randomizers.frequency.symbol_oracle import CyclicOracle
from beam_ldp.randomizers.identity import canonical_ids
from beam_ldp.randomizers.randomness import UserRandomness, word_source
from beam_ldp.randomizers.words import multiply_high, short_kernel, smallest_uint

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
