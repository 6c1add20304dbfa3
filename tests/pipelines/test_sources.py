"""Files to blocks: formats, splits, bad rows, and errors that name the file and quote nothing."""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import FileMetadata, MatchResult
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release.beam_job import IN_PROCESS_RUNNER
from beam_ldp.release.inputs import sources
from beam_ldp.release.inputs.line_formats import (
    MISSING_COLUMN,
    WINDOWS_1252,
    WRONG_FIELDS,
    read_json_lines,
)
from beam_ldp.release.inputs.sources import (
    ROWS,
    InputFileError,
    ReadTable,
    Split,
    find_all_files,
    find_files,
    format_of,
    split_row_groups,
)
from beam_ldp.settings import People, SettingError
from beam_ldp.transforms import BoundContributions, EncodeRows
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.elements.blocks import BadRow, BadRowBlock, TableBlock
from tests.memory_files import SCHEME
from tests.transforms.helpers import run

SECRET = "the-raw-value"


def read(path: Path, kind: str, *columns: str, partial: bool = False, **how: Any) -> dict[int, Any]:
    """Position -> fields or reason, through splits as the workers do."""
    user_id = columns[1] if len(columns) > 1 else None
    reader = ReadTable([str(path)], kind, columns[0], user_id, **how).reader
    found: dict[int, Any] = {}
    for split in reader.splits(str(path)):
        for element in reader.read(split):
            assert element.source == str(path)
            if isinstance(element, BadRowBlock):
                assert not found.keys() & {row.position for row in element}
                found |= {row.position: row.reason for row in element}
                continue
            names = [name for name in columns if name in element.batch.schema.names]
            assert partial or names == list(columns)
            rows = zip(*(element.batch.column(name).to_pylist() for name in names))
            for position, row in enumerate(rows, element.first_position):
                assert position not in found
                found[position] = row
    return found


def write_parquet(path: Path, columns: dict[str, Any], **how: Any) -> Path:
    pq.write_table(pa.table(columns), path, **how)
    return path


# Finding files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b.parquet", "parquet"), ("x.CSV", "csv"), ("x.csv.gz", "csv"), ("s:/b/x.json", "jsonl"),
        ("x.txt.bz2", "text"), ("x.tsv", "csv"), ("x", None), ("x.dat", None), ("parquet", None),
        ("x.gz", None),
    ],
)  # fmt: skip
def test_format_of(path: str, expected: str | None) -> None:
    assert format_of(path) == expected


def test_globs_and_folders_leave_out_engine_markers(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "_SUCCESS", ".part.crc"):
        (tmp_path / name).write_text("v\n1\n")
    names = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert [path for path, _ in find_files(str(tmp_path / "*.csv"))] == names
    assert [path for path, _ in find_files(str(tmp_path))] == names
    assert find_files(names[0]) == [(names[0], 4)]


def test_overlapping_patterns_give_each_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is read twice would make everybody in it report twice."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("v\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    monkeypatch.chdir(tmp_path)
    patterns = ["a.csv", str(tmp_path / "a.csv"), "./a.csv", str(tmp_path / "*.csv"), "link.csv"]
    assert find_all_files(patterns) == [(str(tmp_path / name), 4) for name in ("a.csv", "b.csv")]
    with beam.Pipeline(options=PipelineOptions([f"--runner={IN_PROCESS_RUNNER}"])) as pipeline:
        rows = (pipeline | ReadTable(patterns, "csv", "v"))[sources.ROWS]

        def two(lengths: list[int]) -> None:
            assert sum(lengths) == 2

        assert_that(rows | beam.Map(len), two)


def test_no_match_is_an_error_that_names_the_pattern(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="nothing-here.*no file matches"):
        find_files(str(tmp_path / "nothing-here*"))
    with pytest.raises(InputFileError, match="nosuchscheme://x"):
        find_files("nosuchscheme://x/y")


def test_files_of_a_table_with_a_log_are_refused(tmp_path: Path) -> None:
    """Its folder keeps the files of before: 20,000 people where 10,000 were deleted. A folder that
    is no table is read before, and a snapshot in another folder is read after."""
    for place in ("plain", "lake/delta/day=1", "lake/iceberg/data/day=1", "lake/hudi/2026/01"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "f.parquet").write_bytes(b"")
    lake = tmp_path / "lake"
    assert len(find_files(str(lake / "**"))) == 3
    logs = {
        "delta": "_delta_log/0.json",
        "iceberg": "metadata/v2.metadata.json",
        "hudi": ".hoodie/hoodie.properties",
    }
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/x.metadata.json").touch()  # not of a table: no folder `data` beside it
    for name, log in logs.items():
        (lake / name / log).parent.mkdir()
        (lake / name / log).touch()
        inside = next((lake / name).rglob("f.parquet"))
        for pattern in (lake / name, inside.parent, inside.parent / "*.parquet", inside):
            with pytest.raises(SettingError, match=f"{name} is the folder of a table.*snapshot"):
                find_files(str(pattern))
    with pytest.raises(SettingError, match="lake/delta is the folder of a table"):
        find_all_files([str(tmp_path / "plain"), str(lake / "**")])
    assert len(find_files(str(tmp_path / "plain"))) == 1


@pytest.mark.parametrize("log", ["_delta_log/0.json", ".hoodie/a", "metadata/v1.metadata.json"])
def test_tables_in_other_stores_are_refused(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [f"{SCHEME}://b/t/{log}", f"{SCHEME}://b/t/data/f.parquet"]

    def match(patterns: list[str], limits: list[int] | None = None) -> list[MatchResult]:
        found = [one for one in there if fnmatch.fnmatchcase(one, patterns[0])]
        return [MatchResult(patterns[0], [FileMetadata(one, 0) for one in found])]

    monkeypatch.setattr(sources.FileSystems, "match", match)
    with pytest.raises(SettingError, match=f"{SCHEME}://b/t is the folder of a table"):
        find_files(f"{SCHEME}://b/t/data/*")
    del there[0]
    assert len(find_files(f"{SCHEME}://b/t/data/*")) == 1


# Parquet ----------------------------------------------------------------------------------


def test_parquet_rows_come_once_with_their_numbers(tmp_path: Path) -> None:
    values = [f"w{i % 7}" for i in range(1000)]
    path = write_parquet(
        tmp_path / "x.parquet", {"u": range(1000), "noise": ["n"] * 1000, "v": values},
        row_group_size=90,
    )  # fmt: skip
    assert read(path, "parquet", "v", "u") == {i: (v, i) for i, v in enumerate(values)}
    assert read(path, "parquet", "v") == {i: (v,) for i, v in enumerate(values)}


@given(st.integers(0, 200), st.integers(1, 50), st.integers(1, 120))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_row_groups_are_shared_out_completely(
    tmp_path: Path, rows: int, group_size: int, rows_per_split: int
) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"v": np.arange(rows)}, row_group_size=group_size)
    with path.open("rb") as file:
        splits = split_row_groups(file, ["v"], rows_per_split=rows_per_split)
    at = 0
    for split in splits:
        assert split.first_row == at and split.num_rows > 0
        at += split.num_rows
    assert at == rows
    if rows:
        assert len(splits) >= rows // (rows_per_split + group_size)


def test_parquet_reads_only_the_wanted_columns(tmp_path: Path) -> None:
    """The other column's pages are destroyed: nothing notices."""
    path = tmp_path / "x.parquet"
    noise = np.random.default_rng(0).bytes(100_000)
    filler = [noise[i : i + 1000] for i in range(0, 100_000, 1000)]
    table = pa.table({"v": ["a"] * 100, "x": pa.array(filler, pa.binary())})
    pq.write_table(table, path, compression=None, use_dictionary=["v"])
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    content = bytearray(path.read_bytes())
    start = column.data_page_offset
    content[start : start + 50_000] = bytes(50_000)
    path.write_bytes(bytes(content))
    assert len(read(path, "parquet", "v")) == 100


def test_parquet_nulls_numbers_and_nan_pass_on_untouched(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"v": [1.5, None, float("nan")]})
    found = read(path, "parquet", "v")
    assert found[0] == (1.5,) and found[1] == (None,) and np.isnan(found[2][0])


def test_parquet_without_a_wanted_column_gives_its_rows_without_it(tmp_path: Path) -> None:
    """Encoding turns them into bad rows, one by one, with their positions."""
    path = write_parquet(tmp_path / "x.parquet", {"v": ["a", "b"]})
    assert read(path, "parquet", "v", "missing", partial=True) == {0: ("a",), 1: ("b",)}
    reader = ReadTable([str(path)], "parquet", "missing").reader
    (split,) = reader.splits(str(path))
    (block,) = reader.read(split)
    assert len(block) == 2 and block.batch.num_columns == 0


# Line-based files -------------------------------------------------------------------------


def test_csv_and_json_lines_with_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("u,v\n1,a\n2\n\n3,b\n")
    assert read(path, "csv", "v", "u") == {2: ("a", "1"), 3: WRONG_FIELDS, 5: ("b", "3")}
    assert read(path, "csv", "v", bad_rows="other") == {2: ("a",), 3: (None,), 5: ("b",)}
    # without a known user id the row cannot be attributed: rejected in either mode
    assert read(path, "csv", "v", "u", bad_rows="other")[3] == WRONG_FIELDS


def test_bad_rows_of_known_users_leave_no_trace(tmp_path: Path) -> None:
    """`bad_rows="other"`: whoever can be attributed is reported as `other`, whatever is wrong."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b'{"u": "1", "v": "a"}\n{"u": "2"}\n{"u": "3", "v": [1]}\n{"u": "4", "v": NaN}\n'
        b'{"u": "5", "v": "\xff"}\n{"v": "b"}\n{"u": [6], "v": "b"}\nno object\n'
    )
    hidden = read(path, "jsonl", "v", "u", bad_rows="other")
    assert {i: hidden[i] for i in (1, 2, 3, 4, 5)} == {
        1: ("a", "1"), 2: (None, "2"), 3: (None, "3"), 4: (None, "4"), 5: (None, "5"),
    }  # fmt: skip
    assert hidden[6] == ("b", None)
    assert all(isinstance(hidden[i], str) for i in (7, 8))  # reasons: no user is known
    shown = read(path, "jsonl", "v", "u")
    assert shown[2] == (None, "2") and all(isinstance(shown[i], str) for i in (3, 4, 5, 7, 8))
    table = tmp_path / "x.csv"
    table.write_bytes(b'u,v\n1,"\xff"\n2,"b"\n')
    assert read(table, "csv", "v", "u")[2] == WINDOWS_1252
    assert read(table, "csv", "v", "u", bad_rows="other") == {2: (None, "1"), 3: ("b", "2")}
    assert read(table, "csv", "nowhere", "u", bad_rows="other") == {2: (None, "1"), 3: (None, "2")}
    assert read(table, "csv", "nowhere", "u") == {2: MISSING_COLUMN, 3: MISSING_COLUMN}


def test_what_a_bad_line_holds_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"u": SECRET, "v": [SECRET]}) + "\n")
    with path.open("rb") as file:
        (lines,) = read_json_lines(file, ["v", "u"])
    assert SECRET not in repr(lines)


def test_compressed_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(
        gzip.compress(b"".join(json.dumps({"v": i}).encode() + b"\n" for i in range(9)))
    )
    assert read(path, "jsonl", "v") == {i + 1: (str(i),) for i in range(9)}


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_compressed_file_that_is_cut_is_an_error(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    """Beam gives what it could read and says nothing: people would be lost unseen."""
    lines = b"".join(b"%d\n" % i for i in range(200_000))
    whole = compress(lines) + compress(b"again\n")
    path = tmp_path / f"x.txt.{ending}"
    path.write_bytes(whole)
    assert len(read(path, "text", "v")) == 200_001
    for size in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputFileError, match=f"x.txt.{ending}: .* is truncated"):
            read(path, "text", "v")


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\n\xff\nb")
    assert read(path, "text", "value") == {1: ("a",), 2: WINDOWS_1252, 3: ("b",)}


# Whole files ------------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda b: b"PAR1" + b + b"PAR1"))
def test_what_is_not_parquet_is_an_error_that_names_the_file(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        read(path, "parquet", "v")
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_parquet_file_cut_in_its_middle_names_the_file(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"v": [SECRET + str(i) for i in range(5000)]})
    content = bytearray(path.read_bytes())
    content[100:20_000] = bytes(19_900)
    path.write_bytes(bytes(content))
    with pytest.raises(InputFileError) as caught:
        read(path, "parquet", "v")
    assert str(path) in str(caught.value) and SECRET not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    reader = ReadTable(["x"], "csv", "v").reader
    with pytest.raises(InputFileError, match="gone.csv: cannot be opened"):
        list(reader.read(Split(str(tmp_path / "gone.csv"))))


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet"])
def test_what_was_read_adds_up_to_the_files(tmp_path: Path, name: str) -> None:
    """However a file is split, and packed: the progress of a job ends at 100 %."""
    texts = [f"text {i}" for i in range(300_000)]
    path = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"v": texts}), path, row_group_size=70_000)
    else:
        content = "\n".join(["v", *texts, ""]).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    reader = ReadTable([str(path)], format_of(name), "v").reader  # type: ignore[arg-type]
    told: list[int] = []
    for split in reader.splits(str(path)):
        assert sum(map(len, reader.read(split, told.append))) > 0
    assert told and min(told) >= 0
    assert sum(told) == pytest.approx(path.stat().st_size, abs=len(told))


# Arguments and the Beam stage ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (dict(input_format="xls"), "input_format"),
        (dict(input_format="csv", bad_rows="drop"), "bad_rows"),
        (dict(input_format="text", user_id="u"), "user_id"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        ReadTable(["x"], **arguments)  # type: ignore[arg-type]


@pytest.mark.pipeline
def test_the_stage_reads_many_files_and_sends_bad_rows_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(3):
        (tmp_path / f"{i}.csv").write_text(f"u,v\n1,{SECRET}\n{SECRET}\n2,b\n")
    with beam.Pipeline(options=PipelineOptions([f"--runner={IN_PROCESS_RUNNER}"])) as pipeline:
        found = pipeline | ReadTable([str(tmp_path / "*.csv")], "csv", "v", "u")
        assert found[sources.ROWS].element_type is TableBlock
        assert found[sources.BAD_ROWS].element_type is BadRowBlock
        sizes = found[sources.ROWS] | "Sizes" >> beam.Map(len)
        bad = found[sources.BAD_ROWS] | "Rows" >> beam.FlatMap(list)

        def six(lengths: list[int]) -> None:
            assert sum(lengths) == 6

        def three(rows: list[BadRow]) -> None:
            wanted = {BadRow(str(tmp_path / f"{i}.csv"), 3, WRONG_FIELDS) for i in range(3)}
            assert set(rows) == wanted and len(rows) == 3

        assert_that(sizes, six, label="six rows")
        assert_that(bad, three, label="three bad rows")
    assert SECRET not in caplog.text


@pytest.mark.pipeline
def test_the_stage_fails_with_the_name_of_an_unreadable_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.parquet").write_text(SECRET)
    pipeline = beam.Pipeline(options=PipelineOptions([f"--runner={IN_PROCESS_RUNNER}"]))
    pipeline | ReadTable([str(tmp_path / "x.parquet")], "parquet", "v")
    with pytest.raises(Exception, match="x.parquet") as caught:
        pipeline.run().wait_until_finish()
    assert SECRET not in str(caught.value) and SECRET not in caplog.text


@pytest.mark.pipeline
def test_the_row_that_counts_does_not_depend_on_how_files_are_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody has twelve rows in two files: two spellings that drew by themselves would agree on
    all 60 people with chance 12**-60."""
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        lines = [f"{row % 60},{name}{row}" for row in range(360)]
        (tmp_path / "in" / f"{name}.csv").write_text("\n".join(["uid,word", *lines]) + "\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    words = Domain(tuple(f"{name}{row}" for name in "ab" for row in range(360)))
    noise = NoiseSource(ReleaseIdentity("people", "w"), str(tmp_path / "key"))

    def drawn(*patterns: str) -> dict[int, int]:
        def build(pipeline: beam.Pipeline) -> beam.PCollection:
            table = pipeline | ReadTable(patterns, "csv", "word", "uid")
            values = table[ROWS] | EncodeRows(words, "word", people=People(id="uid"))
            return values | BoundContributions(noise=noise)

        return {
            person: value
            for block in run(build)
            for person, value in zip(block.user_ids.tolist(), block.values.tolist())
        }

    first = drawn(f"{tmp_path}/in/*.csv")
    assert len(first) == 60
    for others in (["in/*.csv"], ["./in/b.csv", "in/a.csv"], [f"file://{tmp_path}/link"]):
        assert drawn(*others) == first
