"""Which releases are one, and which ids are one person: both decide what noise is drawn again.

A `ReleaseIdentity` says which reports may stand together, and which may not. Two releases are the
same only where everything is that can change what a report says or hides: the people (data set),
the name, the question, the mechanism, the rule that bounds contributions, the secret key. The
digest of all that keys the pseudo-random function of memoized noise and names every envelope; the
ledger, `release.json`, `privacy.json` and the tracker carry it. So another question under an old
name draws independent noise, is another release everywhere, and is refused or charged.

`canonical_id` is the one form of a person's id, whatever type a file gave it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

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
        return self._part_of_it(f"window {start} {end}")

    def of_round(self, number: int) -> ReleaseIdentity:
        """One round of the release, from 0."""
        return self._part_of_it(f"round {number}")

    def _part_of_it(self, part: str) -> ReleaseIdentity:
        """A part of what this is: a window of a round is neither of the two alone."""
        return replace(self, part=f"{self.part} {part}".strip())

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


def canonical_text(told: Any) -> str:
    """JSON-able values as ASCII text, the same for equal values."""
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def config_digest(told: Any) -> bytes:
    """16 bytes that identify JSON-able values, such as all parameters of a mechanism."""
    return hashlib.sha256(canonical_text(told).encode()).digest()[:16]


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


# One form of a person's id: who is the same person, and who is not -------------------------
#
# What a person loses is bounded per id, so an id that is read in two forms is two persons who both
# report. Everything that tells people apart (memoized noise, the draw of one row, envelopes, shares
# of a protocol, hashes for the ledger) compares ids in the form that is made here. It is a function
# of the id alone: no other row, file or schema changes it.
#
# * An integer is itself. So is a float without a fraction, into which programs turn integers where
#   one is missing, and text that spells an integer in decimal digits, without leading zeros, with
#   or without `.0` behind it: 7, 7.0, "7", "7.0" and "7.00" are one person.
# * Any other text is itself, byte by byte: "07", "7 ", "+7" and "seven" are persons of their own.
#   Text and its UTF-8 bytes are one.
# * No ids are: nothing at all (None, NaN, empty text), truth values, numbers with a fraction, and
#   numbers that went through a float which may have been another integer before: 2**53 and above,
#   and text such as "1e+16", which is how such a float is written.

FLOAT_LIMIT = 2**53  # below it every float without a fraction was that integer
DECIMAL = r"^(-?(?:0|[1-9][0-9]*))(\.0+)?$"
OF_A_FLOAT = r"^-?[0-9](?:\.[0-9]+)?[eE]\+[0-9]+$"

_DECIMAL = re.compile(DECIMAL.encode().replace(b"$", rb"\Z"))
_OF_A_FLOAT = re.compile(OF_A_FLOAT.encode().replace(b"$", rb"\Z"))
_FIRST_OF_NUMBERS = frozenset(b"-0123456789")
_INT64 = np.iinfo(np.int64)
_MAY_OVERFLOW = len(str(_INT64.max))  # digits
_EXACT_BELOW = {2: 2**11, 4: 2**24, 8: FLOAT_LIMIT}  # by the bytes of a float

AnyIds = np.ndarray | Iterable[str | bytes | int | float]


@dataclass(frozen=True, eq=False)
class UserIds:
    """Ids in the form in which they are compared.

    Iterating gives an `int` of 64 bits or the bytes of a text for each; integers of more bits are
    the text of their digits.

    Attributes:
        integers: `(n,)` int64; anything where the id is a text.
        texts: `(n,)` bytes, None where the id is an integer; None where all are.
    """

    integers: np.ndarray
    texts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.integers)

    def __iter__(self) -> Iterator[int | bytes]:
        integers = self.integers.tolist()
        if self.texts is None:
            return iter(integers)
        return (i if text is None else text for i, text in zip(integers, self.texts.tolist()))

    def __getitem__(self, rows: slice | np.ndarray) -> UserIds:
        return UserIds(self.integers[rows], None if self.texts is None else self.texts[rows])

    @property
    def array(self) -> np.ndarray:
        """`(n,)` int64, or objects: bytes, and an integer as the bytes of its digits."""
        if self.texts is None:
            return self.integers
        out = np.empty(len(self), dtype=object)
        out[:] = [i if isinstance(i, bytes) else b"%d" % i for i in self]
        return out

    def kinds(self) -> Iterator[tuple[np.ndarray | slice, UserIds]]:
        """`(rows, their ids)`: the integers, then the texts; a kind that no row has is left out."""
        if self.texts is None:
            yield slice(None), self
            return
        textual = np.array([text is not None for text in self.texts.tolist()], dtype=bool)
        if not textual.all():
            yield ~textual, UserIds(self.integers[~textual])
        if textual.any():
            yield textual, self[textual]


def canonical_ids(user_ids: AnyIds | UserIds) -> UserIds:
    """Ids of any kind in the form in which they are compared.

    Arrays of integers of 64 bits are not looked at one by one; other ids cost about 0.2
    microseconds each.

    Raises:
        TypeError, ValueError: if one is no id. It is not quoted.
    """
    if isinstance(user_ids, UserIds):
        return user_ids
    if isinstance(user_ids, np.ndarray) and user_ids.dtype.kind in "iuf":
        if user_ids.dtype.kind == "f":
            return UserIds(_of_floats(user_ids))
        if user_ids.dtype != np.uint64 or not user_ids.size or user_ids.max() <= _INT64.max:
            return UserIds(user_ids.astype(np.int64))
    listed = user_ids.tolist() if isinstance(user_ids, np.ndarray) else list(user_ids)
    if set(map(type, listed)) == {int}:
        try:
            return UserIds(np.array(listed, dtype=np.int64))
        except OverflowError:
            pass
    found = list(map(canonical_id, listed))
    integers = np.array([0 if isinstance(i, bytes) else i for i in found], dtype=np.int64)
    texts = np.empty(len(found), dtype=object)
    texts[:] = [i if isinstance(i, bytes) else None for i in found]
    return UserIds(integers, texts if any(text is not None for text in texts) else None)


def canonical_id(user_id: object) -> int | bytes:
    """One id in the form in which it is compared.

    Raises:
        TypeError, ValueError: if it is none. It is not quoted.

    >>> [canonical_id(i) for i in (7, 7.0, "7", "7.0", b"7")]
    [7, 7, 7, 7, 7]
    >>> [canonical_id(i) for i in ("07", "7 ", 2**63)]
    [b'07', b'7 ', b'9223372036854775808']
    """
    if isinstance(user_id, str):
        return _of_text(user_id.encode("utf-8", "surrogatepass"))
    if isinstance(user_id, bytes):
        return _of_text(user_id)
    if isinstance(user_id, (int, np.integer)) and not isinstance(user_id, bool):
        return _of_integer(int(user_id))
    if isinstance(user_id, (float, np.floating)):
        return int(_of_floats(np.array([user_id]))[0])
    raise TypeError("user_ids must be integers, text or bytes")


def _of_text(text: bytes) -> int | bytes:
    if not text:
        raise ValueError("user_ids must not be empty")
    if text[0] not in _FIRST_OF_NUMBERS:
        return text
    spelled = _DECIMAL.match(text)
    if spelled is not None:
        digits, fraction = spelled.groups()
        if len(digits) <= _MAY_OVERFLOW + 1:
            found = _of_integer(int(digits))
            if fraction is None or (isinstance(found, int) and abs(found) < FLOAT_LIMIT):
                return found
        elif fraction is None:
            return text
    if spelled is not None or _OF_A_FLOAT.match(text):
        raise ValueError("user_ids must be below 2**53 where they went through floats")
    return text


def _of_integer(value: int) -> int | bytes:
    return value if _INT64.min <= value <= _INT64.max else b"%d" % value


def _of_floats(values: np.ndarray) -> np.ndarray:
    if not is_integral(values).all():
        raise ValueError("user_ids that are floats must be integers below 2**53, without NaN")
    return values.astype(np.int64)


def is_integral(values: np.ndarray) -> np.ndarray:
    """Which floats can have been one integer only."""
    with np.errstate(invalid="ignore"):  # NaN
        sure: np.ndarray = (values == np.trunc(values)) & (
            np.abs(values) < _EXACT_BELOW.get(values.dtype.itemsize, FLOAT_LIMIT)
        )
    return sure
