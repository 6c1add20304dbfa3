"""The device's half of a release: a person's row becomes a report that protects it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.identity import ReleaseIdentity, length_prefixed
from beam_ldp.randomizers.randomness import UserRandomness, report_hashes
from beam_ldp.transforms.device.asked import AskedRecords
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.device.keyed import FRESH, NoiseSource, Trace
from beam_ldp.transforms.elements.blocks import (
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    TableBlock,
    ValueBlock,
)
from beam_ldp.transforms.elements.portable import (
    BLOCK_BYTES,
    PortableRandomizer,
    report_bytes,
    rows_in,
    task_of,
    vector_size,
)
from beam_ldp.transforms.elements.stages import (
    CROWD,
    StageError,
    Stopwatch,
    check_key,
    counter,
    distribution,
    element_of,
    expect,
    typed_outputs,
)
from beam_ldp.transforms.elements.windows import DEFAULT_RULES, WindowRules

Waiting = Callable[[beam.PCollection], beam.PCollection]
BLOCK_VALUES = 1 << 16  # numbers that wait until they make a block
ORIGIN_BYTES = 16


@dataclass(eq=False, repr=False)
class Randomize(beam.PTransform):
    """Turns values into locally private reports.

    Protects each value against everybody who sees the reports, with the local epsilon of
    `randomizer`; not against the machine on which this stage runs.

    In: `ValueBlock`s; or arrays, single values, rows and Arrow batches with one field, typed or
    not; each of them also as `(key, ...)` where the type is declared. Values are what the
    randomizer takes: indices for a frequency oracle (`EncodeRows` makes them from text), vectors
    for a mean mechanism (`EncodeVectors` makes them from columns).
    An array is a block of many values if it has one dimension more than a value, and one value if
    it has as many: for vectors of several numbers a two-dimensional array is a block and a
    one-dimensional array (or list, or tuple) is ONE vector; for everything else (indices, and
    means of dimension 1) a one-dimensional array is a block.
    Out: `ReportBlock`s of at most some megabytes, or `(key, ReportBlock)`. Where noise is memoized,
    attribute `traces`: `Trace`s of who sent which report, from which a digest is made.

    Args:
        randomizer: the mechanism.
        noise: where the noise comes from; default: fresh for every report.

    Raises:
        ValueError: at run time for values outside the randomizer's domain, missing user ids, or a
            key that is not the release's. Values are never quoted.
    """

    randomizer: LocalRandomizer
    _: KW_ONLY
    noise: NoiseSource = FRESH

    def __post_init__(self) -> None:
        self._carried = PortableRandomizer(self.randomizer)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = element_of(pcoll)
        if element.kind in (ReportBlock, ShuffledBlock, ShuffledSum, StatisticBlock):
            raise StageError(
                f"Randomize takes raw values, got {element.kind.__name__}: these elements are "
                "already past this stage"
            )
        if element.kind is TableBlock:
            expect("Randomize", pcoll, ValueBlock, task=task_of(self.randomizer))
        check_key("Randomize", element)
        reports = element.of(ReportBlock)
        how = self._carried, self.noise, element.keyed
        if not self.noise.memoized:
            doer = beam.ParDo(RandomizeBlocks(*how))
            return pcoll | "Randomize" >> doer.with_output_types(reports)
        traced = beam.ParDo(RandomizeTraced(*how))
        released, traces = typed_outputs(pcoll, "Randomize", traced, reports, traces=Trace)
        released.traces = traces
        return released

    def display_data(self) -> dict[str, Any]:
        local_epsilon = self.randomizer.local_epsilon
        return {
            "mechanism": type(self.randomizer).__name__,
            "local_epsilon": DisplayDataItem(local_epsilon, label="Local epsilon"),
            "memoized": self.noise.memoized,
            "simulated": self.noise.simulated,
        }


@dataclass(eq=False)
class RandomizeBlocks(beam.DoFn):
    """Randomizes block by block; loose values wait until there are enough for a block."""

    carried: PortableRandomizer
    noise: NoiseSource
    keyed: bool

    def setup(self) -> None:
        self._randomizer = self.carried.randomizer
        self._size = vector_size(self._randomizer)
        self._rows = rows_in(BLOCK_BYTES, report_bytes(self._randomizer))
        self._digest = self._randomizer.config_digest()
        self._key = self.noise.key()
        log = self.noise.log
        self._records = None if log is None else AskedRecords(log, self._randomizer)
        self._randomized = counter("reports_randomized")
        self._sizes = distribution("randomize_block_reports")
        self._timed = Stopwatch("randomize_microseconds", CROWD)

    def start_bundle(self) -> None:
        self._loose: dict[Any, list[Any]] = defaultdict(list)
        if self._records is not None:
            self._records.begin()

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        key, payload = element if self.keyed else (None, element)
        block = self._as_block(payload)
        if block is not None:
            yield from self._emit(key, block, window)
            return
        waiting = self._loose[window, key]
        waiting.append(_as_value(payload, self._size))
        if len(waiting) >= self._waiting_values:
            yield from self._emit(key, ValueBlock(_stack(waiting)), window)
            waiting.clear()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for (window, key), waiting in self._loose.items():
            if waiting:
                for block in self._emit(key, ValueBlock(_stack(waiting)), window):
                    yield WindowedValue(block, window.max_timestamp(), [window])
        self._loose.clear()
        if self._records is not None:
            self._records.write()

    @property
    def _waiting_values(self) -> int:
        return max(1, BLOCK_VALUES // (self._size or 1))

    def _as_block(self, payload: Any) -> ValueBlock | None:
        """The payload, if it holds many values."""
        if isinstance(payload, ValueBlock):
            return payload
        array = _as_array(payload)
        if array is None or (array.ndim == 1 and self._size is not None):
            return None
        return ValueBlock(array)

    def _emit(self, key: Any, block: ValueBlock, window: Any) -> Iterator[Any]:
        """The reports, in blocks of limited size: each of its own noise, origin and retry."""
        for start in range(0, len(block), self._rows):
            part = block.rows(start, start + self._rows) if len(block) > self._rows else block
            origin = origin_of(part, window, key)
            rng = self._rng(part, origin, window)
            with self._timed(len(part)):
                drawn = self._randomizer.randomize(part.values, rng)
            if self._records is not None:
                self._records.add(part, drawn, window)
            reports = ReportBlock(drawn, self._digest, part.groups, origin, self.noise.simulated)
            self._randomized.inc(len(reports))
            self._sizes.update(len(reports))
            yield (key, reports) if self.keyed else reports
            yield from self._left_behind(part, drawn, window)

    def _left_behind(self, block: ValueBlock, drawn: Any, window: Any) -> Iterator[Any]:
        """What else comes of a block: nothing, where no repetition can be told."""
        return iter(())

    def _drawn_under(self, window: Any) -> ReleaseIdentity:
        """What memoized noise is a function of, beside key, user and value."""
        return self.noise.of(window)

    def _rng(self, block: ValueBlock, origin: bytes, window: Any) -> Any:
        if self._key is not None:
            if block.user_ids is None:
                raise ValueError(
                    "memoized randomization needs user ids: give ValueBlock(values, user_ids), or "
                    "name the user id column"
                )
            return UserRandomness(self._key, block.user_ids, self._drawn_under(window))
        if self.noise.seed is None:
            return None
        if not origin:  # nothing tells this block from another: new noise rather than repeated
            return np.random.default_rng()
        return np.random.default_rng(np.random.SeedSequence([self.noise.seed, *origin]))


class RandomizeTraced(RandomizeBlocks):
    """Says of memoized reports who sent which, in hashes."""

    def _left_behind(self, block: ValueBlock, drawn: Any, window: Any) -> Iterator[Any]:
        assert self._key is not None and block.user_ids is not None
        packed, identity = self._randomizer.pack_each(drawn), self._drawn_under(window)
        hashes = report_hashes(self._key, block.user_ids, packed, identity, block.groups)
        yield TaggedOutput("traces", Trace(block.user_ids, hashes, block.groups))


def origin_of(block: ValueBlock, window: Any, key: Any = None) -> bytes:
    """What identifies the block on every retry, in this window and key; empty if nothing does."""
    if block.positions is None:
        return b""
    where = b"global" if isinstance(window, GlobalWindow) else repr(window).encode()
    parts = (block.source.encode(), _placed(block.positions), where, repr(key).encode())
    return hashlib.blake2b(length_prefixed(*parts), digest_size=ORIGIN_BYTES).digest()


def _placed(positions: np.ndarray) -> bytes:
    """The positions as bytes; consecutive ones, the usual case, by their ends."""
    if len(positions) and np.all(positions[1:] - positions[:-1] == 1):
        return b"%d to %d" % (positions[0], positions[-1])
    return np.ascontiguousarray(positions, dtype="<i8").tobytes()


def _as_array(payload: Any) -> np.ndarray | None:
    if isinstance(payload, np.ndarray) and payload.ndim:
        return payload
    if isinstance(payload, (pa.RecordBatch, pa.Table)):
        if payload.num_columns != 1:
            raise ValueError(
                "Randomize takes Arrow batches of one column; use EncodeRows or EncodeVectors to "
                "choose columns"
            )
        payload = payload.column(0)
    if isinstance(payload, pa.ChunkedArray):
        payload = payload.combine_chunks()
    if isinstance(payload, pa.Array):
        if payload.null_count:
            raise ValueError(
                "Randomize takes no nulls; EncodeRows and EncodeVectors send them to the dead "
                "letters"
            )
        if pa.types.is_nested(payload.type):
            raise ValueError("Randomize takes no columns of lists; use EncodeVectors")
        return payload.to_numpy(zero_copy_only=False)
    return None


def _as_value(payload: Any, size: int | None) -> Any:
    """A single value: a number, or a vector of `size` numbers."""
    if isinstance(payload, dict):
        payload = _only(tuple(payload.values()))
    elif hasattr(payload, "as_dict") or hasattr(payload, "_fields"):  # beam.Row, named tuples
        payload = _only(tuple(payload))
    if size is None:
        return _only(payload) if isinstance(payload, (tuple, list)) else payload
    listed = isinstance(payload, (tuple, list))
    if not (listed or (isinstance(payload, np.ndarray) and payload.ndim)) or len(payload) != size:
        raise ValueError(
            f"Randomize takes vectors of {size} numbers, or two-dimensional arrays of them; use "
            "EncodeVectors where they may be of another form"
        )
    return payload


def _only(fields: Sequence[Any]) -> Any:
    if len(fields) != 1:
        raise ValueError(
            "Randomize takes rows of one field; use EncodeRows or EncodeVectors to choose one. A "
            "pair of key and value needs a declared type: .with_output_types(tuple[str, int])"
        )
    return fields[0]


def _stack(waiting: list[Any]) -> np.ndarray:
    try:
        array = np.asarray(waiting)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.hasobject or array.dtype.kind in "US":
        raise ValueError(
            "Randomize takes numbers; EncodeRows turns other values into indices, EncodeVectors "
            "into vectors"
        )
    return array


@dataclass(frozen=True)
class Values:
    """What people have, before anything protects it.

    Attributes:
        values: `ValueBlock`s; where one row of each person is drawn, every person once.
        bad_rows: `BadRowBlock`s of rows that cannot be used; None where values come encoded.
        late: `WithheldRelease`s about rows that came too late for their window, if any can.
    """

    values: beam.PCollection
    bad_rows: beam.PCollection | None = None
    late: beam.PCollection | None = None


@dataclass(frozen=True)
class Reports:
    """What leaves devices, and what stays with them.

    Attributes:
        reports: `ReportBlock`s, the only collection that protects anybody; None of several rounds.
        persons: `ValueBlock`s with every person once; None where each row is a person.
        bad_rows, late: as in `Values`.
        traces: `Trace`s of who sent which report, where noise is memoized.
    """

    reports: beam.PCollection | None
    persons: beam.PCollection | None = None
    bad_rows: beam.PCollection | None = None
    late: beam.PCollection | None = None
    traces: beam.PCollection | None = None


@dataclass(eq=False, repr=False)
class DeviceSide(beam.PTransform):
    """Encodes rows, draws one of each person, and randomizes it.

    Protects each value with the randomizer's local epsilon against everybody who sees the reports;
    nobody from the machines that this half runs on.

    In: what the encoder takes. Out: `Reports`.

    Args:
        encoder: rows to `ValueBlock`s, from a question.
        randomizer: the mechanism.
        noise: where noise comes from.
        one_each: whether one row of each person is drawn, whose ids stand in the blocks.
        windows: for unbounded data: when windows close, and what becomes of late rows.
        wait: what the blocks of people go through before they are asked, if anything.
    """

    encoder: beam.PTransform
    randomizer: LocalRandomizer
    _: KW_ONLY
    noise: NoiseSource = FRESH
    one_each: bool = False
    windows: WindowRules = DEFAULT_RULES
    wait: Waiting | None = None

    def __post_init__(self) -> None:
        self._randomize = Randomize(self.randomizer, noise=self.noise)

    def values(self, rows: beam.PCollection) -> Values:
        """The first two steps, for whoever randomizes and writes in one."""
        encoded = rows | "Encode" >> self.encoder
        bad_rows = getattr(encoded, "bad_rows", None)
        if not self.one_each:
            return Values(encoded, bad_rows)
        bound = BoundContributions(noise=self.noise, windows=self.windows)
        drawn = encoded | "Bound" >> bound
        return Values(drawn, bad_rows, getattr(drawn, "late", None))

    def expand(self, rows: beam.PCollection) -> Reports:
        found = self.values(rows)
        values = found.values if self.wait is None else self.wait(found.values)
        reports = values | "Randomize" >> self._randomize
        return Reports(
            reports,
            values if self.one_each else None,
            found.bad_rows,
            found.late,
            getattr(reports, "traces", None),
        )
