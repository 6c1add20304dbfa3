"""The files of a release: the same wheel twice, and a list of what it needs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **more}, text=True,
        capture_output=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def commit_time() -> str:
    return run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()


def built(folder: Path, times: str) -> str:
    """SHA-256 of the wheel of the last commit, from files with these times."""
    source = folder / "source"
    source.mkdir(parents=True)
    run("bash", "-c", f"git -C {ROOT} archive HEAD | tar -x", cwd=source)
    run("bash", "-c", f"find . -exec touch -d {times} {{}} +", cwd=source)
    uv = Path(sys.executable).with_name("uv")
    how = ("build", "--quiet", "--python", sys.executable, "--wheel", "--out-dir", folder)
    run(uv if uv.exists() else "uv", *how, cwd=source, SOURCE_DATE_EPOCH=commit_time())
    (wheel,) = folder.glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_the_same_wheel_twice(tmp_path: Path) -> None:
    first = built(tmp_path / "one", "2020-01-01")
    assert first == built(tmp_path / "another place", "2021-06-30")


def test_make_wheel_takes_the_time_of_the_commit() -> None:
    """What the recipe would run."""
    told = run("make", "--dry-run", "wheel", cwd=ROOT)
    assert re.search(r"SOURCE_DATE_EPOCH=.*git log -1 --format=%ct", told)


def test_the_sbom_lists_what_the_wheel_needs(tmp_path: Path) -> None:
    """CycloneDX, with the pinned versions, and licences and dependents of each."""
    file = tmp_path / "sbom.json"
    run("make", "sbom", f"SBOM={file}", cwd=ROOT)
    found = json.loads(file.read_text())
    assert found["bomFormat"] == "CycloneDX" and found["specVersion"] >= "1.5"
    root = found["metadata"]["component"]
    assert (root["name"], root["version"]) == ("beam-ldp", "0.1.0")
    pins = dict(
        line.split("==") for line in
        (ROOT / "requirements" / "core-py311.txt").read_text().splitlines()
    )  # fmt: skip
    listed = {one["name"].lower().replace("_", "-"): one for one in found["components"]}
    needed = {"apache-beam", "numpy", "scipy", "cryptography", "dp-accounting", "sqlalchemy",
              "mlflow"}  # fmt: skip
    assert needed <= set(listed) and not {"pytest", "ruff", "mypy"} & set(listed)
    for name, one in listed.items():
        if name in pins:
            assert one["version"] == pins[name], name
    assert listed["numpy"]["licenses"]
    needs = {one["ref"]: one.get("dependsOn", []) for one in found["dependencies"]}
    assert len(needs[root["bom-ref"]]) >= 10
    assert "timestamp" in found["metadata"]
