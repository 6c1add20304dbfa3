"""The committed comparison of searches: what it promises, and that the page shows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from beam_ldp.protocols.string_code import StringCode
from benchmarks import heavy_hitters

RESULTS = Path(heavy_hitters.__file__).parent / "results"


@pytest.mark.exact
def test_words_of_one_and_a_half_thresholds_are_found() -> None:
    """Recall of at least 95 %, at most ten false words, at most 16 bytes a person, in every row."""
    result = json.loads((RESULTS / "heavy_hitters.json").read_text())
    assert len(result["rows"]) >= 13
    for row in result["rows"]:
        assert row["ours"]["recall"] >= 0.95
        assert row["ours"]["false"] <= heavy_hitters.FALSE
        assert row["bits"] <= 128
    assert (RESULTS / "heavy_hitters.md").read_text() == heavy_hitters.page(result)
    assert result["paper"] == heavy_hitters.on_paper(10**6, 4.0)


@pytest.mark.statistical
def test_both_searches_find_what_many_hold() -> None:
    """Three words that a quarter each hold, at a large local epsilon; fixed seed."""
    words = [b"alpha", b"beta", b"gamma", *(b"w%d" % i for i in range(100))]
    shares = np.array([0.25] * 3 + [0.0025] * 100)
    population = heavy_hitters.Population("few", words, shares, StringCode(48, 8))
    row = heavy_hitters.compare(population, 20_000, 6.0, 1)
    for name in ("ours", "PEM", "PEM on our code"):
        assert row[name]["recall"] == 1.0
