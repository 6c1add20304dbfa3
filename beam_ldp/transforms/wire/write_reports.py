"""Reports to files: envelopes, as they leave devices or an edge, and what leaves the shuffler."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.randomness import envelope_ids
from beam_ldp.randomizers.wire import ID_BYTES, ReleaseTerms, encode_envelopes
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.device.side import RandomizeBlocks
from beam_ldp.transforms.elements.blocks import LeveledBlock, ReportBlock, ShuffledBlock, ValueBlock
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stages import StageError, counter, expect
from beam_ldp.transforms.files import paths_matching, write_whole
from beam_ldp.transforms.shuffler.sums import MismatchError, check_digest, parts_of
from beam_ldp.transforms.wire.file_parts import BINARY, SUFFIX, PortableTerms


@dataclass(eq=False, repr=False)
class WriteReports(beam.PTransform):
    """Packs reports into envelopes and writes them to files: what leaves the device, or the edge.

    Nothing but the reports is written: no ids of people, no times. Their order is that of the
    people, so these files show each report with its place; there the local epsilon protects. An
    envelope holds one person's report, as those of devices do, or as many people's as the identity
    of the release grants an edge (`reports_per_envelope`).

    In: `ReportBlock`s; `LeveledBlock`s, whose ids the envelopes have. Out: the path of every file,
    `str`.

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

    folder: str
    terms: ReleaseTerms
    _: KW_ONLY
    groups: Domain | str | Path | None = None
    num_files: int = 4

    def __post_init__(self) -> None:
        check_integer("num_files", self.num_files, 1)
        self._terms = PortableTerms(self.terms, self.groups)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteReports", pcoll, ReportBlock, LeveledBlock)
        return self._filed(pcoll, "Pack", PackReports(self._terms, self.num_files))

    def _filed(self, pcoll: beam.PCollection, label: str, packing: beam.DoFn) -> beam.PCollection:
        """Numbered envelopes, in the files of their numbers."""
        doer = beam.ParDo(packing).with_output_types(typehints.Tuple[int, bytes])
        return (
            pcoll
            | label >> doer
            # The exchange is a checkpoint, too: a file that is written again holds the same bytes.
            | "By file" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write_file, self.folder.rstrip("/")).with_output_types(str)
        )

    def display_data(self) -> dict[str, Any]:
        return {"folder": self.folder.rstrip("/"), "num_files": self.num_files}


@dataclass(eq=False, repr=False)
class WriteMemoizedReports(WriteReports):
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

    noise: NoiseSource

    def __post_init__(self) -> None:
        if self.terms.simulated:
            raise ValueError("terms.simulated must be false: memoized noise is no simulation")
        if not self.noise.memoized:
            raise ValueError("noise must be memoized: give it a key_file")
        if self.noise.identity != self.terms.identity:
            raise ValueError("noise must be drawn under the identity of the terms")
        super().__post_init__()

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("WriteMemoizedReports", pcoll, ValueBlock)
        packing = _PackPeople(self._terms.carried, self.noise, False, self._terms, self.num_files)
        return self._filed(pcoll, "Randomize and pack", packing)


_PLACES = 256 ** np.arange(3, -1, -1, dtype=np.int64)  # of the bytes of a number


class _Packer:
    """Reports to envelopes, those of each file together."""

    def __init__(self, carried: PortableTerms, num_files: int) -> None:
        self._terms, self._groups = carried.terms, carried.of_groups
        self._digest = self._terms.randomizer.config_digest()
        self._leveled = len(getattr(self._terms.randomizer, "all_levels", ())) > 1
        self._num_files = num_files
        self._written = counter("reports_written")
        self._of_group: dict[int, ReleaseTerms] = {}

    def check(self, block: ReportBlock | LeveledBlock) -> None:
        """The block must be of this release."""
        if self._leveled != isinstance(block, LeveledBlock):
            raise MismatchError(
                "WriteReports: reports for several levels are those of RandomizeForLevels"
            )
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


@dataclass(eq=False)
class _PackPeople(RandomizeBlocks):
    """Values to envelopes of one person each."""

    terms: PortableTerms
    num_files: int

    def setup(self) -> None:
        super().setup()
        self._packer = _Packer(self.terms, self.num_files)

    def _emit(self, key: Any, block: ValueBlock, window: Any) -> Iterator[tuple[int, bytes]]:
        start = 0
        for reports in super()._emit(key, block, window):
            self._packer.check(reports)
            assert self._key is not None and block.user_ids is not None
            stop = start + len(reports)
            ids = envelope_ids(self._key, block.user_ids[start:stop], self.noise.of(window))
            for group, rows in parts_of(None, reports):
                yield from self._packer.pack(reports.reports[rows], group, ids[rows])
            start = stop


@dataclass(eq=False)
class PackReports(beam.DoFn):
    """Reports to envelopes, numbered by the file that they go to: `(number, envelopes)`."""

    terms: PortableTerms
    num_files: int

    def setup(self) -> None:
        self._packer = _Packer(self.terms, self.num_files)
        self._most = self.terms.terms.max_reports

    def process(self, block: ReportBlock | LeveledBlock) -> Iterator[tuple[int, bytes]]:
        self._packer.check(block)
        if isinstance(block, LeveledBlock):
            yield from self._packer.pack(block.reports, None, block.ids)
            return
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
    make_folder(folder)
    write_whole(path, envelopes)
    return path


# Permuted reports, packed, in Parquet files ---------------------------------------------------


MECHANISM_KEY = b"beam_ldp.mechanism"
_SCHEMA = pa.schema(
    [("num_reports", pa.int64()), ("batch_size", pa.int64()), ("reports", pa.binary())]
)
_ASIDE = ".unfinished"


@dataclass(eq=False, repr=False)
class WriteShuffledReports(beam.PTransform):
    """Writes permuted reports to Parquet files: one row per block, its reports packed.

    Columns: `num_reports`; `batch_size`, the crowd among which each of them hides; `reports`, in
    the wire format of the mechanism, whose parameters stand in the file's metadata.
    `read_shuffled_reports` reads them back. A file's name says nothing of what it holds.

    The files appear when all are written. A bundle that an engine repeats writes a file of its own;
    only the one that counts gets a name, the others stay in `.unfinished` until the end. Protected
    as the output of `Shuffle` is, against whoever reads the files. Where noise is not memoized,
    what a repeated bundle left aside is a second report of its people: nobody else may read there.

    In: `ShuffledBlock`s without keys, or a tuple of such collections. Out: the path of every file.

    Args:
        folder: where; files are called `shuffled-00000.parquet` and so on.
        randomizer: the mechanism that made the reports.

    Raises:
        StageError: if the input is not the output of `Shuffle(output="reports")`, or has keys.
        MismatchError: at run time, for reports of another mechanism.
        FileExistsError: at run time, if the folder holds such files.
    """

    folder: str
    randomizer: LocalRandomizer

    def expand(self, pcoll: beam.PCollection | tuple[beam.PCollection, ...]) -> beam.PCollection:
        folder, written = self.folder.rstrip("/"), []
        doer = _WriteAside(folder, PortableRandomizer(self.randomizer))
        for i, part in enumerate(pcoll if isinstance(pcoll, tuple) else (pcoll,)):
            if expect("WriteShuffledReports", part, ShuffledBlock).keyed:
                raise StageError(
                    "WriteShuffledReports takes ShuffledBlock without keys: one folder per group"
                )
            named = typehints.Tuple[str, str]
            written.append(part | f"Write {i}" >> beam.ParDo(doer).with_output_types(named))
        together = written[0] if len(written) == 1 else written | "All files" >> beam.Flatten()
        return (
            together
            # Only the names that bundles which count have given come through here.
            | "Bring names together" >> beam.GroupByKey()
            | "Publish" >> beam.FlatMap(_publish, folder).with_output_types(str)
        )

    def display_data(self) -> dict[str, Any]:
        return {"folder": self.folder}


@dataclass(eq=False)
class _WriteAside(beam.DoFn):
    """One file per bundle, under a name that nothing else has."""

    folder: str
    carried: PortableRandomizer

    def setup(self) -> None:
        self._randomizer = self.carried.randomizer
        self._digest = self._randomizer.config_digest()
        config = json.dumps(self._randomizer.to_config(), sort_keys=True).encode()
        self._schema = _SCHEMA.with_metadata({MECHANISM_KEY: config})
        self._written = counter("shuffled_reports_written")

    def start_bundle(self) -> None:
        self._file: Any = None

    def process(self, block: ShuffledBlock, window: Any = beam.DoFn.WindowParam) -> None:
        check_digest("WriteShuffledReports", block.mechanism_digest, self._digest)
        if self._file is None:
            self._window = window
            make_folder(f"{self.folder}/{_ASIDE}")
            self._path = f"{self.folder}/{_ASIDE}/{uuid.uuid4().hex}.parquet"
            self._file = FileSystems.create(self._path, BINARY, "uncompressed")
            # Reports are as good as random: nothing is gained by compression or dictionaries.
            self._writer = pq.ParquetWriter(
                self._file, self._schema, compression="none", use_dictionary=False,
                write_statistics=False,
            )  # fmt: skip
        packed = self._randomizer.pack(block.reports)
        arrays = [[len(block)], [block.batch_size], pa.array([packed], pa.binary())]
        self._writer.write_batch(pa.RecordBatch.from_arrays(
            [pa.array(arrays[0], pa.int64()), pa.array(arrays[1], pa.int64()), arrays[2]],
            schema=self._schema,
        ))  # fmt: skip
        self._written.inc(len(block))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._file is not None:
            self._writer.close()
            self._file.close()
            self._file = None
            yield WindowedValue(
                (self.folder, self._path), self._window.max_timestamp(), [self._window]
            )

    def teardown(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._file.close()


def make_folder(folder: str) -> None:
    """The folder, unless another worker made it."""
    try:
        FileSystems.mkdirs(folder)
    except (BeamIOError, OSError):
        if not FileSystems.exists(folder):
            raise


def _publish(element: tuple[str, Iterable[str]], folder: str) -> Iterator[str]:
    """Give the finished files their names, in an order that says nothing; then forget the rest."""
    aside = sorted(element[1])  # names are random
    paths = [f"{folder}/shuffled-{i:05d}.parquet" for i in range(len(aside))]
    for old, new in zip(aside, paths):
        if FileSystems.exists(new):
            if FileSystems.exists(old):
                raise FileExistsError(f"{folder} holds permuted reports already")
            continue  # a repeated attempt
        FileSystems.rename([old], [new])
    FileSystems.delete([*paths_matching(f"{folder}/{_ASIDE}/*"), f"{folder}/{_ASIDE}"])
    yield from paths


def read_shuffled_reports(path: str, randomizer: LocalRandomizer) -> Iterator[np.ndarray]:
    """The permuted reports of one file, block by block, as `randomizer.accumulate` takes them.

    Raises:
        ValueError: if the file was written for another mechanism.
    """
    with FileSystems.open(path, BINARY, "uncompressed") as stream:
        file = pq.ParquetFile(stream)
        found = (file.schema_arrow.metadata or {}).get(MECHANISM_KEY, b"{}")
        if json.loads(found) != json.loads(json.dumps(randomizer.to_config())):
            raise ValueError(f"{path}: written for another mechanism than the given randomizer")
        for batch in file.iter_batches(batch_size=1):
            (row,) = batch.to_pylist()
            yield randomizer.unpack(row["reports"], row["num_reports"])
