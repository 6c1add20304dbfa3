"""A batch whose run ends at any step, or is run twice at once: one decision, charged once.

A run is ended inside this process, with everything left lying about as `kill -9` leaves it
(tests/pairs/test_steps.py does it to the other programs); what is in a pipeline when it dies is
tests/engines' matter.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from beam_ldp.decisions.service import ServiceFolder
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.cli import group
from beam_ldp.release import beam_job as job
from beam_ldp.release import charging, outputs, runner
from beam_ldp.release.interrupted_runs import Note
from tests.decisions.commands.test_bandit_service import (
    PUBLIC,
    advanced,
    rewards_of,
    started,
    state,
)

pytestmark = pytest.mark.e2e


class Killed(BaseException):
    """The end of a process."""


STEPS: dict[str, tuple[Any, str]] = {
    "nothing was read": (job, "run_pipeline"),
    "sums left the workers": (runner, "gate_bad_rows"),
    "it is finished": (charging, "settle"),
    "it is settled": (outputs.OutputFolder, "publish"),
    "it is published": (runner, "count_people"),
    "the next batch is not written": (ServiceFolder, "complete"),
}
WHOLE = PUBLIC | {"batch-1"} | {name.replace("1", "2") for name in PUBLIC}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service with its first batch, rewards, a key and a ledger."""
    folder = tmp_path_factory.mktemp("kills")
    assert started(folder).exit_code == 0
    rewards_of(folder, 1)
    (folder / "key").write_bytes(bytes(range(32)))
    (folder / "key").chmod(0o600)
    BudgetLedger.create(f"sqlite:///{folder}/privacy.db").set_budget(
        "visitors", epsilon=30.0, delta=1e-5
    )
    return folder


@pytest.fixture
def service(begun: Path, tmp_path: Path) -> Path:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    return tmp_path


def flags(folder: Path, kind: str) -> list[str]:
    told = {
        "no ledger": ["--no-ledger"],
        "memoized": [f"--memoize-key-file={folder}/key", f"--ledger=sqlite:///{folder}/privacy.db"],
        "fresh": [f"--ledger=sqlite:///{folder}/privacy.db"],
    }
    return told[kind]


def one_batch(folder: Path, *more: str) -> tuple[int, str]:
    return advanced(folder, folder / "batch1.parquet", *more)


def end_at(
    folder: Path,
    step: str,
    more: list[str],
    ran: Callable[..., tuple[int, str]] = one_batch,
) -> None:
    """A run that dies as this step begins, and whose process is gone."""

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        if step == "the next batch is not written":
            complete = ServiceFolder.complete

            def at_last(self: ServiceFolder) -> None:
                if self.progress.heard:
                    raise Killed
                complete(self)

            patch.setattr(ServiceFolder, "complete", at_last)
        else:
            patch.setattr(*STEPS[step], die)
        patch.setattr(outputs, "remove", lambda *_: None)  # nobody tidies up
        with pytest.raises(Killed):
            ran(folder, *more)
    for note in (folder / "service.private").glob(".*.staging-*/run.json"):
        left = Note.read(str(note.parent))
        assert left is not None and left.launcher == Launcher.this()
        replace(left, launcher=left.launcher.gone).write(str(note.parent))


def charges(folder: Path) -> list[str]:
    ledger = BudgetLedger(f"sqlite:///{folder}/privacy.db")
    return [one.status for one in ledger.state.population_of("visitors").charges_of(0)]


LOST = ("nothing was read", "sums left the workers")  # before anything was settled
CHARGED = {
    "memoized": ["settled"],  # whenever it ended: the same reports are drawn again
    "fresh": ["reserved", "settled"],  # what was lost stays charged
    "no ledger": [],
}


QUICK = {
    ("sums left the workers", "fresh"), ("it is settled", "fresh"),
    ("sums left the workers", "memoized"), ("the next batch is not written", "no ledger"),
}  # fmt: skip
ENDS = [
    pytest.param(step, kind, id=f"{kind}: {step}",
                 marks=[] if (step, kind) in QUICK else [pytest.mark.slow])
    for step in STEPS
    for kind in CHARGED
    if (step, kind) != ("it is finished", "no ledger")  # there is nothing to settle
]  # fmt: skip


@pytest.mark.parametrize(("step", "kind"), ENDS)
def test_a_batch_whose_run_was_killed(service: Path, step: str, kind: str) -> None:
    """The same command decides it; only what was finished under a ledger is for `finalize`."""
    end_at(service, step, flags(service, kind))
    code, said = advanced(service, service / "batch1.parquet", *flags(service, kind))
    if code != programs.DONE and step == "it is settled":
        told = ["finalize", str(service / "service.private/batch-1")]
        done = CliRunner().invoke(group, [*told, f"--ledger=sqlite:///{service}/privacy.db"])
        assert done.exit_code == programs.DONE, done.output
        code, said = advanced(service, service / "batch1.parquet", *flags(service, kind))
    assert code == programs.DONE, said
    assert state(service)["open"]["batch"] == 2
    assert {path.name for path in (service / "service").iterdir()} == WHOLE
    expected = CHARGED[kind] if step in (*LOST, "it is finished") else CHARGED[kind][-1:]
    assert charges(service) == expected


@pytest.mark.parametrize("kind", ["memoized", "fresh"])
def test_a_batch_that_lacked_somebody_is_decided_once_she_came(service: Path, kind: str) -> None:
    """What was given back is over; the next attempt is charged under a name of its own."""
    everybody = service / "batch1.parquet"
    all_but_one = rewards_of(service, 1, drop=1)
    code, said = advanced(service, all_but_one, *flags(service, kind))
    assert code == programs.NOTHING_RELEASED and charges(service) == ["abandoned"], said
    assert rewards_of(service, 1) == everybody
    code, said = advanced(service, everybody, *flags(service, kind))
    assert code == programs.DONE, said
    assert charges(service) == ["abandoned", "settled"]
    shutil.rmtree(service / "service.private")
    shutil.rmtree(service / "service/batch-1")
    for path in (service / "service").glob("batch-2*"):
        path.unlink()
    advanced(service, everybody, *flags(service, kind))  # a backup was put back: nothing is new
    assert charges(service) == ["abandoned", "settled"]


@pytest.mark.parametrize("kind", ["no ledger", "fresh"])
def test_two_runs_at_once_decide_once(service: Path, kind: str) -> None:
    """The second begins when the first has read its rewards: under a ledger it is refused at once,
    without one the first to end has decided, and the other shows nothing."""
    told: list[tuple[int, str]] = []
    gate = runner.gate_bad_rows

    def meanwhile(*arguments: Any) -> Any:
        if not told:
            told.append((0, ""))
            told[0] = advanced(service, service / "batch1.parquet", *flags(service, kind))
        return gate(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "gate_bad_rows", meanwhile)
        outer, said = advanced(service, service / "batch1.parquet", *flags(service, kind))
    (inner, _), one_is_done = told[0], [programs.DONE, programs.MISUSED]
    assert sorted([inner, outer]) == one_is_done, said
    assert inner == (programs.DONE if kind == "no ledger" else programs.MISUSED)
    assert state(service)["open"]["batch"] == 2
    assert {path.name for path in (service / "service").iterdir()} == WHOLE
    assert charges(service) == ([] if kind == "no ledger" else ["settled"])


def test_two_starts_at_once_are_one_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins when the first has its folder: the same files, the same slots."""
    seen: list[bytes] = []
    opened = ServiceFolder.open.__func__  # type: ignore[attr-defined]

    def meanwhile(cls: Any, path: str) -> ServiceFolder:
        if not seen:
            seen.append(b"")
            assert started(tmp_path).exit_code == programs.DONE
            seen.append((Path(path) / "batch-1.slots.parquet").read_bytes())
        return opened(cls, path)  # type: ignore[no-any-return]

    monkeypatch.setattr(ServiceFolder, "open", classmethod(meanwhile))
    assert started(tmp_path).exit_code == programs.DONE
    assert seen[1] == (tmp_path / "service/batch-1.slots.parquet").read_bytes()
