"""Mechanisms from outside the tree: every program takes them, and none takes them from data.

`toy_ldp.py` is copied to a folder of its own, so that it is found as another package's module is.
"""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import collect, doctor, frequency, mean, randomize
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.programs import DONE, MISUSED
from beam_ldp.randomizers import registry
from beam_ldp.release.beam_job import plugin_flags
from tests.randomizers.frequency.exact_checks import check_channel

PALEY, COIN = "toy_ldp:PaleyResponse", "toy_ldp:CoinMean"
HELD = {"red": 2400, "green": 1000, "blue": 600}
PEOPLE = sum(HELD.values())
PRICE = ["--epsilon=1", "--delta=1e-6", f"--expected-users={PEOPLE}"]
NO_STORE = ["--no-mlflow"]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The toys can be imported, in workers' processes too, and nobody has done so."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("toy_ldp.py"), folder)
    monkeypatch.syspath_prepend(folder)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr(registry, "_offered", {})
    sys.modules.pop("toy_ldp", None)
    yield folder
    sys.modules.pop("toy_ldp", None)


def forget() -> None:
    """As in a process that has not heard of them."""
    sys.modules.pop("toy_ldp", None)
    registry._offered.clear()
    for name in (PALEY, COIN):
        registry._classes.pop(name, None)


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    held = [colour for colour, count in HELD.items() for _ in range(count)]
    rows = [f"{i},{colour},{i % 100}\n" for i, colour in enumerate(held)]
    (tmp_path / "people.csv").write_text("uid,colour,age\n" + "".join(rows))
    (tmp_path / "colours.txt").write_text("red\ngreen\nblue\n")
    return [f"--input={tmp_path}/people.csv", "--user-id=uid"]


def lists(tmp_path: Path) -> list[str]:
    return ["--column=colour", f"--domain={tmp_path}/colours.txt"]


def said(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "140"}).invoke(group, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


def counts(out: Path) -> dict[str, tuple[float, float]]:
    """Of each value the count and its standard error."""
    with (out / "estimates.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["value"]: (float(row["count"]), float(row["count_standard_error"])) for row in rows}


def check_counts(out: Path) -> None:
    for colour, count in HELD.items():
        value, error = counts(out)[colour]
        assert abs(value - count) < 5 * error


@pytest.mark.exact
@pytest.mark.parametrize("size", [2, 3, 5, 8, 12])
def test_a_difference_set_is_all_that_a_cyclic_oracle_needs(elsewhere: Path, size: int) -> None:
    """Its law, its budget, its estimates and their errors are then right, by the whole channel."""
    for budget in (0.1, 1.0, 3.0):
        check_channel(registry.load(PALEY)(size, budget))


@pytest.mark.exact
def test_plans_compare_price_and_describe_it(elsewhere: Path) -> None:
    task = ["--expected-users", "1e5", "--epsilon", "1", "--delta", "1e-6"]
    plan = ["plan", "frequency", *task, "--domain-size", "30", "--mechanism", PALEY]
    found = json.loads(said(*plan, "--workers", "3", "--format", "json"))["plans"]
    (row,) = (row for row in found if row["mechanism"]["mechanism"] == PALEY)
    assert row["epsilon"] == pytest.approx(0.93, rel=1e-2)  # at 8, the limit
    assert row["decoding"] == "O(v log v), Fourier"
    assert row["cost"]["statistic"]["core_hours"] > 0 and row["cost"]["measured"] == "here"
    usual = [kind for kind in registry.offered("frequency") if [*kind.variants(31)]]
    assert len(found) == len(usual) == len(registry.offered("frequency")) - 1  # few random bits
    means = ["plan", "mean", *task, "--norm", "linf", "--dimension", "1", "--mechanism", COIN]
    table = said(*means)
    assert "CoinMean " in table and f"{COIN}: Coin mean: one bit about a number" in table
    listed = said("plan", "mechanisms", "--mechanism", PALEY, "--format", "markdown")
    assert f"| {PALEY} |  | frequency | Paley response" in listed
    for kind in (*registry.offered("frequency"), *registry.offered("mean")):
        names = kind.also_known_as.replace("|", "\\|")
        assert f"| {registry.name_of(kind)} | {names} | {kind.task}" in listed


@pytest.mark.exact
def test_it_is_priced_by_its_own_pair(elsewhere: Path) -> None:
    flags = [
        "--local-epsilon",
        "2",
        "--expected-users",
        "1e4",
        "--delta",
        "1e-6",
        "--domain-size",
        "30",
    ]
    assert "PaleyResponse" in said("privacy", *flags, "--mechanism", PALEY)


@pytest.mark.statistical
def test_the_doctor_looks_at_it_and_sees_what_is_broken(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, and with a budget that its channel does not keep. False alarms: one in ten million
    runs of the doctor."""
    kind = registry.load(PALEY)
    monkeypatch.setattr(registry, "offered", lambda task: (kind,))
    (sound,) = doctor.mechanisms()
    assert (sound.name, sound.status) == ("PaleyResponse", "ok")
    monkeypatch.setattr(kind, "log_ratio_max", lambda self: 1.5)
    (broken,) = doctor.mechanisms()
    assert broken.status == "fault"
    monkeypatch.setattr(kind, "_choose_parameters", lambda self: math.sqrt(-1))
    (absent,) = doctor.mechanisms()
    assert absent.status == "fault" and "cannot be made" in absent.detail


@pytest.mark.exact
@pytest.mark.parametrize("name", ["toy_ldp:Nothing", "toy_ldp:np", "no_such_package:Mine", "a b:C"])
def test_what_is_no_mechanism_is_refused_by_its_flag(elsewhere: Path, name: str) -> None:
    done = CliRunner().invoke(
        group, ["plan", "frequency", "--expected-users", "1e4", "--domain-size", "5",
                "--local-epsilon", "1", "--delta", "1e-6", "--mechanism", name],
    )  # fmt: skip
    assert done.exit_code == 2 and f"--mechanism {name}" in " ".join(done.output.split())


@pytest.mark.e2e
def test_a_release_is_charged_run_and_audited(
    elsewhere: Path, data: list[str], tmp_path: Path
) -> None:
    """From the budget to the audit. Three counts within 5 standard errors: false alarms 2e-6."""
    url, out = f"sqlite:///{tmp_path}/budget.db", tmp_path / "out"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("people", epsilon=4.0, delta=1e-5, local_epsilon=8.0, by="Ada", why="2026")
    flags = [*data, *lists(tmp_path), *PRICE, f"--ledger={url}", "--dataset=people",
             "--release-id=week-1", f"--output={out}", *NO_STORE]  # fmt: skip
    assert frequency.main([*flags, f"--mechanism={PALEY}"]) == DONE
    check_counts(out)
    record = json.loads((out / "privacy.json").read_text())
    assert record["mechanism"]["mechanism"] == PALEY and record["epsilon"] <= 1
    statement = (out / "privacy.md").read_text()
    assert PALEY in statement and "the word of its author" in " ".join(statement.split())
    forget()
    audited = json.loads(said("audit", "--ledger", url, "--format", "json"))
    print(audited)
    assert "toy_ldp" not in sys.modules


@pytest.mark.e2e
def test_a_collector_reads_it_where_its_command_line_names_it_and_nowhere_else(
    elsewhere: Path, data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """release.json names a module that is there, and stays alone: it may come from anybody.

    Three counts within 5 standard errors: false alarms 2e-6.
    """
    reports, out = tmp_path / "reports", tmp_path / "out"
    device = [*data, *lists(tmp_path), f"--output={reports}", "--release-id=week-1",
              "--dataset=people", "--local-epsilon=3"]  # fmt: skip
    assert randomize.main([*device, f"--mechanism={PALEY}"]) == DONE
    forget()
    gather = [f"--reports={reports}", f"--release={reports}/release.json", "--delta=1e-6",
              f"--domain={tmp_path}/colours.txt", f"--min-reports={PEOPLE}", f"--output={out}",
              "--no-ledger", *NO_STORE]  # fmt: skip
    assert collect.main(gather) == MISUSED
    assert "toy_ldp" not in sys.modules and not out.exists()
    assert "--mechanism package:Class" in " ".join(capsys.readouterr().err.split())
    assert collect.main([*gather, f"--mechanism={COIN}"]) == MISUSED
    assert collect.main([*gather, f"--mechanism={PALEY}"]) == DONE
    check_counts(out)


@pytest.mark.e2e
def test_a_mean_mechanism_runs(elsewhere: Path, data: list[str], tmp_path: Path) -> None:
    """One number within 5 standard errors: false alarms 6e-7."""
    out = tmp_path / "out"
    flags = [*data, "--column=age", "--range", "0", "99", *PRICE, "--no-ledger", *NO_STORE]
    assert mean.main([*flags, f"--output={out}", f"--mechanism={COIN}"]) == DONE
    with (out / "estimates.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    truth = np.mean([i % 100 for i in range(PEOPLE)])
    assert abs(float(row["mean"]) - truth) < 5 * float(row["standard_error"])


@pytest.mark.exact
def test_workers_are_told_where_it_is(elsewhere: Path) -> None:
    assert plugin_flags() == []
    registry.load(PALEY)
    assert plugin_flags() == ["--beam_plugin=toy_ldp"]


@pytest.mark.slow
@pytest.mark.e2e
def test_workers_of_other_processes_find_it(
    elsewhere: Path, data: list[str], tmp_path: Path
) -> None:
    """Two processes that have imported nothing. Three counts within 5 standard errors."""
    out = tmp_path / "out"
    flags = [*data, *lists(tmp_path), *PRICE, "--no-ledger", *NO_STORE, f"--output={out}",
             "--direct_running_mode=multi_processing", "--direct_num_workers=2"]  # fmt: skip
    assert frequency.main([*flags, f"--mechanism={PALEY}"]) == DONE
    check_counts(out)
