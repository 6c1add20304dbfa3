"""Trainings that go on after a kill: what pairs of programs do to one. No TensorFlow."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import replace

import attr
import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from beam_ldp.federated import ShuffledEpochs
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import train
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release.interrupted_runs import BEGUN, Note
from beam_ldp.settings import SettingError
from beam_ldp.training import charge as charge_module
from beam_ldp.training.charge import ModelScore, charged
from beam_ldp.training.checkpoints import (
    CHECKPOINT,
    Checkpoint,
    CheckpointError,
    Keeper,
    address_of,
    job_of,
    leaves_like,
    plain_leaves,
    resume,
)
from beam_ldp.training.facts import bundled_facts
from beam_ldp.training.plans import make_plan
from beam_ldp.training.settings import check_train
from beam_ldp.training.usage import USAGE

pytestmark = pytest.mark.exact
QUIET = Console(quiet=True)
DEAD = replace(Launcher.this(), started="1")
FLAGS = "--data digits --local-epsilon 4 --clients-per-round 200 --epochs 2 --delta 1e-5"
CONFIG = b'{"clip": 1}'


def flags(text):
    return read_flags(USAGE, text.split())


def plan_of(given):
    settings = check_train(given)
    question = settings.question
    return make_plan(settings, bundled_facts(question.data, question.points_per_client))


class World:
    """A ledger, and a training with an output that is killed when it is told to."""

    def __init__(self, place, charged=True, more=""):
        self.place, self.out = place, str(place / "out")
        self.ledger = BudgetLedger.create(f"sqlite:///{place / 'privacy.db'}")
        self.ledger.set_budget("d", epsilon=90.0, delta=1e-5, local_epsilon=1000.0)
        self.to = f"--ledger {self.ledger.url}" if charged else "--no-ledger"
        self.given = flags(f"{FLAGS} {more} --dataset d --run-id one --output {self.out} {self.to}")
        self.plan = plan_of(self.given)
        self.staging = place / ".out.staging-0123abcd"

    def killed(self, begun, rounds, launcher=DEAD, clients=None, withheld=(), seen=lambda _: None):
        """It ran so many rounds, of which the last checkpoint knows; withheld: by their number.

        After each, `seen` may look at what it left.
        """
        self.staging.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(charge_module, "_settle_part", lambda *_: None)
            with pytest.raises(KeyboardInterrupt), charged(self.plan, QUIET) as (charge, ran):
                charge.leave_note(str(self.staging), ends_with_launcher=True,
                                  rounds=self.plan.round_price)  # fmt: skip
                keeper = Keeper(str(self.staging), ran.identity, job_of(self.given),
                                charge.facts["charged"], self.plan.rounds,
                                self.plan.rounds_per_event)  # fmt: skip
                for number in range(begun):
                    if number % self.plan.rounds_per_event == 0:
                        charge.begin_round(number in withheld)
                    if number < rounds:
                        score = ModelScore(number + 1, 0.5, 0.25, personal=0.5)
                        state = plain_leaves([np.full(3, number + 1.0), CONFIG, np.int32(number)])
                        keeper.keep(number + 1, state, [(score, 0.1)], clients or {})
                    seen(number + 1)
                raise KeyboardInterrupt
        self.die(launcher)

    def die(self, launcher=DEAD):
        note = Note.read(str(self.staging))
        if note is not None:
            replace(note, launcher=launcher).write(str(self.staging))
        found = Checkpoint.read(str(self.staging))
        if found is not None:
            replace(found, launcher=launcher).write(str(self.staging))

    def resume(self, more=""):
        return resume(self.out, flags(f"--resume {self.out} {self.to} {more}"))

    def refused(self, why, more=""):
        """It is, and whoever comes next is not kept from it."""
        with pytest.raises(CheckpointError, match=why):
            found = self.resume(more)
            try:
                with charged(plan_of(found.given), QUIET, found):
                    raise AssertionError("it went on")
            finally:
                found.begun.close()

    def finish(self, found, rounds, events=None):
        """It goes on for so many rounds, and is then interrupted; what it was charged."""
        with pytest.raises(KeyboardInterrupt), charged(plan_of(found.given), QUIET, found) as (
            charge, ran,
        ):  # fmt: skip
            charge.leave_note(str(self.staging), ends_with_launcher=True,
                              rounds=self.plan.round_price)  # fmt: skip
            ran.begun += rounds
            for _ in range(events or rounds):
                charge.begin_round()
            raise KeyboardInterrupt
        self.die()
        return self.ledger.charge("one")

    def finalize(self):
        done = CliRunner().invoke(group, ["finalize", self.out, "--ledger", self.ledger.url])
        return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_training_goes_on_where_it_was_killed(world):
    world.killed(begun=3, rounds=2)
    assert (world.staging / CHECKPOINT).stat().st_mode & 0o777 == 0o600
    found = world.resume()
    assert (found.checkpoint.rounds, found.rounds_begun, found.lost) == (2, 3, 1)
    state = leaves_like([np.zeros(3), b"", np.int32(0)], found.checkpoint.state)
    assert state[0].tolist() == [2.0, 2.0, 2.0] and state[1] == CONFIG and state[2] == 1
    assert plan_of(found.given).identity("one") == world.plan.identity("one")
    with charged(plan_of(found.given), QUIET, found) as (_, ran):
        assert (ran.begun, ran.lost) == (3, 1)
        (point,) = ran.curve
        assert point == (ModelScore(2, 0.5, 0.25, personal=0.5), 0.1)
        found.begun.close()


def test_an_older_checkpoint_leaves_all_rounds_charged(world):
    """Seven rounds began and the checkpoint is of the fifth: two are lost, and stay charged."""
    world.killed(begun=7, rounds=7)
    older = replace(Checkpoint.read(str(world.staging)), rounds=5, begun=5, counter=(
        (world.staging / BEGUN).stat().st_ino, 0))  # fmt: skip
    older.write(str(world.staging))
    found = world.resume()
    assert (found.rounds_begun, found.lost) == (7, 2)
    charge = world.finish(found, rounds=1)
    assert (charge.status, charge.local_epsilon) == ("settled", 8 * 4.0)
    assert charge.settled == world.plan.round_price.event_of(8)


def restored(how):
    def put_back(world):
        aside = world.place / "backup"
        shutil.copytree(world.staging, aside)
        with (world.staging / BEGUN).open("ab") as file:
            file.write(b"..")
        how(world, aside)

    return put_back


@pytest.fixture
def uncharged(tmp_path):
    return World(tmp_path, charged=False)


def as_folder(world, aside):
    shutil.rmtree(world.staging)
    shutil.copytree(aside, world.staging)


def in_place(world, aside):
    shutil.copyfile(aside / BEGUN, world.staging / BEGUN)


def with_times(world, aside):
    shutil.copy2(aside / BEGUN, world.staging / BEGUN)


@pytest.mark.parametrize("how", [as_folder, in_place, with_times])
def test_a_count_of_rounds_from_a_backup_is_refused_where_no_ledger_counts(uncharged, how):
    uncharged.killed(begun=5, rounds=5)
    restored(how)(uncharged)
    uncharged.refused("restored from a backup")


def test_rounds_that_were_withheld_are_told_from_those_that_were_lost(world):
    """Two were withheld, one of them after the last checkpoint, and one was lost in the kill."""
    world.killed(begun=6, rounds=2, withheld=(2, 4))
    whole = Checkpoint.read(str(world.staging))
    replace(whole, rounds=3).write(str(world.staging))  # of the fourth round
    found = world.resume()
    assert (found.rounds_begun, found.withheld, found.lost) == (6, 2, 1)
    with charged(plan_of(found.given), QUIET, found) as (charge, ran):
        assert (ran.begun, ran.withheld, ran.lost, ran.released) == (6, 2, 1, 3)
        charge.end_rounds()
    replace(whole, rounds=5).write(str(world.staging))  # more than can have been released
    world.refused("restored from a backup")


def test_a_checkpoint_that_was_cut_or_is_of_an_older_version_is_refused(world):
    world.killed(begun=3, rounds=2)
    file = world.staging / CHECKPOINT
    whole = file.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        world.refused("no checkpoint of this version, or was damaged")
    with np.load(io.BytesIO(whole)) as found:
        held = {name: found[name] for name in found}
    told = json.loads(held["told"].item())
    np.savez(file, **(held | {"told": np.array(json.dumps(told | {"version": 1}))}))
    world.refused("no checkpoint of this version, or was damaged")
    file.write_bytes(whole)
    world.resume().begun.close()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(world, monkeypatch, error):
    world.killed(begun=3, rounds=2)
    before = Checkpoint.read(str(world.staging))

    def full(*_):
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(os, "fsync", full)
        replace(before, rounds=3).write(str(world.staging))
    assert {path.name for path in world.staging.iterdir()} == {CHECKPOINT, BEGUN, "run.json"}
    assert Checkpoint.read(str(world.staging)).rounds == 2
    world.resume().begun.close()


EPOCHS = "--sampling shuffled-epochs --epochs 4"
EACH = 7  # rounds of an epoch: 1,437 clients, 200 in a round


@pytest.mark.parametrize("begun, known, epochs", [
    (2 * EACH + 3, EACH, 3),  # amid the third epoch, with the checkpoint of the first put back
    (2 * EACH + 3, 2 * EACH + 3, 3),  # nothing is kept amid an epoch
    (2 * EACH + 1, 2 * EACH, 3),  # between the charge of an epoch and its first result
    (2 * EACH, 2 * EACH, 2),
])  # fmt: skip
def test_a_shuffled_epoch_that_began_is_charged_and_another_is_begun(
    tmp_path, begun, known, epochs
):
    """Never amid one: who reported in the epoch that was lost is in none of its rounds again."""
    world = World(tmp_path, more=EPOCHS)
    world.killed(begun, known)
    found = world.resume()
    kept = min(known, begun) // EACH * EACH
    assert (found.checkpoint.rounds, found.rounds_begun) == (kept, epochs * EACH)
    assert found.lost == epochs * EACH - kept
    world.refused("under way")
    with charged(plan_of(found.given), QUIET, found) as (charge, ran):
        assert (ran.begun, ran.lost) == (epochs * EACH, found.lost)
        sampler = ShuffledEpochs(1437, 200)  # of another program, at the number that goes on
        cohorts = [sampler.sample(number=kept + i).clients for i in range(EACH)]
        assert len({client for cohort in cohorts for client in cohort}) == EACH * 200
        charge.end_rounds()
    charge = world.finish(world.resume(), rounds=EACH, events=1)
    assert (charge.status, charge.local_epsilon) == ("settled", (epochs + 1) * 4.0)
    assert charge.settled == world.plan.round_price.event_of(epochs + 1)


def test_a_count_of_epochs_from_a_backup_is_refused(tmp_path):
    world = World(tmp_path, charged=False, more=EPOCHS)
    world.killed(begun=2 * EACH, rounds=2 * EACH)
    restored(as_folder)(world)
    world.refused("restored from a backup")
    shutil.rmtree(world.staging)
    with pytest.raises(CheckpointError, match="no training"):
        world.resume()


def test_an_epoch_that_did_not_end_left_nothing_to_go_on_from(tmp_path):
    world = World(tmp_path, more=EPOCHS)
    world.killed(begun=3, rounds=3)
    world.refused("with shuffled-epochs no epoch")
    assert world.finalize()[0] == 0
    assert world.ledger.charge("one").local_epsilon == 4.0


def test_rounds_that_cost_something_else_than_was_reserved_are_not_gone_on_with(world):
    """The same training, as far as clients are asked; its price is one of smaller crowds."""
    world.killed(begun=3, rounds=2)
    found = world.resume()
    other = plan_of(flags(f"{FLAGS} --dataset d --output x {world.to} --least-clients 140"))
    assert other.identity("one") == found.identity
    refused = pytest.raises(CheckpointError, match="cost more now than was reserved")
    with refused, charged(other, QUIET, found):
        raise AssertionError("it went on")
    found.begun.close()
    assert world.ledger.charge("one").status == "reserved"
    assert world.finish(world.resume(), rounds=1).status == "settled"


@pytest.mark.parametrize(("change", "goes_on"), [(None, True), (0.2, False)])
def test_a_training_that_was_reserved_when_less_was_proved_goes_on(tmp_path, change, goes_on):
    """Of four messages, reserved as any four: what is proved of L2Mean costs less at every order.

    Not where less was reserved than it costs: as if its vectors were shorter than they are.
    """
    world = World(tmp_path, more="--norm l2 --mechanism L2Mean --messages 4")
    now = world.plan.event
    places = now.local_event.places if change else 1
    local = attr.evolve(now.local_event, squared_change=change, places=places)
    world.plan.__dict__["event"] = attr.evolve(now, local_event=local)
    world.killed(begun=5, rounds=5)
    before = world.ledger.charge("one")
    if not goes_on:
        world.refused("cost more now than was reserved")
        assert world.ledger.charge("one").status == "reserved"
        return
    found = world.resume()
    plan = plan_of(found.given)
    assert before.reserved != plan.stored_event_of(plan.rounds) and plan.event == now
    after = world.finish(found, rounds=1)
    assert (after.status, after.settled) == ("settled", plan.stored_event_of(6))
    assert after.local_epsilon == 24.0 and before.reserved_local == 56.0


def test_a_committed_schedule_goes_on_and_is_charged_whole(tmp_path):
    world = World(tmp_path)
    world.ledger.set_budget("e", epsilon=90.0, delta=1e-5, local_epsilon=1000.0, chances=0.5)
    world.given = flags(f"{FLAGS} --dataset e --run-id one --output {world.out} {world.to}")
    world.plan = plan_of(world.given)
    world.killed(begun=5, rounds=5)
    before = world.ledger.charge("one")
    after = world.finish(world.resume(), rounds=1)
    assert (after.status, after.settled, after.loss) == ("settled", before.reserved, before.loss)


def test_what_the_host_keeps_of_clients_comes_back_and_is_its_owners_alone(world):
    own = {"who": np.array([3, 7]), "own0": np.arange(4.0).reshape(2, 2), "own1": np.ones((2, 1))}
    world.killed(begun=3, rounds=2, clients=own)
    assert [path.stat().st_mode & 0o77 for path in world.staging.glob("*.npz")] == [0]
    found = world.resume()
    back = found.checkpoint.clients
    assert back.keys() == own.keys() and all((back[name] == own[name]).all() for name in own)
    assert len(found.checkpoint.state) == 3
    found.begun.close()


def test_one_of_two_that_go_on_at_once_is_refused(world):
    world.killed(begun=3, rounds=2)
    first = world.resume()
    world.refused("under way")
    code, said = world.finalize()
    assert code == 1 and "goes on with its training" in said
    assert world.finish(first, rounds=1).local_epsilon == 16.0
    world.refused("settled already")


def test_a_training_that_was_settled_does_not_go_on(world):
    world.killed(begun=3, rounds=2)
    code, said = world.finalize()
    assert code == 0 and "at the 3 rounds that began" in said
    world.refused("settled already")
    assert world.ledger.charge("one").local_epsilon == 12.0


@pytest.mark.parametrize("launcher", [
    Launcher.this(), replace(Launcher.this(), host="elsewhere")])  # fmt: skip
def test_a_training_that_may_be_under_way_does_not_go_on(world, launcher):
    world.killed(begun=3, rounds=2, launcher=launcher)
    world.refused("runs it, or may")


def test_a_finished_training_does_not_go_on(world):
    world.killed(begun=3, rounds=2)
    (world.place / ".out.finished-0123abcd").mkdir()
    world.refused("finished already")


def test_nothing_to_go_on_from(world):
    world.refused("no training with this --output")
    world.killed(begun=1, rounds=0)
    world.refused("no round of that training ended")


def test_the_checkpoint_of_another_training_is_refused(world):
    world.killed(begun=3, rounds=2)
    whole = Checkpoint.read(str(world.staging))
    replace(whole, identity=world.plan.identity("two").to_json()).write(str(world.staging))
    world.refused("that of another training")
    replace(whole, job=job_of(flags(f"{FLAGS} --dataset d --clip 1"))).write(str(world.staging))
    world.refused("differs in its mechanism")
    longer = job_of(flags(FLAGS.replace("--epochs 2", "--epochs 3") + " --dataset d"))
    replace(whole, job=longer).write(str(world.staging))
    world.refused("14 rounds reserved, and 21 planned")
    with pytest.raises(CheckpointError, match="state of another training"):
        leaves_like([np.zeros(3)], whole.state)
    (world.staging / CHECKPOINT).write_bytes(b"cut")
    world.refused("damaged")


def test_another_ledger_or_none_is_refused(world):
    world.killed(begun=3, rounds=2)
    world.to = "--no-ledger"
    world.refused("--ledger must name")
    another = BudgetLedger.create(f"sqlite:///{world.place / 'another.db'}")
    world.to = f"--ledger {another.url}"
    world.refused("another ledger")


def test_what_is_charged_to_nobody_goes_on_so(tmp_path):
    world = World(tmp_path, charged=False)
    world.killed(begun=3, rounds=2)
    to, world.to = world.to, f"--ledger {world.ledger.url}"
    world.refused("goes on only so: --no-ledger")
    world.to = to
    found = world.resume()
    with charged(plan_of(found.given), QUIET, found) as (charge, ran):
        charge.begin_round()
        assert ran.begun == 3 and "run_id" not in charge.facts
    assert (world.staging / BEGUN).stat().st_size == 4


STORES = [  # that it is logged to, that --resume names, and where it goes on
    ("sqlite:////data/mlflow.db", None, "sqlite:////data/mlflow.db"),
    ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
    ("sqlite:////data/mlflow.db", "sqlite:////data/other.db", "--mlflow-uri: .* goes on there"),
    ("http://ann:***@host", None, "with its password, which is not kept"),
    ("http://ann:***@host", "http://ann:secret@host", "http://ann:secret@host"),
    ("http://ann:***@host", "http://ann:secret@elsewhere", "--mlflow-uri: .* goes on there"),
    ("", "http://host", "logged to no store"),
    ("", None, None),
]


@pytest.mark.parametrize(("begun", "named", "becomes"), STORES)
def test_it_goes_on_in_the_store_that_it_was_logged_to(world, begun, named, becomes):
    world.killed(begun=3, rounds=2)
    replace(Checkpoint.read(str(world.staging)), tracking=begun).write(str(world.staging))
    more = "" if named is None else f"--mlflow-uri {named}"
    if becomes is not None and "://" not in becomes:
        return world.refused(becomes, more)
    found = world.resume(more)
    assert check_train(found.given).output.mlflow_uri == becomes
    found.begun.close()


def test_the_address_of_a_store_is_kept_whole_and_without_a_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert address_of("sqlite:///m.db") == f"sqlite:///{tmp_path}/m.db"
    assert address_of("https://ann:secret@host/x") == "https://ann:***@host/x"
    asked = "postgresql://host/db?user=ann&password=secret&x=1"
    assert address_of(asked) == "postgresql://host/db?user=ann&password=***&x=1"


def test_no_other_flag_is_taken_and_no_ledger_is_written_down(world, capsys):
    world.killed(begun=3, rounds=2)
    for other in ("epochs 9", "output elsewhere", "least-clients 5", "points-per-client 2",
                  "messages 2", "dropout 0.1", "data mnist5k"):  # fmt: skip
        world.refused(f"takes no --{other.split()[0]}", f"--{other}")
    assert "privacy.db" not in str(Checkpoint.read(str(world.staging)).job)
    with pytest.raises(SettingError, match="nothing to plan"):
        check_train(flags(f"{FLAGS} --dry-run --resume {world.out}"))
    code = train.main(["--resume", world.out, "--epochs", "9"])
    assert code == 2 and "--resume takes no --epochs" in " ".join(capsys.readouterr().err.split())
