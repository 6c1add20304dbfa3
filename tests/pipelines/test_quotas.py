"""`--quota`: whose share of a budget a run is charged to, in every program that charges."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import GlobalWindows

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.accounting.prices import Price
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError, audit
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.release.reserving import charge_to, reserve
from beam_ldp.release.streams.job import Stream
from beam_ldp.settings import Charge, Noise, Output, Privacy, SettingError
from beam_ldp.settings.job import Job
from beam_ldp.transforms import ChargeTo
from tests.ledger.asked import KEY, asked

pytestmark = pytest.mark.exact

EVENT = LocalRandomizerDpEvent(1.0)
WORST = Price(None, 1, EVENT)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A local budget of 8, of which "maps" has two and "ads" one."""
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    found = f"sqlite:///{tmp_path / 'privacy.db'}"
    made = BudgetLedger.create(found)
    made.set_budget("visits", epsilon=100.0, delta=1e-6, local_epsilon=8.0)
    made.set_quota("visits", "maps", share=0.25)
    made.set_quota("visits", "ads", share=0.125)
    return found


def flags(url: str, run_id: str, quota: str = "", **how: Any) -> Job:
    """What a charge asks of every program's settings."""
    return Job(
        noise=Noise(dataset="visits", **how), privacy=Privacy(delta=1e-6),
        charge=Charge(ledger=url, run_id=run_id, quota=quota), output=Output(no_mlflow=True),
        question=None,
    )  # fmt: skip


def memoized(url: str, run_id: str, quota: str, folder: Path) -> Any:
    key = folder / "key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(bytes(range(32)))
    return flags(url, run_id, quota, key_file=str(key), id="week")


def test_every_program_that_names_a_charge_names_a_quota() -> None:
    """One list of flags: what has --run-id has --quota."""
    told = json.loads((Path(__file__).parents[1] / "packaging" / "stable.json").read_text())

    def flags_of(held: Any) -> list[list[str]]:
        if isinstance(held, dict):
            return [found for value in held.values() for found in flags_of(value)]
        return [held] if isinstance(held, list) else []

    charging = [found for found in flags_of(told) if "--run-id" in found]
    assert len(charging) >= 4
    assert all("--quota" in found for found in charging)


def test_a_run_is_charged_to_the_share_it_names_and_not_beyond(url: str) -> None:
    for i in range(2):
        reserve(flags(url, f"maps {i}", "maps"), WORST, "url")
    with pytest.raises(NothingReleasedError, match="keeps a share of 0.25 for 'maps'"):
        reserve(flags(url, "maps 2", "maps"), WORST, "url")
    reserve(flags(url, "ads", "ads"), WORST, "url")  # nobody else's
    for i in range(5):
        reserve(flags(url, f"rest {i}"), WORST, "url")
    with pytest.raises(NothingReleasedError):
        reserve(flags(url, "rest 5"), WORST, "url")
    with pytest.raises(SettingError, match="no quota 'sales'"):
        reserve(flags(url, "sales", "sales"), WORST, "url")
    rows = BudgetLedger(url).rows()
    named = {row.body["run_id"]: row.body["quota"] for row in rows if row.kind == "reserve"}
    assert (named["maps 0"], named["ads"], named["rest 0"]) == ("maps", "ads", "")
    assert "sales" not in named and audit(rows).clean


def test_a_retry_under_another_quota_is_refused(url: str, tmp_path: Path) -> None:
    """It would be paid by whom it suits: by the one, and released as the other's."""
    reserve(memoized(url, "nightly", "maps", tmp_path), WORST, "url")
    for quota in ("ads", ""):
        with pytest.raises(SettingError, match="already has its charge"):
            reserve(memoized(url, "nightly", quota, tmp_path), WORST, "url")
    again = reserve(memoized(url, "nightly", "maps", tmp_path), WORST, "url")
    assert again.facts["charged"] == "yes"
    ledger = BudgetLedger(url)
    assert (ledger.charge("nightly").attempts, ledger.charge("nightly").quota) == (2, "maps")
    assert ledger.status("visits").local_committed == 1.0


def test_another_name_does_not_move_a_release_to_another_quota(url: str, tmp_path: Path) -> None:
    reserve(memoized(url, "nightly", "maps", tmp_path), WORST, "url")
    with pytest.raises(SettingError, match="is releasing this very release"):
        reserve(memoized(url, "other", "ads", tmp_path), WORST, "url")


def test_a_second_publication_stays_with_who_paid_the_first(url: str, tmp_path: Path) -> None:
    reserve(memoized(url, "nightly", "maps", tmp_path), WORST, "url")
    ledger = BudgetLedger(url)
    charge = ledger.charge("nightly")
    ledger.settle("nightly", EVENT, identity=charge.identity, attempt=charge.attempt,
                  report_digest="d" * 64)  # fmt: skip
    for quota in ("ads", ""):
        with pytest.raises(SettingError, match="--quota must be 'maps'"):
            reserve(memoized(url, "again", quota, tmp_path), WORST, "url")
    reserve(memoized(url, "again", "maps", tmp_path), WORST, "url")


def test_two_at_once_do_not_share_the_last_of_a_quota(url: str) -> None:
    outcomes: list[str] = []

    def spend(name: int) -> None:
        ledger = BudgetLedger(url)
        for i in range(3):
            run = f"{name}/{i}"
            try:
                ledger.reserve("visits", run, EVENT, identity=asked("visits", run), quota="maps")
                outcomes.append("fits")
            except BudgetExceededError:
                outcomes.append("refused")

    threads = [threading.Thread(target=spend, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count("fits"), outcomes.count("refused")) == (2, 7)


def test_rows_that_end_a_charge_name_its_quota(url: str) -> None:
    """Settled, abandoned, given back in parts: all in the account that paid."""
    ledger = BudgetLedger(url)
    charge = ledger.reserve("visits", "hours", EVENT, identity=asked("visits", "hours", key=KEY),
                            memoized=True, count=2, quota="maps")  # fmt: skip
    first = asked("visits", "hours", key=KEY, part="1")
    ledger.settle("hours", EVENT, identity=first, attempt=charge.attempt)
    ledger.abandon("hours", randomized=False, why="enough", attempt=charge.attempt)
    account = ledger.balances.populations["visits"].account(0, "maps")
    assert (account.open, account.local) == (0, 1.0)
    assert ledger.balances.populations["visits"].account(0, "").charges == 0


def test_composites_and_streams_pass_it_on(url: str) -> None:
    told = charge_to(PipelineOptions([f"--ledger={url}", "--dataset=visits", "--quota=maps"]))
    assert told is not None and told.quota == "maps"
    stream: Any = SimpleNamespace(
        job=flags(url, "live", "maps"), run_id="live", windows=3,
    )  # fmt: skip
    live = Stream._budget(stream)
    assert live is not None and (live.quota, live.windows) == ("maps", 3)
    for i, budget in enumerate((told, ChargeTo("visits", url, quota="maps"))):
        held = budget.reserve(EVENT, identity=asked("visits", f"release {i}"),
                              windowing=GlobalWindows(), bounded=True)  # fmt: skip
        assert BudgetLedger(url).charge(held.run_id).quota == "maps"
    with pytest.raises(BudgetExceededError, match="'maps'"):
        told.reserve(EVENT, identity=asked("visits", "x"), windowing=GlobalWindows(), bounded=True)
    with pytest.raises(LedgerError, match="no quota"):
        ChargeTo("visits", url, quota="sales").reserve(
            EVENT, identity=asked("visits", "y"), windowing=GlobalWindows(), bounded=True
        )


def test_a_tracker_names_it_in_every_block(url: str) -> None:
    pytest.importorskip("mlflow")
    from mlflow_ldp.charges import Blocks

    ledger = BudgetLedger(url)
    tracker: Any = SimpleNamespace(
        dataset="visits", run_id="live", delta=1e-6, quota="maps", mlflow_run_id=""
    )
    blocks = Blocks(ledger, tracker)
    for _ in range(2):
        blocks.charge(EVENT, 1.0)
    with pytest.raises(BudgetExceededError, match="'maps'"):
        blocks.charge(EVENT, 1.0)
    assert {row.body["quota"] for row in ledger.rows() if "quota" in row.body} == {"maps", "ads"}
    assert ledger.balances.populations["visits"].account(0, "maps").local == 2.0
