"""The envelopes of a file, each checked; the sound ones in blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import TaggedOutput

from beam_ldp.randomizers.wire import ID_BYTES, NO_ID, Envelope, EnvelopeError, decode_envelope
from beam_ldp.randomizers.wire_stream import split_stream
from beam_ldp.transforms.block_coder import ARRAY, TEXT, register
from beam_ldp.transforms.blocks import BadRowBlock
from beam_ldp.transforms.counters import ByReason, counter
from beam_ldp.transforms.mechanisms import BLOCK_BYTES, report_bytes, rows_in
from beam_ldp.transforms.report_terms import BINARY, CarriedTerms

BAD_REPORTS = "bad_reports"


@dataclass(frozen=True, eq=False)
class EnvelopeBlock:
    """What many envelopes of one file held, in their order.

    Attributes:
        source: the file.
        offsets: `(m,)` where each envelope begins.
        counts: `(m,)` reports in each.
        ids: `(m, 16)` uint8; zeros where there is none.
        reports: of all of them, one after the other.
        groups: `(m,)` index of each envelope's group; None where there are no groups.
    """

    source: str
    offsets: np.ndarray
    counts: np.ndarray
    ids: np.ndarray
    reports: np.ndarray
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets)


register(
    EnvelopeBlock,
    source=TEXT,
    offsets=ARRAY,
    counts=ARRAY,
    ids=ARRAY,
    reports=ARRAY,
    groups=ARRAY,
)


class ReadFile(beam.DoFn):
    """The sound envelopes of a file, in blocks; the others go to the second output."""

    def __init__(self, terms: CarriedTerms) -> None:
        self._carried = terms

    def setup(self) -> None:
        self._terms, self._groups = self._carried.terms, self._carried.of_groups
        self._rows = rows_in(BLOCK_BYTES, report_bytes(self._terms.randomizer))
        self._read = counter("envelopes_read")
        self._refused = counter("envelopes_refused")
        self._reasons = ByReason("envelopes_refused_by_reason")

    def process(self, path: str) -> Iterator[Any]:
        sound: list[tuple[int, bytes, np.ndarray, int]] = []
        bad: list[tuple[int, str]] = []
        waiting = 0
        try:
            file = FileSystems.open(path, BINARY)
        except Exception as error:
            raise ValueError(f"{path}: cannot be opened ({type(error).__name__})") from None
        with file:
            for offset, data in split_stream(self._groups or self._terms, _reader(file, path)):
                try:
                    group, envelope = self._decode(data)
                except EnvelopeError as error:
                    bad.append((offset, error.reason))
                else:
                    envelope_id = envelope.envelope_id or NO_ID
                    sound.append((offset, envelope_id, envelope.reports, group))
                    waiting += len(envelope.reports)
                if waiting >= self._rows:
                    yield self._block(path, sound)
                    sound, waiting = [], 0
                if len(bad) >= self._rows:
                    yield self._bad(path, bad)
                    bad = []
        if sound:
            yield self._block(path, sound)
        if bad:
            yield self._bad(path, bad)

    def _decode(self, data: bytes) -> tuple[int, Envelope]:
        """What an envelope holds, and of which group; without groups 0."""
        if self._groups is None:
            return 0, decode_envelope(self._terms, data)
        return self._groups.decode(data)

    def _block(self, path: str, sound: list[tuple[int, bytes, np.ndarray, int]]) -> EnvelopeBlock:
        offsets, ids, reports, groups = zip(*sound)
        self._read.inc(len(sound))
        return EnvelopeBlock(
            path,
            np.array(offsets, dtype=np.int64),
            np.array([len(part) for part in reports], dtype=np.int64),
            np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, ID_BYTES),
            np.concatenate(reports),
            None if self._groups is None else np.array(groups, dtype=np.int64),
        )

    def _bad(self, path: str, bad: list[tuple[int, str]]) -> TaggedOutput:
        self._refused.inc(len(bad))
        for reason, count in Counter(reason for _, reason in bad).items():
            self._reasons.inc(reason, count)
        return TaggedOutput(BAD_REPORTS, BadRowBlock.of(path, bad))


def _reader(file: Any, path: str) -> Any:
    """The file's `read`, whose failures name the file and quote nothing."""

    def read(size: int) -> bytes:
        try:
            return bytes(file.read(size))
        except Exception as error:
            raise ValueError(f"{path}: cannot be read ({type(error).__name__})") from None

    return read
