"""Secret keys, read where they are used: never in a job graph, a log or a message.

A key is a file that its owner alone can read, at any path of Beam's file systems, or a secret of a
secret manager in Beam's own notation, `type:GcpSecret;version_name:projects/.../versions/1`.
Whoever has the key of memoized noise can invert every report.
"""

from __future__ import annotations

import os
import stat

from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from beam_ldp.randomizers.randomness import MIN_KEY_BYTES

_SECRET = "type:"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class _ReadableByOthers(Exception):
    """A key file whose mode lets others read it."""


def read_key(source: str, name: str = "memoize_key_file") -> bytes:
    """The secret bytes of a key.

    Args:
        source: path of a file, or a secret in Beam's notation.
        name: of the argument, for errors.

    Raises:
        ValueError: if it cannot be read or is too short, or if others than its owner can read a
            local file; nothing of it is quoted.
    """
    try:
        key = _of_secret(source) if source.startswith(_SECRET) else _of_file(source, name)
    except _ReadableByOthers as refused:
        raise ValueError(str(refused)) from None
    except Exception:
        raise ValueError(f"{name} must be readable on every worker: {source}") from None
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"{name} must hold at least {MIN_KEY_BYTES} secret bytes, see {source}")
    return key


def _of_secret(notation: str) -> bytes:
    from apache_beam.utils.secret import Secret

    return bytes(Secret.parse_secret_option(notation).get_secret_bytes())


def _of_file(path: str, name: str) -> bytes:
    if os.name == "posix" and isinstance(FileSystems.get_filesystem(path), LocalFileSystem):
        mode = os.stat(path).st_mode
        if mode & _OTHERS:
            raise _ReadableByOthers(
                f"{name} must be readable by its owner alone: chmod 600 {path} (a key that others "
                "may have read is replaced, not only hidden)"
            )
    with FileSystems.open(path, mime_type="application/octet-stream") as file:
        return bytes(file.read())
