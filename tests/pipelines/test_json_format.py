"""`--format json`: every command prints one object on stdout, and everything else on stderr."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from tests.ledger.asked import asked

pytestmark = pytest.mark.e2e

USERS = 1_000


class Place:
    """A folder with people, a list, and a ledger with one open run about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = (f"{i},{'yes' if i % 2 else 'no'},{i % 60}\n" for i in range(USERS))
        (folder / "people.csv").write_text("uid,answer,age\n" + "".join(rows))
        (folder / "domain.txt").write_text("yes\nno\n")
        self.url = f"sqlite:///{folder}/privacy.db"
        self.ledger = BudgetLedger.create(self.url)
        self.ledger.set_budget("visits", epsilon=9.0, delta=1e-6, local_epsilon=20.0)
        event = LocalRandomizerDpEvent(1.0)
        self.ledger.reserve("visits", "open", event, identity=asked("visits", "week 1"))

    def on_people(self, program: str, *more: str) -> list[str]:
        told = [f"--input={self.folder}/people.csv", f"--output={self.folder}/out",
                f"--expected-users={USERS}", "--local-epsilon=2", "--delta=1e-6", "--no-ledger",
                "--no-mlflow"]  # fmt: skip
        if program == "randomize":
            told = [flag for flag in told if not flag.startswith(("--no-", "--d", "--ex"))]
        return [program, *told, *more]

    def frequency(self) -> list[str]:
        return self.on_people("frequency", "--column=answer", f"--domain={self.folder}/domain.txt")

    def released(self) -> str:
        assert run(*self.frequency()).exit_code == DONE
        return f"{self.folder}/out"

    def randomize(self) -> list[str]:
        named = ["--dataset=visits", "--release-id=week 2", "--column=answer"]
        return self.on_people("randomize", *named, f"--domain={self.folder}/domain.txt")

    def collect(self) -> list[str]:
        assert run(*self.randomize()).exit_code == DONE
        reports = self.folder / "out"
        return ["collect", f"--reports={reports}", f"--release={reports}/release.json",
                f"--domain={self.folder}/domain.txt", "--delta=1e-6", "--no-ledger", "--no-mlflow",
                f"--expected-users={USERS}", f"--output={self.folder}/collected"]  # fmt: skip

    def derive(self) -> list[str]:
        secret = self.folder / "secret.key"
        secret.write_bytes(bytes(32))
        secret.chmod(0o600)
        levels = ["--levels=2,1", f"--level-secret={secret}"]
        told = [flag for flag in self.randomize() if flag != "--local-epsilon=2"]
        assert run(*told, *levels).exit_code == DONE
        return ["keys", "derive", f"--level-secret={secret}", "--level-epsilon=2",
                f"--release={self.folder}/out/release.json",
                f"--output={self.folder}/reader.key"]  # fmt: skip

    def recover(self) -> list[str]:
        key, consents = self.folder / "recover.key", self.folder / "consents.txt"
        made = [*self.randomize(), "--user-id=uid", f"--recover-key-file={key}"]
        assert run(*made).exit_code == DONE
        consents.write_text("7\n")
        return ["recover", f"--reports={self.folder}/out", f"--recover-key-file={key}",
                f"--release={self.folder}/out/release.json", f"--consents={consents}",
                f"--domain={self.folder}/domain.txt",
                f"--output={self.folder}/recovered.csv"]  # fmt: skip

    def job(self) -> list[str]:
        """Two questions of different kinds: two releases, in one object."""
        job = {
            "source": {"csv": f"{self.folder}/people.csv"},
            "people": {"id": "uid"},
            "release": {"ledger": "none"},
            "questions": [
                {"frequency": "answer", "domain": f"{self.folder}/domain.txt"},
                {"mean": "age", "range": [0, 60]},
            ],
            "privacy": {"local_epsilon": 4, "delta": 1e-6, "expected_users": USERS},
            "output": {"folder": f"{self.folder}/out", "no_mlflow": True},
        }
        (self.folder / "job.json").write_text(json.dumps(job))
        return ["run", f"{self.folder}/job.json"]

    def finalize(self) -> list[str]:
        charged = ["--dataset=visits", f"--ledger={self.url}", "--user-id=uid"]
        flags = [flag for flag in self.frequency() if flag != "--no-ledger"]
        assert run(*flags, *charged).exit_code == DONE
        return ["finalize", f"{self.folder}/out", "--ledger", self.url]

    def accept(self) -> list[str]:
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / "key.pem").write_bytes(pem)
        return self.budget("accept", "2", "--sign-with", f"{self.folder}/key.pem", "--why=2026")

    def succeed(self) -> list[str]:
        with sqlite3.connect(f"{self.folder}/privacy.db") as connection:
            connection.execute("UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'open'")
        new = f"sqlite:///{self.folder}/new.db"
        return ["budget", "succeed", "--from", self.url, "--ledger", new, "--why=the disk"]

    def experiment(self) -> list[str]:
        design = f"{self.folder}/test.json"
        planned = run("ab-test", "design", "--null=0.5", "--effect=0.2", "--local-epsilon=2",
                      "--arms=1", f"--output={design}")  # fmt: skip
        assert planned.exit_code == DONE
        rows = "".join(f"{i},{i % 2}\n" for i in range(USERS))
        (self.folder / "visits.csv").write_text("uid,bought\n" + rows)
        return ["ab-test", "run", f"--input={self.folder}/visits.csv", "--outcome=bought",
                f"--design={design}", f"--output={self.folder}/out", "--no-ledger",
                "--no-mlflow"]  # fmt: skip

    def from_devices(self) -> list[str]:
        rows = self.experiment()
        sent = ["randomize", rows[2], "--column=bought", f"--experiment={self.folder}/test.json",
                "--dataset=visits", f"--output={self.folder}/out"]  # fmt: skip
        assert run(*sent).exit_code == DONE
        return ["ab-test", "decide", f"--reports={self.folder}/out", rows[4], "--no-ledger",
                "--no-mlflow"]  # fmt: skip

    def started(self) -> list[str]:
        (self.folder / "actions.csv").write_text("name,x,y\nblue,1,0\nred,0,1\n")
        return ["bandit", "start", f"--actions={self.folder}/actions.csv", "--horizon=3000",
                "--dataset=visitors", f"--state={self.folder}/service"]  # fmt: skip

    def served(self) -> list[str]:
        assert run(*self.started()).exit_code == DONE
        slots = pq.read_table(self.folder / "service" / "batch-1.slots.parquet")
        rewards = slots.append_column("reward", [[1.0] * len(slots)])
        pq.write_table(rewards, self.folder / "batch1.parquet")
        return ["bandit", "advance", f"--state={self.folder}/service", "--no-ledger",
                f"--rewards={self.folder}/batch1.parquet", "--no-mlflow"]  # fmt: skip

    def sent(self) -> list[str]:
        state, rewards = self.served()[2], self.folder / "batch1.parquet"
        release = self.folder / "service" / "batch-1.release.json"
        done = run("randomize", f"--release={release}", f"--input={rewards}",
                   f"--output={self.folder}/out")  # fmt: skip
        assert done.exit_code == DONE, done.output
        return ["bandit", "collect", state, f"--reports={self.folder}/out", "--no-ledger",
                "--no-mlflow"]  # fmt: skip

    def asked(self) -> list[str]:
        log = self.folder / "asked.jsonl"
        log.write_text('{"seq":0,"user":1,"randomizer":"rr","round":0,"epsilon":1,"output":1}\n')
        return ["audit-interactivity", str(log), "--epsilon=1"]

    def people(self) -> list[str]:
        return self.budget("people", "--dataset=visits", f"--people-store={self.folder}/store")

    def budget(self, command: str, *more: str) -> list[str]:
        return ["budget", command, "--ledger", self.url, *more]


SMALL = ["--users=2000", "--no-mlflow"]
VISITS = "--dataset=visits"
CASES: dict[str, Callable[[Place], list[str]]] = {
    "audit": lambda place: ["audit", "--ledger", place.url, "--workers=1"],
    "audit-interactivity": Place.asked,
    "budget abandon": lambda place: place.budget("abandon", "open", "--why=never read"),
    "budget accept": Place.accept,
    "budget accept-time": lambda place: place.budget("accept-time", "--why=it is right"),
    "budget init": lambda place: place.budget("init"),
    "budget people": Place.people,
    "budget quota": lambda place: place.budget("quota", VISITS, "--quota=maps", "--share=0.5"),
    "ab-test design": lambda place: [
        "ab-test", "design", "--null=0.1", "--effect=0.1", "--local-epsilon=2",
        f"--output={place.folder}/test.json",
    ],
    "ab-test decide": Place.from_devices,
    "bandit advance": Place.served,
    "bandit collect": Place.sent,
    "bandit start": Place.started,
    "bandit plan": lambda place: [
        "bandit", "plan", "--actions=circle:3", "--horizon=1000", "--repeat=2", "--model=local",
    ],
    "bandit simulate": lambda place: [
        "bandit", "simulate", "--actions=circle:3", "--horizon=1000", "--repeat=2",
        "--models=none,local",
    ],
    "ab-test run": Place.experiment,
    "budget rename": lambda place: place.budget("rename", "visits", "calls"),
    "budget set": lambda place: place.budget(
        "set", "--dataset=other", "--epsilon=1", "--delta=1e-6", "--new"
    ),
    "budget show": lambda place: place.budget("show"),
    "budget succeed": Place.succeed,
    "check": lambda place: ["check", *place.frequency()],
    "collect": Place.collect,
    "demo": lambda place: ["demo", *SMALL, "--words=50", f"--output={place.folder}/demo"],
    "demo mean": lambda place: ["demo", "mean", *SMALL, f"--output={place.folder}/demo"],
    "doctor": lambda place: ["doctor"],
    "finalize": Place.finalize,
    "frequency": Place.frequency,
    "heavy-hitters": lambda place: place.on_people(
        "heavy-hitters", "--column=age", "--user-id=uid", "--max-bytes=2", "--code-bits=30",
        "--false-words=1",
    ),
    "keys derive": Place.derive,
    "mean": lambda place: place.on_people("mean", "--column=age", "--range", "0", "60"),
    "plan": lambda place: [
        "plan", "frequency", "--domain-size=9", "--local-epsilon=2", "--expected-users=1e4",
        "--delta=1e-6",
    ],
    "privacy": lambda place: [
        "privacy", "--local-epsilon=2", "--expected-users=60000", "--delta=1e-5",
    ],
    "randomize": Place.randomize,
    "reconstruct": lambda place: [
        "reconstruct", "--mechanism=PrivUnit", "--dimension=9", "--local-epsilon=3", "--people=20",
    ],
    "recover": Place.recover,
    "run": Place.job,
    "statement": lambda place: ["statement", place.released()],
    "train": lambda place: [
        "train", "--data=mnist5k", "--local-epsilon=2", "--clients-per-round=200", "--epochs=3",
        "--delta=1e-5", "--dry-run",
    ],
    "user-mean": lambda place: place.on_people(
        "user-mean", "--column=age", "--range", "0", "60", "--user-id=uid", "--rows-per-user=2",
        "--sigma=20", "--user-sigma=20",
    ),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    return Place(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments)


def commands(found: click.Group, *before: str) -> Iterator[str]:
    """Every command that does something, by the words that one types."""
    context = click.Context(found)
    for name in found.list_commands(context):
        command = found.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join([*before, name])


def test_every_command_is_tried_here() -> None:
    assert set(commands(group)) == set(CASES)


@pytest.mark.parametrize("command", CASES)
def test_one_object_on_stdout(command: str, place: Place) -> None:
    done = run(*CASES[command](place), "--format", "json")
    assert done.exit_code == DONE, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    assert isinstance(told, dict) and told["schema_version"] >= 1
    if command == "run":
        assert [job["program"] for job in told["jobs"]] == ["frequency", "mean"]
        assert all(job["privacy"]["num_reports"] == USERS for job in told["jobs"])


@pytest.mark.parametrize(
    ("more", "code"),
    [(["--min-reports=5000"], NOTHING_RELEASED), (["--delta=7"], MISUSED)],
)
def test_what_did_not_work_is_an_exit_code_and_nothing_on_stdout(
    place: Place, more: list[str], code: int
) -> None:
    flags = place.frequency()
    done = run(*flags, *more, "--format", "json")
    assert done.exit_code == code and done.stdout == "" and done.stderr


def test_of_two_releases_the_first_is_told_where_the_second_fails(place: Place) -> None:
    """Only the rows themselves tell that too few people have an age."""
    rows = (f"{i},yes,{i % 60 if i < 600 else ''}\n" for i in range(USERS))
    (place.folder / "people.csv").write_text("uid,answer,age\n" + "".join(rows))
    done = run(*place.job(), "--format", "json")
    assert done.exit_code == NOTHING_RELEASED
    assert [one["program"] for one in json.loads(done.stdout)["jobs"]] == ["frequency"]


def test_of_two_releases_none_is_made_where_a_check_refuses_one(place: Place) -> None:
    job = place.job()
    (place.folder / "out" / "mean").mkdir(parents=True)
    (place.folder / "out" / "mean" / "mine.txt").write_text("something else")
    done = run(*job, "--format", "json")
    assert (done.exit_code, done.stdout) == (MISUSED, "") and "out/mean exists" in done.stderr
    assert not (place.folder / "out" / "frequency").exists()
