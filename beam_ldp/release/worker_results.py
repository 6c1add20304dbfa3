"""How results come back from the workers: through files, for launcher and workers may differ."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import registry
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.set_digest import PREFIX
from beam_ldp.release.job_monitor import JobError
from beam_ldp.transforms.elements.blocks import BadRow, BadRowBlock, Release, WithheldRelease
from beam_ldp.transforms.files import paths_matching, write_whole

RELEASES, WITHHELD, BAD_ROWS = "releases", "withheld", "bad_rows"
DIGEST, IDENTITY = "digest", "identity"
LINES_PER_ELEMENT = 1 << 14
_ROWS = ', "rows": %d'
_RANGE = re.compile(rb', "rows": (\d+), "reason": ')  # a name in JSON has no bare quotes
_BINARY = "application/octet-stream"


class WriteResults(beam.PTransform):
    """Write blocks (`Release` or `WithheldRelease`), one file each, under `folder/name/`.

    A file's name follows from its content, and a checkpoint stands before it, so a worker that
    repeats the step writes the same file again.
    """

    def __init__(self, folder: str, name: str, kind: type) -> None:
        super().__init__()
        self._folder, self._name, self._kind = folder, name, kind

    def expand(self, blocks: beam.PCollection) -> beam.PCollection:
        # As bytes: some runners forget the type of side inputs, and would pickle blocks.
        encoded = blocks | "Encode" >> beam.Map(_encode, self._kind).with_output_types(bytes)
        return (
            blocks.pipeline
            | "Place" >> beam.Create([f"{self._folder}/{self._name}"])
            | "MakePlace" >> beam.Map(_make_place)
            | "Write"
            >> beam.FlatMap(_write_all, beam.pvalue.AsIter(encoded)).with_output_types(str)
        )


def _make_place(folder: str) -> str:
    with contextlib.suppress(BeamIOError, OSError):  # another attempt made it
        FileSystems.mkdirs(folder)
    return folder


def _encode(block: Any, kind: type) -> bytes:
    return bytes(registry.get_coder(kind).encode(block))


def _write_all(folder: str, contents: Iterable[bytes]) -> Iterator[str]:
    for content in contents:
        path = f"{folder}/{hashlib.sha256(content).hexdigest()[:32]}.bin"
        write_whole(path, [content])
        yield path


class WriteBadRows(beam.PTransform):
    """Write `BadRowBlock`s (or `BadRow`s) as JSON lines under `folder/bad_rows/`."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, rows: beam.PCollection) -> Any:
        return (
            rows
            | "AsJson" >> beam.ParDo(_AsLines()).with_output_types(str)
            | "Write" >> beam.io.WriteToText(f"{self._folder}/{BAD_ROWS}/part", ".jsonl")
        )


class _AsLines(beam.DoFn):
    """Many lines in one element: writing costs microseconds an element, and there may be many."""

    def start_bundle(self) -> None:
        self._lines: list[str] = []

    def process(self, rows: BadRowBlock | BadRow) -> Iterator[str]:
        if isinstance(rows, BadRow):
            rows = BadRowBlock.of(rows.source, [(rows.position, rows.reason)])
        self._lines.extend(bad_row_lines(rows))
        if len(self._lines) >= LINES_PER_ELEMENT:
            yield "\n".join(self._lines)
            self._lines = []

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._lines:
            window = GlobalWindow()
            yield WindowedValue("\n".join(self._lines), window.max_timestamp(), [window])


def bad_row_lines(rows: BadRowBlock) -> list[str]:
    """Lines of bad_rows.jsonl, one for a range of rows that are bad for one reason.

    So a file of something else altogether costs a few lines.
    """
    start = f'{{"source": {_as_json(rows.source)}, "position": '
    ends = [f', "reason": {_as_json(reason)}}}' for reason in rows.reasons]
    if rows.lengths is not None:  # a range of bytes
        ranges = zip(rows.listed_positions(), rows.codes.tolist(), rows.listed_lengths())
        return [f'{start}{at}, "length": {size}{ends[code]}' for at, code, size in ranges]
    codes, positions = rows.codes, np.array(rows.listed_positions(), dtype=np.int64)
    step = 0 if rows.positions is None else 1
    follows = (np.diff(positions) == step) & (np.diff(codes.astype(np.int16)) == 0)
    first = np.flatnonzero(np.concatenate([[True], ~follows])) if len(rows) else codes
    counts = np.diff(np.append(first, len(rows)))
    return [
        f"{start}{position}{_ROWS % count if count > 1 else ''}{ends[code]}"
        for position, count, code in zip(
            positions[first].tolist(), counts.tolist(), codes[first].tolist()
        )
    ]


def reasons_of(lines: bytes) -> Counter[str]:
    """How many rows are bad for each reason, from lines of bad_rows.jsonl."""
    reasons: Counter[str] = Counter()
    for line in lines.splitlines():
        told = json.loads(line)
        reasons[told["reason"]] += told.get("rows", 1)
    return reasons


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def read_results(folder: str, name: str, kind: type) -> list[Any]:
    """What `WriteResults` wrote, in the order of groups and windows."""
    found = []
    for path in paths_matching(f"{folder}/{name}/*.bin", or_none=True):
        with FileSystems.open(path, _BINARY, "uncompressed") as stream:
            found.append(registry.get_coder(kind).decode(stream.read()))
    return sorted(found, key=lambda block: (block.group or "", block.window or (0, 0)))


def _read_bytes(folder: str, name: str) -> list[bytes]:
    """What `WriteResults` wrote of a collection of bytes."""
    found = []
    for path in paths_matching(f"{folder}/{name}/*.bin", or_none=True):
        with FileSystems.open(path, _BINARY, "uncompressed") as stream:
            found.append(registry.get_coder(bytes).decode(stream.read()))
    return found


def bad_row_parts(folder: str) -> Iterator[bytes]:
    """What `WriteBadRows` wrote, piece by piece."""
    for path in paths_matching(f"{folder}/{BAD_ROWS}/part*", or_none=True):
        with FileSystems.open(path, _BINARY, "uncompressed") as stream:
            while piece := stream.read(1 << 20):
                yield piece


@dataclass(frozen=True)
class WorkerResults:
    """What came back from the workers.

    Attributes:
        releases, withheld: what was released, and what was not.
        bad_rows: the lines of bad_rows.jsonl.
        report_digest: set digest of memoized reports (who sent which) or of envelopes.
        identity: of the release, as the job that made it was told.
        rows_read: as the engine counted them; 0 where it does not count.
    """

    releases: list[Release]
    withheld: list[WithheldRelease]
    bad_rows: bytes
    report_digest: str | None = None
    identity: ReleaseIdentity | None = None
    rows_read: int = 0

    @property
    def num_rows(self) -> int:
        """Rows that were read, as far as the engine counts them: at least those that are known."""
        return max(self.rows_read, self.num_reports + self.num_bad_rows)

    @property
    def num_reports(self) -> int:
        """Reports that came, whether or not they were released.

        Several questions about one crowd are one report of each person.
        """
        crowds: dict[tuple[Any, ...], int] = {}
        blocks: list[Release | WithheldRelease] = [*self.releases, *self.withheld]
        for block in blocks:
            crowd = block.group, block.window, block.late
            crowds[crowd] = max(crowds.get(crowd, 0), block.num_reports)
        return sum(crowds.values())

    @property
    def one_shuffle(self) -> bool:
        """Whether readers see a function of all reports of a group together, and of nothing less.

        Of each group: all its reports left in one batch, or none did.
        """
        shown = {release.group for release in self.releases}
        return (
            not any(notice.group in shown for notice in self.withheld)
            and all(release.window is None for release in self.releases)
            and all(release.smallest_batch == release.num_reports for release in self.releases)
        )

    @property
    def num_bad_rows(self) -> int:
        ranges = _RANGE.findall(self.bad_rows)
        return self.bad_rows.count(b"\n") - len(ranges) + sum(map(int, ranges))


def read_all(folder: str) -> WorkerResults:
    """All that the workers left."""
    digests = set(_read_bytes(folder, DIGEST))
    if len(digests) > 1:  # of two attempts, each with other reports
        raise JobError("two attempts of the job left results, each with different reports")
    told = _read_bytes(folder, IDENTITY)
    return WorkerResults(
        *read_releases(folder),
        b"".join(bad_row_parts(folder)),
        next((d.decode() for d in digests if d.startswith(PREFIX.encode())), None),
        ReleaseIdentity.from_json(json.loads(told[0])) if len(told) == 1 else None,
    )


def read_releases(folder: str) -> tuple[list[Release], list[WithheldRelease]]:
    """All that was released, and all that was not."""
    return read_results(folder, RELEASES, Release), read_results(folder, WITHHELD, WithheldRelease)
