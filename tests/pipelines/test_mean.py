"""The mean program as a user runs it: every input form, ball and model, gates, and dead letters."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines.mean import main
from beam_ldp.pipelines.programs import DONE, FAILED, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.walsh_hadamard import rotation_seed_of
from tests.pipelines.test_frequency import FILES, SECRET, record
from tests.warm import run_warm

pytestmark = pytest.mark.e2e

USERS, DIMENSION = 4000, 4
NAMES = [f"f{i}" for i in range(DIMENSION)]
COLUMNS = ["question", "group", "window_start", "window_end", "coordinate", "mean",
           "standard_error", "low", "high", "error_bars"]  # fmt: skip


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Vectors well inside the unit ball, with means that differ."""
    noise = np.random.default_rng(3).uniform(-0.1, 0.1, (USERS, DIMENSION))
    return noise + np.linspace(-0.3, 0.3, DIMENSION)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> Path:
    """The same people in every format."""
    folder = tmp_path_factory.mktemp("data")
    flat = pa.array(vectors.ravel())
    fixed = pa.FixedSizeListArray.from_arrays(flat, DIMENSION)
    ragged = pa.ListArray.from_arrays(np.arange(0, USERS * DIMENSION + 1, DIMENSION), flat)
    columns = {"uid": np.arange(USERS), **dict(zip(NAMES, vectors.T)), "fixed": fixed,
               "list": ragged}  # fmt: skip
    pq.write_table(pa.table(columns), folder / "people.parquet", row_group_size=1500)
    rows = [(uid, *row) for uid, row in enumerate(vectors.tolist())]
    lines = [",".join(map(repr, row)) for row in rows]
    (folder / "people.csv").write_text("\n".join([",".join(["uid", *NAMES]), *lines]) + "\n")
    objects = [
        {"uid": uid, **dict(zip(NAMES, row)), "list": list(row)} for uid, *row in rows
    ]  # fmt: skip
    (folder / "people.jsonl").write_text("".join(json.dumps(o) + "\n" for o in objects))
    (folder / "people.txt").write_text("".join(f"{row[1]!r}\n" for row in rows))
    return folder


def flags(data: Path, out: Path, *more: str, source: str = "people.parquet") -> list[str]:
    given = " ".join(more)
    found = [f"--input={data}/{source}", f"--output={out}", "--no-mlflow", *more]
    for needed, default in (
        ("--delta", "--delta=1e-6"),
        ("--column", f"--column={','.join(NAMES)}"),
        ("--mechanism", "--mechanism=PrivUnit"),
        ("epsilon=", "--local-epsilon=4"),
        ("--min-reports", f"--expected-users={USERS}"),
    ):
        if needed not in given and not (needed == "--column" and source.endswith(".txt")):
            found.append(default)
    if not any(word in given for word in ("--norm", "--range")):
        found += ["--norm=l2", "--radius=1"]
    return found


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "estimates.csv").open(newline="", encoding="utf-8")))


def assert_close(out: Path, truth: np.ndarray) -> None:
    """Each coordinate within 5 of its standard errors: false alarms below 1e-5 per run."""
    found = rows(out)
    assert len(found) == len(truth)
    for row, value in zip(found, truth):
        error = float(row["standard_error"])
        assert 0 < error < 0.2
        assert abs(float(row["mean"]) - value) < 5 * error
        assert float(row["low"]) < float(row["mean"]) < float(row["high"])


# The whole way ------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("people.parquet", ["--column=f?"]),
        ("people.parquet", ["--column=f0,f1", "--column=f2", "--column=f3"]),
        ("people.parquet", ["--column=fixed"]),
        ("people.parquet", ["--column=list", f"--dimension={DIMENSION}"]),
        ("people.csv", ["--column=f?"]),
        ("people.jsonl", ["--column=f?"]),
        ("people.jsonl", ["--column=list", f"--dimension={DIMENSION}"]),
    ],
)
def test_every_form_of_vectors_gives_a_whole_output(
    data: Path, vectors: np.ndarray, tmp_path: Path, source: str, more: list[str]
) -> None:
    """Estimates within 5 standard errors of the truth: false alarms below 1e-5 per form."""
    out = tmp_path / "out"
    assert main(flags(data, out, *more, source=source)) == DONE
    assert sorted(os.listdir(out)) == FILES
    assert_close(out, vectors.mean(axis=0))
    table = pq.read_table(out / "estimates.parquet")
    assert table.schema.names == COLUMNS and table.num_rows == DIMENSION
    lists = "list" in more[0] or "fixed" in more[0]
    assert table["coordinate"].to_pylist() == (["0", "1", "2", "3"] if lists else NAMES)
    found = record(out)
    assert found["statistic"] == "mean" and found["dimension"] == DIMENSION
    assert found["num_reports"] == USERS and found["local_epsilon"] == 4.0
    assert 0 < found["epsilon"] < 4.0
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.statistical
def test_text_is_one_number_per_line(data: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    """Within 5 standard errors: false alarms below 1e-6."""
    out = tmp_path / "out"
    arguments = flags(data, out, "--range", "-1", "1", "--mechanism=ScalarMean",
                      source="people.txt")  # fmt: skip
    assert main(arguments) == DONE
    assert_close(out, vectors[:, :1].mean(axis=0))
    assert rows(out)[0]["coordinate"] == "value"


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("ball", "mechanism"),
    [
        (["--norm=l1", "--radius=1.5"], "L1Mean"),
        (["--norm=linf", "--radius=0.5"], "LInfMean"),
        (["--norm=linf", "--radius=0.5"], "PrivUnitInf"),
        (["--norm=3", "--radius=1"], "auto"),
        (["--norm=l2", "--radius=1"], "RandomCodebookMean"),
        (["--norm=l2", "--radius=1"], "MinimalRandomCoding"),
    ],
)
def test_balls_and_mechanisms(
    data: Path, vectors: np.ndarray, tmp_path: Path, ball: list[str], mechanism: str
) -> None:
    """Estimates within 5 standard errors of the truth: false alarms below 1e-5 per ball."""
    out = tmp_path / "out"
    assert main(flags(data, out, *ball, f"--mechanism={mechanism}")) == DONE
    assert_close(out, vectors.mean(axis=0))
    if mechanism != "auto":
        assert record(out)["mechanism"]["mechanism"] == mechanism


@pytest.mark.statistical
def test_binary_answers(tmp_path: Path) -> None:
    """Shares of yes within 5 standard errors of the truth: false alarms below 1e-5.

    An answer of 2 makes a bad row.
    """
    answers = np.random.default_rng(4).random((USERS, 3)) < [0.1, 0.5, 0.9]
    given = np.concatenate([answers, [[0, 2, 1]]])
    pq.write_table(pa.table(dict(zip("abc", given.T))), tmp_path / "yes.parquet")
    out = tmp_path / "out"
    arguments = flags(tmp_path, out, "--column=a,b,c", "--norm=binary",
                      "--mechanism=BinaryVectorMean", source="yes.parquet")  # fmt: skip
    assert main(arguments) == DONE
    assert_close(out, answers.mean(axis=0))
    (bad,) = Path(f"{out}.private", "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(bad)["reason"] == "neither 0 nor 1"


@pytest.mark.statistical
def test_ranges_give_the_mean_in_the_unit_of_each_column(
    data: Path, vectors: np.ndarray, tmp_path: Path
) -> None:
    """Within 5 standard errors, which are in those units too: false alarms below 1e-5."""
    units = np.array([1.0, 100.0, 1000.0, 0.01])
    table = pa.table(dict(zip(NAMES, (vectors * units).T)))
    pq.write_table(table, tmp_path / "units.parquet")
    ranges = tmp_path / "ranges.csv"
    lines = [f"f{i},{-unit},{unit}" for i, unit in enumerate(units)]
    ranges.write_text("\n".join(["column,low,high", *reversed(lines)]) + "\n")
    out = tmp_path / "out"
    arguments = flags(tmp_path, out, f"--ranges={ranges}", "--mechanism=auto",
                      source="units.parquet")  # fmt: skip
    assert main(arguments) == DONE
    found = rows(out)
    error = np.array([float(row["standard_error"]) for row in found])
    value = np.array([float(row["mean"]) for row in found])
    assert np.allclose(error / units, error[0], rtol=0.05)  # measured: a little less each
    assert {row["error_bars"] for row in found} == {record(out)["error_bars"]} == {"measured"}
    assert "Errors are measured" in (out / "privacy.md").read_text()
    assert (np.abs(value - (vectors * units).mean(axis=0)) < 5 * error).all()
    assert record(out)["in_ranges"] and "public range of its column" in record(out)["values"]


# Multi-message, local, and what the record says of them ----------------------------------------


CENTRAL = ["--epsilon=1", "--trust-shuffler", f"--expected-users={USERS}"]


@pytest.fixture(scope="module")
def messages(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output of a mechanism that sends several messages."""
    out = tmp_path_factory.mktemp("messages") / "out"
    more = [*CENTRAL, "--norm=linf", "--radius=0.5", "--mechanism=LInfMean"]
    assert main(flags(data, out, *more)) == DONE
    return out


@pytest.mark.statistical
def test_a_central_target_is_met_with_several_messages(messages: Path, vectors: np.ndarray) -> None:
    """Estimates within 5 standard errors: false alarms below 1e-5."""
    assert_close(messages, vectors.mean(axis=0))
    found = record(messages)
    budgets = found["mechanism"]["message_epsilons"]
    counts = found["mechanism"]["messages"]
    total = sum(count * budget for count, budget in zip(counts, budgets))
    assert found["messages_per_user"] == sum(counts) > 1
    assert found["local_epsilon"] == pytest.approx(total, rel=1e-9)
    assert found["message_epsilon"] == max(budgets)
    assert 0.9 < found["epsilon"] <= 1.0 and found["epsilon_lower"] <= found["epsilon"]
    assert found["bits_per_report"] >= found["messages_per_user"]


@pytest.mark.statistical
def test_the_rotation_is_that_of_the_release(
    data: Path, vectors: np.ndarray, tmp_path: Path
) -> None:
    """Another release, other signs. Estimates within 5 standard errors: false alarms below 1e-5.

    No shuffler is trusted: the price of several messages takes seconds to certify.
    """
    more = ["--model=local", "--epsilon=4", "--norm=l2", "--radius=1", "--mechanism=L2Mean"]
    seeds = []
    for name in ("monday", "tuesday"):
        out = tmp_path / name
        told = flags(data, out, *more, f"--release-id={name}")
        assert main([flag for flag in told if "--delta" not in flag]) == DONE
        assert_close(out, vectors.mean(axis=0))
        found = record(out)
        identity = ReleaseIdentity.from_json(found["identity"])
        assert found["mechanism"]["rotation_seed"] == rotation_seed_of(identity)
        own = LocalRandomizer.from_config(found["mechanism"])
        assert identity.mechanism == own.config_digest().hex()
        assert found["expected_bias"] == pytest.approx(own.bias_bound)
        assert found["bias_bound"] == 0.0
        seeds.append(found["mechanism"]["rotation_seed"])
    assert seeds[0] != seeds[1]


def test_the_statement_says_what_several_messages_mean(messages: Path) -> None:
    said = " ".join((messages / "privacy.md").read_text().split())
    _, first, *_ = (messages / "privacy.md").read_text().split("\n\n")
    assert first.startswith("**Only the shuffler protects these people")  # before all else
    assert "sees all messages of a person, as the shuffler does" in first
    assert record(messages)["trust_shuffler"] is True
    count = record(messages)["messages_per_user"]
    for expected in (
        "everybody who sees all messages of a person", f"A person sends {count} messages",
        "sum of their budgets", "almost no protection", f"one for each of the {count} message",
        "no individual message did", "if every column is permuted independently",
    ):  # fmt: skip
        assert expected in said, expected
    assert any("messages of a person" in warning for warning in record(messages)["warnings"])


def test_a_small_local_epsilon_is_not_called_next_to_nothing(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = ["--norm=linf", "--radius=0.5", "--mechanism=LInfMean", "--user-id=uid"]
    assert main(flags(data, out, *more)) == DONE
    assert record(out)["messages_per_user"] > 1 and record(out)["warnings"] == []
    said = (out / "privacy.md").read_text()
    assert "almost no protection" not in said and "all messages of a person" in said


def test_nobody_but_the_device_is_trusted(data: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = [f for f in flags(data, out, "--model=local", "--epsilon=3") if "--delta" not in f]
    assert main(given) == DONE
    found = record(out)
    assert found["local_epsilon"] == found["epsilon"] == 3.0 and found["delta"] == 0.0
    assert found["model"] == "local" and found["target_epsilon"] is None
    said = (out / "privacy.md").read_text()
    assert "shuffling is given no credit" in said and "Only the device is trusted" in said
    assert "no shuffler is trusted" in said and "honest-fraction" not in said


def test_real_arithmetic_is_said(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--mechanism=PrivUnitGaussian")) == DONE
    assert record(out)["exactness"] == "real-arithmetic"
    assert "real arithmetic only" in (out / "privacy.md").read_text()


def test_messages_can_leave_the_shufflers(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = ["--shuffle-output=reports", "--min-reports=1000", "--norm=linf", "--radius=0.5",
            "--mechanism=LInfMean"]  # fmt: skip
    assert main(flags(data, out, *more)) == DONE
    found = record(out)
    assert found["output"] == "reports" and 1000 <= found["smallest_batch"] <= USERS
    assert found["honest_reports"] == found["smallest_batch"]
    assert "nothing links the messages of a person" in (out / "privacy.md").read_text()


def test_shuffled_all_together_only_one_message_leaves(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The shard of a person would tie several messages together: auto knows, a name is refused."""
    more = ["--shuffle-output=reports", "--scope=global", "--norm=linf", "--radius=0.5", *CENTRAL]
    named = flags(data, tmp_path / "out", *more, "--mechanism=LInfMean", "--dry-run")
    assert main(named) == MISUSED
    assert "takes one message per person" in " ".join(capfd.readouterr().err.split())
    assert main(flags(data, tmp_path / "out", *more, "--mechanism=auto")) == DONE
    assert record(tmp_path / "out")["messages_per_user"] == 1
    assert record(tmp_path / "out")["scope"] == "global"


# Bad rows and values outside ------------------------------------------------------------------


@pytest.fixture
def ragged(data: Path, tmp_path: Path) -> Path:
    lines = (data / "people.csv").read_text().splitlines()
    lines[3] = f"1,{SECRET},0,0,0"
    lines[7] = "5,0.1,,0,0"
    lines[9] = ",0,0,0,0"
    lines[11] = "7,0,nan,0,0"
    lines[13] = "8,0,0"
    path = tmp_path / "ragged.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_bad_rows_are_listed_and_never_quoted(
    data: Path, tmp_path: Path, ragged: Path, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "out"
    assert main([*flags(data, out, "--user-id=uid"), f"--input={ragged}"][1:]) == DONE
    found = [
        json.loads(line)
        for line in Path(f"{out}.private", "bad_rows.jsonl").read_text().splitlines()
    ]
    assert {row["position"]: row["reason"] for row in found} == {
        4: "not a number", 8: "null", 10: "no user id", 12: "NaN", 14: "wrong number of fields",
    }  # fmt: skip
    assert record(out)["num_bad_rows"] == 5 and record(out)["num_reports"] == USERS - 5
    printed = capfd.readouterr()
    everything = printed.out + printed.err + caplog.text
    everything += "".join((out / name).read_bytes().decode("latin-1") for name in FILES)
    assert SECRET not in everything


def test_bad_rows_as_zero_leave_no_trace(data: Path, tmp_path: Path, ragged: Path) -> None:
    out = tmp_path / "out"
    assert main([*flags(data, out, "--bad-rows=zero"), f"--input={ragged}"][1:]) == DONE
    assert record(out)["num_reports"] == USERS and record(out)["num_bad_rows"] is None
    assert not Path(f"{out}.private").exists()
    assert "reported as the zero vector, without a trace" in (out / "privacy.md").read_text()


def test_too_many_bad_rows_release_nothing(
    data: Path, tmp_path: Path, ragged: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = [*flags(data, out, "--max-bad-rows=1"), f"--input={ragged}"][1:]
    assert main(arguments) == MISUSED
    assert "--max-bad-rows is 1" in capfd.readouterr().err.replace("\n", " ")
    assert not out.exists()


def test_lists_of_another_length_are_bad_rows(data: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(
        '{"list": [0.1, 0.2, 0.3]}\n{"list": [0.1, "0.2", 0.3, 0.4]}\n{"list": [[1], 2, 3, 4]}\n'
        '{"list": [0.1, NaN, 0.3, 0.4]}\n{"list": "x"}\n{"list": null}\n'
    )
    out = tmp_path / "out"
    arguments = flags(data, out, "--column=list", f"--dimension={DIMENSION}",
                      source="people.jsonl")  # fmt: skip
    assert main([*arguments, f"--input={tmp_path}/odd.jsonl"]) == DONE
    found = [
        json.loads(line)
        for line in Path(f"{out}.private", "bad_rows.jsonl").read_text().splitlines()
    ]
    assert {row["position"]: (row.get("rows", 1), row["reason"]) for row in found} == {
        1: (1, "wrong number of coordinates"), 2: (2, "list of something else than numbers"),
        4: (1, "NaN"), 5: (1, "wrong number of coordinates"), 6: (1, "null"),
    }  # fmt: skip


@pytest.mark.parametrize("ball", [["--norm=l2", "--radius=0.2"], ["--range", "-0.2", "0.2"]])
def test_values_outside_are_clipped_uncounted_or_stop_the_run(
    data: Path, tmp_path: Path, ball: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    mechanism = "--mechanism=PrivUnit" if "--norm=l2" in ball else "--mechanism=PrivUnitInf"
    arguments = flags(data, tmp_path / "out", *ball, mechanism)
    assert main(arguments) == DONE
    assert "How often is not counted" in (tmp_path / "out" / "privacy.md").read_text()
    assert main([*arguments, "--outside=raise", "--overwrite"]) == FAILED
    said = capfd.readouterr().err.splitlines()[-1]
    assert "must lie in" in said and "0.3" not in said


# Gates and modes ------------------------------------------------------------------------------


def test_too_few_reports_release_nothing(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = flags(data, tmp_path / "out", f"--min-reports={USERS + 1}")
    assert main(arguments) == NOTHING_RELEASED
    assert "--min-reports is 4,001" in capfd.readouterr().err.replace("\n", " ")
    assert os.listdir(tmp_path) == []


def test_a_target_is_kept_by_the_fewest_unless_more_is_allowed(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of one message each: the price of several takes seconds to certify, and is in `messages`."""
    more = ["--epsilon=1", "--max-local-epsilon=12", f"--expected-users={USERS + 300}",
            f"--min-reports={USERS - 10}"]  # fmt: skip
    assert main(flags(data, tmp_path / "a", *more)) == DONE
    assert 0.95 < record(tmp_path / "a")["epsilon"] <= 1.0
    assert main(flags(data, tmp_path / "b", *more, "--allow-over-target")) == DONE
    found = record(tmp_path / "b")
    assert found["epsilon"] > 1.0
    assert any("above the target 1" in warning for warning in found["warnings"])


def test_one_row_of_each_person_is_drawn(data: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    """Three copies of the file are the same people; the error allows for a draw unless said.

    Both error bars are measured, each from its own noise: five standard deviations (6e-7).
    """
    for i in range(3):
        (tmp_path / f"{i}.parquet").write_bytes((data / "people.parquet").read_bytes())
    errors = {}
    for name, more in (("drawn", []), ("alone", ["--one-row-each"])):
        out = tmp_path / name
        arguments = flags(tmp_path, out, "--user-id=uid", *more, source="*.parquet")
        assert main(arguments) == DONE
        assert record(out)["num_reports"] == USERS
        errors[name] = float(rows(out)[0]["standard_error"])
    assert record(tmp_path / "drawn")["sampling"] == "iid"
    more_variance = errors["drawn"] ** 2 - errors["alone"] ** 2
    measured = 5 * 2 / np.sqrt(USERS) * errors["alone"] ** 2  # of a difference of two
    assert -measured < more_variance < 1 / USERS + measured  # 1: of the worst population
    assert measured < 1 / USERS
    said = (tmp_path / "alone" / "privacy.md").read_text()
    assert "assume that every person has one row" in said


def test_a_seed_means_no_price_anywhere(data: Path, tmp_path: Path) -> None:
    for name in "ab":
        more = ["--seed=7", "--norm=linf", "--radius=0.5", "--mechanism=LInfMean"]
        assert main(flags(data, tmp_path / name, *more)) == DONE
    found = record(tmp_path / "a")
    assert found["epsilon"] is found["local_epsilon"] is found["message_epsilon"] is None
    assert "No privacy guarantee" in (tmp_path / "a" / "privacy.md").read_text()
    same = [(tmp_path / name / "estimates.csv").read_bytes() for name in "ab"]
    assert same[0] == same[1]


def test_memoized_noise_repeats(data: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    for name, release in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        more = [f"--memoize-key-file={key}", "--user-id=uid", f"--release-id={release}"]
        assert main(flags(data, tmp_path / name, *more, "--dataset=d")) == DONE
    contents = [(tmp_path / name / "estimates.csv").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]


def test_a_dry_run_runs_nothing(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "people.csv").write_text("uid,f0,f1,f2,f3\n1,0,0,0,0\n")
    arguments = flags(tmp_path, tmp_path / "out", *CENTRAL, "--dry-run", source="people.csv")
    assert main(arguments) == DONE
    shown = " ".join(capfd.readouterr().out.split())
    assert "4 numbers per person" in shown and "Euclidean length at most 1" in shown
    assert main([*arguments, "--format=json"]) == DONE
    plan = json.loads(capfd.readouterr().out)
    assert plan["dimension"] == 4 and plan["dry_run"] and plan["epsilon"] <= 1.0
    assert plan["predicted_standard_error"] > 0 and plan["times_lower_bound"] >= 1
    assert os.listdir(tmp_path) == ["people.csv"]


def test_the_planned_error_is_that_of_the_release(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = flags(data, tmp_path / "out", "--range", "-2", "6", "--mechanism=PrivUnitInf")
    assert main([*arguments, "--dry-run", "--format=json"]) == DONE
    plan = json.loads(capfd.readouterr().out)
    assert main([*arguments, "--format=json"]) == DONE
    printed = json.loads(capfd.readouterr().out)
    assert printed["privacy"] == record(tmp_path / "out")
    errors = [row["standard_error"] for row in printed["coordinates"]]
    worst = plan["predicted_standard_error"]  # of the worst values; these are measured
    assert printed["error_bars"] == "measured"
    assert 0.9 * worst < max(errors) <= worst * (1 + 1e-9)
    assert worst == pytest.approx(4 * plan["predicted_relative_error"])
    assert printed["mean_squared_error"] == pytest.approx(sum(e**2 for e in errors))


def test_the_module_is_the_same_program(data: Path, tmp_path: Path) -> None:
    done = run_warm("-m", "beam_ldp.pipelines.mean", *flags(data, tmp_path / "out"))
    assert done.returncode == DONE, done.stderr
    assert "All 4 coordinates" in done.stdout and "epsilon =" in done.stdout
    assert sorted(os.listdir(tmp_path / "out")) == FILES


def test_mlflow_inside_the_output(data: Path, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="the mlflow extra is not installed")
    arguments = [flag for flag in flags(data, tmp_path / "out") if flag != "--no-mlflow"]
    assert main(arguments) == DONE
    client = tracking.MlflowClient(f"sqlite:///{tmp_path}/out/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("beam-ldp")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["privacy.epsilon"] == record(tmp_path / "out")["epsilon"]
    assert run.data.metrics["error.predicted"] > 0
    assert run.data.params["privacy.statistic"] == "mean"
    assert run.data.params["privacy.dimension"] == "4"


# Mistakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--columns=f0"], "unknown flag --columns (did you mean --column?)"),
        (["--domain=x"], "unknown flag --domain"),
        (["--column=g*"], "--column g*: no such column"),
        (["--column=fixd"], "no such column (did you mean fixed?)"),
        (["--column=f0,f0"], "names f0 twice"),
        (["--column=list"], "--dimension is missing"),
        (["--column=fixed", "--dimension=5"], "--dimension is 5, but the input has 4"),
        (["--column=f0,list"], "list holds lists"),
        (["--column=uid,f0", "--user-id=uid"], "which is the --user-id"),
        (["--shape=3x3"], "--shape 3x3 must have as many pixels"),
        (["--mechanism=PrivUnitt"], "did you mean PrivUnit?"),
        (["--mechanism=LInfMean"], "LInfMean: not for norm l2 in dimension 4"),
        (["--mechanism=PrivUnit", "--max-bits=3"], "max_bits is 3"),
        (["--range", "0", "1", "--mechanism=PrivUnit"], "takes no ranges"),
        (["--range", "1", "0", "--mechanism=LInfMean"], "--range low must be below high"),
        (["--ranges=gone.csv", "--mechanism=LInfMean"], "--ranges gone.csv: cannot be read"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(
    data: Path, tmp_path: Path, extra: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(flags(data, tmp_path / "out", *extra)) == MISUSED
    assert said in " ".join(capfd.readouterr().err.split())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("f0,0,1\n", "first line must be column,low,high"),
        ("column,low,high\nf0,0,1\n", "no range for f1"),
        ("column,low,high\nf0,0,1\nf0,0,2\n", "f0 is listed twice"),
        ("column,low,high\nf0,0\n", "f0 needs two numbers"),
        ("column,low,high\nf0,0,1\nf1,0,1\nf2,0,1\nf3,2,1\n", "low must be below high"),
    ],
)
def test_a_wrong_file_of_ranges_is_named(
    data: Path, tmp_path: Path, content: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranges.csv").write_text(content)
    ranges = f"--ranges={tmp_path}/ranges.csv"
    assert main(flags(data, tmp_path / "out", ranges, "--mechanism=LInfMean")) == MISUSED
    assert said in " ".join(capfd.readouterr().err.split())
