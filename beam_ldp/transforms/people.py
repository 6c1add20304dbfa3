"""Leaving keyed hashes of the people whom a run asks, for the ledger to count.

What a hash tells, and to whom, is in `beam_ldp.ledger.people`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.typehints import typehints

from beam_ldp.transforms.blocks import ValueBlock
from beam_ldp.transforms.gate import window_bounds
from beam_ldp.transforms.keys import read_key
from beam_ldp.transforms.listing import paths_matching
from beam_ldp.transforms.windows import is_streamed

if TYPE_CHECKING:  # the extra `ledger` is needed only where hashes are left
    from beam_ldp.ledger.people import Files, PeopleKey

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
    from beam_ldp.ledger.people import LocalFiles

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
        from beam_ldp.ledger.people import folder_of

        store = self.store.removeprefix("file://")
        return folder_of(store, self.population, self.run, window_bounds(window))

    def key(self) -> PeopleKey:
        """The key, read on the worker.

        Raises:
            ValueError: if the file cannot be read or is too short. Nothing of it is quoted.
        """
        from beam_ldp.ledger.people import PeopleKey

        return PeopleKey(read_key(self.key_file, "people_key_file"), self.population)


class LeaveHashes(beam.PTransform):
    """Writes a keyed hash of everybody's id, each window's people into a folder of their own.

    In: `ValueBlock`s with user ids. Out: paths of the files, for tests; nothing that tells who.
    Every worker sorts what it was sent, so files tell nothing about the order of rows.

    Args:
        folder: where.
    """

    def __init__(self, folder: PeopleFolder) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        if is_streamed(pcoll):  # where Beam drops what comes at the close of a window
            here = beam.ParDo(_WriteHere(self._folder)).with_output_types(str)
            return pcoll | "Hash ids" >> here
        return (
            pcoll
            | "Hash ids"
            >> beam.ParDo(_Hash(self._folder)).with_output_types(typehints.Tuple[int, bytes])
            | "Part hashes" >> beam.GroupByKey()
            | "Write hashes" >> beam.ParDo(_Write(self._folder)).with_output_types(str)
        )


class _WithKey(beam.DoFn):
    def __init__(self, folder: PeopleFolder) -> None:
        self._folder = folder

    def setup(self) -> None:
        self._key = self._folder.key()

    def _tags(self, block: ValueBlock) -> np.ndarray:
        if block.user_ids is None:
            raise ValueError("hashes of people need user ids: name the user id column")
        return self._key.tags(block.user_ids)


class _Hash(_WithKey):
    def process(self, block: ValueBlock) -> Iterator[tuple[int, bytes]]:
        from beam_ldp.ledger.people import shards_of

        for shard, tags in shards_of(self._tags(block)):
            yield shard, tags.astype("<u8").tobytes()


class _WriteHere(_WithKey):
    """Every bundle writes files of its own: more of them, and nothing is grouped."""

    def start_bundle(self) -> None:
        self._held: dict[Any, list[np.ndarray]] = defaultdict(list)

    def process(self, block: ValueBlock, window: Any = beam.DoFn.WindowParam) -> None:
        self._held[window].append(self._tags(block))

    def finish_bundle(self) -> None:
        from beam_ldp.ledger.people import shards_of, write_tags

        files = files_at(self._folder.store)
        for window, held in self._held.items():
            for shard, tags in shards_of(np.concatenate(held)):
                write_tags(files, self._folder.at(window), shard, self._key.key_id, tags)


class _Write(beam.DoFn):
    def __init__(self, folder: PeopleFolder) -> None:
        self._folder = folder

    def setup(self) -> None:
        self._key_id = self._folder.key().key_id

    def process(
        self, element: tuple[int, Iterable[bytes]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[str]:
        from beam_ldp.ledger.people import write_tags

        shard, parts = element
        tags = np.unique(np.frombuffer(b"".join(parts), dtype="<u8").astype(np.uint64))
        files = files_at(self._folder.store)
        yield write_tags(files, self._folder.at(window), shard, self._key_id, tags)
