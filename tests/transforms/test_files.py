"""Which files there are: in one order, and what a place that is not there means."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.io.filesystem import BeamIOError

from beam_ldp.transforms import files
from beam_ldp.transforms.files import (
    StoredAnchors,
    check_store,
    matching,
    matching_or_inside,
    paths_matching,
    reason,
)

pytestmark = pytest.mark.exact


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b", "a", "c"):
        (tmp_path / name).write_text(name * 3)
    return tmp_path


def test_paths_come_in_one_order(folder: Path) -> None:
    expected = [str(folder / name) for name in "abc"]
    assert paths_matching(f"{folder}/*") == expected
    assert [file.path for file in matching(f"{folder}/*")] == expected
    assert [file.size_in_bytes for file in matching(f"{folder}/[ab]")] == [3, 3]


def test_nothing_that_matches_is_no_error(folder: Path) -> None:
    assert paths_matching(f"{folder}/*.csv") == []
    assert paths_matching(f"{folder}/away/*") == []


def test_a_place_that_cannot_be_listed_is_an_error_unless_it_may_be_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(patterns: list[str]) -> None:
        raise BeamIOError(f"no right to list {patterns[0]}")

    monkeypatch.setattr("apache_beam.io.filesystems.FileSystems.match", refuse)
    assert paths_matching("file:///bucket/*", or_none=True) == []
    for listing in (matching, paths_matching, matching_or_inside):
        with pytest.raises(BeamIOError, match="no right"):
            listing("file:///bucket/*")


def test_a_folder_stands_for_its_files(folder: Path) -> None:
    names = [str(folder / name) for name in "abc"]
    for pattern in (str(folder), f"{folder}/"):
        assert [file.path for file in matching_or_inside(pattern)] == names
    assert [file.path for file in matching_or_inside(f"{folder}/a")] == names[:1]
    assert matching_or_inside(f"{folder}/away") == []
    (folder / "empty").mkdir()
    assert matching_or_inside(f"{folder}/empty") == [], "a folder is no file"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("gs://b/x", r"gs:// needs a package .* pip install 'beam-ldp\[gcp\]'"),
        ("s3://b/x", r"s3:// needs a package .* pip install 'apache-beam\[aws\]'"),
        ("azfs://a/c/x", r"azfs:// needs a package .* pip install 'apache-beam\[azure\]'"),
        ("hdfs://x", r"hdfs:// needs a package .* pip install 'apache-beam\[hadoop\]'"),
        ("abfss://c@a/x", "abfss:// is not known: .*gs://.*s3://.*azfs://.*hdfs://"),
        ("foo://x", "foo:// is not known: .*gs://.*s3://.*azfs://.*hdfs://"),
    ],
)
def test_a_store_out_of_reach_names_the_path_and_what_is_missing(
    path: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = {scheme: ("not_installed", name) for scheme, (_, name) in files._STORES.items()}
    monkeypatch.setattr(files, "_STORES", absent)
    for ask in (check_store, matching, lambda path: paths_matching(path, or_none=True)):
        with pytest.raises(ValueError, match=f"{path}: {said}"):
            ask(path)
    with pytest.raises(OSError, match=said):
        StoredAnchors(path).last("l")


def test_s3_without_credentials_is_refused_before_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(files._STORES, "s3", ("json", "apache-beam[aws]"))
    monkeypatch.setattr(files, "_has_aws_credentials", lambda: False)
    with pytest.raises(ValueError, match="s3://b/x: no credentials for s3:// were found"):
        check_store("s3://b/x")


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("/x", PermissionError("a value"), "PermissionError"),
        ("gs://b/x", PermissionError("Not allowed.\nmore"), "PermissionError: Not allowed; check"),
        ("gs://b/x", BeamIOError("m", {"p": ValueError("no project")}), "ValueError: no project;"),
        ("gs://b/x", ValueError("GET /x?sig=abc"), "ValueError; check that"),
        ("gs://b/x", ValueError("key " + "a" * 32), "ValueError; check that"),
    ],
)
def test_a_reason_quotes_a_first_line_that_cannot_be_secret(
    path: str, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(files._STORES, "gs", ("json", "beam-ldp[gcp]"))
    assert reason(path, error).startswith(said)
