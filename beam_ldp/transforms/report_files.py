"""Files of envelopes: reports that were randomized elsewhere, on devices or at an edge."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsDict, TaggedOutput
from apache_beam.typehints import typehints

from beam_ldp.randomizers.randomness import length_prefixed
from beam_ldp.randomizers.wire import (
    ID_BYTES,
    NO_ID,
    OTHER_MECHANISM,
    EnvelopeError,
    ReleaseTerms,
    decode_envelope,
    encode_envelope,
)
from beam_ldp.randomizers.wire_stream import split_stream
from beam_ldp.transforms.block_coder import ARRAY, TEXT, register
from beam_ldp.transforms.blocks import BadRowBlock, ReportBlock
from beam_ldp.transforms.carried import NAMESPACE, Carried
from beam_ldp.transforms.mechanisms import BLOCK_BYTES, report_bytes, rows_in
from beam_ldp.transforms.randomize import ORIGIN_BYTES
from beam_ldp.transforms.stage_types import expect
from beam_ldp.transforms.sums import MismatchError

SUFFIX = ".ldp"
DUPLICATE = "sent before: another envelope has its id"
BAD_REPORTS = "bad_reports"
_BINARY = "application/octet-stream"
_ENVELOPE_BYTES = 1 << 20  # of payload, where a block is cut into envelopes
_ID_SHARDS = 64


@dataclass(frozen=True, eq=False)
class EnvelopeBlock:
    """What many envelopes of one file held, in their order.

    Attributes:
        source: the file.
        offsets: `(m,)` where each envelope begins.
        counts: `(m,)` reports in each.
        ids: `(m, 16)` uint8; zeros where there is none.
        reports: of all of them, one after the other.
    """

    source: str
    offsets: np.ndarray
    counts: np.ndarray
    ids: np.ndarray
    reports: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets)


register(EnvelopeBlock, source=TEXT, offsets=ARRAY, counts=ARRAY, ids=ARRAY, reports=ARRAY)


class _CarriedTerms:
    """Release terms that travel as their parameters."""

    def __init__(self, terms: ReleaseTerms) -> None:
        self._carried = Carried(terms.randomizer)
        self._rest = (terms.release_id, terms.domain_digest, terms.simulated)

    @property
    def terms(self) -> ReleaseTerms:
        return ReleaseTerms(self._carried.randomizer, *self._rest)


class WriteReports(beam.PTransform):
    """Packs reports into envelopes and writes them to files: what leaves the device, or the edge.

    Nothing but the reports is written: no ids of people, no times. Their order is that of the
    people, so these files show each report with its place; there the local epsilon protects.

    In: `ReportBlock`s without groups. Out: the path of every file, `str`.

    Args:
        folder: where; files are called `reports-00000.ldp` and so on.
        terms: of the release.
        num_files: at most so many files.
        reports_per_envelope: at most so many in one envelope; 1 is what devices send. Default: as
            many as make a megabyte.

    Raises:
        StageError: if the input is not the output of `Randomize`.
        MismatchError: at run time, for reports of another mechanism, and where simulated reports
            and those of people would be mixed.
    """

    def __init__(
        self,
        folder: str,
        terms: ReleaseTerms,
        *,
        num_files: int = 4,
        reports_per_envelope: int | None = None,
    ) -> None:
        super().__init__()
        for name, number in (
            ("num_files", num_files), ("reports_per_envelope", reports_per_envelope or 1)
        ):  # fmt: skip
            if isinstance(number, bool) or number != int(number) or number < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {number}")
        fitting = max(1, 8 * _ENVELOPE_BYTES // terms.randomizer.bits_per_report)
        most = min(terms.max_reports, fitting)
        self._most = min(most, reports_per_envelope or most)
        self._folder = folder.rstrip("/")
        self._num_files = num_files
        self._terms = _CarriedTerms(terms)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteReports", pcoll, ReportBlock)
        return (
            pcoll
            | "Pack"
            >> beam.ParDo(_Pack(self._terms, self._most, self._num_files)).with_output_types(
                typehints.Tuple[int, bytes]
            )
            # The exchange is a checkpoint, too: a file that is written again holds the same bytes.
            | "By file" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write_file, self._folder).with_output_types(str)
        )

    def display_data(self) -> dict[str, Any]:
        return {"folder": self._folder, "num_files": self._num_files}


class _Pack(beam.DoFn):
    def __init__(self, terms: _CarriedTerms, most: int, num_files: int) -> None:
        self._carried, self._most, self._num_files = terms, most, num_files

    def setup(self) -> None:
        self._terms = self._carried.terms
        self._digest = self._terms.randomizer.config_digest()
        self._written = Metrics.counter(NAMESPACE, "reports_written")

    def process(self, block: ReportBlock) -> Iterator[tuple[int, bytes]]:
        if block.mechanism_digest != self._digest:
            raise MismatchError(f"WriteReports: the reports were made by {OTHER_MECHANISM}")
        if block.simulated != self._terms.simulated:
            raise MismatchError(
                "WriteReports: terms.simulated must be true exactly where reports are drawn with "
                "a seed"
            )
        if block.groups is not None:
            raise ValueError("WriteReports takes reports without groups: one release per group")
        for start in range(0, len(block), self._most):
            reports = block.reports[start : start + self._most]
            envelope_id = os.urandom(ID_BYTES)
            envelope = encode_envelope(self._terms, reports, envelope_id)
            self._written.inc(len(reports))
            yield int.from_bytes(envelope_id, "big") % self._num_files, envelope


def _write_file(element: tuple[int, Iterable[bytes]], folder: str) -> str:
    number, envelopes = element
    path = f"{folder}/reports-{number:05d}{SUFFIX}"
    aside = f"{folder}/.{uuid.uuid4().hex}{SUFFIX}"
    with contextlib.suppress(BeamIOError, OSError):  # it is there already
        FileSystems.mkdirs(folder)
    with FileSystems.create(aside, _BINARY, "uncompressed") as stream:
        for envelope in envelopes:
            stream.write(envelope)
    FileSystems.rename([aside], [path])
    return path


class ReadReports(beam.PTransform):
    """Reads files of envelopes into the reports that `Shuffle` takes.

    Every envelope is checked: one of another release, mechanism or list, one that is cut short,
    changed, or holds what the mechanism cannot send is refused, whole, and listed in the attribute
    `bad_rows` of the result, a collection of `BadRowBlock`: file, offset and reason, never content.

    **Copies.** An envelope whose id was seen before in any of the files is refused as well: a
    transport that retries, a file that is read twice, an attacker who sends recorded bytes again
    change nothing; the first one in the order of files and offsets counts. What is impossible
    without knowing people: to tell a second report of one person, freshly randomized under a new
    id, from the report of another person. Whoever lets devices send must see to it that each sends
    once (an account, a one-time token at the transport). Envelopes without id are taken as they
    come: two equal ones may well be of two people.

    Takes the root of a pipeline. Files whose names begin with `_` or `.` or end in `.json` are left
    out. Compressed files are recognised by their ending.

    Args:
        patterns: paths and globs, on any file system that Beam knows.
        terms: of the release.

    Raises:
        ValueError: at run time, if nothing matches or a file cannot be read.
    """

    def __init__(self, patterns: str | Sequence[str], terms: ReleaseTerms) -> None:
        super().__init__()
        self._patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._terms = _CarriedTerms(terms)

    def expand(self, root: Any) -> beam.PCollection:
        pipeline = root.pipeline if hasattr(root, "pipeline") else root
        read = (
            pipeline
            | "Patterns" >> beam.Create([self._patterns])
            | "Find files" >> beam.FlatMap(find_report_files).with_output_types(str)
            | "Spread files" >> beam.Reshuffle()
            | "Read"
            >> beam.ParDo(_ReadFile(self._terms))
            .with_output_types(EnvelopeBlock)
            .with_outputs(BAD_REPORTS, main="envelopes")
        )
        copies = (
            read.envelopes
            | "Ids" >> beam.FlatMap(_ids).with_output_types(typehints.Tuple[int, Any])
            | "By id" >> beam.GroupByKey()
            | "Copies" >> beam.FlatMap(_copies).with_output_types(typehints.Tuple[str, bytes])
            | "By source" >> beam.GroupByKey()
            | "As list" >> beam.MapTuple(lambda source, found: (source, b"".join(found)))
        )
        out = read.envelopes | "Once each" >> beam.ParDo(
            _TakeOnce(self._terms), AsDict(copies)
        ).with_output_types(ReportBlock).with_outputs(BAD_REPORTS, main="reports")
        refused = []
        for name, part in (("Refused", read[BAD_REPORTS]), ("Repeated", out[BAD_REPORTS])):
            part.element_type = BadRowBlock
            refused.append(part | name >> beam.Map(_same).with_output_types(BadRowBlock))
        reports: beam.PCollection = out.reports
        reports.element_type = ReportBlock
        reports.bad_rows = refused | "All refused" >> beam.Flatten()
        return reports

    def display_data(self) -> dict[str, Any]:
        return {"patterns": ", ".join(self._patterns)}


def find_report_files(patterns: Sequence[str]) -> list[str]:
    """The files that the patterns mean, each once.

    Raises:
        ValueError: for a pattern that matches no file.
    """
    found: set[str] = set()
    for pattern in patterns:
        try:
            listed = FileSystems.match([pattern])[0].metadata_list
        except (BeamIOError, OSError) as error:
            raise ValueError(f"{pattern}: cannot be listed ({type(error).__name__})") from None
        paths = {file.path for file in listed if not _left_out(file.path)}
        if not paths:
            raise ValueError(f"{pattern}: no file of reports matches")
        found |= paths
    return sorted(found)


def _left_out(path: str) -> bool:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return name.startswith(("_", ".")) or name.endswith(".json")


class _ReadFile(beam.DoFn):
    """The sound envelopes of a file, in blocks; the others go to the second output."""

    def __init__(self, terms: _CarriedTerms) -> None:
        self._carried = terms

    def setup(self) -> None:
        self._terms = self._carried.terms
        self._rows = rows_in(BLOCK_BYTES, report_bytes(self._terms.randomizer))
        self._read = Metrics.counter(NAMESPACE, "envelopes_read")
        self._refused = Metrics.counter(NAMESPACE, "envelopes_refused")

    def process(self, path: str) -> Iterator[Any]:
        sound: list[tuple[int, bytes, np.ndarray]] = []
        bad: list[tuple[int, str]] = []
        waiting = 0
        try:
            file = FileSystems.open(path, _BINARY)
        except Exception as error:
            raise ValueError(f"{path}: cannot be opened ({type(error).__name__})") from None
        with file:
            for offset, data in split_stream(self._terms, _reader(file, path)):
                try:
                    envelope = decode_envelope(self._terms, data)
                except EnvelopeError as error:
                    bad.append((offset, error.reason))
                else:
                    sound.append((offset, envelope.envelope_id or NO_ID, envelope.reports))
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

    def _block(self, path: str, sound: list[tuple[int, bytes, np.ndarray]]) -> EnvelopeBlock:
        offsets, ids, reports = zip(*sound)
        self._read.inc(len(sound))
        return EnvelopeBlock(
            path,
            np.array(offsets, dtype=np.int64),
            np.array([len(part) for part in reports], dtype=np.int64),
            np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, ID_BYTES),
            np.concatenate(reports),
        )

    def _bad(self, path: str, bad: list[tuple[int, str]]) -> TaggedOutput:
        self._refused.inc(len(bad))
        return TaggedOutput(BAD_REPORTS, BadRowBlock.of(path, bad))


def _reader(file: Any, path: str) -> Any:
    """The file's `read`, whose failures name the file and quote nothing."""

    def read(size: int) -> bytes:
        try:
            return bytes(file.read(size))
        except Exception as error:
            raise ValueError(f"{path}: cannot be read ({type(error).__name__})") from None

    return read


def _ids(block: EnvelopeBlock) -> Iterator[tuple[int, tuple[str, bytes, bytes]]]:
    """Ids and offsets of the envelopes that have one, a part for every shard of ids."""
    named = np.flatnonzero(block.ids.any(axis=1))
    shards = block.ids[named, 0] % _ID_SHARDS
    for shard in np.unique(shards).tolist():
        rows = named[shards == shard]
        offsets = np.ascontiguousarray(block.offsets[rows], dtype="<i8")
        yield shard, (block.source, offsets.tobytes(), block.ids[rows].tobytes())


def _copies(
    element: tuple[int, Iterable[tuple[str, bytes, bytes]]],
) -> Iterator[tuple[str, bytes]]:
    """Of every source the offsets of the envelopes whose id came before."""
    parts = sorted(element[1])
    sources = [source for source, _, _ in parts]
    offsets = [np.frombuffer(listed, dtype="<i8") for _, listed, _ in parts]
    ids = np.frombuffer(b"".join(listed for *_, listed in parts), dtype=f"V{ID_BYTES}")
    where = np.repeat(np.arange(len(parts)), [len(listed) for listed in offsets])
    places = np.concatenate(offsets)
    order = np.lexsort((places, _ranks(sources)[where]))
    _, first = np.unique(ids[order], return_index=True)
    copied = np.ones(len(ids), dtype=bool)
    copied[order[first]] = False
    for part in np.unique(where[copied]).tolist():
        yield sources[part], places[copied & (where == part)].tobytes()


def _ranks(names: list[str]) -> np.ndarray:
    """The place of each name among all of them."""
    return np.unique(np.array(names), return_inverse=True)[1]


class _TakeOnce(beam.DoFn):
    """Envelopes to reports, without those that came before."""

    def __init__(self, terms: _CarriedTerms) -> None:
        self._carried = terms

    def setup(self) -> None:
        terms = self._carried.terms
        self._digest, self._simulated = terms.randomizer.config_digest(), terms.simulated
        self._received = Metrics.counter(NAMESPACE, "reports_received")
        self._repeated = Metrics.counter(NAMESPACE, "envelopes_repeated")

    def process(self, block: EnvelopeBlock, copies: Mapping[str, bytes]) -> Iterator[Any]:
        again = np.isin(block.offsets, np.frombuffer(copies.get(block.source, b""), dtype="<i8"))
        if again.any():
            self._repeated.inc(int(again.sum()))
            rows = [(offset, DUPLICATE) for offset in block.offsets[again].tolist()]
            yield TaggedOutput(BAD_REPORTS, BadRowBlock.of(block.source, rows))
        reports = block.reports[np.repeat(~again, block.counts)]
        if len(reports):
            self._received.inc(len(reports))
            place = b"%d" % block.offsets[0]
            origin = hashlib.blake2b(
                length_prefixed(block.source.encode(), place), digest_size=ORIGIN_BYTES
            ).digest()
            yield ReportBlock(reports, self._digest, origin=origin, simulated=self._simulated)


def _same(rows: BadRowBlock) -> BadRowBlock:
    return rows
