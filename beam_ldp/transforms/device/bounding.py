"""One report per person: of each person's rows one is drawn uniformly, before anything is sent.

Every row gets a random rank, and the row of a person with the least rank counts. The least of
several ranks can be found in any order, so rows meet in a keyed combine: blocks are cut down to one
candidate per person where they are, then candidates are exchanged by a hash of the person's id.
A person with millions of rows costs one candidate per block.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.randomness import FreshWords, contribution_ranks
from beam_ldp.randomizers.words import smallest_uint
from beam_ldp.transforms.device.keyed import FRESH, NoiseSource
from beam_ldp.transforms.elements.blocks import CandidateBlock, ValueBlock, WithheldRelease
from beam_ldp.transforms.elements.stages import (
    check_fires_once,
    check_streamed,
    check_windows,
    counter,
    expect,
    is_streamed,
)
from beam_ldp.transforms.elements.windows import (
    BOUNDING_EARLY,
    DEFAULT_RULES,
    AddWindow,
    Bounds,
    CloseWindows,
    WindowEnd,
    WindowRules,
    WindowSchedule,
    close_windows,
)

NUM_SHARDS = 64
HELD_ROWS = 1 << 20  # candidates that wait in a worker before they are cut down again,
HELD_BYTES = 1 << 26  # or what they may take, where they are vectors
_HAS_REPORTED = np.uint64(0)  # a rank that no row has
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # splitmix64


@dataclass(eq=False, repr=False)
class BoundContributions(beam.PTransform):
    """Draws one row of each person, uniformly, in every window.

    The estimate then speaks of the mean of the persons' shares, or of the persons' own means: use
    `sampling="iid"` for its errors, which include this draw. Over groups too one row is drawn: a
    person reports in one group.

    In: `ValueBlock`s with user ids. Out: `ValueBlock`s with every person once.

    Args:
        noise: as in `Randomize`. Where it is memoized, the row is the one with the least
            pseudo-random rank of key, user, release and source position, so that a retry draws the
            same one; that needs blocks with source positions, as a simulation does to be
            reproducible.
        num_shards: parts of the exchange. A worker holds the persons of one at a time.
        windows: for unbounded data: when windows close, and what becomes of late rows.

    Unbounded data: a window's rows are drawn from when it closes. Persons whose rows all came late
    are drawn from when the allowed lateness is over; who reported in time does not again. Rows that
    come later still are in `.late`, a collection of `WithheldRelease`.

    Raises:
        ValueError: for arguments that contradict each other, and for session windows, which differ
            from person to person; at run time for blocks without user ids, or without positions in
            memoized mode.
    """

    _: KW_ONLY
    noise: NoiseSource = FRESH
    num_shards: int = NUM_SHARDS
    windows: WindowRules = DEFAULT_RULES

    def __post_init__(self) -> None:
        check_integer("num_shards", self.num_shards, 1)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = expect("BoundContributions", pcoll, ValueBlock)
        if element.keyed:
            raise ValueError(
                "BoundContributions takes ValueBlock without keys: a person could report once per "
                "key. Give groups to EncodeRows or EncodeVectors instead"
            )
        check_windows("BoundContributions", pcoll)
        ranked = pcoll | "Rank rows" >> beam.ParDo(
            _Rank(self.noise, self.num_shards)
        ).with_output_types(typehints.Tuple[int, CandidateBlock])
        if is_streamed(pcoll):
            check_streamed("BoundContributions", pcoll)
            return draw_in_windows(pcoll, ranked, self.windows)
        check_fires_once(
            "BoundContributions", pcoll, "a person with rows in two firings would report twice"
        )
        return (
            ranked
            | "Bring persons together" >> beam.GroupByKey()
            | "Draw rows" >> beam.ParDo(_Draw()).with_output_types(ValueBlock)
        )


@dataclass(eq=False)
class _Rank(beam.DoFn):
    """Ranks every row and sends each person's best one so far to the person's shard."""

    noise: NoiseSource
    num_shards: int

    def setup(self) -> None:
        self._key = self.noise.key()

    def start_bundle(self) -> None:
        self._held: dict[Any, list[CandidateBlock]] = defaultdict(list)

    def process(self, block: ValueBlock, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        if not len(block):
            return
        if block.user_ids is None:
            raise ValueError("one report per person needs user ids: name the user id column")
        for part in block.by_kind():
            yield from self._ranked(part, window)

    def _ranked(self, block: ValueBlock, window: Any) -> Iterator[Any]:
        assert block.user_ids is not None
        ranks = np.maximum(self._ranks(block, window), _HAS_REPORTED + np.uint64(1))
        candidates = CandidateBlock(block.values, block.user_ids, ranks, block.groups)
        held = self._held[window, block.user_ids.dtype.kind == "O"]
        held.append(best_rows([candidates]))
        limit = held_rows(block.values)
        if sum(map(len, held)) >= limit:
            best = best_rows(held)
            held[:] = [best]
            if len(best) >= limit // 2:  # mostly different persons: waiting longer gains little
                held.clear()
                yield from self._send(best)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for (window, _), held in self._held.items():
            if held:
                for element in self._send(best_rows(held)):
                    yield WindowedValue(element, window.max_timestamp(), [window])
        self._held.clear()

    def _ranks(self, block: ValueBlock, window: Any) -> np.ndarray:
        assert block.user_ids is not None
        if self._key is None:
            if self.noise.seed is None or block.positions is None:
                return FreshWords().words(0, len(block), 1)[:, 0]
            entropy = [
                self.noise.seed,
                *block.source.encode(),
                int(block.positions[0]),
                len(block),
            ]
            generator = np.random.default_rng(np.random.SeedSequence(entropy))
            return generator.integers(0, 2**64, len(block), dtype=np.uint64)
        if block.positions is None:
            raise ValueError(
                "the memoized draw of a person's row needs source positions: read the rows from "
                "files, or give ValueBlock(values, user_ids, source=..., positions=...)"
            )
        source = length_prefixed(block.source.encode())
        positions = (
            source + p.to_bytes(8, "little", signed=True) for p in block.positions.tolist()
        )
        return contribution_ranks(self._key, block.user_ids, positions, self.noise.of(window))

    def _send(self, best: CandidateBlock) -> Iterator[tuple[int, CandidateBlock]]:
        for shard, rows in by_shard(best.user_ids, self.num_shards):
            yield shard, _take(best, rows)


class _Draw(beam.DoFn):
    """The persons of one shard, each with the row that counts, in the order of their ids."""

    def setup(self) -> None:
        self._persons = counter("users")

    def process(self, element: tuple[int, Iterable[CandidateBlock]]) -> Iterator[ValueBlock]:
        shard, blocks = element
        held: dict[bool, list[CandidateBlock]] = defaultdict(list)
        for block in blocks:
            kind = held[block.user_ids.dtype.kind == "O"]
            kind.append(block)
            if sum(map(len, kind)) >= held_rows(block.values) + 2 * len(kind[0]):
                kind[:] = [best_rows(kind)]
        for textual, parts in sorted(held.items()):
            best = best_rows(parts)
            self._persons.inc(len(best))
            yield drawn(best, f"persons {shard} {'text' if textual else 'integer'}")


def drawn(best: CandidateBlock, source: str) -> ValueBlock:
    """Rows that count, as values of persons."""
    positions = np.arange(len(best))
    return ValueBlock(best.values, best.user_ids, best.groups, source, positions)


@dataclass(eq=False)
class _DrawInWindow(CloseWindows[CandidateBlock]):
    """The persons of one shard and window, when it closes; late ones when lateness is over.

    Who has reported stays behind with a rank below all others, so that no late row of theirs wins.
    """

    def setup(self) -> None:
        self._persons = counter("users")

    def add_up(self, blocks: list[CandidateBlock]) -> CandidateBlock:
        return best_rows(blocks)

    def close(
        self, key: int, bounds: Bounds, block: CandidateBlock, last: bool, late: bool
    ) -> WindowEnd[CandidateBlock]:
        new = _take(block, np.flatnonzero(block.ranks != _HAS_REPORTED))
        self._persons.inc(len(new))
        stay = replace(block, ranks=np.full(len(block), _HAS_REPORTED))
        source = f"persons {key} {bounds[0]} {'late' if late else 'in time'}"
        return WindowEnd([(bounds, drawn(new, source))] if len(new) else [], stay)

    def refuse(
        self, key: int, bounds: Bounds, block: CandidateBlock, reason: str
    ) -> Iterator[TaggedOutput]:
        yield TaggedOutput(
            "late", (bounds, WithheldRelease(len(block), 0, reason, "", None, bounds, True))
        )


def draw_in_windows(
    pcoll: beam.PCollection, ranked: beam.PCollection, rules: WindowRules
) -> beam.PCollection:
    """Drawn rows of windows that never end; attribute `late`: of rows that came too late."""
    values, late = close_windows(
        ranked,
        _DrawInWindow(WindowSchedule.of(pcoll, rules, BOUNDING_EARLY)),
        leaving=("Drawn", ValueBlock),
        refused=("late", "Late", WithheldRelease),
        add_window=_AddWindow(),
        lateness=pcoll.windowing.allowed_lateness,
    )
    values.late = late
    return values


class _AddWindow(AddWindow):
    """Ids that are text and ids that are integers never meet in one block."""

    def process(
        self, element: tuple[int, CandidateBlock], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        shard, block = element
        textual = block.user_ids.dtype.kind == "O"
        yield from super().process((2 * shard + textual, block), window)


def held_rows(values: np.ndarray) -> int:
    """How many rows with such values may wait."""
    return min(HELD_ROWS, max(1, HELD_BYTES // max(1, values[:1].nbytes)))


def best_rows(blocks: list[CandidateBlock]) -> CandidateBlock:
    """The row of each person with the least rank, in the order of the ids. O(n log n).

    The result depends only on the set of rows, not on their order: of equal ranks (probability
    2**-64 per pair of rows) the row with the least value counts, of vectors the first one.
    """
    rows = blocks[0] if len(blocks) == 1 else _concatenate(blocks)
    codes = _id_codes(rows.user_ids)
    order = np.argsort(codes, kind="stable")  # quick where blocks are in order, as most files are
    first = _starts(codes[order])
    if not first.all():  # only who has several rows is sorted by their ranks
        several = ~first
        several[:-1] |= several[1:]
        held = order[several]
        tie = () if rows.values.ndim > 1 else (rows.values[held],)
        order[several] = held[np.lexsort((*tie, rows.ranks[held], codes[held]))]
    return _take(rows, order[first])


def _starts(ordered: np.ndarray) -> np.ndarray:
    """Where a new id begins."""
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def _id_codes(ids: np.ndarray) -> np.ndarray:
    """Integers in the order of the ids."""
    if ids.dtype.kind != "O":
        return ids
    distinct = pa.array(ids, pa.large_binary()).dictionary_encode()
    names = distinct.dictionary.to_numpy(zero_copy_only=False)
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(names, kind="stable")] = np.arange(len(names))
    return rank[distinct.indices.to_numpy()]


def shard_of(ids: np.ndarray, num_shards: int) -> np.ndarray:
    """Shard of each id: the same on every worker and in every run."""
    if ids.dtype.kind == "O":
        mixed = np.fromiter(map(_text_hash, ids.tolist()), dtype=np.uint64, count=len(ids))
    else:
        mixed = ids.astype(np.uint64)
    for shift, factor in zip((30, 27), _MIX):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(num_shards)).astype(np.int64)


def by_shard(ids: np.ndarray, num_shards: int) -> Iterator[tuple[int, np.ndarray]]:
    """Each shard that somebody is in, with their rows."""
    shards = shard_of(ids, num_shards).astype(smallest_uint(num_shards))  # few bytes sort quicker
    order = np.argsort(shards, kind="stable")
    bounds = np.searchsorted(shards[order], np.arange(num_shards + 1))
    for shard in np.flatnonzero(np.diff(bounds)).tolist():
        yield shard, order[bounds[shard] : bounds[shard + 1]]


def _text_hash(text: bytes) -> int:
    return zlib.crc32(text) | zlib.adler32(text) << 32


def _take(block: CandidateBlock, rows: np.ndarray) -> CandidateBlock:
    groups = None if block.groups is None else block.groups[rows]
    values = np.take(block.values, rows, axis=0)
    return CandidateBlock(values, block.user_ids[rows], block.ranks[rows], groups)


def _concatenate(blocks: list[CandidateBlock]) -> CandidateBlock:
    groups = [block.groups for block in blocks if block.groups is not None]
    return CandidateBlock(
        np.concatenate([block.values for block in blocks]),
        np.concatenate([block.user_ids for block in blocks]),
        np.concatenate([block.ranks for block in blocks]),
        np.concatenate(groups) if groups else None,
    )
