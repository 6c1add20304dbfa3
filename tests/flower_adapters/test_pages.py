"""The pages about Flower: their Python, and the quickstart typed as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from beam_ldp.ledger import BudgetLedger
from tests.flower_adapters.loopback import PAGE, free_ports, run_session, write_app
from tests.packaging.doc_blocks import BLOCK
from tests.packaging.doc_commands import blocks

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


@pytest.mark.e2e
def test_the_quickstart_runs_as_it_stands(tmp_path: Path) -> None:
    """Two rounds; the third, which the budget does not hold, asks nobody; and all processes end."""
    write_app(tmp_path)
    found = [b for b in blocks(PAGE) if b.target == "test-flower"]
    assert len(found) == 3
    script = "\n".join(line for block in found for line in block.script)
    ports = free_ports(4)
    script = script.replace("9190", str(ports)).replace("9191", str(ports + 1))
    said, killed = run_session(script, tmp_path, timeout=150)
    assert killed == []
    (promised,) = re.findall(r"^```text\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert promised in said
    status = BudgetLedger(f"sqlite:///{tmp_path}/privacy.db").status("lines")
    assert status.local_spent == 8.0 and status.num_open == 0
