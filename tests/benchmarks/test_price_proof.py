"""The table of random small releases: a few of each kind hold, and what is broken shows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import price_proof
from benchmarks.price_proof import KINDS, PAGE, clones, epsilon_of, optimal_composition, row_of
from tests.accounting.brute_force import channel_pairs, response_rows

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("kind", KINDS)
def test_prices_lie_between_the_truth_and_the_best_known(kind: str) -> None:
    row = row_of(kind, 10, seed=2)
    assert row.holds and row.above_truth[0] >= 1 - 1e-9 and row.configurations == 10


@pytest.mark.parametrize("factor", [0.97, 1.5])
def test_a_wrong_price_shows(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Too small, it is below the truth; too large, above what is known."""
    right = price_proof.Case.compared

    def wrong(case: price_proof.Case) -> tuple[float, float, float, float]:
        lower, truth, ours, known = right(case)
        return lower, truth, factor * ours, known

    monkeypatch.setattr(price_proof.Case, "compared", wrong)
    row = row_of("one shuffle, the mechanism's own table", 20)
    assert not row.holds and bool(row.broken) == (factor < 1)


def test_what_is_known_otherwise() -> None:
    assert optimal_composition(1.0, 1, 1e-9) == pytest.approx(1.0, abs=1e-6)
    listed = epsilon_of(channel_pairs(response_rows(2, 1.0), 1), 1e-9)
    assert listed == pytest.approx(1.0, abs=1e-6)
    assert epsilon_of(clones(1.0, 1), 1e-9) == pytest.approx(1.0, abs=1e-6)
    law = clones(2.0, 4).first
    assert math.isclose(law.sum(), 1.0, rel_tol=1e-12) and np.all(law > 0)


def test_the_page_has_every_kind_and_none_is_broken() -> None:
    said = PAGE.read_text("utf-8")
    for kind in KINDS:
        assert f"| {kind} | 200 | 0 |" in said
    row = row_of("local reports, composed", 3)
    assert replace(row, broken=1).holds is False
