"""Names: values, lists, people and releases, in the one form in which each is compared."""
import hashlib
import hmac
import json
import re
from typing import Any

def encode(values: list[str], domain: list[str]) -> list[int]:
    """Places in the public list; the place behind it, `other`, for everything else."""
    return [domain.index(value) if value in domain else len(domain) for value in values]

def encode_number(number: float, edges: list[float]) -> int:
    """The bin of a number: each holds its lower edge, the last its upper one too; else `other`."""
    inside = [i for i, (a, b) in enumerate(zip(edges, edges[1:])) if a <= number < b]
    return [*inside, len(edges) - 2 if number == edges[-1] else len(edges) - 1][0]

def prefixed(*parts: bytes) -> bytes:
    """Each part behind its length, so that no two lists of parts are alike."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

def digest_of(*parts: str) -> str:
    """Of a public list: all names, `other` last. Of bins: "bins", the edges as shortest decimals,
    `other`. Of ranges: "ranges", all lower ends, all upper ends."""
    return hashlib.sha256(prefixed(*(part.encode() for part in parts))).hexdigest()[:32]

def mechanism_text(config: dict[str, Any]) -> str:
    """What the SHA-256 of the mechanism is of: 16 bytes of it stand in the identity."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))

def identity_text(identity: dict[str, Any]) -> str:
    """Canonical JSON (RFC 8785): keys sorted, nothing between."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

def identity_digest(identity: dict[str, Any]) -> bytes:
    text = "beam-ldp release identity\n" + identity_text(identity)
    return hashlib.sha256(text.encode()).digest()

def key_commitment(key: bytes) -> str:
    """What an identity says of the secret key of memoized noise."""
    return hmac.digest(key, b"beam-ldp key commitment", "sha256")[:16].hex()

def person(user_id: int | float | str | bytes) -> int | bytes:
    """7, 7.0, "7" and "7.0" are one person; "07", "7 " and 2**63 are others, by their text.
    No ids are floats, and text that a float is written as, that may have been several integers."""
    whole = not isinstance(user_id, float) or user_id % 1 == 0 and abs(user_id) < 2**53
    if isinstance(user_id, bool) or not whole:
        raise ValueError("no id")
    if isinstance(user_id, (int, float)):
        return int(user_id) if -(2**63) <= user_id < 2**63 else b"%d" % user_id
    text = user_id.encode() if isinstance(user_id, str) else user_id
    spelled = re.fullmatch(rb"(-?(?:0|[1-9][0-9]*))(\.0+)?", text)
    of_a_float = re.fullmatch(rb"-?[0-9](?:\.[0-9]+)?[eE]\+[0-9]+", text)
    if not text or of_a_float or spelled and spelled[2] and abs(int(spelled[1])) >= 2**53:
        raise ValueError("no id")
    return person(int(spelled[1])) if spelled else text
