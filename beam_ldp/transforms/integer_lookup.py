"""Columns of integers looked up in a list of text, without making text of them."""

from __future__ import annotations

import re

import numpy as np

from beam_ldp.randomizers.domain import Domain

_LARGEST_TABLE = 1 << 22
_MOST = 2**63 - 1
_WRITTEN_INTEGER = re.compile("0|-?[1-9][0-9]*", re.ASCII)


class IntegerLookup:
    """The integers among the values of a list, to look up columns of integers without text."""

    def __init__(self, domain: Domain) -> None:
        self._other = domain.size - 1
        written = {
            int(value): i
            for i, value in enumerate(domain.values)
            if len(value) <= 20 and _WRITTEN_INTEGER.fullmatch(value)
        }
        numbers = sorted(n for n in written if -_MOST <= n <= _MOST)
        self._first, self._last = (numbers[0], numbers[-1]) if numbers else (0, -1)
        self._sorted = np.array(numbers, dtype=np.int64)
        self._indices = np.array([written[n] for n in numbers], dtype=np.int64)
        self._table: np.ndarray | None = None
        if self._last - self._first < _LARGEST_TABLE:
            dtype = np.min_scalar_type(self._other)
            self._table = np.full(max(0, self._last - self._first + 1), self._other, dtype=dtype)
            self._table[self._sorted - self._first] = self._indices

    def look_up(self, values: np.ndarray) -> np.ndarray:
        """Index of each integer. O(n), or O(n log k) where those of the list lie far apart."""
        if not len(self._sorted) or not len(values):
            return np.full(len(values), self._other)
        if self._table is not None and self._first <= values.min() and values.max() <= self._last:
            return self._table[values.astype(np.int64) - self._first if self._first else values]
        inside = values <= np.uint64(_MOST) if values.dtype == np.uint64 else True
        values = values.astype(np.int64)
        inside = inside & (values >= self._first) & (values <= self._last)
        safe = np.where(inside, values, self._first)
        if self._table is not None:
            found = self._table[safe - self._first]
        else:
            at = np.searchsorted(self._sorted, safe)
            inside = inside & (self._sorted[at] == safe)
            found = self._indices[at]
        return np.where(inside, found, found.dtype.type(self._other))
