"""Files of envelopes: reports that were randomized elsewhere, on devices or at an edge."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsDict, TaggedOutput
from apache_beam.typehints import typehints

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.randomness import envelope_ids, length_prefixed
from beam_ldp.randomizers.wire import (
    ID_BYTES,
    NO_ID,
    OTHER_MECHANISM,
    Envelope,
    EnvelopeError,
    ReleaseTerms,
    decode_envelope,
    encode_envelope,
)
from beam_ldp.randomizers.wire_groups import GroupTerms
from beam_ldp.randomizers.wire_stream import split_stream
from beam_ldp.transforms.block_coder import ARRAY, TEXT, register
from beam_ldp.transforms.blocks import BadRowBlock, ReportBlock, ValueBlock
from beam_ldp.transforms.carried import Carried, CarriedDomain
from beam_ldp.transforms.counters import ByReason, counter
from beam_ldp.transforms.mechanisms import BLOCK_BYTES, report_bytes, rows_in
from beam_ldp.transforms.randomize import ORIGIN_BYTES, RandomizeBlocks, check_randomness
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


class _CarriedTerms:
    """Release terms that travel as their parameters, and the public list of groups, if any."""

    def __init__(self, terms: ReleaseTerms, groups: Domain | str | Path | None) -> None:
        self.carried = Carried(terms.randomizer)
        self._rest = (terms.release_id, terms.domain_digest, terms.simulated)
        self._groups = None if groups is None else CarriedDomain(groups)

    @property
    def terms(self) -> ReleaseTerms:
        return ReleaseTerms(self.carried.randomizer, *self._rest)

    @property
    def of_groups(self) -> GroupTerms | None:
        """The terms of every group; None where there are no groups."""
        return None if self._groups is None else GroupTerms(self.terms, self._groups.load().labels)


class WriteReports(beam.PTransform):
    """Packs reports into envelopes and writes them to files: what leaves the device, or the edge.

    Nothing but the reports is written: no ids of people, no times. Their order is that of the
    people, so these files show each report with its place; there the local epsilon protects.

    In: `ReportBlock`s. Out: the path of every file, `str`.

    Args:
        folder: where; files are called `reports-00000.ldp` and so on.
        terms: of the release.
        groups: the public list of groups (as `EncodeRows` takes it), where blocks hold the reports
            of several: every envelope then is of one group, and says which.
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
        groups: Domain | str | Path | None = None,
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
        self._terms = _CarriedTerms(terms, groups)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteReports", pcoll, ReportBlock)
        packed = pcoll | "Pack" >> beam.ParDo(
            _Pack(self._terms, self._most, self._num_files)
        ).with_output_types(typehints.Tuple[int, bytes])
        return packed | "Files" >> _WriteFiles(self._folder)

    def display_data(self) -> dict[str, Any]:
        return {"folder": self._folder, "num_files": self._num_files}


class WriteMemoizedReports(beam.PTransform):
    """Randomizes values with memoized noise and writes the reports: what an edge runs that may run
    again.

    Every person has an envelope of their own, whose id is a function of the secret key, the person,
    the data set and the release, and not of the value. So whatever is sent again, by a re-run over
    the same people, over more of them, or by another edge with the same key, `ReadReports` takes
    one envelope of each person. Without the key an id says nothing, and those of two releases have
    nothing in common.

    In: `ValueBlock`s with user ids, each person once (`BoundContributions`). Out: the path of every
    file, `str`.

    Args:
        folder, terms, groups, num_files: as in `WriteReports`. The release is that of the terms.
        memoize_key_file, dataset: as in `Randomize`.

    Raises:
        StageError: if the input is no collection of `ValueBlock`s.
        ValueError: for simulated terms; at run time for blocks without user ids.
    """

    def __init__(
        self,
        folder: str,
        terms: ReleaseTerms,
        memoize_key_file: str,
        *,
        dataset: str = "",
        groups: Domain | str | Path | None = None,
        num_files: int = 4,
    ) -> None:
        super().__init__()
        if terms.simulated:
            raise ValueError("terms.simulated must be false: memoized noise is no simulation")
        check_randomness(memoize_key_file, terms.release_id, None)
        self._folder = folder.rstrip("/")
        carried = _CarriedTerms(terms, groups)
        self._doer = _PackPeople(carried, memoize_key_file, terms.release_id, dataset, num_files)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteMemoizedReports", pcoll, ValueBlock)
        packed = pcoll | "Randomize and pack" >> beam.ParDo(self._doer).with_output_types(
            typehints.Tuple[int, bytes]
        )
        return packed | "Files" >> _WriteFiles(self._folder)


class _WriteFiles(beam.PTransform):
    """Numbered envelopes to the files of their numbers."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, envelopes: beam.PCollection) -> beam.PCollection:
        return (
            envelopes
            # The exchange is a checkpoint, too: a file that is written again holds the same bytes.
            | "By file" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write_file, self._folder).with_output_types(str)
        )


class _Packer:
    """Reports to envelopes, each with the number of its file."""

    def __init__(self, carried: _CarriedTerms, num_files: int) -> None:
        self._terms, self._groups = carried.terms, carried.of_groups
        self._digest = self._terms.randomizer.config_digest()
        self._num_files = num_files
        self._written = counter("reports_written")
        self._of_group: dict[int, ReleaseTerms] = {}

    def check(self, block: ReportBlock) -> None:
        """The block must be of this release."""
        if block.mechanism_digest != self._digest:
            raise MismatchError(f"WriteReports: the reports were made by {OTHER_MECHANISM}")
        if block.simulated != self._terms.simulated:
            raise MismatchError(
                "WriteReports: terms.simulated must be true exactly where reports are drawn with "
                "a seed"
            )
        if (block.groups is None) != (self._groups is None):
            raise ValueError(
                "WriteReports: groups must be the public list of groups exactly where reports are "
                "of groups"
            )

    def pack(self, reports: np.ndarray, group: int | None, envelope_id: bytes) -> tuple[int, bytes]:
        """One envelope."""
        envelope = encode_envelope(self._terms_of(group), reports, envelope_id)
        self._written.inc(len(reports))
        return int.from_bytes(envelope_id, "big") % self._num_files, envelope

    def _terms_of(self, group: int | None) -> ReleaseTerms:
        if group is None or self._groups is None:
            return self._terms
        if group not in self._of_group:
            self._of_group[group] = self._groups.of(group)
        return self._of_group[group]


class _PackPeople(RandomizeBlocks):
    """Values to envelopes of one person each."""

    def __init__(
        self, terms: _CarriedTerms, key_file: str, release_id: str, dataset: str, num_files: int
    ) -> None:
        super().__init__(terms.carried, key_file, release_id, dataset, None, False, False)
        self._carried_terms, self._num_files = terms, num_files

    def setup(self) -> None:
        super().setup()
        self._packer = _Packer(self._carried_terms, self._num_files)

    def _emit(self, key: Any, block: ValueBlock, window: Any) -> Iterator[tuple[int, bytes]]:
        start = 0
        for reports in super()._emit(key, block, window):
            self._packer.check(reports)
            assert self._key is not None and block.user_ids is not None
            stop = start + len(reports)
            ids = envelope_ids(
                self._key, block.user_ids[start:stop], self._release_id, self._dataset
            )
            groups = [None] * len(reports) if reports.groups is None else reports.groups.tolist()
            for i, (group, envelope_id) in enumerate(zip(groups, ids)):
                yield self._packer.pack(reports.reports[i : i + 1], group, envelope_id)
            start = stop


class _Pack(beam.DoFn):
    def __init__(self, terms: _CarriedTerms, most: int, num_files: int) -> None:
        self._carried, self._most, self._num_files = terms, most, num_files

    def setup(self) -> None:
        self._packer = _Packer(self._carried, self._num_files)

    def process(self, block: ReportBlock) -> Iterator[tuple[int, bytes]]:
        self._packer.check(block)
        for group, reports in _by_group(block):
            for start in range(0, len(reports), self._most):
                part = reports[start : start + self._most]
                yield self._packer.pack(part, group, os.urandom(ID_BYTES))


def _by_group(block: ReportBlock) -> Iterator[tuple[int | None, np.ndarray]]:
    """The reports of each group of a block; they stay in their order."""
    if block.groups is None:
        yield None, block.reports
        return
    order = np.argsort(block.groups, kind="stable")
    groups, starts = np.unique(block.groups[order], return_index=True)
    for group, rows in zip(groups.tolist(), np.split(order, starts[1:])):
        yield group, block.reports[rows]


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
        patterns: paths and globs, on any file system that Beam knows; a folder stands for the files
            in it.
        terms: of the release.
        groups: the public list of groups, where every envelope is of one of them; one of a group
            that is not in the list is of another release.

    Raises:
        ValueError: at run time, if nothing matches or a file cannot be read.
    """

    def __init__(
        self,
        patterns: str | Sequence[str],
        terms: ReleaseTerms,
        *,
        groups: Domain | str | Path | None = None,
    ) -> None:
        super().__init__()
        self._patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._terms = _CarriedTerms(terms, groups)

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
            listed = _listed(pattern)
        except (BeamIOError, OSError, ValueError) as error:
            raise ValueError(f"{pattern}: cannot be listed ({type(error).__name__})") from None
        paths = {path for path in listed if not _left_out(path)}
        if not paths:
            raise ValueError(f"{pattern}: no file of reports matches")
        found |= paths
    return sorted(found)


def _listed(pattern: str) -> list[str]:
    """Paths that match; a pattern that names a folder stands for what is in it."""
    found = [file.path for file in FileSystems.match([pattern])[0].metadata_list]
    own = pattern.rstrip("/")
    if all(path.rstrip("/") == own for path in found):
        inside = [file.path for file in FileSystems.match([f"{own}/*"])[0].metadata_list]
        found = inside or found
    return found


def _left_out(path: str) -> bool:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return name.startswith(("_", ".")) or name.endswith(".json")


class _ReadFile(beam.DoFn):
    """The sound envelopes of a file, in blocks; the others go to the second output."""

    def __init__(self, terms: _CarriedTerms) -> None:
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
            file = FileSystems.open(path, _BINARY)
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
        self._received = counter("reports_received")
        self._repeated = counter("envelopes_repeated")

    def process(self, block: EnvelopeBlock, copies: Mapping[str, bytes]) -> Iterator[Any]:
        again = np.isin(block.offsets, np.frombuffer(copies.get(block.source, b""), dtype="<i8"))
        if again.any():
            self._repeated.inc(int(again.sum()))
            rows = [(offset, DUPLICATE) for offset in block.offsets[again].tolist()]
            yield TaggedOutput(BAD_REPORTS, BadRowBlock.of(block.source, rows))
        kept = np.repeat(~again, block.counts)
        reports = block.reports[kept]
        groups = None
        if block.groups is not None:
            groups = np.repeat(block.groups, block.counts)[kept]
        if len(reports):
            self._received.inc(len(reports))
            place = b"%d" % block.offsets[0]
            origin = hashlib.blake2b(
                length_prefixed(block.source.encode(), place), digest_size=ORIGIN_BYTES
            ).digest()
            yield ReportBlock(reports, self._digest, groups, origin, self._simulated)


def _same(rows: BadRowBlock) -> BadRowBlock:
    return rows
