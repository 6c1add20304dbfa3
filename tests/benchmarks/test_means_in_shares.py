"""Means in shares through Beam, and that the page that is shown holds what is claimed."""

from __future__ import annotations

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
