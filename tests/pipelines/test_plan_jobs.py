"""`beam-ldp plan` of every kind of job: what it says of the release is what `--dry-run` says."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.cli import group

pytestmark = pytest.mark.exact
ABOUT_FILES = ("schema_version", "dry_run", "input_files", "input_bytes", "flows", "checks")
CENTRAL = ["--epsilon", "1", "--delta", "1e-6", "--expected-users", "1e4"]
BINS = ["--bins", "0:100:20"]
MANY_ROWS = ["--rows-per-user", "30", "--sigma", "2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Public lists and a file of data, of which programs read the header."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "hair.txt").write_text("".join(f"hair {i}\n" for i in range(5)))
    (folder / "eyes.txt").write_text("".join(f"eyes {i}\n" for i in range(12)))
    (folder / "lands.txt").write_text("a\nb\nc\n")
    (folder / "ranges.csv").write_text("column,low,high\nage,0,120\nbmi,10,60\n")
    (folder / "rows.csv").write_text("uid,hair,eyes,land,age,bmi\n1,hair 1,eyes 2,a,33,21\n")
    return folder


# A program's flags about files, those of a plan in their place, and what both are given.
CASES: dict[str, tuple[str, list[str], list[str], list[str]]] = {
    "one list": ("frequency", ["--column", "hair", "--domain", "hair.txt"],
                 ["--domain-size", "5"], CENTRAL),
    "a local promise": ("frequency", ["--column", "hair", "--domain", "hair.txt"],
                        ["--domain-size", "5"],
                        ["--local-epsilon", "2", "--delta", "1e-6", "--min-reports", "500"]),
    "a cap and few bits": ("frequency", ["--column", "hair", "--domain", "hair.txt"],
                           ["--domain-size", "5"],
                           [*CENTRAL, "--max-local-epsilon", "3", "--max-bits", "4"]),
    "a named mechanism": ("frequency", ["--column", "hair", "--domain", "hair.txt"],
                          ["--domain-size", "5"], [*CENTRAL, "--mechanism", "LocalHashing",
                                                   "--honest-fraction", "0.8"]),
    "a simulation": ("frequency", ["--column", "hair", "--domain", "hair.txt", "--seed", "1"],
                     [], CENTRAL),
    "two lists": ("frequency", ["--column", "hair", "--domain", "hair.txt", "--column", "eyes",
                                "--domain", "eyes.txt"],
                  ["--domain-size", "5", "--domain-size", "12"], CENTRAL),
    "bins": ("frequency", ["--column", "age", *BINS], BINS, CENTRAL),
    "quantiles": ("frequency", ["--column", "age", *BINS], BINS,
                  [*CENTRAL, "--quantiles", "0.5", "--between", "20:60", "--fan-out", "4"]),
    "groups": ("frequency", ["--column", "hair", "--domain", "hair.txt", "--group-by", "land",
                             "--groups", "lands.txt"],
               ["--domain-size", "5", "--groups", "3"], [*CENTRAL, "--min-reports", "2000"]),
    "vectors": ("mean", ["--column", "age,bmi", "--norm", "l2", "--radius", "1"],
                ["--dimension", "2"], CENTRAL),
    "a range": ("mean", ["--column", "age", "--user-id", "uid"],
                ["--dimension", "1", "--user-id", "uid"], [*CENTRAL, "--range", "0", "120"]),
    "ranges": ("mean", ["--column", "age,bmi"], [], [*CENTRAL, "--ranges", "ranges.csv"]),
    "nobody trusted": ("mean", ["--column", "age,bmi"], ["--dimension", "2"],
                       ["--model", "local", "--epsilon", "3", "--expected-users", "1e4",
                        "--radius", "2"]),
    "two rounds": ("user-mean", ["--column", "age", "--user-id", "uid"], [],
                   [*CENTRAL, "--range", "0", "120", *MANY_ROWS]),
    "two rounds of two": ("user-mean", ["--column", "age,bmi", "--user-id", "uid"], [],
                          ["--model", "local", "--local-epsilon", "4", "--expected-users", "1e4",
                           "--ranges", "ranges.csv"]),
    "words nobody listed": ("heavy-hitters", ["--column", "hair", "--user-id", "uid"], [],
                            ["--local-epsilon", "6", "--delta", "1e-6", "--expected-users", "1e5",
                             "--code-bits", "40"]),
    "a training": ("train", [], [],
                   ["--data", "digits", "--local-epsilon", "2", "--clients-per-round", "100",
                    "--epochs", "3", "--delta", "1e-5"]),
}  # fmt: skip


def say(*arguments: str) -> Any:
    done = CliRunner().invoke(group, [*arguments, "--format", "json"], prog_name="beam-ldp")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def dry(program: str, flags: list[str], capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    """What the program's --dry-run says, in this process."""
    files = [] if program == "train" else ["--input", "rows.csv", "--output", "out"]
    module = import_module(f"beam_ldp.pipelines.{program.replace('-', '_')}")
    assert module.main([*files, *flags, *more]) == 0
    return capsys.readouterr().out


def release_of(found: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in found.items() if name not in ABOUT_FILES}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_says_what_the_dry_run_says(case, place, capsys, monkeypatch) -> None:
    """By flags with sizes, and by the job file of the program's own flags."""
    monkeypatch.chdir(place)
    program, files, sizes, both = CASES[case]
    said = json.loads(dry(program, [*files, *both], capsys, "--dry-run", "--format", "json"))
    if sizes or program != "frequency":
        assert say("plan", program, *sizes, *both)["release"] == release_of(said)
    if sizes or program == "frequency":
        Path("job.yaml").write_text(dry(program, [*files, *both], capsys, "--print-job"))
        (of_job,) = say("plan", "job.yaml")["releases"]
        assert of_job["release"] == release_of(said)


MIXED = """
source: {csv: rows.csv}
questions:
  - {frequency: hair, domain: {file: hair.txt}}
  - {mean: [age, bmi], ranges: {age: [0, 120], bmi: [10, 60]}}
privacy: {epsilon: 2, delta: 2e-6, expected_users: 1e4}
output: {folder: out}
"""


def test_a_job_of_several_kinds_is_planned_release_by_release(place, monkeypatch) -> None:
    """Each with its share of the privacy cost, and with flags over the file."""
    monkeypatch.chdir(place)
    Path("mixed.yaml").write_text(MIXED)
    first, second = say("plan", "mixed.yaml")["releases"]
    half = [*CENTRAL, "--max-local-epsilon", "4"]  # of 8, the default
    assert first["release"] == say("plan", "frequency", "--domain-size", "5", *half)["release"]
    ranges = ["--ranges", "ranges.csv"]
    assert second["release"] == say("plan", "mean", *ranges, *half)["release"]
    more = say("plan", "mixed.yaml", "--epsilon", "4", "--trust-shuffler")
    more = more["releases"][0]["release"]
    assert 1.7 < more["epsilon"] <= 2 and more["delta"] == 1e-6


def test_a_group_sees_what_its_size_allows(place) -> None:
    told = ["frequency", "--domain-size", "9", "--expected-users", "1e6", "--epsilon", "1",
            "--delta", "1e-8"]  # fmt: skip
    found = say("plan", *told, "--groups", "10", "--group-share", "0.01")
    smallest, equal = found["groups"]
    assert smallest["num_reports"] == found["release"]["min_reports"] == 9000
    assert smallest["epsilon"] == found["release"]["epsilon"] <= 1
    assert equal["num_reports"] == 100_000 and equal["epsilon"] < smallest["epsilon"]
    text = CliRunner().invoke(group, ["plan", *told, "--groups", "10"]).output
    assert "What the readers of one group see" in text


def test_clients_of_ones_own_cost_what_as_many_bundled_ones_cost() -> None:
    told = [
        "--local-epsilon",
        "2",
        "--clients-per-round",
        "100",
        "--epochs",
        "3",
        "--delta",
        "1e-5",
    ]
    own = say("plan", "train", "--clients", "1437", "--shape", "8x8x1", "--classes", "10", *told)
    assert own["release"] == say("plan", "train", "--data", "digits", *told)["release"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["frequency", *CENTRAL], "--domain-size is missing"),
        (["frequency", "--domain-size", "0", *CENTRAL], "--domain-size must be >= 1"),
        (["frequency", "--domain-size", "5", "--group-share", "1", *CENTRAL], "needs --groups"),
        (["frequency", "--domain-size", "5", "--groups", "3", "--group-share", "0.5", *CENTRAL],
         "at most 1 / --groups"),
        (["frequency", "--domain-sise", "5", *CENTRAL], "--domain-size"),
        (["mean", *CENTRAL], "--dimension is missing"),
        (["user-mean", "--range", "0", "1", "--workers", "3", *CENTRAL], "--workers"),
        (["train", "--data", "rows.csv", "--delta", "1e-5"], "--clients is missing"),
        (["train", "--clients", "9", "--delta", "1e-5"], "needs --shape and --classes"),
        (["frequencies"], "did you mean"),
        (["none.yaml"], "there is no such file"),
    ],
)  # fmt: skip
def test_mistakes_are_named(flags: list[str], said: str) -> None:
    shown = CliRunner().invoke(group, ["plan", *flags])
    assert shown.exit_code == 2 and said in " ".join(shown.output.split())


def test_plans_of_releases_load_neither_beam_nor_dp_accounting() -> None:
    code = (
        "import sys; from beam_ldp.pipelines.plan import main\n"
        "for argv in (['frequency', '--domain-size', '5'], ['mean', '--dimension', '2']):\n"
        f"    assert main([*argv, *{CENTRAL!r}]) == 0\n"
        "sys.exit(any(name in sys.modules for name in ('apache_beam', 'dp_accounting')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
