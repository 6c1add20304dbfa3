"""`tff.learning.programs.train_model`, killed at every kind of moment, counts at least what ran."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from beam_ldp.ledger import BudgetLedger
from tests.tff_adapters.train_model_job import DELTA, LOCAL_EPSILON, MOMENTS

ROUNDS = 3


def program(folder, url, moment):
    command = [sys.executable, "-m", "tests.tff_adapters.train_model_job"]
    return subprocess.run(
        [*command, str(folder), url, str(ROUNDS), moment, "2"],
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_rounds_that_ran_before_a_kill_or_after_it_were_charged(tmp_path, capsys):
    """Killed in its second round, run again to the end: one kill of each kind, and their table."""
    rows = ["| killed when the round | ran before | ran in all | charged | states | wrong |"]
    for moment in MOMENTS:
        folder = tmp_path / moment
        folder.mkdir()
        ledger = BudgetLedger.create(f"sqlite:///{folder / 'privacy.db'}")
        ledger.set_budget("people", epsilon=1e6, delta=DELTA)
        killed = program(folder, ledger.url, moment)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
        before = (folder / "asked").read_text().split()
        assert charged(ledger) >= len(before)
        done = program(folder, ledger.url, "never")
        assert done.returncode == 0, done.stderr[-2000:]
        assert "Traceback" not in done.stderr and "ServiceManager" not in done.stderr
        ran = (folder / "asked").read_text().split()
        states = sorted(path.name for path in (folder / "states").iterdir())
        wrong = charged(ledger) < len(ran) or set(ran) != {"1", "2", "3"}
        told = (moment, len(before), len(ran), charged(ledger), len(states), wrong)
        rows.append("".join(f"| {one} " for one in told) + "|")
        assert not wrong and states[-1].endswith(f"_{ROUNDS}")
        assert moment != "ran" or len(ran) > ROUNDS, (
            "it was not saved, and is run and charged again"
        )
    with capsys.disabled():
        print("", *rows, sep="\n")


def charged(ledger):
    """Rounds that the ledger counts, with those that were reserved ahead."""
    return BudgetLedger(ledger.url).status("people").local_committed / LOCAL_EPSILON
