"""Writing permuted reports: what leaves the shuffler, packed, in Parquet files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
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
from beam_ldp.transforms.elements.blocks import ShuffledBlock
from beam_ldp.transforms.elements.counters import counter
from beam_ldp.transforms.elements.listing import paths_matching
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stage_types import StageError, expect
from beam_ldp.transforms.shuffler.sums import check_digest

MECHANISM_KEY = b"beam_ldp.mechanism"
_BINARY = "application/octet-stream"
_SCHEMA = pa.schema(
    [("num_reports", pa.int64()), ("batch_size", pa.int64()), ("reports", pa.binary())]
)
_ASIDE = ".unfinished"


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

    def __init__(self, folder: str, randomizer: LocalRandomizer) -> None:
        super().__init__()
        self._folder = folder.rstrip("/")
        self._carried = PortableRandomizer(randomizer)

    def expand(self, pcoll: beam.PCollection | tuple[beam.PCollection, ...]) -> beam.PCollection:
        written = []
        for i, part in enumerate(pcoll if isinstance(pcoll, tuple) else (pcoll,)):
            if expect("WriteShuffledReports", part, ShuffledBlock).keyed:
                raise StageError(
                    "WriteShuffledReports takes ShuffledBlock without keys: one folder per group"
                )
            doer = _WriteAside(self._folder, self._carried)
            named = typehints.Tuple[str, str]
            written.append(part | f"Write {i}" >> beam.ParDo(doer).with_output_types(named))
        together = written[0] if len(written) == 1 else written | "All files" >> beam.Flatten()
        return (
            together
            # Only the names that bundles which count have given come through here.
            | "Bring names together" >> beam.GroupByKey()
            | "Publish" >> beam.FlatMap(_publish, self._folder).with_output_types(str)
        )

    def display_data(self) -> dict[str, Any]:
        return {"folder": self._folder}


class _WriteAside(beam.DoFn):
    """One file per bundle, under a name that nothing else has."""

    def __init__(self, folder: str, carried: PortableRandomizer) -> None:
        self._folder, self._carried = folder, carried

    def setup(self) -> None:
        self._randomizer = self._carried.randomizer
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
            make_folder(f"{self._folder}/{_ASIDE}")
            self._path = f"{self._folder}/{_ASIDE}/{uuid.uuid4().hex}.parquet"
            self._file = FileSystems.create(self._path, _BINARY, "uncompressed")
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
                (self._folder, self._path), self._window.max_timestamp(), [self._window]
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
    with FileSystems.open(path, _BINARY, "uncompressed") as stream:
        file = pq.ParquetFile(stream)
        found = (file.schema_arrow.metadata or {}).get(MECHANISM_KEY, b"{}")
        if json.loads(found) != json.loads(json.dumps(randomizer.to_config())):
            raise ValueError(f"{path}: written for another mechanism than the given randomizer")
        for batch in file.iter_batches(batch_size=1):
            (row,) = batch.to_pylist()
            yield randomizer.unpack(row["reports"], row["num_reports"])
