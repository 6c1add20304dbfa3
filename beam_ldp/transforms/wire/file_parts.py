"""Files of envelopes cut into parts that are read apart, and twice if need be."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.wire import AnyTerms, GroupTerms, ReleaseTerms
from beam_ldp.transforms.elements.portable import PortableDomain, PortableRandomizer
from beam_ldp.transforms.files import matching_or_inside, reason

# Release terms as they travel to the workers that write and read envelopes ----------------


SUFFIX = ".ldp"
BINARY = "application/octet-stream"


class PortableTerms:
    """Release terms that travel as their parameters, and the public list of groups, if any."""

    def __init__(self, terms: ReleaseTerms, groups: Domain | str | Path | None) -> None:
        self.carried = PortableRandomizer(terms.randomizer)
        self._rest = (terms.identity, terms.simulated)
        self._groups = None if groups is None else PortableDomain(groups)

    @property
    def terms(self) -> ReleaseTerms:
        return ReleaseTerms(self.carried.randomizer, *self._rest)

    @property
    def of_groups(self) -> GroupTerms | None:
        """The terms of every group; None where there are no groups."""
        return None if self._groups is None else GroupTerms(self.terms, self._groups.load().labels)

    @property
    def any(self) -> AnyTerms:
        """The terms of every group, or the terms."""
        return self.of_groups or self.terms


PART_BYTES = 1 << 24
_SMALL = 1 << 14  # bytes of a file that is read together with its neighbours,
_MOST_FILES = 512  # so many at a time
_OPEN_AT_ONCE = 16  # of them, where they lie in a store that answers slowly
_ROUTING_BYTES = 16


class FilePart(NamedTuple):
    """Some bytes of a file, as they travel to a worker.

    Attributes:
        path: of the file.
        start, stop: places in it; a file that is compressed is one part, whose `stop` is -1.
        size, updated: of the file when it was listed.
        num_parts: into how many parts the ids of envelopes are put.
        routing: secret bytes of the run by which they are: nobody can fill one part on purpose.
        files: path, size and time of the last change of each, where the part is several small
            files, one after the other; `path` is the first of them, and places go through all.
    """

    path: str
    start: int
    stop: int
    size: int
    updated: float
    num_parts: int
    routing: bytes
    files: tuple[tuple[str, int, float], ...] = ()

    @property
    def name(self) -> tuple[str, int]:
        """What tells it from other parts."""
        return self.path, self.start

    @property
    def said(self) -> str:
        """What errors call it."""
        return self.path if len(self.files) < 2 else f"{self.path} … {self.files[-1][0]}"

    @property
    def bounds(self) -> np.ndarray:
        """Where in the part each file begins; a part of one file is told in that file's places."""
        sizes = [size for _, size, _ in self.files[:-1]]
        return np.cumsum([0, *sizes])

    def by_file(self, places: np.ndarray) -> Iterator[tuple[str, int, slice]]:
        """Of places in their order: each file's path, where it begins, and which lie in it."""
        if not self.files:
            yield self.path, 0, slice(0, len(places))
            return
        bounds = self.bounds
        cuts = np.append(np.searchsorted(places, bounds), len(places)).tolist()
        for (path, *_), begin, start, stop in zip(self.files, bounds.tolist(), cuts, cuts[1:]):
            if stop > start:
                yield path, begin, slice(start, stop)


def find_parts(patterns: Sequence[str], id_bytes: int, smallest: int) -> Iterator[FilePart]:
    """The parts of all files that the patterns mean.

    Args:
        patterns: paths, globs, folders.
        id_bytes: of all envelopes whose ids are compared at a time, in memory.
        smallest: bytes of an envelope, at least.

    Raises:
        ValueError: for a pattern that matches no file.
    """
    files = _found(patterns)
    total = sum(size * (1 if _splits(path) else _COMPRESSED) for path, size, _ in files)
    num_parts = max(1, -(-(total // smallest * BYTES_OF_AN_ID) // id_bytes))
    routing = os.urandom(_ROUTING_BYTES)
    small: list[tuple[str, int, float]] = []

    def gathered() -> Iterator[FilePart]:
        if small:
            first, length = small[0], sum(size for _, size, _ in small)
            yield FilePart(first[0], 0, length, length, first[2], num_parts, routing, tuple(small))
            small.clear()

    for path, size, updated in files:  # in their order, in which a copy is told from the first
        if size <= _SMALL and _splits(path):
            small.append((path, size, updated))
            if len(small) == _MOST_FILES:
                yield from gathered()
            continue
        yield from gathered()
        for start in range(0, max(size, 1), PART_BYTES) if _splits(path) else (0,):
            stop = min(start + PART_BYTES, size) if _splits(path) else -1
            yield FilePart(path, start, stop, size, updated, num_parts, routing)
    yield from gathered()


BYTES_OF_AN_ID = 64  # of memory while an id is compared with others
_COMPRESSED = 4  # what random bytes with equal beginnings may shrink by, and more


def find_report_files(patterns: Sequence[str]) -> list[str]:
    """The files that the patterns mean, each once.

    Raises:
        ValueError: for a pattern that matches no file.
    """
    return [path for path, *_ in _found(patterns)]


def _found(patterns: Sequence[str]) -> list[tuple[str, int, float]]:
    """Path, size and time of the last change."""
    found: dict[str, tuple[str, int, float]] = {}
    for pattern in patterns:
        try:
            listed = matching_or_inside(pattern)
        except (BeamIOError, OSError, ValueError) as error:
            raise ValueError(f"{pattern}: cannot be listed ({reason(pattern, error)})") from None
        files = {file.path: file for file in listed if not _left_out(file.path)}
        if not files:
            raise ValueError(f"{pattern}: no file of reports matches")
        for path, file in files.items():
            found[path] = path, file.size_in_bytes, float(file.last_updated_in_seconds or 0)
    return sorted(found.values())


def _left_out(path: str) -> bool:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return name.startswith(("_", ".")) or name.endswith(".json")


def _splits(path: str) -> bool:
    """Whether a file can be read from any place on."""
    return CompressionTypes.detect_compression_type(path) == CompressionTypes.UNCOMPRESSED


class Stretch(NamedTuple):
    """Bytes of a file at hand, and which of them are to be read.

    Attributes:
        data: the bytes.
        begin: where in the file they begin.
        start, stop: which places belong to the stretch.
    """

    data: bytes
    begin: int
    start: int
    stop: int


class PartReader:
    """Reads a part stretch by stretch, with what lies around each.

    Args:
        part: which.
        margin: bytes around a stretch that are needed.

    Attributes:
        digest: of all bytes of the part, once it was read.

    Raises:
        ValueError: naming the file, if it cannot be read, or changed since it was listed.
    """

    def __init__(self, part: FilePart, margin: int) -> None:
        self._part, self._margin = part, margin
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> bytes:
        return self._digest.digest()

    def __iter__(self) -> Iterator[Stretch]:
        part = self._part
        if part.files:
            yield Stretch(b"".join(self._whole()), 0, 0, part.stop)
            return
        self._check_unchanged()
        try:
            file = FileSystems.open(part.path, BINARY)
        except Exception as error:
            why = reason(part.path, error)
            raise ValueError(f"{part.path}: cannot be opened ({why})") from None
        with file:
            yield from self._compressed(file) if part.stop < 0 else self._plain(file)

    def _whole(self) -> Iterator[bytes]:
        """All bytes of each of several small files."""
        files = self._part.files
        if any("://" in path for path, *_ in files):
            with ThreadPoolExecutor(_OPEN_AT_ONCE) as several:
                read = several.map(_read_stored, files)
        else:
            read = map(_read_local, files)
        for content in read:
            self._digest.update(content)
            yield content

    def _plain(self, file: Any) -> Iterator[Stretch]:
        part, margin = self._part, self._margin
        begin = max(0, part.start - margin)
        if begin:
            self._call(file.seek, begin)
        wanted = min(part.stop + margin, part.size) - begin
        data = self._read(file, wanted)
        if len(data) < wanted:
            raise ValueError(f"{part.path}: {CHANGED}")
        yield Stretch(data, begin, part.start, part.stop)

    def _compressed(self, file: Any) -> Iterator[Stretch]:
        data, begin, start, ended = b"", 0, 0, False
        while not ended:
            wanted = start + PART_BYTES + self._margin - begin
            more = self._read(file, wanted - len(data))
            ended = len(more) < wanted - len(data)
            data += more
            stop = begin + len(data) if ended else start + PART_BYTES
            yield Stretch(data, begin, start, stop)
            keep = max(begin, stop - self._margin)
            data, begin, start = data[keep - begin :], keep, stop

    def _check_unchanged(self) -> None:
        part = self._part
        try:
            (file,) = FileSystems.match([part.path], [1])[0].metadata_list
            found = file.size_in_bytes, float(file.last_updated_in_seconds or 0)
        except Exception as error:
            why = reason(part.path, error)
            raise ValueError(f"{part.path}: cannot be listed ({why})") from None
        if found != (part.size, part.updated):
            raise ValueError(f"{part.path}: {CHANGED}")

    def _read(self, file: Any, size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := self._call(file.read, size)):
            self._digest.update(piece)
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _call(self, function: Any, argument: int) -> Any:
        """A call on the file, whose failures name the file and quote nothing."""
        try:
            return function(argument)
        except Exception as error:
            kind = type(error).__name__
            raise ValueError(f"{self._part.path}: cannot be read ({kind})") from None


def _read_local(file: tuple[str, int, float]) -> bytes:
    """All of a small file of this machine: Beam takes 0.5 ms to list and open one."""
    path, size, updated = file
    try:
        with open(path, "rb", buffering=0) as opened:
            told = os.fstat(opened.fileno())
            content = opened.read(size + 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be opened ({type(error).__name__})") from None
    if (len(content), told.st_mtime) != (size, updated):
        raise ValueError(f"{path}: {CHANGED}")
    return content


def _read_stored(file: tuple[str, int, float]) -> bytes:
    """The same in any store that Beam knows."""
    reader = PartReader(FilePart(file[0], 0, file[1], file[1], file[2], 1, b""), 0)
    return b"".join(stretch.data for stretch in reader)


CHANGED = "changed while it was read: give `collect` files that nobody writes to any more"
