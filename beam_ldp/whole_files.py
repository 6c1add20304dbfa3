"""Local files that appear whole or not at all: written beside their place, then named."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

PRIVATE = 0o600  # readable for the owner alone
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def replace_file(
    path: Path,
    content: bytes,
    *,
    mode: int = PRIVATE,
    durable: bool = True,
    time: int | None = None,
    aside: Path | None = None,
) -> None:
    """Write a file in one step: there always is one that is whole, the old or the new.

    Args:
        path: of the file; what has this name is replaced.
        content: of the file.
        mode: of the file, less the umask.
        durable: whether it outlives a loss of power: file and folder are on the disk before this
            returns. Not worth its milliseconds where a retry writes the file again.
        time: of writing, in nanoseconds since 1970, where it must be another than now.
        aside: where it is written first, and what a killed writer left there is replaced; default:
            a name of its own beside the file, so that several may write it at once.

    Raises:
        OSError: if the disk does not take it; the old one stays.
    """
    aside = _written(aside or _beside(path), content, mode, durable, time)
    try:
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        flush(path.parent)


def write_once(path: Path, content: bytes, *, aside: Path | None = None) -> bool:
    """Write a durable file in one step, unless there is one, be it of another process meanwhile.

    Returns:
        Whether there was none.

    Raises:
        OSError: if the disk does not take it.
    """
    if path.exists():
        return False
    aside = _written(aside or _beside(path), content, 0o666, durable=True)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS or path.exists():
            raise
        aside.rename(path)
    finally:
        aside.unlink(missing_ok=True)
    return True


def write_new(
    path: Path,
    content: bytes,
    *,
    mode: int = PRIVATE,
    durable: bool = False,
    time: int | None = None,
) -> None:
    """A file that was not there, with its mode from the first byte on. Arguments as above.

    Raises:
        FileExistsError: if there is one.
        OSError: if the disk does not take it.
    """
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        if time is not None:
            os.utime(handle, ns=(time, time))
        if durable:
            os.fsync(handle)


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def _written(
    aside: Path, content: bytes, mode: int, durable: bool, time: int | None = None
) -> Path:
    aside.unlink(missing_ok=True)
    try:
        write_new(aside, content, mode=mode, durable=durable, time=time)
    except BaseException:  # a full disk, Ctrl-C
        aside.unlink(missing_ok=True)
        raise
    return aside
