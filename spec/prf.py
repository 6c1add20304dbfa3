"""Memoized randomness: words that are a function of key, person, value and release alone."""
import hmac
import struct
from hashlib import blake2b
from typing import Any

from spec.names import identity_digest, key_commitment, person, prefixed

def times(a: int, b: int) -> int:
    """In the field of AES, GF(2)[x] / (x**8 + x**4 + x**3 + x + 1)."""
    return (b & 1) * a ^ (times(a << 1 ^ (a >> 7) * 0x11B, b >> 1) if b > 1 else 0)

def substitute(byte: int) -> int:
    """The S-box: the inverse, plus itself turned left by 1 to 4 bits, plus a constant."""
    a = next((b for b in range(256) if times(byte, b) == 1), 0)
    turned = a ^ a << 1 ^ a << 2 ^ a << 3 ^ a << 4
    return (turned ^ turned >> 8) & 0xFF ^ 0x63

SBOX = [substitute(byte) for byte in range(256)]

def aes256(key: bytes, block: bytes) -> bytes:
    """One block of AES with a key of 32 bytes (FIPS 197)."""
    words = [list(key[i : i + 4]) for i in range(0, 32, 4)]
    for i in range(8, 60):
        last = words[-1]
        if i % 4 == 0:
            last = [SBOX[b] for b in (last if i % 8 else last[1:] + last[:1])]
        if i % 8 == 0:
            last[0] ^= 1 << i // 8 - 1
        words.append([a ^ b for a, b in zip(words[-8], last)])
    keys = [sum(words[i : i + 4], []) for i in range(0, 60, 4)]
    state = [a ^ b for a, b in zip(block, keys[0])]
    for turn in range(1, 15):
        state = [SBOX[state[5 * i % 16]] for i in range(16)]  # rows moved
        if turn < 14:  # columns mixed
            down = [state[j : j + 4] * 2 for j in range(0, 16, 4)]
            state = [times(c[i], 2) ^ times(c[i + 1], 3) ^ c[i + 2] ^ c[i + 3]
                     for c in down for i in range(4)]
        state = [a ^ b for a, b in zip(state, keys[turn])]
    return bytes(state)

def derive(key: bytes, *labels: bytes) -> bytes:
    """A key of 32 bytes for one purpose."""
    return hmac.digest(key, prefixed(*labels), "sha256")

def secret(key: bytes, purpose: bytes, identity: dict[str, Any], *more: bytes) -> bytes:
    """Of a release, for a purpose; the release is committed to the key, whatever the group."""
    committed = {**identity, "group": "", "key": key_commitment(key)}
    return derive(key, purpose, identity_digest(committed), *more)

def keyed(secret: bytes, *parts: bytes) -> bytes:
    return blake2b(prefixed(*parts), key=secret, digest_size=16).digest()

def named(user_id: Any) -> bytes:
    found = person(user_id)
    return b"b" + found if isinstance(found, bytes) else b"i" + struct.pack("<q", found)

def tag(secret: bytes, user_id: Any, *value: float) -> bytes:
    """16 bytes of a person who holds a value; several indices or numbers make one value."""
    row = b"".join(struct.pack("<q" if isinstance(x, int) else "<d", x + 0) for x in value)
    if isinstance(person(user_id), int) and len(value) == 1 and isinstance(value[0], int):
        return aes256(derive(secret, b"integer ids"), named(user_id)[1:] + row)
    return keyed(derive(secret, b"byte ids"), named(user_id), row)

def word(secret: bytes, tag: bytes, position: int) -> int:
    """Half of a block: AES of the tag, whose first half is mixed with the block's number."""
    first = int.from_bytes(tag[:8], "little") ^ position // 2
    block = aes256(derive(secret, b"expand"), first.to_bytes(8, "little") + tag[8:])
    return int.from_bytes(block[8 * (position % 2) :][:8], "little")

def of_person(key: bytes, purpose: bytes, identity: dict[str, Any], user_id: Any) -> bytes:
    """16 bytes of a person in a release, whatever the value: for "envelope" the id, for
    "assignment", as the first 8 of them, the word that decides what a person is asked."""
    own = secret(key, purpose, identity)
    return tag(own, user_id, 0) if isinstance(person(user_id), int) else keyed(own, named(user_id))
