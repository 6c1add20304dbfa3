"""`beam-ldp bandit collect`: a batch whose rewards were randomized on devices."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.decisions import bandit_collect
from beam_ldp.decisions.bandits.progress import BanditProgress
from beam_ldp.decisions.rewards import RewardOnDevices
from beam_ldp.decisions.service import ServiceFolder, release_of
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs, randomize
from beam_ldp.questions.published import Published
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.release.job_files import jobs_of
from beam_ldp.release.worker_results import reasons_of
from tests.decisions.commands.test_bandit_service import rewards_of, snapshot, started, state
from tests.decisions.commands.told import told

pytestmark = pytest.mark.e2e


def sent(folder: Path, batch: int, rewards: Path, *more: str) -> tuple[int, str]:
    """What devices make of rewards."""
    flags = [f"--release={folder}/service/batch-{batch}.release.json", f"--input={rewards}",
             "--user-id=uid", f"--output={folder}/reports-{batch}", *more]  # fmt: skip
    return told(randomize.PROGRAM, flags)


def collected(folder: Path, *reports: str, flags: tuple[str, ...] = ()) -> tuple[int, str]:
    given = [f"--state={folder}/service", "--no-mlflow", *flags]
    given += [f"--reports={folder}/{name}" for name in reports]
    return told(bandit_collect.PROGRAM, given)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service after a first batch from devices, charged to a ledger."""
    folder = tmp_path_factory.mktemp("devices")
    assert started(folder).exit_code == 0
    url = f"sqlite:///{folder}/privacy.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=30.0, delta=1e-5)
    code, said = sent(folder, 1, rewards_of(folder, 1))
    assert code == programs.DONE, said
    code, said = collected(folder, "reports-1", flags=(f"--ledger={url}",))
    assert code == programs.DONE, said
    return folder


@pytest.fixture
def service(decided: Path, tmp_path: Path) -> Path:
    shutil.copytree(decided, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_batch_is_decided_from_envelopes(decided: Path) -> None:
    told = state(decided)
    assert told["decided"][0]["people"] == 230 and told["open"]["batch"] == 2
    record = json.loads((decided / "service/batch-1/privacy.json").read_text())
    assert record["epsilon"] <= 2 and record["num_reports"] == 230
    assert record["local_epsilon"] == told["decided"][0]["local_epsilon"]
    statement = (decided / "service/batch-1/privacy.md").read_text()
    assert "never seen here" in statement and "pays for each" in statement


def test_devices_were_told_what_the_service_published(decided: Path) -> None:
    """The reports' release.json follows from the terms alone."""
    terms = ServiceFolder.open(str(decided / "service")).terms
    first = terms.asks(BanditProgress(terms.bandit))
    assert first is not None
    for path in ("reports-1/release.json", "service/batch-1.release.json"):
        assert json.loads((decided / path).read_text()) == release_of(first).to_json()


def test_the_same_reports_again_change_nothing(service: Path) -> None:
    before = snapshot(service)
    code, _ = collected(service, "reports-1")
    assert code == programs.DONE and snapshot(service) == before
    (service / "reports-1/release.json").unlink()  # then nothing says what they are
    code, said = collected(service, "reports-1")
    assert code == programs.NOTHING_RELEASED and "needs a reward of every slot" in said
    assert snapshot(service) == before


def test_copies_of_reports_count_once_and_of_other_batches_never(service: Path) -> None:
    code, said = sent(service, 2, rewards_of(service, 2))
    assert code == programs.DONE, said
    shutil.copytree(service / "reports-2", service / "copies")
    for path in (service / "reports-1").glob("*.ldp"):
        shutil.copy(path, service / "copies" / f"old-{path.name}")
    (service / "copies/release.json").unlink()
    code, said = collected(service, "reports-2", "copies")
    assert code == programs.DONE, said
    assert state(service)["decided"][1]["people"] == 680
    listed = (service / "service.private/batch-2.bad_rows.jsonl").read_bytes()
    assert reasons_of(listed).total() >= 1


def test_bad_rewards_stay_on_the_device(service: Path) -> None:
    path = rewards_of(service, 2)
    table = pq.read_table(path)
    worse = table.set_column(3, "reward", pa.array([1.5, *table["reward"].to_pylist()[1:]]))
    pq.write_table(worse, path)
    code, said = sent(service, 2, path, "--max-bad-rows=0")
    assert code == programs.MISUSED and "1 of 680 rows that hold a value cannot be read" in said
    code, said = sent(service, 2, path)
    assert code == programs.DONE, said
    code, said = collected(service, "reports-2")
    assert code == programs.NOTHING_RELEASED and "339 of 340" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--local-epsilon=3"], "--local-epsilon: --release says it"),
        (["--dataset=others"], "--dataset: --release says it"),
        (["--column=a", "--column=b"], "--column must name one column"),
        (["--column=nothing"], "nothing"),
    ],
)
def test_what_the_release_says_is_not_asked_again(
    service: Path, flags: list[str], said: str
) -> None:
    code, told = sent(service, 2, rewards_of(service, 2), *flags)
    assert code == programs.MISUSED and said in told
    assert not (service / "reports-2").exists()


def test_a_release_of_another_batch_is_refused(service: Path) -> None:
    for name in ("batch-1", "batch-2"):
        assert (service / f"service/{name}.release.json").exists()
    shutil.copy(service / "service/batch-1.release.json", service / "service/batch-2.release.json")
    code, said = collected(service, "reports-1")
    assert code == programs.DONE  # these are of batch 1, which was decided
    (service / "reports-1/release.json").unlink()
    code, said = collected(service, "reports-1")
    assert code == programs.MISUSED and "not what batch 2 asks" in said


def test_job_files_and_checks(service: Path) -> None:
    told = {
        "program": "bandit_collect",
        "reports": {"reports": str(service / "reports-1")},
        "questions": [{"state": str(service / "service")}],
        "release": {"ledger": "none"},
    }
    ((name, given),) = jobs_of(told)
    found = programs.checks_of(name, given)
    assert name == "bandit_collect" and programs.exit_code(found) == 0, [one.said for one in found]


# What release.json says of a batch ----------------------------------------------------------------


def test_the_release_survives_its_file(decided: Path) -> None:
    path = decided / "service/batch-2.release.json"
    found = ReleaseFile.from_json(json.loads(path.read_text()))
    assert isinstance(found.asked, RewardOnDevices) and found.coordinates is None
    assert found.asked.plays == ("2:blue", "2:red") and found.group_by == "play"
    assert found.to_json() == json.loads(path.read_text())


def test_texts_that_are_no_batch() -> None:
    asked = RewardOnDevices("reward", "ab" * 32, ("1:a", "1:b"))
    assert Published.from_text(asked.text) == asked
    for text in (
        '{"column": "reward", "batch": "zz", "plays": ["1:a"]}',
        '{"column": "reward", "batch": "' + "ab" * 32 + '", "plays": []}',
        '{"column": "reward", "batch": "' + "ab" * 32 + '", "plays": ["1:a", "1:a"]}',
        '{"column": "reward", "batch": "' + "ab" * 32 + '", "plays": [1]}',
    ):
        with pytest.raises(ValueError, match="questions"):
            Published.from_text(text)
    with pytest.raises(ValueError, match="a reward lies in"):
        asked.check_fits(KRandomizedResponse(domain_size=2, local_epsilon=1.0))
