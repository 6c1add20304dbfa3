"""Our own interactive programs pass their own audit; ones that are broken on purpose fail it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from beam_ldp.ledger.participants import PeopleKey
from beam_ldp.pipelines import heavy_hitters, randomize, user_mean
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.programs import DONE, MISUSED
from beam_ldp.protocols.user_means import UserMean
from beam_ldp.research.interactivity.auditing import InteractivityReport, audit_logs
from beam_ldp.research.interactivity.command import CLEAN, FLAGGED, MALFORMED
from beam_ldp.settings import Noise
from beam_ldp.settings.fields import SettingError
from beam_ldp.transforms import rounds
from beam_ldp.transforms.device.keyed import RecordLog
from beam_ldp.transforms.elements.blocks import ValueBlock

pytestmark = pytest.mark.e2e

PEOPLE, EPSILON = 600, 2.0
SECRET = b"a secret of the log, 32 bytes or more"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People with two rows each, and keys."""
    folder = tmp_path_factory.mktemp("logs")
    rows = (f"person-{i % PEOPLE},{60 + i % 7},{'ab' if i % 3 else 'cd'}\n" for i in range(1200))
    (folder / "people.csv").write_text("uid,minutes,word\n" + "".join(rows))
    (folder / "domain.txt").write_text("ab\ncd\n")
    for name, secret in (("key", SECRET), ("noise", b"another secret for noise, 32 bytes.")):
        (folder / name).write_bytes(secret)
        (folder / name).chmod(0o600)
    return folder


def flags(place: Path, log: Path, *more: str) -> list[str]:
    return [f"--input={place}/people.csv", "--user-id=uid", f"--local-epsilon={EPSILON}",
            "--dataset=visits", "--release-id=week 1", f"--interaction-log={log}",
            f"--interaction-key-file={place}/key", *more]  # fmt: skip


def statistic(place: Path, log: Path, *more: str) -> list[str]:
    out = log.with_name(f"out {len(list(log.parent.iterdir()))}")
    return flags(place, log, "--delta=1e-6", f"--expected-users={PEOPLE}", "--no-ledger",
                 "--no-mlflow", f"--output={out}", *more)  # fmt: skip


def user_means(place: Path, log: Path, *more: str) -> list[str]:
    return statistic(place, log, "--column=minutes", "--range", "0", "1440", "--rows-per-user=2",
                     "--sigma=20", *more)  # fmt: skip


def words(place: Path, log: Path, *more: str) -> list[str]:
    return statistic(place, log, "--column=word", "--max-bytes=2", "--code-bits=30",
                     "--false-words=1", *more)  # fmt: skip


def audited(log: Path) -> InteractivityReport:
    return audit_logs(sorted(log.iterdir()), EPSILON)


def command(log: Path) -> Result:
    return CliRunner().invoke(group, ["audit-interactivity", str(log), f"--epsilon={EPSILON}"])


@pytest.fixture(scope="module")
def mean(place: Path) -> Path:
    """The log of a mean in two rounds with memoized noise."""
    assert user_mean.main(memoized(place, place / "mean")) == DONE
    return place / "mean"


def memoized(place: Path, log: Path) -> list[str]:
    return user_means(place, log, f"--memoize-key-file={place}/noise")


@pytest.fixture(scope="module")
def reports(place: Path) -> Path:
    """A folder with the reports of devices, memoized, and their log."""
    assert randomize.main(device_reports(place, place / "devices")) == DONE
    return place / "devices"


def device_reports(place: Path, folder: Path, name: str = "reports") -> list[str]:
    return flags(place, folder / "log", "--column=word", f"--domain={place}/domain.txt",
                 f"--memoize-key-file={place}/noise", f"--output={folder}/{name}")  # fmt: skip


def test_a_mean_in_two_rounds_passes(mean: Path) -> None:
    assert command(mean).exit_code == CLEAN
    report = audited(mean)
    assert (report.people.people, report.depth, report.max_epsilon) == (PEOPLE, 2, EPSILON)
    assert report.interactivity == "sequentially interactive" and report.noninteractive is False


def test_both_rounds_of_everybody_add_up_to_the_promise(place: Path, tmp_path: Path) -> None:
    told = user_means(place, tmp_path / "log", "--split=budget")
    assert user_mean.main(told) == DONE
    report = audited(tmp_path / "log")
    assert report.clean and report.people.by_queries == {2: PEOPLE}
    assert report.interactivity == "fully interactive" and report.mergeable == 0
    assert report.max_epsilon == pytest.approx(EPSILON)


def test_a_search_for_words_passes(place: Path, tmp_path: Path) -> None:
    assert heavy_hitters.main(words(place, tmp_path / "log")) == DONE
    assert command(tmp_path / "log").exit_code == CLEAN
    report = audited(tmp_path / "log")
    assert report.people.by_queries == {1: PEOPLE} and report.depth is not None
    assert report.depth == len({name for name in rounds_of(tmp_path / "log")}) > 1


def rounds_of(log: Path) -> set[int]:
    return {r for p in log.iterdir() for r in pq.read_table(p).column("round").to_pylist()}


def test_people_asked_at_two_levels_are_found(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that forgets that a person has answered asks everybody at the next level, too."""

    def part_twice(part: Any, block: ValueBlock) -> Iterator[Any]:
        assert block.groups is not None
        for level in range(2):
            tag = rounds.tag(level)
            yield beam.pvalue.TaggedOutput(tag, replace(block, groups=None))

    monkeypatch.setattr(rounds.PartRounds, "process", part_twice)
    heavy_hitters.main(words(place, tmp_path / "log"))
    result = command(tmp_path / "log")
    assert result.exit_code == FLAGGED and "over budget" in result.output
    report = audited(tmp_path / "log")
    assert report.people.over == PEOPLE and report.max_epsilon == 2 * EPSILON


def test_a_mean_that_asks_in_round_two_whom_it_has_asked_is_found(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = UserMean.roles

    def everybody(self: UserMean) -> Any:
        return tuple((first, 0) for first, _ in roles.fget(self))  # type: ignore[attr-defined]

    monkeypatch.setattr(UserMean, "roles", property(everybody))
    user_mean.main(user_means(place, tmp_path / "log"))
    assert command(tmp_path / "log").exit_code == FLAGGED
    report = audited(tmp_path / "log")
    assert report.people.people == PEOPLE and report.max_epsilon == 2 * EPSILON
    assert report.people.over == report.people.records - PEOPLE > 0 and report.mergeable == 0


def test_a_run_again_with_fresh_noise_is_found(place: Path, mean: Path, tmp_path: Path) -> None:
    """What a retried bundle does, for everybody: the same release, drawn once more."""
    log = Path(shutil.copytree(mean, tmp_path / "log"))
    assert user_mean.main(user_means(place, log)) == DONE
    report = audited(log)
    assert report.people.records == 2 * PEOPLE and report.people.people == PEOPLE
    assert command(log).exit_code == FLAGGED
    found = {one.name: one.count for one in report.findings}
    drawn = report.people.retries + found["re-randomized on retry"]
    assert drawn == PEOPLE and found["over budget"] == found["re-randomized on retry"]


def test_a_run_again_with_memoized_noise_is_none(place: Path, mean: Path, tmp_path: Path) -> None:
    log = Path(shutil.copytree(mean, tmp_path / "log"))
    assert user_mean.main(memoized(place, log)) == DONE
    report = audited(log)
    assert report.clean and report.people.retries == report.people.people == PEOPLE
    assert report.people.records == 2 * PEOPLE


def test_reports_from_devices_leave_a_log(reports: Path) -> None:
    report = audited(reports / "log")
    assert report.clean and report.people.by_queries == {1: PEOPLE} and report.noninteractive
    assert not [p for p in (reports / "reports").iterdir() if "asked" in p.name]


def test_what_the_devices_sent_is_audited_by_the_ids_of_envelopes(
    reports: Path, tmp_path: Path
) -> None:
    """The same people as in the log, of whom it cannot be said who they are."""
    sent = reports / "reports"
    done = command(sent)
    assert done.exit_code == CLEAN, done.output
    said = " ".join(done.output.replace("│", " ").split())
    assert f"ids of envelopes {PEOPLE}" in said and "class unknown (envelopes name nobody)" in said
    assert "noninteractive unknown (no provenance)" in said and "people" not in said
    restored = Path(shutil.copytree(sent, tmp_path / "restored"))
    both = CliRunner().invoke(
        group, ["audit-interactivity", str(sent), str(restored), "--epsilon=2", "--format=json"]
    )
    told = json.loads(both.stdout)
    assert both.exit_code == CLEAN and told["num_people"] == told["num_retries"] == PEOPLE
    assert told["anonymous"] and told["epsilon_per_person"]["max"] == EPSILON
    over = CliRunner().invoke(group, ["audit-interactivity", str(sent), "--epsilon=1.5"])
    assert over.exit_code == FLAGGED and "ids of envelopes above epsilon 1.5" in over.output
    (restored / "release.json").unlink()
    alone = command(restored)
    assert alone.exit_code == MALFORMED and "release.json: cannot be read" in alone.output
    mixed = CliRunner().invoke(
        group, ["audit-interactivity", str(sent), str(reports / "log"), "--epsilon=2"]
    )
    assert mixed.exit_code == MALFORMED and "envelopes name nobody" in mixed.output


def test_a_log_names_nobody_and_its_key_is_nowhere(reports: Path) -> None:
    ids = [f"person-{i}" for i in range(PEOPLE)]
    for path in (p for p in reports.rglob("*") if p.is_file()):
        assert SECRET not in path.read_bytes() and b"person-" not in path.read_bytes()
    (path,) = (reports / "log").iterdir()
    assert path.stat().st_mode & 0o077 == 0
    table = pq.read_table(path)
    users = table.column("user").to_numpy().view(np.uint64)
    assert (np.diff(users.astype(float)) >= 0).all()  # not in the order of the data
    tags = PeopleKey(SECRET, "interaction log of visits").tags(ids)
    assert set(users.tolist()) == set(tags.tolist())
    for_the_ledger = PeopleKey(SECRET, "visits").tags(ids)
    assert not set(users.tolist()) & set(for_the_ledger.tolist())
    assert set(table.column("run").to_pylist()) == {"visits/week 1"}
    assert repr(SECRET) not in repr(RecordLog("log", f"{reports}/key", "visits", "week 1"))


@pytest.mark.parametrize(
    "told, reason",
    [
        ({"log": "a"}, "belong together"),
        ({"log_key_file": "a"}, "belong together"),
        ({"log": "a", "log_key_file": "b"}, "needs release.dataset and release.id"),
        ({"log": "a", "log_key_file": "b", "dataset": "d", "id": "i", "seed": 1}, "exclude each"),
    ],
)
def test_settings_that_do_not_fit(told: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        Noise(**told)


def test_flags_that_do_not_fit(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [flag for flag in words(place, tmp_path / "log") if flag != "--user-id=uid"]
    same = [*words(place, tmp_path / "log"), f"--memoize-key-file={place}/key"]
    for flags_given, reason in ((told, "--interaction-log needs --user-id"),
                                (same, "must differ from --memoize-key-file")):  # fmt: skip
        assert heavy_hitters.main(flags_given) == MISUSED
        assert reason in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "log").exists()
