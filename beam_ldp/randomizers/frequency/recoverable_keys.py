"""Keys of recoverable responses: one for every person and time, and few bits to store them in.

A key that is drawn afresh and stored protects against readers of unlimited power; a key that is a
function of a secret needs no storage but the secret, and protects against those who cannot break
AES. Either serves one value: who sees two reports under one key knows the difference of the values.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse
from beam_ldp.randomizers.identity import AnyIds, ReleaseIdentity, canonical_ids
from beam_ldp.randomizers.randomness import UserRandomness

# A fresh key for every (person, time) ---------------------------------------------------------


class KeyReuseError(ValueError):
    """A key was asked for a second time, for another value it may be."""


class KeyStream:
    """Keys for values of one person after another: a fresh one for every person and time.

    T releases of a person under such keys cost the local epsilon for each value (event level) and
    T times it for all of them (user level); a key that is used twice costs everything, whatever the
    epsilon. So a stream gives each key once, and refuses it the second time. It remembers what it
    gave as long as it lives: after a restart take another secret, or another release.

    Source: thesis, section 7.6: that no key serves twice is Theorem 7.6.1.

    Args:
        mechanism: whose keys.
        secret: at least 32 bytes of which keys are a function, with the person, the time and the
            release; None draws each afresh, for the caller to store.
        identity: of the release; needed with a secret, and meaningless without.

    Raises:
        ValueError: for arguments that contradict each other, or a secret that is too short.

    >>> oracle = RecoverableResponse(8, 1.0)
    >>> stream = KeyStream(oracle)
    >>> monday = stream.keys(["ann", "bob"], time=0)
    >>> try:
    ...     stream.keys(["bob"], time=0)
    ... except KeyReuseError as refused:
    ...     print(refused)
    keys of time 0 were given before to 1 of these people
    """

    def __init__(
        self,
        mechanism: RecoverableResponse,
        secret: bytes | None = None,
        identity: ReleaseIdentity | None = None,
    ) -> None:
        if (secret is None) != (identity is None):
            raise ValueError("secret and identity belong together")
        self._mechanism, self._secret, self._identity = mechanism, secret, identity
        self._given: dict[int, set[int | bytes]] = defaultdict(set)
        if identity is not None:
            self._words([], 0)  # refuses a secret that is too short, or of another release

    def keys(self, user_ids: AnyIds, time: int) -> np.ndarray:
        """One key for each of these people at this time, unsigned `(n,)`.

        Raises:
            KeyReuseError: if somebody was given theirs before, or is named twice; then nobody is
                given any.
        """
        time = check_integer("time", time, 0)
        ids = list(canonical_ids(user_ids))
        asked = set(ids)
        again = len(ids) - len(asked - self._given[time])
        if again:
            raise KeyReuseError(f"keys of time {time} were given before to {again} of these people")
        self._given[time] |= asked
        return self._mechanism.draw_keys(len(ids), self._words(ids, time))

    def _words(self, ids: list[int | bytes], time: int) -> UserRandomness | None:
        if self._secret is None or self._identity is None:
            return None
        return UserRandomness(self._secret, ids, self._identity.of_round(time))


# Keys in bits ---------------------------------------------------------------------------------


_BLOCK = 4096  # keys of one number
_LENGTH_BYTES = 2
_LIGHT = 1 << 12  # weight of an unlikely key: the first key of a block costs about its bits more


class StoredKeys:
    """Keys as bytes, at their entropy: what storing them costs a person.

    An asymmetric numeral system (Duda 2009) over whole numbers: `_BLOCK` keys are one number, of
    which every key multiplies the size by the inverse of its probability. Nothing is rounded but
    the law, once, and the last byte of a block: 4096 keys take 40 bits more than their entropy.

    Args:
        mechanism: whose keys.

    >>> oracle = RecoverableResponse.with_least_key(1000, 5.0)
    >>> keys = oracle.draw_keys(5000)
    >>> stored = StoredKeys(oracle)
    >>> packed = stored.pack(keys)
    >>> np.array_equal(stored.unpack(packed, 5000), keys), 7.1 < 8 * len(packed) / 5000 < 7.5
    (True, True)
    """

    def __init__(self, mechanism: RecoverableResponse) -> None:
        law = mechanism.key_law()
        likely = mechanism.difference_set.elements
        self._num_keys, self._num_heavy = mechanism.num_symbols, len(likely)
        self._heavy = round(float(law.max() / law.min()) * _LIGHT)
        self._total = len(likely) * self._heavy + (self._num_keys - len(likely)) * _LIGHT
        self._likely = likely

    @cached_property
    def _key_at(self) -> list[int]:
        """The likely keys, then the others."""
        others = np.ones(self._num_keys, dtype=bool)
        others[self._likely] = False
        return [*self._likely.tolist(), *np.flatnonzero(others).tolist()]

    @cached_property
    def _place(self) -> list[int]:
        """Inverse of `_key_at`."""
        places = np.empty(self._num_keys, dtype=np.int64)
        places[self._key_at] = np.arange(self._num_keys)
        return places.tolist()

    def pack(self, keys: np.ndarray) -> bytes:
        """The keys, in their order."""
        keys = np.asarray(keys)
        if keys.ndim != 1 or keys.dtype.kind not in "iu":
            raise ValueError("keys must be a one-dimensional integer array")
        if keys.size and (keys.min() < 0 or keys.max() >= self._num_keys):
            raise ValueError(f"keys must lie in [0, {self._num_keys})")
        found = []
        for start in range(0, len(keys), _BLOCK):
            number = self._number_of(keys[start : start + _BLOCK].tolist())
            found.append(number.to_bytes(-(-number.bit_length() // 8), "little"))
        return b"".join(len(block).to_bytes(_LENGTH_BYTES, "little") + block for block in found)

    def unpack(self, data: bytes, count: int) -> np.ndarray:
        """Inverse of `pack`: int64 `(count,)`.

        Raises:
            ValueError: if the bytes are not those of so many keys.
        """
        keys: list[int] = []
        while len(keys) < count:
            length = int.from_bytes(data[:_LENGTH_BYTES], "little")
            block = data[_LENGTH_BYTES : _LENGTH_BYTES + length]
            data = data[_LENGTH_BYTES + length :]
            here = min(_BLOCK, count - len(keys))
            if len(block) < length or not block or block[-1] == 0:
                raise ValueError(f"data must be that of {count} stored keys")
            keys += self._keys_in(int.from_bytes(block, "little"), here, count)
        if data:
            raise ValueError(f"data must be that of {count} stored keys")
        return np.array(keys, dtype=np.int64)

    def _number_of(self, keys: list[int]) -> int:
        number, total = 1, self._total
        for key in reversed(keys):
            weight, below = self._share(self._place[key])
            whole, rest = divmod(number, weight)
            number = whole * total + below + rest
        return number

    def _keys_in(self, number: int, here: int, count: int) -> list[int]:
        found, heavy = [], self._num_heavy * self._heavy
        for _ in range(here):
            whole, rest = divmod(number, self._total)
            place = (
                rest // self._heavy if rest < heavy
                else self._num_heavy + (rest - heavy) // _LIGHT
            )  # fmt: skip
            weight, below = self._share(place)
            number = whole * weight + rest - below
            found.append(self._key_at[place])
        if number != 1:
            raise ValueError(f"data must be that of {count} stored keys")
        return found

    def _share(self, place: int) -> tuple[int, int]:
        """Weight of the key at a place, and of all before it."""
        if place < self._num_heavy:
            return self._heavy, place * self._heavy
        before = (place - self._num_heavy) * _LIGHT
        return _LIGHT, self._num_heavy * self._heavy + before
