"""Figures 7.9 and 7.10: their numbers, and that the page that is shown holds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import levels

pytestmark = pytest.mark.exact

FIGURE_7_9 = (1.8399, 1.7871, 1.6266, 1.3467, 1.0981, 0.8797)
APART_7_9 = (1.8399, 1.8288, 1.7962, 1.7452, 1.7074, 1.6827)
FIGURE_7_10 = (0.5271, 0.7201, 0.8479, 0.9869, 1.1381, 1.3026, 1.4820, 1.6778, 1.8919, 2.1267)
APART_7_10 = (0.5271, 1.1161, 1.7370, 2.3901, 3.0755, 3.7930, 4.5424, 5.3229, 6.1338, 6.9737)


def test_the_page_holds_the_figures(tmp_path):
    found = levels.main(["--output", str(tmp_path)])
    for name, bits, apart in (
        ("two_readers", FIGURE_7_9, APART_7_9),
        ("many_readers", FIGURE_7_10, APART_7_10),
    ):
        assert [row["bits"] for row in found[name]] == pytest.approx(bits, abs=6e-5)
        assert [row["bits_apart"] for row in found[name]] == pytest.approx(apart, abs=6e-5)
    assert (tmp_path / "levels.png").read_bytes().startswith(b"\x89PNG")
    committed = Path(levels.__file__).parent / "results"
    assert json.loads((committed / "levels.json").read_text()).keys() == found.keys()
    assert (committed / "levels.md").read_text() == (tmp_path / "levels.md").read_text()
