"""What a release is: the one value that says which reports may stand together, and which may not.

Two releases are the same only where everything is that can change what a report says or hides: the
people (data set), the name, the question, the mechanism, the rule that bounds contributions, the
secret key. The digest of all that keys the pseudo-random function of memoized noise and names every
envelope; the ledger, `release.json`, `privacy.json` and the tracker carry it. So another question
under an old name draws independent noise, is another release everywhere, and is refused or charged.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

IDENTITY_VERSION = 2
MAX_NAME = 200  # characters of a name
ROW = "row"  # each row is taken for a person's, and nobody said that it is one
ONE_ROW_DECLARED = "one row of each person, as declared"
_DOMAIN = b"beam-ldp release identity\n"
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMES = ("dataset", "release_id", "bounding", "part", "group", "privacy_unit")
_DIGESTS = ("mechanism", "values", "groups", "key")


@dataclass(frozen=True)
class ReleaseIdentity:
    """The identity of a release. All of it is public.

    Args:
        dataset: declared name of the people's data; never a path, which has many spellings.
        release_id: name of the release; another question needs another one.
        mechanism: `LocalRandomizer.config_digest`, hexadecimal.
        columns: what is asked for, in the order of the question.
        values: digest, hexadecimal, of what reports are about: the public list, bins or ranges; ""
            where the mechanism says everything.
        groups: digest, hexadecimal, of the groups' column and their public list; "" without.
        bounding: the rule that bounds what one person contributes: `ROW`, which bounds nothing, or
            in words, as `one_row_of` writes it and `ONE_ROW_DECLARED` is.
        part: which window, round or batch of the release; "" for the whole of it. Permanent
            responses leave it out, and so stay the same.
        group: one public group of the release.
        key: `key_commitment` of the secret key of memoized noise; "" where noise is fresh.
        privacy_unit: what one person's contribution is called.
        reports_per_envelope: the most people's reports that one envelope may hold: 1, unless an
            edge was granted more.

    Raises:
        ValueError: for names that are empty, too long or not printable, and digests that are none.

    >>> week = ReleaseIdentity("telemetry", "week-47", columns=("url",))
    >>> week.digest == replace(week, columns=("hiv",)).digest
    False
    >>> ReleaseIdentity.from_json(week.to_json()) == week
    True
    """

    dataset: str
    release_id: str
    mechanism: str = ""
    columns: tuple[str, ...] = ()
    values: str = ""
    groups: str = ""
    bounding: str = ROW
    part: str = ""
    group: str = ""
    key: str = ""
    privacy_unit: str = "user"
    reports_per_envelope: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        for name in _NAMES:
            _check_name(name, getattr(self, name), empty=name in ("part", "group"))
        for column in self.columns:
            _check_name("columns", column)
        for name in _DIGESTS:
            value = getattr(self, name)
            if not isinstance(value, str) or not _HEX.fullmatch(value) or len(value) > 64:
                raise ValueError(f"{name} must be a digest of at most 32 bytes, in hexadecimal")
        most = self.reports_per_envelope
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most < 1 << 32:
            raise ValueError(f"reports_per_envelope must be an integer >= 1, got {most!r}")

    # As bytes -------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        """Canonical JSON (RFC 8785, which is easy here: there are no fractions)."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that identify the release, and nothing else does."""
        return hashlib.sha256(_DOMAIN + self.text.encode()).digest()

    def to_json(self) -> dict[str, Any]:
        """JSON-able, with a version."""
        told: dict[str, Any] = {"identity_version": IDENTITY_VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            told[field.name] = list(value) if isinstance(value, tuple) else value
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ReleaseIdentity:
        """Inverse of `to_json`.

        Raises:
            ValueError: if something is missing, unknown or of another version.
        """
        found = dict(told)
        version = found.pop("identity_version", None)
        if version != IDENTITY_VERSION:
            raise ValueError(f"identity_version must be {IDENTITY_VERSION}, got {version!r}")
        names = {field.name for field in fields(cls)}
        if set(found) != names:
            odd = sorted(set(found) ^ names)
            raise ValueError(f"identity lacks, or does not know: {', '.join(odd)[:MAX_NAME]}")
        if not isinstance(found["columns"], list):
            raise ValueError("columns must be a list of names")
        return cls(**{**found, "columns": tuple(found["columns"])})

    # Others that belong to it ---------------------------------------------------------------

    def of_window(self, start: int, end: int) -> ReleaseIdentity:
        """One window of the release: from `start` to `end`, in microseconds since 1970."""
        return replace(self, part=f"window {start} {end}")

    def of_round(self, number: int) -> ReleaseIdentity:
        """One round of the release, from 0."""
        return replace(self, part=f"round {number}")

    def of_group(self, name: str) -> ReleaseIdentity:
        """One public group of the release."""
        return replace(self, group=name)

    @property
    def permanent(self) -> ReleaseIdentity:
        """What permanent responses are drawn under: the question, whatever the release."""
        return replace(self, release_id="permanent", part="", group="")

    @property
    def question(self) -> ReleaseIdentity:
        """What one release id stands for: all but the part, the group and the key."""
        return replace(self, part="", group="", key="")

    def committed(self, key: bytes) -> ReleaseIdentity:
        """The release with memoized noise under this key.

        Raises:
            ValueError: if it was committed to another one.
        """
        commitment = key_commitment(key)
        if self.key not in ("", commitment):
            raise ValueError(
                "key is not the one that this release was started with (its commitment differs): "
                "reports under two keys are two reports of each person"
            )
        return replace(self, key=commitment)

    def differences(self, other: ReleaseIdentity) -> list[str]:
        """Names of what is not equal in two identities, in words."""
        return [
            _WORDS.get(field.name, field.name)
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]


_WORDS = {
    "release_id": "release id",
    "values": "list, bins or ranges",
    "groups": "list of groups",
    "bounding": "rule that bounds contributions",
    "privacy_unit": "privacy unit",
    "reports_per_envelope": "reports per envelope",
}


def one_row_of(user_id: str) -> str:
    """The rule that draws one row of each person.

    >>> one_row_of("uid")
    'one row of each uid'
    """
    return f"one row of each {user_id}"


def digest_of(*parts: bytes) -> bytes:
    """16 bytes that identify a list of byte strings."""
    return hashlib.sha256(length_prefixed(*parts)).digest()[:16]


def length_prefixed(*parts: bytes) -> bytes:
    """An encoding that no other list of parts shares."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def key_commitment(key: bytes) -> str:
    """16 bytes, hexadecimal, that tell secret keys apart, and nothing about them."""
    return hmac.digest(key, b"beam-ldp key commitment", "sha256")[:16].hex()


def _check_name(argument: str, name: Any, *, empty: bool = False) -> None:
    sound = isinstance(name, str) and len(name) <= MAX_NAME and (empty or name)
    if not sound or not name.isprintable() or _SURROGATE.search(name):
        least = 0 if empty else 1
        raise ValueError(f"{argument} must be printable text of {least} to {MAX_NAME} characters")
