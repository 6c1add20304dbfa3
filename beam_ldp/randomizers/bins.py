"""Public bins for numbers: `--bins 0,10,20,50,100`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.domain import OTHER
from beam_ldp.randomizers.identity import digest_of

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


def _short(edge: float) -> str:
    return f"{edge:.12g}"
