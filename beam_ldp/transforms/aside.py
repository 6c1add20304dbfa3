"""Bytes that travel between stages, or lie in a folder while only their names travel.

Beam's local runner holds all that it exchanges in memory. Where that is too much, a folder that
all workers can read and write keeps it.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from apache_beam.io.filesystems import FileSystems

from beam_ldp.transforms.report_terms import BINARY
from beam_ldp.transforms.shuffled_files import make_folder


class StoredBytes(NamedTuple):
    """Some bytes: themselves, or the path of a file that holds them."""

    content: bytes
    path: str

    def read(self) -> bytes:
        """The bytes."""
        if not self.path:
            return self.content
        with FileSystems.open(self.path, BINARY, "uncompressed") as file:
            return bytes(file.read())


class Aside(NamedTuple):
    """Where bytes are kept.

    Attributes:
        folder: for them, "" where they travel. A file that a repeated attempt left behind has a
            name that nothing knows; who gave the folder deletes it when the pipeline has ended.
    """

    folder: str = ""

    def keep(self, content: bytes) -> StoredBytes:
        """What stands for these bytes."""
        if not self.folder:
            return StoredBytes(content, "")
        make_folder(self.folder)
        path = f"{self.folder}/{uuid.uuid4().hex}"
        with FileSystems.create(path, BINARY, "uncompressed") as file:
            file.write(content)
        return StoredBytes(b"", path)
