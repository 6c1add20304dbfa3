"""The published page of Table 4.2 is what the program makes of its figures, and claims no more."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from benchmarks.adaped_table import claims, page

pytestmark = pytest.mark.exact

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
KNOWN = json.loads((RESULTS / "adaped_table.json").read_text(encoding="utf-8"))
ROWS = KNOWN["tables"]["mnist5k"]


def test_the_page_is_made_of_the_figures():
    assert page(KNOWN["tables"], KNOWN) == (RESULTS / "adaped_table.md").read_text(encoding="utf-8")


def changed(algorithm, by):
    rows = copy.deepcopy(ROWS)
    for row in rows:
        if row["algorithm"] == algorithm:
            row["accuracy"] = [value + by for value in row["accuracy"]]
    return rows


def test_no_figures_establish_that_it_is_better_than_clients_alone():
    """Other settings on the same images said the opposite."""
    for by, said in ((0.05, "does not hold"), (0.0, "holds"), (-0.2, "holds")):
        text, verdict, _ = claims(changed("local only", by))[-1]
        assert "better than every client alone" in text
        assert verdict == f"**not established**: {said} in this setting"


def test_verdicts_follow_the_figures():
    assert claims(ROWS)[0][1] == "reproduced in this setting"
    assert claims(changed("DP-FedAvg", 0.3))[0][1] == "**not reproduced**"
    assert claims(changed("DP-FedAvg", 0.3))[1][1] == "**not reproduced**"


def test_rows_of_fewer_seeds_are_named():
    text = page(KNOWN["tables"], KNOWN)
    named = "DP-AdaPeD without noise (2), DP-FedAvg at 27.3 (3), DP-FedAvg without noise (2)"
    assert f"Fewer than 4 seeds: {named};" in text
