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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from beam_ldp.accounting.prices import Cell, cells_of
from beam_ldp.ledger.charges import Charge
from beam_ldp.randomizers.identity import AnyIds, canonical_ids, length_prefixed
from beam_ldp.randomizers.randomness import check_key, derive_key
from beam_ldp.whole_files import replace_file

NUM_SHARDS = 64
TAG_BYTES = KEY_ID_BYTES = 8
_SHARD_BITS = 6


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
        replace_file(place, content, durable=False)


def folder_of(store: str, population: str, run: str, window: Iterable[int] | None) -> str:
    """The folder of the people whom a run asked, in a window of it."""
    bounds = b"" if window is None else repr(list(window)).encode()
    names = (population.encode(), length_prefixed(run.encode("utf-8", "surrogatepass"), bounds))
    return "/".join([store.rstrip("/"), *(hashlib.sha256(n).hexdigest()[:32] for n in names)])


@dataclass(frozen=True)
class _Format:
    """Files of one shard each: magic, key id, and rows of so many little-endian 64-bit words.

    A name holds the shard and a digest of the content, so that a retry writes the same file again.
    """

    magic: bytes
    ending: str
    words: int

    def write(self, files: Files, folder: str, shard: int, key_id: bytes, rows: np.ndarray) -> str:
        """Write the rows of a shard; the path."""
        content = self.magic + key_id + np.asarray(rows, dtype="<u8").tobytes()
        path = f"{folder}/{self._name(shard, content)}"
        files.write(path, content)
        return path

    def names(self, files: Files, folder: str) -> dict[int, tuple[str, ...]]:
        """Names of the files of a folder, by shard."""
        found: dict[int, tuple[str, ...]] = {}
        for name in files.names(folder):
            if name.endswith(self.ending) and not name.startswith("."):
                if not name[:2].isdigit():
                    raise DamagedTagsError(f"{folder}/{name} is damaged: its name tells no shard")
                shard = int(name[:2])
                found[shard] = (*found.get(shard, ()), name)
        return found

    def read(self, files: Files, folder: str, name: str) -> tuple[bytes, np.ndarray]:
        """Key id and `(n, words)` rows of a file.

        Raises:
            DamagedTagsError: if the content does not fit its name.
        """
        content, header = files.read(f"{folder}/{name}"), len(self.magic) + KEY_ID_BYTES
        rest = len(content) - header
        sound = content.startswith(self.magic) and rest >= 0 and rest % (8 * self.words) == 0
        if not sound or name != self._name(int(name[:2]), content):
            raise DamagedTagsError(
                f"{folder}/{name} is damaged: its content does not match its name"
            )
        rows = np.frombuffer(content[header:], dtype="<u8").astype(np.uint64)
        return content[len(self.magic) : header], rows.reshape(-1, self.words)

    def _name(self, shard: int, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()[:32]
        return f"{shard:02d}-{digest}{self.ending}"


_TAGS = _Format(b"beam-ldp-people1", ".tags", 1)
_REPORTS = _Format(b"beam-ldp-report2", ".reports", 3)  # tag, hash of the report, group


def write_tags(files: Files, folder: str, shard: int, key_id: bytes, tags: np.ndarray) -> str:
    """Write sorted distinct tags of one shard; the path."""
    return _TAGS.write(files, folder, shard, key_id, tags)


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
        names = _TAGS.names(files, folder)
        listed = [name for of_shard in names.values() for name in of_shard]
        keys = frozenset(_TAGS.read(files, folder, name)[0] for name in listed)
        return cls(files, folder, names, keys)

    def tags(self, shard: int) -> np.ndarray:
        """Each tag of a shard once, sorted."""
        names = self.names.get(shard, ())
        found = [_TAGS.read(self.files, self.folder, name)[1] for name in names]
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


# Who of a new population was asked before, as one of another: looked up in the tags of its runs.
#
# Tags of two populations cannot be compared with each other: each population has a key of its
# own. Whoever holds the file's key and the ids of the new people can look each of them up. That
# is asked before a budget is granted beside another one: somebody who is in both loses the sum.


@dataclass(frozen=True)
class AskedElsewhere:
    """How many of some people a population's runs have asked.

    Attributes:
        population: whose runs.
        people: how many different people were looked up.
        found: how many of them left a tag in one of its runs.
        runs, known: its runs that may have asked somebody, and those of them that ended and left a
            tag of everybody they asked, under this key. Whom the others asked nobody can tell.
    """

    population: str
    people: int
    found: int
    runs: int
    known: int

    def __str__(self) -> str:
        said = (
            f"{self.found:,} of {self.people:,} people were asked by runs about {self.population!r}"
        )
        if self.known == self.runs:
            return said
        return (
            f"{said}, as far as {self.known:,} of its {self.runs:,} runs tell: the others did "
            "not leave everybody's hashed id under this key"
        )


def asked_elsewhere(
    user_ids: AnyIds,
    key: bytes,
    store: str,
    files: Files,
    population: str,
    charges: Iterable[Charge],
) -> AskedElsewhere:
    """Look people up in the tags of another population's runs.

    Args:
        user_ids: of the people of whom it is asked.
        key: what the key file holds; each population's own is derived from it.
        store: folder of all tags.
        files: where it lies.
        population: whose runs.
        charges: of these runs.

    Raises:
        DamagedTagsError: if a file is not what was written.
        ValueError: if the key is too short.
    """
    theirs = PeopleKey(key, population)
    wanted = dict(shards_of(theirs.tags(user_ids)))
    found: dict[int, np.ndarray] = {}
    known = 0
    runs = [charge for charge in charges if charge.local_epsilon > 0]
    for charge in runs:
        folder = folder_of(store, population, charge.group, charge.about.get("window"))
        asked = AskedPeople.open(files, folder)
        if asked.key_ids != {theirs.key_id}:
            continue
        reports = charge.about.get("num_reports")
        known += isinstance(reports, int) and asked.num_people >= reports
        for shard, tags in wanted.items():
            again = np.intersect1d(tags, asked.tags(shard), assume_unique=True)
            found[shard] = np.union1d(found.get(shard, again), again)
    return AskedElsewhere(
        population,
        sum(map(len, wanted.values())),
        sum(map(len, found.values())),
        len(runs),
        known,
    )


# Who sent which memoized report, known only by keyed hashes: what a second publication changed.
#
# Beside the tags of people (above) a run with memoized noise may leave, for each tag, a keyed
# hash of the report that was sent. Two publications of one release are then compared without any
# key: who is in one of them only, in which public group, and whether somebody's report is another
# one, which means another value (or another group).
#
# A reader of these files learns, beyond what tags tell, whose report changed between two
# publications of one release. They are kept like the tags.


def write_reports(
    files: Files,
    folder: str,
    shard: int,
    key_id: bytes,
    tags: np.ndarray,
    hashes: np.ndarray,
    groups: np.ndarray | None = None,
) -> str:
    """Write the people of one shard; the path.

    Args:
        files: where.
        folder: of this publication.
        shard: of the tags.
        key_id: of the people's key.
        tags: `(n,)` uint64.
        hashes: `(n,)` uint64, of the report of each.
        groups: `(n,)` integers >= 0, the public group of each; None where there is one.
    """
    if groups is None:
        groups = np.zeros(len(tags), dtype=np.uint64)
    rows = np.stack([tags, hashes, groups.astype(np.uint64)], axis=1)
    return _REPORTS.write(files, folder, shard, key_id, rows[np.lexsort(rows.T[::-1])])


@dataclass(frozen=True)
class Compared:
    """What two or more publications of one release have in common.

    Attributes:
        groups: of each public group, people in exactly these publications, for each set of them
            that occurs. One group, 0, where there are none.
        changed: people whose report, or group, is not the same in all publications that they are
            in.
        people: of each publication, how many people left a hash.
    """

    groups: dict[int, Counter[Cell]]
    changed: int
    people: tuple[int, ...]


def compare(files: Files, folders: Sequence[str]) -> Compared | None:
    """Compare publications, each in a folder of its own; None where that cannot be done.

    It cannot where one left nothing, where tags were made with different keys, or where one tag
    stands for two reports of one publication. Memory: one of 64 shards of all of them.

    Raises:
        DamagedTagsError: if a file is not what was written.
    """
    names = [_REPORTS.names(files, folder) for folder in folders]
    if not names or not all(names):
        return None
    keys: set[bytes] = set()
    groups: dict[int, Counter[Cell]] = {}
    changed, people = 0, [0] * len(folders)
    for shard in range(NUM_SHARDS):
        found = []
        for folder, listed in zip(folders, names):
            rows, key_ids = _rows_of(files, folder, listed.get(shard, ()), shard)
            if len(rows) != len(np.unique(rows[:, 0])):
                return None
            found.append(rows)
            keys |= key_ids
        for i, rows in enumerate(found):
            people[i] += len(rows)
        for group in np.unique(np.concatenate([rows[:, 2] for rows in found])).tolist():
            cells = cells_of([rows[rows[:, 2] == group, 0] for rows in found])
            groups.setdefault(group, Counter()).update(cells)
        together = np.unique(np.concatenate(found), axis=0)  # each report of each person once
        changed += len(together) - len(np.unique(together[:, 0]))
    return Compared(groups, changed, tuple(people)) if len(keys) == 1 else None


def _rows_of(
    files: Files, folder: str, names: Sequence[str], shard: int
) -> tuple[np.ndarray, set[bytes]]:
    """`(tag, hash, group)` of a shard, each once and sorted, and the keys that made the tags."""
    rows, keys = [np.empty((0, _REPORTS.words), dtype=np.uint64)], set()
    for name in names:
        key, found = _REPORTS.read(files, folder, name)
        if not np.all(found[:, 0] >> np.uint64(64 - _SHARD_BITS) == shard):
            raise DamagedTagsError(f"{folder}/{name} is damaged: it holds tags of another shard")
        keys.add(key)
        rows.append(found)
    return np.unique(np.concatenate(rows), axis=0), keys
