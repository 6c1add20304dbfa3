"""One row of the ledger: what happened, chained to everything that happened before.

A row's hash covers its number, its kind, its body and the hash of the row before it, over
canonical JSON (RFC 8785), so that anybody can recompute it in any language. A chain shows edits,
deletions and reorderings. It cannot show that its tail was cut or that all of it was written anew:
for that its head is anchored elsewhere (`Anchor`).

A row keeps its body as the text that was hashed: to check it costs a hash and no serialisation.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any, TypeVar

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from beam_ldp.ledger import kinds
from beam_ldp.randomizers.checks import check_integer, check_positive


class LedgerError(ValueError):
    """The ledger refuses; the message says what is wrong and what to do."""


class BudgetExceededError(LedgerError):
    """A charge does not fit into what is left. Nothing was reserved."""


class ReleasedBeforeError(LedgerError):
    """The charge ended with another release: this one must not leave."""


class BlockUsedUpError(LedgerError):
    """All windows or rounds that were reserved have ended: no further one may be released."""


FORMAT_VERSION = 2
COLUMNS = ("run_id", "part", "release_key", "identity_digest", "population", "period")
_LARGEST_INTEGER = 1 << 53  # beyond it, JSON numbers are floats
_HASH = re.compile("[0-9a-f]{64}")
NO_HASH = "0" * 64  # what the first row is chained to


class LedgerCorruptedError(RuntimeError):
    """The rows do not fit together: somebody or something changed them."""


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        number: 0, 1, 2, ... without a gap.
        kind: one of `KINDS`.
        text: the body in canonical JSON; what it means follows from the kind.
        previous: hash of the row before, `NO_HASH` for the first.
        hash: SHA-256 of all of the above, in hexadecimal.
        columns: what the database's columns say of the body, for look-ups; empty where a row does
            not come from a database. Not hashed: checked against the body.
    """

    number: int
    kind: str
    text: str
    previous: str
    hash: str
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def body(self) -> dict[str, Any]:
        """JSON-able values; what is no JSON object becomes a body that means nothing."""
        try:
            found = parse(self.text)
        except (ValueError, RecursionError):
            found = None
        return found if isinstance(found, dict) else {"unreadable": True}

    @property
    def head(self) -> ChainHead:
        """The chain that ends with this row."""
        return ChainHead(self.number + 1, self.hash)


def columns_of(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the database's columns must say of a row: enough to find the rows of a run, of a
    release and of a period."""
    if kind not in kinds.CHARGES:
        return dict.fromkeys(COLUMNS)
    return {name: body.get(name) for name in COLUMNS}


@dataclass(frozen=True)
class ChainHead:
    """How long the chain is and how it ends: what is anchored outside the database.

    Attributes:
        count: number of rows.
        hash: hash of the last one.
    """

    count: int = 0
    hash: str = NO_HASH


def canonical(value: Any) -> bytes:
    """Canonical JSON (RFC 8785): equal values give equal bytes, in every language.

    Raises:
        ValueError: for what JSON cannot hold (NaN, infinities, other types).
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError):
        raise ValueError("body must hold finite JSON values and well-formed text") from None


def parse(text: str | bytes) -> Any:
    """Inverse of `canonical`, which writes large floats as JSON writes integers."""
    return json.loads(text, parse_int=_number, parse_constant=_no_number)


def _number(digits: str) -> int | float:
    return (
        float(digits) if len(digits) > 17 or abs(int(digits)) >= _LARGEST_INTEGER else int(digits)
    )


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def row_hash(number: int, kind: str, body: str, previous: str) -> str:
    """The hash that a row must have: SHA-256 of the canonical JSON of all of it.

    Keys stand in the order of the alphabet, so the text of the body is a part of that JSON.
    """
    if kind in kinds.KINDS and _HASH.fullmatch(previous):  # nothing in them is written otherwise
        rest = f'"kind":"{kind}","number":{number:d},"previous":"{previous}"'
        rest += f',"version":{FORMAT_VERSION}}}'
    else:
        told = {"kind": kind, "number": number, "previous": previous, "version": FORMAT_VERSION}
        rest = canonical(told)[1:].decode()
    text = f'{{"body":{body},{rest}'
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def next_row(head: ChainHead, kind: str, body: dict[str, Any]) -> Row:
    """The row that follows `head`."""
    if kind not in kinds.KINDS:
        raise ValueError(f"kind must be one of {', '.join(kinds.KINDS)}, got {kind!r}")
    text = canonical(body).decode()
    digest = row_hash(head.count, kind, text, head.hash)
    return Row(head.count, kind, text, head.hash, digest, columns_of(kind, body))


def faults(rows: Iterable[Row], head: ChainHead | None = None) -> Iterator[str]:
    """What is wrong with a chain, in the order of its rows; nothing if it holds.

    Args:
        rows: in the order of their numbers.
        head: the chain before them; default: they are the whole ledger.
    """
    at = head or ChainHead()
    for row in rows:
        where = f"row {row.number}"
        if row.number != at.count:
            yield f"{where} stands where row {at.count} should be"
        if row.kind not in kinds.KINDS or (row.kind == kinds.GENESIS) != (row.number == 0):
            yield f"{where} is of a kind that cannot stand there"
        if row.previous != at.hash:
            yield f"{where} is not chained to the row before it"
        if not _fits(row):
            yield f"{where} was changed: its hash does not fit its content"
        elif row.columns and dict(row.columns) != columns_of(row.kind, row.body):
            yield f"{where} would not be found: its columns do not say what its body says"
        at = row.head


def _fits(row: Row) -> bool:
    try:
        return row.hash == row_hash(row.number, row.kind, row.text, row.previous)
    except (ValueError, RecursionError):  # a body that no ledger writes
        return False


# What may stand in a row: names, texts and numbers, checked before anything is written ----


LONGEST_NAME, LONGEST_TEXT = 200, 2000  # characters
LARGEST_BODY = 1 << 20  # bytes of a row
LEAST_DELTA = 1e-300


def check_name(argument: str, name: str) -> None:
    """A ValueError unless the name is short printable text."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"{argument} must be printable text of 1 to {LONGEST_NAME} characters, got "
            f"{str(name)[:40]!r}"
        )


def short_name(name: str) -> str:
    """A name that is allowed: cut where it is too long, and then told apart by a digest."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: LONGEST_NAME - 13]} {digest}"


def check_text(argument: str, text: str) -> None:
    """A ValueError unless the text is printable and not too long."""
    if not isinstance(text, str) or len(text) > LONGEST_TEXT or not text.isprintable():
        raise ValueError(f"{argument} must be printable text of at most {LONGEST_TEXT} characters")


def recorded(by: str | None, why: str) -> dict[str, str]:
    """Who decided something, by default the login name, and the reason, as rows tell them.

    Raises:
        ValueError: if either is no text that a row may hold.
    """
    check_name("by", by := by or login())
    check_text("why", why)
    return {"by": by, "why": why}


def check_size(row: Row) -> None:
    """A ValueError for a row that is no record any more."""
    if len(row.text.encode()) > LARGEST_BODY:
        raise ValueError(
            f"about and event must take at most {LARGEST_BODY:,} bytes together: they are a "
            "record, not the data"
        )


def login() -> str:
    """Name of whoever runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return f"user {os.getuid()}"


def check_budget(
    epsilon: float,
    delta: float,
    local_epsilon: float | None,
    orders: tuple[float, ...] | None,
    period_days: int | None,
) -> None:
    """A ValueError for numbers that make no budget."""
    for name, value in (("epsilon", epsilon), ("local_epsilon", local_epsilon)):
        if value is not None:
            check_positive(name, value)
    if not LEAST_DELTA <= delta < 1:  # shares of a smaller one vanish
        raise ValueError(f"delta must lie in [{LEAST_DELTA:g}, 1), got {delta}")
    given = (2.0,) if orders is None else orders
    if not given or not all(math.isfinite(order) and order > 1 for order in given):
        raise ValueError("orders must be finite numbers > 1, at least one")
    if period_days is not None:
        check_integer("period_days", period_days, 1)


# What time a row is of: the database's, or a machine's whose jumps are bounded ------------
#
# A budget that is granted anew every month must not be granted by a wrong clock. PostgreSQL has a
# clock that all clients share. With SQLite each machine brings its own: a row that decides (a
# budget, a reservation) may be at most `JUMP_DAYS` later than the row before it; beyond, somebody
# says that the time is right (`BudgetLedger.accept_time`), in a row that audits show. Rows that
# decide nothing (a settlement) are written at any time, and then bear the time of the row before.
# No row is earlier than the one before: a clock that is set back opens no earlier period.


JUMP_DAYS = 32  # that a machine's clock may be ahead of the last row


def as_text(time: datetime) -> str:
    """ISO 8601, UTC, in seconds."""
    return time.astimezone(timezone.utc).isoformat(timespec="seconds")


def jumps(now: str, last: str) -> bool:
    """Whether a machine's time is too far ahead of the last row's."""
    if not last:
        return False
    ahead = datetime.fromisoformat(now) - datetime.fromisoformat(last)
    return ahead > timedelta(days=JUMP_DAYS)


def row_time(now: str, last: str, *, decides: bool, trusted: bool) -> str:
    """The time of the next row.

    Args:
        now: by the clock.
        last: of the last row; "" if there is none.
        decides: whether something is granted or reserved.
        trusted: whether it is the database's clock.

    Raises:
        LedgerError: if the clock has jumped.
    """
    if trusted or not jumps(now, last):
        return max(now, last)
    if decides:
        raise LedgerError(
            f"this machine's clock says {now}, and the last row is from {last}, more than "
            f"{JUMP_DAYS} days before. If the clock is right, confirm it with `beam-ldp budget "
            "accept-time`, in a row that audits show; a wrong clock would renew budgets"
        )
    return last


# Heads of the ledger that are kept elsewhere: evidence against whoever can write the database
#
# An anchor says how many rows there were and how they ended. Kept out of the operator's reach (in
# an auditor's file, in a tracking server), it shows that the tail was cut or that everything was
# written anew. A signature (Ed25519, with a key that only the auditor holds) lets the anchor lie
# anywhere.


_Signed = TypeVar("_Signed", bound="Signed")


class Signed:
    """A frozen dataclass whose `signature` covers its `signed_bytes`."""

    signature: Any

    @property
    def signed_bytes(self) -> bytes:
        """What a signature covers."""
        return canonical({k: v for k, v in vars(self).items() if k != "signature"})

    def sign(self: _Signed, key: Ed25519PrivateKey) -> _Signed:
        """The same, signed."""
        return type(self)(**{**vars(self), "signature": key.sign(self.signed_bytes).hex()})

    def is_signed_by(self, key: Ed25519PublicKey) -> bool:
        """Whether the signature is that of the key."""
        try:
            key.verify(bytes.fromhex(self.signature or ""), self.signed_bytes)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class Anchor(Signed):
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
