"""The published page of Table 4.2 is what the program makes of its figures, and claims no more."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import adaped_table
from benchmarks.adaped_table import CLASSES_EACH, claims, deal, measure, page
from tests.idx_files import write_folder

pytestmark = pytest.mark.exact

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
KNOWN = json.loads((RESULTS / "adaped_table.json").read_text(encoding="utf-8"))
ROWS = KNOWN["tables"]["mnist5k"]


def test_the_page_is_made_of_the_figures():
    assert page(KNOWN["tables"], KNOWN) == (RESULTS / "adaped_table.md").read_text(encoding="utf-8")


def changed(algorithm, by):
    rows = copy.deepcopy(ROWS)
    for row in rows:
        if row["algorithm"] == algorithm:
            row["accuracy"] = [value + by for value in row["accuracy"]]
    return rows


def test_no_figures_establish_that_it_is_better_than_clients_alone():
    """Other settings on the same images said the opposite."""
    for by, said in ((0.05, "does not hold"), (0.0, "holds"), (-0.2, "holds")):
        text, verdict, _ = claims(changed("local only", by))[-1]
        assert "better than every client alone" in text
        assert verdict == f"**not established**: {said} in this setting"


def test_verdicts_follow_the_figures():
    assert claims(ROWS)[0][1] == "reproduced in this setting"
    assert claims(changed("DP-FedAvg", 0.3))[0][1] == "**not reproduced**"
    assert claims(changed("DP-FedAvg", 0.3))[1][1] == "**not reproduced**"


def test_rows_of_fewer_seeds_are_named():
    text = page(KNOWN["tables"], KNOWN)
    named = "DP-AdaPeD without noise (2), DP-FedAvg at 27.3 (3), DP-FedAvg without noise (2)"
    assert f"Fewer than 4 seeds: {named};" in text


def test_a_folder_of_images_is_shared_out_and_its_public_part_tests(tmp_path):
    """Every image of a digit that somebody holds has one owner; tests are of the own digits."""
    folder = write_folder(tmp_path / "few", 400, 100)
    clients = deal(str(folder), 3, 20)
    held = np.concatenate([c.x.reshape(len(c.x), -1) for c in clients])
    assert len(np.unique(held, axis=0)) == len(held) == 400
    for one in clients:
        digits = set(one.y.tolist())
        assert len(digits) == CLASSES_EACH == len(set(one.test_y.tolist()) | digits)
        assert len(one.test_y) == 10 * CLASSES_EACH
    assert {tuple(sorted(set(c.y.tolist()))) for c in clients} != {(0, 1, 2)}


def test_what_is_known_is_not_trained_again_and_one_seed_has_no_spread(tmp_path, monkeypatch):
    folder = str(write_folder(tmp_path / "few", 100, 50))
    ran = []

    def trained(*told):
        ran.append(told)
        return 0.5 + 0.01 * len(ran), 1.0

    monkeypatch.setattr(adaped_table, "personal_accuracy", trained)
    monkeypatch.setattr(adaped_table, "shared_accuracy", trained)
    monkeypatch.setattr(adaped_table, "network", lambda side, seed: None)
    kept = []
    first = measure(folder, [0], 6, 5, keep=lambda rows: kept.append(copy.deepcopy(rows)))
    assert len(ran) == len(kept) == 9
    again = measure(folder, [0], 6, 5, known=copy.deepcopy(kept[4]))
    assert len(ran) == 9 + 4 and [len(row["accuracy"]) for row in again] == [1] * 9
    both = measure(folder, [0, 1], 6, 5, known=first)
    assert len(ran) == 13 + 9 and [len(row["accuracy"]) for row in both] == [2] * 9
    told = {"rounds": 6, "seeds": [0], "parameters": {"few": 5}}
    text = page({"few": again}, told)
    assert "| local only | 0 (nothing is sent) | 51.00 | 1 | - |" in text
    assert "not changed here" in text and "**not established**: one seed cannot tell |" in text
