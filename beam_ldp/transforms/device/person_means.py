"""Many rows of a person to one, inside the trusted edge: their mean.

Sums are of fixed-point numbers, hence exact: a person's mean does not depend on the order in which
rows meet, so a retry gives the same mean, and memoized noise the same report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import apache_beam as beam
import numpy as np
from apache_beam.coders import ListCoder
from apache_beam.typehints import typehints

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.transforms.device.bounding import HELD_ROWS, NUM_SHARDS, by_shard
from beam_ldp.transforms.elements import block_coder
from beam_ldp.transforms.elements.blocks import ValueBlock
from beam_ldp.transforms.elements.stages import check_fires_once, check_windows, counter, expect

if TYPE_CHECKING:
    from beam_ldp.protocols import Space


_ONE = 2.0**32  # of the fixed-point numbers: rounding moves a mean by at most 2**-33 of its range
_MOST_ROWS = 1 << 30


@block_coder.travels
@dataclass(frozen=True, eq=False)
class PersonSums:
    """Sums of rows of persons, each person once, or once in each group. Not private yet.

    Attributes:
        user_ids: as in `ValueBlock`.
        sums: `(n, dimension)` int64, fixed point.
        counts: `(n,)` rows of each person.
        groups: as in `ValueBlock`.
    """

    user_ids: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def textual(self) -> bool:
        return self.user_ids.dtype.kind == "O"

    def rows(self, rows: np.ndarray) -> PersonSums:
        """Some of them."""
        groups = None if self.groups is None else self.groups[rows]
        return PersonSums(self.user_ids[rows], self.sums[rows], self.counts[rows], groups)


@dataclass(eq=False, repr=False)
class MeanPerPerson(beam.PTransform):
    """The mean of each person's rows, in every window. Nothing is private yet.

    With groups a person is in the one that most of the own rows are of (of several, the first in
    the list), and the mean is that of those rows: every person reports in one group. Which one that
    is, is public, as a group always is.

    In: `ValueBlock`s of rows with user ids, as `EncodeVectors(ranges=space.ranges)` makes them.
    Out: `ValueBlock`s with every person once, of means of rows that the space has moved inside.

    Args:
        space: where rows lie.
        num_shards: parts of the exchange. A worker holds the persons of one at a time.

    Raises:
        ValueError: for unbounded data, and windows that fire more than once; at run time for blocks
            without user ids.
    """

    space: Space
    _: KW_ONLY
    num_shards: int = NUM_SHARDS

    def __post_init__(self) -> None:
        check_integer("num_shards", self.num_shards, 1)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("MeanPerPerson", pcoll, ValueBlock)
        check_windows("MeanPerPerson", pcoll)
        if not pcoll.is_bounded:
            raise ValueError(
                "MeanPerPerson takes bounded data: Beam's grouping, which it uses, drops late rows "
                "silently"
            )
        check_fires_once(
            "MeanPerPerson", pcoll, "a person with rows in two firings would report twice"
        )
        return (
            pcoll
            | "Sum rows"
            >> beam.ParDo(_SumRows(self.space, self.num_shards)).with_output_types(
                typehints.Tuple[int, PersonSums]
            )
            | "Bring persons together" >> beam.CombinePerKey(_AddSums())
            | "Divide" >> beam.ParDo(_Divide()).with_output_types(ValueBlock)
        )


@dataclass(eq=False)
class _SumRows(beam.DoFn):
    """Each person's sum within a block, sent to the person's shard."""

    space: Space
    num_shards: int

    def process(self, block: ValueBlock) -> Iterator[tuple[int, PersonSums]]:
        if not len(block):
            return
        if block.user_ids is None:
            raise ValueError("the mean of a person's rows needs user ids: name the user id column")
        for part in block.by_kind():
            yield from self._sums(part)

    def _sums(self, block: ValueBlock) -> Iterator[tuple[int, PersonSums]]:
        assert block.user_ids is not None
        rows = block.values if block.values.ndim > 1 else block.values[:, None]
        fixed = np.rint(self.space.inside(rows) * _ONE).astype(np.int64)
        ones = np.ones(len(block), dtype=np.int64)
        sums = add_sums([PersonSums(block.user_ids, fixed, ones, block.groups)])
        for shard, rows in by_shard(sums.user_ids, self.num_shards):
            yield shard, sums.rows(rows)


class _AddSums(beam.CombineFn):
    """All sums of one shard; blocks wait until adding them up is worth it."""

    def create_accumulator(self) -> list[PersonSums]:
        return []

    def add_input(self, accumulator: list[PersonSums], element: PersonSums) -> list[PersonSums]:
        accumulator.append(element)
        if len(accumulator) > 2 and sum(map(len, accumulator[1:])) > HELD_ROWS + len(
            accumulator[0]
        ):
            return self.compact(accumulator)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[PersonSums]]) -> list[PersonSums]:
        merged: list[PersonSums] = []
        for accumulator in accumulators:
            merged.extend(accumulator)
        return self.compact(merged)

    def compact(self, accumulator: list[PersonSums]) -> list[PersonSums]:
        kinds = ([s for s in accumulator if s.textual is kind] for kind in (False, True))
        return [add_sums(kind) for kind in kinds if kind]

    def extract_output(self, accumulator: list[PersonSums]) -> list[PersonSums]:
        return self.compact(accumulator)

    def get_accumulator_coder(self) -> beam.coders.Coder:
        return ListCoder(block_coder.BlockCoder(PersonSums))


class _Divide(beam.DoFn):
    """The persons of one shard with their means, in the order of their ids."""

    def setup(self) -> None:
        self._persons = counter("users")

    def process(self, element: tuple[int, list[PersonSums]]) -> Iterator[ValueBlock]:
        shard, kinds = element
        for of_kind in kinds:
            sums = _in_one_group(of_kind)
            self._persons.inc(len(sums))
            yield ValueBlock(
                sums.sums / (_ONE * sums.counts[:, None]),
                sums.user_ids,
                sums.groups,
                source=f"persons {shard} {'text' if sums.textual else 'integer'}",
                positions=np.arange(len(sums)),
            )


def _in_one_group(sums: PersonSums) -> PersonSums:
    """Every person once: in the group of most of the own rows."""
    if sums.groups is None:
        return sums
    _, codes = np.unique(sums.user_ids, return_inverse=True)
    order = np.lexsort((sums.groups, -sums.counts, codes))
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return sums.rows(order[first])


def add_sums(blocks: list[PersonSums]) -> PersonSums:
    """The sums of each person and group in blocks of one kind of ids, in the order of the ids.

    Raises:
        ValueError: if a person has more rows than exact sums hold.
    """
    ids = np.concatenate([block.user_ids for block in blocks])
    distinct, codes = np.unique(ids, return_inverse=True)
    groups = None
    if blocks[0].groups is not None:
        groups = np.concatenate([np.asarray(block.groups) for block in blocks]).astype(np.int64)
        size = int(groups.max()) + 1
        both, codes = np.unique(codes * size + groups, return_inverse=True)
        distinct, groups = distinct[both // size], both % size
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(distinct)))
    counts = np.add.reduceat(np.concatenate([block.counts for block in blocks])[order], starts)
    if counts.max() > _MOST_ROWS:
        raise ValueError(f"a person may have at most {_MOST_ROWS} rows")
    sums = np.add.reduceat(np.concatenate([block.sums for block in blocks])[order], starts, axis=0)
    return PersonSums(distinct, sums, counts, groups)
