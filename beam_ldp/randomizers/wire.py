"""The envelope in which packed reports travel from devices to the collector.

Its length is a function of public things alone: the mechanism and how many reports it holds. Format
1, bit by bit: docs/wire-format.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.randomizers.base import LocalRandomizer

MAGIC = b"\x89LDP"  # no text begins with that byte
FORMAT_VERSION = 1
DIGEST_BYTES = ID_BYTES = 16
CHECKSUM_BYTES = 8
MAX_ENVELOPE_BYTES = 1 << 24
NO_DOMAIN = bytes(DIGEST_BYTES)
NO_ID = bytes(ID_BYTES)
TERMS_VERSION = 1

_SIMULATED = 1  # the one flag
_PREFIX = struct.Struct(">4sBB16s16s16s")  # what sender and collector agreed upon
_SUFFIX = struct.Struct(">16sI")  # what an envelope has of its own: id, number of reports
PREFIX_BYTES = _PREFIX.size
HEADER_BYTES = _PREFIX.size + _SUFFIX.size
OVERHEAD_BYTES = HEADER_BYTES + CHECKSUM_BYTES

NOT_AN_ENVELOPE = "not an envelope"
TOO_SHORT = "cut short"
TOO_LONG = "longer than an envelope may be"
TRAILING = "followed by other bytes"
UNKNOWN_VERSION = "unknown format version"
UNKNOWN_FLAGS = "unknown flags"
OTHER_MECHANISM = "another mechanism, or other parameters"
OTHER_DOMAIN = "another public list of values"
OTHER_RELEASE = "another release"
NOT_SIMULATED = "of people, in a simulation"
SIMULATED = "simulated, among reports of people"
NO_REPORTS = "no reports"
WRONG_COUNT = "number of reports does not fit the length"
WRONG_CHECKSUM = "wrong checksum"
IMPOSSIBLE = "reports that the mechanism cannot send"
REASONS = (
    NOT_AN_ENVELOPE, TOO_SHORT, TOO_LONG, TRAILING, UNKNOWN_VERSION, UNKNOWN_FLAGS,
    OTHER_MECHANISM, OTHER_DOMAIN, OTHER_RELEASE, NOT_SIMULATED, SIMULATED, NO_REPORTS,
    WRONG_COUNT, WRONG_CHECKSUM, IMPOSSIBLE,
)  # fmt: skip


class EnvelopeError(ValueError):
    """An envelope that is refused.

    Attributes:
        reason: one of `REASONS`; nothing of what was received is quoted.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"envelope refused: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class ReleaseTerms:
    """What devices and collector agree upon before anything is sent. All of it is public.

    Args:
        randomizer: what devices run.
        release_id: name of the release; a new one for every release.
        domain_digest: `Domain.digest` of the public list of values; `NO_DOMAIN` where the
            mechanism's parameters say everything.
        simulated: reports are drawn with a seed and protect nobody. Such reports and those of
            people are never mixed.

    Raises:
        ValueError: if the release has no name, a digest is not 16 bytes, or one report alone is
            longer than an envelope may be.

    >>> from beam_ldp.randomizers.domain import Domain
    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> colours = Domain(("red", "green", "blue"))
    >>> terms = ReleaseTerms(KRandomizedResponse(4, 2.0), "week-47", colours.digest)
    >>> sent = encode_envelope(terms, terms.randomizer.randomize(colours.encode(["green"])))
    >>> len(sent)
    83
    >>> len(decode_envelope(terms, sent).reports)
    1
    """

    randomizer: LocalRandomizer
    release_id: str
    domain_digest: bytes = NO_DOMAIN
    simulated: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.release_id, str) or not self.release_id:
            raise ValueError("release_id must be a non-empty name")
        if not isinstance(self.domain_digest, bytes) or len(self.domain_digest) != DIGEST_BYTES:
            raise ValueError(f"domain_digest must be {DIGEST_BYTES} bytes")
        if self.max_reports < 1:
            raise ValueError(
                f"randomizer must send reports of less than {MAX_ENVELOPE_BYTES:,} bytes, got "
                f"{self.randomizer.bits_per_report:,} bits"
            )

    @property
    def mechanism_text(self) -> str:
        """The mechanism's parameters as the text whose digest travels with every report."""
        return json.dumps(self.randomizer.to_config(), sort_keys=True, separators=(",", ":"))

    @property
    def release_digest(self) -> bytes:
        """16 bytes that identify the release, however long its name is."""
        return release_digest_of(self.release_id)

    @cached_property
    def prefix(self) -> bytes:
        """The first bytes of every envelope of this release."""
        return _PREFIX.pack(
            MAGIC,
            FORMAT_VERSION,
            _SIMULATED if self.simulated else 0,
            self.randomizer.config_digest(),
            self.domain_digest,
            self.release_digest,
        )

    def begins_at(self, data: bytes, at: int) -> bool:
        """Whether an envelope of this release begins there."""
        return data.startswith(self.prefix, at)

    def find_begin(self, data: bytes, start: int, stop: int) -> int:
        """Where an envelope of this release begins, with all of its first bytes before `stop`; -1
        if nowhere."""
        return data.find(self.prefix, start, stop)

    @cached_property
    def _bits(self) -> int:
        return self.randomizer.bits_per_report

    @property
    def max_reports(self) -> int:
        """The most reports that fit one envelope."""
        return 8 * (MAX_ENVELOPE_BYTES - OVERHEAD_BYTES) // self._bits

    def payload_bytes(self, num_reports: int) -> int:
        """Length of that many packed reports."""
        return -(-self._bits * num_reports // 8)

    def envelope_bytes(self, num_reports: int) -> int:
        """Length of an envelope: it depends on nothing else."""
        return OVERHEAD_BYTES + self.payload_bytes(num_reports)

    def to_json(self) -> dict[str, Any]:
        """What `release.json` holds: all that a client needs beside the list of values.

        The mechanism is a text, to be hashed as it stands and then read as JSON: no other language
        has to write numbers as Python does.
        """
        return {
            "terms_version": TERMS_VERSION,
            "format_version": FORMAT_VERSION,
            "release_id": self.release_id,
            "mechanism": self.mechanism_text,
            "mechanism_digest": self.randomizer.config_digest().hex(),
            "domain_digest": self.domain_digest.hex(),
            "release_digest": self.release_digest.hex(),
            "bits_per_report": self.randomizer.bits_per_report,
            "simulated": self.simulated,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ReleaseTerms:
        """The terms that `to_json` described; the mechanism's module must have been imported.

        Raises:
            ValueError: if something is missing, unknown, or contradicts something else.
        """
        try:
            version = found["terms_version"]
            if version != TERMS_VERSION:
                raise ValueError(f"terms_version must be {TERMS_VERSION}, got {version!r}")
            config = json.loads(found["mechanism"])
            if not isinstance(config, dict):
                raise ValueError("mechanism must be the text of a JSON object")
            terms = cls(
                LocalRandomizer.from_config(config),
                found["release_id"],
                bytes.fromhex(found["domain_digest"]),
                found["simulated"] is True,
            )
        except KeyError as error:
            raise ValueError(f"release terms lack {error.args[0]}") from None
        except (TypeError, RecursionError):
            raise ValueError("release terms hold a value of the wrong type") from None
        for name, value in terms.to_json().items():
            if found.get(name) != value:
                raise ValueError(f"release terms contradict themselves: {name}")
        return terms


@dataclass(frozen=True, eq=False)
class Envelope:
    """What one envelope held.

    Attributes:
        reports: as `randomizer.unpack` gives them.
        envelope_id: 16 bytes by which copies are known; None where the sender gave none.
    """

    reports: np.ndarray
    envelope_id: bytes | None


def encode_envelope(
    terms: ReleaseTerms, reports: np.ndarray, envelope_id: bytes | None = None
) -> bytes:
    """Reports in one envelope.

    Args:
        terms: of the release.
        reports: as `terms.randomizer.randomize` gives them; at least one.
        envelope_id: 16 bytes that the sender draws anew for every envelope and keeps for sending
            the same envelope again, so that copies are recognised; never the id of a person or a
            device. Default: fresh random ones. `NO_ID` for none.

    Raises:
        ValueError: for no reports, more than fit, an id of another length, or reports that the
            mechanism cannot pack.
    """
    if not 1 <= len(reports) <= terms.max_reports:
        raise ValueError(
            f"reports must number from 1 to {terms.max_reports} in one envelope, got {len(reports)}"
        )
    envelope_id = os.urandom(ID_BYTES) if envelope_id is None else envelope_id
    if len(envelope_id) != ID_BYTES:
        raise ValueError(f"envelope_id must be {ID_BYTES} bytes, got {len(envelope_id)}")
    content = b"".join(
        (terms.prefix, _SUFFIX.pack(envelope_id, len(reports)), terms.randomizer.pack(reports))
    )
    return content + _checksum(content)


def decode_envelope(terms: ReleaseTerms, data: bytes) -> Envelope:
    """The reports of one envelope, every byte of it checked.

    The checksum finds accidents. It is no signature: whoever can send can send anything that the
    mechanism could have sent.

    Raises:
        EnvelopeError: with one of `REASONS`, for everything that is not exactly an envelope of this
            release.
    """
    check_prefix(terms, data)
    return open_envelope(terms, data)


def open_envelope(terms: ReleaseTerms, data: bytes) -> Envelope:
    """What follows a prefix that was checked.

    Raises:
        EnvelopeError: as `decode_envelope`.
    """
    if len(data) < OVERHEAD_BYTES:
        raise EnvelopeError(TOO_SHORT)
    if len(data) > MAX_ENVELOPE_BYTES:
        raise EnvelopeError(TOO_LONG)
    envelope_id, count = _SUFFIX.unpack_from(data, _PREFIX.size)
    sound = data[-CHECKSUM_BYTES:] == _checksum(data[:-CHECKSUM_BYTES])
    length = terms.envelope_bytes(count)
    if sound and count == 0:
        raise EnvelopeError(NO_REPORTS)
    if len(data) != length:
        if sound:
            raise EnvelopeError(WRONG_COUNT)
        raise EnvelopeError(TOO_SHORT if len(data) < length else TRAILING)
    if not sound:
        raise EnvelopeError(WRONG_CHECKSUM)
    try:
        reports = terms.randomizer.unpack(data[HEADER_BYTES:-CHECKSUM_BYTES], count)
    except ValueError:
        raise EnvelopeError(IMPOSSIBLE) from None
    return Envelope(reports, None if envelope_id == NO_ID else envelope_id)


def release_digest_of(release_id: str) -> bytes:
    """16 bytes that identify a release by its name."""
    return hashlib.sha256(release_id.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES]


def count_of(data: bytes, start: int = 0) -> int:
    """The number of reports that the envelope which begins at `start` says it holds."""
    count: int = _SUFFIX.unpack_from(data, start + _PREFIX.size)[1]
    return count


def check_prefix(terms: ReleaseTerms, data: bytes) -> None:
    """An EnvelopeError unless the data begin as every envelope of this release does."""
    if data.startswith(terms.prefix):
        return
    if not data.startswith(MAGIC[: len(data)]) or not data:
        raise EnvelopeError(NOT_AN_ENVELOPE)
    if len(data) > len(MAGIC) and data[len(MAGIC)] != FORMAT_VERSION:
        raise EnvelopeError(UNKNOWN_VERSION)
    if len(data) < _PREFIX.size:
        raise EnvelopeError(TOO_SHORT)
    _, _, flags, mechanism, domain, release = _PREFIX.unpack_from(data)
    if flags & ~_SIMULATED:
        raise EnvelopeError(UNKNOWN_FLAGS)
    for found, expected, reason in (
        (mechanism, terms.randomizer.config_digest(), OTHER_MECHANISM),
        (domain, terms.domain_digest, OTHER_DOMAIN),
        (release, terms.release_digest, OTHER_RELEASE),
    ):
        if found != expected:
            raise EnvelopeError(reason)
    raise EnvelopeError(SIMULATED if flags else NOT_SIMULATED)


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:CHECKSUM_BYTES]
