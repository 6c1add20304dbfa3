"""The suite of `engine_suite`: local runner with one process and with two, and the engines.

Every run cuts the rows into blocks of another size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beam_ldp.ledger import BudgetExceededError
from beam_ldp.transforms import budgeted
from tests.engines.servers import CLUSTERS, EMBEDDED, running
from tests.transforms.engine_suite import SUITE, ChargedToABudget, Found, run_suite

ONE_PROCESS = ["--runner=FnApiRunner"]
TWO_PROCESSES = [*ONE_PROCESS, "--direct_num_workers=2", "--direct_running_mode=multi_processing"]
BLOCK_SIZES = {"one process": 77, "two processes": 1000, "prism": 190, "spark": 333, "flink": 271,
               "spark-cluster": 150, "flink-cluster": 420}  # fmt: skip
PLACES = [
    pytest.param("one process", marks=pytest.mark.pipeline),
    pytest.param("two processes", marks=[pytest.mark.pipeline, pytest.mark.slow]),
    *(pytest.param(name, marks=pytest.mark.engines) for name in EMBEDDED),
    *(pytest.param(name, marks=[pytest.mark.engines, pytest.mark.slow]) for name in CLUSTERS),
]
# One set of Python workers for all stages: without it each of the many starts its own.
KEPT_WORKERS = ["--environment_cache_millis=60000"]
Ran = tuple[dict[str, Found], Path]


@pytest.fixture(scope="module", params=PLACES)
def ran(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    engine_options: Callable[[str], list[str]],
) -> Iterator[Ran]:
    """The whole suite, run once in each place, and its folder."""
    place, folder = request.param, tmp_path_factory.mktemp("suite")
    if place in CLUSTERS:
        with running(place) as engine:
            options = [*engine.options, *KEPT_WORKERS]
            yield run_suite(options, folder, BLOCK_SIZES[place]), folder
    elif place in EMBEDDED:
        yield run_suite(engine_options(place), folder, BLOCK_SIZES[place]), folder
    else:
        options = ONE_PROCESS if place == "one process" else TWO_PROCESSES
        yield run_suite(options, folder, BLOCK_SIZES[place]), folder


@pytest.fixture(scope="module")
def in_one_block(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """What is memoized, computed from one block in one process."""
    folder = tmp_path_factory.mktemp("reference")
    parts = tuple(part for part in SUITE if part.memoized)
    found = run_suite(ONE_PROCESS, folder, 10**6, parts)
    for part in parts:
        part.verify(found[part.name], folder)
    return found


@pytest.mark.parametrize("part", SUITE, ids=lambda part: part.name)
def test_part(part, ran: Ran, in_one_block: dict[str, Found]) -> None:
    found, folder = ran
    part.verify(found[part.name], folder)
    if part.memoized:
        assert found[part.name] == in_one_block[part.name]


@pytest.mark.pipeline
def test_other_noise_would_be_seen(in_one_block: dict[str, Found]) -> None:
    """The comparison to the last bit can fail: oracles and means differ from one another."""
    releases = [found[0]["value"] for found in in_one_block["EveryOracle"].values()]
    assert len({tuple(value) for value in releases}) == len(releases) == 11


@pytest.mark.pipeline
def test_a_job_that_does_not_fit_the_budget_is_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused while the pipeline is built, so the engine makes no difference: nobody is asked."""
    monkeypatch.setattr(budgeted, "check_servers", lambda *_: None)  # it would refuse first
    part = ChargedToABudget()
    part.budget = 0.01
    with pytest.raises(BudgetExceededError):
        run_suite(["--runner=FlinkRunner", "--job_endpoint=localhost:1"], tmp_path, 100, (part,))
