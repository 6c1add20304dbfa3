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

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.randomness import envelope_ids
from beam_ldp.randomizers.wire import ID_BYTES, ReleaseTerms, encode_envelopes
from beam_ldp.transforms.device.noise import NoiseSource
from beam_ldp.transforms.device.side import RandomizeBlocks
from beam_ldp.transforms.elements.blocks import ReportBlock, ValueBlock
from beam_ldp.transforms.elements.counters import counter
from beam_ldp.transforms.elements.stage_types import expect
from beam_ldp.transforms.shuffler.sums import MismatchError, parts_of
from beam_ldp.transforms.wire.file_parts import BINARY, SUFFIX, PortableTerms


class WriteReports(beam.PTransform):
    """Packs reports into envelopes and writes them to files: what leaves the device, or the edge.

    Nothing but the reports is written: no ids of people, no times. Their order is that of the
    people, so these files show each report with its place; there the local epsilon protects. An
    envelope holds one person's report, as those of devices do, or as many people's as the identity
    of the release grants an edge (`reports_per_envelope`).

    In: `ReportBlock`s. Out: the path of every file, `str`.

    Args:
        folder: where; files are called `reports-00000.ldp` and so on.
        terms: of the release.
        groups: the public list of groups (as `EncodeRows` takes it), where blocks hold the reports
            of several: every envelope then is of one group, and says which.
        num_files: at most so many files.

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
    ) -> None:
        super().__init__()
        _check_number(num_files)
        self._folder = folder.rstrip("/")
        self._num_files = num_files
        self._terms = PortableTerms(terms, groups)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteReports", pcoll, ReportBlock)
        packed = pcoll | "Pack" >> beam.ParDo(
            _Pack(self._terms, self._num_files)
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
        ValueError: for noise that is not memoized, or under another identity than the terms, and
            for simulated terms; at run time for blocks without user ids.
    """

    def __init__(
        self,
        folder: str,
        terms: ReleaseTerms,
        noise: NoiseSource,
        *,
        groups: Domain | str | Path | None = None,
        num_files: int = 4,
    ) -> None:
        super().__init__()
        if terms.simulated:
            raise ValueError("terms.simulated must be false: memoized noise is no simulation")
        if not noise.memoized:
            raise ValueError("noise must be memoized: give it a key_file")
        if noise.identity != terms.identity:
            raise ValueError("noise must be drawn under the identity of the terms")
        _check_number(num_files)
        self._folder = folder.rstrip("/")
        carried = PortableTerms(terms, groups)
        self._doer = _PackPeople(carried, noise, num_files)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteMemoizedReports", pcoll, ValueBlock)
        packed = pcoll | "Randomize and pack" >> beam.ParDo(self._doer).with_output_types(
            typehints.Tuple[int, bytes]
        )
        return packed | "Files" >> _WriteFiles(self._folder)


_PLACES = 256 ** np.arange(3, -1, -1, dtype=np.int64)  # of the bytes of a number


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


def _check_number(num_files: int) -> None:
    check_integer("num_files", num_files, 1)


class _Packer:
    """Reports to envelopes, those of each file together."""

    def __init__(self, carried: PortableTerms, num_files: int) -> None:
        self._terms, self._groups = carried.terms, carried.of_groups
        self._digest = self._terms.randomizer.config_digest()
        self._num_files = num_files
        self._written = counter("reports_written")
        self._of_group: dict[int, ReleaseTerms] = {}

    def check(self, block: ReportBlock) -> None:
        """The block must be of this release."""
        if block.mechanism_digest != self._digest:
            raise MismatchError(
                "WriteReports: the reports were made by another mechanism, or other parameters"
            )
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

    def pack(self, reports: np.ndarray, group: int | None, ids: np.ndarray) -> Iterator[Any]:
        """Equally many reports in each envelope of a group: `(file, envelopes)`."""
        if not len(ids):
            return
        envelopes = encode_envelopes(self._terms_of(group), reports, ids)
        self._written.inc(len(reports))
        files = ids[:, :4].astype(np.int64) @ _PLACES % self._num_files
        order = np.argsort(files, kind="stable")
        found, starts = np.unique(files[order], return_index=True)
        for number, own in zip(found.tolist(), np.split(envelopes[order], starts[1:])):
            yield number, own.tobytes()

    def _terms_of(self, group: int | None) -> ReleaseTerms:
        if group is None or self._groups is None:
            return self._terms
        if group not in self._of_group:
            self._of_group[group] = self._groups.of(group)
        return self._of_group[group]


class _PackPeople(RandomizeBlocks):
    """Values to envelopes of one person each."""

    def __init__(self, terms: PortableTerms, noise: NoiseSource, num_files: int) -> None:
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
            for group, rows in parts_of(None, reports):
                yield from self._packer.pack(reports.reports[rows], group, ids[rows])
            start = stop


class _Pack(beam.DoFn):
    def __init__(self, terms: PortableTerms, num_files: int) -> None:
        self._carried, self._num_files = terms, num_files

    def setup(self) -> None:
        self._packer = _Packer(self._carried, self._num_files)
        self._most = self._carried.terms.max_reports

    def process(self, block: ReportBlock) -> Iterator[tuple[int, bytes]]:
        self._packer.check(block)
        for group, rows in parts_of(None, block):
            reports = block.reports[rows]
            whole = len(reports) // self._most * self._most
            for part, number in (
                (reports[:whole], whole // self._most),
                (reports[whole:], int(whole < len(reports))),
            ):
                ids = np.frombuffer(os.urandom(ID_BYTES * number), np.uint8).reshape(-1, ID_BYTES)
                yield from self._packer.pack(part, group, ids)


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
