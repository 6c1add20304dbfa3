"""The picture of inverted gradients: its page holds its numbers, and a part is made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gradient_inversion

RESULTS = Path(gradient_inversion.__file__).parent / "results"


@pytest.mark.exact
def test_the_page_that_is_shown_holds_the_figures():
    rows = json.loads((RESULTS / "gradient_inversion.json").read_text())
    assert gradient_inversion.page(rows) == (RESULTS / "gradient_inversion.md").read_text()
    for row in rows:
        if row["epsilon"] is None:
            assert row["cosine"] == pytest.approx(1)  # without a mechanism nothing is hidden
        if row["epsilon"] == 4:
            assert abs(row["cosine"]) < 4 * row["error"]
        if row["epsilon"] == 500 and row["mechanism"] != "L2Mean":
            assert row["cosine"] > 0.95


@pytest.mark.statistical
def test_the_script_makes_the_numbers_again(monkeypatch, tmp_path):
    """A fifth of the images: within five standard errors of both."""
    pytest.importorskip("sklearn")
    monkeypatch.setattr(gradient_inversion, "HIDDEN", (0,))
    monkeypatch.setattr(gradient_inversion, "EPSILONS", (20.0,))
    found = gradient_inversion.main(["--images=20", f"--output={tmp_path}"])
    shown = json.loads((RESULTS / "gradient_inversion.json").read_text())
    for row in found:
        key = ("hidden", "mechanism", "epsilon", "knows_model")
        (same,) = (one for one in shown if all(one[name] == row[name] for name in key))
        assert abs(row["cosine"] - same["cosine"]) <= 5 * (row["error"] + same["error"]) + 1e-9
    assert (tmp_path / "gradient_inversion.png").read_bytes().startswith(b"\x89PNG")
