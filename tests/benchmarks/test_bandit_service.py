"""What is shown of the speed of a bandit's batches through Beam."""

from __future__ import annotations

import json

import pytest

from benchmarks import bandit_service
from benchmarks.bandit_service import MODELS, RESULTS, served, total


@pytest.mark.exact
def test_a_million_people_take_less_than_a_minute() -> None:
    """Of every model, all batches: the page is that of the figures."""
    found = json.loads((RESULTS / "bandit_service.json").read_text())
    assert bandit_service.page(found) == (RESULTS / "bandit_service.md").read_text()
    for model in MODELS:
        assert found[model]["horizon"] == 10**6 and len(found[model]["batches"]) == 12
        assert sum(batch["people"] for batch in found[model]["batches"]) == found[model]["asked"]
        assert total(found[model]) <= 60


@pytest.mark.pipeline
@pytest.mark.parametrize("model", ["shuffled", "central"])
def test_no_action_is_dropped_of_those_that_are_alike(model: bandit_service.Model) -> None:
    """Every batch is asked, so that the figure is the most that a run can take."""
    run = served(model, horizon=60)
    assert [batch["people"] for batch in run["batches"]] == [4, 12, 34]
    assert run["asked"] == 50 and total(run) > 0


@pytest.mark.bench
def test_all_batches_of_a_million_people() -> None:
    """7 CPU seconds where it was written."""
    assert total(served("shuffled")) <= 60
