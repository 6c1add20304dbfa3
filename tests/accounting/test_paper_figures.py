"""The table of claims in `benchmarks/results` is what the code says today."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.paper_figures.__main__ import RESULTS
from benchmarks.paper_figures.claims import CLAIMS, Finding, Row, as_table
from benchmarks.paper_figures.figures import FIGURES

pytestmark = pytest.mark.exact

VERDICTS = {"reproduced": 13, "not reproduced": 9, "cannot be decided": 1}


def committed() -> dict[str, tuple[str, str]]:
    """What the text says -> verdict, figures."""
    lines = (RESULTS / "claims.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {row[1]: (row[2].strip("*"), row[3]) for row in cells[1:]}


def figures_in(text: str) -> list[float]:
    return [float(x.replace(",", "")) for x in re.findall(r"\d[\d,]*\.?\d*(?:e[+-]?\d+)?", text)]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.text[:30])
def test_every_claim_is_judged_as_in_the_table(claim):
    finding = claim.check()
    verdict, figures = committed()[claim.text]
    assert finding.verdict == verdict
    assert figures_in(finding.found) == pytest.approx(figures_in(figures), rel=0.011)
    assert finding.reason or finding.verdict == "reproduced", "a refusal says why"


def test_table_and_plots_are_complete():
    table = committed()
    assert list(table) == [claim.text for claim in CLAIMS]
    found = [verdict for verdict, _ in table.values()]
    assert {verdict: found.count(verdict) for verdict in VERDICTS} == VERDICTS
    for name in FIGURES:
        plot = RESULTS / f"figure_{name.replace('.', '_')}.png"
        assert plot.read_bytes()[:4] == b"\x89PNG"


def test_the_table_is_markdown():
    row = Row("5.2", "it is so", Finding("1.0", "reproduced"), "")
    assert as_table([row]).splitlines()[-1] == "| 5.2 | it is so | **reproduced** | 1.0 | - | - |"


def test_panels_compare_ours_with_a_floor_below_it():
    """One point of each panel, so that no figure draws lines in the wrong order."""
    for name in ("5.3", "5.4"):
        for panel in FIGURES[name]().panels[:1]:
            x = float(np.asarray(panel.x)[-1])
            lines = {key: line(x) for key, line in panel.lines.items()}
            assert lines["some randomizer costs this"] < lines["beam-ldp"]
            assert lines["beam-ldp"] < lines["Theorem 5.3.1"]
