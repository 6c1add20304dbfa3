"""Who was asked before, by keyed hashes: as one of another population, or in a publication."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.accounting.prices import Cell, cells_of
from beam_ldp.ledger.books import Population
from beam_ldp.ledger.people import (
    KEY_ID_BYTES,
    NUM_SHARDS,
    AskedPeople,
    DamagedTagsError,
    Files,
    PeopleKey,
    folder_of,
    shards_of,
)
from beam_ldp.randomizers.user_ids import AnyIds

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
    user_ids: AnyIds, key: bytes, store: str, files: Files, populations: Iterable[Population]
) -> list[AskedElsewhere]:
    """Look people up in the tags of other populations' runs.

    Args:
        user_ids: of the people of whom it is asked.
        key: what the key file holds; each population's own is derived from it.
        store: folder of all tags.
        files: where it lies.
        populations: with their charges, as a `LedgerState` has them.

    Raises:
        DamagedTagsError: if a file is not what was written.
        ValueError: if the key is too short.
    """
    return [_asked_by(user_ids, key, store, files, population) for population in populations]


def _asked_by(
    user_ids: AnyIds, key: bytes, store: str, files: Files, population: Population
) -> AskedElsewhere:
    theirs = PeopleKey(key, population.name)
    wanted = dict(shards_of(theirs.tags(user_ids)))
    found: dict[int, np.ndarray] = {}
    known = 0
    runs = [charge for charge in population.charges.values() if charge.local_epsilon > 0]
    for charge in runs:
        folder = folder_of(store, population.name, charge.group, charge.about.get("window"))
        asked = AskedPeople.open(files, folder)
        if asked.key_ids != {theirs.key_id}:
            continue
        reports = charge.about.get("num_reports")
        known += isinstance(reports, int) and asked.num_people >= reports
        for shard, tags in wanted.items():
            again = np.intersect1d(tags, asked.tags(shard), assume_unique=True)
            found[shard] = np.union1d(found.get(shard, again), again)
    return AskedElsewhere(
        population.name,
        sum(map(len, wanted.values())),
        sum(map(len, found.values())),
        len(runs),
        known,
    )


# Who sent which memoized report, known only by keyed hashes: what a second publication changed.
#
# Beside the tags of people (`people`) a run with memoized noise may leave, for each tag, a keyed
# hash of the report that was sent. Two publications of one release are then compared without any
# key: who is in one of them only, in which public group, and whether somebody's report is another
# one, which means another value (or another group).
#
# A reader of these files learns, beyond what tags tell, whose report changed between two
# publications of one release. They are kept like the tags.


_MAGIC = b"beam-ldp-report2"
_HEADER = len(_MAGIC) + KEY_ID_BYTES
_ENDING = ".reports"
_WORDS = 3  # of a row: tag, hash, group


def write_reports(
    files: Files,
    folder: str,
    shard: int,
    key_id: bytes,
    tags: np.ndarray,
    hashes: np.ndarray,
    groups: np.ndarray | None = None,
) -> str:
    """Write the people of one shard; the path. A retry writes the same file again.

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
    rows = np.stack([tags, hashes, groups.astype(np.uint64)], axis=1).astype("<u8")
    rows = rows[np.lexsort(rows.T[::-1])]
    content = _MAGIC + key_id + rows.tobytes()
    path = f"{folder}/{shard:02d}-{_digest(content)}{_ENDING}"
    files.write(path, content)
    return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


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
    names = [[n for n in files.names(folder) if n.endswith(_ENDING)] for folder in folders]
    if not names or not all(names):
        return None
    keys: set[bytes] = set()
    groups: dict[int, Counter[Cell]] = {}
    changed, people = 0, [0] * len(folders)
    for shard in range(NUM_SHARDS):
        found = []
        for folder, listed in zip(folders, names):
            rows, key_ids = _rows_of(files, folder, listed, shard)
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
    rows, keys = [np.empty((0, _WORDS), dtype=np.uint64)], set()
    for name in names:
        if not name.startswith(f"{shard:02d}-"):
            continue
        content = files.read(f"{folder}/{name}")
        sound = content.startswith(_MAGIC) and (len(content) - _HEADER) % (8 * _WORDS) == 0
        told = np.frombuffer(content[_HEADER:], dtype="<u8") if sound else np.empty(0)
        told = told.astype(np.uint64).reshape(-1, _WORDS)
        sound &= bool(np.all(told[:, 0] >> np.uint64(58) == shard))  # 64 shards, by leading bits
        if not sound or name != f"{shard:02d}-{_digest(content)}{_ENDING}":
            raise DamagedTagsError(
                f"{folder}/{name} is damaged: its content does not match its name"
            )
        keys.add(content[len(_MAGIC) : _HEADER])
        rows.append(told)
    return np.unique(np.concatenate(rows), axis=0), keys
