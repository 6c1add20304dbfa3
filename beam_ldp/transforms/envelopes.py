"""The reports of files of envelopes, each envelope checked and each id taken once.

Every file is read twice: once for the ids of its sound envelopes, and once for their reports when
it is known which ids came before. In between nothing but ids is held, and of these so many at a
time as a setting allows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput

from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.wire import REASONS
from beam_ldp.randomizers.wire_groups import AnyTerms, GroupTerms, shared
from beam_ldp.randomizers.wire_stream import Part, Ranges, Row, join_ranges, margin, read_part
from beam_ldp.transforms.aside import Aside
from beam_ldp.transforms.blocks import BadRowBlock, ReportBlock
from beam_ldp.transforms.counters import ReasonCounters, counter
from beam_ldp.transforms.envelope_copies import DUPLICATE, listed_ids, named_before
from beam_ldp.transforms.file_parts import CHANGED, FilePart, PartReader
from beam_ldp.transforms.mechanisms import BLOCK_BYTES, report_bytes, rows_in
from beam_ldp.transforms.randomize import ORIGIN_BYTES
from beam_ldp.transforms.report_terms import PortableTerms

BAD_REPORTS, EDGES, TALLIES, PARTS = "bad_reports", "edges", "tallies", "parts"

Edges = tuple[int, list[Row]]  # where a stretch begins, and its outer ranges


class Tally(NamedTuple):
    """What was received of a file.

    Attributes:
        reports, envelopes: how many counted.
        largest: most reports in one envelope.
    """

    reports: int
    envelopes: int
    largest: int


class _Read(beam.DoFn):
    """What both passes do with a part of a file."""

    def __init__(self, terms: PortableTerms) -> None:
        self._carried = terms

    def setup(self) -> None:
        self._terms: AnyTerms = self._carried.any
        self._margin = margin(self._terms)

    def _stretches(self, reader: PartReader) -> Iterator[tuple[int, int, Part]]:
        for stretch in reader:
            found = read_part(self._terms, stretch.data, stretch.begin, stretch.start, stretch.stop)
            yield stretch.start, stretch.stop, found


class ListIds(_Read):
    """The first pass: ids of the sound envelopes of a part of a file.

    Out: `(number, (path, place, start of the part, StoredBytes))`: ids and offsets, by the number
    of the group of ids that they belong to. Second: `(name of the part, (part, digest))`.
    """

    def __init__(self, terms: PortableTerms, aside: Aside) -> None:
        super().__init__(terms)
        self._aside = aside

    def process(self, part: FilePart) -> Iterator[Any]:
        reader = PartReader(part, self._margin)
        for start, _, found in self._stretches(reader):
            for number, content in listed_ids(found, part.num_parts, part.routing):
                yield number, (part.path, start, part.start, self._aside.keep(content))
        yield TaggedOutput(PARTS, (part.name, (part, reader.digest)))


class TakeOnce(_Read):
    """The second pass: reports of the sound envelopes that are no copies.

    In: `(name, {"parts": [(part, digest)], "copies": [StoredBytes]})`. Out: `ReportBlock`s;
    beside them `BadRowBlock`s, the ranges at the edges of the part, and a `Tally`, with the path.
    """

    def setup(self) -> None:
        super().setup()
        randomizer = shared(self._terms).randomizer
        self._digest, self._simulated = randomizer.config_digest(), shared(self._terms).simulated
        self._rows = rows_in(BLOCK_BYTES, report_bytes(randomizer))
        self._read = counter("envelopes_read")
        self._received = counter("reports_received")
        self._repeated = counter("envelopes_repeated")
        self._refused = CountRefusals()

    def process(self, element: tuple[Any, dict[str, Iterable[Any]]]) -> Iterator[Any]:
        _, given = element
        ((part, digest),) = given["parts"]
        copied = [np.frombuffer(kept.read(), dtype="<i8") for kept in given["copies"]]
        places = np.sort(np.concatenate(copied)) if copied else np.zeros(0, np.int64)
        reader = PartReader(part, self._margin)
        for start, stop, found in self._stretches(reader):
            self._read.inc(len(found))
            again = named_before(found.ids)
            if len(places):
                again |= np.isin(found.offsets, places)
            if again.any():
                self._repeated.inc(int(again.sum()))
                yield TaggedOutput(BAD_REPORTS, self._copies(part.path, found, again))
            yield from self._refuse(part.path, start, stop, found.refused)
            yield from self._take(part.path, found, ~again)
        if reader.digest != digest:
            raise ValueError(f"{part.path}: {CHANGED}")

    def _take(self, path: str, found: Part, taken: np.ndarray) -> Iterator[Any]:
        counts = found.counts[taken]
        if not len(counts):
            return
        kept = np.repeat(taken, found.counts)
        reports = found.reports if taken.all() else found.reports[kept]
        groups = None
        if isinstance(self._terms, GroupTerms):
            groups = np.repeat(found.groups[taken], counts)
        self._received.inc(len(reports))
        tally = Tally(len(reports), len(counts), int(counts.max()))
        yield TaggedOutput(TALLIES, (path, tally))
        for start in range(0, len(reports), self._rows):
            rows = slice(start, start + self._rows)
            place = b"%d %d" % (found.offsets[0], start)
            yield ReportBlock(
                reports[rows],
                self._digest,
                None if groups is None else groups[rows],
                hashlib.blake2b(
                    length_prefixed(path.encode(), place), digest_size=ORIGIN_BYTES
                ).digest(),
                self._simulated,
            )

    def _copies(self, path: str, found: Part, again: np.ndarray) -> BadRowBlock:
        lengths = shared(self._terms).envelope_bytes(0) + (
            shared(self._terms).report_bytes * found.counts[again]
        )
        codes = np.zeros(len(lengths), dtype=np.uint8)
        return BadRowBlock(path, found.offsets[again], codes, (DUPLICATE,), lengths)

    def _refuse(self, path: str, start: int, stop: int, ranges: Ranges) -> Iterator[Any]:
        """Ranges that may go on in the neighbours are left to `JoinEdges`."""
        if not len(ranges):
            return
        outer = (ranges.starts == start) | (ranges.stops == stop)
        outer[1:2] |= outer[0] & (ranges.starts[1:2] == ranges.stops[0])
        listed = ranges.where(outer)
        if len(listed):
            yield TaggedOutput(EDGES, (path, (start, listed.rows)))
        if not outer.all():
            yield TaggedOutput(BAD_REPORTS, self._refused.block(path, ranges.where(~outer)))


class JoinEdges(beam.DoFn):
    """Of every file the refused ranges that touch edges of its parts, joined."""

    def setup(self) -> None:
        self._refused = CountRefusals()

    def process(self, element: tuple[str, Iterable[Edges]]) -> Iterator[BadRowBlock]:
        path, edges = element
        yield self._refused.block(path, join_ranges(edges))


class CountRefusals:
    """Refused ranges as bad rows, counted by reason."""

    def __init__(self) -> None:
        self._all = counter("envelopes_refused")
        self._reasons = ReasonCounters("envelopes_refused_by_reason")

    def block(self, path: str, ranges: Ranges) -> BadRowBlock:
        """The bad rows of a file."""
        self._all.inc(len(ranges))
        for code, count in zip(*np.unique(ranges.codes, return_counts=True)):
            self._reasons.inc(REASONS[code], int(count))
        return BadRowBlock(path, ranges.starts, ranges.codes, REASONS, ranges.stops - ranges.starts)
