"""The Python blocks of the pages about federated training run, one page after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.doc_blocks import BLOCK

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("federated.md", marks=pytest.mark.slow),
        "personalisation.md",
        pytest.param("reconstruction.md", marks=pytest.mark.slow),
        "training.md",
    ],
)
def test_blocks_run(name):
    """In one program per page; where the page says what a block prints, it does."""
    printed = []  # not captured output: TensorFlow Federated's worker wants a real file
    space = {"print": lambda *parts: printed.extend(" ".join(map(str, parts)).splitlines())}
    for code, promised in BLOCK.findall((DOCS / name).read_text("utf-8")):
        printed.clear()
        exec(compile(code, name, "exec"), space)
        if promised:
            assert printed == [line.strip() for line in promised.strip().splitlines()]
