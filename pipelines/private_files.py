"""Files beside an output that are not for its readers: they lie apart, and are their owner's alone.

Where a null stands may be the answer itself (no diagnosis, no income), so the list of bad rows is
as secret as the data that it points into.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from apache_beam.io.filesystems import FileSystems

from beam_ldp.pipelines.outputs import OutputError, is_local

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
    aside = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
        aside.rename(place)
    finally:
        aside.unlink(missing_ok=True)
