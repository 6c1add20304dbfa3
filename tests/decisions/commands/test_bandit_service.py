"""`beam-ldp bandit start` and `advance`: people are served, batch by batch, and pairs of runs."""

from __future__ import annotations

import io
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.shuffle.one_release import shuffled_reports
from beam_ldp.decisions import bandit_advance
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.service import ServiceFolder
from beam_ldp.decisions.usage import ADVANCE
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release.job_files import jobs_of
from beam_ldp.release.worker_results import reasons_of
from beam_ldp.settings import SettingError
from beam_ldp.wording import number
from tests.decisions.commands.told import told

pytestmark = pytest.mark.e2e

FEATURES = {"blue": (1.0, 0.0), "red": (0.0, 1.0), "green": (-0.6, -0.6)}
THETA = np.array([0.1, 0.9])
PUBLIC = {"state.json", "batch-1.json", "batch-1.slots.parquet", "batch-1.release.json"}


def started(folder: Path, *more: str) -> Result:
    lines = [f"{name},{x},{y}" for name, (x, y) in FEATURES.items()]
    (folder / "actions.csv").write_text("\n".join(["name,x,y", *lines]) + "\n")
    flags = ["bandit", "start", f"--actions={folder}/actions.csv", "--horizon=3000", "--epsilon=2",
             "--dataset=visitors", f"--state={folder}/service", *more]  # fmt: skip
    found: Result = CliRunner().invoke(group, flags)
    return found


def rewards_of(folder: Path, number: int, *, drop: int = 0, slots: Path | None = None) -> Path:
    """What visitors gave: -1 or 1 with the mean that is linear in the features."""
    slots = slots or folder / "service" / f"batch-{number}.slots.parquet"
    table = pq.read_table(slots)
    rng = np.random.default_rng(number)
    means = np.array([np.dot(FEATURES[a], THETA) for a in table["action"].to_pylist()])
    rewards = np.where(rng.random(len(means)) < (1 + means) / 2, 1.0, -1.0)
    people = [f"{number}-{i}" for i in range(len(means))]
    table = table.append_column("reward", pa.array(rewards)).append_column("uid", pa.array(people))
    path = folder / f"batch{number}.parquet"
    pq.write_table(table.slice(drop), path)
    return path


def advanced(folder: Path, rewards: Path, *more: str) -> tuple[int, str]:
    flags = [f"--state={folder}/service", f"--rewards={rewards}", "--user-id=uid", "--no-mlflow"]
    return told(bandit_advance.PROGRAM, [*flags, *more])


def state(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "service" / "state.json").read_text()))


def snapshot(folder: Path) -> dict[str, bytes]:
    files = (folder / "service").rglob("*")
    return {str(path): path.read_bytes() for path in files if path.is_file()}


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service after its first batch, charged to a ledger."""
    folder = tmp_path_factory.mktemp("bandit")
    assert started(folder).exit_code == 0
    url = f"sqlite:///{folder}/privacy.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=30.0, delta=1e-5)
    (folder / "people.key").write_bytes(bytes(range(32)))
    (folder / "people.key").chmod(0o600)
    code, said = advanced(folder, rewards_of(folder, 1), *counting_people(folder))
    assert code == programs.DONE, said
    return folder


def counting_people(folder: Path) -> list[str]:
    return [f"--ledger=sqlite:///{folder}/privacy.db", f"--people-store={folder}/people",
            f"--people-key-file={folder}/people.key"]  # fmt: skip


@pytest.fixture
def service(decided: Path, tmp_path: Path) -> Path:
    """The same, in a place of its own."""
    shutil.copytree(decided, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_batch_is_decided_and_the_next_one_written(decided: Path) -> None:
    told, verdict = (
        state(decided),
        json.loads((decided / "service/batch-1/verdict.json").read_text()),
    )
    assert told["decided"][0]["people"] == 230 and told["open"]["batch"] == 2
    assert verdict["best"] == told["best"] == "red"
    assert set(verdict["survivors"]) | set(verdict["dropped"]) == set(FEATURES)
    assert list(verdict["counts"]) == ["1:blue", "1:red"]
    for play, mean in (("1:red", 0.9), ("1:blue", 0.1)):  # 4.7 standard errors of a bit's bound
        error = bit_randomizer(told["decided"][0]["local_epsilon"]).variance(115)[0] ** 0.5
        assert abs(verdict["sums"][play] / verdict["counts"][play] - mean) < 4.7 * error


def test_the_slots_are_those_that_were_asked(decided: Path) -> None:
    slots = pq.read_table(decided / "service/batch-2.slots.parquet")
    asked = {one["play"]: one["people"] for one in state(decided)["open"]["plays"]}
    plays = slots["play"].to_pylist()
    assert {play: plays.count(play) for play in set(plays)} == asked
    assert slots["slot"].to_pylist() == list(range(1, len(plays) + 1))
    assert plays != sorted(plays)  # one permutation in 10^100 of them


def test_the_service_holds_public_files_and_nothing_else(decided: Path) -> None:
    there = {path.name for path in (decided / "service").iterdir()}
    assert there == PUBLIC | {"batch-1"} | {name.replace("1", "2") for name in PUBLIC}
    for path in (decided / "service").rglob("*"):
        if path.suffix in (".json", ".csv", ".md"):
            assert "1-17" not in path.read_text()  # a person's id


def test_the_price_is_that_of_people_with_the_same_action(decided: Path) -> None:
    record = json.loads((decided / "service/batch-1/privacy.json").read_text())
    randomizer = bit_randomizer(record["local_epsilon"])
    price = float(event_epsilon(shuffled_reports(randomizer, 115), 1e-6))
    assert record["epsilon"] == float(number(price)) <= 2.0
    assert record["batch"] == 1 and record["amplify_over"] == "action"
    statement = (decided / "service/batch-1/privacy.md").read_text()
    assert "which play a person had" in statement and "pays for each" in statement


def test_the_same_rewards_again_change_nothing(service: Path) -> None:
    before = snapshot(service)
    code, _ = advanced(service, service / "batch1.parquet")
    assert code == programs.DONE and snapshot(service) == before
    shutil.copy(service / "batch1.parquet", service / "renamed.parquet")
    code, _ = advanced(service, service / "renamed.parquet", "--format=json")
    assert code == programs.DONE and snapshot(service) == before


def test_rewards_of_another_batch_never_count(service: Path) -> None:
    """Rows of both batches: those of the first are left out, and the second lacks nothing."""
    second, first = rewards_of(service, 2), service / "batch1.parquet"
    code, said = advanced(service, second, f"--rewards={first}", "--max-bad-rows=0")
    assert code == programs.DONE, said
    listed = (service / "service.private/batch-2.bad_rows.jsonl").read_bytes()
    assert dict(reasons_of(listed)) == {"group that is not listed": 230}
    assert state(service)["decided"][1]["people"] == 680


def test_a_batch_that_lacks_somebody_is_withheld(service: Path) -> None:
    before = snapshot(service)
    code, said = advanced(service, rewards_of(service, 2, drop=1))
    assert code == programs.NOTHING_RELEASED
    assert "needs a reward of every slot" in said and "339 of 340" in said
    assert snapshot(service) == before


def test_rewards_that_lack_a_play_are_refused_before_they_are_charged(service: Path) -> None:
    before, rewards = snapshot(service), rewards_of(service, 2)
    table = pq.read_table(rewards)
    plays = sorted(set(table["play"].to_pylist()))
    pq.write_table(table.filter(pc.not_equal(table["play"], plays[0])), rewards)
    code, said = advanced(service, rewards)
    assert code == programs.MISUSED and f"none can be used for {plays[0]}, without" in said
    assert snapshot(service) == before


def test_bad_rewards_are_listed_with_a_reason(service: Path) -> None:
    """All of the batch and more: what cannot be used is listed, and the rest decides."""
    path = rewards_of(service, 2)
    table = pq.read_table(path)
    hostile = [(2.0, "2:red"), (float("nan"), "2:red"), (None, "2:red"), (1.0, "2:teal"),
               (1.0, "1:red"), (1.0, None), (-1.0000001, "2:blue")]  # fmt: skip
    more = pa.table(
        {
            "slot": pa.array([0] * len(hostile), pa.int64()),
            "action": ["x"] * len(hostile),
            "play": pa.array([play for _, play in hostile], pa.string()),
            "reward": pa.array([reward for reward, _ in hostile], pa.float64()),
            "uid": [f"bad-{i}" for i in range(len(hostile))],
        }
    )
    pq.write_table(pa.concat_tables([table, more.cast(table.schema)]), path)
    code, said = advanced(service, path)
    assert code == programs.DONE, said
    listed = (service / "service.private/batch-2.bad_rows.jsonl").read_bytes()
    assert dict(reasons_of(listed)) == {
        "outside of [-1, 1]": 2, "NaN": 1, "null": 1, "no group": 1, "group that is not listed": 2,
    }  # fmt: skip
    assert state(service)["decided"][1]["people"] == 680


def test_a_person_with_two_rows_counts_once(service: Path) -> None:
    path = rewards_of(service, 2)
    table = pq.read_table(path)
    twice = table.set_column(4, "uid", pa.array(["2-0", *table["uid"].to_pylist()[1:-1], "2-0"]))
    pq.write_table(twice, path)
    code, said = advanced(service, path)
    assert code == programs.NOTHING_RELEASED and "339 of 340" in said


@pytest.mark.parametrize("more", [(), ("--one-row-per-person",)])
def test_a_file_given_twice_under_two_names_does_not_let_people_count_twice(
    service: Path, more: tuple[str, ...]
) -> None:
    """Without ids nobody would know: every report would cost twice what is said of it."""
    path, copy = rewards_of(service, 2), service / "copy.parquet"
    shutil.copy(path, copy)
    before = snapshot(service)
    flags = [f"--state={service}/service", f"--rewards={path}", "--no-mlflow", *more]
    said = io.StringIO()
    console = Console(file=said, width=400)
    twice = read_flags(ADVANCE, [*flags, f"--rewards={copy}"])
    code = bandit_advance.PROGRAM.as_told(twice, console)
    assert code == programs.NOTHING_RELEASED and snapshot(service) == before
    assert "has 680 rewards of 340 slots" in said.getvalue()
    once = read_flags(ADVANCE, flags)
    assert bandit_advance.PROGRAM.as_told(once, console) == programs.DONE
    assert [one["people"] for one in state(service)["decided"]] == [230, 680]


def test_nothing_of_a_service_is_decided_with_a_seed(service: Path) -> None:
    """Its state would say a local epsilon that such noise does not have."""
    with pytest.raises(SettingError, match="--seed"):
        advanced(service, rewards_of(service, 2), "--seed=3")


def test_people_who_come_back_pay_for_each_batch(service: Path) -> None:
    """A hundred of the first batch are asked in the second one too."""
    path = rewards_of(service, 2)
    table = pq.read_table(path)
    people = [f"{1 if i < 100 else 2}-{i}" for i in range(680)]
    pq.write_table(table.set_column(4, "uid", pa.array(people)), path)
    code, said = advanced(service, path, *counting_people(service))
    assert code == programs.DONE, said
    first, second = (one["local_epsilon"] for one in state(service)["decided"])
    ledger = ["--ledger", f"sqlite:///{service}/privacy.db", "--format=json"]
    told = json.loads(CliRunner().invoke(group, ["budget", "show", *ledger]).output)
    (budget,) = told["budgets"]
    assert budget["people"]["uncounted"] == []
    paid, counts = zip(*budget["people"]["distribution"])
    assert counts == (230 - 100, 680 - 100, 100)
    assert paid == pytest.approx((first, second, first + second), rel=1e-11)
    records = [
        json.loads((service / f"service/batch-{number}/privacy.json").read_text())
        for number in (1, 2)
    ]
    prices = [record["epsilon"] for record in records]
    assert max(prices) < budget["spent"] <= sum(prices)  # of whoever is in both
    assert "1-17" not in (service / "service/batch-2/privacy.md").read_text()


def test_a_copy_of_the_service_is_not_decided_twice(service: Path, decided: Path) -> None:
    """A backup from before the first batch: the ledger granted that decision once."""
    before = snapshot(service)
    shutil.rmtree(service / "service/batch-1")
    assert advanced(service, service / "batch1.parquet")[0] == programs.DONE
    assert snapshot(service) == before  # shown again, as it was released
    shutil.rmtree(service / "service/batch-1")
    shutil.rmtree(service / "service.private")
    for path in (service / "service").glob("batch-2*"):
        path.unlink()
    ledger = f"--ledger=sqlite:///{service}/privacy.db"
    code, said = advanced(service, service / "batch1.parquet", ledger)
    assert code in (programs.NOTHING_RELEASED, programs.MISUSED), said
    assert not (service / "service/batch-1").exists()
    assert BudgetLedger(f"sqlite:///{service}/privacy.db").status("visitors").spent > 0


def test_a_batch_out_of_budget_is_not_read(service: Path) -> None:
    url = f"sqlite:///{service}/small.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=1.0, delta=1e-5)
    before = snapshot(service)
    code, said = advanced(service, rewards_of(service, 2), f"--ledger={url}")
    assert code == programs.NOTHING_RELEASED and "budget" in said, said
    assert snapshot(service) == before


# A kill at any moment, and folders of several times -----------------------------------------------


def test_what_a_kill_left_undone_is_done_later(service: Path) -> None:
    """The release is there, and nothing after it: as after a kill in the instant behind it."""
    whole = snapshot(service)
    for name in ("batch-2.json", "batch-2.slots.parquet", "batch-2.release.json"):
        (service / "service" / name).unlink()
    (service / "service/state.json").write_text(
        json.dumps({**state(service), "decided": [], "asked": 0, "open": None})
    )
    found = ServiceFolder.open(str(service / "service"))
    assert found.asked is not None and found.asked.number == 2
    again = snapshot(service)
    random = str(service / "service/batch-2.slots.parquet")
    assert {k: v for k, v in again.items() if k != random} == {
        k: v for k, v in whole.items() if k != random
    }


def _missing_first(folder: Path) -> None:
    shutil.copytree(folder / "service/batch-1", folder / "service/batch-2")
    shutil.rmtree(folder / "service/batch-1")
    shutil.rmtree(folder / "service.private")


def _other_sums(folder: Path) -> None:
    path = folder / "service/batch-1/verdict.json"
    shutil.copytree(folder / "service/batch-1", folder / "service/batch-2")
    path.write_text(path.read_text().replace('"1:blue": 115', '"1:blue": 116'))


def _told_of_other_sums(folder: Path) -> None:
    """The first batch is of a backup, and was decided again; the second is still the old one."""
    path = folder / "service/batch-1/verdict.json"
    found = json.loads(path.read_text())
    found["sums"]["1:blue"] -= 1
    path.write_text(json.dumps(found))


def _told_by_another_version(folder: Path) -> None:
    path = folder / "service/batch-2.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "local_epsilon": 3.0}))


def _no_verdict(folder: Path) -> None:
    (folder / "service/batch-1/verdict.json").write_text('{"digest": "x"}')


def _cut(folder: Path) -> None:
    (folder / "service/batch-1/verdict.json").write_text('{"dig')


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_missing_first, "batches that are missing"),
        (_other_sums, "another history"),
        (_no_verdict, "another history"),
        (_told_of_other_sums, r"batch-2.json is of another history"),
        (_told_by_another_version, "another local epsilon than this version"),
        (lambda folder: (folder / "service/batch-2.json").write_text("[]"), "delete it"),
        (_cut, "cannot be read"),
        (lambda folder: (folder / "service/state.json").unlink(), "no service is there"),
        (lambda folder: (folder / "service/state.json").write_text("{}"), "state.json cannot"),
    ],
)
def test_a_folder_of_several_times_is_refused(
    service: Path, broken: Callable[[Path], None], said: str
) -> None:
    broken(service)
    with pytest.raises(SettingError, match=said):
        ServiceFolder.open(str(service / "service"))


def test_starting_again_changes_nothing_and_other_terms_are_refused(service: Path) -> None:
    before = snapshot(service)
    assert started(service).exit_code == 0
    assert snapshot(service) == before
    found = started(service, "--epsilon=1")
    assert found.exit_code == programs.MISUSED and "other terms" in found.output
    assert snapshot(service) == before


# Secret assignment, and nobody trusted ------------------------------------------------------------


def test_a_secret_assignment_lies_apart_and_buys_more(tmp_path: Path) -> None:
    """Under the same epsilon a report may say more where people hide among the whole batch."""
    assert started(tmp_path, "--amplify-over=batch").exit_code == 0
    slots = tmp_path / "service.private/batch-1.slots.parquet"
    assert stat.S_IMODE(slots.stat().st_mode) == 0o600
    assert {path.name for path in (tmp_path / "service").iterdir()} == PUBLIC - {
        "batch-1.slots.parquet"
    }
    code, said = advanced(tmp_path, rewards_of(tmp_path, 1, slots=slots))
    assert code == programs.DONE, said
    record = json.loads((tmp_path / "service/batch-1/privacy.json").read_text())
    randomizer = bit_randomizer(record["local_epsilon"])
    price = event_epsilon(shuffled_reports(randomizer, 230), 1e-6)
    assert record["epsilon"] == float(number(price)) <= 2
    assert float(event_epsilon(shuffled_reports(randomizer, 115), 1e-6)) > 2
    assert [part["epsilon"] for part in record["parts"]] == 2 * [record["epsilon"]]
    statement = (tmp_path / "service/batch-1/privacy.md").read_text()
    assert "nobody but the shuffler knows who had which action" in statement


def test_without_trust_a_report_costs_what_was_asked(tmp_path: Path) -> None:
    assert started(tmp_path, "--model=local").exit_code == 0
    assert state(tmp_path)["open"]["local_epsilon"] == 2.0
    code, said = advanced(tmp_path, rewards_of(tmp_path, 1))
    assert code == programs.DONE, said
    record = json.loads((tmp_path / "service/batch-1/privacy.json").read_text())
    assert record["local_epsilon"] == record["epsilon"] == 2.0 and record["delta"] == 0
    assert record["amplify_over"] is None


def test_the_last_batch_leaves_a_winner(tmp_path: Path) -> None:
    """Once no batch is open, everybody else has the best, and more rewards are refused."""
    assert started(tmp_path, "--smallest-batch=1000").exit_code == 0
    rewards = rewards_of(tmp_path, 1)
    code, said = advanced(tmp_path, rewards)
    assert code == programs.DONE, said
    assert state(tmp_path)["open"] is None and state(tmp_path)["best"] == "red"
    assert advanced(tmp_path, rewards)[0] == programs.DONE  # decided before: nothing changes
    pq.write_table(pq.read_table(rewards).drop(["play"]), rewards)
    code, said = advanced(tmp_path, rewards)
    assert code == programs.MISUSED and "no batch is open" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model=none"], "Invalid value"),
        (["--horizon=3"], "horizon"),
        (["--epsilon=-1"], "epsilon"),
        (["--dataset="], "dataset and name"),
    ],
)
def test_terms_that_do_not_fit_leave_nothing(tmp_path: Path, flags: list[str], said: str) -> None:
    found = started(tmp_path, *flags)
    assert found.exit_code == programs.MISUSED and said in found.output
    assert not (tmp_path / "service").exists()


def test_actions_need_names_that_differ(tmp_path: Path) -> None:
    (tmp_path / "twins.csv").write_text("name,x\na,1\na,0.5\n")
    found = started(tmp_path, f"--actions={tmp_path}/twins.csv")
    assert found.exit_code == programs.MISUSED and "name each action differently" in found.output


def test_job_files_and_checks(service: Path) -> None:
    """The open batch as a job file; what is missing is said by the flag that it goes by."""
    told = {
        "program": "bandit_advance",
        "source": {"parquet": str(rewards_of(service, 2))},
        "questions": [{"state": str(service / "service")}],
        "people": {"id": "uid"},
        "release": {"ledger": "none"},
    }
    ((name, given),) = jobs_of(told)
    found = programs.checks_of(name, given)
    assert name == "bandit_advance" and programs.exit_code(found) == 0, [one.said for one in found]
    code, said = advanced(service, service / "nothing.parquet")
    assert code == programs.MISUSED and "--rewards" in said and "--input" not in said
    code, said = advanced(service, service / "batch2.parquet", "--reward=uid")
    assert code == programs.MISUSED, said


def test_an_audit_of_interaction_finds_nothing(service: Path) -> None:
    """Who was asked what, from the log that workers write."""
    key = service / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    log = service / "log"
    code, said = advanced(
        service, rewards_of(service, 2), f"--interaction-log={log}", f"--interaction-key-file={key}"
    )
    assert code == programs.DONE, said
    epsilon = state(service)["decided"][1]["local_epsilon"]
    told = CliRunner().invoke(
        group, ["audit-interactivity", str(log), f"--epsilon={epsilon}", "--format=json"]
    )
    assert told.exit_code == 0, told.output
    short = CliRunner().invoke(group, ["audit-interactivity", str(log), f"--epsilon={epsilon / 2}"])
    assert short.exit_code != 0
