"""The DAG of deploy/airflow: what Airflow would load, and what its tasks run. Airflow is not here.

Stand-ins take what the two classes are given; of templates there is the date alone.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines.programs import DONE, NOTHING_RELEASED
from beam_ldp.release.job_files import read_job
from tests.warm import warm_commands

DEPLOY = Path(__file__).parents[2] / "deploy" / "airflow"
USERS = 100_000


class Dag:
    def __init__(self, **how: Any) -> None:
        self.how = how

    def __enter__(self) -> Dag:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Bash:
    """A task, and the one that follows it."""

    def __init__(self, *, task_id: str, bash_command: str, append_env: bool, **how: Any) -> None:
        assert append_env, "or there is no PATH"
        self.task_id, self.command, self.how = task_id, bash_command, how
        self.next: Bash | None = None

    def __rshift__(self, other: Bash) -> Bash:
        self.next = other
        return other


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Bash]:
    """The tasks of the DAG, as Airflow would get them, in the order in which they run."""
    where = ["airflow", "providers", "standard", "operators", "bash"]
    for depth in range(1, len(where) + 1):
        monkeypatch.setitem(
            sys.modules, ".".join(where[:depth]), ModuleType(".".join(where[:depth]))
        )
    monkeypatch.setattr(sys.modules["airflow"], "DAG", Dag, raising=False)
    monkeypatch.setattr(sys.modules[".".join(where)], "BashOperator", Bash, raising=False)
    loaded = runpy.run_path(str(DEPLOY / "weekly_release.py"))
    assert loaded["dag"].how["dag_id"] == "weekly_release"
    found, task = dict[str, Bash](), loaded["plan"]
    while task is not None:
        found[task.task_id] = task
        task = task.next
    return found


@pytest.mark.exact
def test_the_dag_plans_releases_and_audits(tasks: dict[str, Bash]) -> None:
    assert list(tasks) == ["plan", "release", "audit"]
    assert all("--format json" in task.command for task in tasks.values())
    assert tasks["release"].how == {"retries": 2, "skip_on_exit_code": NOTHING_RELEASED}
    assert "--dry-run" in tasks["plan"].command and "--dry-run" not in tasks["release"].command
    ((program, given),) = read_job(str(DEPLOY / "job.yaml"))
    assert program == "frequency" and given["people"]["id"] == "uid"


@pytest.mark.e2e
@pytest.mark.slow
def test_its_commands_run(
    tasks: dict[str, Bash], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One week, its retry, which is charged once, and a week with too few people."""
    shutil.copy(DEPLOY / "job.yaml", tmp_path)
    (tmp_path / "answers.txt").write_text("yes\nno\n")
    (tmp_path / "week.key").write_bytes(os.urandom(32))
    (tmp_path / "in").mkdir()
    for date, users in (("2026-01-04", USERS), ("2026-01-11", 50)):
        rows = (f"{i},{'yes' if i % 3 else 'no'}\n" for i in range(users))
        (tmp_path / "in" / f"{date}.csv").write_text("uid,answer\n" + "".join(rows))
    url = f"sqlite:///{tmp_path}/privacy.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("visits", epsilon=1.0, delta=1e-8, local_epsilon=8.0)
    told = {"BEAM_LDP_LEDGER": url, "BEAM_LDP_FOLDER": str(tmp_path)}
    path = f"{warm_commands()}:{os.environ['PATH']}"

    def run(task: str, date: str) -> subprocess.CompletedProcess[str]:
        command = tasks[task].command.replace("{{ ds }}", date)
        return subprocess.run(
            ["bash", "-c", command], env={**os.environ, **told, "PATH": path}, text=True,
            capture_output=True, check=False,
        )  # fmt: skip

    planned = run("plan", "2026-01-04")
    assert planned.returncode == DONE and json.loads(planned.stdout)["dry_run"], planned.stderr
    spent = []
    for _ in range(2):
        done = run("release", "2026-01-04")
        assert done.returncode == DONE, done.stderr
        found = json.loads((tmp_path / "2026-01-04.json").read_text())
        spent.append((ledger.status("visits").spent, found["top"]))
    assert spent[0] == spent[1] and spent[0][0] > 0
    assert run("release", "2026-01-11").returncode == NOTHING_RELEASED
    assert run("audit", "2026-01-04").returncode == DONE
    assert json.loads((tmp_path / "audit.json").read_text())["clean"]
