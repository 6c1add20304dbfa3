"""What every test stands on: a time limit, the same Hypothesis examples each run, no leftovers."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from tests import beam_memory, confirmed, mlflow_memory
from tests.engines.fixtures import engine, engine_named, engine_options  # noqa: F401
from tests.made_once import MadeOnce

os.environ.setdefault("MPLBACKEND", "Agg")  # no test needs a screen

REQUIRED = "BEAM_LDP_REQUIRE_TOOLS"  # set by `.ci/run`
SECONDS = "BEAM_LDP_SECONDS"  # set by `make test`: a file
RECORDS = "beam_ldp.release.record"
LIMIT_SECONDS = 300
LONG_LIMIT_SECONDS = 900

hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, max_examples=50, database=None
)
hypothesis.settings.load_profile("repeatable")


_SECONDS: dict[str, float] = {}
_TAKEN = [sum(os.times()[:4])]
_STATE = tempfile.mkdtemp(prefix="beam-ldp-state-")  # not the home of whoever runs the tests
os.environ["XDG_STATE_HOME"] = _STATE
os.environ.pop("BEAM_LDP_ANCHORS", None)


@pytest.fixture(autouse=True)
def state_home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state of one test: ledgers are copied between tests, as between machines."""
    place = Path(_STATE, hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16])
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    mlflow_memory.remember()
    return place


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """What is made once in a session, whichever worker needs it first."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once"
    root.mkdir(exist_ok=True)
    return MadeOnce(root)


def pytest_configure() -> None:
    """Being told to end is an interrupt: fixtures still end the servers that they started.

    A shell has what it starts in the background ignore interrupts, and so would all that is started
    here: TensorFlow Federated interrupts its processes and waits for their end. Files that tests
    write are their owner's, as key files have to be.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.umask(0o077)
    beam_memory.remember()
    os.fsync = lambda _: None
    sqlite3.dbapi2.connect = connect  # type: ignore[assignment]


def connect(*where: Any, **how: Any) -> sqlite3.Connection:
    """SQLite's, which does not wait for the disk: the tests of this process cut no power."""
    connection = sqlite3.connect(*where, **how)
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA synchronous=OFF")
    return connection


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that hangs fails, with the stacks of where it hung.

    The tests of a file run in one process, which shares what they need; cases marked `apart` run
    wherever there is time (`--dist loadgroup`).
    """
    several = item.config.pluginmanager.hasplugin("xdist")
    if several and item.get_closest_marker("apart") is None:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
    if item.get_closest_marker("timeout") is None:
        long = any(item.get_closest_marker(name) for name in ("slow", "engines", "bench"))
        item.add_marker(pytest.mark.timeout(LONG_LIMIT_SECONDS if long else LIMIT_SECONDS))


def pytest_collection_finish() -> None:
    """What stays to the end, thousands of tests and modules, is not looked through for garbage.

    Where tests were found that may release something, every release is looked at.
    """
    if RECORDS in sys.modules:
        confirmed.install()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """What this process and its children took of a processor since the report before."""
    report = yield
    took, _TAKEN[:] = sum(os.times()[:4]) - _TAKEN[0], [sum(os.times()[:4])]
    report.cpu_seconds = took
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Of each file; of another process, xdist sends it along."""
    file = report.nodeid.partition("::")[0]
    _SECONDS[file] = _SECONDS.get(file, 0.0) + getattr(report, "cpu_seconds", 0.0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What tests take of a processor, by room. Where `make` says so, `.ci/changed.py` reads it."""
    rooms = Counter[str]()
    for file, taken in _SECONDS.items():
        rooms["/".join(file.split("/")[:2])] += taken  # type: ignore[assignment]
    if sum(rooms.values()) > 60:
        said = ", ".join(f"{room} {taken:,.0f}" for room, taken in rooms.most_common())
        terminalreporter.write_line(f"{sum(rooms.values()):,.0f} seconds of a processor: {said}")
    if wanted := os.environ.get(SECONDS):
        place = config.rootpath / wanted
        before = json.loads(place.read_text("utf-8")) if place.is_file() else {}
        place.parent.mkdir(exist_ok=True)
        rounded = {file: round(taken, 1) for file, taken in (before | _SECONDS).items()}
        place.write_text(json.dumps(rounded, indent=0, sort_keys=True), "utf-8")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where every tool is required, as in CI, a skipped test is a failure: nothing that was to be
    tested goes by in silence."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped") if reporter is not None else None
    if skipped and os.environ.get(REQUIRED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for report in skipped:
            reporter.write_line(f"SKIPPED, which {REQUIRED} forbids: {report.nodeid}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what the tests started and left: a child that holds stdout would hang `pytest | tail`."""
    shutil.rmtree(_STATE, ignore_errors=True)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # the children here are the test workers, which end themselves
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
