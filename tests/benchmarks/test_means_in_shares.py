"""Means in shares through Beam, and that the page that is shown holds what is claimed."""

from __future__ import annotations

import json

import pytest

from benchmarks import means_in_shares


@pytest.mark.pipeline
def test_a_small_one_is_run_and_written(tmp_path):
    """Through Beam and from the law; within 5 deviations of what is predicted for worst values."""
    flags = ["--size", "8,2000,2", "--law", "64,100000,8", "--output", str(tmp_path)]
    beam, law = means_in_shares.main(flags)
    assert (beam["how"], law["how"]) == ("Beam", "law of the sum") and beam["seconds"] >= 0
    for row in (beam, law):
        assert 0.999 < row["epsilon"] <= 1.0 and row["predicted"] < 1.28
        assert abs(row["measured"] - row["predicted"]) < 5 * row["deviation"] + 0.02
    assert "| 8 | 2,000 | Beam |" in (tmp_path / "means_in_shares.md").read_text()


@pytest.mark.exact
def test_the_page_holds_what_is_claimed():
    """Within 1.3 of a curator's error at equal epsilon and delta, as far as the runs can tell."""
    written = means_in_shares.Path(means_in_shares.__file__).parent / "results"
    rows = json.loads((written / "means_in_shares.json").read_text())
    assert (written / "means_in_shares.md").read_text() == means_in_shares.table(rows)
    run = {(row["dimension"], row["people"]) for row in rows if row["how"] == "Beam"}
    assert run == {(d, n) for d in (16, 128, 784) for n in (10_000, 100_000)}
    assert [(r["dimension"], r["people"]) for r in rows if r["how"] != "Beam"] == [(16_384, 10**6)]
    for row in rows:
        assert row["predicted"] < 1.3 and row["epsilon"] <= 1.0
        assert row["measured"] < 1.3 + 3 * row["deviation"]
