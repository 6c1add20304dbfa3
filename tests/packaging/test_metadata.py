"""pyproject.toml, the pins and the committed text agree with each other and with the folders."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
CORE_PINS = sorted((ROOT / "requirements").glob("core-py3*.txt"))
pytestmark = pytest.mark.exact


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(*extras: str, python: str = "3.11") -> list[Requirement]:
    """What this Python needs."""
    project = pyproject()["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    found = [Requirement(line) for line in lines]
    return [r for r in found if not r.marker or r.marker.evaluate({"python_version": python})]


def pins(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in lines), path.name
    return dict(line.split("==") for line in lines)


def test_every_package_folder_is_listed() -> None:
    """The mapping of folders to other names rules out automatic discovery."""
    setuptools = pyproject()["tool"]["setuptools"]
    found = {
        prefix + ".".join(init.parent.relative_to(ROOT).parts)
        for folder, prefix in (
            ("beam_ldp", ""),
            ("flower_adapters", ""),
            ("tff_adapters", ""),
            ("pipelines", "beam_ldp."),
        )
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert set(setuptools["packages"]) == found | {"mlflow_ldp"}
    for package, folder in setuptools["package-dir"].items():
        assert (ROOT / folder / "__init__.py").exists(), package


def test_version_is_stated_once_and_the_same() -> None:
    import beam_ldp

    assert pyproject()["project"]["version"] == beam_ldp.__version__
    assert f"## [{beam_ldp.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_core_is_the_same_version_and_asks_for_what_the_whole_asks() -> None:
    """`beam-ldp-core` is cut from the same tree; its folders exist and have no others below."""
    core = tomllib.loads((ROOT / "deploy" / "core" / "pyproject.toml").read_text())
    assert core["project"]["version"] == pyproject()["project"]["version"]
    asked = core["project"]["dependencies"] + core["project"]["optional-dependencies"]["scipy"]
    assert set(asked) < set(pyproject()["project"]["dependencies"])
    whole = pyproject()["tool"]["setuptools"]["packages"]
    randomizers = {name for name in whole if name.startswith("beam_ldp.randomizers")}
    assert set(core["tool"]["setuptools"]["packages"]) == {"beam_ldp"} | randomizers


def test_no_tff_extra() -> None:
    extras = pyproject()["project"]["optional-dependencies"]
    assert set(extras) == {"ledger", "postgresql", "mlflow", "gcp", "yaml", "demo", "all", "dev"}
    assert extras["all"] == ["beam-ldp[demo,ledger,mlflow,postgresql]"]


def test_every_direct_dependency_has_its_line() -> None:
    page = (ROOT / "docs" / "stability.md").read_text()
    for one in requirements(
        "ledger", "postgresql", "mlflow", "gcp", "yaml", "demo", "dev", python="3.10"
    ):
        text = str(one)
        name = re.match(r"[a-z0-9-]+(\[[a-z]+\])?", text)
        assert name is not None
        # `Requirement` sorts the bounds; the page says lower, then upper.
        bounds = ",".join(sorted((str(s) for s in one.specifier), reverse=True))
        assert f"| `{name.group()}` | `{bounds}` |" in page, text


@pytest.mark.parametrize("path", CORE_PINS, ids=lambda path: path.stem)
def test_pins_satisfy_the_ranges(path: Path) -> None:
    pinned, python = pins(path), re.sub(r".*py3", "3.", path.stem)
    for one in requirements("ledger", "mlflow", "demo", "dev", python=python):
        assert one.specifier.contains(pinned[one.name]), f"{one} in {path.name}"
    assert pinned["numpy"].startswith("2.")
    assert "tensorflow" not in pinned


def test_oldest_pins_are_the_lower_bounds() -> None:
    """So that the suite run with them proves the ranges."""
    pinned = pins(ROOT / "requirements" / "oldest-py310.txt")
    for one in requirements("ledger", "mlflow", "demo", "dev", python="3.10"):
        (lower,) = (s.version for s in one.specifier if s.operator == ">=")
        assert Version(pinned[one.name]).release[: lower.count(".") + 1] == Version(lower).release


def test_one_pin_file_per_supported_python() -> None:
    assert [path.stem for path in CORE_PINS] == [
        "core-py310",
        "core-py311",
        "core-py312",
        "core-py313",
    ]
    assert pyproject()["project"]["requires-python"] == ">=3.10,<3.14"


def test_full_pins_satisfy_the_ranges() -> None:
    pinned = pins(ROOT / "requirements" / "full-py311.txt")
    for one in requirements("ledger", "mlflow"):
        assert one.specifier.contains(pinned[one.name]), str(one)
    assert pinned["numpy"].startswith("1.26.")
    assert {"tensorflow", "tensorflow-federated"} <= set(pinned)


REGISTRIES = re.compile(
    r"pypi\.org|pythonhosted\.org|crates\.io|npmjs\.(org|com)|repo1?\.maven|maven\.org"
    r"|proxy\.golang|debian\.org/debian|registry\.(npmjs|yarnpkg|hub)"
)
# Beam's and Dataflow's images have their programs in /opt.
MACHINE_PATHS = re.compile(
    r"(?<![\w.)}])/(work|opt(?!/(apache/beam|google/dataflow)/)|root|home|Users)/\w|\.\./shared"
)


def committed_files() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60
    ).stdout
    return [ROOT / name for name in names.decode().split("\0") if name]


def test_committed_text_names_no_registry_and_no_machine() -> None:
    hits = []
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture, or deleted and not yet committed
        for number, line in enumerate(text.splitlines(), 1):
            if REGISTRIES.search(line) or MACHINE_PATHS.search(line):
                hits.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not hits, "\n".join(hits)


def test_the_patterns_find_what_they_should() -> None:
    assert REGISTRIES.search("https://files." + "pythonhosted" + ".org/x")
    assert MACHINE_PATHS.search("see /" + "home/me/x")
    assert not MACHINE_PATHS.search("a/" + "home/b and https://example.org/" + "work/x")
