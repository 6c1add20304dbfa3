"""An auditor accepts a change of a budget: signed, so that nobody else can.

A budget that is raised after something was charged is a finding of every audit, for ever. Where the
raise is justified, whoever holds the auditor's key says so in a row of its own. It names the row
that it accepts by number and hash and is signed over both, so it fits no other row and no other
ledger; without the auditor's public key an audit does not believe it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from beam_ldp.ledger.rows import Row, canonical

_PURPOSE = "beam-ldp: acceptance of a budget's change"


@dataclass(frozen=True)
class Acceptance:
    """What an auditor has accepted.

    Attributes:
        ledger_id: of the ledger.
        row, hash: number and hash of the budget's row.
        by, why: who accepts it, and the reason.
        signature: of all of the above, hexadecimal; "" if nobody signed.
    """

    ledger_id: str
    row: int
    hash: str
    by: str
    why: str
    signature: str = ""

    @property
    def signed_bytes(self) -> bytes:
        """What the signature covers; the purpose keeps it apart from those of anchors."""
        told = {k: v for k, v in asdict(self).items() if k != "signature"}
        return canonical({**told, "purpose": _PURPOSE})

    def sign(self, key: Ed25519PrivateKey) -> Acceptance:
        """The same, signed."""
        return replace(self, signature=key.sign(self.signed_bytes).hex())

    def to_json(self) -> dict[str, Any]:
        """As a row holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Acceptance:
        """Inverse of `to_json`; a row holds its time too."""
        names = ("ledger_id", "row", "hash", "by", "why", "signature")
        found = cls(**{name: told[name] for name in names})
        if not isinstance(found.row, int) or not all(isinstance(told[n], str) for n in names[2:]):
            raise ValueError("an acceptance names a row, its hash, who and why")
        return found

    def fault(self, row: Row, ledger_id: str, key: Ed25519PublicKey | None) -> str | None:
        """Why this does not accept the row; None if it does."""
        if (self.ledger_id, self.row, self.hash) != (ledger_id, row.number, row.hash):
            return "an acceptance of it is of another row or another ledger"
        if key is None:
            return (
                f"{self.by} is said to have accepted it ({self.why}); the auditor's public key "
                "would show whether that is so"
            )
        try:
            key.verify(bytes.fromhex(self.signature), self.signed_bytes)
        except (InvalidSignature, ValueError):
            return "an acceptance of it is not signed with the auditor's key"
        return None
