"""The wheel, built and installed as a user installs it: no editable install can hide a mistake."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from beam_ldp.randomizers import registry
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.wire import ReleaseTerms, decode_envelope

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "requirements" / f"core-py{sys.version_info.major}{sys.version_info.minor}.txt"
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def run(*command: str | Path, cwd: Path) -> str:
    """To its end; what is installed is not compiled, for little of it is imported."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=600,
        env={**os.environ, "UV_COMPILE_BYTECODE": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    assert found, "uv is not installed: run `make setup`"
    return found


@pytest.fixture(scope="module")
def wheel(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no earlier build's leftovers get in."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "dist", "*.egg-info", "demo-out*", "mlruns"
    )
    shutil.copytree(ROOT, source, ignore=ignored)
    run(uv, "build", "--python", sys.executable, "--wheel", "-o", folder / "dist", cwd=source)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def environment(uv: str, folder: Path, *installs: list[str | Path]) -> Path:
    python = folder / "env" / "bin" / "python"
    run(uv, "venv", "--python", sys.executable, folder / "env", cwd=folder)
    for packages in installs:
        run(uv, "pip", "install", "--python", python, "-c", PINS, *packages, cwd=folder)
    return python


def named(folder: str) -> set[str]:
    """Its Python and its templates."""
    found = [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.j2")]
    return {path.relative_to(ROOT).as_posix() for path in found}


def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    info = {top for top in tops if top.endswith(".dist-info")}
    assert len(info) == 1
    assert tops - info == {"beam_ldp", "flower_adapters", "mlflow_ldp", "tff_adapters"}
    assert {"beam_ldp/py.typed", "beam_ldp/pipelines/cli.py"} <= set(names)
    sources = named("beam_ldp")
    programs = named("pipelines")
    assert sources | {f"beam_ldp/{path}" for path in programs} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_randomizers_and_accounting_without_beam(uv: str, wheel: Path, tmp_path: Path) -> None:
    python = environment(
        uv,
        tmp_path,
        ["numpy", "scipy", "cryptography", "numba", "dp-accounting"],
        ["--no-deps", wheel],
    )
    code = """
import importlib.util as u
absent = [n for n in ("apache_beam", "tensorflow", "mlflow", "pyarrow") if u.find_spec(n)]
import beam_ldp.randomizers, beam_ldp.accounting
from beam_ldp.randomizers.frequency import KRandomizedResponse
oracle = KRandomizedResponse(4, 1.0)
statistic = oracle.accumulate(oracle.randomize([0, 1, 2, 3] * 100))
print(absent, statistic.sum(), beam_ldp.accounting.shuffle_epsilon(1.0, 10_000, 1e-6) < 1)
"""
    assert run(python, "-c", code, cwd=tmp_path).split() == ["[]", "400", "True"]


def test_declared_dependencies_suffice(uv: str, wheel: Path, tmp_path: Path) -> None:
    """Neither TensorFlow nor MLflow is there; then MLflow is added and is the real one."""
    python = environment(uv, tmp_path, [wheel])
    code = """
import importlib.util as u
print([n for n in ("tensorflow", "mlflow", "pipelines", "pytest") if u.find_spec(n)])
import beam_ldp.transforms, beam_ldp.pipelines.frequency
print(beam_ldp.Shuffle.__name__)
"""
    assert run(python, "-c", code, cwd=tmp_path).split() == ["[]", "Shuffle"]
    program = python.with_name("beam-ldp")
    assert "frequency" in run(program, "--help", cwd=tmp_path)
    assert "--epsilon" in run(python, "-m", "beam_ldp.pipelines.frequency", "--help", cwd=tmp_path)

    for missing, extra in (("demo", "demo"), ("budget init --ledger sqlite:///x.db", "ledger")):
        refused = subprocess.run(
            [program, *missing.split()], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert refused.returncode and f"beam-ldp[{extra}]" in refused.stdout + refused.stderr

    run(uv, "pip", "install", "--python", python, "-c", PINS, f"{wheel}[all]", cwd=tmp_path)
    code = "import mlflow, mlflow_ldp; print(mlflow.__version__, mlflow_ldp.__file__)"
    for cwd in (tmp_path, ROOT):
        version, path = run(python, "-c", code, cwd=cwd).split()
        assert version.startswith("3.")
        assert str(tmp_path) in path
    (install,) = re.findall(r"^pip install (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert install == "'.[all]'"  # that of a clone, in the place of which the wheel is installed
    run(program, "budget", "init", "--ledger", "sqlite:///privacy.db", cwd=tmp_path)
    run(program, "demo", "--users", "20000", "--words", "20", "--output", "words", cwd=tmp_path)
    run(program, "demo", "mean", "--users", "20000", "--output", "means", cwd=tmp_path)
    assert (tmp_path / "words" / "release" / "privacy.md").exists()


WITHOUT_SCIPY = ("BinaryVectorMean", "KashinMean", "L1Mean", "LInfMean", "ScalarMean")
DIGESTS = """
import hashlib, json, sys
import numpy as np
from beam_ldp.randomizers import registry

def packed(kind):
    size = 1 if kind.__name__ == "ScalarMean" else 300
    mechanism = kind(size, 4.0)
    values = np.arange(10) if kind.task == "frequency" else np.eye(10, size)
    reports = mechanism.randomize(values, np.random.default_rng(7))
    return hashlib.sha256(np.ascontiguousarray(mechanism.pack_each(reports)).tobytes()).hexdigest()

found = {}
for kind in (*registry.offered("frequency"), *registry.offered("mean")):
    try:
        found[kind.__name__] = packed(kind)
    except ModuleNotFoundError as error:
        found[kind.__name__] = str(error)
print(json.dumps(found))
"""


def test_the_core_makes_the_same_reports_with_numpy_and_cryptography_alone(
    uv: str, wheel: Path, tmp_path: Path
) -> None:
    """A device's environment: how large it is, what runs in it, and what says what it needs."""
    run(uv, "build", "--python", sys.executable, "--wheel", "-o", tmp_path / "dist",
        wheel.parents[1] / "source" / "deploy" / "core", cwd=tmp_path)  # fmt: skip
    (core,) = (tmp_path / "dist").glob("*.whl")
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(core).namelist())
    python = environment(uv, tmp_path, [core])
    folder = tmp_path / "env" / "lib"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.suffix != ".pyc")
    assert size < 80e6
    installed = run(uv, "pip", "list", "--python", python, "--format=json", cwd=tmp_path)
    assert {one["name"] for one in json.loads(installed)} == {
        "beam-ldp-core", "cffi", "cryptography", "numpy", "pycparser"
    }  # fmt: skip
    there = json.loads(run(python, "-c", DIGESTS, cwd=tmp_path))
    here = json.loads(run(sys.executable, "-c", DIGESTS, cwd=ROOT))
    means = {kind.__name__ for kind in registry.offered("mean")}
    for name, digest in here.items():
        if name in means and name not in WITHOUT_SCIPY:
            assert there[name].endswith("pip install 'beam-ldp-core[scipy]'"), name
        else:
            assert there[name] == digest, name
    page = (ROOT / "deploy" / "core" / "README.md").read_text()
    example = page.split("```python\n")[1].split("```")[0] + "print(envelope.hex())"
    sent = bytes.fromhex(run(python, "-c", example, cwd=tmp_path))
    colours = Domain(("red", "green", "blue"))
    oracle = KRandomizedResponse(colours.size, 2.0)
    week = ReleaseIdentity("telemetry", "week-47", mechanism=oracle.config_digest().hex(),
                           columns=("colour",), values=colours.digest.hex())  # fmt: skip
    assert decode_envelope(ReleaseTerms(oracle, week), sent).reports.shape == (1,)
    run(uv, "pip", "install", "--python", python, "-c", PINS, "scipy", cwd=tmp_path)
    assert json.loads(run(python, "-c", DIGESTS, cwd=tmp_path)) == here
