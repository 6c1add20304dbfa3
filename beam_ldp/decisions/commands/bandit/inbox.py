"""Rows of a queue to files, which `beam-ldp bandit advance --stream` reads."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows


class KeepRewards(beam.PTransform):
    """Keeps rewards of a stream in a folder until their batch is decided.

    Protects nobody yet: rewards are kept as they are, in files for their owner alone (0600). Empty
    the folder of a batch's files once it is decided.

    Event times, windows and lateness play no part, for plays say which batch a row is of: nothing
    is dropped as late. (Beam's own file sink gives what is late in a window the name of the file
    that came in time.) A file appears whole, under a name that its rows give it, so that a bundle
    that is repeated writes it again; rows that come twice in different files count once where
    `--user-id` says whose they are.

    In: mappings with the columns, in any windows. Out: the paths of the files.

    Args:
        folder: local, or mounted by all workers; made if it is missing.
        columns: that are kept of each row: play, reward, and whose it is.
        rows: most of one file.
        seconds: the longest that a row waits for others.

    >>> import tempfile, apache_beam as beam
    >>> rows = [{"play": "1:blue", "reward": 1, "uid": 7, "name": "left out"}]
    >>> with tempfile.TemporaryDirectory() as inbox:
    ...     with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...         _ = pipeline | beam.Create(rows) | KeepRewards(inbox)
    ...     [file] = Path(inbox).iterdir()
    ...     print(file.suffix, file.read_text().strip())
    .jsonl {"play": "1:blue", "reward": 1, "uid": 7}
    """

    def __init__(
        self,
        folder: str,
        *,
        columns: Sequence[str] = ("play", "reward", "uid"),
        rows: int = 10_000,
        seconds: float = 10.0,
    ) -> None:
        super().__init__()
        self._write = _Write(folder, tuple(columns))
        self._rows, self._seconds = rows, seconds

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return (
            rows
            | "Whenever they come" >> beam.WindowInto(GlobalWindows())
            | "Lines" >> beam.Map(self._write.line).with_output_types(tuple[str, str])
            | "Files" >> beam.GroupIntoBatches(self._rows, self._seconds)
            | "Write" >> beam.ParDo(self._write).with_output_types(str)
        )


class _Write(beam.DoFn):
    def __init__(self, folder: str, columns: tuple[str, ...]) -> None:
        self._folder, self._columns = folder, columns

    def line(self, row: Mapping[str, Any]) -> tuple[str, str]:
        return "", json.dumps({name: row.get(name) for name in self._columns}, default=str)

    def process(self, element: tuple[str, Iterable[str]]) -> Iterator[str]:
        content = ("\n".join(element[1]) + "\n").encode()
        folder = Path(self._folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.jsonl"
        aside = folder / f".{uuid.uuid4().hex}"
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(place)
        yield str(place)
