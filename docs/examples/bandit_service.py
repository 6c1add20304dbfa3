"""Shows one of several banners to each visitor, and learns which is best (docs/bandits.md).

python docs/examples/bandit_service.py service 8000

A click is worth 1, anything else -1. Rewards of the open batch wait in `service.private`, and are
deleted once it is decided. Who came is written down nowhere, so that what is protected is a visit:
somebody who comes twice is there twice.
"""

import csv
import json
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from secrets import token_hex

import pyarrow.parquet as pq

PATIENCE = 600  # seconds in which a visitor may click
PAGE = Path(__file__).with_name("bandit_service.html")


class Service:
    """The open batch of a service, and the visitors who may still click."""

    def __init__(self, state: Path) -> None:
        self.state, self.private = state, Path(f"{state}.private")
        self.private.mkdir(mode=0o700, exist_ok=True)
        self.waiting: dict[str, tuple[float, str]] = {}
        self.begin()

    def begin(self) -> None:
        """The batch that is open now, without the plays that were answered before a restart."""
        self.known = json.loads((self.state / "state.json").read_text())
        number = self.known["open"]["batch"] if self.known["open"] else 0
        self.rewards = self.private / f"batch-{number}.csv"
        secret = self.private / f"batch-{number}.slots.parquet"
        slots = secret if secret.exists() else self.state / secret.name
        self.plays = pq.read_table(slots)["play"].to_pylist() if number else []
        if not self.rewards.exists():
            self.rewards.write_text("play,reward,visit\n")
        for row in csv.DictReader(self.rewards.open()):
            self.plays.remove(row["play"])
        if number and not self.plays:  # the last reward came, and then a restart
            self.decide()

    def come(self) -> dict[str, str]:
        """What a visitor sees; a visit has a name where its reward counts."""
        late = time.time() - PATIENCE
        for visit in [name for name, (since, _) in self.waiting.items() if since < late]:
            self.reward(visit, -1)
        if not self.plays:
            return {"action": self.known["best"]}
        visit, play = token_hex(8), self.plays.pop()
        self.waiting[visit] = time.time(), play
        return {"action": play.split(":", 1)[1], "visit": visit}

    def reward(self, visit: str, value: int) -> None:
        """What a visit was worth, once; the last one decides the batch."""
        if visit not in self.waiting:
            return
        with self.rewards.open("a") as file:
            csv.writer(file).writerow([self.waiting.pop(visit)[1], value, visit])
        if not self.plays and not self.waiting:
            self.decide()

    def decide(self) -> None:
        """Every slot has its reward: the batch is decided, and the next one begins."""
        command = ["bandit", "advance", f"--state={self.state}", f"--rewards={self.rewards}"]
        whose = ["--user-id=visit", "--privacy-unit=visit"]
        cli = [sys.executable, "-m", "beam_ldp.pipelines.cli", *command, *whose]
        subprocess.run(cli, check=True)
        self.rewards.unlink()
        self.begin()


class Handler(BaseHTTPRequestHandler):
    """GET / is the page, /come a visit, /state.json and /picture what is known; POST a reward."""

    def do_GET(self) -> None:
        """Pages, visits, and what is known."""
        if self.path == "/come":
            self.answer(json.dumps(SERVICE.come()).encode(), "application/json")
        elif self.path == "/state.json":
            self.answer(json.dumps(SERVICE.known).encode(), "application/json")
        elif self.path == "/picture" and SERVICE.known["decided"]:
            batch = SERVICE.known["decided"][-1]["batch"]
            self.answer((SERVICE.state / f"batch-{batch}" / "plot.png").read_bytes(), "image/png")
        else:
            self.answer(PAGE.read_bytes(), "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """A reward: the name of a visit, and 1 for a click."""
        visit, value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        SERVICE.reward(visit, 1 if value == 1 else -1)
        self.answer(b"{}", "application/json")

    def answer(self, body: bytes, kind: str) -> None:
        """One answer, which nobody keeps."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a log of who saw what would undo what shuffling hides."""


if __name__ == "__main__":
    SERVICE = Service(Path(sys.argv[1]))
    HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
