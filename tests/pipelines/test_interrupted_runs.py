"""Launchers that are killed at the worst moments, and what `finalize` makes of what they left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger, LedgerError
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE
from beam_ldp.release.beam_job import ends_with_launcher
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import usage_of
from beam_ldp.release.interrupted_runs import (
    NOTE,
    Note,
    RoundsPrice,
    find_interrupted_runs,
)
from beam_ldp.release.publishing import take
from tests.ledger.asked import asked
from tests.warm import run_warm

EVENT = LocalRandomizerDpEvent(0.5)

# Where the launcher dies: nothing left the workers; an estimate did; all is finished, and published
# as soon as it is settled. (`tests/pairs` stops runs at every step, without processes.)
KILLS = {
    "before": "beam_ldp.release.beam_job.run_pipeline",
    "after": "beam_ldp.release.runner.gate_bad_rows",
    "finished": "beam_ldp.release.charging.settle",
}

PROGRAM = """
import os, signal, sys, unittest.mock
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
from beam_ldp.pipelines.frequency import main
with unittest.mock.patch(sys.argv[1], die):
    main(sys.argv[2:])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BEAM_LDP_LEDGER", f"sqlite:///{tmp_path / 'privacy.db'}")
    made = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    made.set_budget("visits", epsilon=10.0, delta=1e-6, local_epsilon=10.0)
    (tmp_path / "people.txt").write_text("yes\nno\n" * 500)
    (tmp_path / "domain.txt").write_text("yes\nno\n")
    return tmp_path


def flags(place: Path, *more: str) -> list[str]:
    return [f"--input={place}/people.txt", f"--domain={place}/domain.txt", f"--output={place}/out",
            "--local-epsilon=0.5", "--delta=1e-6", "--min-reports=900", "--dataset=visits",
            "--run-id=lost", "--no-mlflow", "--one-row-per-person", *more]  # fmt: skip


def finalize(place: Path, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(group, ["finalize", f"{place}/out", *more])
    return done.exit_code, " ".join(done.output.split())


def kill_a_run(place: Path, where: str) -> None:
    script = place / "killed.py"
    script.write_text(PROGRAM)
    done = run_warm(str(script), KILLS[where], *flags(place))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (place / "out").exists()
    assert BudgetLedger().state.charge("lost").status == "reserved"


# Killed -------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.parametrize("where", list(KILLS))
def test_a_launcher_that_was_killed(place: Path, where: str) -> None:
    kill_a_run(place, where)
    worst = BudgetLedger().status("visits").committed
    code, said = finalize(place)
    assert code == 0, said
    status = BudgetLedger().status("visits")
    charge = BudgetLedger().state.charge("lost")
    assert status.local_committed == 0.5  # people may have randomized
    if where == "before":
        assert "central epsilon is returned" in said
        assert (charge.status, status.committed) == ("abandoned", 0.0)
        assert not list(place.glob(".out.*"))  # nothing of it can be released any more
    elif where == "after":
        assert "counts as spent, at its worst case" in said
        assert (charge.status, status.committed) == ("settled", worst)
        assert not list(place.glob(".out.*"))
    else:
        assert "it is settled, and published" in said
        assert charge.status == "settled" and 0 < status.committed < worst
        assert charge.about["num_reports"] == 1000
        assert (place / "out" / "privacy.json").exists() and not list(place.glob(".out.*"))
    again, said = finalize(place)
    expected = {
        "before": (2, "no privacy record"),
        "after": (2, "no privacy record"),
        "finished": (0, "is"),
    }
    assert again == expected[where][0] and expected[where][1] in said, said
    assert BudgetLedger().status("visits").committed == status.committed


# What can be proved -------------------------------------------------------------------------------


def leave(place: Path, *, reserve: bool = True, **how: object) -> Path:
    """A staging folder as a lost run leaves it."""
    ledger = BudgetLedger()
    if reserve:
        ledger.reserve("visits", "lost", EVENT, identity=asked("visits", "lost"))
    dead = replace(Launcher.this(), started="1")
    note = Note("lost", ledger.state.ledger_id, True, dead)
    staging = place / ".out.staging-0123abcd"
    staging.mkdir()
    replace(note, **how).write(str(staging))  # type: ignore[arg-type]
    return staging


@pytest.mark.exact
def test_a_run_under_way_is_left_alone(place: Path) -> None:
    staging = leave(place, launcher=Launcher.this())
    for more in ((), ("--ended",)):  # a declaration that this machine can see to be wrong
        code, said = finalize(place, *more)
        assert code == 1 and f"process {os.getpid()}, lives" in said
    assert BudgetLedger().state.charge("lost").status == "reserved"
    assert staging.exists()


@pytest.mark.exact
@pytest.mark.parametrize("lives", [True, False])
def test_a_launcher_that_the_ledger_names_is_left_alone(place: Path, lives: bool) -> None:
    """Whatever the note says of it; it holds for releases whose reports stay the same, too."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        launcher = replace(Launcher.this(), pid=child.pid, started=started if lives else "1")
        identity = asked("visits", "lost", key="ab" * 16)
        BudgetLedger().reserve("visits", "lost", EVENT, identity=identity, memoized=True,
                               about={"launcher": asdict(launcher)})  # fmt: skip
        staging = leave(place, reserve=False, launcher=launcher.gone)
        code, said = finalize(place, "--ended")
        assert (code, f"names process {child.pid} as" in said) == (int(lives), lives), said
        status = BudgetLedger().charge("lost").status
        assert (status, staging.exists()) == ("reserved" if lives else "abandoned", lives)


@pytest.mark.exact
@pytest.mark.parametrize(
    "how",
    [
        {"ends_with_launcher": False},  # a cluster may still be at work
        {"launcher": replace(Launcher.this(), host="elsewhere")},
        {"launcher": replace(Launcher.this(), boot="")},
        {"launcher": replace(Launcher.this(), namespace="pid:[1]", started="1")},
    ],
)
def test_what_cannot_be_proved_stays_charged(place: Path, how: dict[str, object]) -> None:
    staging = leave(place, **how)
    code, said = finalize(place)
    assert code == 1 and "stays charged at its worst case" in said
    assert BudgetLedger().state.charge("lost").status == "reserved"
    assert staging.exists()
    code, said = finalize(place, "--ended")  # as somebody declares who stopped its cluster
    assert code == 0 and "its central epsilon is returned" in said
    assert BudgetLedger().state.charge("lost").status == "abandoned"
    assert BudgetLedger().status("visits").local_spent == 0.5 and not staging.exists()


@pytest.mark.exact
def test_the_machine_was_started_anew(place: Path) -> None:
    leave(place, launcher=replace(Launcher.this(), boot="another life"))
    assert finalize(place)[0] == 0
    assert BudgetLedger().state.charge("lost").status == "abandoned"


@pytest.mark.exact
def test_a_dead_child_that_nobody_has_buried_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    launcher = Launcher.of(child.pid)
    assert launcher.ended == "under way"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert launcher.ended == "ended"
    child.wait()
    assert launcher.ended == "ended"


@pytest.mark.exact
def test_a_record_that_is_cut_counts_as_an_estimate(place: Path) -> None:
    leave(place)
    partial = place / ".out.partial-0123abcd"
    partial.mkdir()
    (partial / "privacy.json").write_text('{"run_id": "lo')
    code, said = finalize(place)
    assert code == 0 and "counts as spent, at its worst case" in said
    assert BudgetLedger().state.charge("lost").status == "settled"


@pytest.mark.exact
def test_notes_that_mean_nothing(place: Path) -> None:
    staging = leave(place)
    for content in ("", "{", "[]", '{"run_id": 3}', '{"launcher": {}}'):
        (staging / NOTE).write_text(content)
        assert find_interrupted_runs(str(place / "out")) == []
        code, said = finalize(place)
        assert code == 2 and f"No note tells whose {staging} is" in said
    assert BudgetLedger().state.charge("lost").status == "reserved"
    assert finalize(place, "--ended")[0] == 0 and not staging.exists()
    assert BudgetLedger().state.charge("lost").status == "reserved"


@pytest.mark.exact
def test_a_note_of_another_ledger(place: Path) -> None:
    leave(place, ledger_id="0" * 32)
    code, said = finalize(place)
    assert code == 1 and "another ledger" in said
    assert BudgetLedger().state.charge("lost").status == "reserved"


@pytest.mark.exact
@pytest.mark.parametrize(
    ("how", "more", "expected"),
    [
        ({}, (), 0),
        ({"ends_with_launcher": False}, (), 1),
        ({"ends_with_launcher": False}, ("--ended",), 0),
        ({"rounds": RoundsPrice({}, None, 3)}, (), 1),  # which --resume goes on with
        ({"launcher": Launcher.this()}, ("--ended",), 1),
    ],
)
def test_what_runs_left_that_no_ledger_knows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, object],
    more: Any,
    expected: int,
) -> None:
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    staging, partial = tmp_path / ".out.staging-0123abcd", tmp_path / ".out.partial-0123abcd"
    staging.mkdir()
    partial.mkdir()
    note = Note("", "", True, replace(Launcher.this(), started="1"))
    replace(note, **how).write(str(staging))  # type: ignore[arg-type]
    code, said = finalize(tmp_path, *more)
    assert code == expected, said
    assert {staging.exists(), partial.exists()} == {expected == 1}


@pytest.mark.exact
@pytest.mark.parametrize("settled", [True, False])
def test_a_start_that_was_overtaken_ends_nothing(place: Path, settled: bool) -> None:
    """The newer start may be at work, or have ended."""
    identity = asked("visits", "lost", key="ab" * 16)
    ledger = BudgetLedger()
    first = ledger.reserve("visits", "lost", EVENT, identity=identity, memoized=True)
    dead = replace(Launcher.this(), started="1")
    note = Note("lost", ledger.ledger_id, True, dead, attempt=first.attempt)
    staging = place / ".out.staging-0123abcd"
    staging.mkdir()
    note.write(str(staging))
    code, said = finalize(place)
    assert code == 1 and "the same command goes on under this charge, for free" in said
    second = ledger.reserve("visits", "lost", EVENT, identity=identity, memoized=True)
    if settled:
        ledger.settle("lost", EVENT, identity=identity, attempt=second.attempt)
    code, said = finalize(place, "--ended")
    assert code == 0 and ("settled already" if settled else "started again meanwhile") in said
    assert not staging.exists()
    assert ledger.charge("lost").status == ("settled" if settled else "reserved")


@pytest.mark.exact
@pytest.mark.parametrize(
    ("reports", "crowd", "refused"),
    [("2", 500, None), ("2", 50, "published once more"), ("3", 500, "published once more")],
    ids=["the same again", "a smaller group is shown", "other people"],
)
def test_of_two_second_publications_the_second_is_charged_too(
    place: Path, reports: str, crowd: int, refused: str | None
) -> None:
    """Both were finished, and neither was settled, when the first had been published."""
    ledger, identity = BudgetLedger(), asked("visits", "lost", key="ab" * 16)

    def digest(which: str) -> str:
        return f"set1:{which * 64}"

    def taken(which: str, people: int, publication: int) -> None:
        told = event_to_json(ShuffledDpEvent(EVENT, people))
        record = {"run_id": "lost", "event": told, "identity": identity.to_json(),
                  "report_digest": digest(which), "publication": publication, "min_reports": 50,
                  "num_reports": 1000, "frozen_values": False, "memoized": True,
                  "mechanism": {}}  # fmt: skip
        take(ledger, record, Note("lost", ledger.ledger_id, True, Launcher.this(), attempt=first))

    event = ShuffledDpEvent(EVENT, 1000)
    first = ledger.reserve("visits", "lost", event, identity=identity, memoized=True).attempt
    taken("1", 1000, 1)
    taken("2", 500, 2)
    before, rows = ledger.status("visits").committed, len(ledger.rows())
    with pytest.raises(LedgerError, match=refused) if refused else nullcontext():
        taken(reports, crowd, 2)
    assert (ledger.status("visits").committed, len(ledger.rows())) == (before, rows)
    assert ledger.charge("lost").published == 2


@pytest.mark.exact
def test_outputs_with_hostile_names_find_only_their_own(tmp_path: Path) -> None:
    for name in ("out", "o*t", "out.staging-1"):
        staging = tmp_path / f".{name}.staging-00000000"
        staging.mkdir()
        Note(name, "ledger", True, Launcher.this()).write(str(staging))
    for name in ("out", "o*t"):
        assert [run.note.run_id for run in find_interrupted_runs(str(tmp_path / name))] == [name]


@pytest.mark.e2e
def test_runs_that_end_leave_no_note(place: Path) -> None:
    assert main(flags(place)) == DONE
    assert not list(place.glob(".out.*"))
    code, said = finalize(place)
    assert code == 0 and "run lost is settled" in said


@pytest.mark.exact
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], True),
        (["--runner=DirectRunner"], True),
        (["--runner", "FnApiRunner"], True),
        (["--runner=PrismRunner"], False),
        (["--runner=SparkRunner"], False),
        (["--direct_running_mode=multi_processing"], False),
        (["--direct_num_workers=2"], False),
    ],
)
def test_which_jobs_die_with_their_launcher(place: Path, more: list[str], expected: bool) -> None:
    usage = usage_of("frequency")
    given = read_flags(usage, flags(place, *more))
    settings = bound(usage, given).job
    assert ends_with_launcher(settings, given.beam_flags) is expected
    assert not ends_with_launcher(replace(settings, input_bytes=1 << 40), given.beam_flags) or (
        os.cpu_count() == 1
    )
