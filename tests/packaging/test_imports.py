"""What an import brings in, and what it must not need."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.exact

# A finder that says of some packages what Python says when they are not installed.
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def python(code: str, cwd: Path) -> str:
    """What a fresh interpreter prints; its errors fail the test."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("folder", ["repository", "elsewhere"])
def test_mlflow_is_the_real_one(folder: str, tmp_path: Path) -> None:
    """The repository has a folder `mlflow`; the package must win against it."""
    cwd = ROOT if folder == "repository" else tmp_path
    found = "find_spec('mlflow').origin, find_spec('mlflow_ldp').origin"
    real, ours = map(
        Path, python(f"from importlib.util import find_spec; print({found})", cwd).split()
    )
    assert real.name == "__init__.py" and real.parents[1].name == "site-packages"
    assert ours == ROOT / "mlflow" / "mlflow_ldp" / "__init__.py"


def test_mlflow_folder_is_no_package() -> None:
    assert not (ROOT / "mlflow" / "__init__.py").exists()


@pytest.mark.parametrize("folder", ["repository", "elsewhere"])
def test_pipelines_by_their_long_name(folder: str, tmp_path: Path) -> None:
    cwd = ROOT if folder == "repository" else tmp_path
    path = python("import beam_ldp.pipelines as p; print(p.__file__)", cwd)
    assert Path(path) == ROOT / "pipelines" / "__init__.py"


def test_no_top_level_pipelines_outside_the_repository(tmp_path: Path) -> None:
    code = "import importlib.util as u; print(u.find_spec('pipelines'))"
    assert python(code, tmp_path) == "None"


WITHOUT_BEAM = {"apache_beam", "tensorflow", "tensorflow_federated", "mlflow", "pyarrow"}
RANDOMIZERS_ONLY = WITHOUT_BEAM | {"dp_accounting", "click", "rich", "matplotlib", "sqlalchemy"}


@pytest.mark.parametrize(
    ("module", "blocked"),
    [
        ("beam_ldp.randomizers.frequency", RANDOMIZERS_ONLY),  # and the packages above it
        ("beam_ldp.accounting", WITHOUT_BEAM),
        ("beam_ldp.planning", WITHOUT_BEAM),
        ("beam_ldp.transforms", {"tensorflow", "tensorflow_federated", "mlflow"}),
        ("beam_ldp.pipelines.cli", {"tensorflow", "tensorflow_federated", "mlflow"}),
    ],
)
def test_import_without(module: str, blocked: set[str], tmp_path: Path) -> None:
    code = BLOCKER.format(blocked=blocked) + f"import {module}; print({module}.__name__)"
    assert python(code, tmp_path) == module


def test_blocker_blocks(tmp_path: Path) -> None:
    code = BLOCKER.format(blocked={"click"}) + (
        "try:\n    import click\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert python(code, tmp_path) == "blocked: click"


def test_what_a_device_imports_is_numpy_cryptography_and_little_else(tmp_path: Path) -> None:
    """What takes time to import is named, not timed: machines differ (the time has a `bench`)."""
    code = (
        "import sys; before = set(sys.modules); import beam_ldp.randomizers.frequency; "
        "roots = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(roots - set(sys.stdlib_module_names)))"
    )
    found = {name for name in python(code, tmp_path).split() if "cython" not in name}
    assert {"beam_ldp", "numpy"} <= found
    assert found <= {"beam_ldp", "numpy", "cryptography", "_cffi_backend", "_openssl"}


def test_help_is_shown_without_numpy(tmp_path: Path) -> None:
    """Of every command; NumPy takes longer than all the rest."""
    code = (
        "import contextlib, io, sys; from beam_ldp.pipelines.cli import group\n"
        "names = group.list_commands(None)\n"
        "with contextlib.redirect_stdout(io.StringIO()) as said:\n"
        "    for name in names:\n"
        "        with contextlib.suppress(SystemExit):\n"
        "            group.main([name, '--help'], standalone_mode=False)\n"
        "assert said.getvalue().count('Usage:') == len(names) > 15\n"
        "print('all', *({'numpy', 'apache_beam'} & set(sys.modules)))"
    )
    assert python(code, tmp_path) == "all"


@pytest.mark.bench
def test_randomizers_import_in_half_a_second(tmp_path: Path) -> None:
    """Processor time, the least of five: the first may have to compile the modules."""
    code = (
        "import time; start = time.process_time(); import beam_ldp.randomizers.frequency; "
        "print(time.process_time() - start)"
    )
    assert min(float(python(code, tmp_path)) for _ in range(5)) < 0.5


def test_names_that_only_other_environments_import_exist() -> None:
    """What needs TensorFlow or an engine is imported elsewhere; a name that moved is missed there
    only, and perhaps much later."""
    missing = []
    for folder in (
        "tff_adapters",
        "tests/tff_adapters",
        "flower_adapters",
        "tests/flower_adapters",
        "tests/engines",
        "benchmarks",
    ):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("beam_ldp"):
                    missing += [
                        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
                        for alias in node.names
                        if not _exists(str(node.module), alias.name)
                    ]
    assert missing == []


def _exists(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(
            importlib.util.find_spec(f"{module}.{name}")
        )
    except ImportError as error:  # TensorFlow, here
        return not str(error.name).startswith("beam_ldp")
