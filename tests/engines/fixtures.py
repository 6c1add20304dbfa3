"""Fixtures that put a test on a real engine; `tests/conftest.py` makes them known everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineState

from tests.engines.servers import EMBEDDED, Engine, running

LOCAL_OPTIONS = ["--runner=FnApiRunner"]


@pytest.fixture(scope="module")
def engine_options() -> Iterator[Callable[[str], list[str]]]:
    """`engine_options(name)`: Beam flags for `local` or an engine of `tests.engines.servers`.

    A server is started at the first call and ended with the test module.
    """
    with ExitStack() as stack:
        started: dict[str, Engine] = {}

        def options(name: str) -> list[str]:
            if name == "local":
                return list(LOCAL_OPTIONS)
            if name not in started:
                started[name] = stack.enter_context(running(name))
            return started[name].options

        yield options


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.engines) for name in EMBEDDED]
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A test that takes `engine` runs once on each engine whose workers are in this process."""
    with running(request.param) as server:
        yield server


def run_within(pipeline: beam.Pipeline, seconds: float) -> None:
    """Run a pipeline and fail if it is not done in time: a hung job would block its engine.

    Raises:
        TimeoutError: not finished within `seconds`; the job was cancelled.
        RuntimeError: the job ended in another state than DONE.
    """
    result = pipeline.run()
    state = result.wait_until_finish(duration=int(seconds * 1000))
    state = state or result.state
    if state == PipelineState.DONE:
        return
    if not PipelineState.is_terminal(state):
        result.cancel()
        raise TimeoutError(f"the job was {state} after {seconds} s")
    raise RuntimeError(f"the job ended {state}")
