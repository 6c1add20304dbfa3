"""Records of who was asked what, left where values are randomized, for `audit-interactivity`.

People and answers stand in them as keyed hashes: whoever reads a log learns how many people were
asked what, and that the same unknown person was asked in these rounds; with the key, of everybody
whose id can be guessed, which ones. An answer's hash matches no report without the key. A log is
kept like a list of who took part; the key is read on the worker and stands in no job graph.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_ldp.protocols.interaction import LOG_SCHEMA
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.randomness import derive_key
from beam_ldp.transforms.device.keyed import RecordLog, files_at, read_key
from beam_ldp.transforms.elements.blocks import ValueBlock
from beam_ldp.transforms.elements.stages import window_bounds

_ROWS = 1 << 20  # in a file, at most about
_HASH = 8  # bytes


class AskedRecords:
    """What a bundle asks, kept until it ends, and then written to a file of its own.

    Each window is a round of its own, in the order of their ends, in microseconds. What is asked in
    the first round of a release is fixed up front, in all windows; later rounds may depend on
    whatever was published by then, in earlier windows too.

    A bundle that an engine repeats leaves its records again: memoized noise gives the same answers,
    which count once; fresh noise gives others, which the audit finds.

    Args:
        log: where.
        randomizer: what everybody is asked.
    """

    def __init__(self, log: RecordLog, randomizer: LocalRandomizer) -> None:
        from beam_ldp.ledger.participants import PeopleKey

        self._log, self._randomizer = log, randomizer
        key = read_key(log.key_file, "interaction_key_file")
        self._people = PeopleKey(key, f"interaction log of {log.dataset}")
        self._answers = derive_key(key, b"interaction log answers", log.dataset.encode())
        self._name = f"{type(randomizer).__name__} {randomizer.config_digest().hex()[:16]}"
        self.begin()

    def begin(self) -> None:
        """Of a bundle."""
        self._held: dict[Any, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        self._rows = 0

    def add(self, block: ValueBlock, drawn: np.ndarray, window: Any) -> None:
        """Keep who of a block sent which report. Raises ValueError for blocks without user ids."""
        if block.user_ids is None:
            raise ValueError("an interaction log needs user ids: name the user id column")
        tags = self._people.tags(block.user_ids)
        named, packed = tags.astype("<u8").tobytes(), self._randomizer.pack_each(drawn)
        hashes = b"".join(
            hashlib.blake2b(
                named[_HASH * i : _HASH * (i + 1)] + packed[i].tobytes(),
                key=self._answers,
                digest_size=_HASH,
            ).digest()
            for i in range(len(tags))
        )
        self._held[window].append((tags, np.frombuffer(hashes, dtype="<u8").astype(np.uint64)))
        self._rows += len(tags)
        if self._rows >= _ROWS:
            self.write()

    def write(self) -> None:
        """To a file for each window; names and order of the files say nothing."""
        files = files_at(self._log.folder)
        for window, held in self._held.items():
            tags, answers = (np.concatenate(column) for column in zip(*held))
            order = np.argsort(tags)  # not that of the people in the data
            stream = io.BytesIO()
            pq.write_table(self._table(tags[order], answers[order], window), stream)
            path = f"{self._log.folder.removeprefix('file://')}/asked-{uuid.uuid4().hex}.parquet"
            files.write(path, stream.getvalue())
        self.begin()

    def _table(self, tags: np.ndarray, answers: np.ndarray, window: Any) -> pa.Table:
        number, bounds = self._log.number, window_bounds(window)
        end = 0 if bounds is None else bounds[1]
        seq = max(end, 0) + number
        same = {
            "seq": seq,
            "randomizer": self._name,
            "round": end + number,
            "epsilon": self._randomizer.local_epsilon,
            "delta": 0.0,
            "assign_seq": seq if number else 0,
            "run": self._log.run,
        }
        own = {"user": tags.view(np.int64), "output": answers.view(np.int64)}
        columns = [
            pa.array(own[field.name])
            if field.name in own
            else pa.array([same[field.name]] * len(tags), field.type)
            for field in LOG_SCHEMA
        ]
        return pa.Table.from_arrays(columns, schema=LOG_SCHEMA)
