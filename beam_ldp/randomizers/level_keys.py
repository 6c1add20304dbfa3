"""Keys of levels: who may read the same public reports at which epsilon.

Whoever randomizes (a device for its own report, or an edge that people trust with their values) has
one secret. From it and the identity of the release a one-way chain of keys follows, one for each
level but the public one: k_1 for the largest, k_(j+1) a hash of k_j. The key of level j gives those
of all smaller levels and none of a larger one.

The shift of one step of one report is a pseudo-random function of a key and of the **id of the
report's own envelope**: 16 bytes which are random, or a pseudo-random function of the secret, the
person and the value, and are sent anyway. So nobody stores a key for each report, and whoever has a
level's key reads the envelopes that everybody has. Ids survive the shuffle in this mode, and only
in it: whoever saw which envelope somebody sent finds it again among the published ones, and is held
off by the local epsilon of what they can read, not by the crowd.

That is computational: the promise of each level holds against readers who cannot break AES and
SHA-256. With shifts that are drawn and stored instead it is information-theoretic.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse
from beam_ldp.randomizers.identity import ReleaseIdentity, canonical_text
from beam_ldp.randomizers.randomness import check_key, derive_key, drawn_under, encrypt_blocks

KEY_BYTES = 32
KEY_FILE_VERSION = 2
_SEAL = b"seal of a level key"


def level_chain(
    secret: bytes, identity: ReleaseIdentity, mechanism: RefinableResponse
) -> tuple[bytes, ...]:
    """The keys of all levels but the public one, from the largest level's on.

    Args:
        secret: at least 32 bytes.
        identity: of the release; in no other one is a key of it used.
        mechanism: of the public reports.

    Raises:
        ValueError: if the secret is too short, or not the one that the identity commits to.
    """
    check_key(secret)
    if not identity.key:
        raise ValueError("identity must be committed to the secret of its levels")
    first = derive_key(secret, b"levels", drawn_under(identity.committed(secret)))
    return tuple(_chained(first, len(mechanism.all_levels) - 1))


def _chained(key: bytes, count: int) -> Sequence[bytes]:
    found = []
    for _ in range(count):
        found.append(key)
        key = derive_key(key, b"next level")
    return found


def hidden(
    mechanism: RefinableResponse, chain: Sequence[bytes], reports: np.ndarray, ids: np.ndarray
) -> np.ndarray:
    """The public report of each report of the largest level.

    Args:
        mechanism: of the public reports.
        chain: `level_chain`.
        reports: of `mechanism.at_level` of the largest level.
        ids: uint8 `(n, 16)`: of the envelope that each will travel in, no two alike in a release.

    Raises:
        ValueError: for an id of zeros, which says that an envelope has none.
    """
    if not np.asarray(ids).any(axis=1).all():
        raise ValueError("ids must not be zero: every report needs an envelope id of its own")
    return mechanism.shifted(reports, _shifts(mechanism, 0, chain, ids))


def refined(
    mechanism: RefinableResponse, key: LevelKey, reports: np.ndarray, ids: np.ndarray
) -> np.ndarray:
    """What a reader of a level makes of public reports: those of `mechanism.at_level`.

    Args:
        mechanism: of the public reports.
        key: of the level.
        reports: public.
        ids: uint8 `(n, 16)`: of the envelopes that they came in.
    """
    step = mechanism.number_of(key.level)
    chain = _chained(key.secret, len(mechanism.all_levels) - 1 - step)
    return mechanism.shifted(reports, -_shifts(mechanism, step, chain, ids))


def _shifts(
    mechanism: RefinableResponse, first: int, chain: Sequence[bytes], ids: np.ndarray
) -> np.ndarray:
    """The sum of what the steps from `first` on add."""
    blocks = np.ascontiguousarray(ids).view("<u8").reshape(-1, 2).astype(np.uint64)
    total = np.zeros(len(blocks), dtype=np.int64)
    for number, key in enumerate(chain):

        def redraw(rows: np.ndarray, attempt: int, key: bytes = key) -> np.ndarray:
            return _words(key, b"again %d" % attempt, blocks[rows])[:, 1]

        words = _words(key, b"shifts", blocks)
        total += mechanism.shifts(first + number, words, redraw)
    return total


def _words(key: bytes, purpose: bytes, blocks: np.ndarray) -> np.ndarray:
    return encrypt_blocks(Cipher(algorithms.AES(derive_key(key, purpose)), modes.ECB()), blocks)


# The key of a reader, as a file -----------------------------------------------------------
#
# The file says which level of which release the key reads, sealed under the key itself (HMAC):
# nobody without the key can make it pass for that of another level or release.


@dataclass(frozen=True)
class LevelKey:
    """What a reader of a level holds. Secret: whoever has it reads as that reader does.

    Args:
        level: the epsilon of what it reads.
        release_id: name of the release, for messages.
        release: digest of the release's identity, hexadecimal.
        secret: the key.
    """

    level: float
    release_id: str
    release: str
    secret: bytes = field(repr=False, compare=False)

    @classmethod
    def derived(
        cls,
        secret: bytes,
        identity: ReleaseIdentity,
        mechanism: RefinableResponse,
        level: float,
    ) -> LevelKey:
        """The key of a level, from the secret of all levels.

        Raises:
            ValueError: for a level that is none or is public, or a secret that is not the one of
                this release.
        """
        number = mechanism.number_of(level)
        chain = level_chain(secret, identity, mechanism)
        if number == len(chain):
            raise ValueError(f"level must have a key: {level:g} is what everybody reads")
        return cls(level, identity.release_id, identity.digest.hex(), chain[number])

    def to_bytes(self) -> bytes:
        """The content of a key file."""
        told = {
            "level_key_version": KEY_FILE_VERSION,
            "release_id": self.release_id,
            "release": self.release,
            "level_epsilon": self.level,
        }
        sealed = {**told, "key": self.secret.hex(), "seal": _seal(self.secret, told)}
        return json.dumps(sealed, indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> LevelKey:
        """Inverse of `to_bytes`. Raises ValueError, which quotes nothing of it."""
        old = False
        try:
            told = json.loads(content)
            old = told.get("level_key_version") == 1
            secret, seal = bytes.fromhex(told.pop("key")), told.pop("seal")
            sound = hmac.compare_digest(seal, _seal(secret, told))
            sound &= told["level_key_version"] == KEY_FILE_VERSION
            level, release_id, release = told["level_epsilon"], told["release_id"], told["release"]
            key = cls(float(level), str(release_id), str(release), secret)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            sound = False
        if old:
            raise ValueError("was derived by an earlier version and has no seal: have it derived "
                             "again")  # fmt: skip
        if not sound or len(key.secret) != KEY_BYTES:
            raise ValueError("is damaged, or no level key: have it derived again")
        return key

    def check_fits(self, identity: ReleaseIdentity, mechanism: RefinableResponse) -> None:
        """A ValueError unless it is of this release, and of one of its levels.

        The identity commits to the secret, so a key from another secret is of another release.
        """
        if self.release != identity.digest.hex():
            raise ValueError(
                f"is of release {self.release_id!r}, and these reports are of "
                f"{identity.release_id!r}"
                + (" with other terms" if self.release_id == identity.release_id else "")
            )
        if self.level not in mechanism.all_levels[:-1]:
            listed = ", ".join(f"{level:g}" for level in mechanism.all_levels[:-1])
            raise ValueError(f"is of level {self.level:g}, and keys are of levels {listed}")


def _seal(secret: bytes, told: dict[str, object]) -> str:
    """Of what a key file says, under its own key."""
    return hmac.digest(derive_key(secret, _SEAL), canonical_text(told).encode(), "sha256").hex()


def fresh_ids(count: int) -> np.ndarray:
    """Ids of envelopes, from the operating system: uint8 `(count, 16)`."""
    return np.frombuffer(os.urandom(16 * count), np.uint8).reshape(count, 16)
