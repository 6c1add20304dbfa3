"""Which files there are: in one order, and what a place that is not there means."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.io.filesystem import BeamIOError

from beam_ldp.transforms.files import matching, matching_or_inside, paths_matching

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
