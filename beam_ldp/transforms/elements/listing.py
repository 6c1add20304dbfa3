"""Which files there are, in any file system that Beam knows."""

from __future__ import annotations

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.filesystems import FileSystems


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
        return matching(f"{own}/*") or found
    return found
