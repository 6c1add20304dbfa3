"""The papers' trainings as a benchmark: broken off and gone on with, shown from the record."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import paper_trainings
from benchmarks.paper_trainings import (
    PRINTED,
    SETTINGS,
    Curve,
    Setting,
    digest_of,
    main,
    price,
    priced,
)
from tests.idx_files import write_folder

pytestmark = pytest.mark.e2e
TINY = Setting("tiny, l2", "ours", "logistic", "l2", 0.5, 4.0, 20, 4, ((1, 1.0), (3, 0.5)), 60)
SECOND = replace(TINY, name="tiny, linf", norm="linf", standardised=True)


@pytest.fixture
def data(tmp_path):
    return write_folder(tmp_path / "mnist", 60, 30)


def run(folder, data, *more, settings=(TINY, SECOND)):
    told = ["train", "--data", data, "--output", folder, *more]
    main([str(word) for word in told], settings)
    runs = json.loads((folder / "paper_trainings.json").read_text())["runs"]
    return {one["setting"]: one for one in runs if one.pop("seconds") >= 0}


def test_a_training_that_was_killed_twice_has_the_numbers_of_one_that_was_not(
    data, tmp_path, monkeypatch
):
    """In the middle of an epoch, and between a checkpoint and the record of it."""
    whole = run(tmp_path / "whole", data)
    assert whole["tiny, l2"]["epochs"] == 4 and whole["tiny, l2"]["rounds"] == 12
    assert len(whole["tiny, l2"]["accuracy"]) == 5
    assert whole["tiny, l2"]["accuracy"] != whole["tiny, linf"]["accuracy"]

    from tff_adapters.simulated import SimulatedTraining

    real, broken = SimulatedTraining.round, tmp_path / "broken"

    def dies(self, features, labels):
        if self.rounds == 7:
            raise KeyboardInterrupt
        real(self, features, labels)

    monkeypatch.setattr(SimulatedTraining, "round", dies)
    with pytest.raises(KeyboardInterrupt):
        run(broken, data)
    monkeypatch.setattr(SimulatedTraining, "round", real)
    known = json.loads((broken / "paper_trainings.json").read_text())["runs"]
    assert [one["rounds"] for one in known] == [6, 6]  # two epochs of both, before any third

    def unwritten(path, record):
        if record["rounds"] == 9:
            raise KeyboardInterrupt
        remember(path, record)

    remember = paper_trainings.remember
    monkeypatch.setattr(paper_trainings, "remember", unwritten)
    with pytest.raises(KeyboardInterrupt):
        run(broken, data)
    monkeypatch.setattr(paper_trainings, "remember", remember)
    assert run(broken, data) == whole

    shutil.move(broken / "paper_trainings", tmp_path / "away")
    assert run(broken, data, "--share", "0.25", "--only", TINY.name) == whole  # it began anew
    shutil.rmtree(broken / "paper_trainings")
    shutil.move(tmp_path / "away", broken / "paper_trainings")

    other = replace(TINY, clip=0.4)
    with pytest.raises(SystemExit, match="is of other settings or images: move"):
        run(broken, data, settings=(other,))
    write_folder(data, 60, 29)
    with pytest.raises(SystemExit, match="is of other settings or images: move"):
        run(broken, data)
    shutil.rmtree(broken / "paper_trainings")
    with pytest.raises(SystemExit, match="json is of other images: move"):
        run(broken, data)


def test_the_page_and_the_plot_are_made_from_the_record_alone(data, tmp_path, capsys):
    run(tmp_path, data, "--share", "0.5", "--seeds", "1", "2", settings=(TINY,))
    run(tmp_path, data, settings=(TINY,))  # seed 1 goes further
    record = json.loads((tmp_path / "paper_trainings.json").read_text())["runs"]
    one, two = (np.array(r["accuracy"]) for r in sorted(record, key=lambda r: r["seed"]))
    shutil.rmtree(tmp_path / "paper_trainings")
    shutil.rmtree(data)
    main(["plot", "--output", str(tmp_path)], (TINY, SECOND))
    page = (tmp_path / "paper_trainings.md").read_text()
    assert page in capsys.readouterr().out
    both, alone = (line for line in page.splitlines() if line.startswith("| tiny, l2"))
    spread = abs(one[2] - two[2]) / 2**0.5
    assert f"| 650 | 2 of 4 | 1, 2 | {(one[2] + two[2]) / 2:.3f} +- {spread:.3f} |" in both
    assert f"| 650 | 4 of 4 | 1 | {one[4]:.3f} |" in alone and "tiny, linf" not in page
    assert page.startswith("# The papers' trainings on MNIST")
    assert (tmp_path / "paper_trainings.png").read_bytes().startswith(b"\x89PNG")


def test_runs_of_before_inputs_could_be_standardised_are_still_theirs():
    assert "standardised" not in digest_of(TINY) and "standardised" in digest_of(SECOND)


KNOWN = [s for s in SETTINGS if s.name in PRINTED and all(p[-1] for p in PRINTED[s.name])]


@pytest.mark.parametrize("setting", KNOWN, ids=lambda s: s.name)
def test_the_theorem_gives_the_epsilon_that_the_papers_print(setting):
    """After the epochs that the page names, within rounding of a printed digit and an epoch."""
    for epsilon, _, _, epochs in PRINTED[setting.name]:
        before, after = (price(setting, 13_706, "thesis", epochs + i) for i in (-1, 1))
        assert before - 0.005 <= epsilon <= after + 0.005


def test_the_three_prices_of_a_training():
    """Spec, section 11.3: 60,000 clients, 2,000 in each of 6,000 rounds, at local epsilon 2."""
    curve = Curve(SETTINGS[0], [{"epochs": 3, "parameters": 13_706}])
    for one in priced(curve).values():
        assert [*one] == [1, 2, 3] and 0 < one[1] < one[2] < one[3]
    named = [price(SETTINGS[0], 13_706, name, 200) for name in ("thesis", "any mechanism")]
    assert named == pytest.approx([5.795, 0.882], rel=1e-3)
