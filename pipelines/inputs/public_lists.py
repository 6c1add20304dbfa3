"""Public lists of values and of groups: one per line, on any file system that Beam knows."""

from __future__ import annotations

from pathlib import Path

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.randomizers.domain import OTHER, Domain

_COMPRESSED = (".gz", ".bz2", ".zip", ".zst", ".xz", ".lzma", ".deflate")


def read_public(path: str) -> bytes:
    """What a file holds, unpacked. Beam, which loads slowly, is asked only where it is needed."""
    if "://" not in path and not path.endswith(_COMPRESSED):
        return Path(path).read_bytes()
    from apache_beam.io.filesystems import FileSystems

    with FileSystems.open(path, "application/octet-stream") as file:
        return bytes(file.read())


def load_list(flag: str, path: str, other: str = OTHER, hint: str = "") -> Domain:
    """The list of a file.

    Args:
        flag: that names the file, for messages.
        path: of the file.
        other: what everything else is called.
        hint: what to do where the list holds `other` itself.

    Raises:
        UsageError: if it cannot be read, or is no list.
    """
    try:
        content = read_public(path)
    except Exception as error:
        raise UsageError(f"{flag} {path}: cannot be read ({type(error).__name__})") from None
    try:
        return Domain.from_lines(content, other)
    except ValueError as error:
        raise UsageError(f"{flag} {path}: {error}{hint if 'other' in str(error) else ''}") from None
