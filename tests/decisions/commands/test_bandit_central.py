"""A bandit whose server is trusted: sums with noise once, what that costs, and pairs of runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.decisions import bandit_advance, bandit_collect
from beam_ldp.decisions import usage as collect_usage
from beam_ldp.decisions.bandits.noise import CentralSums
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.registry_entry import entry
from beam_ldp.release.runner import price_line
from beam_ldp.release.statement import statement
from beam_ldp.settings import SettingError
from tests.decisions.commands.test_bandit_service import (
    advanced,
    rewards_of,
    snapshot,
    started,
    state,
)

pytestmark = pytest.mark.e2e

EPSILON = 2.0
SUMS = CentralSums(EPSILON)
REWARDS = {"blue": 0.2, "red": 0.9, "green": -0.66}


def in_(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / "service" / name).read_text()))


def given(folder: Path, number: int, *, drop: int = 0) -> Path:
    """Rewards whose noise, of scale 1, decides nothing else but once in e^20 times."""
    path = rewards_of(folder, number, drop=drop)
    table = pq.read_table(path)
    rewards = [REWARDS[action] for action in table["action"].to_pylist()]
    pq.write_table(table.set_column(3, "reward", pa.array(rewards)), path)
    return path


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service of a trusted server after its first batch, charged to a ledger."""
    folder = tmp_path_factory.mktemp("central")
    assert started(folder, "--model=central").exit_code == 0
    url = f"sqlite:///{folder}/privacy.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=2.5, delta=1e-9)
    code, said = advanced(folder, given(folder, 1), f"--ledger={url}")
    assert code == programs.DONE, said
    return folder


@pytest.fixture
def service(decided: Path, tmp_path: Path) -> Path:
    """The same, in a place of its own."""
    shutil.copytree(decided, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_what_is_released_is_the_sum_with_noise_on_a_grid(decided: Path) -> None:
    """Not the sum itself, but for once in four million times; within 30 scales of it, but for once
    in e^30 times."""
    rows = pq.read_table(decided / "batch1.parquet").to_pylist()
    sums = in_(decided, "batch-1/verdict.json")["sums"]
    for play in ("1:blue", "1:red"):
        exact = sum(row["reward"] for row in rows if row["play"] == play)
        cells = sums[play] * SUMS.cells
        assert abs(cells - round(cells)) < 1e-6 and round(cells) != exact * SUMS.cells
        assert abs(sums[play] - exact) < 30 * 2 / EPSILON


def test_it_decides_and_asks_the_next_batch(decided: Path) -> None:
    told = state(decided)
    assert told["open"]["batch"] == 2 and told["best"] == "red"
    assert told["decided"][0]["people"] == 230 and told["decided"][0]["local_epsilon"] is None
    asked = in_(decided, "batch-2.json")
    assert (asked["epsilon"], asked["delta"], asked["local_epsilon"]) == (EPSILON, 0.0, None)


def test_the_service_is_public_and_tells_devices_nothing(decided: Path) -> None:
    there = {path.name for path in (decided / "service").iterdir()}
    assert there == {"state.json", "batch-1", *(f"batch-{i}.json" for i in (1, 2)),
                     *(f"batch-{i}.slots.parquet" for i in (1, 2))}  # fmt: skip
    files = {path.name for path in (decided / "service/batch-1").iterdir()}
    assert files == {"estimates.csv", "estimates.parquet", "plot.png", "privacy.json",
                     "privacy.md", "verdict.json"}  # fmt: skip


def test_the_record_says_whom_it_holds_against(decided: Path) -> None:
    record = in_(decided, "batch-1/privacy.json")
    assert (record["epsilon"], record["epsilon_lower"], record["delta"]) == (EPSILON, EPSILON, 0.0)
    assert record["local_epsilon"] is None and record["model"] == "central"
    assert record["amplify_over"] is None and record["exactness"] == "exact"
    assert record["mechanism"] == SUMS.to_config()
    assert event_from_json(record["event"]) == SUMS.event
    assert [part["epsilon"] for part in record["parts"]] == [EPSILON, EPSILON]
    assert any("no local epsilon" in warning for warning in record["warnings"])
    protection = entry(record)["deployment"]
    assert protection["privacy_loss"]["privacy_parameters"] == {"epsilon": EPSILON}
    assert protection["dp_variant"]["variant_name"] == "Pure DP"
    assert protection["deployment_model"]["model_name"] == "Central"


def test_the_statement_begins_with_the_server(decided: Path) -> None:
    told = (decided / "service/batch-1/privacy.md").read_text()
    assert told.split("\n\n")[1].startswith("**The server is trusted with every reward")
    assert "epsilon = 2 at delta = 0 |" in told and "adds" not in told.split("## How")[0]
    assert "huffler" not in told and "Randomize" not in told
    assert "fixed before anything was read" in told and "pays for each" in told


def test_only_a_trusted_server_is_said_to_be_one(decided: Path) -> None:
    """The same record of other models says whom those rest on."""
    told = in_(decided, "batch-1/privacy.json")
    names = {field.name for field in fields(PrivacyRecord) if field.init} & told.keys()
    plain = {name: told.pop(name) for name in names} | {"local_epsilon": 2.0}
    record = PrivacyRecord(**plain, kind="central_batch", details=told)
    assert "at delta = 0 against readers" in price_line(record)
    local, shuffled = (
        replace(record, kind="bandit_batch", details=told | {"model": model})
        for model in ("local", "shuffle")
    )
    assert "Only the device is trusted" in statement(local.told())
    assert "The shuffler**" in statement(shuffled.told())
    for other in (local, shuffled):
        assert "--model central" not in statement(other.told())


def test_intervals_count_the_noise_by_its_law(decided: Path) -> None:
    table = pc.read_csv(decided / "service/batch-1/estimates.csv")
    half = (np.array(table["high"]) - np.array(table["low"])) / 2
    assert np.allclose(half, SUMS.half_width(115, 0.95), rtol=1e-9)
    assert np.allclose(table["standard_error"], SUMS.standard_error(115), rtol=1e-9)


def test_the_ledger_is_charged_epsilon_and_audits_clean(decided: Path) -> None:
    url = f"sqlite:///{decided}/privacy.db"
    status = BudgetLedger(url).status("visitors")
    assert 0.99 * EPSILON <= status.spent <= EPSILON + 1e-9
    found = CliRunner().invoke(group, ["audit", f"--ledger={url}", "--format=json"])
    assert found.exit_code == 0, found.output


def test_the_same_rewards_again_draw_no_noise(service: Path) -> None:
    before = snapshot(service)
    assert advanced(service, service / "batch1.parquet")[0] == programs.DONE
    assert snapshot(service) == before


def test_a_second_decision_after_a_backup_is_refused(service: Path) -> None:
    """Before anything is read: new noise of the same sums would cost as much again."""
    shutil.rmtree(service / "service/batch-1")
    shutil.rmtree(service / "service.private")
    for path in (service / "service").glob("batch-2*"):
        path.unlink()
    ledger = f"--ledger=sqlite:///{service}/privacy.db"
    code, said = advanced(service, service / "batch1.parquet", ledger)
    assert code != programs.DONE, said
    assert not (service / "service/batch-1").exists()


def test_a_budget_of_local_epsilons_allows_no_trusted_server(service: Path) -> None:
    """It bounds what people tell whoever sees what they send, and they send rewards."""
    url = f"sqlite:///{service}/local.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=30.0, delta=1e-6, local_epsilon=8.0)
    code, said = advanced(service, given(service, 2), f"--ledger={url}")
    assert code == programs.NOTHING_RELEASED and "local epsilons that sum to 8" in said


def test_a_second_batch_of_two_at_once_is_not_released(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run is decided while another is on its way: the folder has one of them, whole."""
    rewards, gate = given(service, 2), bandit_advance.BatchRun.gate
    first: list[dict[str, bytes]] = []

    def meanwhile(self: Any, found: Any) -> Any:
        if not first:
            first.append({})
            assert advanced(service, rewards)[0] == programs.DONE
            first[0] = {k: v for k, v in snapshot(service).items() if ".staging-" not in k}
        return gate(self, found)

    monkeypatch.setattr(bandit_advance.BatchRun, "gate", meanwhile)
    code, said = advanced(service, rewards)
    assert code != programs.DONE, said
    assert snapshot(service) == first[0]


def test_a_batch_that_lacks_somebody_is_withheld(service: Path) -> None:
    before = snapshot(service)
    code, said = advanced(service, given(service, 2, drop=1))
    assert code == programs.NOTHING_RELEASED and "needs a reward of every slot" in said
    assert snapshot(service) == before


def test_bad_rewards_and_second_rows_of_a_person_do_not_count(service: Path) -> None:
    path = given(service, 2)
    table = pq.read_table(path)
    more = table.slice(0, 4)
    more = more.set_column(3, "reward", pa.array([2.0, float("nan"), 1.0, -1.0]))
    pq.write_table(pa.concat_tables([table, more]), path)
    code, said = advanced(service, path)
    assert code == programs.DONE, said
    listed = (service / "service.private/batch-2.bad_rows.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["reason"] for line in listed) == ["NaN", "outside of [-1, 1]"]
    assert state(service)["decided"][1]["people"] == 680


@pytest.mark.parametrize(
    "flags",
    [
        ["--memoize-key-file=key"],
        ["--people-store=people", "--people-key-file=key"],
        ["--interaction-log=log", "--interaction-key-file=key"],
    ],
)
def test_noise_of_devices_is_refused_by_name(service: Path, flags: list[str]) -> None:
    code, said = advanced(service, given(service, 2), *flags)
    name = flags[0].split("=")[0]
    assert code == programs.MISUSED and f"{name} cannot be used" in said, said


def test_reports_of_devices_are_refused(service: Path) -> None:
    told = [f"--state={service}/service", f"--reports={service}"]
    with pytest.raises(SettingError, match="people send no reports"):
        bandit_collect.bound_reports(collect_usage.COLLECT, read_flags(collect_usage.COLLECT, told))


def test_an_epsilon_that_protects_hardly_anybody_is_refused(tmp_path: Path) -> None:
    found = started(tmp_path, "--model=central", "--epsilon=9")
    assert found.exit_code == programs.MISUSED and "at most 8" in found.output
    assert not (tmp_path / "service").exists()
