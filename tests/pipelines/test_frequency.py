"""The program as a user runs it: files in, a whole output or none, exit codes, prices."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from tests.release.test_outputs import COLUMNS
from tests.warm import run_warm

pytestmark = pytest.mark.e2e

USERS = 20_000
SECRET = "the-raw-value"
VALUES = [f"w{i}" for i in range(9)]
FILES = ["estimates.csv", "estimates.parquet", "plot.png", "privacy.json",
         "privacy.md"]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 people in every format; the first value is held by 40 % of them."""
    folder = tmp_path_factory.mktemp("data")
    held = np.random.default_rng(5).choice(10, USERS, p=[0.4, *[0.05] * 8, 0.2])
    words = [[*VALUES, "elsewhere"][i] for i in held]
    table = pa.table({"uid": np.arange(USERS), "word": words})
    pq.write_table(table, folder / "people.parquet", row_group_size=3000)
    (folder / "domain.txt").write_text("".join(f"{value}\n" for value in VALUES))
    rows = list(zip(range(USERS), words))
    (folder / "people.csv").write_text(
        "uid,word\n" + "".join(f"{uid},{word}\n" for uid, word in rows)
    )
    (folder / "people.jsonl").write_text(
        "".join(json.dumps({"uid": uid, "word": word}) + "\n" for uid, word in rows)
    )
    (folder / "people.txt").write_text("".join(f"{word}\n" for word in words))
    (folder / "truth.json").write_text(json.dumps(np.bincount(held, minlength=10).tolist()))
    return folder


def flags(data: Path, out: Path, *more: str, source: str = "people.parquet") -> list[str]:
    found = [f"--input={data}/{source}", f"--output={out}", "--delta=1e-6", "--no-mlflow", *more]
    if not any(f.startswith("--domain") for f in more):  # repeated, it is a list per column
        found.append(f"--domain={data}/domain.txt")
    if not source.endswith(".txt") and not any(f.startswith("--column") for f in more):
        found.append("--column=word")
    return found


CENTRAL = ["--epsilon=1", f"--expected-users={USERS}"]
LOCAL = ["--local-epsilon=4", f"--expected-users={USERS}"]


def record(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "privacy.json").read_text()))


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "estimates.csv").open(newline="", encoding="utf-8")))


def assert_close_to_truth(data: Path, out: Path) -> None:
    """Each estimate within 5 standard errors: false alarms below 1e-5 per run."""
    truth = json.loads((data / "truth.json").read_text())
    found = rows(out)
    assert [row["value"] for row in found] == [*VALUES, "other"]
    for row, count in zip(found, truth):
        assert abs(float(row["count"]) - count) < 5 * float(row["count_standard_error"])


# The whole way ------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("source", ["people.parquet", "people.csv", "people.jsonl", "people.txt"])
def test_every_format_gives_a_whole_output(data: Path, tmp_path: Path, source: str) -> None:
    """Estimates within 5 standard errors of the truth: false alarms below 1e-5 per format."""
    out = tmp_path / "out"
    assert main(flags(data, out, *LOCAL, source=source)) == DONE
    assert sorted(os.listdir(out)) == FILES
    assert os.listdir(tmp_path) == ["out"]
    assert_close_to_truth(data, out)
    table = pq.read_table(out / "estimates.parquet")
    assert table.schema.names == COLUMNS and table.num_rows == 10
    found = record(out)
    assert found["schema_version"] == 1 and found["num_reports"] == USERS
    assert found["local_epsilon"] == 4.0 and found["num_bad_rows"] == 0
    assert 0 < found["epsilon_lower"] <= found["epsilon"] < found["local_epsilon"]
    assert not Path(f"{out}.private").exists()
    assert "local epsilon = 4" in (out / "privacy.md").read_text()
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.statistical
def test_a_central_target_is_met_by_what_was_expected(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And kept. Estimates within 5 standard errors: false alarms below 1e-5."""
    out = tmp_path / "out"
    code = main(flags(data, out, *CENTRAL, "--user-id=uid", "--format=json"))
    assert code == DONE
    found = record(out)
    assert 0.9 < found["epsilon"] <= 1.0 + 1e-9
    assert found["user_id"] == "uid" and found["warnings"] == []
    assert_close_to_truth(data, out)
    printed = json.loads(capsys.readouterr().out)
    assert printed["privacy"] == found and printed["output"] == str(out)
    assert printed["top"][0]["value"] == "w0"


def test_one_report_per_person(data: Path, tmp_path: Path) -> None:
    """Three files with the same people are still that many people."""
    for i in range(3):
        (tmp_path / f"{i}.parquet").write_bytes((data / "people.parquet").read_bytes())
    out = tmp_path / "out"
    arguments = flags(data, out, *LOCAL, "--user-id=uid", f"--input={tmp_path}/*.parquet")
    assert main(arguments) == DONE
    assert record(out)["num_reports"] == USERS


@pytest.mark.parametrize("scope", ["batch", "global"])
def test_reports_can_leave_the_shuffler(data: Path, tmp_path: Path, scope: str) -> None:
    out = tmp_path / "out"
    more = ["--shuffle-output=reports", f"--scope={scope}", "--min-reports=5000"]
    assert main(flags(data, out, *LOCAL, *more)) == DONE
    found = record(out)
    assert found["output"] == "reports" and found["scope"] == scope
    assert 5000 <= found["smallest_batch"] <= USERS
    assert found["honest_reports"] == found["smallest_batch"]
    assert "individual reports left the shuffler" in (out / "privacy.md").read_text()


def test_the_module_is_the_same_program(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "beam_ldp.pipelines.frequency",
               *flags(data, tmp_path / "out", *LOCAL)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == DONE, done.stderr
    assert "The 9 most frequent of 9 values" in done.stdout and "epsilon =" in done.stdout
    assert sorted(os.listdir(tmp_path / "out")) == FILES


@pytest.mark.slow  # each worker is a new interpreter
def test_several_processes_give_the_same_kind_of_result(data: Path, tmp_path: Path) -> None:
    """Launcher and workers share nothing but files."""
    out = tmp_path / "out"
    more = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    done = run_warm("-m", "beam_ldp.pipelines.frequency", *flags(data, out, *LOCAL, *more))
    assert done.returncode == DONE, done.stderr
    assert record(out)["num_reports"] == USERS
    assert_close_to_truth(data, out)


# Bad rows ---------------------------------------------------------------------------------


@pytest.fixture
def ragged(data: Path, tmp_path: Path) -> Path:
    lines = (data / "people.csv").read_text().splitlines()
    lines[3] = SECRET
    lines[7] = "5,"
    lines[9] = ",w1"
    path = tmp_path / "ragged.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_bad_rows_are_listed_by_place_and_reason_and_never_by_value(
    data: Path, tmp_path: Path, ragged: Path, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "out"
    arguments = [f"--input={ragged}", *flags(data, out, *LOCAL, "--user-id=uid")[1:]]
    assert main(arguments) == DONE
    found = [
        json.loads(line)
        for line in Path(f"{out}.private", "bad_rows.jsonl").read_text().splitlines()
    ]
    assert {row["position"]: row["reason"] for row in found} == {
        4: "wrong number of fields", 8: "null", 10: "no user id",
    }  # fmt: skip
    assert {row["source"] for row in found} == {str(ragged)}
    assert all(set(row) == {"source", "position", "reason"} for row in found)
    assert record(out)["num_bad_rows"] == 3 and record(out)["num_reports"] == USERS - 3
    printed = capfd.readouterr()
    everything = printed.out + printed.err + caplog.text
    everything += "".join(
        (out / name).read_bytes().decode("latin-1") for name in FILES if name != "plot.png"
    )
    assert SECRET not in everything


def test_bad_rows_as_other_leave_no_trace(data: Path, tmp_path: Path, ragged: Path) -> None:
    out = tmp_path / "out"
    arguments = [f"--input={ragged}", *flags(data, out, *LOCAL, "--bad-rows=other")[1:]]
    assert main(arguments) == DONE
    assert record(out)["num_reports"] == USERS
    assert record(out)["num_bad_rows"] is None
    assert not Path(f"{out}.private").exists()


def test_too_many_bad_rows_release_nothing(
    data: Path, tmp_path: Path, ragged: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = [f"--input={ragged}", *flags(data, out, *LOCAL, "--max-bad-rows=0")[1:]]
    assert main(arguments) == NOTHING_RELEASED
    assert "--max-bad-rows is 0" in capfd.readouterr().err.replace("\n", " ")
    assert not out.exists()


def test_a_file_without_the_column_is_named_before_anything_runs(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"uid": [1, 2], "else": ["a", "b"]}), tmp_path / "odd.parquet")
    arguments = [*flags(data, tmp_path / "out", *LOCAL), f"--input={tmp_path}/odd.parquet"]
    assert main(arguments) == MISUSED
    said = capfd.readouterr().err.replace("\n", " ")
    assert "no such column" in said and "odd.parquet has uid, else" in said


# Gates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [[], ["--shuffle-output=reports"], ["--shuffle-output=reports",
                                  "--scope=global"], ["--seed=1"]])  # fmt: skip
def test_too_few_reports_release_nothing_in_any_mode(
    data: Path, tmp_path: Path, mode: Sequence[str], capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = flags(data, out, "--local-epsilon=4", f"--min-reports={USERS + 1}", *mode)
    assert main(arguments) == NOTHING_RELEASED
    said = capfd.readouterr().err.replace("\n", " ")
    assert "nothing was released" in said and "--min-reports is 20,001" in said
    assert os.listdir(tmp_path) == []


def test_a_mistyped_column_is_said(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [*flags(data, tmp_path / "out", *LOCAL), "--column=nowhere"]
    assert main(arguments) == MISUSED
    said = capfd.readouterr().err.replace("\n", " ")
    assert "--column nowhere: no such column" in said and "the first input has" in said


def test_a_runner_that_does_not_exist_is_a_usage_error(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags(data, tmp_path / "out", *LOCAL), "--runner=NoRunner"]) == MISUSED
    said = capfd.readouterr().err
    assert "NoRunner" in said and "Traceback" not in said
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("missing", [0, 1500])
def test_a_target_is_kept_with_as_few_people_as_are_released(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], missing: int
) -> None:
    """Noise is planned for 0.9 of the people expected, so 93 % of them cost no more than asked."""
    expecting = ["--epsilon=1", "--max-local-epsilon=12", f"--expected-users={USERS + missing}"]
    assert main(flags(data, tmp_path / "a", *expecting)) == DONE
    assert record(tmp_path / "a")["epsilon"] <= 1.0
    assert "above the target" not in capfd.readouterr().err.replace("\n", " ")


def test_more_than_the_target_is_released_only_where_that_is_allowed(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expecting = ["--epsilon=1", f"--expected-users={USERS + 1500}", "--allow-over-target"]
    assert main(flags(data, tmp_path / "a", *expecting)) == DONE
    found = record(tmp_path / "a")
    assert found["epsilon"] > 1.0
    assert any("above the target 1" in warning for warning in found["warnings"])
    assert "above the target" in capfd.readouterr().err.replace("\n", " ")


def test_fake_reports_hide_nobody(data: Path, tmp_path: Path) -> None:
    assert main(flags(data, tmp_path / "all", *LOCAL)) == DONE
    assert main(flags(data, tmp_path / "half", *LOCAL, "--honest-fraction=0.5")) == DONE
    assert record(tmp_path / "half")["honest_reports"] == USERS // 2
    assert record(tmp_path / "half")["epsilon"] > 1.2 * record(tmp_path / "all")["epsilon"]


def test_a_seed_means_no_price_anywhere(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags(data, tmp_path / "a", *CENTRAL, "--seed=7")) == DONE
    shown = capsys.readouterr()
    assert "none: this was a simulation" in shown.out and "epsilon =" not in shown.out
    assert main(flags(data, tmp_path / "b", *CENTRAL, "--seed=7")) == DONE
    found = record(tmp_path / "a")
    assert found["epsilon"] is found["local_epsilon"] is found["epsilon_lower"] is None
    assert found["simulated"] and "No privacy guarantee" in (tmp_path / "a/privacy.md").read_text()
    same = [(tmp_path / name / "estimates.csv").read_bytes() for name in "ab"]
    assert same[0] == same[1], "the same seed gives the same noise"


def test_memoized_noise_repeats_and_says_so(data: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    more = [*LOCAL, f"--memoize-key-file={key}", "--user-id=uid"]
    for name, release in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        out = tmp_path / name
        arguments = flags(data, out, *more, f"--release-id={release}", "--dataset=d")
        assert main(arguments) == DONE
    contents = [(tmp_path / name / "estimates.csv").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]
    assert record(tmp_path / "a")["memoized"] and record(tmp_path / "a")["release_id"] == "r1"
    for path in (tmp_path / "a").iterdir():
        assert key.read_bytes() not in path.read_bytes()


def test_few_random_bits_are_not_memoized(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    more = [*LOCAL, "--random-bits=0.5", f"--memoize-key-file={key}", "--user-id=uid"]
    identity = ["--release-id=r", "--dataset=d"]
    assert main(flags(data, tmp_path / "out", *more, *identity)) == MISUSED
    assert "leave one of the two out" in capfd.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


# Mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--epsilom=2"], "did you mean --epsilon"),
        (["--epsilon=1"], "--epsilon needs --expected-users"),
        ([*LOCAL, "--mechanism=KRandomisedResponse"], "KRandomizedResponse"),
        ([*LOCAL, "--domain=gone.txt"], "gone.txt"),
        ([*LOCAL, "--input=gone.csv"], "no file matches"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(
    data: Path, tmp_path: Path, extra: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(flags(data, tmp_path / "out", *extra)) == MISUSED
    assert said in capfd.readouterr().err.replace("\n", " ")
    assert os.listdir(tmp_path) == []


def test_a_list_that_holds_other_needs_another_label(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.txt").write_text("w0\nother\n")
    arguments = flags(data, tmp_path / "out", *LOCAL, f"--domain={tmp_path}/list.txt")
    assert main(arguments) == MISUSED
    assert "--other-label" in capfd.readouterr().err
    assert main([*arguments, "--other-label=(rest)"]) == DONE
    assert [row["value"] for row in rows(tmp_path / "out")] == ["w0", "other", "(rest)"]


def test_an_existing_output_is_refused_before_anything_is_read(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, *LOCAL)) == DONE
    before = (out / "estimates.csv").read_bytes()
    assert main(flags(data, out, *LOCAL)) == MISUSED
    assert "--overwrite" in capfd.readouterr().err
    assert (out / "estimates.csv").read_bytes() == before
    assert main(flags(data, out, *LOCAL, "--overwrite")) == DONE
    assert (out / "estimates.csv").read_bytes() != before


def test_a_file_that_cannot_be_read_is_named_before_anything_runs(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.parquet").write_text(SECRET)
    out = tmp_path / "out"
    assert main([*flags(data, out, *LOCAL), f"--input={tmp_path}/broken.parquet"]) == MISUSED
    printed = capfd.readouterr()
    assert "broken.parquet" in printed.err.splitlines()[-1]
    assert SECRET not in printed.err
    assert os.listdir(tmp_path) == ["broken.parquet"]


def test_a_dry_run_prices_and_touches_nothing(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.parquet").write_text("not Parquet at all")
    arguments = flags(data, tmp_path / "out", *CENTRAL, "--dry-run")
    assert main(arguments) == DONE
    assert main([*arguments, f"--input={tmp_path}/broken.parquet"]) == MISUSED
    shown = capfd.readouterr().out
    assert "local epsilon" in shown and "20,000" in shown and "refused" in shown
    assert os.listdir(tmp_path) == ["broken.parquet"]


def test_mlflow_inside_the_output(data: Path, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="the mlflow extra is not installed")
    arguments = [flag for flag in flags(data, tmp_path / "out", *LOCAL) if flag != "--no-mlflow"]
    assert main(arguments) == DONE
    client = tracking.MlflowClient(f"sqlite:///{tmp_path}/out/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("beam-ldp")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["privacy.local_epsilon"] == 4.0
    assert run.data.metrics["privacy.epsilon"] == record(tmp_path / "out")["epsilon"]
    assert run.data.metrics["error.predicted"] > 0
    artifacts = {found.path for found in client.list_artifacts(run.info.run_id, "release")}
    assert artifacts == {f"release/{name}" for name in FILES}

    assert main([*arguments, "--overwrite"]) == DONE  # the log goes on
    assert len(client.search_runs([experiment.experiment_id])) == 2
    assert client.list_artifacts(run.info.run_id, "release")
    assert main(arguments) == MISUSED


@pytest.mark.parametrize("mechanism", ["auto", "SubsetSelection"])
def test_a_cap_on_the_local_epsilon_holds_beside_the_central_target(
    data: Path, tmp_path: Path, mechanism: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = flags(data, tmp_path / "out", *CENTRAL, f"--mechanism={mechanism}", "--dry-run",
                      "--format=json")  # fmt: skip
    assert main(arguments) == DONE
    free = json.loads(capfd.readouterr().out)
    assert main([*arguments, "--max-local-epsilon=3"]) == DONE
    capped = json.loads(capfd.readouterr().out)
    assert capped["local_epsilon"] <= 3.0 < free["local_epsilon"]
    assert capped["epsilon"] <= 1.0 and capped["epsilon"] <= free["epsilon"] + 1e-9
    assert capped["predicted_standard_error"] > free["predicted_standard_error"]


def test_a_weak_local_promise_is_a_warning(data: Path, tmp_path: Path, capfd: Any) -> None:
    weak = ["--local-epsilon=9", f"--expected-users={USERS}", "--user-id=uid"]
    more = [*weak, "--max-local-epsilon=9"]
    assert main(flags(data, tmp_path / "refused", *weak)) == MISUSED
    assert "allow it with --max-local-epsilon 9" in " ".join(capfd.readouterr().err.split())
    assert main(flags(data, tmp_path / "out", *more, "--dry-run")) == DONE
    assert "local epsilon is 9" in " ".join(capfd.readouterr().out.split())
    assert main(flags(data, tmp_path / "out", *more)) == DONE
    before, _, after = capfd.readouterr().err.partition("local epsilon is 9")
    assert "warning" in before and "warning" not in after  # said once, before anything was read
    (warning,) = record(tmp_path / "out")["warnings"]
    assert "local epsilon is 9" in warning


# Post-processing ----------------------------------------------------------------------------


def sums(out: Path, column: str) -> dict[tuple[str, str], float]:
    """Of every question and group."""
    found: dict[tuple[str, str], float] = {}
    for row in rows(out):
        key = (row["question"], row["group"])
        found[key] = found.get(key, 0.0) + float(row[column])
    return found


@pytest.mark.parametrize("method", ["clip", "norm-sub"])
def test_post_processing_is_named_and_leaves_the_raw_estimate(
    data: Path, tmp_path: Path, method: str
) -> None:
    """The same seed with and without: raw columns and intervals are the same to the last digit.

    Simulated noise depends on where the data lie, which no two test runs have in common. Each of
    200 values that nobody holds is below zero with a probability near a half.
    """
    unheld = tmp_path / "unheld.txt"
    unheld.write_text("".join(f"{value}\n" for value in [*VALUES, *map(str, range(200))]))
    noisy = ["--local-epsilon=0.2", f"--expected-users={USERS}", "--seed=3", f"--domain={unheld}"]
    raw, out = tmp_path / "raw", tmp_path / "out"
    assert main(flags(data, raw, *noisy)) == DONE
    assert main(flags(data, out, *noisy, f"--postprocess={method}")) == DONE
    before, after = rows(raw), rows(out)
    assert min(float(row["count"]) for row in before) < 0 <= min(float(r["count"]) for r in after)
    same = ("count_standard_error", "count_low", "count_high", "frequency_low")
    for one, other in zip(before, after):
        assert other["count_raw"] == one["count"] and other["frequency_raw"] == one["frequency"]
        assert all(one[name] == other[name] for name in same)
        assert other["postprocess"] == method
    if method == "norm-sub":
        assert list(sums(out, "frequency").values()) == [pytest.approx(1)]
        assert list(sums(out, "count").values()) == [pytest.approx(USERS)]
    assert record(raw)["postprocess"] == "none" and record(out)["postprocess"] == method
    said = (out / "privacy.md").read_text()
    assert f"(`{method}`)" in said and "errors are those of the raw estimate" in said
    assert "post-processed" not in (raw / "privacy.md").read_text()


def test_questions_are_post_processed_each_by_itself(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    two = [f"--domain={data}/domain.txt"] * 2
    more = [*LOCAL, *two, "--column=word", "--column=uid", "--postprocess=norm-sub"]
    assert main(flags(data, out, *more)) == DONE
    found = sums(out, "frequency")
    assert len(found) == 2 and list(found.values()) == [pytest.approx(1)] * 2


def test_trees_of_bins_are_not_post_processed(data: Path, tmp_path: Path, capsys: Any) -> None:
    more = [f"--input={data}/people.parquet", "--column=uid", "--bins=0:20000:16", *LOCAL,
            "--quantiles=0.5", "--delta=1e-6", "--no-mlflow", "--postprocess=clip",
            f"--output={tmp_path}/out"]  # fmt: skip
    assert main(more) == MISUSED
    assert "--postprocess is for frequencies" in " ".join(capsys.readouterr().err.split())
