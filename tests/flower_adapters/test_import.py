"""Importing the adapters: a clear error without Flower; a client loads no accountant."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

pytestmark = pytest.mark.exact


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.strip()


def test_without_flower_the_error_says_what_to_do() -> None:
    code = (
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'flwr' else find(name)\n"
        "try:\n    import flower_adapters\nexcept ImportError as error:\n"
        "    print(error.name, error)"
    )
    printed = python(code)
    assert printed.startswith("flwr flower_adapters needs flwr 1.41 or newer; `make flower`")


if importlib.util.find_spec("flwr") is not None:

    def test_a_client_loads_neither_accountant_nor_beam() -> None:
        code = (
            "import sys, flower_adapters; flower_adapters.LocallyPrivateMod; "
            "print([m for m in ('dp_accounting', 'apache_beam', 'mlflow', 'sqlalchemy', "
            "'beam_ldp.accounting') if m in sys.modules])"
        )
        assert python(code) == "[]"
