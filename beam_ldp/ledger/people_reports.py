"""Who sent which memoized report, known only by keyed hashes: what a second publication changed.

Beside the tags of people (`people`) a run with memoized noise may leave, for each tag, a keyed hash
of the report that was sent. Two publications of one release are then compared without any key: who
is in one of them only, and whether somebody's report is another one, which means another value.

A reader of these files learns, beyond what tags tell, whose report changed between two publications
of one release. They are kept like the tags.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.accounting.publications import Cell, cells_of
from beam_ldp.ledger.people import KEY_ID_BYTES, NUM_SHARDS, DamagedTagsError, Files

_MAGIC = b"beam-ldp-report1"
_HEADER = len(_MAGIC) + KEY_ID_BYTES
_ENDING = ".reports"


def write_reports(
    files: Files, folder: str, shard: int, key_id: bytes, tags: np.ndarray, hashes: np.ndarray
) -> str:
    """Write the people of one shard; the path. A retry writes the same file again.

    Args:
        files: where.
        folder: of this publication.
        shard: of the tags.
        key_id: of the people's key.
        tags: `(n,)` uint64.
        hashes: `(n,)` uint64, of the report of each.
    """
    rows = np.stack([tags, hashes], axis=1).astype("<u8")
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
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
        cells: people in exactly these publications, for each set of them that occurs.
        changed: people whose report is not the same in all publications that they are in.
        people: of each publication, how many people left a hash.
    """

    cells: Counter[Cell]
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
    cells: Counter[Cell] = Counter()
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
        cells += cells_of([rows[:, 0] for rows in found])
        together = np.unique(np.concatenate(found), axis=0)  # each report of each person once
        changed += len(together) - len(np.unique(together[:, 0]))
    return Compared(cells, changed, tuple(people)) if len(keys) == 1 else None


def _rows_of(
    files: Files, folder: str, names: Sequence[str], shard: int
) -> tuple[np.ndarray, set[bytes]]:
    """`(tag, hash)` of a shard, each pair once and sorted, and the keys that made the tags."""
    rows, keys = [np.empty((0, 2), dtype=np.uint64)], set()
    for name in names:
        if not name.startswith(f"{shard:02d}-"):
            continue
        content = files.read(f"{folder}/{name}")
        sound = content.startswith(_MAGIC) and (len(content) - _HEADER) % 16 == 0
        told = np.frombuffer(content[_HEADER:], dtype="<u8") if sound else np.empty(0)
        told = told.astype(np.uint64).reshape(-1, 2)
        sound &= bool(np.all(told[:, 0] >> np.uint64(58) == shard))  # 64 shards, by leading bits
        if not sound or name != f"{shard:02d}-{_digest(content)}{_ENDING}":
            raise DamagedTagsError(f"{folder}/{name} is damaged: its content does not fit its name")
        keys.add(content[len(_MAGIC) : _HEADER])
        rows.append(told)
    return np.unique(np.concatenate(rows), axis=0), keys
