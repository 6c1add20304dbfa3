"""What each person was charged locally, where people are known only by keyed hashes of their ids.

A run may leave one *tag* of each person whom it asked: the first 64 bits of a keyed hash of the
user id, under a key for this purpose that is read where values are randomized and nowhere else.
Tags of one population are comparable over runs, so the sum of local epsilons of each person, its
maximum and its distribution can be counted, by somebody who cannot tell who a tag is.

What a reader of the tags learns: how many people a run asked, and that the same unknown person
was asked by these runs and not by those. With the key, of everybody whose id can be guessed, which
runs asked them. So tags are kept like a list of who took part; they stand in no output, log or job
graph, and in files that are sorted, so that none can be matched with a report. Tags of other
populations cannot be linked, for each has a key of its own derived from the file's.

Sound where it is incomplete: a run whose tags are missing, fewer than its reports, or made with
another key counts as one that asked everybody. Two persons who share a tag (probability below
n^2 / 2^65) count as one person with both sums.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.randomness import check_key, derive_key
from beam_ldp.randomizers.user_ids import AnyIds, canonical_ids

NUM_SHARDS = 64
TAG_BYTES = KEY_ID_BYTES = 8
_SHARD_BITS = 6
_MAGIC = b"beam-ldp-people1"
_HEADER = len(_MAGIC) + KEY_ID_BYTES
_ENDING = ".tags"


class DamagedTagsError(ValueError):
    """A file of tags is not what was written."""


# Tags ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeopleKey:
    """The key of one population's tags.

    Args:
        key: at least 32 secret bytes. Never printed, compared or stored.
        population: whose people; the same key gives other tags for another population.

    Raises:
        ValueError: if the key is too short. It is never quoted.

    >>> key = PeopleKey(bytes(32), "telemetry")
    >>> len(set(key.tags(["ada", "bob", "ada"]).tolist()))
    2
    """

    key: bytes = field(repr=False, compare=False)
    population: str

    def __post_init__(self) -> None:
        check_key(self.key)

    @property
    def key_id(self) -> bytes:
        """Tells keys apart, and nothing about them: 8 bytes."""
        return derive_key(self.key, b"people key id", self.population.encode())[:KEY_ID_BYTES]

    def tags(self, user_ids: AnyIds) -> np.ndarray:
        """One uint64 per id; ids that are one person have one tag (see `user_ids`).

        About a microsecond per id.
        """
        secret = derive_key(self.key, b"people tags", self.population.encode())
        texts = (i if isinstance(i, bytes) else b"%d" % i for i in canonical_ids(user_ids))
        joined = b"".join(
            hashlib.blake2b(text, key=secret, digest_size=TAG_BYTES).digest() for text in texts
        )
        return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def shards_of(tags: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The tags parted by their leading bits; each part sorted, each tag once."""
    distinct = np.unique(tags)
    edges = np.arange(1, NUM_SHARDS, dtype=np.uint64) << np.uint64(64 - _SHARD_BITS)
    for shard, part in enumerate(np.split(distinct, np.searchsorted(distinct, edges))):
        if len(part):
            yield shard, part


# Files --------------------------------------------------------------------------------------------


class Files(Protocol):
    """Where tags lie. A path is `folder/name`."""

    def names(self, folder: str) -> list[str]:
        """Names of the files of a folder; none if there is no such folder."""

    def read(self, path: str) -> bytes:
        """What a file holds."""

    def write(self, path: str, content: bytes) -> None:
        """A whole file, or none."""


class LocalFiles:
    """Files of this machine, readable for their owner alone."""

    def names(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        place = Path(path)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        with os.fdopen(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
        aside.rename(place)


def folder_of(store: str, population: str, run: str, window: Iterable[int] | None) -> str:
    """The folder of the people whom a run asked, in a window of it."""
    bounds = b"" if window is None else repr(list(window)).encode()
    names = (population.encode(), length_prefixed(run.encode("utf-8", "surrogatepass"), bounds))
    return "/".join([store.rstrip("/"), *(hashlib.sha256(n).hexdigest()[:32] for n in names)])


def write_tags(files: Files, folder: str, shard: int, key_id: bytes, tags: np.ndarray) -> str:
    """Write sorted distinct tags of one shard; the path. A retry writes the same file again."""
    content = _MAGIC + key_id + np.asarray(tags, dtype="<u8").tobytes()
    path = f"{folder}/{shard:02d}-{_digest(content)}{_ENDING}"
    files.write(path, content)
    return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def read_tags(files: Files, folder: str, name: str) -> tuple[bytes, np.ndarray]:
    """Key id and tags of a file.

    Raises:
        DamagedTagsError: if the content does not fit its name.
    """
    content = files.read(f"{folder}/{name}")
    sound = content.startswith(_MAGIC) and len(content) >= _HEADER
    if not sound or name != f"{name[:2]}-{_digest(content)}{_ENDING}":
        raise DamagedTagsError(f"{folder}/{name} is damaged: its content does not match its name")
    tags = np.frombuffer(content[_HEADER:], dtype="<u8").astype(np.uint64)
    return content[len(_MAGIC) : _HEADER], tags


@dataclass(frozen=True)
class AskedPeople:
    """The tags of the people whom one run asked.

    Attributes:
        names: of the files, by shard.
        key_ids: of the keys that made them.
    """

    files: Files
    folder: str
    names: Mapping[int, tuple[str, ...]]
    key_ids: frozenset[bytes]

    @classmethod
    def open(cls, files: Files, folder: str) -> AskedPeople:
        """What lies in a folder. Reads every file once.

        Raises:
            DamagedTagsError: if one is not what was written.
        """
        names: dict[int, tuple[str, ...]] = {}
        keys = set()
        for name in files.names(folder):
            if name.endswith(_ENDING) and not name.startswith("."):
                key, _ = read_tags(files, folder, name)
                keys.add(key)
                shard = int(name[:2])
                names[shard] = (*names.get(shard, ()), name)
        return cls(files, folder, names, frozenset(keys))

    def tags(self, shard: int) -> np.ndarray:
        """Each tag of a shard once, sorted."""
        found = [read_tags(self.files, self.folder, n)[1] for n in self.names.get(shard, ())]
        return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)

    @property
    def num_people(self) -> int:
        """How many different people."""
        return sum(len(self.tags(shard)) for shard in self.names)

    @property
    def digest(self) -> str:
        """Of all files: their names hold digests of their contents."""
        listed = sorted(name for names in self.names.values() for name in names)
        return hashlib.sha256("\n".join(listed).encode()).hexdigest()


def record_people(
    store: str,
    key: PeopleKey,
    run: str,
    user_ids: AnyIds,
    *,
    files: Files | None = None,
    window: Iterable[int] | None = None,
) -> int:
    """Leave tags of the people whom a run asks: for programs that are no Beam pipelines.

    Args:
        store: folder of all tags.
        key: of the population.
        run: the run's name in the ledger.
        user_ids: everybody who randomizes anything in this run; may be called several times.
        files: where `store` lies; default: this machine.
        window: bounds of the run's window, if it has windows.

    Returns:
        Number of different people in this call.
    """
    files = files or LocalFiles()
    folder = folder_of(store, key.population, run, window)
    tags = key.tags(user_ids)
    for shard, part in shards_of(tags):
        write_tags(files, folder, shard, key.key_id, part)
    return len(np.unique(tags))
