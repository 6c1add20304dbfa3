"""Files in any store that Beam knows: which there are, and those with the heads of a ledger."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.filesystems import FileSystems

if TYPE_CHECKING:
    from beam_ldp.ledger.rows import Anchor


def matching(pattern: str, *, or_none: bool = False) -> list[FileMetadata]:
    """The files that match a path or glob, in the order of their paths.

    Args:
        pattern: of paths.
        or_none: whether a place that cannot be listed has no files. Otherwise:

    Raises:
        BeamIOError: if the place cannot be listed; where nothing matches the list is empty.
    """
    try:
        found = FileSystems.match([pattern])[0].metadata_list
    except BeamIOError:
        if or_none:
            return []
        raise
    return sorted(found, key=lambda file: str(file.path))


def paths_matching(pattern: str, *, or_none: bool = False) -> list[str]:
    """The paths alone; as `matching`."""
    return [str(file.path) for file in matching(pattern, or_none=or_none)]


def matching_or_inside(pattern: str) -> list[FileMetadata]:
    """The same, where a path that names a folder stands for the files in it."""
    found, own = matching(pattern), pattern.rstrip("/")
    if all(file.path.rstrip("/") == own for file in found):
        inside = matching(f"{own}/*")
        return inside if inside or os.path.isdir(own) else found
    return found


# Heads of a ledger: one object each, never overwritten -------------------------------------

_JSON = "application/json"


class StoredAnchors:
    """Keeps the heads of a ledger under a folder of any store that Beam knows.

    As `beam_ldp.ledger.sinks.AnchorSink`. Each is an object of its own, so the store may forbid to
    change or delete any (object lock). Its name says how many rows there were.

    Args:
        url: of the folder, for example `gs://auditor/anchors`.
    """

    def __init__(self, url: str) -> None:
        self._folder = url.rstrip("/")

    @property
    def name(self) -> str:
        return self._folder

    def last(self, ledger_id: str) -> Anchor | None:
        """The anchor of most rows.

        Raises:
            BeamIOError, OSError: if the store cannot be read.
            ValueError: if the object is no anchor.
        """
        found = self._paths(f"{ledger_id}/*.json")
        return _read(max(found)) if found else None

    def put(self, anchor: Anchor) -> None:
        """Keep one.

        Raises:
            BeamIOError, OSError: if it cannot be written.
        """
        path = f"{self._folder}/{anchor.ledger_id}/{anchor.count:012d}-{anchor.hash[:16]}.json"
        with FileSystems.create(path, _JSON, "uncompressed") as stream:
            stream.write(json.dumps(asdict(anchor)).encode())

    def all(self) -> list[Anchor]:
        """All anchors, of all ledgers."""
        return [_read(path) for path in self._paths("*/*.json")]

    def _paths(self, pattern: str) -> list[str]:
        return paths_matching(f"{self._folder}/{pattern}")


def _read(path: str) -> Anchor:
    from beam_ldp.ledger.rows import Anchor  # the extra `ledger`, which listing does not need

    with FileSystems.open(path, _JSON, "uncompressed") as stream:
        told = json.loads(stream.read())
    try:
        return Anchor(**told)
    except TypeError:
        raise ValueError(f"{path} is no anchor") from None
