"""The benchmark of regions: its page holds its numbers, and one small cell is made again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import averaged_sgd

RESULTS = Path(averaged_sgd.__file__).parent / "results"


@pytest.mark.exact
def test_the_page_that_is_shown_holds_the_figures():
    rows = json.loads((RESULTS / "averaged_sgd.json").read_text())
    assert averaged_sgd.page(rows) == (RESULTS / "averaged_sgd.md").read_text()
    told = {(row["epsilon"], row["steps"]): row for row in rows}
    most = max(row["steps"] for row in rows)
    for epsilon in (None, 16.0):  # where there are people enough: within four standard errors
        assert abs(told[epsilon, most]["region_coverage"] - 0.95) < 4 * math.sqrt(0.0475 / 400)
    for epsilon in (16.0, 8.0, 4.0):  # more people mend what is missing
        assert told[epsilon, 2000]["region_coverage"] < told[epsilon, most]["region_coverage"]


@pytest.mark.exact
def test_the_law_is_that_of_logistic_regression():
    """By symmetry around the truth, moments have two eigenvalues: along it, and across."""
    law = averaged_sgd.law_of(None, 1)
    x = averaged_sgd.directions(np.random.default_rng(3), (400_000, averaged_sgd.DIMENSION))
    height = x @ averaged_sgd.truth() / averaged_sgd.LENGTH
    weight = 1 / (2 + 2 * np.cosh(averaged_sgd.LENGTH * height))  # p (1 - p), both moments
    along = np.mean(weight * height**2)
    across = np.mean(weight * (1 - height**2)) / (averaged_sgd.DIMENSION - 1)
    expected = np.sort([1 / along, *[1 / across] * (averaged_sgd.DIMENSION - 1)])
    np.testing.assert_allclose(np.linalg.eigvalsh(law.covariance), expected, rtol=0.03)


@pytest.mark.exact
def test_the_script_makes_a_cell_again(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(averaged_sgd, "EPSILONS", (16.0,))
    monkeypatch.setattr(averaged_sgd, "POPULATION", 5000)
    (row,) = averaged_sgd.main(["--runs=20", "--steps=50", f"--output={tmp_path}"])
    assert row["runs"] == 20 and row["law"] > row["law_without_privacy"] > 0
    assert (tmp_path / "averaged_sgd.md").read_text() == capsys.readouterr().out[:-1]
