"""What a worker loads before its first element: nothing that only the last stage needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATE = ("beam_ldp.accounting", "dp_accounting", "scipy", "numba", "matplotlib", "mlflow", "rich",
        "sqlalchemy", "click")  # fmt: skip


@pytest.mark.exact
def test_stages_and_sources_load_neither_accounting_nor_compilers(tmp_path):
    """Each would be seconds, in every worker of every job."""
    code = (
        "import sys, beam_ldp.transforms, beam_ldp.release.inputs.sources;"
        f"print([name for name in {LATE!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr[-1000:]
