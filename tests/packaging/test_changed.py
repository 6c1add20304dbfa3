"""`make test ROOMS=changed` runs the tests that see a change, the nearest first."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ".ci/changed.py"
FOLDERS = [
    "beam_ldp", "pipelines", "mlflow/mlflow_ldp", "tff_adapters", "flower_adapters", "spec",
    "tests", "benchmarks",
]  # fmt: skip
FILES = {
    "beam_ldp/__init__.py": "",
    "beam_ldp/sums/__init__.py": "",
    "beam_ldp/sums/exact.py": "",
    "beam_ldp/sums/rounded.py": "def later():\n    from beam_ldp.sums import exact",
    "beam_ldp/sums/named.py": "AT = 'beam_ldp.sums.exact:ZERO'\nTABLE = 'table.json'",
    "pipelines/__init__.py": "",
    "pipelines/cli.py": 'def loaded(name):\n    return f"beam_ldp.sums.{name}"',
    "mlflow/mlflow_ldp/__init__.py": "from beam_ldp.pipelines import cli",
    "tests/__init__.py": "",
    "tests/conftest.py": "from tests import tools",
    "tests/tools.py": "import beam_ldp.sums.exact",
    "tests/sums/conftest.py": "from tests.sums import given",
    "tests/sums/given.py": "",
    "tests/sums/test_exact.py": "from beam_ldp.sums.exact import *",
    "tests/sums/test_rounded.py": "from beam_ldp.sums import rounded",
    "tests/sums/test_named.py": "from beam_ldp.sums import named",
    "tests/mlflow_ldp/test_mlflow.py": "import mlflow_ldp",
    "tests/packaging/test_page.py": "",
    "tests/pipelines/test_shell.py": "COMMAND = 'beam-ldp sum'",
    "tests/engines/test_engine.py": "from beam_ldp.sums import exact",
}


# In a process of its own: grimp asks the interpreter where packages are, and here they are loaded.
ASK = """
import json, runpy, sys
from pathlib import Path
program = runpy.run_path(sys.argv[1], run_name="changed")
root = program["ROOT"]
texts = {str(p.relative_to(root)): p.read_text("utf-8")
         for folder in program["PACKAGES"] for p in (root / folder).rglob("*.py")}
graph = program["graph_of"](root, texts)
print(json.dumps({path: list(program["chosen"]([path], graph, texts)) for path in sys.argv[2:]}))
"""


def asked(root: Path, *paths: str) -> dict[str, list[str]]:
    """The tests that see a change of each of these files, the nearest first."""
    done = run([sys.executable, "-c", ASK, str(root / PROGRAM), *paths], root)
    return json.loads(done.stdout)


def run(order: list[str], root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(order, cwd=root, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one with the folders of this one, committed."""
    root = tmp_path_factory.mktemp("house")
    files = dict.fromkeys((f"{folder}/__init__.py" for folder in FOLDERS), "") | FILES
    for path, text in (files | {PROGRAM: (ROOT / PROGRAM).read_text("utf-8")}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n", "utf-8")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for order in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "All"]):
        run(["git", *order], root)
    return root


CASES = {
    # Its room first, then what imports it through a package with a mapped name, by a name in a
    # table, and what types its command; not what runs on engines.
    "beam_ldp/sums/exact.py": [
        "sums/test_exact", "sums/test_rounded", "sums/test_named",
        "pipelines/test_shell", "mlflow_ldp/test_mlflow",
    ],
    "beam_ldp/sums/rounded.py": [
        "sums/test_rounded", "pipelines/test_shell", "mlflow_ldp/test_mlflow",
    ],
    "pipelines/cli.py": ["pipelines/test_shell", "mlflow_ldp/test_mlflow"],
    "mlflow/mlflow_ldp/__init__.py": ["mlflow_ldp/test_mlflow"],
    "tests/sums/test_named.py": ["sums/test_named"],
    "tests/sums/given.py": ["sums/test_exact", "sums/test_named", "sums/test_rounded"],
    # What is no Python: its room, and what reads the modules that name it.
    "beam_ldp/sums/table.json": [
        "sums/test_named", "sums/test_exact", "sums/test_rounded",
        "pipelines/test_shell", "mlflow_ldp/test_mlflow",
    ],
    "docs/page.txt": ["packaging/test_page"],
    "pyproject.toml": ["packaging/test_page"],
    # All tests stand on it; the product that it imports reaches none of them through it.
    "tests/tools.py": [
        "packaging/test_page", "pipelines/test_shell", "mlflow_ldp/test_mlflow",
        "sums/test_exact", "sums/test_named", "sums/test_rounded",
    ],
}  # fmt: skip


@pytest.mark.exact
def test_tests_that_see_a_change(house: Path):
    found = asked(house, *CASES)
    for path, seen in CASES.items():
        assert sorted(found[path]) == sorted(f"tests/{name}.py" for name in seen), path
        assert found[path][0] == f"tests/{seen[0]}.py", path


@pytest.mark.exact
def test_what_is_changed_is_what_differs_from_a_commit_and_what_is_new(house: Path):
    def ran(*flags: str) -> str:
        return run([sys.executable, PROGRAM, *flags], house).stdout.strip()

    assert ran() == ""
    assert ran("tests/sums/test_exact.py") == "tests/sums/test_exact.py"
    (house / "tests/sums/test_new.py").write_text("", "utf-8")
    assert ran() == "tests/sums/test_new.py"
    (house / "beam_ldp/sums/rounded.py").unlink()
    (house / "tests/sums/test_rounded.py").unlink()
    (house / "tests/sums/test_named.py").write_text("import beam_ldp.sums.rounded", "utf-8")
    far = ["tests/sums/test_named.py", "tests/sums/test_new.py"]
    assert ran().split() == far
    run(["git", "checkout", "-q", "tests/sums/test_rounded.py"], house)
    assert ran().split() == [*far, "tests/sums/test_rounded.py"]  # it imports what is gone
    assert ran("--minutes", "0", "--base", "HEAD") == ran()
    run(["git", "reset", "-q", "--hard"], house)
    run(["git", "clean", "-qfd"], house)


@pytest.mark.exact
def test_nearest_files_that_fit_are_run_and_changed_ones_always():
    fitting = runpy.run_path(str(ROOT / PROGRAM), run_name="changed")["fitting"]
    far = {"changed": 0, "near": 1, "long": 2, "unknown": 2, "far": 3}
    seconds = {"changed": 50.0, "near": 4.0, "long": 40.0, "far": 3.0}
    for budget, fit in ((1, []), (54, ["near"]), (60, ["near", "unknown"]), (1e3, list(far)[1:])):
        assert fitting(far, seconds, budget) == ["changed", *fit]


@pytest.mark.exact
def test_in_this_house_a_rooms_own_tests_come_first():
    (found,) = asked(ROOT, "beam_ldp/ledger/rows.py").values()
    own = [path for path in found if path.startswith("tests/ledger/")]
    assert len(own) >= 15 and found[: len(own)] == own
    assert any(path.startswith("tests/pairs/") for path in found)
    assert not any(path.startswith("tests/randomizers/frequency/") for path in found)
