"""The envelope in which packed reports travel from devices to the collector.

Its length is a function of public things alone: the mechanism and how many people's reports it
holds. Format 2, byte by byte: docs/wire-format.md. Whole files of envelopes: `wire_stream`.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.bits import crc32_of_rows
from beam_ldp.randomizers.identity import ReleaseIdentity, canonical_text

MAGIC = b"\x89LDP"  # no text begins with that byte
FORMAT_VERSION = 2
DIGEST_BYTES = ID_BYTES = 16
CHECKSUM_BYTES = 4
MAX_ENVELOPE_BYTES = 1 << 24
NO_ID = bytes(ID_BYTES)
TERMS_VERSION = 2

SIMULATED_FLAG = 1  # of 8; 2 is kept for sealed reports, 4 for headers of batches
ONLY_COLUMN = 0  # of 2**16: which message column or level of several; there are no others yet
HEAD = struct.Struct(">4sBBH")  # magic, version, flags, column
PREFIX_BYTES = HEAD.size + DIGEST_BYTES  # what sender and collector agreed upon
_SUFFIX = struct.Struct(">16sI")  # what an envelope has of its own: id, number of people
HEADER_BYTES = PREFIX_BYTES + _SUFFIX.size
OVERHEAD_BYTES = HEADER_BYTES + CHECKSUM_BYTES

NOT_AN_ENVELOPE = "not an envelope"
TOO_SHORT = "cut short"
TRAILING = "followed by other bytes"
UNKNOWN_VERSION = "unknown format version"
UNKNOWN_FLAGS = "unknown flags"
UNKNOWN_COLUMN = "unknown message column"
OTHER_RELEASE = "another release, question or mechanism"
NOT_SIMULATED = "of people, in a simulation"
SIMULATED = "simulated, among reports of people"
NO_REPORTS = "no reports"
TOO_MANY = "reports of more people than an envelope of this release may hold"
WRONG_CHECKSUM = "wrong checksum"
IMPOSSIBLE = "reports that the mechanism cannot send"
WITHOUT_ID = "shares without an id by which a copy would be known"
REASONS = (
    NOT_AN_ENVELOPE, TOO_SHORT, TRAILING, UNKNOWN_VERSION, UNKNOWN_FLAGS, UNKNOWN_COLUMN,
    OTHER_RELEASE, NOT_SIMULATED, SIMULATED, NO_REPORTS, TOO_MANY, WRONG_CHECKSUM, IMPOSSIBLE,
    WITHOUT_ID,
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
        identity: of the release. Its digest stands in every envelope, so that one of another
            release, question, list, mechanism or key is refused.
        simulated: reports are drawn with a seed and protect nobody. Such reports and those of
            people are never mixed.

    Raises:
        ValueError: if the identity is of another mechanism, or one report alone is longer than an
            envelope may be.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> oracle = KRandomizedResponse(4, 2.0)
    >>> week = ReleaseIdentity("telemetry", "week-47", oracle.config_digest().hex(), ("url",))
    >>> terms = ReleaseTerms(oracle, week)
    >>> sent = encode_envelope(terms, oracle.randomize(np.array([2])))
    >>> len(sent)
    49
    >>> len(decode_envelope(terms, sent).reports)
    1
    """

    randomizer: LocalRandomizer
    identity: ReleaseIdentity
    simulated: bool = False

    def __post_init__(self) -> None:
        if self.identity.mechanism != self.randomizer.config_digest().hex():
            raise ValueError("identity is of another mechanism than randomizer")
        if self.max_reports < 1:
            raise ValueError(
                f"randomizer must send reports of less than {MAX_ENVELOPE_BYTES:,} bytes, got "
                f"{self.randomizer.bits_per_report:,} bits"
            )

    @property
    def mechanism_text(self) -> str:
        """The mechanism's parameters as the text whose digest stands in the identity."""
        return canonical_text(self.randomizer.to_config())

    @cached_property
    def head(self) -> bytes:
        """The first bytes of every envelope of this release, whatever the group."""
        flags = SIMULATED_FLAG if self.simulated else 0
        return HEAD.pack(MAGIC, FORMAT_VERSION, flags, ONLY_COLUMN)

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that identify the release, its question, mechanism and key."""
        return self.identity.digest[:DIGEST_BYTES]

    @property
    def prefix(self) -> bytes:
        """The first bytes of every envelope of this release."""
        return self.head + self.digest

    @cached_property
    def report_bytes(self) -> int:
        """Length of one person's packed report, which begins and ends with a byte."""
        return -(-self.randomizer.bits_per_report // 8)

    @cached_property
    def max_reports(self) -> int:
        """The most people whose reports may stand in one envelope: as many as were granted."""
        fitting = (MAX_ENVELOPE_BYTES - OVERHEAD_BYTES) // self.report_bytes
        return min(self.identity.reports_per_envelope, fitting)

    @property
    def needs_ids(self) -> bool:
        """Whether an envelope without an id is refused: of reports that protect in their sum alone
        no copy may count, since twice a person's vector has half the noise."""
        return not self.randomizer.protects_alone

    def envelope_bytes(self, num_reports: int) -> int:
        """Length of an envelope: it depends on nothing else."""
        return OVERHEAD_BYTES + self.report_bytes * num_reports

    def to_json(self) -> dict[str, Any]:
        """What `release.json` holds: all that a client needs beside the list of values.

        The mechanism is a text, to be hashed as it stands and then read as JSON: no other language
        has to write numbers as Python does.
        """
        return {
            "terms_version": TERMS_VERSION,
            "format_version": FORMAT_VERSION,
            "release_id": self.identity.release_id,
            "identity": self.identity.to_json(),
            "identity_digest": self.identity.digest.hex(),
            "mechanism": self.mechanism_text,
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
            if not isinstance(config, dict) or not isinstance(found["identity"], Mapping):
                raise ValueError("mechanism must be the text of a JSON object, identity an object")
            terms = cls(
                LocalRandomizer.from_config(config),
                ReleaseIdentity.from_json(found["identity"]),
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
        reports: as `randomizer.unpack_each` gives them.
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
        ValueError: for no reports, more than an envelope of this release may hold, an id of another
            length, none where one is needed, or reports that the mechanism cannot pack.
    """
    if not 1 <= len(reports) <= terms.max_reports:
        raise ValueError(
            f"reports must number from 1 to {terms.max_reports} in one envelope, got {len(reports)}"
        )
    envelope_id = os.urandom(ID_BYTES) if envelope_id is None else envelope_id
    if len(envelope_id) != ID_BYTES:
        raise ValueError(f"envelope_id must be {ID_BYTES} bytes, got {len(envelope_id)}")
    if terms.needs_ids and envelope_id == NO_ID:
        raise ValueError("envelope_id must be given for shares: a copy must not count")
    packed = terms.randomizer.pack_each(reports).tobytes()
    content = terms.prefix + _SUFFIX.pack(envelope_id, len(reports)) + packed
    return content + checksum(content)


def encode_envelopes(terms: ReleaseTerms, reports: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Many envelopes of equally many reports each, as `encode_envelope` makes them one by one.

    Args:
        terms: of the release.
        reports: those of the first envelope, of the second, and so on.
        ids: uint8 `(envelopes, 16)`.

    Returns:
        uint8 `(envelopes, length)`.
    """
    each, rest = divmod(len(reports), len(ids))
    if rest or not 1 <= each <= terms.max_reports:
        raise ValueError(f"reports must number from 1 to {terms.max_reports} for each of ids")

    found = np.empty((len(ids), terms.envelope_bytes(each)), dtype=np.uint8)
    found[:, :PREFIX_BYTES] = np.frombuffer(terms.prefix, dtype=np.uint8)
    found[:, PREFIX_BYTES : PREFIX_BYTES + ID_BYTES] = ids
    found[:, HEADER_BYTES - 4 : HEADER_BYTES] = np.frombuffer(each.to_bytes(4, "big"), np.uint8)
    found[:, HEADER_BYTES:-CHECKSUM_BYTES] = terms.randomizer.pack_each(reports).reshape(
        len(ids), -1
    )
    sums = crc32_of_rows(found[:, :-CHECKSUM_BYTES])
    found[:, -CHECKSUM_BYTES:] = sums.astype(">u4").view(np.uint8).reshape(-1, CHECKSUM_BYTES)
    return found


def decode_envelope(terms: ReleaseTerms, data: bytes) -> Envelope:
    """The reports of one envelope, every byte of it checked.

    The checksum finds accidents. It is no signature: whoever can send can send anything that the
    mechanism could have sent.

    Raises:
        EnvelopeError: with one of `REASONS`, for everything that is not exactly an envelope of this
            release.
    """
    check_prefix(terms.head, (terms.digest,), data)
    return open_envelope(terms, data)


def open_envelope(terms: ReleaseTerms, data: bytes) -> Envelope:
    """What follows a prefix that was checked.

    Raises:
        EnvelopeError: as `decode_envelope`.
    """
    if len(data) < HEADER_BYTES:
        raise EnvelopeError(TOO_SHORT)
    envelope_id, count = _SUFFIX.unpack_from(data, PREFIX_BYTES)
    if count == 0:
        raise EnvelopeError(NO_REPORTS)
    if count > terms.max_reports:
        raise EnvelopeError(TOO_MANY)
    if terms.needs_ids and envelope_id == NO_ID:
        raise EnvelopeError(WITHOUT_ID)
    length = terms.envelope_bytes(count)
    if len(data) != length:
        raise EnvelopeError(TOO_SHORT if len(data) < length else TRAILING)
    if data[-CHECKSUM_BYTES:] != checksum(data[:-CHECKSUM_BYTES]):
        raise EnvelopeError(WRONG_CHECKSUM)
    payload = np.frombuffer(data, np.uint8, count * terms.report_bytes, HEADER_BYTES)
    reports, possible = terms.randomizer.unpack_each(payload.reshape(count, terms.report_bytes))
    if not possible.all():
        raise EnvelopeError(IMPOSSIBLE)
    return Envelope(reports, None if envelope_id == NO_ID else envelope_id)


def check_prefix(head: bytes, digests: tuple[bytes, ...], data: bytes) -> int:
    """Index of the digest that an envelope carries; an EnvelopeError for any other beginning."""
    if not data or not data.startswith(MAGIC[: len(data)]):
        raise EnvelopeError(NOT_AN_ENVELOPE)
    if len(data) > len(MAGIC) and data[len(MAGIC)] != FORMAT_VERSION:
        raise EnvelopeError(UNKNOWN_VERSION)
    if len(data) < PREFIX_BYTES:
        raise EnvelopeError(TOO_SHORT)
    _, _, flags, column = HEAD.unpack_from(data)
    if flags & ~SIMULATED_FLAG:
        raise EnvelopeError(UNKNOWN_FLAGS)
    if column != ONLY_COLUMN:
        raise EnvelopeError(UNKNOWN_COLUMN)
    digest = data[HEAD.size : PREFIX_BYTES]
    if digest not in digests:
        raise EnvelopeError(OTHER_RELEASE)
    if not data.startswith(head):
        raise EnvelopeError(SIMULATED if flags else NOT_SIMULATED)
    return digests.index(digest)


def checksum(content: bytes) -> bytes:
    """CRC-32, as zlib and Ethernet know it."""
    return zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "big")


# Releases of public groups: the identity of each has the group in it, so each has its own digest.
#
# The envelope has no field for a group and needs none: a collector that knows the public list of
# groups knows all their digests.


@dataclass(frozen=True)
class GroupTerms:
    """Release terms of all groups of a public list. All of it is public.

    Args:
        terms: what the groups share; its release is that of no group.
        groups: their names, in the order of their indices.

    Raises:
        ValueError: for no group, one that is named twice, and names that an identity refuses.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> from beam_ldp.randomizers.identity import ReleaseIdentity
    >>> oracle = KRandomizedResponse(4, 2.0)
    >>> week = ReleaseIdentity("telemetry", "week-47", oracle.config_digest().hex())
    >>> terms = GroupTerms(ReleaseTerms(oracle, week), ("DE", "FR", "other"))
    >>> terms.decode(encode_envelope(terms.of(1), oracle.randomize([2])))[0]
    1
    """

    terms: ReleaseTerms
    groups: Sequence[str] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if not all(self.groups) or not self.groups or len(set(self.groups)) < len(self.groups):
            raise ValueError("groups must be distinct names, at least one")
        if self.terms.identity.group:
            raise ValueError("terms must be those of no group")
        self.digests  # noqa: B018  (names that an identity refuses are refused here)

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """What envelopes of each group carry."""
        of_group = self.terms.identity.of_group
        return tuple(of_group(group).digest[:DIGEST_BYTES] for group in self.groups)

    def of(self, group: int) -> ReleaseTerms:
        """The terms of one group, by its index."""
        return replace(self.terms, identity=self.terms.identity.of_group(self.groups[group]))

    def decode(self, data: bytes) -> tuple[int, Envelope]:
        """Index of the group and what the envelope held, every byte of it checked.

        Raises:
            EnvelopeError: as `decode_envelope`; for a group that is not in the list too.
        """
        group = check_prefix(self.terms.head, self.digests, data)
        return group, open_envelope(self.terms, data)


AnyTerms = ReleaseTerms | GroupTerms


def shared(terms: AnyTerms) -> ReleaseTerms:
    """What all groups share; the terms themselves where there are none."""
    return terms.terms if isinstance(terms, GroupTerms) else terms


def digests_of(terms: AnyTerms) -> tuple[bytes, ...]:
    """What envelopes may carry: a digest for each group."""
    return terms.digests if isinstance(terms, GroupTerms) else (terms.digest,)
