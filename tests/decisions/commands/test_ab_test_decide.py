"""`beam-ldp ab-test decide`: an experiment whose outcomes were randomized on devices."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from beam_ldp.decisions import ArmCounts, ab_test_decide, decide
from beam_ldp.decisions.ab_test_run import place
from beam_ldp.decisions.outcomes import OutcomeOnDevices, Outcomes
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs, randomize
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.usage.randomize import USAGE as OF_DEVICES
from beam_ldp.questions.published import Published
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.release.devices.release_file import load_release
from beam_ldp.release.job_files import jobs_of
from beam_ldp.settings import SettingError
from tests.decisions.commands.test_ab_test_run import BAD, PEOPLE, Desk, two_arms, visits, written
from tests.decisions.commands.told import told

pytestmark = pytest.mark.e2e


class Devices(Desk):
    """The desk, and what devices send to it."""

    def send(self, output: str, *more: str, source: Path | None = None) -> tuple[int, str]:
        flags = [
            f"--input={source or self.input}", "--column=bought", "--group-by=arm",
            "--user-id=uid", f"--experiment={self.design}", "--dataset=them",
            f"--output={self.folder / output}",
        ]  # fmt: skip
        named = {flag.split("=")[0] for flag in more}
        kept = [flag for flag in flags if flag.split("=")[0] not in named]
        return self._told(randomize.PROGRAM, [*kept, *more])

    def decide(self, reports: str, *more: str) -> tuple[int, str]:
        named = {flag.split("=")[0] for flag in more}
        usual = [
            f"--reports={self.folder / reports}", f"--design={self.design}", "--no-mlflow",
            "--no-ledger",
        ]  # fmt: skip
        kept = [flag for flag in usual if flag.split("=")[0] not in named]
        if "--ledger" in named:
            kept.remove("--no-ledger")
        return self._told(ab_test_decide.PROGRAM, [*kept, *more])

    def _told(self, program: programs.Program, flags: list[str]) -> tuple[int, str]:
        try:
            return told(program, flags)
        except SettingError as error:
            return programs.MISUSED, str(error)


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Devices:
    """Reports of a key, decided once beside the design."""
    found = Devices(tmp_path_factory.mktemp("decide"), two_arms())
    code, said = found.send("reports", f"--memoize-key-file={found.folder}/key")
    assert code == programs.DONE, said
    code, said = found.decide("reports")
    assert code == programs.DONE, said
    return found


def test_what_devices_and_collector_agree_upon(devices: Devices) -> None:
    agreed = load_release(f"{devices.folder}/reports/release.json")
    plan = devices.plan
    assert agreed.asked == OutcomeOnDevices("bought", plan.digest, 1)
    assert agreed.terms.identity.release_id == f"ab-test-{plan.digest[:16]}"
    assert agreed.terms.identity.values == Outcomes(plan, "bought").digest(None).hex()
    told = Published.from_text(agreed.asked.text)
    assert told == agreed.asked and told.values != OutcomeOnDevices("bought", plan.digest, 2).values


def test_the_verdict_is_that_of_rows_with_the_same_key(devices: Devices) -> None:
    """The same plan, people and key: the same reports, wherever the noise was drawn."""
    verdict = devices.told("test.verdict-1", "verdict.json")
    counts = {
        arm: ArmCounts(one["people"], one["ones"]) for arm, one in verdict["counts"][0].items()
    }
    assert all(count.people == PEOPLE for count in counts.values())
    assert verdict["decision"] == decide(devices.plan, counts).decision == "effect"
    code, _, said = devices.run("rows", f"--memoize-key-file={devices.folder}/key", "--no-ledger")
    assert code == programs.DONE, said
    assert devices.told("rows", "verdict.json") == verdict
    record = devices.told("test.verdict-1", "privacy.json")
    assert record["plan"] == devices.plan.digest and record["sampling"] == "iid"
    assert record["group_by"] == "arm" and record["user_id"] is None
    statement = (devices.folder / "test.verdict-1" / "privacy.md").read_text()
    assert (
        "decided: effect" in statement and "Everybody who sent a report is one person" in statement
    )


def test_copies_count_once_and_other_reports_are_not_decided_again(
    devices: Devices, tmp_path: Path
) -> None:
    before = place(str(devices.design), 1).read_bytes()
    code, said = devices.send("again", f"--memoize-key-file={devices.folder}/key")
    assert code == programs.DONE, said
    both = devices.folder / "both"
    shutil.copytree(devices.folder / "reports", both)
    for file in (devices.folder / "again").glob("*.ldp"):
        shutil.copy(file, both / f"again-{file.name}")
    code, said = devices.decide("both", f"--output={tmp_path}/both")
    assert code == programs.DONE, said
    assert (tmp_path / "both" / "verdict.json").read_bytes() == (
        devices.folder / "test.verdict-1" / "verdict.json"
    ).read_bytes()
    more = visits(tmp_path, first=10_000)
    code, said = devices.send("more", f"--memoize-key-file={devices.folder}/key", source=more)
    assert code == programs.DONE, said
    for file in (devices.folder / "more").glob("*.ldp"):
        shutil.copy(file, both / f"more-{file.name}")
    code, said = devices.decide("both", f"--output={tmp_path}/more")
    assert code == programs.NOTHING_RELEASED and "on other reports" in said
    assert not (tmp_path / "more").exists() and place(str(devices.design), 1).read_bytes() == before


def test_reports_of_something_else_are_refused(devices: Devices, tmp_path: Path) -> None:
    other = two_arms(alpha=0.01)
    design = written(tmp_path, other, "other.json")
    code, said = devices.decide("reports", f"--design={design}")
    assert code == programs.MISUSED and "the devices had another plan" in said
    theirs = Devices(tmp_path, other)
    theirs.design = design
    assert theirs.send("reports")[0] == programs.DONE
    mixed = tmp_path / "mixed"
    shutil.copytree(devices.folder / "reports", mixed)
    for file in (tmp_path / "reports").glob("*.ldp"):
        shutil.copy(file, mixed / f"other-{file.name}")
    own = written(tmp_path, devices.plan, "own.json")  # beside which nothing was decided
    code, said = devices.decide("reports", f"--reports={mixed}", f"--design={own}")
    assert code == programs.DONE, said
    record = json.loads((tmp_path / "own.verdict-1" / "privacy.json").read_text())
    assert record["num_reports"] == 2 * PEOPLE and record["num_bad_rows"] >= 1
    (tmp_path / "list.txt").write_text("0\n1\n")
    flags = [
        f"--input={devices.input}", "--column=bought", f"--domain={tmp_path}/list.txt",
        "--local-epsilon=2", "--dataset=them", "--release-id=list", f"--output={tmp_path}/list",
    ]  # fmt: skip
    assert devices._told(randomize.PROGRAM, flags)[0] == programs.DONE
    code, said = devices.decide("x", f"--reports={tmp_path}/list")
    assert code == programs.MISUSED and "of no experiment" in said
    code, said = devices.decide("x", f"--reports={mixed}/*.ldp")
    assert code == programs.MISUSED and "--release is missing" in said


def test_a_budget_is_charged_once(tmp_path: Path) -> None:
    desk = Devices(tmp_path, two_arms())
    assert desk.send("reports")[0] == programs.DONE
    charged = (f"--ledger={desk.url}", f"--output={tmp_path}/out")
    code, said = desk.decide("reports", *charged)
    assert code == programs.DONE, said
    charge = BudgetLedger(desk.url).charge(desk.told("out", "privacy.json")["run_id"])
    assert charge.status == "settled" and charge.local_epsilon == pytest.approx(2.0)
    spent = desk.spent
    code, said = desk.decide("reports", f"--ledger={desk.url}", f"--output={tmp_path}/again")
    assert code == programs.MISUSED and "already has its charge" in said
    assert desk.spent == spent > 0
    code, _, said = desk.run("rows", f"--design={written(tmp_path, desk.plan, 'renamed.json')}")
    assert code == programs.MISUSED and "already has its charge" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--local-epsilon=2",), "--local-epsilon does not go with --experiment"),
        (("--release-id=mine",), "--release-id does not go with --experiment"),
        (("--domain=list.txt",), "--domain does not go with --experiment"),
        (("--min-reports=5",), "--min-reports does not go with --experiment"),
        (("--experiment=/nowhere.json",), "/nowhere.json: cannot be read"),
        (("--look=3",), "--look must be at most 1"),
    ],
)
def test_what_devices_refuse(tmp_path: Path, more: tuple[str, ...], said: str) -> None:
    code, told = Devices(tmp_path, two_arms()).send("out", *more)
    assert code == programs.MISUSED and said in told, told


def test_a_look_needs_an_experiment(tmp_path: Path) -> None:
    given = read_flags(OF_DEVICES, ["--look=2", "--column=bought", f"--output={tmp_path}/out"])
    with pytest.raises(SettingError, match="--look needs --experiment"):
        randomize.check(given)


def test_bad_outcomes_are_counted_and_sent_by_nobody(tmp_path: Path) -> None:
    desk = Devices(tmp_path, two_arms())
    device = randomize.check(
        read_flags(OF_DEVICES, [
            f"--input={desk.input}", "--column=bought", "--group-by=arm", "--user-id=uid",
            f"--experiment={desk.design}", "--dataset=them", f"--output={tmp_path}/out",
        ])
    )  # fmt: skip
    done = randomize.execute(device, [], Console(quiet=True))
    assert done["num_reports"] == 2 * PEOPLE and done["num_bad_rows"] == len(BAD)
    assert done["bad_rows"] == dict.fromkeys(
        ["not a number", "neither 0 nor 1", "group that is not listed", "no group", "null"], 1
    )


def test_job_files_and_checks(devices: Devices) -> None:
    """Devices and collector take job files, and `check` looks at them."""
    sent = {
        "program": "randomize",
        "source": {"csv": str(devices.input)},
        "people": {"id": "uid", "group_by": "arm"},
        "questions": [{"ab_test": "bought", "experiment": str(devices.design)}],
        "release": {"dataset": "them"},
        "output": {"folder": str(devices.folder / "job")},
    }
    ((name, given),) = jobs_of(sent)
    assert name == "randomize" and programs.exit_code(programs.checks_of(name, given)) == 0
    decided = {
        "program": "ab_test_decide",
        "reports": {"reports": str(devices.folder / "reports")},
        "questions": [{"design": str(devices.design)}],
        "release": {"ledger": "none"},
        "output": {"folder": str(devices.folder / "job")},
    }
    ((name, given),) = jobs_of(decided)
    found = programs.checks_of(name, given)
    assert name == "ab_test_decide" and programs.exit_code(found) == 0, [one.said for one in found]


def test_texts_that_are_no_question() -> None:
    for wrong in ({"plan": "ab"}, {"look": 0}, {"look": True}, {"column": 3}):
        text = json.dumps({"column": "x", "plan": digest_of(b"x").hex() * 2, "look": 1, **wrong})
        with pytest.raises(ValueError, match="questions"):
            Published.from_text(text)
