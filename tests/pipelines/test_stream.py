"""`frequency --stream`: its flags, its times, its files, its display; and live, on real engines."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from beam_ldp import whole_files
from beam_ldp.accounting import ShuffleAccountant, shuffled_event
from beam_ldp.accounting.composition import accountant
from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.pipelines import frequency
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.usage.frequency import USAGE
from beam_ldp.questions.base import Choice
from beam_ldp.questions.frequencies import Frequencies
from beam_ldp.questions.frequency import FrequencyQuestion
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release.beam_job import IN_PROCESS_RUNNER
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS
from beam_ldp.release.run import Run
from beam_ldp.release.streams import results
from beam_ldp.release.streams import run as stream
from beam_ldp.release.streams.job import check_stream
from beam_ldp.release.streams.log import KINDS, ORDERS, StreamAccountant, StreamProgress
from beam_ldp.release.streams.results import (
    PRICE,
    TABLE,
    WRITING,
    LeftOut,
    WriteRelease,
    WriteStreamBadRows,
    WriteWithheldReleases,
    forget_unfinished,
    iso,
    publish_once,
    read_folder,
    span,
    write_once,
)
from beam_ldp.release.streams.source import (
    CHANGED,
    NO_TIME,
    TakeFileOnce,
    WholeFiles,
    _Stamp,
    as_pattern,
    times_of,
)
from beam_ldp.settings import Privacy, SettingError
from beam_ldp.settings.fields import SECONDS
from beam_ldp.settings.job import Job
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, TableBlock, WithheldRelease
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.elements.windows import LATE, TOO_LATE
from tests.engines.servers import running
from tests.engines.victims import pooled_workers
from tests.ledger.parts import parts_of
from tests.transforms.helpers import run

ORACLE = KRandomizedResponse(3, 2.0)
FLAGS = [
    "--input", "in", "--input-format", "csv", "--column", "colour", "--domain", "d",
    "--time-column", "t", "--window", "60s", "--budget-windows", "9", "--local-epsilon", "2",
    "--delta", "1e-8", "--min-reports", "10", "--output", "out", "--stream",
]  # fmt: skip


def parsed(*flags: str, without: str = "") -> Any:
    listed = list(FLAGS)
    if without:
        place = listed.index(without)
        del listed[place : place + 2]
    return read_flags(USAGE, [*listed, *flags])


@pytest.mark.exact
@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400), ("250ms", 0.25)],
)  # fmt: skip
def test_durations(text, value):
    assert SECONDS.read(text) == pytest.approx(value)


@pytest.mark.exact
@pytest.mark.parametrize("text", ["", "-5s", "5 minutes", "1e3s", "nan", "s"])
def test_other_durations_are_refused(text):
    with pytest.raises(SettingError, match="--slide"):
        parsed("--slide", text)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("without", "flags", "message"),
    [
        ("--time-column", [], "--time-column is missing"),
        ("--window", [], "one of --window and --session-gap"),
        ("", ["--session-gap", "5s"], "one of --window and --session-gap"),
        ("--window", ["--session-gap", "5s"], "needs --public-bounds"),
        ("--window", ["--session-gap", "5s", "--public-bounds", "--user-id", "u"], "exclude"),
        ("--window", ["--session-gap", "5s", "--public-bounds", "--slide", "5s"], "needs --window"),
        ("", ["--slide", "7s"], "multiple of --slide"),
        ("", ["--slide", "120s"], "multiple of --slide"),
        ("--budget-windows", [], "--budget-windows must be >= 1"),
        ("", ["--bad-rows-file", "b"], "--bad-rows-file cannot be used with --stream"),
        ("", ["--runner=DirectRunner"], "PrismRunner .where --runner is left out. and FlinkRunner"),
        ("", ["--runner", "fnapi"], "--runner fnapi cannot be used with --stream"),
        ("", [f"--runner={IN_PROCESS_RUNNER}"], "--runner FnApiRunner cannot be used with"),
    ],
)
def test_flags_that_do_not_fit_are_named(without, flags, message):
    with pytest.raises(SettingError, match=message):
        check_stream(USAGE, parsed(*flags, without=without))


@pytest.mark.exact
def test_rows_that_cannot_be_read_end_a_stream(tmp_path, monkeypatch):
    """What an earlier attempt left is counted once; few rows, or an unknown number, say nothing."""
    monkeypatch.setattr(stream, "rows_read", lambda result: result)
    folder, write = tmp_path / "out", WriteStreamBadRows(str(tmp_path / "out"))
    write.process(BadRowBlock.of("before.csv", [(i, "wrong type") for i in range(500)]))
    left_out = LeftOut(folder)

    def said(seen, most=None):
        return stream._too_many(left_out, seen, most)

    assert said(1000) == ""
    for name, reason, count, seen, most, expected in (
        ("a", "null", 900, 1000, None, ""),
        ("b", "wrong type", 99, 1000, None, ""),
        ("c", "wrong type", 1, 0, None, ""),
        ("d", "wrong type", 1, 2000, 0.5, ""),
        ("e", "wrong type", 1, 2000, None, "102 of 1,100 rows that hold a value cannot be read"),
    ):
        write.process(BadRowBlock.of(f"{name}.csv", [(i, reason) for i in range(count)]))
        found = said(seen, most)
        assert found.startswith(expected) if expected else found == ""
    assert left_out.rows.unreadable == {"wrong type": 102}


@pytest.mark.exact
def test_flags_of_a_stream():
    log = ("--user-id", "u", "--interaction-log", "log", "--interaction-key-file", "key")
    given = parsed("--slide", "20s", "--allowed-lateness", "5m", "--late", "dead-letter", *log)
    stream = check_stream(USAGE, given)
    assert (stream.window, stream.slide, stream.period) == (60, 20, 20)
    assert (stream.allowed_lateness, stream.late) == (300, "dead-letter")
    assert given["release"]["windows"] == 9
    assert stream.poll == 2


@pytest.mark.exact
def test_a_stream_flag_without_a_stream_is_an_error(capsys, tmp_path):
    (tmp_path / "in.csv").write_text("colour\nred\n")
    code = frequency.main(
        ["--input", str(tmp_path / "in.csv"), "--column", "colour", "--domain", "d",
         "--delta", "1e-8", "--local-epsilon", "1", "--min-reports", "1",
         "--output", str(tmp_path / "out"),
         "--allowed-lateness", "5m"]
    )  # fmt: skip
    assert code == 2
    assert "--allowed-lateness needs --stream" in capsys.readouterr().err


# --- times ------------------------------------------------------------------------------------

LEAST = np.iinfo(np.int64).min


def batch(values: Any, kind: Any = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], ["t"])


@pytest.mark.exact
@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1.5", "2", " 3 "], None, [1_500_000, 2_000_000, 3_000_000]),
        (["1970-01-01T00:00:01Z", "1970-01-01 00:00:02", "1970-01-01T02:00:03+02:00"], None,
         [1_000_000, 2_000_000, 3_000_000]),
        ([1, None, 3], pa.int64(), [1_000_000, LEAST, 3_000_000]),
        ([0.25, float("nan"), float("inf")], None, [250_000, LEAST, LEAST]),
        (["", "soon", "1e30"], None, [LEAST] * 3),
        ([1_000, None, 3_000], pa.timestamp("ms"), [1_000_000, LEAST, 3_000_000]),
        ([1, 2, 3], pa.timestamp("s", tz="UTC"), [1_000_000, 2_000_000, 3_000_000]),
        ([True, False, None], pa.bool_(), [LEAST] * 3),
    ],
)  # fmt: skip
def test_times_of_rows(values, kind, expected):
    assert times_of(batch(values, kind), "t").tolist() == expected


@pytest.mark.exact
def test_a_missing_column_tells_no_time():
    assert times_of(batch([1, 2]), "when").tolist() == [LEAST] * 2


@pytest.mark.exact
def test_blocks_are_cut_where_the_window_changes():
    """Positions stay those of the file, and rows without a time are bad rows with a place."""
    block = TableBlock("file", 10, batch(["1", "59", "60", "?", "61", "5"]))
    found = list(_Stamp("t", 60.0).process(block))
    places = []
    for element in found:
        if hasattr(element, "tag"):
            places.append([(row.position, row.reason) for row in element.value])
        else:
            value = element.value
            places.append((value.first_position, len(value), float(element.timestamp)))
    assert places == [(10, 2, 1.0), (12, 1, 60.0), [(13, NO_TIME)], (14, 1, 61.0), (15, 1, 5.0)]


@pytest.mark.exact
def test_a_file_is_taken_once_it_is_whole(tmp_path, monkeypatch):
    """One that is written in place is waited for; one that was renamed, too, for a look."""
    look = WholeFiles(poll=5.0)

    def found() -> dict[str, int]:
        whole = look(f"{tmp_path}/*").outputs
        return {Path(one.value.path).name: one.value.size_in_bytes for one in whole}

    torn = tmp_path / "torn.csv"
    torn.write_text("a\n")
    (tmp_path / ".aside.csv").write_text("a\n")
    (tmp_path / "old.csv").write_text("a\n")
    os.utime(tmp_path / "old.csv", (1, 1))
    assert found() == {"old.csv": 2}
    torn.write_text("a\nb\n")
    os.rename(tmp_path / ".aside.csv", tmp_path / "whole.csv")
    assert found() == {"old.csv": 2}
    assert found() == {"old.csv": 2, "torn.csv": 4, "whole.csv": 2}


@pytest.mark.pipeline
def test_a_file_that_grows_after_it_was_read_is_a_bad_row(tmp_path, caplog):
    """Neither lost without a word nor read again: its first rows would count twice."""
    versions = [("in/a.csv", (10, 1.0)), ("in/b.csv", (9, 1.0)), ("in/a.csv", (10, 1.0)),
                ("in/a.csv", (25, 2.0)), ("in/b.csv", (4, 3.0))]  # fmt: skip
    taken, changed = [], []

    def build(pipeline):
        found = pipeline | beam.Create(versions, reshuffle=False) | beam.ParDo(
            TakeFileOnce()
        ).with_outputs(BAD_ROWS, main=ROWS)  # fmt: skip
        return (found[ROWS], found[BAD_ROWS]) | beam.Flatten()

    for one in run(build):
        if isinstance(one, str):
            taken.append(one)
        else:
            changed += [(row.source, row.position, row.length, row.reason) for row in one]
    assert sorted(taken) == ["in/a.csv", "in/b.csv"]
    assert sorted(changed) == [("in/a.csv", 10, 15, CHANGED), ("in/b.csv", 0, 4, CHANGED)]
    assert caplog.text.count("stream.file_changed bytes=") == 2


@pytest.mark.exact
def test_a_folder_stands_for_its_files():
    assert (as_pattern("in"), as_pattern("in/"), as_pattern("in/*.csv")) == (
        "in/*",
        "in/*",
        "in/*.csv",
    )


# --- files ------------------------------------------------------------------------------------


def a_release(start: int, count: int = 1000, **how: Any) -> Release:
    statistic = np.array([count // 2, count - count // 2, 0])
    event = None if how.get("derived") else shuffled_event(ORACLE, count)
    return Release(
        ORACLE.estimate(statistic, count), count, event, question="colour",
        window=(start * 10**6, (start + 60) * 10**6), mechanism=ORACLE.to_config(),
        smallest_batch=count, **how,
    )  # fmt: skip


def a_run(oracle: Any = ORACLE, **privacy: Any) -> Run:
    """Of the question of these tests, as far as releases are priced and shown."""
    privacy = {"delta": 1e-8, "local_epsilon": oracle.local_epsilon, **privacy}
    job = Job(question=FrequencyQuestion(), privacy=Privacy(**privacy))
    made = Run(
        USAGE, job, Frequencies(PortableDomain(Domain(("red", "green"))), "colour", "colour")
    )
    made.choice = Choice(oracle, 1000, None, 0.0)
    return made


def writer(folder: Path) -> WriteRelease:
    found = WriteRelease(str(folder), a_run(), None)
    found.setup()
    return found


@pytest.mark.exact
def test_files_of_a_release_hold_its_window_and_its_price(tmp_path):
    (path,) = writer(tmp_path).process(a_release(120))
    rows = list(csv.DictReader((Path(path) / TABLE).read_text().splitlines()))
    assert [row["value"] for row in rows] == ["red", "green", "other"]
    assert {row["window_start"] for row in rows} == {"1970-01-01 00:02:00.000000Z"}
    assert {row["window_end"] for row in rows} == {"1970-01-01 00:03:00.000000Z"}
    told = json.loads((Path(path) / PRICE).read_text())
    assert told["num_reports"] == 1000 and told["local_epsilon"] == 2.0
    assert 0 < told["epsilon"] < 2 and told["window_start"] == "1970-01-01T00:02:00Z"
    assert visible(tmp_path) == [span(120 * 10**6, 180 * 10**6)]
    assert visible(Path(path)) == [TABLE, PRICE]


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != WRITING)


@pytest.mark.exact
def test_late_releases_and_sums_have_folders_of_their_own(tmp_path):
    release = writer(tmp_path)
    for how in ({}, {"late": True}, {"derived": True}):
        list(release.process(a_release(0, **how)))
    name = span(0, 60 * 10**6)
    assert visible(tmp_path) == [name, f"{name}.late", f"{name}.sum"]
    total = json.loads((tmp_path / f"{name}.sum" / PRICE).read_text())
    assert total["epsilon"] is None and total["derived"]


@pytest.mark.exact
def test_the_first_answer_stays(tmp_path):
    """A step that an engine repeats shows nobody a second noisy answer, not even aside."""
    release = writer(tmp_path)
    (path,) = release.process(a_release(0, 1000))
    before = {file.name: file.read_bytes() for file in Path(path).iterdir()}
    list(release.process(a_release(0, 1002)))
    assert {file.name: file.read_bytes() for file in Path(path).iterdir()} == before
    assert write_once(str(tmp_path / "new" / "file"), b"one")
    assert not write_once(str(tmp_path / "new" / "file"), b"two")
    assert visible(tmp_path / "new") == ["file"]
    assert (tmp_path / "new" / "file").read_bytes() == b"one"
    assert not list((tmp_path / WRITING).iterdir())


def at_once(writers: int, write: Any) -> list[Any]:
    """What so many writers return that begin together."""
    begin = threading.Barrier(writers)

    def one(i: int) -> Any:
        begin.wait(30)
        return write(i)

    with ThreadPoolExecutor(writers) as pool:
        return list(pool.map(one, range(writers)))


@pytest.mark.exact
def test_of_writers_that_race_one_answers_and_its_price_is_its_own(tmp_path, monkeypatch):
    """All of them see that nothing is there before the first one has written."""
    waiting = threading.Barrier(8)
    write = whole_files.write_new

    def late(path: Path, content: bytes, **how: Any) -> None:
        if path.name == TABLE:
            waiting.wait(30)
        write(path, content, **how)

    monkeypatch.setattr(whole_files, "write_new", late)
    for turn in range(10):
        name = f"release {turn}"

        def publish(i: int, name: str = name) -> str:
            said = b"%d" % i
            return publish_once(str(tmp_path), name, {TABLE: said, PRICE: said})

        assert set(at_once(8, publish)) == {str(tmp_path / name)}
        assert len({file.read_bytes() for file in (tmp_path / name).iterdir()}) == 1
    assert not list((tmp_path / WRITING).iterdir())


@pytest.mark.exact
def test_of_files_that_are_written_at_once_one_stays(tmp_path, monkeypatch):
    waiting = threading.Barrier(8)
    monkeypatch.setattr(
        whole_files, "write_new", lambda p, c, **_: (waiting.wait(30), p.write_bytes(c))
    )
    path = tmp_path / "notice"
    won = at_once(8, lambda i: write_once(str(path), b"%d" % i))
    assert sum(won) == 1 and path.read_bytes() == b"%d" % won.index(True)


class Killed(BaseException):
    """Nothing is tidied up after it."""


@pytest.mark.exact
@pytest.mark.parametrize("step", ["table", "price", "name"])
def test_a_writer_that_is_killed_leaves_no_release(tmp_path, monkeypatch, step):
    def killed(*_: Any) -> None:
        raise Killed

    written = []

    def write(path: Path, content: bytes, **_: Any) -> None:
        if step == path.stem.replace("estimates", "table").replace("privacy", "price"):
            path.write_bytes(content[:5])
            raise Killed
        path.write_bytes(content)
        written.append(path.name)

    with monkeypatch.context() as patched:
        patched.setattr(whole_files, "write_new", write)
        patched.setattr(results.shutil, "rmtree", lambda *_, **__: None)
        if step == "name":
            patched.setattr(results.os, "rename", killed)
        with pytest.raises(Killed):
            list(writer(tmp_path).process(a_release(0)))
    assert not visible(tmp_path) and not list(read_folder(tmp_path, set()))
    left = list((tmp_path / WRITING).iterdir())
    assert len(left) == 1 and (tmp_path / WRITING).stat().st_mode & 0o077 == 0
    forget_unfinished(tmp_path)
    assert not list(tmp_path.iterdir())
    (path,) = writer(tmp_path).process(a_release(0))  # as the engine does that tries again
    assert [name for name, _ in read_folder(tmp_path, set())] == [Path(path).name]


@pytest.mark.exact
def test_a_disk_without_links_takes_notices_too(tmp_path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(whole_files.os, "link", refuse)
    assert write_once(str(tmp_path / "file"), b"one")
    assert not write_once(str(tmp_path / "file"), b"two")
    assert (tmp_path / "file").read_bytes() == b"one"


@pytest.mark.exact
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(whole_files, "write_new", full)
    with pytest.raises(OSError, match="full"):
        list(writer(tmp_path).process(a_release(0)))
    with pytest.raises(OSError, match="full"):
        write_once(str(tmp_path / "file"), b"one")
    assert not visible(tmp_path) and not list((tmp_path / WRITING).iterdir())


@pytest.mark.exact
def test_a_repeated_step_leaves_one_notice_of_a_window(tmp_path):
    """But rows that are too late are told of each time that some come."""
    note = WriteWithheldReleases(str(tmp_path))
    for reason, files in (("too few", 1), (TOO_LATE, 3), (LATE, 5)):
        for _ in range(2):
            note.process(WithheldRelease(3, 10, reason, "colour", None, (0, 60 * 10**6), True))
        assert len(visible(tmp_path)) == files


@pytest.mark.exact
def test_times_in_names_and_notices(tmp_path):
    assert iso(1_500_000) == "1970-01-01T00:00:01.500000Z"
    notice = WithheldRelease(3, 10, "too few", "colour", None, (0, 60 * 10**6), True)
    WriteWithheldReleases(str(tmp_path)).process(notice)
    (name,) = visible(tmp_path)
    assert json.loads((tmp_path / name).read_text())["late"] and ":" not in name


# --- the display ------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_display_counts_windows_and_adds_up_their_price(tmp_path):
    release = writer(tmp_path)
    for start in (0, 60):
        list(release.process(a_release(start)))
    list(release.process(a_release(0, 50, late=True)))
    list(release.process(a_release(0, derived=True)))
    note = WriteWithheldReleases(str(tmp_path))
    note.process(WithheldRelease(3, 10, "too few", "colour", None, (120 * 10**6, 180 * 10**6)))
    note.process(WithheldRelease(2, 10, "too late", "colour", None, (0, 60 * 10**6), True))
    (tmp_path / WRITING / "half").mkdir()  # of somebody who is still writing
    (tmp_path / WRITING / "half" / PRICE).write_text("{")
    watched = StreamProgress(tmp_path, 4, 1e-8)
    assert watched.look() and not watched.look()
    assert (watched.released, watched.late, watched.sums, watched.withheld) == (3, 1, 1, 2)
    assert watched.used == 4 and watched.is_used_up
    one = json.loads((tmp_path / span(0, 60 * 10**6) / PRICE).read_text())["epsilon"]
    assert one < watched.epsilon and watched.local_epsilon == 8.0  # of the one withheld too
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(watched.render())
    text = console.export_text()
    assert "1970-01-01 00:00:00–00:01:00" in text and "green" in text and "±" in text
    assert "withheld: too few" in text and "4 of 4 releases used" in text


@pytest.mark.exact
def test_the_price_of_a_window_takes_as_long_for_the_last_as_for_the_first(monkeypatch):
    """Counted in kinds of release, each of which is a transform; what is shown is a bound."""
    kinds = []

    def count(counts):
        kinds.append(len(counts))
        return SimpleNamespace(epsilon=lambda delta: 1.0)

    watched, exact, rng = StreamAccountant(ORDERS), ShuffleAccountant(ORDERS), random.Random(0)
    with monkeypatch.context() as patched:
        patched.setattr(accountant, "ledger_losses", count)
        for _ in range(200):
            event = shuffled_event(ORACLE, rng.randrange(3000, 6000))
            exact.compose(event)
            watched.compose(event).get_epsilon(1e-8)
    assert kinds[: KINDS - 1] == list(range(2, KINDS + 1)) and max(kinds) == KINDS
    assert len(exact._counts) > 180 and watched.ledger == exact.ledger
    price = exact.get_epsilon(1e-8)
    assert price < watched.get_epsilon(1e-8) < 1.02 * price


# --- live -------------------------------------------------------------------------------------

LIVE_SECONDS = int(os.environ.get("BEAM_LDP_LIVE_SECONDS", "600"))
FEEDER = """
import os, random, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
end, i = time.time() + seconds, 0
while time.time() < end:
    now = time.time()
    rows = [f"{random.choice(['red', 'red', 'green'])},u{i * 100 + k},{now}" for k in range(100)]
    with open(f"{folder}/.{i}", "w") as file:
        file.write("colour,id,t\\n" + "\\n".join(rows) + "\\n")
    os.rename(f"{folder}/.{i}", f"{folder}/{i}.csv")
    i += 1
    time.sleep(0.5)
"""


WINDOWS = 300  # that the budget of a live test pays for


def live(
    engine: Any, folder: Path, run_for: float, kill: bool, *flags: str
) -> tuple[int, dict[str, Any], int, list[dict[str, Any]]]:
    """The program with files that keep arriving; how it ended, what it printed, rows sent, what
    came out. In the middle a Python worker is killed, if so wanted."""
    (folder / "in").mkdir()
    (folder / "colours").write_text("red\ngreen\n")
    (folder / "key").write_bytes(bytes(range(32)))
    (folder / "in" / "first.csv").write_text(f"colour,id,t\nred,first,{time.time()}\n")
    ledger = BudgetLedger.create(ledger_of(folder))
    ledger.set_budget("people", epsilon=1e6, delta=1e-5, local_epsilon=1e4)
    command = [
        sys.executable, "-m", "beam_ldp.pipelines.frequency", "--input", str(folder / "in"),
        "--input-format", "csv", "--column", "colour", "--user-id", "id", "--stream",
        "--domain", str(folder / "colours"), "--time-column", "t", "--window", "5s",
        "--watermark-delay", "3s", "--allowed-lateness", "10s", "--budget-windows", str(WINDOWS),
        "--local-epsilon", "4", "--delta", "1e-8", "--min-reports", "200", "--dataset", "people",
        "--ledger", ledger_of(folder), "--run-id", "live", "--memoize-key-file",
        str(folder / "key"), "--release-id", "live", "--output", str(folder / "out"),
        "--format", "json", *engine.options, *flags,
    ]  # fmt: skip
    started = []
    with (folder / "printed").open("wb") as out, (folder / "log").open("wb") as log:
        program = subprocess.Popen(command, stdout=out, stderr=log)
        started.append(program)
    try:
        wait_for(folder / "out" / ".opened", "window *", program)
        feed = [sys.executable, "-c", FEEDER, str(folder / "in"), str(run_for)]
        feeder = subprocess.Popen(feed)
        started.append(feeder)
        time.sleep(run_for / 2)
        if kill:
            random.choice(pooled_workers(engine)).kill()
        feeder.wait(run_for + 60)
        wait_for_everything(folder, program, 300 if kill else 90)
        program.send_signal(signal.SIGINT)
        code = program.wait(150)
    finally:
        for process in started:
            process.kill()
            process.wait()
    printed = (folder / "printed").read_text()
    return code, json.loads(printed or "{}"), *count(folder)


def ledger_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


def wait_for(folder: Path, name: str, program: subprocess.Popen[bytes]) -> None:
    """Until the job has seen its first row: an engine may take its time to start one."""
    deadline = time.monotonic() + 300
    while not any(folder.glob(name)) and program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.5)
    assert any(folder.glob(name))


def wait_for_everything(folder: Path, program: subprocess.Popen[bytes], seconds: float) -> None:
    """Until what came out tells of every row: the last windows close, and what was late."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and program.poll() is None:
        sent, came = count(folder)  # the checks say what is missing then
        if sum(told["num_reports"] for told in came) >= sent:
            break
        time.sleep(1)
    time.sleep(3)  # nothing may come after


def count(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """Rows sent, and all prices and notices that came out."""
    sent = sum(len(p.read_text().splitlines()) - 1 for p in (folder / "in").glob("*.csv"))
    return sent, came_out(folder / "out")


def came_out(folder: Path) -> list[dict[str, Any]]:
    return [told for _, told in read_folder(folder, set())]


def releases_in(came: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Which windows were released; each once, and above the threshold."""
    releases = [told for told in came if "event" in told]
    assert min((told["num_reports"] for told in releases), default=200) >= 200
    kinds = sorted((told["window_start"], told["late"]) for told in releases)
    assert len(set(kinds)) == len(kinds)
    return kinds


def check(folder: Path, code: int, printed: dict[str, Any], sent: int, came: Any, least: int):
    """Nothing lost, nothing twice, nothing below the threshold, every table whole, all charged."""
    assert code == 0, (folder / "log").read_text()[-3000:]
    kinds = releases_in(came)
    assert sum(told["num_reports"] for told in came) == sent
    assert len(kinds) >= least and printed["releases"] == len(kinds)
    assert printed["ended"] == "stopped by Ctrl-C"
    assert sum(told["num_reports"] for told in came if "event" in told) > 0.6 * sent
    assert charged_in(folder) == kinds
    for path in (folder / "out").glob(f"*/{TABLE}"):
        assert len(path.read_text().splitlines()) == 4


def charged_in(folder: Path) -> list[tuple[str, bool]]:
    """The windows that the ledger has settled, in the order of time."""
    ledger = BudgetLedger(ledger_of(folder))
    assert audit(ledger.rows()).clean
    assert ledger.charge("live").count == 0  # the rest was given back
    charges = parts_of(ledger, "live")
    windows = [charge.about["window"] for charge in charges if charge.status == "settled"]
    return sorted((iso(window[0]), window[-1] == "late") for window in windows)


@pytest.mark.engines
def test_live_on_prism(tmp_path):
    """A few windows of files, ended by Ctrl-C when all have come out; one report per person."""
    with running("prism") as engine:
        check(tmp_path, *live(engine, tmp_path, 12, False), least=2)


@pytest.mark.engines
def test_a_stream_that_loses_rows_ends_on_prism(tmp_path):
    """150 of 2,350 rows are torn: no further window is released, and the exit code says so."""
    (tmp_path / "in").mkdir()
    (tmp_path / "list").write_text("a\n")
    rows = "".join(f"{i},a,{1_700_000_000 + i % 50}\n" for i in range(2200))
    with running("prism") as engine, (tmp_path / "log").open("w") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "beam_ldp.pipelines.frequency", "--stream", "--input",
             str(tmp_path / "in"), "--input-format", "csv", "--column", "c", "--user-id", "u",
             "--domain", str(tmp_path / "list"), "--time-column", "t", "--window", "60s",
             "--budget-windows", "9", "--local-epsilon", "2", "--delta", "1e-8", "--min-reports",
             "10", "--stop-after", "120s", "--output", str(tmp_path / "out"), "--no-ledger",
             *engine.options],
            stderr=log, stdout=log,
        )  # fmt: skip
        wait_for(tmp_path, "out", program)  # what is there before is checked
        (tmp_path / "aside").write_text("u,c,t\n" + rows + "7\n" * 150)
        (tmp_path / "aside").rename(tmp_path / "in" / "a.csv")
        code = program.wait(150)
    said = (tmp_path / "log").read_text()
    assert code == 1, said[-3000:]
    assert "150 of 2,350 rows that hold a value cannot be read" in said


@pytest.mark.engines
@pytest.mark.slow
def test_a_killed_worker_ends_a_stream_on_prism(tmp_path):
    """The job fails. What was released stays and is charged; of the rest nothing is."""
    with running("prism-forking") as engine:
        code, _, sent, came = live(engine, tmp_path, 30, True)
    assert code == 1, (tmp_path / "log").read_text()[-3000:]
    kinds = releases_in(came)
    assert kinds and sum(told["num_reports"] for told in came) < sent
    assert charged_in(tmp_path) == kinds


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.timeout(LIVE_SECONDS + 900)
@pytest.mark.parametrize(
    ("name", "kill", "flags"),
    [("prism", False, ()), ("flink-cluster", True, ("--checkpointing_interval=5000",))],
)
def test_live_for_ten_minutes(tmp_path, name, kill, flags):
    """On Flink one of the workers is killed in the middle (Prism fails a job whose worker dies)."""
    with running(name) as engine:
        check(tmp_path, *live(engine, tmp_path, LIVE_SECONDS, kill, *flags), LIVE_SECONDS // 6)
        restarted = "from state RUNNING to RESTARTING" in engine.group.text("job-manager")
        assert restarted == kill


class _Job:
    def __init__(self, *states: str | Exception) -> None:
        self.states = list(states)

    @property
    def state(self) -> str:
        said = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(said, Exception):
            raise said
        return said


@pytest.mark.exact
def test_a_budget_is_given_back_only_by_a_job_that_is_known_to_have_ended(monkeypatch):
    monkeypatch.setattr(stream, "ASK_EVERY", 0.01)
    assert stream.has_ended({})  # it never began
    assert stream.has_ended({"result": _Job("CANCELLED")})
    assert stream.has_ended({"result": _Job("RUNNING", "CANCELLING", "CANCELLED")}, 5.0)
    assert not stream.has_ended({"result": _Job("RUNNING")}, 0.05)
    assert not stream.has_ended({"result": _Job("RUNNING", ConnectionError("gone"))}, 5.0)
