"""The output folder: its schemas, and that it appears whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem

from beam_ldp.questions.frequency_view import estimate_table
from beam_ldp.questions.tables import as_csv
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.release import outputs
from beam_ldp.release.outputs import MANIFEST, OutputError, OutputFolder, as_json, as_parquet

COLUMNS = [
    "question", "group", "window_start", "window_end", "value",
    "count", "count_standard_error", "count_low", "count_high",
    "frequency", "frequency_standard_error", "frequency_low", "frequency_high",
]  # fmt: skip


def estimate() -> Estimate:
    return Estimate(np.array([0.25, -0.01]), np.array([0.1, 0.02]), 200)


# Schemas ----------------------------------------------------------------------------------


@pytest.mark.exact
def test_columns_and_numbers_are_the_documented_ones() -> None:
    table = estimate_table(estimate(), ["a", "other"], "q", "DE", (0, 3_600_000_000))
    assert table.schema.names == COLUMNS
    first = table.to_pylist()[0]
    assert first["question"] == "q" and first["group"] == "DE" and first["value"] == "a"
    assert first["window_end"].isoformat() == "1970-01-01T01:00:00+00:00"
    assert first["count"] == 50 and first["count_standard_error"] == 20
    assert first["frequency"] == 0.25
    assert first["frequency_low"] == pytest.approx(0.25 - 1.959964 * 0.1, abs=1e-6)
    assert first["count_high"] == pytest.approx(50 + 1.959964 * 20, abs=1e-4)
    assert table["frequency"][1].as_py() == -0.01, "unbiased estimates are not clipped"


@pytest.mark.parametrize("method", ["clip", "norm-sub"])
def test_what_was_post_processed_says_so_beside_the_raw_estimate(method: Any) -> None:
    shown = estimate().postprocess(method)
    table = estimate_table(shown, ["a", "other"], "q")
    assert table.schema.names == [*COLUMNS, "count_raw", "frequency_raw", "postprocess"]
    first, second = table.to_pylist()
    assert second["frequency_raw"] == -0.01 and second["count_raw"] == -2
    assert first["frequency"] == (0.25 if method == "clip" else pytest.approx(0.63))
    assert second["frequency"] == (0 if method == "clip" else pytest.approx(0.37))
    assert second["count_low"] == pytest.approx(-2 - 1.959964 * 4, abs=1e-4)
    assert {row["postprocess"] for row in (first, second)} == {method}


def test_the_whole_input_has_no_group_and_no_window() -> None:
    row = estimate_table(estimate(), ["a", "other"], "q").to_pylist()[0]
    assert row["group"] is row["window_start"] is row["window_end"] is None


def test_csv_survives_quotes_commas_newlines_and_unicode() -> None:
    labels = ['say "hi", you', "zwei\nZeilen ü 東"]
    text = as_csv(estimate_table(estimate(), labels, "q")).decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["value"] for row in rows] == labels
    assert list(rows[0]) == COLUMNS


def test_names_in_records_are_text_and_no_character_codes() -> None:
    told = json.dumps({"question": "größe, 東京"}, ensure_ascii=False)[1:-1]
    assert told in outputs.as_json({"question": "größe, 東京"}).decode()


def test_parquet_carries_its_schema_version() -> None:
    content = as_parquet(estimate_table(estimate(), ["a", "b"], "q"))
    table = pq.read_table(io.BytesIO(content))
    assert table.schema.metadata[b"schema_version"] == b"1"
    assert table.schema.names == COLUMNS
    assert table.schema.field("window_start").type == pa.timestamp("us", tz="UTC")


def test_json_refuses_what_is_not_json() -> None:
    with pytest.raises(ValueError):
        as_json({"epsilon": float("nan")})


# A local folder ------------------------------------------------------------------------------


def write(path: Path | str, content: str, overwrite: bool = False) -> OutputFolder:
    folder = OutputFolder(str(path), overwrite)
    with folder.writing() as writer:
        writer.put("privacy.json", content.encode())
        writer.put("estimates.csv", b"x")
    return folder


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    folder = OutputFolder(str(out))
    with folder.writing() as writer:
        writer.put("privacy.json", b"{}")
        assert not out.exists(), "nothing is to be seen before the end"
    assert names(out) == ["privacy.json"]
    assert names(out.parent) == ["out"], "nothing is left beside it"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    with pytest.raises(RuntimeError), folder.writing() as writer:
        writer.put("privacy.json", b"{}")
        raise RuntimeError
    assert names(tmp_path) == []


def test_existing_output_is_refused_and_untouched(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    with pytest.raises(OutputError, match="--overwrite"):
        OutputFolder(str(tmp_path / "out"))
    assert (tmp_path / "out" / "privacy.json").read_text() == "old"


def test_an_output_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    with pytest.raises(OutputError), folder.writing() as writer:
        writer.put("privacy.json", b"mine")
        write(tmp_path / "out", "theirs")
    assert (tmp_path / "out" / "privacy.json").read_text() == "theirs"


@pytest.mark.parametrize("swap", [True, False])
def test_overwriting_replaces_all_of_it(
    tmp_path: Path, swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not swap:
        monkeypatch.setattr(outputs, "_exchange", lambda one, other: False)
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "plot.png").write_text("old")
    write(tmp_path / "out", "new", overwrite=True)
    assert names(tmp_path / "out") == ["estimates.csv", "privacy.json"]
    assert (tmp_path / "out" / "privacy.json").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_a_failed_overwrite_keeps_the_old_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the second of two renames fails."""
    write(tmp_path / "out", "old")
    monkeypatch.setattr(outputs, "_exchange", lambda one, other: False)
    real = os.rename

    def fail(source: Any, target: Any) -> None:
        if ".partial-" in str(source):
            raise OSError("full")
        real(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="full"):
        write(tmp_path / "out", "new", overwrite=True)
    assert (tmp_path / "out" / "privacy.json").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_overwrite_never_takes_a_folder_that_is_no_output(tmp_path: Path) -> None:
    """`--output ~ --overwrite` must not delete a home."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match="not of an earlier output"):
        OutputFolder(str(tmp_path), overwrite=True)
    file = tmp_path / "thesis.tex"
    with pytest.raises(OutputError, match="not a folder"):
        OutputFolder(str(file), overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_no_place_for_an_output(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below", "x" * 300):
        with pytest.raises(OutputError, match="--output .* (not a folder|cannot be)"):
            folder = OutputFolder(str(tmp_path / place), overwrite)
            with folder.staging():
                pass
    assert (tmp_path / "file").read_text() == "mine" and names(tmp_path) == ["file"]


def test_a_folder_that_cannot_be_listed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(OutputError, match=r"cannot be used \(Permission denied\)"):
        OutputFolder(str(tmp_path))


def test_overwrite_takes_no_folder_without_a_privacy_record(tmp_path: Path) -> None:
    """Names alone are no proof: somebody else's files may be called so."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "estimates.csv").write_text("mine")
    with pytest.raises(OutputError, match="not of an earlier output"):
        OutputFolder(str(tmp_path / "out"), overwrite=True)


def test_every_file_is_on_disk_before_the_output_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the machine leaves a whole output or none."""
    told: list[str] = []
    real = outputs._put_in_place
    monkeypatch.setattr(
        os, "fsync", lambda handle: told.append(os.readlink(f"/proc/self/fd/{handle}"))
    )
    monkeypatch.setattr(
        outputs, "_put_in_place", lambda new, to: (told.append("named"), real(new, to))
    )
    write(tmp_path / "out", "new")
    assert told[-1] == "named"
    assert sorted(Path(name).name for name in told[:-1]) == ["estimates.csv", "privacy.json"]


def test_overwrite_never_takes_what_somebody_put_beside_an_output(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="not of an earlier output"):
        OutputFolder(str(tmp_path / "out"), overwrite=True)


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", "new")
    assert names(tmp_path / "out") == ["estimates.csv", "privacy.json"]


def test_staging_vanishes_even_after_a_failure(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    with pytest.raises(RuntimeError), folder.staging() as place:
        Path(place, "x").write_text("x")
        assert Path(place).parent == tmp_path
        raise RuntimeError
    assert names(tmp_path) == []


# An object store -------------------------------------------------------------------------


class StoreFileSystem(LocalFileSystem):
    """A stand-in for an object store: keys only, no folders, one file renamed at a time."""

    ROOT = ""
    WRITTEN: list[str] = []

    @classmethod
    def scheme(cls) -> str:
        return "teststore"

    def _local(self, path: str) -> str:
        return path.replace("teststore://", self.ROOT + "/")

    def join(self, base: str, *parts: str) -> str:
        return "/".join((base, *parts))

    def create(self, path: str, *args: Any, **kwargs: Any) -> Any:
        local = self._local(path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        self.WRITTEN.append(path.rsplit("/", 1)[-1])
        return super().create(local, *args, **kwargs)

    def open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return super().open(self._local(path), *args, **kwargs)

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        top = self._local(dir_or_prefix)
        for folder, _, files in os.walk(os.path.dirname(top) or self.ROOT):
            for name in files:
                local = os.path.join(folder, name)
                shown = "teststore://" + os.path.relpath(local, self.ROOT)
                yield FileMetadata(shown, os.path.getsize(local))

    def rename(self, sources: list[str], targets: list[str]) -> None:
        for source, target in zip(sources, targets, strict=True):
            os.makedirs(os.path.dirname(self._local(target)), exist_ok=True)
            self.WRITTEN.append("to " + target.rsplit("/", 1)[-1])
            os.rename(self._local(source), self._local(target))

    def delete(self, paths: list[str]) -> None:
        self.WRITTEN += ["-" + path.rsplit("/", 1)[-1] for path in paths]
        super().delete([self._local(path) for path in paths])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    StoreFileSystem.ROOT = str(tmp_path)
    StoreFileSystem.WRITTEN = []
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_on_a_store_the_manifest_is_written_last(store: Path) -> None:
    write("teststore://bucket/out", "one")
    assert StoreFileSystem.WRITTEN == [
        "privacy.json", "estimates.csv", MANIFEST,  # aside
        "to estimates.csv", "to privacy.json", "to " + MANIFEST,
    ]  # fmt: skip
    manifest = json.loads((store / "bucket" / "out" / MANIFEST).read_text())
    assert manifest["schema_version"] == 1
    assert [file["name"] for file in manifest["files"]] == ["privacy.json", "estimates.csv"]
    assert [file["bytes"] for file in manifest["files"]] == [3, 1]


def test_on_a_store_an_existing_output_is_refused(store: Path) -> None:
    write("teststore://bucket/out", "one")
    with pytest.raises(OutputError, match="--overwrite"):
        OutputFolder("teststore://bucket/out")


def test_on_a_store_overwriting_withdraws_the_manifest_first(store: Path) -> None:
    write("teststore://bucket/out", "one")
    StoreFileSystem.WRITTEN.clear()
    write("teststore://bucket/out", "two", overwrite=True)
    first_change = next(i for i, what in enumerate(StoreFileSystem.WRITTEN) if what[0] in "-t")
    assert StoreFileSystem.WRITTEN[first_change] == "-" + MANIFEST
    assert StoreFileSystem.WRITTEN[-1] == "to " + MANIFEST
    assert (store / "bucket" / "out" / "privacy.json").read_text() == "two"


def test_on_a_store_nothing_of_the_old_output_stays(store: Path) -> None:
    write("teststore://bucket/out", "one")
    (store / "bucket" / "out" / "plot.png").write_text("of the first")
    write("teststore://bucket/out", "two", overwrite=True)
    assert names(store / "bucket" / "out") == ["estimates.csv", MANIFEST, "privacy.json"]


def test_on_a_store_a_failure_leaves_no_manifest(store: Path) -> None:
    folder = OutputFolder("teststore://bucket/out")
    with pytest.raises(RuntimeError), folder.writing() as writer:
        writer.put("privacy.json", b"{}")
        raise RuntimeError
    assert not (store / "bucket" / "out" / MANIFEST).exists()


# Finished, and published only when it may be ---------------------------------------------


@pytest.mark.parametrize("url", ["{}/out", "teststore://bucket/out"])
def test_what_is_finished_is_nowhere_until_it_is_published(store: Path, url: str) -> None:
    place = url.format(store)
    folder = OutputFolder(place)
    with folder.staging():
        with folder.finishing() as writer:
            writer.put("privacy.json", b"{}")
        assert not list(store.rglob("out/privacy.json"))
        folder.publish()
        assert len(list(store.rglob("out/privacy.json"))) == 1
    assert not [path for path in store.rglob("*out.finished*/*") if path.is_file()]


@pytest.mark.parametrize("url", ["{}/out", "teststore://bucket/out"])
def test_what_is_kept_can_be_published_by_another_process(store: Path, url: str) -> None:
    place = url.format(store)
    folder = OutputFolder(place)
    with pytest.raises(RuntimeError), folder.staging() as staging:
        with folder.finishing() as writer:
            writer.put("privacy.json", b"{}")
        folder.keep = True
        raise RuntimeError
    assert not list(store.rglob("out/privacy.json"))
    OutputFolder(place, token=staging.rpartition("-")[2]).publish()
    assert len(list(store.rglob("out/privacy.json"))) == 1


@pytest.mark.parametrize("url", ["{}/out", "teststore://bucket/out"])
def test_what_is_neither_kept_nor_published_is_gone(store: Path, url: str) -> None:
    folder = OutputFolder(url.format(store))
    with folder.staging(), folder.finishing() as writer:
        writer.put("privacy.json", b"{}")
    assert not [path for path in store.rglob("*") if path.is_file()]


def test_an_output_that_came_in_between_is_not_replaced(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    with folder.staging():
        with folder.finishing() as writer:
            writer.put("privacy.json", b"one")
        write(tmp_path / "out", "two")
        with pytest.raises(OutputError, match="--overwrite"):
            folder.publish()
    assert (tmp_path / "out" / "privacy.json").read_text() == "two"


@pytest.mark.parametrize("overwrite", [False, True])
def test_on_a_store_a_move_that_was_cut_goes_on(
    store: Path, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are there already are its own: neither in the way nor thrown away."""
    place, move, moved = "teststore://bucket/out", StoreFileSystem.rename, list[str]()

    def once(self: StoreFileSystem, sources: list[str], targets: list[str]) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.extend(targets)
        move(self, sources, targets)

    folder = OutputFolder(place, overwrite, "0123abcd")
    with folder.finishing() as writer:
        writer.put("estimates.csv", b"a")
        writer.put("privacy.json", b"{}")
    with monkeypatch.context() as patch:
        patch.setattr(StoreFileSystem, "rename", once)
        with pytest.raises(KeyboardInterrupt):
            folder.publish()
    assert len(moved) == 1 and not list(store.rglob("out/manifest.json"))
    OutputFolder(place, overwrite, "0123abcd", checked=False).publish()
    found = {path.name for path in store.rglob("out/*")}
    assert found == {"estimates.csv", "privacy.json", "manifest.json"}


def test_on_a_store_files_of_somebody_else_are_in_the_way(store: Path) -> None:
    """What has a name of the output and was not moved out of it is not its own."""
    place = "teststore://bucket/out"
    folder = OutputFolder(place)
    with folder.finishing() as writer:
        writer.put("privacy.json", b"{}")
    with OutputFolder(f"{place}").writing() as other:
        other.put("privacy.json", b"{}")
    with pytest.raises(OutputError, match="exists"):
        folder.publish()
