"""Fixtures that put a test on a real engine; `tests/conftest.py` makes them known everywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineState

from tests.engines.servers import EMBEDDED, Engine, running

LOCAL_OPTIONS = ["--runner=FnApiRunner"]


@pytest.fixture(scope="session")
def engine_named() -> Iterator[Callable[[str], Engine]]:
    """`engine_named(name)`: one of `tests.engines.servers.EMBEDDED`, the same for all modules.

    A server is started at the first call, which takes ten seconds or more, and ended with the
    session; its job server holds one job at a time, so every job needs a time limit.
    """
    with ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(running(name)))


@pytest.fixture(scope="session")
def engine_options(engine_named: Callable[[str], Engine]) -> Callable[[str], list[str]]:
    """`engine_options(name)`: Beam flags for `local` or an engine of `engine_named`."""
    return lambda name: list(LOCAL_OPTIONS if name == "local" else engine_named(name).options)


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.engines) for name in EMBEDDED]
)
def engine(request: pytest.FixtureRequest, engine_named: Callable[[str], Engine]) -> Engine:
    """A test that takes `engine` runs once on each engine whose workers are in this process."""
    return engine_named(request.param)


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
