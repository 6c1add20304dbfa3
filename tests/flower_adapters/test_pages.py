"""The Python of the pages about Flower; their commands: `test_loopback.py`."""

from __future__ import annotations

import pytest

from tests.flower_adapters.loopback import PAGE
from tests.packaging.doc_blocks import BLOCK

DOCS = PAGE.parent


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["flower.md", "migrating.md"])
def test_blocks_run_and_print_what_the_page_says(name: str) -> None:
    printed: list[str] = []
    space = {"print": lambda *parts: printed.extend(" ".join(map(str, parts)).splitlines())}
    found = BLOCK.findall((DOCS / name).read_text("utf-8"))
    assert found
    for code, promised in found:
        printed.clear()
        exec(compile(code, name, "exec"), space)
        if promised:
            assert printed == [line.strip() for line in promised.strip().splitlines()]
