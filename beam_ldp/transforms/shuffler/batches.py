"""Shuffling in batches: permuted where the reports are, leftovers brought together.

Every bundle cuts its reports into batches of at least `min_reports`, permutes and releases them,
and keeps one last batch, of at least `min_reports` where it has that many, for an exchange in which
the leftovers of a group and window meet. Small collections take part in the exchange whole. So the
exchange always has enough for a batch unless all reports together are too few, and then nothing has
been released either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.randomness import FreshWords
from beam_ldp.randomizers.words import kernel, multiply_high, short_kernel
from beam_ldp.transforms.elements.blocks import ReportBlock, ShuffledBlock, WithheldRelease
from beam_ldp.transforms.elements.portable import BLOCK_BYTES, report_bytes, rows_in
from beam_ldp.transforms.elements.stages import typed_outputs, window_bounds
from beam_ldp.transforms.shuffler.sums import Exit, Gate, LetsOut, TakesReports, parts_of, with_none

# Uniformly random order, from secure words. Exactly uniform: no draw is rounded -----------
#
# Fisher-Yates, backwards: position i swaps with a position drawn from [0, i]. The draw is the
# high half of word * (i + 1); the few words that would favour a position are thrown away (Lemire
# 2019).


_CHUNK = 1 << 16


def permute(reports: np.ndarray, messages: int = 1) -> np.ndarray:
    """The reports in uniformly random order, in a new array.

    Args:
        reports: `(n, ...)` array; with several messages per user `(n, messages, ...)`, whose
            columns are permuted independently, so that nothing ties a person's messages together.
        messages: messages per user.

    O(n) time and memory, one secure word per report and message.
    """
    if messages > 1:
        columns = np.ascontiguousarray(np.moveaxis(reports, 1, 0))
        if columns.ndim == 2:
            _shuffle_in_place(columns)
        else:
            columns = np.stack([permute(column) for column in columns])
        return np.ascontiguousarray(np.moveaxis(columns, 0, 1))
    if reports.ndim == 1:
        out = np.array(reports)
        _shuffle_in_place(out[None, :])
        return out
    order = np.arange(len(reports))
    _shuffle_in_place(order[None, :])
    return reports[order]


def _shuffle_in_place(columns: np.ndarray) -> None:
    """Every row of a C-contiguous array `(columns, n)` by itself."""
    count, length = columns.shape
    source = FreshWords()
    column, left = 0, length
    while column < count and length > 1:
        needed = (count - column - 1) * (length - 1) + left - 1
        words = source.words(0, min(needed, _CHUNK), 1)[:, 0]
        column, left = _fisher_yates(columns, column, left, words)


@short_kernel
def _fisher_yates(columns, column, left, words):  # type: ignore[no-untyped-def]
    """Place one entry per word, from position left - 1 of the column down.

    Returns the column and the number of its entries where the next word goes on.
    """
    for word in words:
        bound = np.uint64(left)
        low = word * bound
        if low < bound and low < (np.uint64(0) - bound) % bound:
            continue  # a word that would make some positions likelier than others
        j = multiply_high(word, bound)  # type: ignore[arg-type]
        held = columns[column, left - 1]
        columns[column, left - 1] = columns[column, j]
        columns[column, j] = held
        left -= 1
        if left == 1:
            column += 1
            left = columns.shape[1]
    return column, left


def scatter(words: np.ndarray, num_shards: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows ordered by a random shard each; a power of two of shards makes it exactly uniform.

    Returns:
        `(order, bounds)`: rows `order[bounds[s] : bounds[s + 1]]` go to shard s.
    """
    order = np.empty(len(words), dtype=np.int64)
    bounds = np.zeros(num_shards + 1, dtype=np.int64)
    _scatter(words, np.uint64(num_shards), order, bounds)
    return order, bounds


@kernel
def _scatter(words, num_shards, order, bounds):  # type: ignore[no-untyped-def]
    for word in words:
        bounds[multiply_high(word, num_shards) + 1] += 1
    for s in range(bounds.size - 1):
        bounds[s + 1] += bounds[s]
    at = bounds[:-1].copy()
    for i in range(words.size):
        s = multiply_high(words[i], num_shards)
        order[at[s]] = i
        at[s] += 1


BATCH_REPORTS = 1 << 20  # a batch that keeps the permutation inside the cache, and memory flat
# A batch of fewer reports is not cut where the bundle ends: small collections become one batch.
SMALL_REPORTS = 1 << 18
KEPT_REPORTS = 1 << 16  # kept back at least, so that the last batch is not by far the smallest


class BatchCutter:
    """Cuts a stream of reports into permuted batches, always keeping `min_reports` or more back.

    Args:
        randomizer: the mechanism.
        min_reports: least size of a batch.
    """

    def __init__(self, randomizer: LocalRandomizer, min_reports: int) -> None:
        self._messages = randomizer.messages_per_user
        self._digest = randomizer.config_digest()
        self._dtype, self._shape = randomizer.report_dtype, randomizer.report_shape
        fitting = rows_in(BLOCK_BYTES, report_bytes(randomizer))  # fewer where reports are long
        self._keep = max(min_reports, min(KEPT_REPORTS, fitting))
        self._small = max(min_reports, min(SMALL_REPORTS, fitting))
        self._batch = max(min_reports, min(BATCH_REPORTS, fitting))
        self._waiting: list[np.ndarray] = []
        self._count = 0
        self._simulated = False

    def __len__(self) -> int:
        return self._count

    def add(self, reports: np.ndarray, simulated: bool) -> Iterator[ShuffledBlock]:
        """Take reports in; what can be released by now."""
        self._simulated |= simulated
        if not len(reports):
            return
        self._waiting.append(reports)
        self._count += len(reports)
        if self._count >= self._batch + self._keep:
            yield self._cut()

    def end_bundle(self) -> Iterator[ShuffledBlock]:
        """Release a last batch if what is kept back is enough without it."""
        if self._count >= self._small + self._keep:
            yield self._cut()

    def _cut(self) -> ShuffledBlock:
        reports = self._take()
        released, kept = reports[: -self._keep], reports[-self._keep :]
        self._waiting, self._count = [kept.copy()], len(kept)
        return self._permuted(released)

    def last(self) -> Iterator[ShuffledBlock]:
        """Release everything that is left."""
        if self._count:
            yield self._permuted(self._take())

    def leftover(self) -> ReportBlock:
        """What is left, for the exchange."""
        return ReportBlock(self._take(), self._digest, simulated=self._simulated)

    def _take(self) -> np.ndarray:
        if not self._waiting:
            return np.empty((0, *self._shape), dtype=self._dtype)
        return self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)

    def _permuted(self, reports: np.ndarray) -> ShuffledBlock:
        shuffled = permute(reports, self._messages)
        return ShuffledBlock(shuffled, self._digest, len(shuffled), self._simulated)


class _CutBatches(TakesReports):
    """Releases what a bundle can release by itself; the rest goes out as "leftover"."""

    def setup(self) -> None:
        super().setup()
        self._exit = Exit(self.gate)

    def start_bundle(self) -> None:
        self._cutters: dict[Any, BatchCutter] = {}

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        key, block = self.accepted(element)
        with self.blocks.timed():
            found = [
                TimestampedValue(batch, window.max_timestamp())
                for part, rows in parts_of(key, block)
                for batch in self._cut(part, block.reports[rows], block.simulated, window)
            ]
        yield from found

    def _cut(self, key: Any, reports: np.ndarray, simulated: bool, window: Any) -> Iterator[Any]:
        cutter = self._cutters.get((window, key))
        if cutter is None:
            cutter = BatchCutter(self.randomizer, self.gate.min_reports)
            self._cutters[window, key] = cutter
        for batch in cutter.add(reports, simulated):
            yield self._exit.let_out(key, len(batch), batch)

    def finish_bundle(self) -> Iterator[Any]:
        for (window, key), cutter in self._cutters.items():
            end = window.max_timestamp()
            for batch in cutter.end_bundle():
                yield WindowedValue(self._exit.let_out(key, len(batch), batch), end, [window])
            rest = WindowedValue((key, cutter.leftover()), end, [window])
            yield beam.pvalue.TaggedOutput("leftover", rest)
        self._cutters = {}


class _MergeLeftovers(LetsOut):
    """The exchange: leftovers of one group and window become its last batches."""

    def process(
        self,
        element: tuple[Any, Iterable[ReportBlock]],
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        key, leftovers = element
        cutter = BatchCutter(self.gate.carried.randomizer, self.gate.min_reports)
        for leftover in leftovers:
            for batch in cutter.add(leftover.reports, leftover.simulated):
                yield self.exit.let_out(key, len(batch), batch)
        if len(cutter) < self.gate.min_reports:
            said = self.exit.withhold(key, len(cutter), window_bounds(window))
            yield beam.pvalue.TaggedOutput("withheld", said)
            return
        for batch in cutter.last():
            yield self.exit.let_out(key, len(batch), batch)


def _no_leftover(randomizer: LocalRandomizer) -> ReportBlock:
    return BatchCutter(randomizer, 1).leftover()


def shuffle_in_batches(
    pcoll: beam.PCollection, gate: Gate
) -> tuple[list[beam.PCollection], beam.PCollection]:
    """`(parts, withheld)`: two collections of `(name, ShuffledBlock)`s, and `WithheldRelease`s."""
    blocks = gate.outside(ShuffledBlock)
    cut, left = typed_outputs(
        pcoll,
        "Cut batches",
        beam.ParDo(_CutBatches(gate)),
        blocks,
        leftover=gate.inside(ReportBlock),
    )
    together = (
        with_none(left, gate, ReportBlock, _no_leftover) | "Bring together" >> beam.GroupByKey()
    )
    merged, withheld = typed_outputs(
        together,
        "Last batches",
        beam.ParDo(_MergeLeftovers(gate)),
        blocks,
        withheld=WithheldRelease,
    )
    return [cut, merged], withheld
