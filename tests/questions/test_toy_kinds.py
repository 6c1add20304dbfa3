"""Two kinds of questions from outside the tree: every door that stands takes them as its own.

The toys are installed as another package is, by a folder with a `.dist-info`: no file of beam_ldp
names them.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.pipelines import check, job_runs, plan
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED, program_of
from beam_ldp.questions import registry
from beam_ldp.release import commands, job_files, runner
from beam_ldp.release.statement import _packages, templates
from beam_ldp.verifier import verify

pytestmark = pytest.mark.e2e

TOYS = Path(__file__).with_name("toys")
NAMES = {"count-yes": "toy_yes:YesQuestion", "halve": "toy_halves:HalvesQuestion"}
PRIVATE = ["--local-epsilon=3", "--delta=1e-6", "--expected-users=3000", "--min-reports=900",
           "--no-mlflow"]  # fmt: skip
KINDS = {
    "count-yes": ["--column=word"],
    "halve": ["--column=number", "--interval", "0", "8"],
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Both toys, and people of two towns; of a third there are too few."""
    folder = tmp_path / "site"
    shutil.copytree(TOYS, folder)
    (folder / "toys-1.dist-info").mkdir()
    (folder / "toys-1.dist-info" / "METADATA").write_text("Name: toys\nVersion: 1\n")
    points = "".join(f"{name} = {target}\n" for name, target in NAMES.items())
    (folder / "toys-1.dist-info" / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{points}")
    monkeypatch.setattr(runner, "png", lambda figure: b"not drawn")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    )
    _forget()
    rows = ["uid,word,number,town"]
    for i in range(3000):
        town = "north" if i < 1900 else "south" if i < 2900 else "west"
        word, number = ("yes", 1) if i < 1900 else ("no", 5)
        rows.append(f"{i},{word},{number},{town}")
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "towns.txt").write_text("north\nsouth\nwest\n")
    monkeypatch.chdir(tmp_path)
    yield folder
    _forget()


def _forget() -> None:
    """As in a process that has not heard of them."""
    registry.targets.cache_clear()
    commands.of_others.cache_clear()
    for name in ("toy_yes", "toy_halves"):
        sys.modules.pop(name, None)
    _packages[:] = [name for name in _packages if not str(name).startswith("toy")]
    templates.cache_clear()


def told(kind: str, *more: str, output: str = "out") -> list[str]:
    return ["--input=people.csv", "--user-id=uid", f"--output={output}", *KINDS[kind], *PRIVATE,
            *more]  # fmt: skip


def released(kind: str, *more: str, output: str = "out", code: int = DONE) -> dict[str, Any]:
    """The record of a release."""
    found = program_of(commands.usage_of(commands.job_name(kind))).main(
        told(kind, *more, output=output)
    )
    assert found == code
    return dict(json.loads(Path(output, "privacy.json").read_text())) if code == DONE else {}


def estimates(output: str = "out") -> list[dict[str, str]]:
    return list(csv.DictReader(Path(output, "estimates.csv").open(newline="")))


@pytest.mark.parametrize("kind", KINDS)
def test_flags_and_help(kind: str) -> None:
    shown = CliRunner().invoke(group, [kind, "--help-all"])
    assert shown.exit_code == 0 and "--column" in shown.output and "--delta" in shown.output
    assert ("--interval LOW HIGH" in shown.output) == (kind == "halve")
    assert "It is a toy" not in shown.output and "{" not in shown.output
    wrong = CliRunner().invoke(group, [kind, *told(kind), "--intervall=3"])
    assert wrong.exit_code == MISUSED
    missing = CliRunner().invoke(group, [kind, "--input=people.csv", "--output=out"])
    assert missing.exit_code == MISUSED and "--column is missing" in missing.output


@pytest.mark.parametrize("kind", KINDS)
def test_plan_check_and_job_file(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All three say the same price before any row is read; the job file runs as the flags do."""
    assert plan.main([kind, *KINDS[kind], *PRIVATE[:-1], "--format=json"]) == DONE
    planned = json.loads(capsys.readouterr().out)["release"]
    assert check.main([kind, *told(kind)]) == DONE
    program = program_of(commands.usage_of(commands.job_name(kind)))
    capsys.readouterr()
    assert program.main(told(kind, "--dry-run", "--format=json")) == DONE
    dry = json.loads(capsys.readouterr().out)
    assert dry["epsilon"] == planned["epsilon"] > 0 and dry["local_epsilon"] == 3
    assert program.main(told(kind, "--print-job")) == DONE
    Path("job.yaml").write_text(capsys.readouterr().out)
    assert f"- {commands.job_name(kind)}:" in Path("job.yaml").read_text()
    schema = job_files.job_schema()["properties"]["questions"]["items"]["anyOf"]
    assert [commands.job_name(kind)] in [one.get("required") for one in schema]
    assert check.main(["job.yaml"]) == DONE
    assert plan.main(["job.yaml", "--format=json"]) == DONE
    assert job_runs.main(["job.yaml"]) == DONE
    assert estimates()


def test_yes_is_counted_and_certified() -> None:
    found = released("count-yes")
    yes, no = estimates()
    assert (yes["value"], no["value"]) == ("yes", "no")
    assert abs(float(yes["frequency"]) - 1900 / 3000) < 5 * float(yes["frequency_standard_error"])
    assert found["num_reports"] == 3000 and found["certificate"]["kind"] == "shuffle"
    assert verify.verify(verify.read(json.dumps(found)))[0] == verify.CONFIRMED
    assert "word" in Path("out/privacy.md").read_text()


def test_an_interval_is_halved_twice_by_one_report_each() -> None:
    """Everybody answers one round; the statement is the kind's own."""
    found = released("halve", "--seed=1")
    assert found["simulated"] and found["num_reports"] == 3000
    released("halve", output="real")
    (quarter,) = estimates("real")
    assert (float(quarter["low"]), float(quarter["high"])) == (0, 2)  # by 9 standard errors
    said = Path("real/privacy.md").read_text()
    assert "the interval 0.0 to 8.0" in said and "one of two rounds" in said


@pytest.mark.parametrize("kind", KINDS)
def test_groups_and_those_that_starve(kind: str) -> None:
    found = released(kind, "--group-by=town", "--groups=towns.txt")
    by_town = {row["group"]: row for row in estimates()}
    assert sorted(by_town) == ["north", "south"]
    assert {one["group"] for one in found["withheld"]} >= {"west"}
    if kind == "halve":
        assert [(float(by_town[town]["low"]), float(by_town[town]["high"]))
                for town in ("north", "south")] == [(0, 2), (4, 6)]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_too_few_people_release_nothing(kind: str) -> None:
    released(kind, "--min-reports=9000", code=NOTHING_RELEASED)
    assert not Path("out").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_charge_is_settled_and_audited(kind: str) -> None:
    ledger = BudgetLedger.create("sqlite:///privacy.db")
    ledger.set_budget("polls", epsilon=9.0, delta=1e-4, local_epsilon=20.0)
    charged = ["--dataset=polls", "--ledger=sqlite:///privacy.db", "--release-id=week"]
    found = released(kind, *charged, "--run-id=nightly")
    charge = ledger.charge("nightly")
    assert charge.status == "settled" and charge.identity.to_json() == found["identity"]
    assert ledger.status("polls").local_committed == pytest.approx(3)
    assert audit(ledger.rows()).clean


def test_identities_are_of_the_question_and_not_of_how_it_is_shown(tmp_path: Path) -> None:
    named = ["--dataset=polls", "--release-id=week", "--no-ledger"]
    first = released("count-yes", *named)
    same = released("count-yes", *named, "--called=Ja", "--top=3", output="shown")
    other = released("count-yes", *named, "--word=no", output="other")
    (tmp_path / "words.txt").write_text("yes\n")
    built_in = CliRunner().invoke(
        group,
        ["frequency", *told("count-yes", *named, output="list"), "--domain=words.txt",
         "--other-label=anything else", "--mechanism=KRandomizedResponse"],
    )  # fmt: skip
    assert built_in.exit_code == DONE, built_in.output
    ours = json.loads(Path("list/privacy.json").read_text())["identity_digest"]
    assert first["identity_digest"] == same["identity_digest"]
    assert len({first["identity_digest"], other["identity_digest"], ours}) == 3


@pytest.mark.slow  # processes of their own load everything anew
@pytest.mark.parametrize("kind", KINDS)
def test_another_process_and_its_workers_import_them(kind: str) -> None:
    command = [sys.executable, "-m", "beam_ldp.pipelines.cli", kind, *told(kind)]
    workers = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    done = subprocess.run([*command, *workers], capture_output=True, text=True)
    assert done.returncode == DONE, done.stderr
    assert estimates()
