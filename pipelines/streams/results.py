"""What a stream leaves: for each release one table and its price, complete files that never change.

    OUT/2026-11-21T20-00-00Z--2026-11-21T20-01-00Z.json           the price
    OUT/2026-11-21T20-00-00Z--2026-11-21T20-01-00Z.csv            the estimates; written after it
    OUT/….late.csv                                                of reports that came late
    OUT/….sum.csv                                                 of a sliding window
    OUT/….withheld-….json                                         what was not released, and why
    OUT/bad_rows/….jsonl

Each is written aside and renamed. What is there stays: a step that an engine repeats leaves the
first answer, so that nobody sees two noisy answers about the same reports.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.pipelines.frequencies.answer import estimate_table
from beam_ldp.pipelines.outputs import SCHEMA_VERSION, as_json
from beam_ldp.pipelines.records.price import price_of
from beam_ldp.pipelines.running.results import bad_row_lines
from beam_ldp.pipelines.views.tables import as_csv
from beam_ldp.transforms.blocks import BadRowBlock, Release, ValueBlock, Withheld
from beam_ldp.transforms.carried import CarriedDomain
from beam_ldp.transforms.windows import LATE, TOO_LATE

OPENED = ".opened"  # folder with one empty file per window that a row was seen of
BAD_ROWS = "bad_rows"
_BINARY = "application/octet-stream"


@dataclass(frozen=True)
class Pricing:
    """How releases are priced: as the flags of the same names."""

    delta: float
    honest_fraction: float
    local_epsilon: float


class WriteWindows(beam.PTransform):
    """Writes `Release`s, each as a table and its price."""

    def __init__(self, folder: str, domain: CarriedDomain, pricing: Pricing) -> None:
        super().__init__()
        self._doer = _WriteRelease(folder, domain, pricing)

    def expand(self, releases: beam.PCollection) -> beam.PCollection:
        return releases | "Write" >> beam.ParDo(self._doer).with_output_types(str)


class _WriteRelease(beam.DoFn):
    def __init__(self, folder: str, domain: CarriedDomain, pricing: Pricing) -> None:
        self._folder = folder
        self._domain = domain
        self._pricing = pricing

    def setup(self) -> None:
        self._labels = self._domain.load().labels

    def process(self, release: Release) -> Iterator[str]:
        name = name_of(release)
        write_once(f"{self._folder}/{name}.json", as_json(told_of(release, self._pricing)))
        table = estimate_table(
            release.estimate, self._labels, release.question, release.group, release.window
        )
        for column in ("late", "derived"):
            value = pa.array([getattr(release, column)] * table.num_rows)
            table = table.append_column(column, value)
        path = f"{self._folder}/{name}.csv"
        write_once(path, as_csv(table))
        yield path


def told_of(release: Release, pricing: Pricing) -> dict[str, Any]:
    """The price of a release, for programs. A sum of releases has none: its parts carry it."""
    bound, event = None, None
    if release.event is not None:
        price = price_of(release, pricing.delta, pricing.honest_fraction)
        bound, event = price.bound, price.event
    start, end = release.window or (0, 0)
    return {
        "schema_version": SCHEMA_VERSION,
        "question": release.question,
        "window_start": iso(start),
        "window_end": iso(end),
        "late": release.late,
        "derived": release.derived,
        "simulated": release.simulated,
        "num_reports": release.num_reports,
        "local_epsilon": pricing.local_epsilon if event is not None else None,
        "epsilon": None if bound is None else float(bound),
        "delta": pricing.delta,
        "reader": "whoever sees the released tables",
        "method": None if bound is None else str(bound.method),
        "proof_status": None if bound is None else str(bound.proof_status),
        "mechanism": dict(release.mechanism),
        "event": None if event is None else event_to_json(event),
    }


class WriteWithheld(beam.DoFn):
    """Writes what was not released, and why; counts, never rows.

    A window has one notice of each kind, so a step that an engine repeats leaves the first. Rows
    that are too late come again and again; each notice of them has a name of its own.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, withheld: Withheld) -> None:
        told = asdict(withheld)
        start, end = told.pop("window")
        told |= {"window_start": iso(start), "window_end": iso(end)}
        kind = [told[part] for part in ("question", "group", "reason", "late")]
        again = uuid.uuid4().hex if withheld.reason in (LATE, TOO_LATE) else ""
        tag = hashlib.sha256(f"{kind}{again}".encode()).hexdigest()[:12]
        write_once(f"{self._folder}/{span(start, end)}.withheld-{tag}.json", as_json(told))


class WriteBadRows(beam.DoFn):
    """Writes blocks of bad rows, one file each."""

    def __init__(self, folder: str) -> None:
        self._folder = f"{folder}/{BAD_ROWS}"

    def process(self, rows: BadRowBlock) -> None:
        content = ("\n".join(bad_row_lines(rows)) + "\n").encode()
        write_once(f"{self._folder}/{hashlib.sha256(content).hexdigest()[:24]}.jsonl", content)


class MarkOpened(beam.DoFn):
    """Leaves a mark of every window before the first of its values is randomized.

    So the launcher knows for how many windows people may have sent reports when it ends.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._marked: set[str] = set()

    def process(
        self, block: ValueBlock, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[ValueBlock]:
        name = span(window.start.micros, window.end.micros)
        if name not in self._marked:
            write_once(f"{self._folder}/{OPENED}/{name}", b"")
            self._marked.add(name)
        yield block


def write_once(path: str, content: bytes) -> None:
    """A whole file, or nothing; a file that is there stays as it is."""
    if FileSystems.exists(path):
        return
    folder, _, name = path.rpartition("/")
    with contextlib.suppress(BeamIOError, OSError):  # it is there
        FileSystems.mkdirs(folder)
    aside = f"{folder}/.{name}.{uuid.uuid4().hex}"
    with FileSystems.create(aside, _BINARY, "uncompressed") as stream:
        stream.write(content)
    FileSystems.rename([aside], [path])


def name_of(release: Release) -> str:
    """The name of a release's files, without their endings."""
    start, end = release.window or (0, 0)
    kind = ".sum" if release.derived else ".late" if release.late else ""
    return span(start, end) + kind


def span(start: int, end: int) -> str:
    """A window in a file name."""
    return f"{_for_files(start)}--{_for_files(end)}"


def iso(micros: int) -> str:
    """A time in UTC."""
    moment = datetime.fromtimestamp(micros // 10**6, tz=timezone.utc)
    fraction = f".{micros % 10**6:06d}" if micros % 10**6 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _for_files(micros: int) -> str:
    return iso(micros).replace(":", "-")


def read_folder(folder: Path, known: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """New finished files: `(name, content)` of prices whose table is there too, and of notices."""
    for path in sorted(folder.glob("*.json")):
        if path.name in known:
            continue
        finished = ".withheld-" in path.name or path.with_suffix(".csv").exists()
        if finished:
            known.add(path.name)
            yield path.name, json.loads(path.read_text("utf-8"))
