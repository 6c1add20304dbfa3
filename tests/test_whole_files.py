"""Files that appear whole: old or new, never a part, and nothing is left aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beam_ldp.whole_files import PRIVATE, replace_file, write_new, write_once

pytestmark = pytest.mark.exact


def test_a_file_is_replaced_with_its_mode_and_its_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        replace_file(path, content, time=2_000_000_000)
        assert path.read_bytes() == content and path.stat().st_mtime_ns == 2_000_000_000
        assert path.stat().st_mode & 0o777 == PRIVATE
    assert os.listdir(tmp_path) == ["file"]


def test_what_fails_leaves_the_old_file_and_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def full(_: int) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]
    replace_file(path, b"new", durable=False)  # asks no disk
    assert path.read_bytes() == b"new"


def test_what_a_killed_writer_left_aside_is_replaced(tmp_path: Path) -> None:
    path, aside = tmp_path / "file", tmp_path / ".file"
    aside.write_bytes(b"half of what was to come")
    replace_file(path, b"whole", aside=aside)
    assert path.read_bytes() == b"whole" and os.listdir(tmp_path) == ["file"]


def test_what_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert write_once(path, b"one") and not write_once(path, b"two")
    with pytest.raises(FileExistsError):
        write_new(path, b"two")
    assert path.read_bytes() == b"one" and os.listdir(tmp_path) == ["file"]
