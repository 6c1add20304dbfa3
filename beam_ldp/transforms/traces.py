"""What memoized reports leave behind: a keyed digest of all of them, and hashes of each.

With them a second publication of one release is told from the first: see
`beam_ldp.randomizers.randomness` and `beam_ldp.ledger.people_before`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints

from beam_ldp.randomizers.randomness import add_digests, digest_of_hashes
from beam_ldp.transforms.people import PeopleFolder, files_at

_BYTES = 16  # of a digest


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


class DigestReports(beam.PTransform):
    """In: `Trace`s. Out: for each window one digest of all of them, 16 bytes; none of nothing."""

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return (
            pcoll
            | "Digest blocks" >> beam.Map(_digest).with_output_types(typehints.Tuple[str, bytes])
            | "Bring digests together" >> beam.GroupByKey()
            | "Add up digests" >> beam.Map(_add).with_output_types(bytes)
        )


def _digest(trace: Trace) -> tuple[str, bytes]:
    """Under a key that Beam need not pickle."""
    return "", digest_of_hashes(trace.hashes).to_bytes(_BYTES, "big")


def _add(element: tuple[str, Iterable[bytes]]) -> bytes:
    digests = element[1]
    return add_digests(int.from_bytes(d, "big") for d in digests).to_bytes(_BYTES, "big")


class LeaveReports(beam.PTransform):
    """Writes each person's tag, hash of the report and group, for publications to be compared.

    In: `Trace`s. Out: paths of the files.

    Args:
        folder: of the run's people.
        publication: name of this publication in it.
    """

    def __init__(self, folder: PeopleFolder, publication: str) -> None:
        super().__init__()
        self._folder = folder
        self._publication = publication

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return (
            pcoll
            | "Tag reports"
            >> beam.ParDo(_Tag(self._folder)).with_output_types(typehints.Tuple[int, bytes])
            | "Part reports" >> beam.GroupByKey()
            | "Write reports"
            >> beam.ParDo(_WriteReports(self._folder, self._publication)).with_output_types(str)
        )


class _Tag(beam.DoFn):
    def __init__(self, folder: PeopleFolder) -> None:
        self._folder = folder

    def setup(self) -> None:
        self._key = self._folder.key()

    def process(self, trace: Trace) -> Iterator[tuple[int, bytes]]:
        from beam_ldp.ledger.people import shards_of

        tags = self._key.tags(trace.user_ids)
        groups = np.zeros(len(tags)) if trace.groups is None else trace.groups
        rows = np.stack([tags, trace.hashes[:, 0], groups.astype(np.uint64)], axis=1)
        order = np.argsort(tags, kind="stable")
        tags, rows = tags[order], rows[order]
        for shard, part in shards_of(tags):
            chosen = rows[np.searchsorted(tags, part[0]) : np.searchsorted(tags, part[-1], "right")]
            yield shard, chosen.astype("<u8").tobytes()


class _WriteReports(beam.DoFn):
    def __init__(self, folder: PeopleFolder, publication: str) -> None:
        self._folder = folder
        self._publication = publication

    def setup(self) -> None:
        self._key_id = self._folder.key().key_id

    def process(
        self, element: tuple[int, Iterable[bytes]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[str]:
        from beam_ldp.ledger.people_before import write_reports

        shard, parts = element
        rows = np.frombuffer(b"".join(parts), dtype="<u8").reshape(-1, 3)
        files = files_at(self._folder.store)
        place = publication_folder(self._folder.at(window), self._publication)
        yield write_reports(files, place, shard, self._key_id, *rows.T)


def publication_folder(folder: str, publication: str) -> str:
    """Where the reports of one publication are told, in the folder of the run's people."""
    return f"{folder}/{publication}"
