"""The table of what one message tells: its page holds its figures, and parts are made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_ldp.accounting.reconstruction import DiffuseTarget, ListedTarget, breach_probability
from benchmarks import attacks

RESULTS = Path(attacks.__file__).parent / "results"


@pytest.mark.exact
def test_the_page_that_is_shown_holds_the_figures():
    figures = json.loads((RESULTS / "attacks.json").read_text())
    assert attacks.page(figures) == (RESULTS / "attacks.md").read_text()
    for row in figures["budgets"]:
        assert row["bound"] <= row["PrivUnit"] * (1 + 1e-9)
        target = DiffuseTarget(row["dimension"], attacks.COSINE)
        if row["bound"]:
            assert breach_probability(target, row["bound"]) == pytest.approx(row["chance"])
    for row in figures["values"]:
        bound = breach_probability(ListedTarget(attacks.VALUES), row["epsilon"])
        assert row["bound"] == pytest.approx(bound)
        assert row["exact"] is None or row["exact"] <= bound * (1 + 1e-9)
    named = {row["mechanism"] for row in figures["values"]}
    assert {"KRandomizedResponse", "SubsetSelection", "Rappor"} < named


@pytest.mark.statistical
def test_parts_are_made_again_to_the_last_digit(monkeypatch):
    """Seeds are fixed, so words and budgets are those of the page; no false alarms."""
    figures = json.loads((RESULTS / "attacks.json").read_text())
    monkeypatch.setattr(attacks, "DIMENSIONS", (64,))
    assert attacks.budgets() == [
        pytest.approx(row) for row in figures["budgets"] if row["dimension"] == 64
    ]
    refused = attacks.tried(lambda: attacks.PrivUnit(9, -1.0))
    assert isinstance(refused, str) and "local_epsilon" in refused
    wanted = [row for row in figures["words"] if row["epsilon"] == 20.0]
    monkeypatch.setattr(attacks, "SMALL", (20.0,))
    monkeypatch.setattr(attacks, "BUDGETS", (0.0,))
    assert attacks.words() == [pytest.approx(row) for row in wanted]


@pytest.mark.statistical
def test_the_script_writes_a_page_for_images_of_ones_own(monkeypatch, tmp_path):
    import numpy as np

    rng = np.random.default_rng(3)
    np.save(tmp_path / "own.npy", rng.random((24, 2)) @ rng.normal(size=(2, 16)))
    monkeypatch.setattr(attacks, "offered", lambda task: (attacks.PrivUnit,) * (task == "mean"))
    for slow in ("budgets", "words"):
        monkeypatch.setattr(attacks, slow, list)
    found = attacks.main([f"--images={tmp_path / 'own.npy'}", f"--output={tmp_path}"])
    assert found["people"] == 12 and found["public"] == 12
    assert [row["epsilon"] for row in found["pictures"]] == list(attacks.BUDGETS)
    assert found["pictures"][-1]["named"] == 1.0
    for name in ("attacks.png", "attacks_message.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
