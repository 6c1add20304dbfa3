"""Trainings that end at every step between their rounds and their output. No TensorFlow.

What is judged is one rule: an output that is there was settled before, at the rounds that began.
Three rounds only count themselves; what charges, writes, settles and publishes is what runs in
`beam-ldp train`. `tests/tff_adapters/test_train_endings.py` does it with a learner.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release import charging, outputs
from beam_ldp.release.gates import NothingReleasedError, NotPublishedError
from beam_ldp.release.interrupted_runs import Note
from beam_ldp.settings import SettingError
from beam_ldp.training import charge as charge_module
from beam_ldp.training import release as release_module
from beam_ldp.training.charge import ModelScore, charged
from beam_ldp.training.facts import bundled_facts
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.plans import make_plan
from beam_ldp.training.release import release
from beam_ldp.training.settings import check_train
from beam_ldp.training.usage import USAGE
from tests.pairs.world import Killed, away, die

pytestmark = pytest.mark.e2e

REPORTS = "--local-epsilon 4 --clients-per-round 479 --epochs 1 --delta 1e-5"
TRUSTED = (
    "--algorithm local-central --points-per-client 4 --local-epsilon 60 --trust-shuffler "
    "--projection 1 "
    "--noise-multiplier 1 --clients-per-round 120 --epochs 1 --max-participations 5 --delta 1e-5"
)
QUIET = Console(quiet=True)
MODEL = b"a model"


@dataclass
class World:
    """A folder with a ledger, and trainings in it."""

    folder: Path

    def plan(self, asked: str = REPORTS, **flags: str) -> TrainingPlan:
        named = {"dataset": "them", "run_id": "one", "output": f"{self.folder}/out", **flags}
        given = [f"--{name.replace('_', '-')}={value}" for name, value in named.items()]
        told = ["--data=digits", *asked.split(), *given, f"--ledger={self.url}", "--no-mlflow"]
        settings = check_train(read_flags(USAGE, told))
        return make_plan(
            settings, bundled_facts(settings.question.data, settings.question.points_per_client)
        )

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/privacy.db"

    @property
    def ledger(self) -> BudgetLedger:
        return BudgetLedger(self.url)

    def train(
        self, plan: TrainingPlan, rounds: int = 3, fails: BaseException | None = None
    ) -> None:
        """So many rounds; the last one fails with this."""
        folder = outputs.OutputFolder(
            str(plan.settings.output.folder), plan.settings.output.overwrite
        )
        with charged(plan, QUIET) as (charge, ran), folder.staging() as staging:
            charge.leave_note(
                staging, ends_with_launcher=True, rounds=plan.round_price,
                overwrite=plan.settings.output.overwrite,
            )  # fmt: skip
            for i in range(rounds):
                ran.begun += 1
                charge.begin_round()
                if fails is not None and i == rounds - 1:
                    raise fails
            epsilon = float(plan.epsilon_of(rounds))
            ran.curve.append((ModelScore(rounds, math.nan, math.nan), epsilon))
            release(plan, ran, charge, folder, staging, MODEL, beside={})

    def left_alone(self) -> None:
        """The process that ran is gone."""
        for path in self.folder.glob(".*.staging-*/run.json"):
            note = Note.read(str(path.parent))
            assert note is not None and note.launcher == Launcher.this()
            replace(note, launcher=note.launcher.gone).write(str(path.parent))

    def finalize(self) -> tuple[int, str]:
        done = CliRunner().invoke(group, ["finalize", f"{self.folder}/out", "--ledger", self.url])
        return done.exit_code, " ".join(done.output.split())

    def check(self, plan: TrainingPlan) -> bool:
        """Whether it is published; then it was settled, as what it says of itself."""
        path = self.folder / "out" / "privacy.json"
        if not path.exists():
            assert not (self.folder / "out").exists()
            return False
        record, charge = json.loads(path.read_bytes()), self.ledger.charge("one")
        assert charge.status == "settled"
        assert charge.settled == plan.round_price.event_of(record["rounds"]) == record["event"]
        sent = plan.round_price.sent_in(record["rounds"])
        assert charge.local_event == record["local_event"] == sent
        assert charge.identity.to_json() == record["identity"]
        assert charge.identity.digest.hex() == record["identity_digest"]
        assert (self.folder / "out" / "model.keras").read_bytes() == MODEL
        return True


@pytest.fixture(autouse=True)
def plain_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "picture", lambda *_: b"")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = BudgetLedger.create(f"sqlite:///{tmp_path}/privacy.db")
    made.set_budget("them", epsilon=90.0, delta=1e-5, local_epsilon=1000.0)
    return World(tmp_path)


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        yield made


# Kills -------------------------------------------------------------------------------------------

# What dies, and what becomes of it: published, settled, or given back.
STEPS: dict[str, tuple[Any, str, str]] = {
    "the third round begins": (None, "", "settled"),
    "files are written": (release_module, "statement", "settled"),
    "it is finished": (charging, "settle", "published"),
    "it is settled": (outputs.OutputFolder, "publish", "published"),
}


@pytest.mark.parametrize("asked", [REPORTS, TRUSTED], ids=["reports", "trusted server"])
@pytest.mark.parametrize("step", list(STEPS))
def test_a_training_is_killed(world: World, step: str, asked: str) -> None:
    plan = world.plan(asked)
    place, name, becomes = STEPS[step]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charge_module, "_settle_part", lambda *_: None)  # nobody is left to do it
        patch.setattr(outputs, "remove", lambda *_: None)
        patch.setattr(outputs.shutil, "rmtree", lambda *_, **__: None)
        if place is not None:
            patch.setattr(place, name, die)
        with pytest.raises(Killed):
            world.train(plan, fails=Killed() if place is None else None)
    assert not world.check(plan), "nothing appears before it is settled"
    before = world.ledger.charge("one").status
    assert before == ("settled" if step == "it is settled" else "reserved")
    assert world.finalize()[0] == 1, "its launcher lives"
    world.left_alone()
    code, said = world.finalize()
    assert code == 0, said
    assert world.check(plan) == (becomes == "published"), said
    charge = world.ledger.charge("one")
    assert (charge.status, charge.settled) == ("settled", plan.round_price.event_of(3))
    if becomes == "published":  # nothing is left beside it
        assert not list(world.folder.glob(".out.*"))
    once_more = world.finalize()
    gone = 2 if step == "files are written" else 0  # what it left is removed
    assert once_more[0] == gone and world.ledger.charge("one") == charge, once_more[1]


def test_a_training_whose_output_is_there_was_settled_before(
    world: World, patch: pytest.MonkeyPatch
) -> None:
    """The order itself, seen from the step that publishes."""
    seen, publish = [], outputs.OutputFolder.publish

    def looked(folder: outputs.OutputFolder) -> None:
        seen.append((world.ledger.charge("one").status, Path(folder.path).exists()))
        publish(folder)

    patch.setattr(outputs.OutputFolder, "publish", looked)
    world.train(world.plan())
    assert seen == [("settled", False)] and world.check(world.plan())
    assert not list(world.folder.glob(".out.*"))


# The ledger is away ------------------------------------------------------------------------------


def test_the_ledger_is_away_at_the_end(world: World, patch: pytest.MonkeyPatch) -> None:
    """What was seen: the model was published, and the charge left to later."""
    plan = world.plan()
    with pytest.MonkeyPatch.context() as gone:
        gone.setattr(BudgetLedger, "settle", away)
        with pytest.raises(NotPublishedError, match="beam-ldp finalize"):
            world.train(plan)
    assert not world.check(plan) and world.ledger.charge("one").status == "reserved"
    with pytest.raises(SettingError, match="one"):  # its name is taken: fresh noise is a new charge
        world.train(world.plan(output=f"{world.folder}/other"))
    code, said = world.finalize()  # while this process lives: it let go of it
    assert code == 0 and "it is settled, and published" in said
    assert world.check(plan)


def test_the_ledger_is_away_before_the_first_round(world: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BudgetLedger, "reserve", away)
    with pytest.raises(SettingError, match="away"):
        world.train(world.plan())
    assert not list(world.folder.glob("*out*")) and not world.ledger.has_run("one")


def test_the_ledger_is_away_where_a_round_fails(world: World) -> None:
    plan = world.plan()
    with pytest.MonkeyPatch.context() as gone:
        gone.setattr(BudgetLedger, "settle", away)
        with pytest.raises(RuntimeError):
            world.train(plan, rounds=2, fails=RuntimeError())
    assert world.ledger.charge("one").status == "reserved" and not world.check(plan)


def test_the_place_is_taken_in_the_meantime(world: World, patch: pytest.MonkeyPatch) -> None:
    """It is settled and kept: somebody makes room, and publishes it."""
    plan, publish = world.plan(), outputs.OutputFolder.publish

    def taken(folder: outputs.OutputFolder) -> None:
        Path(folder.path).mkdir()
        (Path(folder.path) / "theirs").touch()
        publish(folder)

    patch.setattr(outputs.OutputFolder, "publish", taken)
    with pytest.raises(NotPublishedError, match="exists"):
        world.train(plan)
    patch.setattr(outputs.OutputFolder, "publish", publish)
    assert world.ledger.charge("one").status == "settled"
    assert world.finalize()[0] == 1
    (world.folder / "out" / "theirs").unlink()
    (world.folder / "out").rmdir()
    assert world.finalize()[0] == 0 and world.check(plan)


def test_an_output_that_may_be_replaced_still_may_when_it_is_finalized(world: World) -> None:
    world.train(world.plan(run_id="before"))
    plan = world.plan()
    output = replace(plan.settings.output, overwrite=True)
    plan = replace(plan, settings=replace(plan.settings, output=output))
    with pytest.MonkeyPatch.context() as gone:
        gone.setattr(BudgetLedger, "settle", away)
        with pytest.raises(NotPublishedError):
            world.train(plan)
    record = json.loads((world.folder / "out" / "privacy.json").read_bytes())
    assert record["run_id"] == "before"
    assert world.finalize()[0] == 0 and world.check(plan)


# Others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 3])
def test_what_began_is_charged_where_a_training_fails(world: World, rounds: int) -> None:
    plan = world.plan()
    with pytest.raises(RuntimeError):
        world.train(plan, rounds=rounds, fails=RuntimeError())
    assert not world.check(plan) and not list(world.folder.glob("*out*"))
    charge = world.ledger.charge("one")
    assert (charge.status, charge.settled) == ("settled", plan.round_price.event_of(rounds))


@pytest.mark.parametrize(
    ("old", "new"),
    [("", ""), ("epsilon 4", "epsilon 3"), ("479", "500"), ("", " --clip 0.5")],
    ids=["nothing", "mechanism", "clients", "clip"],
)
def test_a_second_training_of_one_name_is_refused(world: World, old: str, new: str) -> None:
    """Whatever is asked of clients: its noise is fresh, and wants a name of its own."""
    world.train(world.plan())
    before = world.ledger.charge("one")
    asked = REPORTS.replace(old, new) if old else REPORTS + new
    with pytest.raises((SettingError, NothingReleasedError), match="one"):
        world.train(world.plan(asked, output=f"{world.folder}/second"))
    assert world.ledger.charge("one") == before and not (world.folder / "second").exists()


def test_another_name_is_another_charge(world: World) -> None:
    world.train(world.plan())
    spent = world.ledger.status("them").local_spent
    world.train(world.plan(run_id="two", output=f"{world.folder}/second"))
    assert world.ledger.status("them").local_spent == 2 * spent
