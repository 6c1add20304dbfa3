"""Reports to files of envelopes: what leaves devices, or an edge."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.typehints import typehints

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.randomness import envelope_ids
from beam_ldp.randomizers.wire import ID_BYTES, OTHER_MECHANISM, ReleaseTerms, encode_envelope
from beam_ldp.transforms.blocks import ReportBlock, ValueBlock
from beam_ldp.transforms.counters import counter
from beam_ldp.transforms.noise import Noise
from beam_ldp.transforms.randomize import RandomizeBlocks
from beam_ldp.transforms.report_terms import BINARY, SUFFIX, CarriedTerms
from beam_ldp.transforms.stage_types import expect
from beam_ldp.transforms.sums import MismatchError

_ENVELOPE_BYTES = 1 << 20  # of payload, where a block is cut into envelopes


class WriteReports(beam.PTransform):
    """Packs reports into envelopes and writes them to files: what leaves the device, or the edge.

    Nothing but the reports is written: no ids of people, no times. Their order is that of the
    people, so these files show each report with its place; there the local epsilon protects.

    In: `ReportBlock`s. Out: the path of every file, `str`.

    Args:
        folder: where; files are called `reports-00000.ldp` and so on.
        terms: of the release.
        groups: the public list of groups (as `EncodeRows` takes it), where blocks hold the reports
            of several: every envelope then is of one group, and says which.
        num_files: at most so many files.
        reports_per_envelope: at most so many in one envelope; 1 is what devices send. Default: as
            many as make a megabyte.

    Raises:
        StageError: if the input is not the output of `Randomize`.
        MismatchError: at run time, for reports of another mechanism, and where simulated reports
            and those of people would be mixed.
    """

    def __init__(
        self,
        folder: str,
        terms: ReleaseTerms,
        *,
        groups: Domain | str | Path | None = None,
        num_files: int = 4,
        reports_per_envelope: int | None = None,
    ) -> None:
        super().__init__()
        for name, number in (
            ("num_files", num_files), ("reports_per_envelope", reports_per_envelope or 1)
        ):  # fmt: skip
            if isinstance(number, bool) or number != int(number) or number < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {number}")
        fitting = max(1, 8 * _ENVELOPE_BYTES // terms.randomizer.bits_per_report)
        most = min(terms.max_reports, fitting)
        self._most = min(most, reports_per_envelope or most)
        self._folder = folder.rstrip("/")
        self._num_files = num_files
        self._terms = CarriedTerms(terms, groups)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteReports", pcoll, ReportBlock)
        packed = pcoll | "Pack" >> beam.ParDo(
            _Pack(self._terms, self._most, self._num_files)
        ).with_output_types(typehints.Tuple[int, bytes])
        return packed | "Files" >> _WriteFiles(self._folder)

    def display_data(self) -> dict[str, Any]:
        return {"folder": self._folder, "num_files": self._num_files}


class WriteMemoizedReports(beam.PTransform):
    """Randomizes values with memoized noise and writes the reports: what an edge runs that may run
    again.

    Every person has an envelope of their own, whose id is a function of the secret key, the person,
    the data set and the release, and not of the value. So whatever is sent again, by a re-run over
    the same people, over more of them, or by another edge with the same key, `ReadReports` takes
    one envelope of each person. Without the key an id says nothing, and those of two releases have
    nothing in common.

    In: `ValueBlock`s with user ids, each person once (`BoundContributions`). Out: the path of every
    file, `str`.

    Args:
        folder, terms, groups, num_files: as in `WriteReports`. The release is that of the terms.
        noise: memoized, as in `Randomize`.

    Raises:
        StageError: if the input is no collection of `ValueBlock`s.
        ValueError: for noise that is not memoized, and simulated terms; at run time for blocks
            without user ids.
    """

    def __init__(
        self,
        folder: str,
        terms: ReleaseTerms,
        noise: Noise,
        *,
        groups: Domain | str | Path | None = None,
        num_files: int = 4,
    ) -> None:
        super().__init__()
        if terms.simulated:
            raise ValueError("terms.simulated must be false: memoized noise is no simulation")
        if not noise.memoized:
            raise ValueError("noise must be memoized: give it a memoize_key_file")
        self._folder = folder.rstrip("/")
        carried = CarriedTerms(terms, groups)
        self._doer = _PackPeople(carried, noise, num_files)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteMemoizedReports", pcoll, ValueBlock)
        packed = pcoll | "Randomize and pack" >> beam.ParDo(self._doer).with_output_types(
            typehints.Tuple[int, bytes]
        )
        return packed | "Files" >> _WriteFiles(self._folder)


class _WriteFiles(beam.PTransform):
    """Numbered envelopes to the files of their numbers."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, envelopes: beam.PCollection) -> beam.PCollection:
        return (
            envelopes
            # The exchange is a checkpoint, too: a file that is written again holds the same bytes.
            | "By file" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write_file, self._folder).with_output_types(str)
        )


class _Packer:
    """Reports to envelopes, each with the number of its file."""

    def __init__(self, carried: CarriedTerms, num_files: int) -> None:
        self._terms, self._groups = carried.terms, carried.of_groups
        self._digest = self._terms.randomizer.config_digest()
        self._num_files = num_files
        self._written = counter("reports_written")
        self._of_group: dict[int, ReleaseTerms] = {}

    def check(self, block: ReportBlock) -> None:
        """The block must be of this release."""
        if block.mechanism_digest != self._digest:
            raise MismatchError(f"WriteReports: the reports were made by {OTHER_MECHANISM}")
        if block.simulated != self._terms.simulated:
            raise MismatchError(
                "WriteReports: terms.simulated must be true exactly where reports are drawn with "
                "a seed"
            )
        if (block.groups is None) != (self._groups is None):
            raise ValueError(
                "WriteReports: groups must be the public list of groups exactly where reports are "
                "of groups"
            )

    def pack(self, reports: np.ndarray, group: int | None, envelope_id: bytes) -> tuple[int, bytes]:
        """One envelope."""
        envelope = encode_envelope(self._terms_of(group), reports, envelope_id)
        self._written.inc(len(reports))
        return int.from_bytes(envelope_id, "big") % self._num_files, envelope

    def _terms_of(self, group: int | None) -> ReleaseTerms:
        if group is None or self._groups is None:
            return self._terms
        if group not in self._of_group:
            self._of_group[group] = self._groups.of(group)
        return self._of_group[group]


class _PackPeople(RandomizeBlocks):
    """Values to envelopes of one person each."""

    def __init__(self, terms: CarriedTerms, noise: Noise, num_files: int) -> None:
        super().__init__(terms.carried, noise, False)
        self._carried_terms, self._num_files = terms, num_files

    def setup(self) -> None:
        super().setup()
        self._packer = _Packer(self._carried_terms, self._num_files)

    def _emit(self, key: Any, block: ValueBlock, window: Any) -> Iterator[tuple[int, bytes]]:
        start = 0
        for reports in super()._emit(key, block, window):
            self._packer.check(reports)
            assert self._key is not None and block.user_ids is not None
            stop = start + len(reports)
            ids = envelope_ids(self._key, block.user_ids[start:stop], self._noise.of(window))
            groups = [None] * len(reports) if reports.groups is None else reports.groups.tolist()
            for i, (group, envelope_id) in enumerate(zip(groups, ids)):
                yield self._packer.pack(reports.reports[i : i + 1], group, envelope_id)
            start = stop


class _Pack(beam.DoFn):
    def __init__(self, terms: CarriedTerms, most: int, num_files: int) -> None:
        self._carried, self._most, self._num_files = terms, most, num_files

    def setup(self) -> None:
        self._packer = _Packer(self._carried, self._num_files)

    def process(self, block: ReportBlock) -> Iterator[tuple[int, bytes]]:
        self._packer.check(block)
        for group, reports in _by_group(block):
            for start in range(0, len(reports), self._most):
                part = reports[start : start + self._most]
                yield self._packer.pack(part, group, os.urandom(ID_BYTES))


def _by_group(block: ReportBlock) -> Iterator[tuple[int | None, np.ndarray]]:
    """The reports of each group of a block; they stay in their order."""
    if block.groups is None:
        yield None, block.reports
        return
    order = np.argsort(block.groups, kind="stable")
    groups, starts = np.unique(block.groups[order], return_index=True)
    for group, rows in zip(groups.tolist(), np.split(order, starts[1:])):
        yield group, block.reports[rows]


def _write_file(element: tuple[int, Iterable[bytes]], folder: str) -> str:
    number, envelopes = element
    path = f"{folder}/reports-{number:05d}{SUFFIX}"
    aside = f"{folder}/.{uuid.uuid4().hex}{SUFFIX}"
    with contextlib.suppress(BeamIOError, OSError):  # it is there already
        FileSystems.mkdirs(folder)
    with FileSystems.create(aside, BINARY, "uncompressed") as stream:
        for envelope in envelopes:
            stream.write(envelope)
    FileSystems.rename([aside], [path])
    return path
