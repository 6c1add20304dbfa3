"""The regression gate: it passes what is as fast as before and fails what is not."""

from __future__ import annotations

import json

import pytest

from benchmarks.product import COMMITTED, WORSE, nanoseconds, page, regressions, works

pytestmark = pytest.mark.exact


def measured(**ratios: float) -> dict[str, dict[str, object]]:
    return {
        name: {"ns": 2.0, "limit": "word", "ratio": ratio * 1.1, "least": ratio, "most": ratio * 2}
        for name, ratio in ratios.items()
    }


def test_twice_is_allowed_and_more_is_not() -> None:
    committed = {"word": 1.0, "permute": 3.0}
    assert regressions(measured(word=1.0, permute=3.0 * WORSE), committed) == []
    (said,) = regressions(measured(word=1.0, permute=3.1 * WORSE), committed)
    assert said.startswith("permute") and "3.00" in said


def test_what_is_missing_on_either_side_is_said() -> None:
    said = regressions(measured(word=1.0, new=1.0), {"word": 1.0, "old": 1.0})
    assert said == ["new: not committed", "old: no longer measured"]


def test_everything_that_is_measured_is_committed() -> None:
    committed = json.loads(COMMITTED.read_text())
    assert set(committed) == set(works())
    assert all(ratio > 0 for ratio in committed.values())
    for name, (limit, items, _) in works().items():
        assert limit in committed and items > 0
        if name == limit:
            assert committed[name] == pytest.approx(1, rel=0.5)


def test_the_page_shows_spread_and_peers_that_do_not_run() -> None:
    beside = [
        {"library": "a", "ns": 100.0, "ours_ns": 2.0, "ratio": 50.0, "least": 40.0, "most": 60.0},
        {"library": "b", "error": "TypeError: no"},
    ]
    text = page(measured(word=1.0, permute=3.0), beside)
    assert "3.00 to 6.00" in text and "40.0 to 60.0" in text
    assert "does not run: `TypeError: no`" in text


def test_time_is_per_item() -> None:
    assert nanoseconds(lambda: sum(range(10_000)), 10_000) < 1e5
