"""What a stream is: its folder, its identity, who may go on in it, and what stays released."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apache_beam.transforms.window import FixedWindows
from click.testing import CliRunner
from rich.console import Console

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.pipelines.finalize import finalize
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.programs import run_stream
from beam_ldp.pipelines.usage.frequency import USAGE
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release.checks import findings
from beam_ldp.release.interrupted_runs import Note
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.streams import run as stream
from beam_ldp.release.streams.job import Stream, stream_of
from beam_ldp.release.streams.results import (
    OPENED,
    STREAM,
    MarkOpenWindows,
    begin,
    forget_unfinished,
    give_back_rest,
    leave_note,
    run_that_goes_on,
    told_of,
)
from beam_ldp.release.streams.run import _pipeline
from beam_ldp.settings import SettingError
from beam_ldp.transforms import ChargeTo
from beam_ldp.transforms.elements.stages import part_of
from tests.pipelines.test_stream import ORACLE, a_release, a_run

pytestmark = pytest.mark.exact

IDENTITY = ReleaseIdentity("telemetry", "colours", ORACLE.config_digest().hex(), ("colour",))
MEMOIZED = IDENTITY.committed(bytes(range(32)))
OTHERS = [
    replace(MEMOIZED, columns=("shape",)),
    replace(MEMOIZED, values="ab"),
    replace(MEMOIZED, mechanism="ab"),
    replace(MEMOIZED, bounding="one row of each uid"),
    IDENTITY.committed(bytes(32)),
    replace(MEMOIZED, release_id="week-2"),
]


# The folder ---------------------------------------------------------------------------------------


def test_a_new_stream_says_whose_folder_it_is(tmp_path):
    folder = tmp_path / "out"
    assert run_that_goes_on(folder, MEMOIZED, None) is None
    begin(folder, MEMOIZED, "run-1")
    told = json.loads((folder / STREAM).read_text())
    assert ReleaseIdentity.from_json(told["identity"]) == MEMOIZED and told["run_id"] == "run-1"


def test_an_equal_stream_goes_on_as_the_run_that_it_was(tmp_path):
    begin(tmp_path, MEMOIZED, "run-1")
    assert run_that_goes_on(tmp_path, MEMOIZED, None) == "run-1"
    assert run_that_goes_on(tmp_path, MEMOIZED, "run-1") == "run-1"
    begin(tmp_path, MEMOIZED, "run-1")
    with pytest.raises(SettingError, match="belongs to run run-1"):
        run_that_goes_on(tmp_path, MEMOIZED, "run-2")


@pytest.mark.parametrize(
    "other", OTHERS, ids=["column", "list", "mechanism", "rule", "key", "release"]
)
def test_another_stream_is_refused_in_its_folder(tmp_path, other):
    begin(tmp_path, MEMOIZED, "run-1")
    with pytest.raises(SettingError, match="holds another stream: it differs in its"):
        run_that_goes_on(tmp_path, other, "run-1")


def test_fresh_noise_does_not_go_on(tmp_path):
    begin(tmp_path / "fresh", IDENTITY, "run-1")
    begin(tmp_path / "nameless", None, "run-1")
    begin(tmp_path / "memoized", MEMOIZED, "run-1")
    for place, identity in (("fresh", IDENTITY), ("nameless", None), ("memoized", IDENTITY)):
        with pytest.raises(SettingError, match="second reports"):
            run_that_goes_on(tmp_path / place, identity, "run-1")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SettingError, match="is not empty"):
        run_that_goes_on(tmp_path, MEMOIZED, None)
    (tmp_path / STREAM).write_text("{")
    with pytest.raises(SettingError, match="cannot be read"):
        run_that_goes_on(tmp_path, MEMOIZED, None)


def test_of_two_streams_that_begin_at_once_the_second_is_refused(tmp_path):
    """Both have seen an empty folder."""
    begin(tmp_path, MEMOIZED, "run-1")
    with pytest.raises(SettingError, match="at the same moment"):
        begin(tmp_path, MEMOIZED, "run-2")


@pytest.mark.parametrize(
    "marked, ledger, code, say",
    [
        (True, None, 1, "start it again with the same flags"),
        (False, None, 0, "is a stream that has ended: there is nothing to do"),
        (False, "of others", 0, "is a stream that has ended, of which the ledger holds nothing"),
        (False, "reserved", 1, "start it again with the same flags"),
    ],
)
def test_finalize_says_what_becomes_of_a_stream(tmp_path, monkeypatch, marked, ledger, code, say):
    """One that was lost has left marks; of one that has ended, a ledger knows what is reserved."""
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    begin(tmp_path / "out", MEMOIZED, "run-1", marked=marked)
    forget_unfinished(tmp_path / "out")
    told = [str(tmp_path / "out")]
    if ledger is not None:
        told += ["--ledger", f"sqlite:///{tmp_path}/privacy.db"]
        book = BudgetLedger.create(told[-1])
        book.set_budget("d", epsilon=9.0, delta=1e-6)
        run_id = "run-1" if ledger == "reserved" else "another"
        identity = replace(MEMOIZED, dataset="d")
        book.reserve("d", run_id, LocalRandomizerDpEvent(1.0), identity=identity, memoized=True)
    found = CliRunner().invoke(finalize, told)
    assert found.exit_code == code and say in " ".join(found.output.split())
    if ledger is None and not marked:
        assert CliRunner().invoke(finalize, [*told, "--ended"]).exit_code == 0


def copied(marks: Path) -> None:
    """An older copy of the folder is put back: the last window was opened since."""
    aside = marks.with_name("aside")
    shutil.copytree(marks, aside)
    shutil.rmtree(marks)
    aside.rename(marks)
    (marks / "window 2 3").unlink()


def put_back(marks: Path) -> None:
    """The same, on a disk that gives the new file the inode of the old one; later."""
    told = json.loads((marks / "complete").read_text())
    (marks / "complete").write_text(json.dumps([told[0], told[1] - 10**10]))
    (marks / "window 2 3").unlink()


def made_anew(marks: Path) -> None:
    """Workers go on where the folder was removed, and mark what they open from then on."""
    shutil.rmtree(marks)
    MarkOpenWindows(str(marks.parent)).mark(2, 3)


@pytest.mark.parametrize(
    "late, change, kept",
    [
        (False, None, 2),
        (True, None, 2),  # late reports are another part of the first window, and no other window
        (False, copied, 5),
        (False, put_back, 5),
        (False, made_anew, 5),
        (False, shutil.rmtree, 5),
        (False, lambda marks: (marks / "window 0 1").unlink(), 5),  # although it was released
    ],
    ids=["marks", "late", "copied", "put back", "made anew", "none", "one is gone"],
)
def test_finalize_gives_back_what_a_lost_stream_did_not_use(tmp_path, late, change, kept):
    """Of six windows three were opened and one was released; or it is not known which were."""
    url, out = f"sqlite:///{tmp_path}/privacy.db", tmp_path / "out"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("d", epsilon=19.0, delta=1e-6, local_epsilon=17.0)
    identity = replace(MEMOIZED, dataset="d")
    event = LocalRandomizerDpEvent(1.0)
    charge = ledger.reserve("d", "run-1", event, identity=identity, memoized=True, count=6 + late)
    for part in ("window 0 1", "window 0 1 late")[: 1 + late]:
        ended = replace(identity, part=part)
        ledger.settle("run-1", event, identity=ended, attempt=charge.attempt)
    begin(out, identity, "run-1", marked=True)
    for start in range(3):
        MarkOpenWindows(str(out)).mark(start, start + 1)
    if change is not None:
        change(out / OPENED)
    here = Launcher.this()
    note = Note("run-1", ledger.ledger_id, False, here, attempt=charge.attempt)

    def finalized(*more):
        done = CliRunner().invoke(finalize, [str(out), "--ledger", url, *more])
        return done.exit_code, " ".join(done.output.split())

    leave_note(out, note)
    code, said = finalized("--ended")
    assert code == 1 and f"process {here.pid}, lives" in said
    leave_note(out, replace(note, launcher=here.gone))
    assert finalized()[0] == 1 and ledger.status("d").local_committed == 6.0 + late
    code, said = finalized("--ended")
    assert code == 0 and "5 windows that it did not use are given back" in said
    assert ledger.status("d").local_committed == 1 + late + kept
    assert not (out / OPENED).exists()
    assert finalized("--ended") == (0, "run run-1 has nothing left: each window that was reserved "
                                    "has ended")  # fmt: skip


def test_a_stream_says_in_the_ledger_that_it_is_in_no_tracker(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("telemetry", epsilon=9, delta=1e-6, local_epsilon=99)
    budget = ChargeTo("telemetry", url, run_id="live", windows=2, untracked="--no-mlflow")
    held = budget.reserve(
        budget.worst_event(ORACLE, 900),
        identity=MEMOIZED, windowing=FixedWindows(60), bounded=False,
    )  # fmt: skip
    attempt = ledger.charge("live").attempt
    assert held.settle(ledger, attempt, {"": "token"}, a_release(0)) == ""
    report = audit(ledger.rows(), tracked={})
    assert report.clean, report.checks


# The identity of its parts ------------------------------------------------------------------------


def test_every_release_of_a_stream_has_an_identity_of_its_own():
    kinds: list[dict[str, Any]] = [{}, {"late": True}, {"derived": True}]
    releases = [a_release(start, **how) for start in (0, 60) for how in kinds]
    told = [told_of(r, a_run(), MEMOIZED) for r in releases]
    assert len({t["identity_digest"] for t in told}) == len(releases)
    for release, said in zip(releases, told, strict=True):
        identity = ReleaseIdentity.from_json(said["identity"])
        assert identity == part_of(MEMOIZED, release)
        assert identity.digest.hex() == said["identity_digest"]
        assert identity.question == MEMOIZED.question
    assert ReleaseIdentity.from_json(told[0]["identity"]) == MEMOIZED.of_window(0, 60 * 10**6)
    assert told_of(releases[0], a_run(), None)["identity"] is None


# The program --------------------------------------------------------------------------------------


@pytest.fixture
def flags(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first.csv").write_text("colour,shape,id,t\nred,round,1,5\n")
    (tmp_path / "colours").write_text("red\ngreen\n")
    (tmp_path / "more").write_text("red\ngreen\nblue\n")
    for name, byte in (("key", b"k"), ("other", b"o")):
        (tmp_path / name).write_bytes(byte * 32)
        (tmp_path / name).chmod(0o600)
    return [
        "--input", str(tmp_path / "in"), "--input-format", "csv", "--column", "colour",
        "--user-id", "id", "--domain", str(tmp_path / "colours"), "--time-column", "t",
        "--window", "60s", "--budget-windows", "9", "--local-epsilon", "2", "--delta", "1e-8",
        "--min-reports", "10", "--dataset", "people", "--release-id", "colours",
        "--memoize-key-file", str(tmp_path / "key"), "--no-ledger", "--run-id", "live",
        "--output", str(tmp_path / "out"), "--stream",
    ]  # fmt: skip


def a_stream(flags: list[str], **other: str) -> Stream:
    changed = list(flags)
    for name, value in other.items():
        changed[changed.index("--" + name.replace("_", "-")) + 1] = value
    return stream_of(USAGE, read_flags(USAGE, changed))


def test_the_program_goes_on_with_the_same_question_and_refuses_others(flags, tmp_path):
    first = a_stream(flags)
    begin(first.folder, first.identity, first.run_id)
    assert first.identity.key and first.identity.release_id == "colours"
    again = a_stream(flags)
    assert (again.identity, again.run_id) == (first.identity, "live")
    changes = {
        "column": {"column": "shape"},
        "list, bins or ranges": {"domain": str(tmp_path / "more")},
        "mechanism": {"local_epsilon": "1"},
        "key": {"memoize_key_file": str(tmp_path / "other")},
        "release id": {"release_id": "others"},
        "dataset": {"dataset": "others"},
    }
    for named, change in changes.items():
        with pytest.raises(SettingError, match=f"differs in its .*{named}"):
            a_stream(flags, **change)


@pytest.mark.parametrize("slide", [(), ("--slide", "20s")])
def test_a_program_that_starts_again_has_one_charge_and_two_attempts(flags, tmp_path, slide):
    """Built as far as the engine, twice; the first launcher was lost in between."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("people", epsilon=100, delta=1e-6, local_epsilon=9 * 2)  # for one start
    charged = [*flags, "--ledger", url, *slide]
    charged.remove("--no-ledger")
    attempts = []
    for _ in range(2):
        job = a_stream(charged)
        (told,) = [one for one in findings(job.preflight([])) if one.check == "budget"]
        assert told.status == "ok" and ("goes on, for free" in told.said) == bool(attempts)
        _pipeline(job, [])
        begin(job.folder, job.identity, job.run_id)
        attempts.append(job.attempt)
    charge = ledger.charge("live")
    assert (charge.status, charge.count, charge.attempts) == ("reserved", 9, 2)
    assert charge.identity == job.identity and charge.attempt == attempts[1] != attempts[0]
    assert [row.kind for row in ledger.rows()].count("reserve") == 1
    with pytest.raises(SettingError, match="differs in its column"):
        a_stream(charged, column="shape")
    with pytest.raises(SettingError, match="another question|its release differs"):
        _pipeline(a_stream(charged, column="shape", output=str(tmp_path / "elsewhere")), [])


@pytest.mark.parametrize("ended", [True, False])
def test_marks_stay_while_a_job_may_open_further_windows(flags, tmp_path, monkeypatch, ended):
    """The launcher ends, and cannot know whether its job did."""
    url, out = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "out"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("people", epsilon=100, delta=1e-6, local_epsilon=9 * 2)
    charged = [*flags, "--ledger", url, "--no-mlflow"]
    charged.remove("--no-ledger")

    def lost(*_: Any) -> str:
        for start in range(3):
            MarkOpenWindows(str(out)).mark(start, start + 1)
        raise JobError("nobody answers")

    monkeypatch.setattr(stream, "_watch", lost)
    monkeypatch.setattr(stream, "has_ended", lambda *_: ended)
    with pytest.raises(JobError):
        run_stream(USAGE, read_flags(USAGE, charged), Console(quiet=True))
    if not ended:
        assert ledger.status("people").local_committed == 18.0
        MarkOpenWindows(str(out)).mark(3, 4)
        give_back_rest(ledger, "live", str(out), None)
    assert ledger.status("people").local_committed == (6.0 if ended else 8.0)
    assert not (out / OPENED).exists()


def test_where_the_files_lie_is_no_part_of_what_is_asked(flags, tmp_path):
    """Another spelling of the input is the same stream."""
    assert (
        a_stream(flags).identity == a_stream(flags, input=str(tmp_path / "in" / "*.csv")).identity
    )


def test_a_key_that_cannot_be_read_is_a_usage_error(flags, tmp_path):
    with pytest.raises(SettingError, match="memoize_key_file must be readable"):
        a_stream(flags, memoize_key_file=str(tmp_path / "nothing"))
