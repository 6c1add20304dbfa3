"""The folder of a stream: what it holds the releases of, and who may go on in it.

A stream whose launcher was lost goes on in its folder, as the run that it was, if it asks the very
same: then memoized noise is what it was, and what was released stays. Anything else in the same
folder, or under the same name, would be other reports of the same people beside the first ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.outputs import SCHEMA_VERSION, as_json
from beam_ldp.pipelines.streams.results import STREAM, write_once
from beam_ldp.randomizers.identity import ReleaseIdentity


def run_that_goes_on(
    folder: Path, identity: ReleaseIdentity | None, run_id: str | None
) -> str | None:
    """The run whose folder it is; None where it is a new one.

    Args:
        folder: of the output.
        identity: of the stream as it is asked for now; with a commitment to the key where noise is
            memoized.
        run_id: as it is asked for now, if it is.

    Raises:
        UsageError: if the folder holds anything else.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return None
    told = _read(folder)
    if told is None:
        raise UsageError(
            f"--output {folder} is not empty; a stream only adds files, so give it a new folder"
        )
    first = told["identity"] and ReleaseIdentity.from_json(told["identity"])
    if first is None or identity is None or not (first.key and identity.key):
        raise UsageError(
            f"--output {folder} holds a stream, which only memoized noise (--memoize-key-file) can "
            "continue: with fresh noise the same people would send second reports"
        )
    if first != identity:
        differs = ", ".join(first.differences(identity))
        raise UsageError(
            f"--output {folder} holds another stream: it differs in its {differs}. Give this one a "
            "new folder and a new release id"
        )
    if run_id not in (None, told["run_id"]):
        raise UsageError(
            f"--output {folder} belongs to run {told['run_id']}: a stream continues under its own "
            "--run-id"
        )
    return str(told["run_id"])


def begin(folder: Path, identity: ReleaseIdentity | None, run_id: str) -> None:
    """Say whose folder it is, before anything is read.

    Raises:
        UsageError: if another stream began here in the meantime.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "identity": None if identity is None else identity.to_json(),
    }
    if not write_once(str(folder / STREAM), as_json(told)) and _read(folder) != told:
        raise UsageError(f"--output {folder}: another stream started here at the same moment")


def run_of(folder: str) -> str | None:
    """The run of a stream; None for any other folder.

    Raises:
        UsageError: if it cannot be read.
    """
    told = _read(Path(folder.removeprefix("file://")))
    return None if told is None else str(told["run_id"])


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / STREAM).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise UsageError(f"{folder / STREAM} cannot be read") from None
    return found
