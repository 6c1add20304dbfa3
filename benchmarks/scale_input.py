"""Input files of the scale benchmarks: one row per person, the distribution known.

    python -m benchmarks.scale_input FOLDER [--records 1139469767]

One uint16 column `value` of 266 values with probabilities proportional to 1 / (rank + 3), in
Parquet files of 2**26 rows with row groups of 2**20 rows, dictionary encoding and zstd: about 1.06
bytes per row. A folder that holds the records already is left as it is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUM_VALUES = 266
RECORDS = 1_139_469_767  # of the job that the public libraries could not do
ROWS_PER_GROUP = 1 << 20
ROWS_PER_FILE = 1 << 26
MANIFEST = "_records.json"  # readers leave out names that begin so


def probabilities(num_values: int = NUM_VALUES) -> np.ndarray:
    """What is drawn: multiples of 2**-16, so that a table look-up draws exactly this."""
    return np.bincount(_values_of_words(num_values), minlength=num_values) / 2**16


def _values_of_words(num_values: int) -> np.ndarray:
    """The value of each 16-bit word."""
    weights = 1 / (np.arange(num_values) + 3)
    bounds = np.round(np.cumsum(weights) / weights.sum() * 2**16)
    return np.searchsorted(bounds, np.arange(2**16), side="right").astype(np.uint16)


def write_file(path: Path, num_records: int, seed: int, num_values: int = NUM_VALUES) -> None:
    """One Parquet file of that many draws."""
    table = _values_of_words(num_values)
    generator = np.random.default_rng([seed, num_records])
    schema = pa.schema([("value", pa.uint16())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, num_records, ROWS_PER_GROUP):
            count = min(ROWS_PER_GROUP, num_records - start)
            draws = generator.integers(0, 2**16, count, dtype=np.uint16)
            writer.write_table(pa.table({"value": table[draws]}, schema), ROWS_PER_GROUP)


def write_folder(folder: Path, num_records: int) -> int:
    """The files, if they are not there; returns their size in bytes."""
    manifest = folder / MANIFEST
    if not manifest.exists() or json.loads(manifest.read_text()) != num_records:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("part-*.parquet"):
            old.unlink()
        for i, start in enumerate(range(0, num_records, ROWS_PER_FILE)):
            count = min(ROWS_PER_FILE, num_records - start)
            write_file(folder / f"part-{i:03d}.parquet", count, seed=i)
        manifest.write_text(json.dumps(num_records))
    return sum(file.stat().st_size for file in folder.glob("part-*.parquet"))


def main() -> None:
    """Write the files and say how large they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=float, default=RECORDS)
    options = parser.parse_args()
    size = write_folder(options.folder, int(options.records))
    print(f"{int(options.records):,} records, {size / 2**30:.2f} GiB in {options.folder}")


if __name__ == "__main__":
    main()
