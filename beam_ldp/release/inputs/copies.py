"""Files of any store that Beam knows, copied for programs that read local ones."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11

REMOTE = "://"


def is_remote(pattern: str) -> bool:
    """Whether a path or glob names files that are not of this machine."""
    return REMOTE in pattern and not pattern.startswith(f"file{REMOTE}")


class Copies:
    """A folder of copies, kept until it is left; files of one folder stay together.

    >>> with Copies() as copies:
    ...     copies.named("nothing was copied")
    'nothing was copied'
    """

    def __enter__(self) -> Self:
        self._kept = tempfile.TemporaryDirectory(prefix="beam-ldp-")
        self._names: dict[str, str] = {}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.cleanup()

    def of(self, pattern: str, *beside: str) -> list[Path]:
        """Copies of what matches, or of what lies in the folder that it names.

        Args:
            pattern: path, glob or folder.
            beside: names of files that are copied too, where they lie beside one that matches.

        Raises:
            OSError: if the store cannot be read, or the disk is full.
        """
        from apache_beam.io.filesystem import BeamIOError

        from beam_ldp.transforms.files import matching, matching_or_inside, reason

        try:
            found = [file.path for file in matching_or_inside(pattern)]
            folders = dict.fromkeys(path.rpartition("/")[0] for path in found)
            for name in beside:
                for folder in folders:
                    others = matching(f"{folder}/{name}", or_none=True)
                    found += [file.path for file in others if file.path not in found]
            return [self._copy(path) for path in found]
        except (BeamIOError, ValueError) as error:
            raise OSError(f"{pattern}: cannot be read ({reason(pattern, error)})") from None

    def named(self, message: str) -> str:
        """A message with the names of the originals."""
        for local, remote in self._names.items():
            message = message.replace(local, remote)
        return message

    def _copy(self, path: str) -> Path:
        from apache_beam.io.filesystems import FileSystems

        parent, _, name = path.rpartition("/")
        folder = hashlib.sha256(parent.encode()).hexdigest()[:16]
        local = Path(self._kept.name, folder, name).resolve()
        local.parent.mkdir(exist_ok=True)
        with (
            FileSystems.open(path, "application/octet-stream", "uncompressed") as stored,
            local.open("wb") as file,
        ):
            shutil.copyfileobj(stored, file)
        self._names[str(local)] = path
        return local
