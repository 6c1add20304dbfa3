"""`python -m benchmarks.message_curves` in small."""

from __future__ import annotations

import json

import pytest

from benchmarks import message_curves


@pytest.mark.e2e
def test_curves_prices_page_and_plot(tmp_path):
    """Two seeds of two mechanisms; prices are the plan's, and of both only one is below 1."""
    message_curves.main(["--quick", "--seeds", "2", "--output", str(tmp_path)])
    told = json.loads((tmp_path / "message_curves.json").read_text())
    best, many = told["curves"]
    assert (best["name"], many["messages"], many["rounds"]) == ("PrivUnit", 16, [0, 2, 4, 6, 8])
    plan = message_curves.plan_of(message_curves.CURVES[-1])
    assert many["epsilon"][1:] == [float(plan.epsilon_of(n)) for n in (2, 4, 6, 8)]
    assert many["epsilon"][-1] < 1 < best["epsilon"][1]
    assert best["mean"][-1] > best["mean"][0] + 0.1 and best["step"] in message_curves.STEPS
    page = (tmp_path / "message_curves.md").read_text()
    assert "| PrivUnit | none | none |" in page and "--messages 16`" in page
    assert (tmp_path / "message_curves.png").stat().st_size > 10_000
