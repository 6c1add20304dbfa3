"""Shuffling all reports of a group and window together, by an exchange between workers.

Every report goes to a random shard, and each shard is permuted uniformly. Reading the shards one
after the other then gives a uniformly random order of all reports (Rao 1961, Sandelius 1962).

Where reports are many the shards are exchanged in several parts: some engines give a worker in one
message all that it gets of an exchange.

The shard of a report is a pseudo-random function of a run key and of the position of its row in the
source, so that an engine that recomputes a lost part sends every report where it went before. The
run key is drawn inside the pipeline and is no part of the job graph. Blocks without source
positions draw shards anew.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.randomness import FreshWords, derive_key
from beam_ldp.transforms.elements.block_coder import travels
from beam_ldp.transforms.elements.blocks import ShuffledBlock, WithheldRelease
from beam_ldp.transforms.elements.portable import (
    BLOCK_BYTES,
    report_bytes,
    rows_in,
)
from beam_ldp.transforms.elements.stages import typed_outputs, window_bounds
from beam_ldp.transforms.shuffler.batches import permute, scatter
from beam_ldp.transforms.shuffler.sums import Gate, LetsOut, TakesReports, parts_of, with_none

# Reports as they cross the wire between workers: packed, where that is shorter ------------


WORTH_PACKING = 0.8  # of the bytes in memory; packing and unpacking take some nanoseconds


@travels
@dataclass(frozen=True, eq=False)
class ReportPiece:
    """Some reports of one shard, on their way to it.

    Attributes:
        data: the reports, as `PieceFormat` writes them.
        num_reports: how many.
        mechanism_digest: of the mechanism that made them.
        simulated: whether they were drawn with a seed.
    """

    data: bytes
    num_reports: int
    mechanism_digest: bytes
    simulated: bool

    def __len__(self) -> int:
        return self.num_reports


class PieceFormat:
    """Writes the reports of one mechanism to bytes and reads them back, exactly.

    Integers are written in the wire format of the mechanism if that saves a fifth of the bytes;
    what is real-valued, or dense in memory already, is written as it is.
    """

    def __init__(self, randomizer: LocalRandomizer) -> None:
        self._randomizer = randomizer
        self._digest = randomizer.config_digest()
        in_memory = 8 * report_bytes(randomizer)
        self.packed = (
            randomizer.report_dtype.kind in "iub"
            and randomizer.bits_per_report <= WORTH_PACKING * in_memory
        )

    @property
    def bits_per_report(self) -> int:
        """Bits that cross the wire for one report."""
        if self.packed:
            return self._randomizer.bits_per_report
        return 8 * report_bytes(self._randomizer)

    def write(self, reports: np.ndarray, simulated: bool) -> ReportPiece:
        """The piece of these reports."""
        if self.packed:
            data = self._randomizer.pack(reports)
        else:
            data = np.ascontiguousarray(reports, self._randomizer.report_dtype).tobytes()
        return ReportPiece(data, len(reports), self._digest, simulated)

    def read(self, piece: ReportPiece) -> np.ndarray:
        """The reports of a piece."""
        if self.packed:
            return self._randomizer.unpack(piece.data, piece.num_reports)
        flat = np.frombuffer(piece.data, self._randomizer.report_dtype)
        return flat.reshape(piece.num_reports, *self._randomizer.report_shape)


NUM_SHARDS = 64
SHARD_BYTES = 1 << 26  # of reports in a shard: what a worker holds, permutes and gives on
CACHED_BYTES = 1 << 21  # in a shard that is permuted in a processor's cache: three times as fast
MANY_SHARDS = 1024  # more of them cost more to route to than their caches gain
LARGE_BATCH_BYTES = 1 << 28  # a batch of more is no single worker's job
EXCHANGE_BYTES = 1 << 28  # of reports in one exchange: what an engine may hold several times
MOST_EXCHANGES = 16  # each is some stages of the job
PIECE_REPORTS = 1 << 16  # reports that wait for a piece of one shard
WAITING_BYTES = 1 << 26  # of reports that wait in a bundle, over all shards, groups and windows
RUN_KEY_BYTES = 32


def shards_for(randomizer: LocalRandomizer, num_reports: int) -> int:
    """Shards, a power of two, for a collection of about so many reports: each fits a worker.

    And its cache, where that does not take too many of them.
    """
    size = num_reports * report_bytes(randomizer)
    needed = -(-size // SHARD_BYTES)
    wanted = min(MANY_SHARDS, -(-size // CACHED_BYTES))
    return max(NUM_SHARDS, 1 << (max(needed, wanted) - 1).bit_length())


def exchanges_for(randomizer: LocalRandomizer, num_reports: int) -> int:
    """Exchanges, a power of two, for a collection of about so many reports."""
    wanted = -(-num_reports * report_bytes(randomizer) // EXCHANGE_BYTES)
    return min(MOST_EXCHANGES, 1 << (wanted - 1).bit_length())


def routing_words(run_key: bytes, origin: bytes, count: int) -> np.ndarray:
    """One word per report of a block: the same for the same run key and origin."""
    if not origin:
        return FreshWords().words(0, count, 1)[:, 0]
    key = derive_key(run_key, b"route", origin)[:16]
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)


@dataclass(eq=False)
class _Scatter(TakesReports):
    """Pieces of shards as `((key, shard), ReportPiece)`, by exchange; their numbers as "counts"."""

    num_shards: int
    num_exchanges: int

    def setup(self) -> None:
        super().setup()
        self._format = PieceFormat(self.randomizer)
        self._most = max(1, WAITING_BYTES // report_bytes(self.randomizer))

    def start_bundle(self) -> None:
        self._pieces: dict[Any, list[np.ndarray]] = defaultdict(list)
        self._waiting: dict[Any, int] = defaultdict(int)
        self._all_waiting = 0
        self._counts: dict[Any, int] = defaultdict(int)
        self._simulated = False

    def process(
        self, element: Any, run_key: bytes, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        key, block = self.accepted(element)
        self._simulated |= block.simulated
        with self.blocks.timed():
            words = routing_words(run_key, block.origin, len(block))
            found = [
                piece
                for part, rows in parts_of(key, block)
                for piece in self._route(part, block.reports[rows], words[rows], window)
            ]
        yield from found

    def _route(
        self, key: Any, reports: np.ndarray, words: np.ndarray, window: Any
    ) -> Iterator[Any]:
        self._counts[window, key] += len(reports)
        order, bounds = scatter(words, self.num_shards)
        ordered = reports[order]
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            place = (window, key, shard)
            self._pieces[place].append(ordered[bounds[shard] : bounds[shard + 1]])
            self._waiting[place] += int(bounds[shard + 1] - bounds[shard])
            if self._waiting[place] >= PIECE_REPORTS:
                yield self._piece(place)
        self._all_waiting += len(reports)
        if self._all_waiting >= self._most:  # many shards, groups or windows: none waits for long
            yield from self._everything()

    def _piece(self, place: Any) -> Any:
        window, key, shard = place
        reports = np.concatenate(self._pieces.pop(place))
        self._all_waiting -= self._waiting.pop(place)
        piece = (key, shard), self._format.write(reports, self._simulated)
        return beam.pvalue.TaggedOutput(
            _exchange(shard * self.num_exchanges // self.num_shards),
            WindowedValue(piece, window.max_timestamp(), [window]),
        )

    def _everything(self) -> Iterator[Any]:
        for place in list(self._pieces):
            yield self._piece(place)

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._everything()
        for (window, key), count in self._counts.items():
            yield WindowedValue((key, count), window.max_timestamp(), [window])


def _exchange(number: int) -> str:
    return f"exchange {number}"


class _PermuteShard(LetsOut):
    """One shard in uniformly random order, if all shards together hold enough reports."""

    def setup(self) -> None:
        super().setup()
        self._format = PieceFormat(self.gate.carried.randomizer)

    def process(
        self, element: tuple[tuple[Any, int], Iterable[ReportPiece]], counts: dict[Any, int]
    ) -> Iterator[Any]:
        (key, _), pieces = element
        total = counts[key]
        if total < self.gate.min_reports:
            return
        randomizer = self.gate.carried.randomizer
        held, simulated = [], False
        for piece in pieces:
            held.append(self._format.read(piece))
            simulated |= piece.simulated
        reports = permute(np.concatenate(held), randomizer.messages_per_user)
        digest, rows = randomizer.config_digest(), rows_in(BLOCK_BYTES, report_bytes(randomizer))
        for start in range(0, len(reports), rows):  # in order, so that nothing downstream is large
            part = ShuffledBlock(reports[start : start + rows], digest, total, simulated)
            yield self.exit.let_out(key, len(part), part)


class _SayWithheld(LetsOut):
    def process(
        self, element: tuple[Any, int], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WithheldRelease]:
        key, count = element
        if count < self.gate.min_reports:
            yield self.exit.withhold(key, count, window_bounds(window))


def _draw_run_key(_: bytes) -> bytes:
    return os.urandom(RUN_KEY_BYTES)


def _no_count(randomizer: LocalRandomizer) -> int:
    return 0


def shuffle_globally(
    pcoll: beam.PCollection, gate: Gate, num_shards: int, num_exchanges: int
) -> tuple[list[beam.PCollection], beam.PCollection]:
    """`(parts, withheld)`: collections of `(name, ShuffledBlock)`s, and `WithheldRelease`s."""
    run_key = (
        pcoll.pipeline
        | "Start run" >> beam.Impulse()
        | "Draw run key" >> beam.Map(_draw_run_key).with_output_types(bytes)
        # The exchange fixes the key before anything is routed by it.
        | "Fix run key" >> beam.Reshuffle()
    )
    keyed = gate.inside(int)  # by a key and its count, or its shard
    counted, *exchanges = typed_outputs(
        pcoll,
        "Scatter",
        beam.ParDo(_Scatter(gate, num_shards, num_exchanges), beam.pvalue.AsSingleton(run_key)),
        keyed,
        **{_exchange(i): typehints.Tuple[keyed, ReportPiece] for i in range(num_exchanges)},
    )
    counts = with_none(counted, gate, int, _no_count) | "Count" >> beam.CombinePerKey(sum)
    saying = beam.ParDo(_SayWithheld(gate)).with_output_types(WithheldRelease)
    withheld = counts | "Withheld" >> saying
    parts = []
    for number, pieces in enumerate(exchanges):
        permuting = beam.ParDo(_PermuteShard(gate), beam.pvalue.AsDict(counts))
        parts.append(
            pieces
            | f"Exchange {number}" >> beam.GroupByKey()
            | f"Permute {number}" >> permuting.with_output_types(gate.outside(ShuffledBlock))
        )
    return parts, withheld
