"""docs/mechanisms.md has what `beam-ldp plan mechanisms` prints, and names synonyms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.cli import group
from beam_ldp.randomizers import registry

pytestmark = pytest.mark.exact

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMAND = ["plan", "mechanisms", "--format", "markdown"]


def test_the_page_is_what_the_command_prints() -> None:
    """Every row of ours; another test's mechanisms may stand in the registry besides."""
    page = (DOCS / "mechanisms.md").read_text("utf-8")
    printed = CliRunner().invoke(group, COMMAND).output
    table = re.findall(r"^\|.*$", page.split("\n## ")[0], re.M)
    ours = [
        row
        for row in printed.splitlines()
        if row.split("|")[1].strip() in {"mechanism", "---", *registry.OWN_MODULES}
    ]
    assert len(table) > 20 and table == ours, f"beam-ldp {' '.join(COMMAND)} writes the table"
    assert "| KRandomizedResponse | GRR, k-RR," in page


def test_the_oracles_table_names_what_the_literature_calls_them() -> None:
    """The first name of each: GRR, OUE, OLH, ..."""
    rows = (DOCS / "mechanisms.md").read_text("utf-8").split("\n### ")[1]
    for kind in registry.offered("frequency"):
        if kind.__name__ in registry.OWN_MODULES and (names := registry.synonyms_of(kind)):
            first = re.split("[,;] ", names)[0]
            assert re.search(rf"`{kind.__name__}` \([^)]*{re.escape(first)}", rows), kind
