"""The public domain: the values or bins that are counted by name, and the `other` for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.randomizers.identity import digest_of

OTHER = "other"


def written(values: Iterable[Any], name: str = "values") -> tuple[str, ...]:
    """Values of a public list as columns are read: integers as digits, `true` and `false`.

    Everything else has no text of its own in a column, or several: 1.0, None, NaN, bytes, an Enum.

    Args:
        values: of the list.
        name: of the argument, for errors.

    Raises:
        ValueError: naming the argument, and the place and type of what cannot be looked up.

    >>> written(["red", 7, True])
    ('red', '7', 'true')
    """
    if isinstance(values, str | bytes):
        raise ValueError(f"{name} must be a list of values, got {type(values).__name__}")
    return tuple(_written(value, name, i) for i, value in enumerate(values))


def _written(value: Any, name: str, place: int) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__repr__(value)
    raise ValueError(
        f"{name} must hold text, integers or truth values; the value at place {place} is of type "
        f"{type(value).__name__}: write it as the text that the column holds"
    )


@dataclass(frozen=True)
class Domain:
    """A public list of values, mapped to 0, 1, ...; the last index means "any other value".

    The domain is public input and is never derived from the data: a list that was learned from
    people's values would reveal who holds a rare one. A value outside the list becomes `other` on
    the device, before anything is sent.

    Args:
        values: distinct text, in the order of their indices; `written` tells what becomes of
            integers and truth values.
        other: label of the last index; must not be one of the values.

    Raises:
        ValueError: if the list is empty, repeats a value, contains `other`, or a value that no
            column holds.

    >>> domain = Domain(("red", "green"))
    >>> domain.size, domain.encode(["green", "mauve", "red"]).tolist()
    (3, [1, 2, 0])
    >>> domain.decode([2, 0])
    ['other', 'red']
    """

    values: tuple[str, ...] = field(repr=False)
    other: str = OTHER

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", written(self.values))
        if not self.values:
            raise ValueError("values must hold at least one value")
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
            raise ValueError(
                "the domain file must be UTF-8 text, one value per line: convert it, for instance "
                "by `iconv -f WINDOWS-1252 -t UTF-8`"
            ) from None
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


# Public bins of numbers ------------------------------------------------------------------


MAX_BINS = 1 << 20


@dataclass(frozen=True)
class Bins:
    """Neighbouring intervals; each holds its lower edge, the last one its upper edge too.

    A public domain like a list of values: the last index, `other`, stands for every number outside.
    The edges are public input and never derived from the data.

    Args:
        edges: at least two finite numbers, increasing.
        other: label of everything outside.

    Raises:
        ValueError: for edges that are not that.

    >>> bins = Bins.parse("0,10,20,50")
    >>> bins.values, bins.encode(np.array([-1.0, 0.0, 10.0, 50.0, 51.0])).tolist()
    (('[0, 10)', '[10, 20)', '[20, 50]'), [3, 0, 1, 2, 3])
    >>> Bins.parse("0:100:4").edges
    (0.0, 25.0, 50.0, 75.0, 100.0)
    """

    edges: tuple[float, ...]
    other: str = OTHER

    def __post_init__(self) -> None:
        edges = tuple(float(edge) for edge in self.edges)
        if len(edges) < 2 or not all(map(math.isfinite, edges)):
            raise ValueError("bins must have at least two edges, all of them finite numbers")
        if len(edges) > MAX_BINS or any(b <= a for a, b in zip(edges, edges[1:])):
            raise ValueError(f"bins must have increasing edges, at most {MAX_BINS:,} of them")
        object.__setattr__(self, "edges", edges)

    @classmethod
    def parse(cls, text: str) -> Bins:
        """Edges with commas, or `LOW:HIGH:COUNT` for so many bins of one width."""
        try:
            if ":" in text:
                low, high, count = text.split(":")
                number = int(count)
                if not 1 <= number < MAX_BINS:
                    raise ValueError
                return cls(tuple(np.linspace(float(low), float(high), number + 1).tolist()))
            return cls(tuple(float(edge) for edge in text.split(",")))
        except (ValueError, OverflowError) as error:
            said = f" ({error})" if "bins must" in str(error) else ""
            raise ValueError(
                "bins must be edges such as 0,10,20,50 (increasing), or LOW:HIGH:COUNT such as "
                f"0:100:64{said}"
            ) from None

    @property
    def count(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @property
    def size(self) -> int:
        """Number of indices, `other` included."""
        return self.count + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of every index, `other` last."""
        return (*self.values, self.other)

    @property
    def values(self) -> tuple[str, ...]:
        """A name for each bin, which tells its edges apart."""
        ends = [_short(edge) for edge in self.edges]
        if len(set(ends)) < len(ends):
            ends = [repr(edge) for edge in self.edges]
        last = self.count - 1
        return tuple(
            f"[{low}, {high}{']' if i == last else ')'}"
            for i, (low, high) in enumerate(zip(ends, ends[1:]))
        )

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the edges and the name of `other`."""
        parts = (*map(repr, self.edges), self.other)
        encoded = (part.encode("utf-8", "surrogatepass") for part in parts)
        return digest_of(b"bins", *encoded)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Index of each number's bin, int64; numbers outside get the index of `other`, `count`."""
        places = np.searchsorted(self.edges, values, side="right").astype(np.int64) - 1
        places[values == self.edges[-1]] = self.count - 1
        outside = (places < 0) | (places >= self.count) | np.isnan(values)
        return np.where(outside, self.count, places)


def loaded(listed: Any) -> Any:
    """A public list that is at hand, or is read where it is used."""
    return listed.load() if hasattr(listed, "load") else listed


def _short(edge: float) -> str:
    return f"{edge:.12g}"
