"""`beam-ldp bandit advance --stream`: batches are decided as their rewards arrive."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.coders import StrUtf8Coder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from rich.console import Console

from beam_ldp.decisions import bandit_advance
from beam_ldp.decisions.bandit_advance import Arrivals
from beam_ldp.decisions.service import ServiceFolder
from beam_ldp.decisions.stages import KeepRewards
from beam_ldp.decisions.usage import ADVANCE
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.settings import SettingError
from tests.decisions.commands.test_bandit_kills import charges, end_at
from tests.decisions.commands.test_bandit_service import rewards_of, snapshot, started, state
from tests.decisions.commands.told import told

BUNDLES = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"


def keep(rows: list[str], inbox: Path) -> None:
    """Rows of a queue: some in time, some a day late, one handed out twice."""
    half = len(rows) // 2
    stream = (
        TestStream(coder=StrUtf8Coder())
        .advance_watermark_to(0)
        .add_elements([TimestampedValue(row, 10) for row in rows[:half]])
        .advance_watermark_to(86_400)
        .add_elements([TimestampedValue(row, 20) for row in [rows[0], *rows[half:]]])
        .advance_watermark_to_infinity()
    )
    with beam.Pipeline(BUNDLES, PipelineOptions(streaming=True)) as pipeline:
        _ = (
            pipeline
            | stream
            | beam.Map(json.loads)
            | beam.WindowInto(FixedWindows(60))
            | KeepRewards(str(inbox), rows=50)
        )


def rows_in(folder: Path, number: int) -> list[str]:
    return [json.dumps(row) for row in pq.read_table(rewards_of(folder, number)).to_pylist()]


def followed(folder: Path, *more: str) -> tuple[int, str]:
    flags = [f"--state={folder}/service", f"--rewards={folder}/inbox", "--user-id=uid", "--stream",
             "--stop-after=0s", "--no-mlflow", *more]  # fmt: skip
    return told(bandit_advance.PROGRAM, flags)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, int]]]:
    """A service whose rewards came from a queue, and what was decided and charged before the last
    slot of each batch had its reward."""
    folder, seen = tmp_path_factory.mktemp("stream"), []
    assert started(folder).exit_code == 0
    url = f"sqlite:///{folder}/privacy.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=30.0, delta=1e-5)
    for number in (1, 2):
        rows, inbox = rows_in(folder, number), folder / "inbox"
        keep(rows[:-1], inbox)  # all but the last slot
        code, said = followed(folder, f"--ledger={url}")
        assert code == programs.DONE and "stopped after the time" in said, said
        seen.append({"decided": len(state(folder)["decided"]), "charged": len(charges(folder))})
        assert "has 339 of 340" in said or "has 114 of 115" in said
        (inbox / f"last-{number}.jsonl").write_text(rows[-1] + "\n")
        code, said = followed(folder, f"--ledger={url}")
        assert code == programs.DONE, said
    return folder, seen


@pytest.mark.pipeline
def test_files_of_a_queue_appear_whole_once_and_for_their_owner(tmp_path: Path) -> None:
    """The same rows again, as a bundle that is repeated: the same file."""
    rows = [json.dumps({"play": "1:red", "reward": 1, "uid": i, "more": "?"}) for i in range(120)]
    for _ in range(2):
        keep(rows, tmp_path / "inbox")
    files = sorted((tmp_path / "inbox").iterdir())
    kept = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(files) == 3 and len(kept) == 121  # of 50 rows, 50 and 21
    assert {row["uid"] for row in kept} == set(range(120)) and "more" not in kept[0]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.e2e
def test_a_batch_is_decided_by_its_last_slot(streamed: tuple[Path, list[dict[str, int]]]) -> None:
    folder, seen = streamed
    assert [one["people"] for one in state(folder)["decided"]] == [230, 680]
    assert state(folder)["open"] is None and state(folder)["best"] == "red"
    assert [one["decided"] for one in seen] == [0, 1]


@pytest.mark.e2e
def test_each_batch_is_charged_once_and_waiting_costs_nothing(
    streamed: tuple[Path, list[dict[str, int]]],
) -> None:
    folder, seen = streamed
    assert [one["charged"] for one in seen] == [0, 1]
    assert charges(folder) == ["settled", "settled"]


@pytest.mark.e2e
def test_rewards_of_earlier_batches_are_no_bad_rows(
    streamed: tuple[Path, list[dict[str, int]]],
) -> None:
    folder, _ = streamed
    for number in (1, 2):
        record = json.loads((folder / f"service/batch-{number}/privacy.json").read_text())
        assert record["num_bad_rows"] == 0 and record["epsilon"] <= 2.0


@pytest.mark.e2e
def test_the_stream_of_a_winner_ends_at_once(streamed: tuple[Path, list[dict[str, int]]]) -> None:
    folder, _ = streamed
    before = snapshot(folder)
    assert followed(folder)[0] == programs.DONE
    assert snapshot(folder) == before and len(charges(folder)) == 2


@pytest.mark.e2e
def test_a_batch_that_another_process_decided_meanwhile_costs_nothing(
    streamed: tuple[Path, list[dict[str, int]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at the service as it was before the first batch, and finds all of its rewards."""
    folder, _ = streamed
    assert started(tmp_path).exit_code == 0
    earlier, opened = ServiceFolder.open(str(tmp_path / "service")), bandit_advance.open_service
    stale = [ServiceFolder(folder / "service", earlier.terms, earlier.progress)]
    monkeypatch.setattr(
        bandit_advance, "open_service", lambda given: stale.pop() if stale else opened(given)
    )
    code, said = followed(folder, f"--ledger=sqlite:///{folder}/privacy.db")
    assert code == programs.DONE and not stale, said
    assert charges(folder) == ["settled", "settled"]


# Before a batch is decided ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("waiting")
    assert started(folder).exit_code == 0
    rewards_of(folder, 1)
    return folder


@pytest.fixture
def service(begun: Path, tmp_path: Path) -> Path:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    (tmp_path / "inbox").mkdir()
    return tmp_path


def arriving(folder: Path, *more: str) -> Arrivals:
    flags = [f"--state={folder}/service", f"--rewards={folder}/inbox", "--stream", *more]
    opened = ServiceFolder.open(str(folder / "service"))
    assert opened.asked is not None
    return Arrivals(read_flags(ADVANCE, flags), opened, opened.asked)


def _twice(table: pa.Table) -> pa.Table:
    """The first person has the last row too."""
    return table.set_column(4, "uid", pa.array([*table["uid"].to_pylist()[:-1], "1-0"]))


def _in_two_plays(table: pa.Table) -> pa.Table:
    """All rows and one more, in which somebody has the other play."""
    (first,) = table.slice(0, 1).to_pylist()
    other = {"1:blue": "1:red", "1:red": "1:blue"}[first["play"]]
    return pa.concat_tables([table, pa.Table.from_pylist([{**first, "play": other}], table.schema)])


def _unusable(table: pa.Table) -> pa.Table:
    return table.set_column(3, "reward", pa.array([2.0, *table["reward"].to_pylist()[1:]]))


def _copied(table: pa.Table) -> pa.Table:
    """Some rows twice, as a queue may hand them out."""
    return pa.concat_tables([table.slice(0, 20), table])


@pytest.mark.exact
@pytest.mark.parametrize(
    ("changed", "whole"),
    [
        (lambda table: table, True),
        (_copied, True),
        (lambda table: table.slice(1), False),
        (_twice, False),
        (_in_two_plays, False),
        (_unusable, False),
    ],
)
def test_a_slot_is_answered_by_one_person_with_a_reward(
    service: Path, changed: Callable[[pa.Table], pa.Table], whole: bool
) -> None:
    table = changed(pq.read_table(service / "batch1.parquet"))
    watched = arriving(service, "--user-id=uid")
    assert not watched.look()  # nothing is there
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), service / "inbox/a.parquet")
    assert not watched.look()
    pq.write_table(table.slice(half), service / "inbox/b.parquet")
    assert watched.look() is whole
    assert ("has 114 of 115" in watched.waits_for) is not whole


@pytest.mark.exact
def test_files_of_other_batches_and_unfinished_ones_are_left_alone(service: Path) -> None:
    inbox = service / "inbox"
    shutil.copy(service / "batch1.parquet", inbox / "b.parquet")
    shutil.copy(service / "batch1.parquet", inbox / ".unfinished.parquet")
    later = pq.read_table(inbox / "b.parquet")
    plays = [play.replace("1:", "2:") for play in later["play"].to_pylist()]
    pq.write_table(later.set_column(2, "play", pa.array(plays)), inbox / "a.parquet")
    watched = arriving(service)
    assert watched.look()  # without ids each row is a person
    assert [Path(path).name for path in watched.arguments["source"]["paths"]] == ["b.parquet"]


@pytest.mark.exact
def test_ids_in_digits_are_ids_in_numbers(service: Path) -> None:
    """One person, by two files: what is counted here must not exceed what the run counts."""
    for name, person in (("a", pa.array([7])), ("b", pa.array(["7"]))):
        table = pa.table({"play": ["1:blue"], "reward": [1.0], "uid": person})
        pq.write_table(table, service / f"inbox/{name}.parquet")
    watched = arriving(service, "--user-id=uid")
    assert not watched.look() and "1:blue has 1 of 115" in watched.waits_for


@pytest.mark.e2e
def test_what_is_wrong_with_flags_or_files_is_said_before_and_at_once(service: Path) -> None:
    code, said = followed(service, "--play=reward")
    assert code == programs.MISUSED and "--play" in said
    (service / "inbox/a.csv").write_text("play,reward,uid\n1:blue,3,x\n1:blue\n")
    (service / "inbox/b.csv").write_text("plays,reward,uid\n1:blue,1,y\n")
    code, said = followed(service)
    assert code == programs.DONE and "; 3 rows cannot be used, most often: " in said, said
    with pytest.raises(SettingError, match="--stop-after needs --stream"):
        bandit_advance.PROGRAM.run(
            read_flags(ADVANCE, [f"--state={service}/service", "--stop-after=1s"]), Console()
        )


@pytest.mark.e2e
def test_a_batch_that_is_refused_ends_the_stream(service: Path) -> None:
    """A budget is not asked again and again: every refusal would cost its local epsilon."""
    shutil.copy(service / "batch1.parquet", service / "inbox")
    url = f"sqlite:///{service}/privacy.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=1.0, delta=1e-5)
    before = snapshot(service)
    code, said = followed(service, f"--ledger={url}")
    assert code == programs.NOTHING_RELEASED and "budget" in said
    assert snapshot(service) == before and charges(service) == []


@pytest.mark.e2e
def test_ctrl_c_ends_the_waiting(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bandit_advance.time, "sleep", interrupted)
    code, said = followed(service, "--stop-after=1h")
    assert code == programs.DONE and "stopped by Ctrl-C: batch 1: 1:blue has 0 of 115" in said


@pytest.mark.e2e
def test_a_stream_that_is_killed_while_it_decides_goes_on(service: Path) -> None:
    """The same command: what was lost stays charged, and the batch is decided once."""
    shutil.copy(service / "batch1.parquet", service / "inbox")
    url = f"sqlite:///{service}/privacy.db"
    BudgetLedger.create(url).set_budget("visitors", epsilon=30.0, delta=1e-5)
    end_at(service, "sums left the workers", [f"--ledger={url}"], followed)
    assert state(service)["decided"] == [] and charges(service) == ["reserved"]
    code, said = followed(service, f"--ledger={url}")
    assert code == programs.DONE and "batch 2: " in said, said
    assert [one["people"] for one in state(service)["decided"]] == [230]
    assert charges(service) == ["reserved", "settled"]
