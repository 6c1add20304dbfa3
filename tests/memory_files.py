"""An object store in memory, behind Beam's interface of file systems: `memtest://bucket/name`.

Like a real one it has no folders, and a file appears when it is closed.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any

from apache_beam.io.filesystem import (
    BeamIOError,
    CompressedFile,
    CompressionTypes,
    FileMetadata,
    FileSystem,
)

SCHEME = "memtest"
STORE: dict[str, tuple[bytes, float]] = {}


class _Writer(io.BytesIO):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            STORE[self._path] = (self.getvalue(), time.time())
        super().close()


class MemoryFileSystem(FileSystem):
    """Files of this process."""

    @classmethod
    def scheme(cls) -> str:
        return SCHEME

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *(path.strip("/") for path in paths)])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        pass

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for path, (content, written) in sorted(STORE.items()):
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(content), written)

    def create(
        self,
        path: str,
        mime_type: str = "application/octet-stream",
        compression_type: str = CompressionTypes.AUTO,
    ) -> Any:
        return _Writer(path)

    def open(
        self,
        path: str,
        mime_type: str = "application/octet-stream",
        compression_type: str = CompressionTypes.AUTO,
    ) -> Any:
        if path not in STORE:
            raise BeamIOError("no such file", {path: FileNotFoundError(path)})
        found = io.BytesIO(STORE[path][0])
        if compression_type == CompressionTypes.AUTO:
            compression_type = CompressionTypes.detect_compression_type(path)
        if compression_type == CompressionTypes.UNCOMPRESSED:
            return found
        return CompressedFile(found, compression_type=compression_type)

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        for source, target in zip(source_file_names, destination_file_names):
            STORE[target] = STORE[source]

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        self.copy(source_file_names, destination_file_names)
        self.delete(source_file_names)

    def exists(self, path: str) -> bool:
        return path in STORE  # a folder is no object

    def size(self, path: str) -> int:
        return len(STORE[path][0])

    def last_updated(self, path: str) -> float:
        return STORE[path][1]

    def checksum(self, path: str) -> str:
        return str(hash(STORE[path][0]))

    def metadata(self, path: str) -> FileMetadata:
        content, written = STORE[path]
        return FileMetadata(path, len(content), written)

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            for name in [n for n in STORE if n == path or n.startswith(path.rstrip("/") + "/")]:
                del STORE[name]
