"""How trainings end: withheld, lost or refused, of rounds that only count themselves."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from click.testing import CliRunner

from beam_ldp.federated import ShuffledEpochs
from beam_ldp.federated.record import RoundConfig
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs, train
from beam_ldp.pipelines.cli import group
from beam_ldp.training import run as train_run
from beam_ldp.training.charge import ModelScore
from beam_ldp.training.checkpoints import Keeper
from beam_ldp.training.learner import Learner, sampler_of
from beam_ldp.training.rounds import check_events
from tests.tff_adapters.train_flags import QUICK, charged_flags, plan_of
from tff_adapters import (
    DeclaredSampling,
    RoundsRecord,
    SamplingMismatchError,
)
from tff_adapters.data import load

pytestmark = pytest.mark.e2e

NOTHING_LEAVES = tff.federated_computation(lambda: tff.federated_value(0, tff.SERVER))


class Faked(Learner):
    """Rounds that only count themselves; `fails` says what happens in which round."""

    fails = staticmethod(lambda number: None)
    failing = 0.0

    def __init__(self, plan, clients):
        super().__init__(plan, clients)
        self.process = self
        self.computation = NOTHING_LEAVES
        self._config = RoundConfig(
            (plan.config,),
            1,
            DeclaredSampling(plan.data.num_clients, plan.clients_per_round),
            False,
        ).to_json()

    def state(self, rounds):
        return RoundsRecord(self._config, np.array([[self.plan.clients_per_round, rounds]]))

    def initialize(self):
        return self.state(0)

    def next(self, state, clients):
        rounds = int(state.rounds[0, 1]) + 1
        self.fails(rounds)
        return SimpleNamespace(state=self.state(rounds), metrics={"failing": self.failing})

    def clients_for(self, number):
        return [None] * self.plan.clients_per_round

    def measure(self, state, rounds):
        return ModelScore(rounds, math.nan, math.nan)

    def weights_to(self, state, made):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_ran_is_charged_where_a_training_ends_early(tmp_path, monkeypatch, error, capsys):
    def fails(number):
        if number == 2:
            raise error("a client's secret")

    monkeypatch.setattr(Faked, "fails", staticmethod(fails))
    monkeypatch.setattr(train_run, "learner_for", Faked)
    ledger, flags = charged_flags(tmp_path)
    code = train.main(flags)
    assert code == (programs.INTERRUPTED if error is KeyboardInterrupt else programs.FAILED)
    said = capsys.readouterr().err
    assert "secret" not in said and "the model after round 1 is released" in " ".join(said.split())
    assert BudgetLedger(ledger.url).status("d").local_committed == 8.0  # two rounds of 4
    assert [path.name for path in tmp_path.glob("*out*")] == ["out"]
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    why = "interrupted" if error is KeyboardInterrupt else "failed"
    assert (record["stopped"], record["rounds"], record["lost_rounds"]) == (why, 2, 1)
    charge = BudgetLedger(ledger.url).charge("one")
    assert (charge.status, charge.settled) == ("settled", record["event"])
    assert "the model is that after 1" in (tmp_path / "out" / "privacy.md").read_text()


def test_a_training_whose_clients_all_fail_ends_and_says_why(tmp_path, monkeypatch, capsys):
    """All other rounds of the epoch would be charged for nothing."""
    monkeypatch.setattr(Faked, "failing", 1.0)
    monkeypatch.setattr(train_run, "learner_for", Faked)
    ledger, flags = charged_flags(tmp_path)
    assert train.main(flags) == programs.FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "the updates of most clients were not finite" in said
    assert "the model after round 3 is released; 3 rounds are charged" in said
    assert BudgetLedger(ledger.url).status("d").local_committed == 12.0
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert (record["stopped"], record["rounds"], record["lost_rounds"]) == ("failed", 3, 0)


def test_a_training_whose_first_round_fails_leaves_nothing(tmp_path, monkeypatch, capsys):
    def fails(number):
        raise RuntimeError("a client's secret")

    monkeypatch.setattr(Faked, "fails", staticmethod(fails))
    monkeypatch.setattr(train_run, "learner_for", Faked)
    ledger, flags = charged_flags(tmp_path)
    assert train.main(flags) == programs.FAILED
    assert BudgetLedger(ledger.url).status("d").local_committed == 4.0
    assert not list(tmp_path.glob("*out*"))


def test_a_training_whose_ledger_is_away_at_the_end_is_published_by_finalize(
    tmp_path, monkeypatch, capsys
):
    """Nothing appears before it is settled: no model, and no word of success."""
    monkeypatch.setattr(train_run, "learner_for", Faked)
    ledger, flags = charged_flags(tmp_path)
    with monkeypatch.context() as gone:
        gone.setattr(BudgetLedger, "settle", lambda *_, **__: 1 / 0)
        assert train.main(flags) == programs.NOTHING_RELEASED
    assert "beam-ldp finalize" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
    assert BudgetLedger(ledger.url).charge("one").status == "reserved"
    done = CliRunner().invoke(group, ["finalize", str(tmp_path / "out"), "--ledger", ledger.url])
    assert done.exit_code == 0 and "settled, and published" in " ".join(done.output.split())
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    charge = BudgetLedger(ledger.url).charge("one")
    assert (charge.status, charge.settled) == ("settled", record["event"])
    assert tf.keras.models.load_model(tmp_path / "out" / "model.keras").count_params() == 650


@pytest.mark.parametrize("wrote", [False, True], ids=["full", "killed after the last"])
def test_a_disk_that_takes_no_checkpoint_ends_a_training_that_goes_on(
    tmp_path, monkeypatch, capsys, wrote
):
    """At the fourth of four rounds: nobody saw it. It is lost where the disk was full. Where it was
    written nothing is left to run, and the model that is released is measured."""
    keep = Keeper.keep

    def full(self, rounds, *told):
        if rounds == 4 and wrote:
            keep(self, rounds, *told)
        if rounds == 4:
            raise OSError(28, "No space left on device")
        keep(self, rounds, *told)

    monkeypatch.setattr(train_run, "learner_for", Faked)
    ledger, flags = charged_flags(tmp_path)
    flags[flags.index("--clients-per-round") + 1] = "360"
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "keep", full)
        assert train.main(flags) == programs.NOTHING_RELEASED
    said = " ".join(capsys.readouterr().err.split())
    assert "(No space left on device)" in said and "--resume" in said
    assert not (tmp_path / "out").exists()
    assert BudgetLedger(ledger.url).charge("one").status == "reserved"
    monkeypatch.setattr(Launcher, "ended", property(lambda _: "ended"))  # as its process has
    assert train.main(["--resume", str(tmp_path / "out"), "--ledger", ledger.url]) == programs.DONE
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    lost = 0 if wrote else 1
    assert (record["rounds"], record["lost_rounds"], record["stopped"]) == (4, lost, "finished")
    last = (tmp_path / "out" / "curve.csv").read_text().splitlines()[-1]
    assert last.startswith(f"1,{4 - lost},")
    assert BudgetLedger(ledger.url).charge("one").local_epsilon == 16.0


def test_a_training_that_knows_clients_by_place_goes_on_with_the_same_ones_only(
    tmp_path, monkeypatch, capsys
):
    """The disk is full in the second round. One of twelve clients has another name then: refused,
    and nothing is lost by it. With the rows of all in another order it goes on."""

    class Places(Faked):
        def kept_of_clients(self):
            return {"messages": np.zeros(12)}

    def full(self, rounds, *told):
        if rounds == 2:
            raise OSError(28, "No space left on device")
        keep(self, rounds, *told)

    keep, file = Keeper.keep, tmp_path / "rows.csv"
    rows = [f"u{i:02},{i % 2},{i % 3},{i % 2}" for i in range(12)]

    def write(lines):
        file.write_text("\n".join(["uid,a,b,y", *lines]))

    write(rows)
    monkeypatch.setattr(train_run, "learner_for", Places)
    flags = f"--data {file} --features a,b --label y --client-id uid --classes 2 --local-epsilon 4 "
    flags += "--sampling full --epochs 3 --delta 1e-5 --no-mlflow --no-ledger --output "
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "keep", full)
        assert train.main(f"{flags}{tmp_path / 'out'}".split()) == programs.NOTHING_RELEASED
    (staging,) = tmp_path.glob(".out.staging-*")
    assert b"u03" not in (staging / "checkpoint.npz").read_bytes()
    monkeypatch.setattr(Launcher, "ended", property(lambda _: "ended"))
    going_on = f"--resume {tmp_path / 'out'} --no-ledger".split()
    write([*rows[1:], "u12,0,0,0"])
    assert train.main(going_on) == programs.MISUSED
    assert "must be those that the training began with" in " ".join(capsys.readouterr().err.split())
    write(rows[::-1])
    assert train.main(going_on) == programs.DONE
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert (record["rounds"], record["lost_rounds"]) == (3, 1)


def test_an_epoch_that_too_few_come_to_ends_and_its_rest_is_said(tmp_path, monkeypatch, capsys):
    """Of epochs of three rounds: too few come to the second round of the second epoch, which is
    charged whole."""

    class InEpochs(Faked):
        def __init__(self, plan, clients):
            super().__init__(plan, clients)
            sampling = ShuffledEpochs(plan.data.num_clients, 400, plan.least_clients).declared()
            self._config = RoundConfig((plan.config,), 1, sampling, False).to_json()

        def clients_for(self, number):
            return [None] * (400 if number != 4 else 7)

    monkeypatch.setattr(train_run, "learner_for", InEpochs)
    ledger, flags = charged_flags(tmp_path)
    flags[flags.index("--clients-per-round") + 1] = "400"
    flags[flags.index("--epochs") + 1] = "3"
    flags += ["--sampling", "shuffled-epochs", "--least-clients", "300"]
    assert train.main(flags) == programs.FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "7 clients came to a round of a shuffled epoch" in said
    assert "the model after round 4 is released; 6 rounds are charged" in said
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert (record["rounds"], record["withheld_rounds"], record["lost_rounds"]) == (6, 1, 1)
    assert (record["stopped"], record["local_epsilon"]) == ("too few", 8.0)
    text = (tmp_path / "out" / "privacy.md").read_text()
    assert "the model is that after 4 of 9 rounds" in text and "never ran" in text
    assert BudgetLedger(ledger.url).status("d").local_spent == 8.0


class Checked(Faked):
    """Of 71 who came to each round so many reports are left; 60 at least, or it has no result."""

    LEFT = (71, 65, 59, 0, 60, 71)

    def __init__(self, plan, clients):
        super().__init__(plan, clients)
        config = RoundConfig.from_json(self._config)
        sampling = sampler_of(plan).declared()
        self._config = replace(config, sampling=sampling, least_left=60).to_json()

    def state(self, rounds):
        left = [[count, 1] for count in self.LEFT[:rounds]]
        return RoundsRecord(self._config, np.array(left, np.int64).reshape(-1, 2))

    def next(self, state, clients):
        rounds = len(state.rounds) + 1
        self.fails(rounds)
        counts = {"colluding": 71 - self.LEFT[rounds - 1], "agreement": 1.0}
        return SimpleNamespace(state=self.state(rounds), metrics=counts)


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed and resumed"])
def test_rounds_of_which_too_few_reports_are_left_are_charged_once_and_not_released(
    tmp_path, monkeypatch, capsys, killed
):
    """Two of six; two others lost reports, and are charged once as well, as all are: for 60.

    Resumed it is the same: in the fifth round the disk is full, which is lost like one of a kill,
    so that one fewer is run.
    """
    keep = Keeper.keep

    def full(self, rounds, *told):
        if rounds == 5:
            raise OSError(28, "No space left on device")
        keep(self, rounds, *told)

    monkeypatch.setattr(train_run, "learner_for", Checked)
    ledger, _ = charged_flags(tmp_path)
    flags = "--data digits --points-per-client 20 --sampling full --local-epsilon 4 --epochs 6 "
    flags += f"--delta 1e-5 --no-mlflow --dataset d --run-id one --ledger {ledger.url} --output "
    flags += f"{tmp_path / 'out'} --algorithm fedavg --drop-colluders --least-clients 60"
    if killed:
        monkeypatch.setattr(Launcher, "ended", property(lambda _: "ended"))
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "keep", full)
            assert train.main(flags.split()) == programs.NOTHING_RELEASED
        for other in ("--drop-colluders", "--least-clients 59"):
            going_on = f"--resume {tmp_path / 'out'} --ledger {ledger.url} {other}"
            assert train.main(going_on.split()) == programs.MISUSED
            assert f"takes no {other.split()[0]}" in " ".join(capsys.readouterr().err.split())
        flags = f"--resume {tmp_path / 'out'} --ledger {ledger.url}"
    assert train.main(flags.split()) == programs.DONE
    said = " ".join(capsys.readouterr().err.split())
    assert "2 rounds of which fewer than 60 reports were left were not released" in said
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert (record["rounds"], record["withheld_rounds"]) == (6, 2)
    assert record["lost_rounds"] == killed and record["stopped"] == "finished"
    assert record["colluding_reports"] == (11 if killed else 0)
    assert record["forged_checked"].keys() == record["forged"].keys(), "it still checks"
    text = (tmp_path / "out" / "privacy.md").read_text()
    assert "2 of the rounds that are charged were not released: the check left fewer" in text
    charge = BudgetLedger(ledger.url).charge("one")
    assert (charge.status, charge.local_epsilon, charge.settled) == (
        "settled", 24.0, record["event"],
    )  # fmt: skip


def test_a_round_that_is_not_what_was_priced_is_never_run(tmp_path, monkeypatch, capsys):
    class Another(Faked):
        def __init__(self, plan, clients):
            super().__init__(plan, clients)
            self._config = self._config.replace('"num_users": 1437', '"num_users": 1436')

    monkeypatch.setattr(train_run, "learner_for", Another)
    ledger, flags = charged_flags(tmp_path)
    assert train.main(flags) == programs.FAILED
    assert "not the one whose cost was reserved" in " ".join(capsys.readouterr().err.split())
    assert BudgetLedger(ledger.url).status("d").local_committed == 0.0


def test_a_training_whose_record_is_another_is_stopped():
    plan = plan_of(f"{QUICK} --dry-run")
    learner = Faked(plan, load("digits"))
    check_events(plan, learner.state(2), 2)
    for state, begun in ((learner.state(2), 1), (learner.state(1), 2)):
        with pytest.raises(SamplingMismatchError, match="not the one whose cost was reserved"):
            check_events(plan, state, begun)
