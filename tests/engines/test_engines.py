"""Each engine comes up, runs a job on blocks of our kind (objects with a coder of their own), ends.

What fails here is the engine or its bring-up, not this library.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from tests.engines.fixtures import run_within
from tests.engines.servers import Engine, EngineError, fetch, free_ports, is_fetched, running

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
        os.kill(engine.process_id, 0)
        port = int(engine.job_endpoint.rsplit(":", 1)[1])
    with pytest.raises(ProcessLookupError):
        os.kill(engine.process_id, 0)
    with pytest.raises(OSError), socket.create_connection(("localhost", port), timeout=1):
        pass


@pytest.mark.exact
def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(20))) == 20


@pytest.mark.exact
def test_absent_engine_names_the_remedy(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BEAM_LDP_ENGINES", str(tmp_path))
    assert not is_fetched("spark")
    with pytest.raises(EngineError, match="make engines"), running("spark"):
        pass
    with pytest.raises(ValueError, match="prism, spark"), running("storm"):
        pass


@pytest.mark.exact
def test_fetch_without_its_tool_says_which(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BEAM_LDP_ENGINES", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="`mvn` is not installed"):
        fetch("spark")
    assert not is_fetched("spark")
