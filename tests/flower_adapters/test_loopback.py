"""A whole training through Flower's own servers, with somebody who lies and then falls silent."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest

from beam_ldp.ledger import BudgetLedger
from flower_adapters import ClientMemory
from flower_adapters.checkpoint import read_checkpoint
from tests.flower_adapters.loopback import free_ports, run_session, write_app

UNRULY = """
import time

from flwr.clientapp import ClientApp

from flower_adapters.messages import Report
from honest import app as honest

app = ClientApp()


@app.train()
def train(message, context):
    if context.node_config.get("unruly"):
        if message.metadata.group_id == "2":
            time.sleep(300)
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
NODES = ("", "", "unruly=true")


def script(port: int) -> str:
    nodes = "\n".join(
        f"flower-supernode --insecure --superlink 127.0.0.1:{port} --port {port + 1 + i} "
        f"--node-config \"partition-id={i} privacy-memory='told-{i}.db' {more}\" "
        f"> node-{i}.log 2>&1 &"
        for i, more in enumerate(NODES)
    )
    return f"""
export FLWR_HOME=$PWD/home
mkdir home
printf '[superlink.here]\\naddress = "127.0.0.1:{port}"\\ninsecure = true\\n' > home/config.toml
flower-superlink --insecure --port {port} --disable-runtime-dependency-installation \
    > link.log 2>&1 &
{nodes}
until [ $(grep -sl 'SuperNode ID' node-?.log | wc -l) = 3 ]; do sleep 0.5; done
flwr run . here --stream
kill $(jobs -p)
wait
"""


@pytest.mark.e2e
def test_a_training_on_loopback(tmp_path: Path) -> None:
    """Two rounds fit the budget. A forged report is dropped in the first, its node is missing in
    the second; all of it is in the ledger, in MLflow and in clients' files. Nothing lives on."""
    write_app(tmp_path)
    (tmp_path / "client_app.py").rename(tmp_path / "honest.py")
    (tmp_path / "client_app.py").write_text(UNRULY)
    server = tmp_path / "server_app.py"
    code = server.read_text().replace("timeout=60", "timeout=100")
    assert code.count("grid, model()") == 1
    server.write_text(PATIENT + code.replace("grid, model()", "Patient(grid), model()"))
    url = f"sqlite:///{tmp_path}/privacy.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("lines", epsilon=9.0, delta=1e-6, local_epsilon=10.0)

    said, _ = run_session(script(free_ports(4)), tmp_path, timeout=150)

    assert "2 rounds, stopped by budget" in said
    status = ledger.status("lines")
    assert status.local_spent == 8.0 and status.num_open == 0
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("beam-ldp").experiment_id])
    (run,) = [run for run in runs if "round.asked" in run.data.metrics]  # the other: the budget

    def curve(name: str) -> list[float]:
        return [m.value for m in client.get_metric_history(run.info.run_id, name)]

    assert curve("round.asked") == [3, 3] and curve("round.reports") == [2, 2]
    assert curve("round.impossible") == [1, 0] and curve("round.missing") == [0, 1]
    assert curve("round.refused") == [0, 0] and curve("privacy.local_epsilon") == [4.0, 8.0]
    assert len(curve("public.loss")) == 2
    told = [ClientMemory(tmp_path / f"told-{i}.db", 40.0).local_epsilon for i in range(2)]
    assert told == [8.0] * 2 and not (tmp_path / "told-2.db").exists()
    kept = read_checkpoint(tmp_path / "line.npz")
    assert kept is not None and kept[1].rounds.tolist() == [[2, 2]]
