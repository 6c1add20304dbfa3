"""Who wrote a row: login, machine and version, and a signature where the writer has a key.

The key is the writer's own (an Ed25519 key in PEM, in the file that BEAM_LDP_WRITER_KEY names): it
shows who of several that may insert rows did insert this one. It is no key of the operator's.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from beam_ldp.ledger.anchors import load_private
from beam_ldp.ledger.checks import login
from beam_ldp.ledger.rows import Head, Row, canonical

KEY_VARIABLE = "BEAM_LDP_WRITER_KEY"
_PURPOSE = "beam-ldp: a row of a ledger"
_LONGEST = 200  # characters of a machine's name


@dataclass(frozen=True)
class Writer:
    """Who writes.

    Attributes:
        login, host, version: of the account, the machine and beam-ldp, as they say of themselves.
        key: signs each row; None: rows are not signed.
    """

    login: str
    host: str
    version: str
    key: Ed25519PrivateKey | None = None

    @classmethod
    def this(cls) -> Writer:
        """Who runs this process.

        Raises:
            ValueError: if BEAM_LDP_WRITER_KEY names no readable Ed25519 key.
        """
        path = os.environ.get(KEY_VARIABLE)
        try:
            key = load_private(Path(path).read_bytes()) if path else None
        except OSError:
            raise ValueError(f"{KEY_VARIABLE} names a file that cannot be read") from None
        return cls(login(), socket.gethostname()[:_LONGEST], _version(), key)

    def told(self, head: Head, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the next row says of its writer."""
        about: dict[str, Any] = {
            "login": self.login,
            "host": self.host,
            "version": self.version,
            "key": None,
            "signature": None,
        }
        if self.key is None:
            return about
        about["key"] = _hex_of(self.key.public_key())
        content = _signed(head.count, head.hash, kind, {**body, "writer": about})
        return {**about, "signature": self.key.sign(content).hex()}


def signer_of(row: Row) -> str | None:
    """The public key that signed a row, hexadecimal; None if nobody did.

    Raises:
        ValueError: if the signature is not that of the key.
    """
    about = row.body.get("writer") or {}
    if about.get("signature") is None:
        return None
    unsigned = {**row.body, "writer": {**about, "signature": None}}
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(about["key"]))
        content = _signed(row.number, row.previous, row.kind, unsigned)
        key.verify(bytes.fromhex(about["signature"]), content)
    except (InvalidSignature, ValueError, TypeError, KeyError):
        raise ValueError(f"row {row.number} is not signed by the key that it names") from None
    return str(about["key"])


def _signed(number: int, previous: str, kind: str, body: dict[str, Any]) -> bytes:
    told = {"purpose": _PURPOSE, "number": number, "previous": previous, "kind": kind}
    return canonical({**told, "body": body})


def _hex_of(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _version() -> str:
    try:
        return metadata.version("beam-ldp")
    except metadata.PackageNotFoundError:  # from a folder of sources
        return ""
