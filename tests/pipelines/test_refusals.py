"""What no program takes is refused by name, before data are read; however a program ends, its
output is whole or absent."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.accounting import shuffle_epsilon, shuffled_event
from beam_ldp.pipelines import frequency, programs
from beam_ldp.pipelines.programs import DONE, FAILED, INTERRUPTED, MISUSED, NOTHING_RELEASED
from beam_ldp.pipelines.usage.frequency import USAGE
from beam_ldp.questions.frequencies import Frequencies
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release import runner
from beam_ldp.release.devices.release_file import load_release
from beam_ldp.release.outputs import FolderWriter
from beam_ldp.release.run import Run
from beam_ldp.release.streams.job import check_stream
from beam_ldp.release.worker_results import WorkerResults
from beam_ldp.settings import SettingError
from beam_ldp.transforms.elements.blocks import Release
from tests.pipelines.test_stream import parsed

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--staged", "d"], "--staged cannot be used with --stream"),
        (["--job-timeout", "9s"], "--job-timeout cannot be used with --stream"),
        (["--people-store", "d"], "--people-store cannot be used with --stream"),
    ],
)
def test_streams_take_nothing_that_is_for_one_release(flags: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check_stream(USAGE, parsed(*flags))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--column=c", "--column=x", "--bins=0:10:5"], "--bins takes a single --column"),
        (["--column=c", "--column=x", "--domain={}/d.txt", "--bins=0:10:5"], "exclude each other"),
        (["--column=x", "--domain={}/d.txt", "--bins=0:10:5"], "exclude each other"),
        (["--column=x", "--column=x", "--domain={}/d.txt"], "names a column twice"),
        (["--column=c", "--column=x", "--domain={0}/d.txt", "--domain={0}/d.txt",
          "--domain={0}/d.txt"], "3 lists for 2 columns"),
        (["--column=c", "--domain={}/d.txt", "--quantiles=0.5"], "--quantiles needs --bins"),
        (["--column=c", "--column=x", "--bins=0:10:5", "--quantiles=0.5"],
         "--bins takes a single --column"),
    ],
)  # fmt: skip
def test_lists_and_bins_are_asked_apart(
    flags: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "p.csv").write_text("c,x\na,1\n")
    (tmp_path / "d.txt").write_text("a\nb\n")
    more = [f"--input={tmp_path}/p.csv", "--local-epsilon=1", "--delta=1e-6", "--min-reports=1",
            f"--output={tmp_path}/out", "--no-ledger"]  # fmt: skip
    assert frequency.main([*more, *(flag.format(tmp_path) for flag in flags)]) == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


# However it ends: a whole output or none --------------------------------------------------------


@pytest.fixture
def colours(tmp_path: Path) -> list[str]:
    """Flags of a run whose job is not run: what would come back of it is made up."""
    (tmp_path / "p.csv").write_text("c\na\n")
    (tmp_path / "d.txt").write_text("a\nb\n")
    return [f"--input={tmp_path}/p.csv", "--column=c", f"--domain={tmp_path}/d.txt",
            "--local-epsilon=2", "--delta=1e-6", "--min-reports=50", "--no-ledger", "--no-mlflow",
            "--mechanism=KRandomizedResponse", f"--output={tmp_path}/new/out"]  # fmt: skip


def made_up(run: Run, *_: Any) -> WorkerResults:
    oracle = run.choice.mechanism
    estimate = oracle.estimate(np.array([40, 35, 25]), 100)
    event, config = shuffled_event(oracle, 100), oracle.to_config()
    release = Release(estimate, 100, ran=event, mechanism=config, smallest_batch=100)
    return WorkerResults([release], [], b"")


@pytest.fixture
def without_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "collect", made_up)


@pytest.mark.usefixtures("without_a_job")
@pytest.mark.parametrize(
    ("place", "name", "whole"),
    [
        (programs, "read_flags", False),
        (Frequencies, "choose", False),
        (runner.reserving, "reserve", False),
        (Run, "collect", False),
        (Run, "gate", False),
        (runner, "gate_price", False),
        (runner.outputs, "as_parquet", False),
        (runner, "statement", False),
        (runner.publishing, "settle", False),
        (runner.publishing, "publish", False),
        (runner, "count_people", True),
        (runner, "log_run", True),
        (programs, "show", True),
    ],
)
def test_an_interrupt_leaves_a_whole_output_or_none(
    place: Any, name: str, whole: bool, colours: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: Any,
) -> None:  # fmt: skip
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, name, interrupted)
    assert frequency.main(colours) == INTERRUPTED
    left = tmp_path / "new"
    names = sorted(path.name for path in left.iterdir()) if left.exists() else []
    assert names == (["out"] if whole else [])
    assert len(list(left.glob("out/*"))) == (5 if whole else 0)
    assert capsys.readouterr().err.strip().endswith("interrupted")


@pytest.mark.usefixtures("without_a_job")
@pytest.mark.parametrize("full_after", range(5))
def test_a_full_disk_leaves_nothing_and_is_said_in_one_line(
    full_after: int, colours: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:  # fmt: skip
    real, written = FolderWriter.put, []

    def put(self: FolderWriter, name: str, content: bytes) -> None:
        if len(written) == full_after:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(name)
        real(self, name, content)

    monkeypatch.setattr(FolderWriter, "put", put)
    assert frequency.main(colours) == FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("could not be written (No space left on device)")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.usefixtures("without_a_job")
def test_of_two_programs_with_one_output_the_later_is_refused(
    colours: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The other one finishes while this one's job runs; its files stay as they are."""

    def late(run: Run, *_: Any) -> WorkerResults:
        monkeypatch.setattr(Run, "collect", made_up)
        assert frequency.main(colours) == DONE
        return made_up(run)

    monkeypatch.setattr(Run, "collect", late)
    assert frequency.main(colours) == MISUSED
    assert "exists; --overwrite replaces it" in capsys.readouterr().err.replace("\n", " ")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


@pytest.mark.parametrize("flag", ["--min-reports", "--expected-users"])
@pytest.mark.parametrize("number", ["0", "-5", "1e13", "1e300"])
def test_numbers_of_people_that_no_price_is_proved_for(
    flag: str, number: str, colours: list[str], capsys: Any
) -> None:
    assert frequency.main([*colours, f"{flag}={number}"]) == MISUSED
    assert f"{flag} must lie in [1, 1e+12]" in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("without_a_job")
def test_a_link_is_never_replaced_by_an_output(colours: list[str], tmp_path: Path) -> None:
    """A link to an earlier output keeps pointing there, and that output keeps its files."""
    assert frequency.main(colours) == DONE
    old, link = tmp_path / "new" / "out", tmp_path / "link"
    link.symlink_to(old)
    before = (old / "privacy.json").read_bytes()
    assert frequency.main([*colours[:-1], f"--output={link}"]) == MISUSED
    assert (old / "privacy.json").read_bytes() == before
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    code = frequency.main([*colours[:-1], f"--output={dangling}"])
    assert code in (MISUSED, NOTHING_RELEASED) and dangling.is_symlink()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("content", ["[" * 100_000, "7", '{"mechanism": "[]"}', "\x00", "{", ""])
def test_release_files_that_are_none(content: str, tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text(content)
    with pytest.raises(SettingError, match=f"--release {path}: "):
        load_release(str(path))


@pytest.mark.usefixtures("without_a_job")
@pytest.mark.parametrize(("fraction", "hide"), [("1", 50), ("0.5", 25), ("0.01", 1)])
def test_what_is_set_aside_is_the_price_of_the_fewest_honest_people(
    fraction: str, hide: int, colours: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many were expected: a release of `--min-reports` costs most."""
    asked: list[Any] = []

    def reserve(settings: Any, worst: Any, about: str, **how: Any) -> Any:
        asked.append(worst)
        return runner.NoCharge("no: a test")

    monkeypatch.setattr(runner.reserving, "reserve", reserve)
    more = [f"--honest-fraction={fraction}", "--expected-users=100000"]
    assert frequency.main([*colours, *more]) == DONE
    (worst,) = asked
    assert worst.honest_reports == hide
    assert worst.bound == shuffle_epsilon(KRandomizedResponse(3, 2.0), hide, 1e-6)
