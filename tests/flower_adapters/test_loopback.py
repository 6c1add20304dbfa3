"""The quickstart typed as it stands, and on its servers a training with somebody unruly.

One session for both: starting Flower's processes is what takes the time.
"""

from __future__ import annotations

import re
from pathlib import Path

import mlflow
import pytest

from beam_ldp.ledger import BudgetLedger
from flower_adapters import ClientMemory
from flower_adapters.checkpoint import read_checkpoint
from tests.flower_adapters.loopback import PAGE, free_ports, run_session, write_app
from tests.packaging.doc_commands import blocks

UNRULY = """
import time

from flwr.clientapp import ClientApp

from flower_adapters.messages import Report
from honest import app as honest

app = ClientApp()


@app.train()
def train(message, context):
    if context.node_config["partition-id"] == 2:
        if message.metadata.group_id == "2":
            time.sleep(600)
        return Report(b"\\xff" * 8, b"0" * 16).reply_to(message)  # far longer than the mechanism's
    return honest(message, context)
"""
PATIENT = '''
import time


class Patient:
    """A grid that ends a round when all have answered who will."""

    def __init__(self, grid):
        self.grid = grid

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout):
        until, replies = time.monotonic() + timeout, []
        wanted = 3 if messages[0].metadata.group_id == "1" else 2
        waiting = set(self.grid.push_messages(messages))
        while len(replies) < wanted and time.monotonic() < until:
            new = list(self.grid.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            replies += new
            time.sleep(0.5)
        return replies


'''


def write_unruly(folder: Path) -> None:
    """The page's app under other names, with a client who lies and then falls silent."""
    folder.mkdir()
    write_app(folder)
    (folder / "client_app.py").rename(folder / "honest.py")
    (folder / "client_app.py").write_text(UNRULY)
    changes = {
        "server_app.py": {'"lines"': '"others"', "line.npz": "others.npz", "timeout=60":
                          "timeout=200", "grid, model()": "Patient(grid), model()"},
        "task.py": {"line-2026-11": "unruly"},
        "pyproject.toml": {'name = "line"': 'name = "unruly"'},
    }  # fmt: skip
    for name, replaced in changes.items():
        code = (folder / name).read_text()
        for before, after in replaced.items():
            assert code.count(before) == 1, (name, before)
            code = code.replace(before, after)
        (folder / name).write_text((PATIENT if name == "server_app.py" else "") + code)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder, and what the shell printed. The commands of the page end all that they started;
    who fell silent, a process that heeds nothing, may be left to be killed."""
    folder = tmp_path_factory.mktemp("flower")
    write_app(folder)
    write_unruly(folder / "unruly")
    budget, run, end = (b.script for b in blocks(PAGE) if b.target == "test-flower")
    again = [line.replace("lines", "others") for line in budget if "budget set" in line]
    script = "\n".join([*budget, *again, *run, "flwr run unruly here --stream", *end])
    port = free_ports(4)
    script = script.replace("9190", str(port)).replace("9191", str(port + 1))
    said, killed = run_session(script, folder, timeout=400)
    assert len(killed) <= 1 and all("flwr-clientapp" in line for line in killed), killed
    return folder, said


def curves(folder: Path, dataset: str) -> dict[str, list[float]]:
    """The metrics of a data set's training in MLflow, in the order of steps."""
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("beam-ldp").experiment_id])
    (run,) = [
        run for run in runs
        if "round.asked" in run.data.metrics and run.data.params["privacy.dataset"] == dataset
    ]  # fmt: skip
    return {
        name: [point.value for point in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


@pytest.mark.e2e
@pytest.mark.timeout(450)
def test_the_quickstart_runs_as_it_stands(session: tuple[Path, str]) -> None:
    """Two rounds; the third, which the budget does not hold, asks nobody."""
    folder, said = session
    (promised,) = re.findall(r"^```text\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert promised in said
    status = BudgetLedger(f"sqlite:///{folder}/privacy.db").status("lines")
    assert status.local_spent == 8.0 and status.num_open == 0
    found = curves(folder, "lines")
    assert found["privacy.local_epsilon"] == [4.0, 8.0] == found["privacy.epsilon"]
    assert found["round.reports"] == [3, 3] and len(found["public.loss"]) == 2


@pytest.mark.e2e
def test_a_liar_who_falls_silent_is_counted_and_changes_nothing_else(
    session: tuple[Path, str],
) -> None:
    """A forged report is dropped in the first round, its node is missing in the second; all of it
    is in the ledger, in MLflow, in the checkpoint and in clients' files."""
    folder, said = session
    assert said.count("2 rounds, stopped by budget") == 2
    status = BudgetLedger(f"sqlite:///{folder}/privacy.db").status("others")
    assert status.local_spent == 8.0 and status.num_open == 0
    found = curves(folder, "others")
    assert found["round.asked"] == [3, 3] and found["round.reports"] == [2, 2]
    assert found["round.impossible"] == [1, 0] and found["round.missing"] == [0, 1]
    assert found["round.refused"] == [0, 0] and found["privacy.local_epsilon"] == [4.0, 8.0]
    told = [ClientMemory(folder / f"told-{i}.db", 40.0).local_epsilon for i in range(3)]
    assert told == [16.0, 16.0, 8.0]  # of both trainings; a forged report is no report
    ledger = BudgetLedger(f"sqlite:///{folder}/privacy.db").ledger_id
    kept = read_checkpoint(folder / "others.npz", "unruly", ledger)
    assert kept is not None and kept[1].rounds.tolist() == [[2, 2]]
