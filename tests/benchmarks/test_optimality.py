"""The page of ratios to the best: what it says is what the planners and prices say."""

from __future__ import annotations

import math
import re

import pytest

from beam_ldp.randomizers import registry
from benchmarks import optimality, price_proof

pytestmark = pytest.mark.exact

PAGE = optimality.PAGE.read_text()


def cells(first: str, second: str) -> list[str]:
    """Of the first line that begins so, the rest."""
    found = re.search(rf"^\| {re.escape(first)} \| {re.escape(second)} \| (.*) \|$", PAGE, re.M)
    assert found, (first, second)
    return [cell.strip().replace(",", "") for cell in found[1].split("|")]


@pytest.mark.parametrize("ball", [("l2", 256), ("linf", 1), ("binary", 256)])
def test_errors_are_those_of_the_plans_and_above_the_bound(ball: tuple[str, int]) -> None:
    for row in optimality.mean_rows(*ball):
        shown = cells(row.task, row.mechanism)
        for times, cell in zip(row.times, shown, strict=False):
            assert times >= 1 - 1e-9 and float(cell) == pytest.approx(times, rel=0.02)


def test_frequencies_are_compared_with_subset_selection() -> None:
    rows = {row.mechanism: row for row in optimality.frequency_rows()}
    assert rows["SubsetSelection"].times == (1.0, 1.0, 1.0)
    for row in rows.values():
        assert all(times > 0.99 for times in row.times if math.isfinite(times))
        for times, cell in zip(row.times, cells(row.task, row.mechanism), strict=False):
            assert not math.isfinite(times) or float(cell) == pytest.approx(times, rel=0.02)


def test_shares_cost_what_their_sums_tell_but_for_little() -> None:
    row = optimality.central_rows("l2", 256)[0]
    _, bits, times, above = cells(row.task, row.mechanism)
    assert (row.mechanism, int(bits)) == ("SplitAndMixMean", row.bits)
    assert float(times) == pytest.approx(row.times, rel=0.01)
    assert 1 <= row.above_attack < 1.01 and float(above) == pytest.approx(
        row.above_attack, abs=6e-4
    )


def test_every_mechanism_and_every_kind_of_event_has_a_row() -> None:
    offered = {kind.__name__ for task in ("mean", "frequency") for kind in registry.offered(task)}
    named = set(re.findall(r"^\| [^|]+ \| (\w+) \|", PAGE, re.M))
    assert offered - named <= {"LimitedHadamard"}  # for few random bits: another question
    for kind in price_proof.KINDS:
        broken = cells(kind, cells_of_price(kind))[-1]
        assert broken == "0"


def cells_of_price(kind: str) -> str:
    found = re.search(rf"^\| {re.escape(kind)} \| ([\d.]+) \|", PAGE, re.M)
    assert found, kind
    assert float(found[1]) <= 1.0005
    return found[1]


def test_the_page_is_made_of_its_rows() -> None:
    """A figure that changes shows, whichever table it stands in."""
    local = [optimality.Local("a task", "M", (1.25, math.nan, 3.0), 0)]
    central = [optimality.Central("a task", "M", math.inf, 10, 1.02, math.nan)]
    price = price_proof.Row("a kind", 7, 1, (1.5, 2.0), (0.9, 1.0), 0.0)
    text = optimality.page(local, central, [price])
    assert "| a task | M | 1.25 |  | 3 |  |" in text
    assert "| a task | M | infinite | 10 | 1.02 |  |" in text
    assert "of 7 random small releases" in text
    assert "| a kind | 0.9000 | 1.0000 | 1.5000 | 1 |" in text


def test_public_rows_are_those_of_the_prices() -> None:
    """But for how long they took."""
    written = [line.rpartition("|")[0].rpartition("|")[0] for line in optimality._public()]
    assert all(line in PAGE for line in written if line.startswith("| 1"))
    assert optimality._OPEN.strip() in PAGE
