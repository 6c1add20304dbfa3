"""Each engine comes up, runs a job on blocks of our kind (objects with a coder of their own), ends.

What fails here is the engine or its bring-up, not this library.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import numpy as np
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from click.testing import CliRunner

from tests.engines import servers
from tests.engines.cache import write_job_server_jar
from tests.engines.fixtures import run_within
from tests.engines.processes import EngineError, Group, PortTakenError, end, free_ports
from tests.engines.servers import ENGINES, Engine, fetch, is_fetched, running

BLOCKS, ROWS = 20, 1000


class NumberBlock:
    """Many numbers in one element."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers


class NumberBlockCoder(beam.coders.Coder):
    """The array's bytes and nothing else, so that a missing registration shows as an error."""

    def encode(self, value: NumberBlock) -> bytes:
        return value.numbers.tobytes()

    def decode(self, encoded: bytes) -> NumberBlock:
        return NumberBlock(np.frombuffer(encoded, dtype=np.int64))

    def is_deterministic(self) -> bool:
        return True


beam.coders.registry.register_coder(NumberBlock, NumberBlockCoder)


def make_block(index: int) -> NumberBlock:
    return NumberBlock(np.arange(index * ROWS, (index + 1) * ROWS, dtype=np.int64))


class Total(beam.CombineFn):
    """Rows and their sum, as the aggregator does: one small array per bundle."""

    def create_accumulator(self) -> np.ndarray:
        return np.zeros(2, dtype=np.int64)

    def add_input(self, accumulator: np.ndarray, block: NumberBlock) -> np.ndarray:
        return accumulator + np.array([len(block.numbers), block.numbers.sum()])

    def merge_accumulators(self, accumulators: list[np.ndarray]) -> np.ndarray:
        return np.sum(list(accumulators), axis=0)

    def extract_output(self, accumulator: np.ndarray) -> tuple[int, int]:
        return int(accumulator[0]), int(accumulator[1])


def write_total(total: tuple[int, int], path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{total[0]} {total[1]}\n")


def count_and_sum(options: list[str], path: Path) -> str:
    pipeline = beam.Pipeline(options=PipelineOptions(options))
    (
        pipeline
        | beam.Create(range(BLOCKS))
        | beam.Map(make_block).with_output_types(NumberBlock)
        | beam.Reshuffle()
        | beam.CombineGlobally(Total())
        | beam.Map(write_total, path=str(path))
    )
    run_within(pipeline, seconds=120)
    return path.read_text()


EXPECTED = f"{BLOCKS * ROWS} {sum(range(BLOCKS * ROWS))}\n"


@pytest.mark.pipeline
def test_local_runner(tmp_path: Path, engine_options) -> None:
    assert count_and_sum(engine_options("local"), tmp_path / "total") == EXPECTED


@pytest.mark.engines
def test_engine_runs_two_jobs(tmp_path: Path, engine: Engine) -> None:
    """Two, because a server that cannot take a second job would fail the suites' later tests."""
    for job in ("first", "second"):
        assert count_and_sum(engine.options, tmp_path / job) == EXPECTED


@pytest.mark.engines
def test_ended_engine_leaves_no_process_and_no_port() -> None:
    with running("prism") as engine:
        (process,) = engine.process_ids
        os.kill(process, 0)
        port = int(engine.job_endpoint.rsplit(":", 1)[1])
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(OSError), socket.create_connection(("localhost", port), timeout=1):
        pass


@pytest.mark.exact
def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(20))) == 20


@pytest.mark.exact
def test_absent_engine_names_the_remedy(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BEAM_LDP_ENGINES", str(tmp_path))
    for name in ENGINES:
        assert not is_fetched(name)
        with pytest.raises(EngineError, match="make engines"), running(name):
            pass
    with pytest.raises(ValueError, match="prism, spark"), running("storm"):
        pass


@pytest.mark.exact
def test_fetch_without_its_tool_says_which(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BEAM_LDP_ENGINES", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, tool in (("spark", "mvn"), ("flink", "mvn"), ("prism", "go")):
        with pytest.raises(EngineError, match=f"`{tool}` is not installed"):
            fetch(name)
        assert not is_fetched(name)


@pytest.mark.exact
def test_job_server_jar_names_every_jar(tmp_path: Path) -> None:
    """A manifest's lines are folded at 72 bytes; Java reads them as one."""
    (tmp_path / "lib").mkdir()
    names = [f"some-part-of-an-engine-with-a-long-name-{i}.jar" for i in range(40)]
    for name in names:
        (tmp_path / "lib" / name).touch()
    write_job_server_jar(tmp_path, "org.example.Server")
    with zipfile.ZipFile(tmp_path / "job-server.jar") as jar:
        text = jar.read("META-INF/MANIFEST.MF").decode()
    assert max(map(len, text.split("\r\n"))) <= 70
    read = dict(line.split(": ", 1) for line in text.replace("\r\n ", "").splitlines())
    assert read["Main-Class"] == "org.example.Server"
    assert read["Class-Path"].split() == [f"lib/{name}" for name in sorted(names)]
    assert "java.base/sun.nio.ch" in read["Add-Opens"].split()


@pytest.mark.exact
def test_servers_are_ended_with_their_children_and_others_are_not(tmp_path: Path) -> None:
    """A child in a session of its own is ended too; an id that now is another's is left alone."""
    script = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True).wait()"
    group = Group(tmp_path)
    server = group.start(
        "parent", [sys.executable, "-c", script], ready=lambda: bool(group.servers[0].children())
    )
    (child,) = server.children()
    stale = replace(server, created=server.created - 60)
    end([stale])
    assert stale.process() is None and server.process() is not None
    group.end()
    assert server.process() is None and not child.is_running() and not group.servers


@pytest.mark.exact
def test_server_that_ends_shows_its_log(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with pytest.raises(PortTakenError, match="no such luck"):
        group.start("broken", [sys.executable, "-c", "raise SystemExit('no such luck')"], port=1)
    group.end()


@pytest.mark.exact
def test_started_engines_are_known_again_and_stopped(tmp_path: Path, monkeypatch) -> None:
    """`start` twice starts once; `status` says what ended; `stop` ends what was recorded."""
    monkeypatch.setenv("BEAM_LDP_ENGINES", str(tmp_path))
    monkeypatch.setattr(servers, "is_fetched", lambda name: True)
    monkeypatch.setitem(servers.ENGINES, "prism", ("prism", sleeper))
    call = CliRunner().invoke
    started = call(servers.main, ["start", "prism"])
    assert started.exit_code == 0 and "--job_endpoint=nowhere:1" in started.output
    assert call(servers.main, ["start", "prism"]).output == started.output
    assert "prism: running" in call(servers.main, ["status"]).output
    _, [first, second] = servers.recorded("prism")
    os.kill(second.process_id, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(second.process_id)], 10)
    assert "prism: ended: second" in call(servers.main, ["status"]).output
    assert call(servers.main, ["stop"]).output == "prism: ended\n"
    assert first.process() is None
    assert call(servers.main, ["stop"]).output == ""


def sleeper(group: Group) -> tuple[str, ...]:
    for role in ("first", "second"):
        group.start(role, ["sleep", "600"])
    return ("--job_endpoint=nowhere:1",)
