"""The Python blocks of the pages about federated training run, one page after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.doc_blocks import BLOCK

DOCS = Path(__file__).resolve().parents[2] / "docs"
LARGE = "What a large local epsilon still hides"


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "begins", "ends"),
    [
        pytest.param("federated.md", "", "Coming from another library", marks=pytest.mark.slow),
        ("federated.md", "Personal models that learn together", LARGE),
        pytest.param("federated.md", LARGE, "", marks=pytest.mark.slow),
        ("training.md", "", ""),
    ],
)
def test_blocks_run(name, begins, ends):
    """In one program per part of a page; where the page says what a block prints, it does.

    What stands between the first two parts of federated.md is run by `test_migration.py`.
    """
    text = (DOCS / name).read_text("utf-8")
    text = text.split(f"\n## {begins}\n")[1] if begins else text
    text = text.split(f"\n## {ends}\n")[0] if ends else text
    printed = []  # not captured output: TensorFlow Federated's worker wants a real file
    space = {"print": lambda *parts: printed.extend(" ".join(map(str, parts)).splitlines())}
    blocks = BLOCK.findall(text)
    assert blocks
    for code, promised in blocks:
        printed.clear()
        exec(compile(code, name, "exec"), space)
        if promised:
            assert printed == [line.strip() for line in promised.strip().splitlines()]
