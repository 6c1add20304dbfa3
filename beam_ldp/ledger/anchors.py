"""Heads of the ledger that are kept elsewhere: evidence against whoever can write the database.

An anchor says how many rows there were and how they ended. Kept out of the operator's reach (in an
auditor's file, in a tracking server), it shows that the tail was cut or that everything was written
anew. A signature (Ed25519, with a key that only the auditor holds) lets the anchor lie anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from beam_ldp.ledger.rows import Row, canonical


@dataclass(frozen=True)
class Anchor:
    """The head of a ledger at a time.

    Attributes:
        ledger_id: which ledger.
        count: its number of rows.
        hash: hash of the last one.
        time: when, ISO 8601.
        signature: of all of the above, hexadecimal; None if nobody signed.
    """

    ledger_id: str
    count: int
    hash: str
    time: str
    signature: str | None = None

    @property
    def signed_bytes(self) -> bytes:
        """What a signature covers."""
        return canonical({k: v for k, v in asdict(self).items() if k != "signature"})

    def sign(self, key: Ed25519PrivateKey) -> Anchor:
        """The same anchor, signed."""
        return replace(self, signature=key.sign(self.signed_bytes).hex())

    def is_signed_by(self, key: Ed25519PublicKey) -> bool:
        """Whether the signature is that of the key."""
        try:
            key.verify(bytes.fromhex(self.signature or ""), self.signed_bytes)
        except (InvalidSignature, ValueError):
            return False
        return True

    def signature_fault(self, key: Ed25519PublicKey) -> str | None:
        """What is wrong with the signature; None if it is that of the key."""
        if self.is_signed_by(key):
            return None
        return f"the anchor of {self.time} is not signed with the auditor's key"

    def fault(self, rows: Sequence[Row], ledger_id: str) -> str | None:
        """What is wrong with a ledger that should have had this head; None if it had.

        Args:
            rows: all of the ledger.
            ledger_id: as its first row says.
        """
        if self.ledger_id != ledger_id:
            return "the anchor is of another ledger, or all rows were written anew"
        if self.count < 1:
            return f"the anchor of {self.time} covers nothing"
        if self.count > len(rows):
            return f"{self.count - len(rows)} rows are gone: there were {self.count} at {self.time}"
        if rows[self.count - 1].hash != self.hash:
            return f"the first {self.count} rows are not those that there were at {self.time}"
        return None


def read_anchors(path: str | Path) -> list[Anchor]:
    """Anchors from a file of JSON lines.

    A line that its writer was killed in is passed over: it says nothing.

    Raises:
        ValueError: if a whole line is none; it is named by its number.
    """
    found = []
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
        if not line.strip() or (line.startswith('{"') and not line.rstrip().endswith("}")):
            continue
        try:
            found.append(Anchor(**json.loads(line)))
        except (ValueError, TypeError):
            raise ValueError(f"anchors: line {number} of {path} is not an anchor") from None
    return found


def write_anchors(path: str | Path, anchors: Iterable[Anchor]) -> None:
    """Append anchors to a file of JSON lines."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(anchor)) + "\n" for anchor in anchors)


def load_private(pem: bytes) -> Ed25519PrivateKey:
    """A key from PEM.

    Raises:
        ValueError: if it is no Ed25519 private key. The content is never quoted.
    """
    return _of_kind(serialization.load_pem_private_key, pem, Ed25519PrivateKey, None)


def load_public(pem: bytes) -> Ed25519PublicKey:
    """A public key from PEM.

    Raises:
        ValueError: if it is no Ed25519 public key.
    """
    return _of_kind(serialization.load_pem_public_key, pem, Ed25519PublicKey)


def _of_kind(load: Any, pem: bytes, kind: type, *more: Any) -> Any:
    try:
        key = load(pem, *more)
    except Exception:
        key = None
    if not isinstance(key, kind):
        raise ValueError(f"key must be a PEM file with an {kind.__name__}")
    return key
