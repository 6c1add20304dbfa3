"""Logs of bandits: sound ones pass the audit, and each way to break one has its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from apache_beam.transforms.window import GlobalWindow
from click.testing import CliRunner

from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.bandits.logs import PLAY, batch_records, randomizer_name
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.bandits.progress import BanditProgress, Heard
from beam_ldp.pipelines.cli import group
from beam_ldp.research.interactivity.bandit_logs import audit_run
from beam_ldp.transforms.device.asked import AskedRecords
from beam_ldp.transforms.device.keyed import RecordLog
from beam_ldp.transforms.elements.blocks import ValueBlock

pytestmark = pytest.mark.exact

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.6], [0.6, -0.7]])
THETA = np.array([0.9, -0.1])


def served(**terms: Any) -> tuple[BanditProgress, pa.Table]:
    """A whole run and its log."""
    told = {"actions": ACTIONS, "horizon": 6000, "epsilon": 3.0, "skipped": 3, **terms}
    progress, logs = BanditProgress(LinearBandit(**told)), []
    rng = np.random.default_rng(5)
    while (batch := progress.open) is not None:
        plays = np.repeat(batch.played, batch.counts)
        people = (progress.asked + rng.permutation(len(plays))).tolist()
        answers = rng.integers(1, 2**62, len(plays)).tolist()
        logs.append(batch_records(progress.bandit, batch, people, plays, answers))
        sums = batch.noise.sums_in_law(batch.counts, (ACTIONS @ THETA)[batch.played], rng)
        progress = progress.after(Heard(tuple(map(int, batch.counts)), tuple(map(float, sums))))
    return progress, pa.concat_tables(logs)


@pytest.fixture(scope="module")
def run() -> tuple[BanditProgress, pa.Table]:
    return served()


def audited(log: pa.Table, folder: Path, epsilon: float) -> tuple[int, Any]:
    pq.write_table(log, folder / "log.parquet")
    flags = ["audit-interactivity", str(folder / "log.parquet"), f"--epsilon={epsilon}"]
    found = CliRunner().invoke(group, [*flags, "--format=json"])
    return found.exit_code, json.loads(found.stdout)


def names(findings: Any) -> set[str]:
    return {one.name for one in findings}


def changed(log: pa.Table, number: int, column: str, value: Any, most: int = 10**9) -> pa.Table:
    """The log with another value in the first `most` records of a batch."""
    own = np.flatnonzero(np.asarray(log["round"]) == number)[:most]
    values = log[column].to_pylist()
    for place in own:
        values[place] = value
    told = pa.array(values, log.schema.field(column).type)
    return log.set_column(log.schema.get_field_index(column), column, [told])


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"amplify_over": "batch", "accountant": "closed-form"},
        {"model": "local"},
        {"report": "laplace", "model": "local"},
    ],
    ids=["action", "batch", "local", "laplace"],
)
def test_the_log_of_a_run_passes_at_the_epsilon_of_one_batch(terms, tmp_path):
    progress, log = served(**terms)
    dearest = max(one.batch.noise.log_ratio_max() for one in progress.decided)
    assert len(progress.decided) >= 3
    assert audit_run(progress, log) == ()
    code, told = audited(log, tmp_path, dearest)
    assert code == 0 and told["clean"]
    assert told["num_people"] == log.num_rows == progress.asked
    assert told["class"] == "sequentially interactive"
    assert told["waves"] == len(progress.decided)  # each batch reads those before it
    assert audited(log, tmp_path, dearest * 0.99)[0] == 1


def test_where_the_assignment_is_secret_no_record_says_it():
    progress, log = served(amplify_over="batch", accountant="closed-form")
    assert PLAY not in log.column_names
    for one in progress.decided:
        own = log.filter(pc.equal(log["round"], one.batch.number))
        users = own["user"].to_pylist()
        assert users == sorted(users)
        assert len(set(own["randomizer"].to_pylist())) == 1
    assert PLAY in served(model="local")[1].column_names


def test_a_person_in_two_batches_is_over_budget(run, tmp_path):
    progress, log = run
    twice = changed(log, 3, "user", log["user"][0].as_py(), most=1)
    assert names(audit_run(progress, twice)) == {"over budget"}
    dearest = max(one.batch.noise.log_ratio_max() for one in progress.decided)
    code, told = audited(twice, tmp_path, dearest)
    assert code == 1
    assert [one["name"] for one in told["findings"]] == ["over budget"]
    assert audit_run(progress, twice, promise=2 * dearest) == ()  # promised two batches


def test_a_batch_that_read_raw_rewards_does_not_follow_from_released_sums(run):
    progress, log = run
    last = progress.decided[2].batch
    # Without noise the batch before would have dropped all but the two best actions.
    raw = progress.decided[1].batch
    means = raw.estimates((ACTIONS @ THETA)[raw.played] * raw.counts)
    active = raw.active[np.argsort(-means)[:2]]
    cheat = progress.bandit.batch(last.number, np.sort(active))
    assert cheat is not None and set(cheat.played) != set(last.played)
    others = log.filter(pc.not_equal(log["round"], last.number))
    users = log.filter(pc.equal(log["round"], last.number))["user"].to_pylist()
    plays = np.repeat(cheat.played, last.counts)
    asked = batch_records(progress.bandit, last, users, plays)
    found = audit_run(progress, pa.concat_tables([others, asked]))
    assert names(found) == {"not led to by sums"}
    assert "that the sums before it do not lead to" in found[0].text


def test_actions_that_nobody_led_to(run):
    progress, log = run
    last = progress.decided[-1].batch
    other = next(a for a in range(4) if a not in last.played)
    found = audit_run(progress, changed(log, last.number, PLAY, other, most=1))
    assert names(found) == {"not led to by sums"}
    moved = changed(log, 2, PLAY, int(progress.decided[1].batch.played[0]))
    assert names(audit_run(progress, moved)) == {"another number of people"}


def test_a_report_dearer_than_its_batch_is_found(run):
    progress, log = run
    dearer = changed(log, 1, "epsilon", 3.1, most=1)
    assert "another randomizer" in names(audit_run(progress, dearer))


def test_a_report_that_declares_less_than_it_costs_is_found(run):
    progress, log = run
    declared = changed(log, 1, "epsilon", 2.0, most=1)
    assert names(audit_run(progress, declared)) == {"declared below minimal"}
    batch = progress.decided[-1].batch
    swapped = changed(log, 1, "randomizer", randomizer_name(batch), most=1)
    assert "another randomizer" in names(audit_run(progress, swapped))


def test_a_missing_batch_and_a_batch_too_many(run):
    progress, log = run
    without = log.filter(pc.not_equal(log["round"], 2))
    assert names(audit_run(progress, without)) == {"missing batch"}
    shorter = BanditProgress(progress.bandit, progress.heard[:-1])
    assert "not in the run" in names(audit_run(shorter, log))


def test_people_who_are_in_no_record(run):
    progress, log = run
    last = progress.decided[-1].batch.number
    short = log.slice(0, log.num_rows - 1)
    assert names(audit_run(progress, short)) == {"another number of people"}
    assert str(last) in audit_run(progress, short)[0].text


def test_a_retry_counts_once_and_noise_drawn_anew_is_a_fault(run):
    progress, log = run
    again = pa.concat_tables([log, log.slice(0, 2)])
    assert audit_run(progress, again) == ()
    found = audit_run(progress, changed(again, 1, "output", 7, most=1))
    assert {"over budget", "re-randomized on retry"} == names(found)


def test_logs_of_workers_are_read_by_the_names_of_their_runs(run, tmp_path):
    """What `bandit advance --interaction-log` leaves: all rounds are 0, and no play is named."""
    progress, log = run
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    runs = [f"visitors/banner-batch-{one.batch.number}" for one in progress.decided]
    for one, name in zip(progress.decided, runs, strict=True):
        epsilon = one.batch.noise.epsilon
        place = RecordLog(str(tmp_path / "log"), str(key), "visitors", name)
        asked = AskedRecords(place, bit_randomizer(epsilon))
        people = np.asarray(log.filter(pc.equal(log["round"], one.batch.number))["user"])
        drawn = bit_randomizer(epsilon).randomize(np.ones((len(people), 1)))
        asked.add(ValueBlock(np.ones((len(people), 1)), people), drawn, GlobalWindow())
        asked.write()
    told = pq.read_table(tmp_path / "log")
    assert audit_run(progress, told, runs=runs) == ()
    assert names(audit_run(progress, told, runs=runs[:-1])) == {"not in the run", "missing batch"}
    assert "another randomizer" in names(audit_run(progress, told, runs=runs[::-1]))


def test_refusals():
    central = LinearBandit(actions=ACTIONS, horizon=6000, model="central")
    batch = BanditProgress(central).open
    assert batch is not None
    with pytest.raises(ValueError, match="model must be local or shuffled"):
        batch_records(central, batch, [1], np.array([0]))
    local = LinearBandit(actions=ACTIONS, horizon=6000, model="local")
    asked = BanditProgress(local).open
    assert asked is not None
    with pytest.raises(ValueError, match="of one length"):
        batch_records(local, asked, [1, 2], np.array([0]))
    with pytest.raises(ValueError, match="progress must have a batch"):
        audit_run(BanditProgress(local), batch_records(local, asked, [1], asked.played[:1]))
