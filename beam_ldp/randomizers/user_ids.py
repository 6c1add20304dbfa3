"""One form of a person's id, whatever type a file gave it: who is the same person, and who is not.

What a person loses is bounded per id, so an id that is read in two forms is two persons who both
report. Everything that tells people apart (memoized noise, the draw of one row, envelopes, shares
of a protocol, hashes for the ledger) compares ids in the form that is made here. It is a function
of the id alone: no other row, file or schema changes it.

* An integer is itself. So is a float without a fraction, into which programs turn integers where
  one is missing, and text that spells an integer in decimal digits, without leading zeros, with
  or without `.0` behind it: 7, 7.0, "7", "7.0" and "7.00" are one person.
* Any other text is itself, byte by byte: "07", "7 ", "+7" and "seven" are persons of their own.
  Text and its UTF-8 bytes are one.
* No ids are: nothing at all (None, NaN, empty text), truth values, numbers with a fraction, and
  numbers that went through a float which may have been another integer before: 2**53 and above,
  and text such as "1e+16", which is how such a float is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

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
