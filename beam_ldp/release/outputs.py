"""The output folder: it appears whole or not at all, and not before it may.

Everything is written into a folder beside the target. Once that is *finished*, the caller settles
what it costs, and then publishes it: on a local disk the folder takes the target's name in one
step. An object store has no such step: there files are moved, `manifest.json` last, and an output
without it is not one. A finished folder that was not published is kept for `beam-ldp finalize`.

Files that are not for an output's readers lie apart, and are their owner's alone. Where a null
stands may be the answer itself (no diagnosis, no income), so the list of bad rows is as secret as
the data that it points into.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beam_ldp.transforms.files import paths_matching, reason
from beam_ldp.whole_files import flush, replace_file, write_new

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MLFLOW = "mlflow"  # folder of MLflow's store, where a run is logged inside of its output
FINISHED = "finished"  # what a folder is called whose files are all there
FILES = frozenset(  # all that an output may hold
    ("estimates.csv", "estimates.parquet", "privacy.json", "privacy.md", "plot.png")
    + ("quantiles.csv", "words.txt", "verdict.json", "release.json", MANIFEST)
    + ("model.keras", "curve.csv", "curves.json")
)


class OutputError(ValueError):
    """The output cannot be written as asked; nothing was changed."""


def as_json(value: dict[str, Any]) -> bytes:
    """Indented JSON; NaN and infinities are errors, for they are not JSON."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def is_local(path: str) -> bool:
    """Whether the path lies on this machine's own file system."""
    return FileSystems.get_scheme(path) in (None, "", "file")


class OutputFolder:
    """A folder to be written once, as a whole.

    Args:
        path: where; on any file system that Beam knows.
        overwrite: replace an output that exists.
        token: of a run that was lost, to go on where it ended; default: a new run.
        checked: refuse here already what must not be overwritten; `publish` does in any case.

    Attributes:
        overwrite: as given.
        keep: whether what was finished, and what says whose it is, outlives this process.

    Raises:
        OutputError: if the output exists and `overwrite` is not set, or its place does not.
    """

    def __init__(
        self, path: str, overwrite: bool = False, token: str | None = None, *, checked: bool = True
    ) -> None:
        self.path = path.rstrip("/") or "/"
        self.overwrite = overwrite
        self.keep = False
        self._goes_on = token is not None
        self._token = token or secrets.token_hex(4)
        self._local = is_local(path)
        if self._local:
            self._target = Path(self.path.removeprefix("file://")).absolute()
            self.path = str(self._target)
        if checked:
            self.check()

    def check(self) -> None:
        """Refuse what must not be overwritten, early and again before it appears."""
        try:
            self._check()
        except OutputError:
            raise
        except (OSError, ValueError) as error:  # no permission, too long a name, no such store
            why = getattr(error, "strerror", None) or reason(self.path, error)
            raise OutputError(f"--output {self.path} cannot be used ({why})") from None

    def _check(self) -> None:
        if self._local and self._target.exists() and not self._target.is_dir():
            raise OutputError(f"--output {self.path} exists and is not a folder")
        if not self.overwrite and self._exists():
            raise OutputError(f"--output {self.path} exists; --overwrite replaces it")
        if self._local and self._foreign():
            raise OutputError(
                f"--output {self.path} holds files that are not of an earlier output; "
                "--overwrite replaces only what this program wrote"
            )

    @property
    def replaces(self) -> bool:
        """Whether an output that is there will be replaced."""
        return self.overwrite and self._exists()

    def _exists(self) -> bool:
        if self._local:
            return self._target.exists() and any(e.name != MLFLOW for e in self._target.iterdir())
        try:
            return bool(paths_matching(self.path + "/*"))
        except BeamIOError:  # no such folder, or no such store, which is an error here too
            return FileSystems.exists(self.path)

    def _foreign(self) -> bool:
        if not self._target.is_dir():
            return False
        names = {entry.name for entry in self._target.iterdir()} - {MLFLOW}
        return bool(names) and ("privacy.json" not in names or not names <= FILES)

    @property
    def finished(self) -> str:
        """The folder that holds all files before they appear."""
        return self._beside(FINISHED)

    @contextmanager
    def staging(self) -> Iterator[str]:
        """A folder beside the output where workers leave their results; it vanishes afterwards."""
        if self._local:
            try:
                Path(self._beside("staging")).mkdir(parents=True, exist_ok=self._goes_on)
            except OSError as error:
                raise OutputError(
                    f"--output {self.path} cannot be written ({error.strerror})"
                ) from None
        staging = self._beside("staging")
        try:
            yield staging
        finally:
            if not self.keep:
                self.discard()
                remove(staging)

    def _beside(self, kind: str) -> str:
        if self._local:
            return str(self._target.parent / f".{self._target.name}.{kind}-{self._token}")
        return f"{self.path}.{kind}-{self._token}"

    @contextmanager
    def finishing(self) -> Iterator[FolderWriter]:
        """Write all files aside, whole; nothing appears before `publish`."""
        self.check()
        if not self._local:
            writer = FolderWriter(self._beside(FINISHED))
            yield writer
            writer.put(MANIFEST, as_json({"schema_version": SCHEMA_VERSION, "files": writer.files}))
            self.check()
            return
        aside = Path(self._beside("partial"))
        aside.mkdir(parents=True)
        try:
            yield FolderWriter(str(aside))
            for entry in aside.iterdir():
                flush(entry)
            self.check()
            os.rename(aside, self._beside(FINISHED))
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def publish(self) -> None:
        """What is finished appears. On a store, a move that was cut goes on where it ended.

        Raises:
            OutputError: if an output came there in the meantime, and it is not to be replaced.
        """
        finished, goes_on = self._beside(FINISHED), self._is_half_moved()
        if not goes_on:
            self.check()
        if self._local:
            if (self._target / MLFLOW).is_dir():  # a log goes on, whatever it is about
                os.rename(self._target / MLFLOW, Path(finished) / MLFLOW)
            _put_in_place(Path(finished), self._target)
            shutil.rmtree(finished, ignore_errors=True)  # the old output, if there was one
            return
        if self.overwrite and not goes_on:
            self._forget()
        for name in sorted(_names(finished), key=lambda name: (name == MANIFEST, name)):
            FileSystems.rename([f"{finished}/{name}"], [f"{self.path}/{name}"])

    def _is_half_moved(self) -> bool:
        """Whether all that is at the target are files that were moved out of what is finished."""
        finished = self._beside(FINISHED)
        if self._local or MANIFEST not in (left := _names(finished)):
            return False
        with FileSystems.open(f"{finished}/{MANIFEST}", "application/octet-stream") as file:
            told = json.loads(file.read())
        there = _names(self.path)
        return bool(there) and there <= {file["name"] for file in told["files"]} - left

    def discard(self) -> None:
        """Nothing of what was finished will ever be published."""
        remove(self._beside(FINISHED))

    @contextmanager
    def writing(self) -> Iterator[FolderWriter]:
        """Write all files and publish them, where nothing has to be settled first."""
        try:
            with self.finishing() as writer:
                yield writer
            self.publish()
        except BaseException:
            self.discard()
            raise

    def _forget(self) -> None:
        """The manifest goes first: from here on the old output is none."""
        old = paths_matching(self.path + "/*", or_none=True)
        manifest = f"{self.path}/{MANIFEST}"
        if manifest in old:
            FileSystems.delete([manifest])
        rest = [name for name in old if name != manifest]
        if rest:
            FileSystems.delete(rest)


class FolderWriter:
    """Writes files into one folder and keeps their sizes and digests."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.files: list[dict[str, Any]] = []

    def put(self, name: str, content: bytes) -> None:
        """One file from bytes."""
        with self.open(name) as stream:
            stream.write(content)

    @contextmanager
    def open(self, name: str) -> Iterator[_Digesting]:
        """One file from pieces."""
        plain = "application/octet-stream"  # the text MIME type would compress by the ending
        stream = FileSystems.create(f"{self._folder}/{name}", plain, "uncompressed")
        digesting = _Digesting(stream)
        try:
            yield digesting
        finally:
            stream.close()
        self.files.append(
            {"name": name, "bytes": digesting.size, "sha256": digesting.digest.hexdigest()}
        )


class _Digesting:
    """Counts and hashes what passes through."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> None:
        self._stream.write(content)
        self.size += len(content)
        self.digest.update(content)


def files_in(folder: str) -> list[Path]:
    """The files of a local output."""
    return sorted(path for path in Path(folder).iterdir() if path.name in FILES)


def is_whole(folder: str) -> bool:
    """Whether a finished folder holds all files: a local one has that name only if it does."""
    return is_local(folder) or FileSystems.exists(f"{folder}/{MANIFEST}")


def remove(folder: str) -> None:
    """Remove a folder, wherever it lies, and all below it."""
    if is_local(folder):
        shutil.rmtree(folder.removeprefix("file://"), ignore_errors=True)
        return
    left = paths_matching(folder + "/**", or_none=True)
    if left:
        with suppress(BeamIOError):  # somebody else was faster
            FileSystems.delete(left)


def _names(folder: str) -> set[str]:
    """Of the files in a folder of a store."""
    return {path.rpartition("/")[2] for path in paths_matching(f"{folder}/*", or_none=True)}


def _put_in_place(new: Path, target: Path) -> None:
    """Give `new` the name of `target`, in one step; what stood there is then removed."""
    if not target.exists():
        os.rename(new, target)
        return
    if _exchange(new, target):
        return  # `new` now holds the old output, which the caller removes
    old = target.parent / f".{target.name}.old-{secrets.token_hex(4)}"
    os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, where the system can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


BAD_ROWS_FILE = "bad_rows.jsonl"


def private_folder(output: str) -> str:
    """The folder of private files beside an output."""
    return f"{output.rstrip('/')}.private"


def bad_rows_path(output: str, chosen: str | None) -> str:
    """Where the bad rows of an output are listed.

    Raises:
        OutputError: if that lies in the output, which others will read.
    """
    if chosen is None:
        return f"{private_folder(output)}/{BAD_ROWS_FILE}"
    folder = os.path.realpath(output) if is_local(output) else output.rstrip("/")
    place = os.path.realpath(chosen) if is_local(chosen) else chosen
    if place == folder or place.startswith(folder + "/"):
        raise OutputError(f"--bad-rows-file must lie outside of --output {output}")
    return chosen


def write_private(path: str, content: bytes) -> None:
    """A whole file that only its owner reads, in place of what is there; without content, none.

    On an object store whoever reads the bucket reads it.

    Raises:
        OSError, BeamIOError: if it cannot be written.
    """
    if not is_local(path):
        if content or FileSystems.exists(path):
            with FileSystems.create(path, "application/octet-stream", "uncompressed") as stream:
                stream.write(content)
        return
    place = Path(path.removeprefix("file://"))
    if not content:
        place.unlink(missing_ok=True)
        return
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(place, content, durable=False)


def create_private(path: str, content: bytes) -> None:
    """A new local file that only its owner reads.

    Raises:
        OutputError: if there is one, it cannot be written, or the path is not local.
    """
    if not is_local(path):
        raise OutputError(f"{path} must be a path of this machine, so that only its owner reads it")
    place = path.removeprefix("file://")
    try:
        write_new(Path(place), content)
    except FileExistsError:
        raise OutputError(f"{path} exists: choose a new file") from None
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None


# Tables of estimates as files --------------------------------------------------------------------


def as_parquet(table: pa.Table) -> bytes:
    """The same table with its schema version among the metadata."""
    stream = io.BytesIO()
    versioned = table.replace_schema_metadata({"schema_version": str(SCHEMA_VERSION)})
    pq.write_table(versioned, stream)
    return stream.getvalue()
