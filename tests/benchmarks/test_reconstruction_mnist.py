"""The figure of protected MNIST: its parts are right, its page is that of its record."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import reconstruction_mnist as figure
from benchmarks.reconstruction_mnist import SAME_BUDGET, SAME_RATIO, SETTINGS, Setting
from tests.idx_files import write_folder

RESULTS = Path(figure.__file__).parent / "results"
PRINTED = {500.0: 4.1, 250.0: 6.3, 100.0: 12.7, 50.0: 21.3}  # sqrt(D/B) in the paper's dimension


@pytest.mark.exact
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.series], ids=str)
def test_settings_have_the_paper_s_budget_or_its_noise(setting):
    told = figure.described(setting)
    paper = figure.of_the_paper(figure.PAPER_DIMENSION, setting.paper_epsilon)
    printed = PRINTED[setting.paper_epsilon]
    assert figure.noise_to_signal(paper) == pytest.approx(printed, rel=0.01)
    if setting.series == SAME_BUDGET:
        assert told["epsilon"] == setting.paper_epsilon and told["noise_to_signal"] < 2
    else:
        assert told["noise_to_signal"] == pytest.approx(printed, rel=0.01)
        assert told["epsilon"] < 0.03 * setting.paper_epsilon


@pytest.mark.exact
@pytest.mark.parametrize("sizes", [(5, 3), (5, 4, 3)])
def test_gradients_are_those_of_finite_differences(sizes):
    rng = np.random.default_rng(3)
    layers = [rng.standard_normal((a + 1, b)) for a, b in zip(sizes, sizes[1:])]
    x, y = rng.standard_normal((2, 6, 5)), rng.integers(0, 3, (2, 6))

    def losses(weights):
        out = figure.logits(weights, x)[-1]
        odds = out - np.log(np.exp(out).sum(axis=-1, keepdims=True))
        return -np.take_along_axis(odds, y[..., None], -1).mean(axis=(1, 2))

    found = figure.gradients(layers, x, y)
    for i, layer in enumerate(layers):
        for place in np.ndindex(layer.shape):
            up, down = ([w.copy() for w in layers] for _ in range(2))
            up[i][place] += 1e-5
            down[i][place] -= 1e-5
            slope = (losses(up) - losses(down)) / 2e-5
            assert found[i][(slice(None), *place)] == pytest.approx(slope, abs=1e-8)


@pytest.mark.exact
def test_a_change_is_five_steps_down_one_s_own_items_over_the_rate():
    rng = np.random.default_rng(4)
    layers = [rng.standard_normal((6, 3)).astype(np.float32)]
    x, y = rng.standard_normal((2, 10, 5)).astype(np.float32), rng.integers(0, 3, (2, 10))
    own, total = layers[0].astype(float), np.zeros((6, 3))
    for s in range(5):
        step = figure.gradients([own], x[1, s::5].astype(float), y[1, s::5])[0]
        own, total = own - 0.1 * step, total - step
    found = figure.changes(layers, x, y, 0.1)
    assert found.shape == (2, 18) and found[1] == pytest.approx(total.ravel(), abs=1e-5)


@pytest.mark.statistical
def test_messages_are_unbiased_until_they_are_shortened():
    """The mean of 4,000 messages along the change, 5 standard errors: a false alarm of 6e-7."""
    change = np.zeros((4_000, 50))
    change[:, 0] = 3.0
    rng = np.random.default_rng(5)
    along = figure.sent(change, figure.of_the_paper(50, 60.0), rng)[:, 0]
    assert abs(along.mean() - 3.0) < 5 * along.std() / math.sqrt(len(along))
    long = figure.sent(np.ones((20, 4_000)), figure.of_the_paper(4_000, 1.0), rng)
    assert np.linalg.norm(long, axis=1) == pytest.approx(figure.PROJECTION)
    kept = figure.sent(np.array([[3.0, 4.0], [30.0, 40.0], [0.0, 0.0]]), None, rng)
    assert kept == pytest.approx(np.array([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]]))


SMALL = (
    Setting("logistic"),
    Setting("logistic", SAME_BUDGET, 500.0),
    Setting("logistic", SAME_RATIO, 50.0),
)


@pytest.mark.e2e
def test_a_run_that_was_broken_off_goes_on_and_is_shown(tmp_path, monkeypatch):
    for name, value in dict(PEOPLE=6, JOINING=3, ITEMS=10, ROUNDS=3).items():
        monkeypatch.setattr(figure, name, value)
    data = write_folder(tmp_path / "mnist", 60, 30, side=28)
    told = [f"--data={data}", "--rounds=3", "--seeds=1"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    figure.main(["run", *told, f"--output={whole}"], SMALL)
    figure.main(["run", *told, f"--output={broken}"], SMALL[:2])
    real, trained = figure.train, []
    monkeypatch.setattr(figure, "train", lambda *a: trained.append(a[0]) or real(*a))
    figure.main(["run", *told, f"--output={broken}"], SMALL)
    assert trained == [SMALL[2]]

    def rows(folder):
        found = json.loads((folder / "reconstruction_mnist.json").read_text())["rows"]
        return [{**row, "seconds": 0} for row in found]

    assert rows(broken) == rows(whole)
    assert len({tuple(row["accuracy"]) for row in rows(whole)}) == 3
    figure.main(["show", f"--output={broken}"])
    assert (broken / "reconstruction_mnist.png").read_bytes().startswith(b"\x89PNG")
    page = (broken / "reconstruction_mnist.md").read_text()
    assert page.count("| logistic | 7,850 |") == 3


@pytest.mark.exact
def test_the_page_that_is_shown_holds_the_record():
    rows = json.loads((RESULTS / "reconstruction_mnist.json").read_text())["rows"]
    assert figure.page(rows) == (RESULTS / "reconstruction_mnist.md").read_text()
    for row in rows:
        setting = Setting(row["model"], row["series"], row["paper_epsilon"] or math.inf)
        known = figure.described(setting)
        assert {name: row[name] for name in known} == known
        assert len(row["accuracy"]) == figure.ROUNDS + 1
