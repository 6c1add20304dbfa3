"""The figures of docs/choosing.md, recomputed."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from beam_ldp.planning import plan_frequencies

pytestmark = pytest.mark.exact

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "choosing.md").read_text("utf-8")
DELTA, VALUES = 1e-8, 100


def table() -> list[tuple[int, list[tuple[float, float]]]]:
    """People, and per column (standard error in percent, central epsilon), as printed."""
    rows = re.findall(r"^\| ([\d,]+) \|((?: [\d.]+ % / [\d.]+ \|)+)$", PAGE, flags=re.MULTILINE)
    return [
        (
            int(people.replace(",", "")),
            [(float(e), float(p)) for e, p in re.findall(r"([\d.]+) % / ([\d.]+)", cells)],
        )
        for people, cells in rows
    ]


def budgets() -> list[float]:
    (head,) = re.findall(r"^\| people \| local epsilon ([\d. |]+) \|$", PAGE, flags=re.MULTILINE)
    return [float(cell) for cell in head.split("|")]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_table_is_what_plan_says(every):
    """Cells of all rows and all columns, and in the long form all cells."""
    assert len(table()) == 4 and len(budgets()) == 5
    cells = [
        (people, budget, *cell)
        for people, row in table()
        for budget, cell in zip(budgets(), row, strict=True)
    ]
    for people, budget, error, epsilon in cells[::every]:
        plan = plan_frequencies(people, VALUES, local_epsilon=budget, delta=DELTA)[0]
        assert 100 * plan.standard_error == pytest.approx(error, abs=5.01e-4)
        assert plan.epsilon <= epsilon < 1.1 * plan.epsilon  # two digits, rounded up


def test_odds_from_even():
    told = re.search(r"epsilon 0\.5 to (\d+) %, 1 to (\d+) %, 2 to (\d+) %, 4 to (\d+) %", PAGE)
    assert told is not None
    for budget, percent in zip([0.5, 1, 2, 4], told.groups(), strict=True):
        assert round(100 / (1 + math.exp(-budget))) == int(percent)


def test_local_beside_a_curator():
    """Replacing a person moves two counts by one: Laplace noise of scale 2 at epsilon 1."""
    told = re.search(r"standard error of ([\d.]+) %, a curator's Laplace[^%]*\s([\d.]+) %", PAGE)
    assert told is not None
    local, curator = map(float, told.groups())
    plan = plan_frequencies(10**6, VALUES, local_epsilon=1.0, delta=DELTA)[0]
    assert 100 * plan.standard_error == pytest.approx(local, abs=5e-3)
    assert 100 * math.sqrt(2) * 2 / 1e6 == pytest.approx(curator, abs=5e-5)
