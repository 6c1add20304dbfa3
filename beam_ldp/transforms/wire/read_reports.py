"""Files of envelopes to reports: where a collector begins."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import TaggedOutput
from apache_beam.typehints import typehints

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.set_digest import set_records
from beam_ldp.randomizers.wire import REASONS, AnyTerms, GroupTerms, ReleaseTerms, shared
from beam_ldp.randomizers.wire_stream import Ranges, Row, StreamPart, join_ranges, margin, read_part
from beam_ldp.transforms.device.side import ORIGIN_BYTES
from beam_ldp.transforms.elements.blocks import BadRowBlock, LeveledBlock, ReportBlock
from beam_ldp.transforms.elements.portable import BLOCK_BYTES, report_bytes, rows_in
from beam_ldp.transforms.elements.set_digests import KEPT_PIECE, DigestSet, pieces_of
from beam_ldp.transforms.elements.stages import ReasonCounters, counter, typed_outputs
from beam_ldp.transforms.wire.file_parts import (
    BINARY,
    CHANGED,
    FilePart,
    PartReader,
    PortableTerms,
    find_parts,
)
from beam_ldp.transforms.wire.write_reports import make_folder

# Bytes that travel between stages, or lie in a folder while only their names travel -------
#
# Beam's local runner holds all that it exchanges in memory. Where that is too much, a folder that
# all workers can read and write keeps it.


class StoredBytes(NamedTuple):
    """Some bytes: themselves, or the path of a file that holds them."""

    content: bytes
    path: str

    def read(self) -> bytes:
        """The bytes."""
        if not self.path:
            return self.content
        with FileSystems.open(self.path, BINARY, "uncompressed") as file:
            return bytes(file.read())


_WORTH_A_FILE = 1 << 10  # bytes; fewer travel


class Aside(NamedTuple):
    """Where bytes are kept.

    Attributes:
        folder: for them, "" where they travel. A file that a repeated attempt left behind has a
            name that nothing knows; who gave the folder deletes it when the pipeline has ended.
    """

    folder: str = ""

    def keep(self, content: bytes) -> StoredBytes:
        """What stands for these bytes."""
        if not self.folder or len(content) < _WORTH_A_FILE:
            return StoredBytes(content, "")
        make_folder(self.folder)
        path = f"{self.folder}/{uuid.uuid4().hex}"
        with FileSystems.create(path, BINARY, "uncompressed") as file:
            file.write(content)
        return StoredBytes(b"", path)


# Copies of envelopes: each id counts once, in the order of files and offsets --------------


DUPLICATE = "sent before: another envelope has its id"
_ENTRY = 3  # words of an id and its place
_THIRTY_TWO = np.uint64(32)


def named_before(ids: np.ndarray) -> np.ndarray:
    """Which of these ids stand further up already: bool `(n,)`.

    Args:
        ids: uint8 `(n, 16)`; zeros are no id, and never a copy.
    """
    return _before(np.ascontiguousarray(ids).view("<u8").reshape(-1, 2))


def _before(words: np.ndarray) -> np.ndarray:
    """The same of ids as two words each. Sorting one word tells where to look closer: ids are
    random, and two share a word where they are equal, or somebody chose them to."""
    found = np.zeros(len(words), dtype=bool)
    ordered = np.sort(words[:, 0])
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(shared):
        return found
    rows = np.flatnonzero(np.isin(words[:, 0], shared) & words.any(axis=1))
    rows = rows[np.lexsort((rows, words[rows, 1], words[rows, 0]))]
    found[rows[1:]] = (words[rows[1:]] == words[rows[:-1]]).all(axis=1)
    return found


def listed_ids(part: StreamPart, num_parts: int, routing: bytes) -> Iterator[tuple[int, bytes]]:
    """Ids and offsets of envelopes that have one, each once, for every group of ids one piece.

    Args:
        part: what was read.
        num_parts: into how many groups ids are put.
        routing: 16 secret bytes by which they are.
    """
    ids = np.ascontiguousarray(part.ids).view("<u8").reshape(-1, 2)
    rows = np.flatnonzero(ids.any(axis=1) & ~_before(ids))
    entries = np.empty((len(rows), _ENTRY), dtype="<u8")
    entries[:, 0], entries[:, 1:] = part.offsets[rows].view("<u8"), ids[rows]
    numbers = _route(entries[:, 1:], num_parts, routing)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    for number, own in zip(found.tolist(), np.split(entries[order], starts[1:])):
        yield number, own.tobytes()


def _route(ids: np.ndarray, num_parts: int, routing: bytes) -> np.ndarray:
    """The group of each id: multiply-shift (Dietzfelbinger 1996), under secret multipliers."""
    first, second = np.frombuffer(routing, dtype="<u8") | np.uint64(1)
    mixed = ids[:, 0] * first + ids[:, 1] * second
    high = (mixed ^ (mixed >> _THIRTY_TWO)) * first >> _THIRTY_TWO
    return (high * np.uint64(num_parts) >> _THIRTY_TWO).astype(np.int32)


def copies_of(
    element: tuple[int, Iterable[tuple[str, int, int, StoredBytes]]], aside: Aside
) -> Iterator[tuple[tuple[str, int], StoredBytes]]:
    """Of every part of a file the offsets of the envelopes whose id came before, in this group."""
    pieces = sorted(element[1], key=lambda piece: piece[:2])
    read = [np.frombuffer(kept.read(), "<u8").reshape(-1, _ENTRY) for *_, kept in pieces]
    entries = np.concatenate(read)
    bounds = np.cumsum([len(piece) for piece in read])
    del read
    again = _before(entries[:, 1:])
    for (path, _, start, _), own in zip(pieces, np.split(np.arange(len(entries)), bounds[:-1])):
        if again[own].any():
            yield (path, start), aside.keep(entries[own[again[own]], 0].tobytes())


BAD_REPORTS, EDGES, TALLIES, PARTS = "bad_reports", "edges", "tallies", "parts"
PIECES = "pieces"

Edges = tuple[int, list[Row]]  # where a stretch begins, and its outer ranges


class FileTally(NamedTuple):
    """What was received of a file.

    Attributes:
        reports, envelopes: how many counted.
        largest: most reports in one envelope.
    """

    reports: int
    envelopes: int
    largest: int


@dataclass(eq=False)
class _Read(beam.DoFn):
    """What both passes do with a part of a file."""

    terms: PortableTerms

    def setup(self) -> None:
        self._terms: AnyTerms = self.terms.any
        self._margin = margin(self._terms)

    def _stretches(
        self, part: FilePart, reader: PartReader
    ) -> Iterator[tuple[int, int, StreamPart]]:
        for stretch in reader:
            if part.files:
                ends = [*part.bounds.tolist(), part.stop]
                yield from self._of_files(stretch.data, ends)
                continue
            found = read_part(self._terms, stretch.data, stretch.begin, stretch.start, stretch.stop)
            yield stretch.start, stretch.stop, found

    def _of_files(self, data: bytes, ends: list[int]) -> Iterator[tuple[int, int, StreamPart]]:
        """Small files that lie between `ends` of the data, all at once where nothing is refused.

        What an envelope is follows from its own bytes. So where all bytes are of sound envelopes,
        and an envelope begins where a file does, the files are those envelopes also one by one.
        Else each half of them is looked at alone: a file with something else in it costs a few
        more looks, and what is refused in it does not touch its neighbours.
        """
        start, stop = ends[0], ends[-1]
        found = read_part(self._terms, data[start:stop], start, start, stop)
        begins = np.isin(ends, found.offsets) | (np.array(ends) == stop)
        if len(ends) == 2 or (not len(found.refused) and begins.all()):
            yield start, stop, found
            return
        middle = len(ends) // 2
        yield from self._of_files(data, ends[: middle + 1])
        yield from self._of_files(data, ends[middle:])


@dataclass(eq=False)
class ListIds(_Read):
    """The first pass: ids of the sound envelopes of a part of a file.

    Out: `(number, (path, place, start of the part, StoredBytes))`: ids and offsets, by the number
    of the group of ids that they belong to. Second: `(name of the part, (part, digest))`.
    """

    aside: Aside

    def process(self, part: FilePart) -> Iterator[Any]:
        reader = PartReader(part, self._margin)
        for start, _, found in self._stretches(part, reader):
            for number, content in listed_ids(found, part.num_parts, part.routing):
                yield number, (part.path, start, part.start, self.aside.keep(content))
        yield TaggedOutput(PARTS, (part.name, (part, reader.digest)))


@dataclass(eq=False)
class TakeOnce(_Read):
    """The second pass: reports of the sound envelopes that are no copies.

    In: `(name, {"parts": [(part, digest)], "copies": [StoredBytes]})`. Out: `ReportBlock`s, or
    `LeveledBlock`s where `keep_ids` says so; beside them `BadRowBlock`s, the ranges at the edges of
    the part, a `FileTally` with the path, and where `pieces` keeps them, pieces of the set of all
    envelopes that count.
    """

    keep_ids: bool
    pieces: Aside | None

    def setup(self) -> None:
        super().setup()
        self._randomizer = randomizer = shared(self._terms).randomizer
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
        for start, stop, found in self._stretches(part, reader):
            self._read.inc(len(found))
            again = named_before(found.ids)
            if len(places):
                again |= np.isin(found.offsets, places)
            if again.any():
                self._repeated.inc(int(again.sum()))
                yield from self._copies(part, found, again)
            yield from self._refuse(part, start, stop, found.refused)
            yield from self._take(part, found, ~again)
        if reader.digest != digest:
            raise ValueError(f"{part.said}: {CHANGED}")

    def _take(self, part: FilePart, found: StreamPart, taken: np.ndarray) -> Iterator[Any]:
        counts = found.counts[taken]
        if not len(counts):
            return
        kept = np.repeat(taken, found.counts)
        reports = found.reports if taken.all() else found.reports[kept]
        groups = None
        if isinstance(self._terms, GroupTerms):
            groups = np.repeat(found.groups[taken], counts)
        self._received.inc(len(reports))
        ids = found.ids[taken] if self.keep_ids else None
        for path, _, inside in part.by_file(found.offsets[taken]):
            of_file = counts[inside]
            tally = FileTally(int(of_file.sum()), len(of_file), int(of_file.max()))
            yield TaggedOutput(TALLIES, (path, tally))
        if self.pieces is not None:
            records = set_records(found.ids[taken], self._randomizer.pack_each(reports))
            for piece in pieces_of(records, part.num_parts, self.pieces.keep):
                yield TaggedOutput(PIECES, piece)
        for start in range(0, len(reports), self._rows):
            rows = slice(start, start + self._rows)
            place = length_prefixed(part.path.encode(), b"%d %d" % (found.offsets[0], start))
            origin = hashlib.blake2b(place, digest_size=ORIGIN_BYTES).digest()
            if ids is None:
                own = None if groups is None else groups[rows]
                yield ReportBlock(reports[rows], self._digest, own, origin, self._simulated)
            else:
                yield LeveledBlock(reports[rows], ids[rows], self._digest, origin, self._simulated)

    def _copies(self, part: FilePart, found: StreamPart, again: np.ndarray) -> Iterator[Any]:
        lengths = shared(self._terms).envelope_bytes(0) + (
            shared(self._terms).report_bytes * found.counts[again]
        )
        codes, offsets = np.zeros(len(lengths), dtype=np.uint8), found.offsets[again]
        for path, begin, own in part.by_file(offsets):
            listed = offsets[own] - begin, codes[own], (DUPLICATE,), lengths[own]
            yield TaggedOutput(BAD_REPORTS, BadRowBlock(path, *listed))

    def _refuse(self, part: FilePart, start: int, stop: int, ranges: Ranges) -> Iterator[Any]:
        """Ranges that may go on in the neighbours are left to `JoinEdges`."""
        if not len(ranges):
            return
        ((path, begin, _),) = part.by_file(ranges.starts)  # see `_of_files`
        start, stop = start - begin, stop - begin
        ranges = Ranges(ranges.starts - begin, ranges.stops - begin, ranges.codes, ranges.own)
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


ID_BYTES_AT_A_TIME = 1 << 28
_Name = typehints.Tuple[str, int]


@dataclass(eq=False, repr=False)
class ReadReports(beam.PTransform):
    """Reads files of envelopes into the reports that `Shuffle` takes.

    Every envelope is checked: one of another release, question or mechanism, one that is cut short,
    changed, holds more people's reports than it may, or what the mechanism cannot send is refused,
    whole, and listed in the attribute `bad_rows` of the result, a collection of `BadRowBlock`:
    file, offset, length and reason, never content. Other bytes are listed by the range.

    **Copies.** An envelope whose id was seen before in any of the files is refused as well: a
    transport that retries, a file that is read twice, an attacker who sends recorded bytes again
    change nothing; the first one in the order of files and offsets counts. What is impossible
    without knowing people: to tell a second report of one person, freshly randomized under a new
    id, from the report of another person. Whoever lets devices send must see to it that each sends
    once (an account, a one-time token at the transport). Envelopes without id are taken as they
    come: two equal ones may well be of two people.

    Files are read twice, in parts of 16 MiB (compressed ones whole, small ones many at a time): for
    ids, and for reports. What comes out does not depend on how parts are spread over workers.

    Takes the root of a pipeline. Files whose names begin with `_` or `.` or end in `.json` are left
    out. Compressed files are recognised by their ending. The attribute `received` of the result
    holds a `FileTally` for every file with reports that count, as `(path, FileTally)`.

    Args:
        patterns: paths and globs, on any file system that Beam knows; a folder stands for the files
            in it.
        terms: of the release.
        groups: the public list of groups, where every envelope is of one of them; one of a group
            that is not in the list is of another release.
        id_bytes: memory for ids that a worker compares at a time; 64 bytes each.
        scratch: a folder that all workers can read and write, where ids lie between the passes, 24
            bytes each; its caller deletes it afterwards. Default: the engine exchanges them, which
            Beam's local runner does in memory.
        keep_ids: whether reports stay with the ids of their envelopes, for `AtLevel`: out come
            `LeveledBlock`s. Envelopes hold one report then, and no groups.
        digest: whether the attribute `digest` of the result holds the set digest of all envelopes
            that count (`beam_ldp.randomizers.set_digest`; of none there is none), by which the same
            ones are known again; as for `keep_ids`. Records of 22 bytes and the packed report, or
            its SHA-256, are exchanged for it, or lie in `scratch`.

    Raises:
        ValueError: for ids that cannot be kept; at run time, if nothing matches, or a file cannot
            be read or changes meanwhile.
    """

    patterns: str | Sequence[str]
    terms: ReleaseTerms
    _: KW_ONLY
    groups: Domain | str | Path | None = None
    id_bytes: int = ID_BYTES_AT_A_TIME
    scratch: str | None = None
    keep_ids: bool = False
    digest: bool = False

    def __post_init__(self) -> None:
        for name in ("keep_ids", "digest"):
            if getattr(self, name) and (self.groups is not None or self.terms.max_reports > 1):
                raise ValueError(
                    f"{name} must be false for groups, and for envelopes of many reports"
                )
        asked = self.id_bytes
        if isinstance(asked, bool) or asked != int(asked) or asked < 1:
            raise ValueError(f"id_bytes must be an integer >= 1, got {asked}")
        listed = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        self._patterns = tuple(listed)
        self._terms = PortableTerms(self.terms, self.groups)
        self._aside = Aside("" if self.scratch is None else self.scratch.rstrip("/"))

    def expand(self, root: Any) -> beam.PCollection:
        pipeline = root.pipeline if hasattr(root, "pipeline") else root
        finding = beam.FlatMap(find_parts, int(self.id_bytes), self.terms.envelope_bytes(1))
        of_part = typehints.Tuple[_Name, Any]
        found = (
            pipeline
            | "Patterns" >> beam.Create([self._patterns])
            | "Find files" >> finding
            # Fixes the parts and the routing of ids before anything is read.
            | "Spread parts" >> beam.Reshuffle()
        )
        listing = beam.ParDo(ListIds(self._terms, self._aside))
        ids, parts = typed_outputs(
            found, "List ids", listing, typehints.Tuple[int, Any], **{PARTS: of_part}
        )
        copies = (
            ids
            | "By id" >> beam.GroupByKey()
            | "Copies" >> beam.FlatMap(copies_of, self._aside).with_output_types(of_part)
        )
        pieces = self._aside if self.digest else None
        reports, bad, edges, tallies, *kept = typed_outputs(
            {"parts": parts, "copies": copies} | "By part" >> beam.CoGroupByKey(),
            "Take once",
            beam.ParDo(TakeOnce(self._terms, self.keep_ids, pieces)),
            LeveledBlock if self.keep_ids else ReportBlock,
            **{
                BAD_REPORTS: BadRowBlock,
                EDGES: typehints.Tuple[str, Any],
                TALLIES: typehints.Tuple[str, Any],
                **({PIECES: KEPT_PIECE} if self.digest else {}),
            },
        )
        joined = (
            edges
            | "By file" >> beam.GroupByKey()
            | "Join" >> beam.ParDo(JoinEdges()).with_output_types(BadRowBlock)
        )
        reports.bad_rows = (bad, joined) | "All refused" >> beam.Flatten()
        reports.received = tallies | "Received" >> beam.CombinePerKey(_add)
        if self.digest:
            reports.digest = kept[0] | "Digest" >> DigestSet(self.terms.identity)
        return reports

    def display_data(self) -> dict[str, Any]:
        return {"patterns": ", ".join(self._patterns)}


def _add(tallies: Iterable[FileTally]) -> FileTally:
    """What was received of a file in all of its parts."""
    listed = list(tallies)
    if not listed:
        return FileTally(0, 0, 0)
    reports, envelopes, largest = zip(*listed)
    return FileTally(sum(reports), sum(envelopes), max(largest))
