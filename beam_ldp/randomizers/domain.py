"""The public domain: which values are counted by name, and the `other` that stands for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from beam_ldp.randomizers.identity import digest_of

OTHER = "other"


@dataclass(frozen=True)
class Domain:
    """A public list of values, mapped to 0, 1, ...; the last index means "any other value".

    The domain is public input and is never derived from the data: a list that was learned from
    people's values would reveal who holds a rare one. A value outside the list becomes `other` on
    the device, before anything is sent.

    Args:
        values: distinct strings, in the order of their indices.
        other: label of the last index; must not be one of the values.

    Raises:
        ValueError: if the list is empty, repeats a value, or contains `other`.

    >>> domain = Domain(("red", "green"))
    >>> domain.size, domain.encode(["green", "mauve", "red"]).tolist()
    (3, [1, 2, 0])
    >>> domain.decode([2, 0])
    ['other', 'red']
    """

    values: tuple[str, ...] = field(repr=False)
    other: str = OTHER

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise ValueError("values must hold at least one value")
        if not all(isinstance(value, str) for value in self.values):
            raise ValueError("values must be strings; numbers are written as their text")
        index = {value: i for i, value in enumerate(self.values)}
        if len(index) != len(self.values):
            raise ValueError("values must be distinct; the public list repeats one")
        if self.other in index:
            raise ValueError(f"other must not be one of the values, got {self.other!r}")
        object.__setattr__(self, "_index", index)

    @classmethod
    def from_file(cls, path: str | Path, other: str = OTHER) -> Domain:
        """One value per line, UTF-8. Empty lines are left out."""
        return cls.from_lines(Path(path).read_bytes(), other)

    @classmethod
    def from_lines(cls, content: bytes, other: str = OTHER) -> Domain:
        """The same from the bytes of such a file."""
        try:
            lines = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError:
            raise ValueError("the domain file must be UTF-8 text, one value per line") from None
        return cls(tuple(line for line in lines if line), other)

    @property
    def size(self) -> int:
        """Number of indices, `other` included."""
        return len(self.values) + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of every index, `other` last."""
        return (*self.values, self.other)

    def encode(self, values: Iterable[str]) -> np.ndarray:
        """Index of each value, int64; values outside the list become `other`."""
        index: dict[str, int] = self._index  # type: ignore[attr-defined]
        other = len(self.values)
        return np.fromiter((index.get(value, other) for value in values), dtype=np.int64)

    def decode(self, indices: Iterable[int]) -> list[str]:
        """Name of each index."""
        labels = self.labels
        return [labels[i] for i in indices]

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the list, its order and the name of `other`."""
        parts = (value.encode("utf-8", "surrogatepass") for value in self.labels)
        return digest_of(*parts)
