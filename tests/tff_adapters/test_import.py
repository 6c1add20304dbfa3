"""Importing the adapters: a clear error without TensorFlow, and quick with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.exact


def python(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.strip()


@pytest.mark.parametrize("missing", ["tensorflow", "tensorflow_federated"])
def test_without_tensorflow_the_error_says_what_to_do(missing):
    code = (
        "import importlib.util\nfind = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name: None if name == {missing!r} else find('sys')\n"
        "try:\n    import tff_adapters\nexcept ImportError as error:\n"
        "    print(error.name, error)"
    )
    printed = python(code)
    assert printed.startswith(f"{missing} tff_adapters needs {missing}; `make tff`")


@pytest.mark.tff
def test_import_loads_no_tensorflow():
    code = "import sys, tff_adapters; print('tensorflow' in sys.modules, tff_adapters.__all__[0])"
    assert python(code) == "False AdaptiveClip"
