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

from beam_ldp.pipelines.demo import OTHER, load_corpus, write_people
from beam_ldp.pipelines.frequency import DONE, main

pytestmark = pytest.mark.statistical

USERS, WORDS, DEVIATIONS = 300_000, 1000, 4.5
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
