"""What `finalize` publishes, and where: only what the ledger holds the charge of, on any store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.cli import group
from beam_ldp.release import charging, outputs, runner
from beam_ldp.release.interrupted_runs import Note
from tests.memory_files import STORE, MemoryFileSystem
from tests.pairs.world import FREQUENCY, Killed, World, away, die

pytestmark = pytest.mark.e2e
BUCKET = f"{MemoryFileSystem.scheme()}://bucket"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World.make(tmp_path / "world")
    made.write_people(FREQUENCY)
    return made


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    STORE.clear()
    yield
    STORE.clear()


def publish(world: World, output: str) -> int:
    flags = [*world.flags(FREQUENCY, memoized=False, tags=False), f"--output={output}"]
    return programs.run_flags(FREQUENCY.program, flags, runner.Console(quiet=True))[0]


def finalize(world: World, output: str) -> tuple[int, str]:
    url = f"sqlite:///{world.folder}/privacy.db"
    done = CliRunner().invoke(group, ["finalize", output, "--ledger", url])
    return done.exit_code, " ".join(done.output.split())


def left_of(world: World, output: str) -> None:
    """What a run leaves whose ledger was away when it had finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BudgetLedger, "settle", away)
        assert publish(world, output) == programs.NOTHING_RELEASED


# On an object store -------------------------------------------------------------------------------


def there() -> set[str]:
    return {name.removeprefix(f"{BUCKET}/") for name in STORE}


def test_a_store_shows_nothing_before_it_is_settled(world: World) -> None:
    left_of(world, f"{BUCKET}/out")
    assert not [name for name in there() if name.startswith("out/")]
    assert world.ledger.charge("nightly").status == "reserved"
    code, said = finalize(world, f"{BUCKET}/out")
    assert code == 0 and "it is settled, and published" in said, said
    assert {name.split("/")[0] for name in there()} == {"out"}, "nothing is left beside it"
    assert {"out/manifest.json", "out/estimates.csv", "out/privacy.json"} <= there()
    record = json.loads(STORE[f"{BUCKET}/out/privacy.json"][0])
    charge = world.ledger.charge("nightly")
    assert (charge.status, charge.settled) == ("settled", record["event"])
    assert charge.identity.to_json() == record["identity"]
    assert finalize(world, f"{BUCKET}/out")[0] == 0


@pytest.mark.parametrize("dies", ["before it is settled", "after", "between two files"])
def test_a_run_is_killed_that_publishes_on_a_store(world: World, dies: str) -> None:
    moved: list[str] = []
    move = MemoryFileSystem.rename

    def one(self: Any, sources: list[str], targets: list[str]) -> None:
        ours = targets[0].startswith(f"{BUCKET}/out/")  # Beam's own sinks rename files too
        if ours and moved:
            raise Killed
        moved.extend(targets if ours else ())
        move(self, sources, targets)

    with pytest.MonkeyPatch.context() as patch:
        if dies == "between two files":
            patch.setattr(MemoryFileSystem, "rename", one)
        elif dies == "after":
            patch.setattr(outputs.OutputFolder, "publish", die)
        else:
            patch.setattr(charging, "settle", die)
        patch.setattr(outputs, "remove", lambda *_: None)
        with pytest.raises(Killed):
            publish(world, f"{BUCKET}/out")
    assert "out/manifest.json" not in there(), "an output without it is none"
    assert finalize(world, f"{BUCKET}/out")[0] == 1, "its launcher lives"
    (staging,) = {name.rsplit("/", 1)[0] for name in STORE if name.endswith("/run.json")}
    note = Note.read(staging)
    assert note is not None
    replace(note, launcher=note.launcher.gone).write(staging)
    code, said = finalize(world, f"{BUCKET}/out")
    assert code == 0 and "published" in said, said
    manifest = json.loads(STORE[f"{BUCKET}/out/manifest.json"][0])
    assert {f"out/{file['name']}" for file in manifest["files"]} | {"out/manifest.json"} == there()
    assert world.ledger.charge("nightly").status == "settled"


# Another release ----------------------------------------------------------------------------------


def _elsewhere(record: dict[str, Any]) -> None:
    record["identity"] = {**record["identity"], "dataset": "copy of them"}


def _asked(record: dict[str, Any]) -> None:
    record["identity"] = {**record["identity"], "columns": ["eyes"]}


def _none(record: dict[str, Any]) -> None:
    record["identity"] = {"no": "identity"}


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "data set": _elsewhere,
    "question": _asked,
    "no identity": _none,
}


def forge(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads(path.read_bytes())
    change(record)
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("change", list(FORGED))
def test_what_is_finished_and_of_another_release_is_never_published(
    world: World, change: str
) -> None:
    left_of(world, f"{world.folder}/out")
    (finished,) = world.folder.glob(f".out.{outputs.FINISHED}-*")
    forge(finished / "privacy.json", FORGED[change])
    code, said = finalize(world, f"{world.folder}/out")
    assert code == 2 and "another release" in said, said
    assert not (world.folder / "out").exists()
    assert world.ledger.charge("nightly").status == "reserved"


def test_a_note_of_another_release_settles_nothing(world: World) -> None:
    """Both say the same, and the ledger something else."""
    left_of(world, f"{world.folder}/out")
    (finished,) = world.folder.glob(f".out.{outputs.FINISHED}-*")
    (note,) = world.folder.glob(".out.staging-*/run.json")
    for path in (finished / "privacy.json", note):
        forge(path, _asked)
    code, said = finalize(world, f"{world.folder}/out")
    assert code == 0 and "will never be published" in said, said
    assert not list(world.folder.glob("*out*"))
    assert world.ledger.charge("nightly").status == "reserved"


@pytest.mark.parametrize("change", ["data set", "question"])
def test_an_output_of_another_release_is_not_settled(world: World, change: str) -> None:
    """A record that somebody put beside an open charge of the same name."""
    left_of(world, f"{world.folder}/out")
    (finished,) = world.folder.glob(f".out.{outputs.FINISHED}-*")
    finished.rename(world.folder / "put")
    forge(world.folder / "put" / "privacy.json", FORGED[change])
    code, said = finalize(world, f"{world.folder}/put")
    assert code == 2 and "is not the one of run 'nightly': it differs in" in said, said
    assert world.ledger.charge("nightly").status == "reserved"
