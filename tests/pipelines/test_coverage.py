"""Error bars on a real corpus, through the whole program: do they hold what they promise?

Simulated noise at a fixed seed, so every verdict repeats. False alarms: 4.5 standard deviations
each, below one in 100,000 by chance at another seed.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from beam_ldp.pipelines.demos.corpus import load_corpus, write_people
from beam_ldp.pipelines.demos.tables import write_pictures
from beam_ldp.pipelines.demos.words import OTHER
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.mean import main as mean
from beam_ldp.pipelines.programs import DONE

pytestmark = pytest.mark.statistical

USERS, WORDS, PICTURES, DEVIATIONS = 100_000, 1000, 8_000, 4.5
MECHANISMS = ["SubsetSelection", "HadamardResponse", "RecursiveHadamardResponse", "LocalHashing"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, np.ndarray]:
    pytest.importorskip("symspellpy")
    folder = tmp_path_factory.mktemp("people")
    return write_people(load_corpus(), USERS, WORDS, folder)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_intervals_of_real_words_hold_as_often_as_they_say(mechanism, people, tmp_path):
    source, words, truth = people
    out = tmp_path / "out"
    flags = [f"--input={source}", "--column=word", "--user-id=user_id", f"--domain={words}",
             f"--other-label={OTHER}", "--local-epsilon=2", "--delta=1e-8",
             "--seed=11", f"--min-reports={USERS}",
             f"--mechanism={mechanism}", "--no-mlflow", f"--output={out}"]  # fmt: skip
    assert main(flags) == DONE
    with (out / "estimates.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == WORDS + 1 and rows[-1]["value"] == OTHER
    count, error, low, high = (
        np.array([float(row[name]) for row in rows])
        for name in ("count", "count_standard_error", "count_low", "count_high")
    )
    scores = (count - truth) / error
    inside = np.count_nonzero((low <= truth) & (truth <= high))
    spread = math.sqrt(len(rows) * 0.95 * 0.05)
    assert abs(inside - 0.95 * len(rows)) < DEVIATIONS * spread
    # Halved or doubled errors, or a bias, would show here even where intervals hold.
    assert abs(scores.mean()) < DEVIATIONS / math.sqrt(len(rows))
    assert abs((scores**2).mean() - 1) < DEVIATIONS * math.sqrt(2 / len(rows))


@pytest.mark.parametrize(
    ("mechanism", "ball"),
    [
        ("PrivUnitInf", ["--range", "0", "16"]),
        ("LInfMean", ["--range", "0", "16"]),
        ("PrivUnit", ["--norm=l2", "--radius=80"]),
        ("L2Mean", ["--norm=l2", "--radius=80"]),
    ],
)
def test_intervals_of_real_pictures_hold_as_often_as_they_say(mechanism, ball, tmp_path):
    """The mean of 64 pixels of real digits, three releases; errors are bounds, so never too small.

    Errors are those of the worst values: more intervals may hold than say so, not fewer, and
    scores may spread less than 1, not more. A bias would show in their mean.
    """
    pytest.importorskip("sklearn")
    source, truth = write_pictures(PICTURES, tmp_path)
    scores, inside = [], 0
    for seed in range(3):
        out = tmp_path / str(seed)
        flags = [f"--input={source}", "--column=pixels", *ball, "--local-epsilon=8",
                 "--delta=1e-8", f"--seed={seed}", f"--min-reports={PICTURES}", "--no-mlflow",
                 f"--mechanism={mechanism}", f"--output={out}"]  # fmt: skip
        assert mean(flags) == DONE
        with (out / "estimates.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        value, error, low, high = (
            np.array([float(row[name]) for row in rows])
            for name in ("mean", "standard_error", "low", "high")
        )
        scores.append((value - truth) / error)
        inside += np.count_nonzero((low <= truth) & (truth <= high))
    count, squares = 3 * len(truth), np.concatenate(scores) ** 2
    assert inside > 0.95 * count - DEVIATIONS * math.sqrt(count * 0.95 * 0.05)
    assert abs(np.mean(scores)) < DEVIATIONS / math.sqrt(count)
    assert squares.mean() < 1 + DEVIATIONS * math.sqrt(2 / count)
