"""The example service of docs/bandits.md, with a visitor in a real browser."""

from __future__ import annotations

import csv
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.decisions.commands.test_bandit_service import started, state

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "bandit_service.py"


class Site:
    """The service in a process of its own: what is tested is that it can be killed."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}/"
        self.folder, self.log = folder, (folder / "log").open("ab")
        self.start()

    def start(self) -> None:
        port = self.address.split(":")[2].strip("/")
        command = [sys.executable, str(EXAMPLE), str(self.folder / "service"), port]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                self.get("state.json")
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            return bytes(answer.read())

    def come(self) -> dict[str, str]:
        return dict(json.loads(self.get("come")))

    def reward(self, visit: str, value: int) -> None:
        body = json.dumps([visit, value]).encode()
        urllib.request.urlopen(self.address + "reward", body, timeout=60).close()

    def browse(self, then: str = "") -> str:
        """The page as a browser shows it."""
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        assert browser, "this test needs Chromium (`make tools`)"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000",
                 f"--user-data-dir={self.folder}/browser", "--dump-dom"]  # fmt: skip
        command = [browser, *flags, self.address + then]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        ).stdout


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    assert started(tmp_path).exit_code == 0
    found = Site(tmp_path)
    yield found
    found.stop()
    found.log.close()


@pytest.mark.e2e
@pytest.mark.slow
def test_a_batch_is_served_and_what_is_known_is_shown(site: Site) -> None:
    """Needs a browser, which `make test` must not: hence slow."""
    plays: dict[str, int] = {}
    for i in range(228):
        if i == 100:  # a kill: a visitor is lost who might have clicked, her slot is not
            site.come()
            site.stop()
            site.start()
        visit = site.come()
        plays[visit["action"]] = plays.get(visit["action"], 0) + 1
        site.reward(visit["visit"], 1 if visit["action"] == "red" else -1)
        site.reward(visit["visit"], -1)  # a second click counts nothing
    rewards = site.folder / "service.private" / "batch-1.csv"
    with rewards.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 228 and set(rows[0]) == {"play", "reward", "visit"}
    assert sum(plays.values()) == 228 and max(plays.values()) <= 115
    site.reward(site.come()["visit"], -1)
    assert state(site.folder)["decided"] == []
    page = site.browse("#click")  # the last visitor
    assert re.search(r'id="action">(blue|red)<', page) and "Thank you!" in page
    decided = state(site.folder)["decided"]
    assert [one["people"] for one in decided] == [230] and not rewards.exists()
    shown = "Batch 2 asks 680 people; best so far: red"
    for _ in range(5):  # on a busy machine the browser prints the page before its last answer came
        page = site.browse()
        if shown in page:
            break
    assert shown in page
    assert "I want it" in page and re.search(r'<img src="picture"', page)
    assert site.get("picture") == (site.folder / "service/batch-1/plot.png").read_bytes()
    log = (site.folder / "log").read_text()
    assert "127.0.0.1" not in log and "GET" not in log  # who came is written down nowhere


@pytest.mark.e2e
@pytest.mark.slow
def test_rewards_of_a_service_that_was_stopped_before_the_decision_decide(tmp_path: Path) -> None:
    """Every slot had its reward: the next start decides."""
    assert started(tmp_path).exit_code == 0
    slots: Any = pq.read_table(tmp_path / "service/batch-1.slots.parquet")["play"].to_pylist()
    private = tmp_path / "service.private"
    private.mkdir(mode=0o700)
    lines = [f"{play},1,visit-{i}" for i, play in enumerate(slots)]
    (private / "batch-1.csv").write_text("\n".join(["play,reward,visit", *lines]) + "\n")
    site = Site(tmp_path)
    try:
        assert state(tmp_path)["open"]["batch"] == 2
        assert not (private / "batch-1.csv").exists()
    finally:
        site.stop()
        site.log.close()
