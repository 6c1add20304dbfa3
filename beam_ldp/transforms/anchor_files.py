"""Heads of a ledger in an object store: one object each, never overwritten."""

from __future__ import annotations

import json
from dataclasses import asdict

from apache_beam.io.filesystems import FileSystems

from beam_ldp.ledger.anchors import Anchor
from beam_ldp.transforms.elements.listing import paths_matching

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
    with FileSystems.open(path, _JSON, "uncompressed") as stream:
        told = json.loads(stream.read())
    try:
        return Anchor(**told)
    except TypeError:
        raise ValueError(f"{path} is no anchor") from None
