"""Files in any store that Beam knows: which there are, and those with the heads of a ledger."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options
from apache_beam.options.value_provider import RuntimeValueProvider

if TYPE_CHECKING:
    from beam_ldp.ledger.rows import Anchor


_STORES = {  # by scheme: the module that reaches the store, and what installs it
    "azfs": ("azure.storage.blob", "apache-beam[azure]"),
    "gs": ("apache_beam.io.gcp.gcsfilesystem", "beam-ldp[gcp]"),
    "hdfs": ("hdfs", "apache-beam[hadoop]"),
    "s3": ("boto3", "apache-beam[aws]"),
}
_SET_UP = "set up AWS's environment variables or profile, or give --s3_access_key_id"
_MAY_BE_SECRET = re.compile(r"[?=@]|[\w+/-]{32,}")  # queries, assignments, accounts, tokens


def check_store(path: str, beam_flags: Sequence[str] = ()) -> None:
    """Refuse a path whose store this installation cannot reach; opens no file.

    Args:
        path: or glob.
        beam_flags: of the job, which may hold the address of the store: a launcher reads files
            before there is a pipeline that hands them to Beam.

    Raises:
        ValueError: naming the path, and the package or the credentials that are missing, or the
            schemes that are known.
    """
    if missing := _missing(path):
        raise ValueError(f"{path}: {missing}")
    told = FileSystems._pipeline_options or RuntimeValueProvider.runtime_options  # a worker's
    if beam_flags or told is None:
        FileSystems.set_options(PipelineOptions([*beam_flags]))
    if FileSystems.get_scheme(path) != "s3" or FileSystems._pipeline_options is None:
        return
    key = FileSystems._pipeline_options.view_as(S3Options).s3_access_key_id
    if not (key or _has_aws_credentials()):
        raise ValueError(f"{path}: no credentials for s3:// were found; {_SET_UP}")


@functools.cache
def _has_aws_credentials() -> bool:
    """Asked first: Beam repeats requests without credentials for minutes."""
    session = importlib.import_module("boto3").session.Session()
    return session.get_credentials() is not None


def _missing(path: str) -> str:
    scheme = FileSystems.get_scheme(path)
    if scheme in _STORES:
        module, package = _STORES[scheme]
        try:
            importlib.import_module(module)
        except ImportError:
            return f"{scheme}:// needs a package that is not installed: pip install '{package}'"
    elif scheme not in {system.scheme() for system in FileSystem.get_all_subclasses()} | {"file"}:
        return (
            f"{scheme}:// is not known: give a local path, file:///PATH, gs://BUCKET/PATH, "
            "s3://BUCKET/PATH, azfs://ACCOUNT/CONTAINER/PATH or hdfs://PATH"
        )
    return ""


def reason(path: str, error: BaseException) -> str:
    """Why a path cannot be listed, opened or written, for messages.

    Args:
        path: or glob.
        error: what listing, opening or writing raised; never what parsing private contents raised.
            Its first line is shown for a store, unless it may hold a secret.
    """
    if missing := _missing(path):
        return missing
    while isinstance(error, BeamIOError) and error.exception_details:
        cause = next(iter(error.exception_details.values()))
        if not isinstance(cause, BaseException):
            break
        error = cause
    said, scheme = type(error).__name__, FileSystems.get_scheme(path)
    if scheme in (None, "file"):
        return said
    line = next(iter(str(error).splitlines()), "")[:200]
    if line and not _MAY_BE_SECRET.search(line):
        said += f": {line.rstrip('.')}"
    return f"{said}; check that the path exists and that credentials for {scheme}:// are set up"


def matching(pattern: str, *, or_none: bool = False) -> list[FileMetadata]:
    """The files that match a path or glob, in the order of their paths.

    Args:
        pattern: of paths.
        or_none: whether a place that cannot be listed has no files. Otherwise:

    Raises:
        BeamIOError: if the place cannot be listed; where nothing matches the list is empty.
        ValueError: as `check_store`.
    """
    check_store(pattern)
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


def write_whole(path: str, content: Iterable[bytes]) -> None:
    """Write a file of any store under a random name first: what has this name is whole."""
    aside = f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}"
    with FileSystems.create(aside, "application/octet-stream", "uncompressed") as stream:
        for part in content:
            stream.write(part)
    FileSystems.rename([aside], [path])


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
            OSError: if the store cannot be read.
            ValueError: if the object is no anchor.
        """
        found = self._paths(f"{ledger_id}/*.json")
        return self._read(max(found)) if found else None

    def put(self, anchor: Anchor) -> None:
        """Keep one.

        Raises:
            OSError: if it cannot be written.
        """
        path = f"{self._folder}/{anchor.ledger_id}/{anchor.count:012d}-{anchor.hash[:16]}.json"
        with explained(path), FileSystems.create(path, _JSON, "uncompressed") as stream:
            stream.write(json.dumps(asdict(anchor)).encode())

    def all(self) -> list[Anchor]:
        """All anchors, of all ledgers."""
        return [self._read(path) for path in self._paths("*/*.json")]

    def _paths(self, pattern: str) -> list[str]:
        with explained(self._folder):
            return paths_matching(f"{self._folder}/{pattern}")

    @staticmethod
    def _read(path: str) -> Anchor:
        from beam_ldp.ledger.rows import Anchor  # the extra `ledger`, which listing does not need

        with explained(path), FileSystems.open(path, _JSON, "uncompressed") as stream:
            content = stream.read()
        try:
            return Anchor(**json.loads(content))
        except TypeError:
            raise ValueError(f"{path} is no anchor") from None


@contextmanager
def explained(path: str) -> Iterator[None]:
    """An OSError whose `strerror` is the reason."""
    try:
        yield
    except Exception as error:
        failed = OSError(reason(path, error))
        failed.strerror = str(failed)
        raise failed from None
