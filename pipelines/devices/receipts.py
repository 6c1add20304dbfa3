"""Which file and which envelope reports came from: an outsized share is somebody speaking for many.

One forged envelope, or one file of them, can hold more reports than all people together: the
estimate is the forger's, and people hide among reports that hide nobody. How many reports come from
where is no secret, so it is looked at before anything is said about the result.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from beam_ldp.transforms.wire import Tally
from beam_ldp.transforms.wire.write_reports import make_folder

LEAST_SENDERS = 5  # below, every one has a large share
LARGE_SHARE = 0.05  # of all reports
TIMES_THE_OTHERS = 10  # the mean of the others

_BINARY = "application/octet-stream"
_FILE = "received.json"


@dataclass(frozen=True)
class Receipts:
    """What was received, and of which file the most.

    Attributes:
        files, envelopes: with reports that count.
        reports: of all of them.
        largest_file: its path, "" without files.
        in_largest_file, in_largest_envelope: reports.
    """

    files: int = 0
    envelopes: int = 0
    reports: int = 0
    largest_file: str = ""
    in_largest_file: int = 0
    in_largest_envelope: int = 0

    @classmethod
    def of(cls, path: str, tally: Tally) -> Receipts:
        """One file."""
        return cls(1, tally.envelopes, tally.reports, path, tally.reports, tally.largest)

    def __add__(self, other: Receipts) -> Receipts:
        """Both together; of equally large files the first by name counts as the largest."""
        larger = max(self, other, key=lambda one: one.in_largest_file)
        paths = [
            one.largest_file
            for one in (self, other)
            if one.files and one.in_largest_file == larger.in_largest_file
        ]
        return Receipts(
            self.files + other.files,
            self.envelopes + other.envelopes,
            self.reports + other.reports,
            min(paths, default=""),
            larger.in_largest_file,
            max(self.in_largest_envelope, other.in_largest_envelope),
        )


def outsized(received: Receipts) -> tuple[str, ...]:
    """Warnings, where a file or an envelope holds an outsized share of all reports.

    That is: there are five or more, it holds at least 5 % of all reports, and at least ten times
    as many as the others do on average.
    """
    found = []
    if _is_outsized(received.in_largest_file, received.reports, received.files):
        found.append(
            f"{received.largest_file} holds {received.in_largest_file:,} of {received.reports:,} "
            f"reports, and the other {received.files - 1:,} files "
            f"{_mean_of_others(received.in_largest_file, received.reports, received.files):,.0f} "
            "on average: its sender speaks for many people, or sent many reports"
        )
    if _is_outsized(received.in_largest_envelope, received.reports, received.envelopes):
        found.append(
            f"one envelope holds {received.in_largest_envelope:,} of {received.reports:,} reports: "
            "its sender speaks for many people, or sent many reports"
        )
    return tuple(found)


def _is_outsized(largest: int, reports: int, senders: int) -> bool:
    others = _mean_of_others(largest, reports, senders)
    return (
        senders >= LEAST_SENDERS
        and largest >= LARGE_SHARE * reports
        and largest >= TIMES_THE_OTHERS * others
    )


def _mean_of_others(largest: int, reports: int, senders: int) -> float:
    return (reports - largest) / max(1, senders - 1)


class WriteReceipts(beam.PTransform):
    """Adds up `(path, Tally)`s, for the launcher to read in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, tallies: beam.PCollection) -> Any:
        return (
            tallies
            | "Add" >> beam.CombineGlobally(_Add())
            # A checkpoint: a repeated attempt writes the same.
            | "Fix" >> beam.Reshuffle()
            | "Write" >> beam.Map(_write, self._folder)
        )


class _Add(beam.CombineFn):
    def create_accumulator(self) -> Receipts:
        return Receipts()

    def add_input(self, accumulator: Receipts, element: tuple[str, Tally]) -> Receipts:
        path, tally = element
        return accumulator + Receipts.of(path, Tally(*tally))

    def merge_accumulators(self, accumulators: Iterable[Receipts]) -> Receipts:
        return sum(accumulators, Receipts())

    def extract_output(self, accumulator: Receipts) -> Receipts:
        return accumulator


def _write(received: Receipts, folder: str) -> str:
    make_folder(folder)
    path, aside = f"{folder}/{_FILE}", f"{folder}/.{uuid.uuid4().hex}"
    with FileSystems.create(aside, _BINARY, "uncompressed") as file:
        file.write(json.dumps(asdict(received)).encode())
    FileSystems.rename([aside], [path])
    return path


def read_receipts(folder: str) -> Receipts:
    """What `WriteReceipts` wrote there; nothing where the pipeline ended before."""
    path = f"{folder}/{_FILE}"
    if not FileSystems.exists(path):
        return Receipts()
    with FileSystems.open(path, _BINARY, "uncompressed") as file:
        return Receipts(**json.loads(file.read()))
