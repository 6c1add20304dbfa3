"""Windows of messages from a queue: Beam's own connector to Kafka, a real broker, real engines."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from apache_beam.runners.runner import PipelineState

from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.release.streams.results import TABLE, iso, read_folder
from tests.engines import flink, kafka, kafka_job, prism
from tests.engines.cache import fetch_into_cache
from tests.engines.processes import Group
from tests.engines.servers import Engine
from tests.engines.victims import pooled_workers
from tests.ledger.parts import parts_of

LIVE_SECONDS = int(os.environ.get("BEAM_LDP_LIVE_SECONDS", "600"))
START_SECONDS = 300  # in which the first window must come out
WINDOWS = 300  # that the budget pays for
PEOPLE, AGAIN = 100, 10  # new people every half second; how many of them are sent twice


@contextmanager
def broker(name: str, folder: Path) -> Iterator[tuple[Engine, Group, kafka.Kafka]]:
    """An engine that can run the connector, a broker, and the connector's service."""
    for needed in ("kafka", "kafka-connector", name):
        fetch_into_cache(needed)
    engine, queue = Group(folder / "engine"), Group(folder / "kafka")
    for group in (engine, queue):
        group.folder.mkdir()
    try:
        if name == "flink":
            started = flink.start_cluster(engine, True, "kafka-connector")
            flags = [*started, "--checkpointing_interval=5000"]
        else:
            flags = list(prism.start(engine))
        how = kafka.BY_FLINK if name == "flink" else kafka.BY_THE_SERVICE
        yield Engine(name, flags, engine), queue, kafka.start(queue, how)
    finally:
        queue.end()
        engine.end()


def send(group: Group, queue: kafka.Kafka, before: int, over: Callable[[], bool]) -> int:
    """A hundred people each half second, ten of them twice; how many there are now."""
    sent = before
    with kafka.producer(group, queue) as producer:
        assert producer.stdin is not None
        while not over():
            now = time.time()
            lines = [
                f"u{sent + i},{random.choice(('red', 'red', 'green'))},{now}\n"
                for i in range(PEOPLE)
            ]
            sent += len(lines)
            again = random.sample(lines, AGAIN)
            producer.stdin.write("".join([*lines, *again]).encode())
            producer.stdin.flush()
            time.sleep(0.5)
    return sent


def came_out(folder: Path) -> list[dict[str, Any]]:
    return [told for _, told in read_folder(folder / "out", set())]


def released(folder: Path) -> bool:
    return any((folder / "out").glob(f"*/{TABLE}"))


def after(seconds: float) -> Callable[[], bool]:
    """A question that is answered with yes from then on."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def num_reports(folder: Path) -> int:
    return sum(told["num_reports"] for told in came_out(folder))


def sizes_of_checkpoints(engine: Group, until: threading.Event, found: dict[int, int]) -> None:
    """The bytes of every finished checkpoint, by its number."""
    while not until.wait(0.5):
        for done in engine.folder.glob("checkpoints/*/chk-*/_metadata"):
            try:
                size = sum(path.stat().st_size for path in done.parent.iterdir())
            except FileNotFoundError:  # a newer one has replaced it
                continue
            found[int(done.parent.name.removeprefix("chk-"))] = size


def live(name: str, folder: Path, seconds: float, kill: bool) -> tuple[int, list[int], str]:
    """People sent, sizes of checkpoints in their order, what the engine logged.

    In the middle a Python worker is killed, if so wanted.
    """
    (folder / "key").write_bytes(bytes(range(32)))
    ledger = BudgetLedger.create(ledger_of(folder))
    ledger.set_budget("people", epsilon=1e6, delta=1e-5, local_epsilon=1e4)
    sizes: dict[int, int] = {}
    over = threading.Event()
    with broker(name, folder) as (engine, group, queue):
        result = kafka_job.build(engine.options, queue, folder, WINDOWS).run()
        watching = (engine.group, over, sizes)
        threading.Thread(target=sizes_of_checkpoints, args=watching, daemon=True).start()
        late = after(START_SECONDS)
        try:
            sent = send(group, queue, 0, lambda: late() or released(folder))
            assert released(folder), "the job did not start"
            sent = send(group, queue, sent, after(seconds / 2))
            if kill:
                random.choice(pooled_workers(engine)).kill()
            sent = send(group, queue, sent, after(seconds / 2))
            deadline = time.monotonic() + 300
            while num_reports(folder) < sent and time.monotonic() < deadline:
                assert not PipelineState.is_terminal(result.state), result.state
                time.sleep(1)
            time.sleep(5)  # nothing may come after
        finally:
            over.set()
            result.cancel()
        return sent, [sizes[number] for number in sorted(sizes)], engine.group.text("job-manager")


def ledger_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


def check(folder: Path, sent: int, least: int) -> None:
    """Every person once, whoever was sent twice; each window once, above the threshold, charged."""
    came = came_out(folder)
    releases = [told for told in came if "event" in told]
    assert sum(told["num_reports"] for told in came) == sent
    assert sum(told["num_reports"] for told in releases) > 0.6 * sent
    assert min(told["num_reports"] for told in releases) >= kafka_job.MIN_REPORTS
    windows = sorted((told["window_start"], told["late"]) for told in releases)
    assert len(set(windows)) == len(windows) >= least
    ledger = BudgetLedger(ledger_of(folder))
    assert audit(ledger.rows()).clean
    charges = parts_of(ledger, kafka_job.RUN)
    settled = [charge.about["window"] for charge in charges if charge.status == "settled"]
    assert sorted((iso(window[0]), window[-1] == "late") for window in settled) == windows


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.timeout(LIVE_SECONDS + 900)
def test_messages_from_kafka_on_flink_with_a_killed_worker(tmp_path: Path) -> None:
    """Flink starts again from a checkpoint, which holds the offsets; it does not grow."""
    sent, sizes, log = live("flink", tmp_path, LIVE_SECONDS, kill=True)
    print(f"{sent:,} people; bytes of the checkpoints: {sizes}")
    check(tmp_path, sent, LIVE_SECONDS // 6)
    assert "from state RUNNING to RESTARTING" in log
    quarter = len(sizes) // 4
    assert median(sizes[-quarter:]) < 1.5 * median(sizes[quarter : 2 * quarter])


@pytest.mark.engines
@pytest.mark.slow
def test_messages_from_kafka_on_prism(tmp_path: Path) -> None:
    """Prism ends a job whose worker dies, so nobody is killed."""
    sent, _, _ = live("prism", tmp_path, min(60, LIVE_SECONDS), kill=False)
    check(tmp_path, sent, 5)
