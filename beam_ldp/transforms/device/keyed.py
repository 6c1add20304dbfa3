"""What a device does under a secret key: it draws a person's noise once, and leaves hashes of whom
it asked.

The noise of a release is fresh, memoized under its identity with a secret key, or simulated. What
a run leaves of the people whom it asks are keyed hashes for the ledger to count, and what memoized
reports are known by.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints import typehints

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.randomness import MIN_KEY_BYTES
from beam_ldp.randomizers.set_digest import set_records
from beam_ldp.settings import Noise
from beam_ldp.transforms.elements.blocks import ValueBlock
from beam_ldp.transforms.elements.set_digests import PIECE, DigestSet, pieces_of
from beam_ldp.transforms.elements.stages import is_streamed, window_bounds
from beam_ldp.transforms.files import paths_matching, reason

if TYPE_CHECKING:
    from beam_ldp.ledger.participants import Files, PeopleKey


# Secret keys, read where they are used: never in a job graph, a log or a message ----------
#
# A key is a file that its owner alone can read, at any path of Beam's file systems, or a secret
# of a secret manager in Beam's own notation,
# `type:GcpSecret;version_name:projects/.../versions/1`. Whoever has the key of memoized noise can
# invert every report.


_SECRET = "type:"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class _ReadableByOthers(Exception):
    """A key file whose mode lets others read it."""


def read_key(source: str, name: str = "memoize_key_file") -> bytes:
    """The secret bytes of a key.

    Args:
        source: path of a file, or a secret in Beam's notation.
        name: of the argument, for errors.

    Raises:
        ValueError: if it cannot be read or is too short, or if others than its owner can read a
            local file; nothing of it is quoted.
    """
    try:
        key = _of_secret(source) if source.startswith(_SECRET) else _of_file(source, name)
    except _ReadableByOthers as refused:
        raise ValueError(str(refused)) from None
    except Exception as error:
        why = reason(source, error)
        raise ValueError(f"{name} must be readable on every worker: {source} ({why})") from None
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"{name} must hold at least {MIN_KEY_BYTES} secret bytes, see {source}")
    return key


def _of_secret(notation: str) -> bytes:
    from apache_beam.utils.secret import Secret

    return bytes(Secret.parse_secret_option(notation).get_secret_bytes())


def _of_file(path: str, name: str) -> bytes:
    if os.name == "posix" and isinstance(FileSystems.get_filesystem(path), LocalFileSystem):
        mode = os.stat(path).st_mode
        if mode & _OTHERS:
            raise _ReadableByOthers(
                f"{name} must be readable by its owner alone: chmod 600 {path} (a key that others "
                "may have read is replaced, not only hidden)"
            )
    with FileSystems.open(path, mime_type="application/octet-stream") as file:
        return bytes(file.read())


# Where the noise of a release comes from: fresh, memoized under its identity, or simulated.


@dataclass(frozen=True)
class RecordLog:
    """Where a run leaves records of who was asked what (`beam_ldp.transforms.device.asked`).

    Attributes:
        folder: on any file system that Beam knows.
        key_file: file with at least 32 secret bytes, read on the workers.
        dataset, run: declared names, of the people's data and of this release.
        number: of the round, from 0. Questions of a round may depend on all answers before it.
    """

    folder: str
    key_file: str
    dataset: str
    run: str
    number: int = 0


@dataclass(frozen=True)
class NoiseSource:
    """Where noise comes from. It travels in the job graph, where no secret does.

    Args:
        identity: of the release. Needed where noise is memoized; its commitment to the key, if it
            has one, is checked where the key is read.
        key_file: file with at least 32 secret bytes, read on the worker. A report is then a
            function of key, user, value and identity: a retry or a re-run sends the same one. Needs
            blocks with user ids. Each window is a release of its own: a person's reports in two
            windows have independent noise.
        seed: for simulations: the noise is predictable, nobody is protected, and the release has
            no price. Reproducible for blocks with source positions; blocks without them draw
            new noise each time.
        permanent: memoized only: a person's report is the same in every window while the value is
            the same. That costs the local epsilon once, for people whose value never changes; a
            changed value shows as a change, for which there is no bound.
        log: where records of who was asked what are left, if anywhere; needs blocks with user ids.

    Raises:
        ValueError: for arguments that contradict each other.

    >>> NoiseSource().memoized, NoiseSource(seed=1).simulated
    (False, True)
    """

    identity: ReleaseIdentity | None = None
    key_file: str | None = None
    seed: int | None = None
    permanent: bool = False
    log: RecordLog | None = None

    @classmethod
    def told(
        cls,
        noise: Noise,
        identity: ReleaseIdentity | None,
        *,
        permanent: bool = False,
        number: int = 0,
    ) -> NoiseSource:
        """As the settings say, for a round of a release."""
        log = None
        if noise.log is not None and noise.log_key_file is not None:
            run = f"{noise.dataset}/{noise.id}"
            log = RecordLog(noise.log, noise.log_key_file, noise.dataset, run, number)
        return cls(identity, noise.key_file, noise.seed, permanent, log)

    def __post_init__(self) -> None:
        if self.permanent and not self.memoized:
            raise ValueError("noise.key_file must be given where permanent is set")
        if self.memoized:
            if self.identity is None:
                raise ValueError(
                    "identity must say which release this is where key_file is given (for a "
                    "composite: Noise(dataset=..., id=...))"
                )
            if self.seed is not None:
                raise ValueError("seed must be None where key_file is given")
        seed = self.seed
        if seed is not None:
            check_integer("seed", seed, 0)

    @property
    def memoized(self) -> bool:
        """Whether a repetition sends the same reports."""
        return self.key_file is not None

    @property
    def simulated(self) -> bool:
        """Whether nobody is protected."""
        return self.seed is not None

    def key(self) -> bytes | None:
        """The secret key, read where it is used; None where noise is not memoized.

        Raises:
            ValueError: if it cannot be read, is too short, or is not the one that the identity
                commits to.
        """
        if self.key_file is None or self.identity is None:
            return None
        key = read_key(self.key_file)
        self.identity.committed(key)
        return key

    def of(self, window: Any) -> ReleaseIdentity:
        """The identity of the release that a window is, for memoized randomness."""
        assert self.identity is not None
        if self.permanent or isinstance(window, GlobalWindow):
            return self.identity
        return self.identity.of_window(window.start.micros, window.end.micros)


FRESH = NoiseSource()


# Leaving keyed hashes of the people whom a run asks, for the ledger to count --------------
#
# What a hash tells, and to whom, is in `beam_ldp.ledger.participants`.


_BINARY = "application/octet-stream"


class BeamFiles:
    """Files of any file system that Beam knows."""

    def names(self, folder: str) -> list[str]:
        found = paths_matching(f"{folder}/*", or_none=True)
        return sorted(path.rsplit("/", 1)[-1] for path in found)

    def read(self, path: str) -> bytes:
        with FileSystems.open(path, _BINARY, "uncompressed") as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        with FileSystems.create(path, _BINARY, "uncompressed") as stream:  # whole when it is closed
            stream.write(content)


def files_at(store: str) -> Files:
    """Access to the folder of hashes."""
    from beam_ldp.ledger.participants import LocalFiles

    if FileSystems.get_scheme(store) in (None, "", "file"):
        return LocalFiles()
    return BeamFiles()


@dataclass(frozen=True)
class PeopleFolder:
    """Where a run leaves hashes of its people; travels in the job graph, where the key does not.

    Attributes:
        store: folder of all runs' hashes, on any file system that Beam knows.
        key_file: file with at least 32 secret bytes, read on the workers.
        population: as the ledger calls the people.
        run: name of the run in the ledger.
    """

    store: str
    key_file: str
    population: str
    run: str

    def at(self, window: Any) -> str:
        """The folder of a window."""
        from beam_ldp.ledger.participants import folder_of

        store = self.store.removeprefix("file://")
        return folder_of(store, self.population, self.run, window_bounds(window))

    def key(self) -> PeopleKey:
        """The key, read on the worker.

        Raises:
            ValueError: if the file cannot be read or is too short. Nothing of it is quoted.
        """
        from beam_ldp.ledger.participants import PeopleKey

        return PeopleKey(read_key(self.key_file, "people_key_file"), self.population)


@dataclass(eq=False, repr=False)
class LeaveHashes(beam.PTransform):
    """Writes a keyed hash of everybody's id, each window's people into a folder of their own.

    In: `ValueBlock`s with user ids. Out: paths of the files, for tests; nothing that tells who.
    Every worker sorts what it was sent, so files tell nothing about the order of rows.

    Args:
        folder: where.
    """

    folder: PeopleFolder

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        if is_streamed(pcoll):  # where Beam drops what comes at the close of a window
            here = beam.ParDo(_WriteHere(self.folder)).with_output_types(str)
            return pcoll | "Hash ids" >> here
        return (
            pcoll
            | "Hash ids"
            >> beam.ParDo(_Hash(self.folder)).with_output_types(typehints.Tuple[int, bytes])
            | "Part hashes" >> beam.GroupByKey()
            | "Write hashes" >> beam.ParDo(_Write(self.folder)).with_output_types(str)
        )


@dataclass(eq=False)
class _WithKey(beam.DoFn):
    folder: PeopleFolder

    def setup(self) -> None:
        self._key = self.folder.key()

    def _tags(self, block: ValueBlock) -> np.ndarray:
        if block.user_ids is None:
            raise ValueError("hashes of people need user ids: name the user id column")
        return self._key.tags(block.user_ids)


class _Hash(_WithKey):
    def process(self, block: ValueBlock) -> Iterator[tuple[int, bytes]]:
        from beam_ldp.ledger.participants import shards_of

        for shard, tags in shards_of(self._tags(block)):
            yield shard, tags.astype("<u8").tobytes()


class _WriteHere(_WithKey):
    """Every bundle writes files of its own: more of them, and nothing is grouped."""

    def start_bundle(self) -> None:
        self._held: dict[Any, list[np.ndarray]] = defaultdict(list)

    def process(self, block: ValueBlock, window: Any = beam.DoFn.WindowParam) -> None:
        self._held[window].append(self._tags(block))

    def finish_bundle(self) -> None:
        from beam_ldp.ledger.participants import shards_of, write_tags

        files = files_at(self.folder.store)
        for window, held in self._held.items():
            for shard, tags in shards_of(np.concatenate(held)):
                write_tags(files, self.folder.at(window), shard, self._key.key_id, tags)


class _Write(_WithKey):
    def process(
        self, element: tuple[int, Iterable[bytes]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[str]:
        from beam_ldp.ledger.participants import write_tags

        shard, parts = element
        tags = np.unique(np.frombuffer(b"".join(parts), dtype="<u8").astype(np.uint64))
        files = files_at(self.folder.store)
        yield write_tags(files, self.folder.at(window), shard, self._key.key_id, tags)


# What memoized reports leave behind: a keyed digest of all of them, and hashes of each ----
#
# With them a second publication of one release is told from the first: see
# `beam_ldp.randomizers.randomness` and `beam_ldp.ledger.participants`.


_DIGEST_PARTS = 64  # 34 MB each for 100 million people


@dataclass(frozen=True, eq=False)
class Trace:
    """Who sent which report: stays between two stages of one worker.

    Attributes:
        user_ids: `(n,)`.
        hashes: `(n, 2)` uint64, from `report_hashes`.
        groups: `(n,)` integers, the public group of each; None where there is one.
    """

    user_ids: np.ndarray
    hashes: np.ndarray
    groups: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class DigestReports(beam.PTransform):
    """In: `Trace`s. Out: for each window the set digest of all hashes; none of nothing.

    Args:
        identity: of the release.
    """

    identity: ReleaseIdentity

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        pieces = pcoll | "Part by bucket" >> beam.FlatMap(_pieces).with_output_types(PIECE)
        return pieces | DigestSet(self.identity)


def _pieces(trace: Trace) -> Iterator[tuple[int, Any]]:
    hashes = np.ascontiguousarray(trace.hashes, dtype="<u8").view(np.uint8)
    return pieces_of(set_records(hashes, hashes[:, :0]), _DIGEST_PARTS)


@dataclass(eq=False, repr=False)
class LeaveReports(beam.PTransform):
    """Writes each person's tag, hash of the report and group, for publications to be compared.

    In: `Trace`s. Out: paths of the files.

    Args:
        folder: of the run's people.
        publication: name of this publication in it.
    """

    folder: PeopleFolder
    publication: str

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return (
            pcoll
            | "Tag reports"
            >> beam.ParDo(_Tag(self.folder)).with_output_types(typehints.Tuple[int, bytes])
            | "Part reports" >> beam.GroupByKey()
            | "Write reports"
            >> beam.ParDo(_WriteReports(self.folder, self.publication)).with_output_types(str)
        )


class _Tag(_WithKey):
    def process(self, trace: Trace) -> Iterator[tuple[int, bytes]]:
        from beam_ldp.ledger.participants import shards_of

        tags = self._key.tags(trace.user_ids)
        groups = np.zeros(len(tags)) if trace.groups is None else trace.groups
        rows = np.stack([tags, trace.hashes[:, 0], groups.astype(np.uint64)], axis=1)
        order = np.argsort(tags, kind="stable")
        tags, rows = tags[order], rows[order]
        for shard, part in shards_of(tags):
            chosen = rows[np.searchsorted(tags, part[0]) : np.searchsorted(tags, part[-1], "right")]
            yield shard, chosen.astype("<u8").tobytes()


@dataclass(eq=False)
class _WriteReports(_WithKey):
    publication: str

    def process(
        self, element: tuple[int, Iterable[bytes]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[str]:
        from beam_ldp.ledger.participants import write_reports

        shard, parts = element
        rows = np.frombuffer(b"".join(parts), dtype="<u8").reshape(-1, 3)
        files = files_at(self.folder.store)
        place = publication_folder(self.folder.at(window), self.publication)
        yield write_reports(files, place, shard, self._key.key_id, *rows.T)


def publication_folder(folder: str, publication: str) -> str:
    """Where the reports of one publication are told, in the folder of the run's people."""
    return f"{folder}/{publication}"
