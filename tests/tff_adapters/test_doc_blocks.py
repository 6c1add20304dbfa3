"""The Python blocks of the pages about federated training run, one page after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.doc_blocks import code_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
PRINTED = {
    "federated.md": ["budget"],
    "personalisation.md": [],
    "reconstruction.md": [],
    "training.md": [],
}


@pytest.mark.e2e
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_blocks_run(name):
    """In one program per page; what they print is what the page says."""
    printed = []  # not captured output: TensorFlow Federated's worker wants a real file
    space = {"print": lambda *parts: printed.append(" ".join(map(str, parts)))}
    for block in code_of(DOCS / name):
        exec(compile(block, name, "exec"), space)
    assert printed == PRINTED[name]
